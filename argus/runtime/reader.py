"""Readers: from a call's PyTorch tensors to their addresses, and to what was prepared for such tensors, which they run.

A reader is generated as Python text, one straight line of attribute reads: a loop over the arguments costs
more than the rest of a launch. The text is made of positions only; nothing of a kernel or a call gets into it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from argus.backend.launch.evaluate import Number
from argus.runtime.executable import CONSTEXPR, SCALAR, TENSOR

Check = Callable[..., bool]
"""Whether tensors are like those that it was made of, in all that a plan depends on but their addresses."""

Run = Callable[[tuple[Number, ...]], Any]
"""`run(values)`, of the tensors' addresses followed by the scalars: queues launches, and gives a call's results."""

_HOT = 4
"""What is tried before a key is made: a check takes a tenth of the time of a key."""

_RENEWALS = 8
_MOST = 4096
"""Of what is prepared, and of ways to call: beyond that number, all is prepared anew."""

# Of an address only its last four bits matter to a plan: alignment is specialised up to 16 bytes.
_TENSOR_KEY = "a{i}.shape, a{i}.stride(), a{i}.dtype, a{i}.device, a{i}.__class__, a{i}.is_neg(), p{i} & 15, "


def _never(*_tensors: Any) -> bool:
    return False


@dataclass(slots=True)
class Prepared:
    """What runs, and what tells that it serves. `renewals`: how often yet the check may be made anew, for tensors that
    are the same to a plan and not to PyTorch (which may need a gradient, say)."""

    run: Run
    check: Check = _never
    renewals: int = _RENEWALS


@dataclass(frozen=True, slots=True)
class Cold:
    """A call that no check knew. Where keys are equal, one `Prepared` serves."""

    key: Hashable
    values: tuple[Number, ...]


Reader = Callable[..., Any]
"""`reader(*arguments)` runs what was prepared for such tensors, and gives what that gives; or `Cold`.

AttributeError or TypeError for what is no tensor of PyTorch, RuntimeError for one without an address.
"""

UNREADABLE = (AttributeError, RuntimeError, TypeError)


class Site:
    """Calls with the same grid, number of arguments and keywords. `hot` is what ran last, with checks."""

    __slots__ = ("hot", "keywords", "kinds", "read")

    def __init__(self, kinds: tuple[str, ...], name: Hashable, keywords: Mapping[str, object]) -> None:
        self.hot: tuple[tuple[Check, Run], ...] = ()
        self.kinds = kinds
        self.keywords = dict(keywords)  # kept, because calls find their site by the identity of these objects
        self.read: Reader = _generated(kinds)(self, name, Cold)

    def settle(self, prepared: Prepared, arguments: Sequence[Any], values: Sequence[Number]) -> None:
        """Makes `prepared` hot: later calls like this one find it first."""
        tensors = [a for a, kind in zip(arguments, self.kinds, strict=True) if kind == TENSOR]
        if CONSTEXPR in self.kinds or any(int(v) & 15 for v in values[: len(tensors)]):
            return
        others = tuple(entry for entry in self.hot if entry[1] is not prepared.run)
        if prepared.renewals and (prepared.check is _never or len(others) < len(self.hot)):
            prepared.renewals -= 1
            prepared.check = check_of(tensors)
        if prepared.check is not _never:
            self.hot = ((prepared.check, prepared.run), *others[: _HOT - 1])


UNPREPARED = object()
"""What a call gives for which nothing can be prepared."""


def _unprepared(_values: tuple[Number, ...]) -> object:
    return UNPREPARED


class Memory:
    """What functions of PyTorch tensors prepare, to find it again by how they are called and what tensors they get."""

    def __init__(self) -> None:
        self._prepared: dict[Hashable, Prepared] = {}
        self._sites: dict[Hashable, Site] = {}

    def call(
        self,
        way: Hashable,
        tensors: tuple[Any, ...],
        numbers: tuple[Number, ...],
        prepare: Callable[..., Run | None],
        *arguments: Any,
    ) -> Any:
        """Runs what `prepare(*arguments)` made in the first call of this `way` with such tensors, on these: its result,
        or `UNPREPARED` if it made None.

        `way` says how many tensors and numbers there are. Raises what `prepare` raises, which of what is no tensor with
        an address says so in words; failing that, what a `Reader` raises; and what raises where it runs.
        """
        site = self._sites.get(way)
        if site is None:
            if len(self._sites) >= _MOST:
                self._sites.clear()
            site = self._sites[way] = Site((TENSOR,) * len(tensors) + (SCALAR,) * len(numbers), way, {})
        try:
            found = site.read(*tensors, *numbers)
        except UNREADABLE as error:
            unreadable = error
        else:
            return self._run(site, found, tensors, numbers, prepare, arguments) if type(found) is Cold else found
        prepare(*arguments)  # outside of the handler: a later error would show this one as its context
        raise unreadable

    def _run(
        self,
        site: Site,
        cold: Cold,
        tensors: tuple[Any, ...],
        numbers: tuple[Number, ...],
        prepare: Callable[..., Run | None],
        arguments: tuple[Any, ...],
    ) -> Any:
        prepared = self._prepared.get(cold.key)
        if prepared is None:
            prepared = Prepared(prepare(*arguments) or _unprepared)
            if len(self._prepared) >= _MOST:
                self._prepared.clear()
            self._prepared[cold.key] = prepared
        site.settle(prepared, (*tensors, *numbers), cold.values)
        return prepared.run(cold.values)


def check_of(tensors: Sequence[Any]) -> Check:
    """A check of tensors like these, by PyTorch's own: types, layouts, dtypes, devices, sizes, strides, in one call.

    It refuses one tensor in two places. Where this PyTorch has none, it refuses everything.
    """
    try:
        guards = sys.modules["torch"]._C._dynamo.guards.TensorGuards
        sizes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
        check: Check = guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        return check if check(*tensors) else _never
    except UNREADABLE:
        return _never


@lru_cache(maxsize=256)
def _generated(kinds: tuple[str, ...]) -> Callable[[Site, Hashable, type[Cold]], Reader]:
    """`make(site, name, Cold)` gives the reader of arguments of these kinds."""
    places = {kind: [i for i, k in enumerate(kinds) if k == kind] for kind in (TENSOR, SCALAR, CONSTEXPR)}
    tensors, scalars, constants = places[TENSOR], places[SCALAR], places[CONSTEXPR]
    addresses = [f"p{i} = a{i}.data_ptr()" for i in tensors]
    values = f"({''.join(f'p{i}, ' for i in tensors)}{''.join(f'a{i}, ' for i in scalars)})"
    hot = [
        "        for check, run in site.hot:",
        f"            if check({', '.join(f'a{i}' for i in tensors)}):",
        *(f"                {line}" for line in addresses),
        f"                if not ({' | '.join(f'p{i}' for i in tensors)}) & 15:",
        f"                    return run({values})",
    ]
    lines = [
        "def make(site, name, Cold):",
        f"    def read({', '.join(f'a{i}' for i in range(len(kinds)))}):",
        *(hot if tensors and not constants else ()),
        *(f"        {line}" for line in addresses),
        f"        key = (name, {''.join(_TENSOR_KEY.format(i=i) for i in tensors)}"
        f"{''.join(f'repr(a{i}), ' for i in constants)})",
        f"        return Cold(key, {values})",
        "    return read",
    ]
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    make: Callable[[Site, Hashable, type[Cold]], Reader] = scope["make"]
    return make
