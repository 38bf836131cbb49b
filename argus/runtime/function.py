"""Build functions on PyTorch tensors out of kernels. The first call records its launches; later calls repeat them.

Write the work of one call as `work(tensors, numbers, *way)`. It checks the arguments, allocates with `torch.empty` and
the like, and returns `Work(calls, results)`. `Function(work)` calls it for the first tensors with given shapes,
strides, dtypes, alignments and devices, and keeps the launches. A later call of the same kind only allocates results
and launches the kernels, which takes a few microseconds. Every function in `argus.kernels` is written this way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.numbered import number, numbered
from argus.runtime.executable import SCALAR, TENSOR
from argus.runtime.reader import UNREADABLE, Cold, Prepared, Site
from argus.runtime.shared import Shared
from argus.runtime.work import Work, plain, recipe_of, stand_in

MOST = 4096
"""Largest number of launches, and of ways to call, that a function keeps. Beyond this number, all of them are prepared
again."""


class Unread(Exception):
    """The result of a site for a call whose arguments it cannot read, or which failed while it ran."""


MISSES = (Cold, Unread)
"""The types of results that a site returns for calls that it does not serve."""

Attended = Callable[[tuple[Any, ...], tuple[Number, ...], tuple[Any, ...]], Any]
"""Computes the results of a call that PyTorch must handle."""


def _unprepared(_values: tuple[Number, ...]) -> None:
    raise AssertionError("work that is done anew in each call is not run")


@dataclass(frozen=True, slots=True)
class Operator:
    """The description of a function as the PyTorch operator `argus::name`.

    `schema` is in PyTorch's language, such as "softmax(Tensor x) -> Tensor". Arguments of the types Tensor, float and
    int are the function's tensors and numbers; all others form its `way`, in their order. For another arrangement,
    `join(tensors, numbers, way)` returns the operator's arguments, and `split(*arguments)` is its inverse. The way may
    depend on which tensors are None, but not on the tensors and numbers themselves.

    `fake` takes the operator's arguments, checks them, and returns new tensors with the results' shapes and dtypes. It
    computes nothing and reads no address. `batch` is the number of leading tensors that may have additional leading
    dimensions, because their rows are independent; `vmap` then makes one call for the whole batch. Other operators are
    called once for each element of a batch.
    """

    schema: str
    fake: Callable[..., Any]
    batch: int = 0
    join: Callable[..., tuple[Any, ...]] | None = None
    split: Callable[..., tuple[tuple[Any, ...], tuple[Number, ...], tuple[Any, ...]]] | None = None
    kinds: str = field(init=False)

    def __post_init__(self) -> None:
        given = self.schema[self.schema.index("(") + 1 : self.schema.rindex(") ->")]
        types = [parameter.split(" ")[0] for parameter in given.split(", ")]
        object.__setattr__(self, "kinds", "".join(_kind(t, self.split is not None) for t in types))

    @property
    def name(self) -> str:
        """The name with its namespace, which is `argus` if the schema has none."""
        name = self.schema.partition("(")[0]
        return name if "::" in name else f"argus::{name}"

    def joined(self, tensors: tuple[Any, ...], numbers: tuple[Number, ...], way: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the operator's arguments for a call of the function."""
        if self.join is not None:
            return self.join(tensors, numbers, way)
        rest = iter(way)
        given = {"t": iter(tensors), "n": iter(numbers), "l": rest, "w": rest}
        return tuple([next(given[kind]) for kind in self.kinds])


def _kind(type: str, optional: bool) -> str:
    """Return the letter of an argument's kind by its type: "t" for a tensor, "n" for a number, "l" for a list, "w" for
    the rest of the way, and "o", if there are `optional` ones, for a tensor or number that may be None."""
    if type == "Tensor" or type.startswith("Tensor("):
        return "t"
    if optional and type in ("Tensor?", "float?"):
        return "o"
    return "n" if type in ("float", "int", "SymInt") else "l" if "[" in type else "w"


class Memory:
    """The prepared launches of a function, found by kind of call and by tensors."""

    def __init__(self) -> None:
        self.sites: dict[Any, Site] = {}
        self._prepared: dict[Any, Prepared] = {}

    def site(self, kind: tuple[int, int, Any]) -> Site:
        """Return the site for calls of this kind; create it if there is none."""
        if kind not in self.sites:
            if len(self.sites) >= MOST:
                self.sites.clear()
            self.sites[kind] = Site((TENSOR,) * kind[0] + (SCALAR,) * kind[1], kind, {})
        return self.sites[kind]

    def prepared(self, key: Any, make: Callable[[], Prepared]) -> Prepared:
        """Return the launches prepared for tensors with this key; `make` prepares them the first time."""
        found = self._prepared.get(key)
        if found is None:
            found = make()
            if len(self._prepared) >= MOST:
                self._prepared.clear()
            self._prepared[key] = found
        return found


class Function(Shared):
    """A function of tensors and numbers. `function(tensors, numbers, way)` returns a tensor, several, or None.

    `work(tensors, numbers, *way)` describes a call, and raises the errors of its arguments. Numbers are passed to the
    kernels unchanged. Everything that decides the choice or the constants of a kernel belongs to `way`, which must be
    hashable.

    With an `operator`, the function is also `torch.ops.argus.<name>`. Calls that PyTorch must handle (gradients,
    `torch.compile`, fake tensors, `vmap`, dispatch modes) use the operator automatically; other calls launch directly.
    `gradient` is set by `argus.torch.gradient.attach`. `direct` holds the launches of calls that come from the program,
    and `below` those of calls that PyTorch has handled. Copies of a module share its functions. A pickle names a
    function by the variable of the module in which `work` is defined.
    """

    def __init__(self, work: Callable[..., Work], operator: Operator | None = None) -> None:
        self._work = work
        self.operator = operator
        self.gradient: Any = None
        self.direct, self.below = Memory(), Memory()
        self.number = number(self)

    def module(self) -> str:
        """Return the name of the module in which `work` is defined."""
        return getattr(self._work, "__module__", type(self._work).__module__)

    def __call__(self, tensors: tuple[Any, ...], numbers: tuple[Number, ...] = (), way: tuple[Any, ...] = ()) -> Any:
        """Return the results. Raises the errors of `work` and of the kernels' calls."""
        return self.call(self.direct, self._as_operator, tensors, numbers, way)

    def call(
        self,
        memory: Memory,
        attended: Attended | None,
        tensors: tuple[Any, ...],
        numbers: tuple[Number, ...],
        way: tuple[Any, ...],
    ) -> Any:
        """Return the results; `attended` computes them if PyTorch must handle the call, None if it did."""
        kind = len(tensors), len(numbers), way
        site = memory.sites.get(kind) or memory.site(kind)
        try:
            found = site.read(*tensors, *numbers)
        except UNREADABLE as error:
            found = Unread(error)
        if found.__class__ in MISSES:  # outside the handler: a later error would show that one as its context
            return self.missed(memory, attended, site, found, tensors, numbers, way)
        return found

    def missed(
        self,
        memory: Memory,
        attended: Attended | None,
        site: Site,
        found: Cold | Unread,
        tensors: tuple[Any, ...],
        numbers: tuple[Number, ...],
        way: tuple[Any, ...],
    ) -> Any:
        """Return the results of a call that no check of its site recognised: one that PyTorch must handle, the first of
        its kind, one that cannot be recorded, or one with wrong arguments."""
        if attended is not None and not plain(tensors):
            return attended(tensors, numbers, way)
        if isinstance(found, Unread):
            _insist_on_tensors(tensors)
            self._work(tensors, numbers, *way)  # raises a clear error for arguments that are not tensors with addresses
            raise found.args[0]
        prepared = memory.prepared(found.key, lambda: self._prepare(tensors, numbers, way))
        if prepared.run is _unprepared:
            return self._anew(tensors, numbers, way)
        site.settle(prepared, (*tensors, *numbers), found.values)
        return prepared.started(tensors, found.values)

    def _anew(self, tensors: tuple[Any, ...], numbers: tuple[Number, ...], way: tuple[Any, ...]) -> Any:
        work = self._work(tensors, numbers, *way)
        for call in work.calls:
            call.run()
        return work.results[0] if len(work.results) == 1 else work.results or None

    def _prepare(self, tensors: tuple[Any, ...], numbers: tuple[Number, ...], way: tuple[Any, ...]) -> Prepared:
        torch = sys.modules["torch"]
        with torch.inference_mode(False), torch.no_grad():
            # New base tensors, so that the base of a view identifies its tensor, even if two tensors share memory.
            given = tuple(torch.empty(0, dtype=t.dtype, device=t.device).set_(t) for t in tensors)
            told = tuple(map(stand_in, numbers))
            found = recipe_of(lambda: self._work(given, told, *way), given, told)
        return Prepared(_unprepared) if found is None else Prepared(found.runner(), found.mutated)

    def _as_operator(self, tensors: tuple[Any, ...], numbers: tuple[Number, ...], way: tuple[Any, ...]) -> Any:
        if self.operator is None:
            raise LaunchError.of(
                "no-operator",
                "this function is no operator of PyTorch, which has to follow this call: a tensor needs a gradient, or "
                "the call is inside of `torch.compile`, `vmap`, or a mode",
                "give it one: argus.Function(work, argus.Operator(schema, fake))",
            )
        return operator_of(self)(*self.operator.joined(tensors, numbers, way))


def _insist_on_tensors(arguments: tuple[Any, ...]) -> None:
    """Raise LaunchError for the first argument that is no tensor."""
    for place, x in enumerate(arguments, 1):
        if not hasattr(x, "data_ptr"):
            what = f"tensor number {place} of the call is of type {type(x).__name__}"
            raise LaunchError.of("argument-type", what, "pass PyTorch tensors")


def operator_of(function: Function) -> Any:
    """Return the PyTorch operator of `function`, which is registered at the first request."""
    from argus.torch.library import overload

    return overload(function)


def _registered(function: int) -> str:
    """Return the name of the operator of function number `function`; register the operator if needed."""
    return str(operator_of(numbered(function))._schema.name)


def _inlined(
    function: Function, tensors: tuple[Any, ...], numbers: tuple[Number, ...] = (), way: tuple[Any, ...] = ()
) -> Any:
    """Return the function that Dynamo traces instead of a call. It calls the operator."""
    import torch

    namespace, name = _registered(function.number).split("::")
    given = function.operator.joined(tensors, numbers, way)  # type: ignore[union-attr]
    return getattr(getattr(torch.ops, namespace), name).default(*given)


# Dynamo reads these attributes, which `torch.compiler.disable` and `assume_constant_result` set. PyTorch need not be
# imported.
Function.__call__._torchdynamo_inline = _inlined  # type: ignore[attr-defined]
_registered._dynamo_marked_constant = True  # type: ignore[attr-defined]
