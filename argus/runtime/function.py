"""Functions of PyTorch tensors made of kernels: what a call launches is found out once, and done again for its kind.

Write what one call does as `work(tensors, numbers, *way)`: it checks the arguments, allocates with `torch.empty` and
the like, and returns `Work(calls, results)`. `Function(work)` calls it the first time that tensors of such shapes,
strides, dtypes, alignments and devices come, and keeps the launches. A later call of the same kind allocates anew and
launches, which costs a few microseconds. Every function in `argus.kernels` is written this way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.runtime.executable import SCALAR, TENSOR
from argus.runtime.numbered import number, numbered
from argus.runtime.reader import UNREADABLE, Cold, Prepared, Site
from argus.runtime.work import Work, plain, recipe_of, stand_in

_MOST = 4096
"""The most launches, and the most ways to call, that a function keeps; beyond that number, all are prepared anew."""


class _Unread(Exception):
    """What a site says of a call whose arguments it cannot read, or which failed where it ran."""


_MISSES = (type(None), Cold, _Unread)
"""Types of what a site gives for calls that it does not serve."""


def _unprepared(_values: tuple[Number, ...]) -> None:
    raise AssertionError("work that is done anew in each call is not run")


@dataclass(frozen=True, slots=True)
class Operator:
    """How a function is seen by PyTorch, as the operator `argus::name`.

    `schema` is in PyTorch's language, such as "softmax(Tensor x) -> Tensor". Arguments of the types Tensor, float and
    int are the function's tensors and numbers, and all others its way, in their order. Where that does not fit,
    `join(tensors, numbers, way)` makes the operator's arguments of the function's, and `split(*arguments)` is its
    inverse. `fake` takes the operator's arguments, checks them, and returns new tensors
    of the results' shapes and dtypes: it computes nothing, and asks for no address. `batch` says how many leading
    tensors may have more dimensions in front, because their rows are independent of one another: `vmap` then makes one
    call of all of them. Other operators are called once for each element of a batch.
    """

    schema: str
    fake: Callable[..., Any]
    batch: int = 0
    join: Callable[..., tuple[Any, ...]] | None = None
    split: Callable[..., tuple[tuple[Any, ...], tuple[Number, ...], tuple[Any, ...]]] | None = None
    kinds: str = field(init=False)

    def __post_init__(self) -> None:
        given = self.schema[self.schema.index("(") + 1 : self.schema.rindex(") ->")]
        object.__setattr__(self, "kinds", "".join(_kind(p.split(" ")[0]) for p in given.split(", ")))

    @property
    def name(self) -> str:
        """The name, with its namespace, which is `argus` if the schema has none."""
        name = self.schema.partition("(")[0]
        return name if "::" in name else f"argus::{name}"

    def joined(self, tensors: tuple[Any, ...], numbers: tuple[Number, ...], way: tuple[Any, ...]) -> tuple[Any, ...]:
        """The operator's arguments for a call of the function."""
        if self.join is not None:
            return self.join(tensors, numbers, way)
        given = {"t": iter(tensors), "n": iter(numbers), "w": iter(way)}
        return tuple([next(given[kind]) for kind in self.kinds])


def _kind(type: str) -> str:
    """What an argument of this type is to a function: a letter for tensor, number or way."""
    return "t" if type == "Tensor" or type.startswith("Tensor(") else "n" if type in ("float", "int", "SymInt") else "w"


class Memory:
    """What a function prepared, to find it again by the way it is called and the tensors it gets."""

    def __init__(self) -> None:
        self.sites: dict[Any, Site] = {}
        self._prepared: dict[Any, Prepared] = {}

    def site(self, kind: tuple[int, int, Any]) -> Site:
        """The site of such calls."""
        if kind not in self.sites:
            if len(self.sites) >= _MOST:
                self.sites.clear()
            self.sites[kind] = Site((TENSOR,) * kind[0] + (SCALAR,) * kind[1], kind, {})
        return self.sites[kind]

    def prepared(self, key: Any, make: Callable[[], Prepared]) -> Prepared:
        """What was prepared for tensors of this key."""
        found = self._prepared.get(key)
        if found is None:
            found = make()
            if len(self._prepared) >= _MOST:
                self._prepared.clear()
            self._prepared[key] = found
        return found


class Function:
    """A function of tensors and numbers. `function(tensors, numbers, way)` returns a tensor or a tuple of several.

    `work(tensors, numbers, *way)` says what a call does, and raises what is wrong with its arguments. Numbers go to the
    kernels as they are; whatever the choice or the constants of a kernel depend on belongs to `way`, which is hashable.

    With an `operator`, the function is also `torch.ops.argus.<name>`. Calls that need PyTorch's attention (gradients,
    `torch.compile`, fake tensors, `vmap`, dispatch modes) go there by themselves; other calls launch directly.
    `gradient` is what `argus.torch.gradient.attach` says.
    """

    def __init__(self, work: Callable[..., Work], operator: Operator | None = None) -> None:
        self._work = work
        self.operator = operator
        self.gradient: Any = None
        self._direct, self._below = Memory(), Memory()
        self._sites = self._direct.sites
        self.number = number(self)

    def __call__(self, tensors: tuple[Any, ...], numbers: tuple[Number, ...] = (), way: tuple[Any, ...] = ()) -> Any:
        """The results. Raises what `work` raises, and what a kernel's call raises."""
        return self.call(tensors, numbers, way, self._as_operator)

    def call(
        self,
        tensors: tuple[Any, ...],
        numbers: tuple[Number, ...],
        way: tuple[Any, ...],
        attended: Callable[[tuple[Any, ...], tuple[Number, ...], tuple[Any, ...]], Any],
    ) -> Any:
        """The results; `attended` computes them where tensors need PyTorch's attention."""
        site = self._sites.get((len(tensors), len(numbers), way))
        try:
            found = site.read(*tensors, *numbers) if site is not None else None
        except UNREADABLE as error:
            found = _Unread(error)
        if found.__class__ in _MISSES:  # outside the handler: a later error would show that one as its context
            if not plain(tensors):
                return attended(tensors, numbers, way)
            return self._missed(self._direct, found, tensors, numbers, way)
        return found

    def launch(self, tensors: tuple[Any, ...], numbers: tuple[Number, ...], way: tuple[Any, ...]) -> Any:
        """The results, where PyTorch has dealt with everything else: the operator's own implementation."""
        site = self._below.sites.get((len(tensors), len(numbers), way))
        try:
            found = site.read(*tensors, *numbers) if site is not None else None
        except UNREADABLE as error:
            found = _Unread(error)
        return self._missed(self._below, found, tensors, numbers, way) if found.__class__ in _MISSES else found

    def _missed(
        self, memory: Memory, found: Any, tensors: tuple[Any, ...], numbers: tuple[Number, ...], way: tuple[Any, ...]
    ) -> Any:
        """The results of a call that no check knew: a first one, one that is always done anew, or a wrong one."""
        site = memory.site((len(tensors), len(numbers), way))
        if found is None:
            try:
                found = site.read(*tensors, *numbers)
            except UNREADABLE as error:
                found = _Unread(error)
        if isinstance(found, _Unread):
            self._work(tensors, numbers, *way)  # says in words what is no tensor with an address
            raise found.args[0]
        if isinstance(found, Cold):
            prepared = memory.prepared(found.key, lambda: self._prepare(tensors, numbers, way))
            if prepared.run is not _unprepared:
                site.settle(prepared, (*tensors, *numbers), found.values)
                return prepared.started(tensors, found.values)
            return self._anew(tensors, numbers, way)
        return found

    def _anew(self, tensors: tuple[Any, ...], numbers: tuple[Number, ...], way: tuple[Any, ...]) -> Any:
        work = self._work(tensors, numbers, *way)
        for call in work.calls:
            call.run()
        return work.results[0] if len(work.results) == 1 else work.results

    def _prepare(self, tensors: tuple[Any, ...], numbers: tuple[Number, ...], way: tuple[Any, ...]) -> Prepared:
        torch = sys.modules["torch"]
        with torch.inference_mode(False), torch.no_grad():
            # Bases of their own, so that a view tells which tensor it is of, even if two share memory.
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


def operator_of(function: Function) -> Any:
    """The PyTorch operator of `function`, registered when it is first asked for."""
    from argus.torch.library import overload

    return overload(function)


def _registered(function: int) -> str:
    """The name of the operator of the function with a number; it is registered if it was not."""
    return str(operator_of(numbered(function))._schema.name)


def _inlined(
    function: Function, tensors: tuple[Any, ...], numbers: tuple[Number, ...] = (), way: tuple[Any, ...] = ()
) -> Any:
    """What Dynamo traces in place of a call: the operator."""
    import torch

    namespace, name = _registered(function.number).split("::")
    given = function.operator.joined(tensors, numbers, way)  # type: ignore[union-attr]
    return getattr(getattr(torch.ops, namespace), name).default(*given)


# Read by Dynamo, as `torch.compiler.disable` and `assume_constant_result` set them: PyTorch need not be imported.
Function.__call__._torchdynamo_inline = _inlined  # type: ignore[attr-defined]
_registered._dynamo_marked_constant = True  # type: ignore[attr-defined]
