"""Readers: from a call's PyTorch tensors to their addresses, and to what was prepared for such tensors: a plan, mostly.

A reader is generated as Python text, one straight line of attribute reads: a loop over the arguments costs
more than the rest of a launch. The text is made of positions only; nothing of a kernel or a call gets into it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

from argus.backend.launch.evaluate import Number
from argus.runtime.executable import CONSTEXPR, SCALAR, TENSOR

T = TypeVar("T")

Check = Callable[..., bool]
"""Whether tensors are like those that it was made of, in all that a plan depends on but their addresses."""

Reader = Callable[..., tuple[Any, tuple[Number, ...], Hashable]]
"""`reader(*arguments)` gives a plan, the tensors' addresses followed by the scalars, and None; or what is prepared
under a key (None for nothing), the same values, and the key.

Where keys are equal, one plan serves. AttributeError or TypeError for what is no tensor of PyTorch, RuntimeError for
one without an address.
"""

_HOT = 4
"""Plans that are tried before a key is made: a check takes a tenth of the time of a key."""

_RENEWALS = 8
_MOST = 4096
"""Of what is prepared, and of ways to call: beyond that number, all is prepared anew."""

# Of an address only its last four bits matter to a plan: alignment is specialised up to 16 bytes.
_TENSOR_KEY = "a{i}.shape, a{i}.stride(), a{i}.dtype, a{i}.device, a{i}.__class__, a{i}.is_neg(), p{i} & 15, "


def _never(*_tensors: Any) -> bool:
    return False


@dataclass(slots=True)
class Prepared(Generic[T]):
    """A plan, and what tells that it serves. `renewals`: how often yet the check may be made anew, for tensors that are
    the same to a plan and not to PyTorch (which may need a gradient, say)."""

    plan: T
    check: Check = _never
    renewals: int = _RENEWALS


class Site(Generic[T]):
    """Calls with the same grid, number of arguments and keywords. `hot` are the plans of the last ones, with checks."""

    __slots__ = ("hot", "keywords", "kinds", "read")

    def __init__(
        self, kinds: tuple[str, ...], name: Hashable, keywords: Mapping[str, object], plans: Mapping[Any, Prepared[T]]
    ) -> None:
        self.hot: tuple[tuple[Check, T], ...] = ()
        self.kinds = kinds
        self.keywords = dict(keywords)  # kept, because calls find their site by the identity of these objects
        self.read: Reader = _generated(kinds)(self, plans, name)

    def settle(self, prepared: Prepared[T], arguments: Sequence[Any], values: Sequence[Number]) -> None:
        """Makes `prepared` one of the hot plans, which later calls like this one find first."""
        tensors = [a for a, kind in zip(arguments, self.kinds, strict=True) if kind == TENSOR]
        if CONSTEXPR in self.kinds or any(int(v) & 15 for v in values[: len(tensors)]):
            return
        others = tuple(entry for entry in self.hot if entry[1] is not prepared.plan)
        if prepared.renewals and (prepared.check is _never or len(others) < len(self.hot)):
            prepared.renewals -= 1
            prepared.check = check_of(tensors)
        if prepared.check is not _never:
            self.hot = ((prepared.check, prepared.plan), *others[: _HOT - 1])


class Memory(Generic[T]):
    """What functions of PyTorch tensors prepare, to find it again by how they are called and what tensors they get."""

    def __init__(self) -> None:
        self._prepared: dict[Hashable, Prepared[T]] = {}
        self._sites: dict[Hashable, Site[T]] = {}

    def find(
        self, way: Hashable, tensors: Sequence[Any], prepare: Callable[..., T], *arguments: Any
    ) -> tuple[T, tuple[int, ...]]:
        """What `prepare(*arguments)` made in the first call of this `way` with such tensors, and their addresses.

        `way` says how many tensors there are. Raises what `prepare` raises, which of what is no tensor with an address
        says so in words; failing that, what a `Reader` raises.
        """
        site = self._sites.get(way)
        if site is None:
            if len(self._sites) >= _MOST:
                self._sites.clear()
            site = self._sites[way] = Site((TENSOR,) * len(tensors), way, {}, self._prepared)
        unreadable: Exception | None = None
        try:
            found, addresses, key = site.read(*tensors)
        except (AttributeError, RuntimeError, TypeError) as error:
            unreadable = error
        if unreadable is not None:  # outside of the handler: a later error would show this one as its context
            prepare(*arguments)
            raise unreadable
        if key is not None:
            if found is None:
                found = Prepared(prepare(*arguments))
                if len(self._prepared) >= _MOST:
                    self._prepared.clear()
                self._prepared[key] = found
            site.settle(found, tensors, addresses)
            found = found.plan
        return found, addresses  # type: ignore[return-value]  # of tensors alone there are no scalars


def check_of(tensors: Sequence[Any]) -> Check:
    """A check of tensors like these, by PyTorch's own: types, layouts, dtypes, devices, sizes, strides, in one call.

    It refuses one tensor in two places. Where this PyTorch has none, it refuses everything.
    """
    try:
        guards = sys.modules["torch"]._C._dynamo.guards.TensorGuards
        sizes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
        check: Check = guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        return check if check(*tensors) else _never
    except (AttributeError, RuntimeError, TypeError):
        return _never


@lru_cache(maxsize=256)
def _generated(kinds: tuple[str, ...]) -> Callable[[Site[Any], Mapping[Any, Prepared[Any]], Hashable], Reader]:
    """`make(site, plans, name)` gives the reader of arguments of these kinds."""
    places = {kind: [i for i, k in enumerate(kinds) if k == kind] for kind in (TENSOR, SCALAR, CONSTEXPR)}
    tensors, scalars, constants = places[TENSOR], places[SCALAR], places[CONSTEXPR]
    addresses = [f"p{i} = a{i}.data_ptr()" for i in tensors]
    values = f"({''.join(f'p{i}, ' for i in tensors)}{''.join(f'a{i}, ' for i in scalars)})"
    hot = [
        "        for check, plan in site.hot:",
        f"            if check({', '.join(f'a{i}' for i in tensors)}):",
        *(f"                {line}" for line in addresses),
        f"                if not ({' | '.join(f'p{i}' for i in tensors)}) & 15:",
        f"                    return plan, {values}, None",
    ]
    lines = [
        "def make(site, plans, name):",
        f"    def read({', '.join(f'a{i}' for i in range(len(kinds)))}):",
        *(hot if tensors and not constants else ()),
        *(f"        {line}" for line in addresses),
        f"        key = (name, {''.join(_TENSOR_KEY.format(i=i) for i in tensors)}"
        f"{''.join(f'repr(a{i}), ' for i in constants)})",
        f"        return plans.get(key), {values}, key",
        "    return read",
    ]
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    make: Callable[[Site[Any], Mapping[Any, Prepared[Any]], Hashable], Reader] = scope["make"]
    return make
