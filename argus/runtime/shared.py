"""Objects that copies share and pickles name, as Python treats functions and classes."""

from __future__ import annotations

from importlib import import_module
from pickle import PicklingError
from typing import Any, TypeVar

_T = TypeVar("_T", bound="Shared")


class Shared:
    """A base for objects that exist once: a copy is the object itself, and a pickle says where to find it.

    The place is a module and the name of the module's variable. An object that is no variable of its module has no
    place, and `pickle` raises PicklingError.
    """

    def __copy__(self: _T) -> _T:
        return self

    def __deepcopy__(self: _T, _copied: dict[int, object]) -> _T:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        module = self.module()
        found = next((name for name, value in vars(import_module(module)).items() if value is self), None)
        if found is None:
            raise PicklingError(f"{self!r} cannot be pickled, because it is no variable of the module {module}")
        return _at, (module, found)

    def module(self) -> str:
        """Return the name of the module that has the object as a variable."""
        raise NotImplementedError


def _at(module: str, name: str) -> object:
    """Return a variable of a module."""
    return getattr(import_module(module), name)
