"""The launches of one call of a function of tensors, and the recipe that repeats them for every call with the same
shapes, strides, dtypes, alignments and devices."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from argus.backend.launch.evaluate import Number
from argus.runtime.jit_kernel import JitKernel
from argus.runtime.reader import in_memory, is_dual
from argus.runtime.recipe import Given, Launch, Made, Recipe, Told, Value, room


@dataclass(frozen=True, slots=True)
class Call:
    """A launch, `kernel(*arguments, **constants)`, on the declared grid or on `grid`.

    The arguments are tensors and numbers in the kernel's order; None stands for an optional tensor.
    """

    kernel: JitKernel
    arguments: tuple[Any, ...]
    constants: Mapping[str, object] = field(default_factory=dict)
    grid: tuple[int, ...] | None = None

    def run(self) -> None:
        """Launch the kernel now."""
        kernel = self.kernel if self.grid is None else self.kernel[self.grid]
        kernel(*self.arguments, **self.constants)


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one call of a function: it makes `calls` in order and returns `results`, a tensor or a tuple.

    Arguments of calls may be the function's tensors, tensors that were allocated without contents (`torch.empty`,
    `new_empty`, `empty_like`), views of either, and tensors that live longer than the call. Results are newly allocated
    and dense, with their dimensions in any order. Work may also copy or fill tensors, but then it is not recorded and
    runs again in each call. Without calls, the results are final.
    """

    calls: tuple[Call, ...]
    results: tuple[Any, ...]


def plain(tensors: Sequence[Any]) -> bool:
    """Return True if a call only has to launch: no gradient, no function transform, no tensor without memory."""
    torch = sys.modules.get("torch")
    if torch is None or not all(isinstance(t, torch.Tensor) for t in tensors):
        return True
    if torch._C._len_torch_dispatch_stack() or not in_memory(tensors):
        return False
    recorded = torch.is_grad_enabled()
    return not any((recorded and t.requires_grad) or t.is_meta or t.is_neg() or is_dual(t) for t in tensors)


class _Float(float):
    """A call's float as a distinct object, so that it can be told from others of the same value."""


class _Int(int):
    """A call's integer as a distinct object, so that it can be told from others of the same value."""


def stand_in(number: Number) -> Number:
    """Return the same number as a new object."""
    return _Float(number) if isinstance(number, float) else _Int(number)


def recipe_of(work: Callable[[], Work], given: tuple[Any, ...], told: tuple[Number, ...]) -> Recipe | None:
    """Return the recipe of `work` for all calls of its kind, or None if the work must run again in each call.

    The tensors are base tensors, so that the base of a view identifies its tensor. The numbers are stand-ins.
    """
    for _ in range(2):  # The first run may create tensors that are kept for later calls.
        with _allocations() as seen:
            found = work()
        recipe = _Recorder(given, told, seen).recipe(found)
        if recipe is not None or not found.calls:
            return recipe
    return None


class _Recorder:
    """Finds the sources of the arguments of calls."""

    def __init__(self, given: tuple[Any, ...], told: tuple[Number, ...], seen: Any) -> None:
        self._given, self._told, self._seen = given, told, seen
        self._rooms: dict[int, int] = {}
        self._made: list[Callable[[], Any]] = []
        self._filled: set[int] = set()
        self._mutated: set[int] = set()
        self._used: set[int] = set()
        self._kept: list[Any] = []

    def recipe(self, work: Work) -> Recipe | None:
        """Return the recipe, or None if there is none."""
        if not work.calls or self._computes(work) or not all(map(self._result, work.results)):
            return None
        launches = tuple(map(self._launch, work.calls))
        if None in launches or len(self._used) < len(self._told):
            return None
        return Recipe(
            len(self._given),
            tuple(self._made),
            launches,  # type: ignore[arg-type]
            len(work.results),
            len(self._told),
            tuple(sorted(self._mutated)),
            tuple(self._kept),
        )

    def _computes(self, work: Work) -> bool:
        """Return True if a kernel gets a tensor that the call computed or filled, such as a copy."""
        tensors = [a for call in work.calls for a in call.arguments if hasattr(a, "data_ptr")]
        return any(x.untyped_storage()._cdata in self._seen.computed for x in tensors)

    def _result(self, result: Any) -> bool:
        """Add an allocation for a result; return False if the result is not the whole of a new allocation."""
        storage = result.untyped_storage()
        whole = storage.nbytes() == result.numel() * result.itemsize and _dense(result)
        if storage._cdata not in self._seen.empty or storage._cdata in self._rooms or not whole:
            return False
        self._rooms[storage._cdata] = len(self._made)
        strides = None if result.is_contiguous() else result.stride()
        self._made.append(room(result.shape, result.dtype, result.device, strides))
        return True

    def _launch(self, call: Call) -> Launch | None:
        if call.grid is None:
            plan = call.kernel.prepare(*call.arguments, **call.constants)
        else:
            plan = call.kernel.prepare_on(call.grid, *call.arguments, **call.constants)
        values: list[Value] = []
        place = 0
        for argument in call.arguments:
            if argument is None:
                continue
            if not hasattr(argument, "data_ptr"):
                values.append(self._number(argument))
                continue
            value = self._tensor(argument, place in plan.read, place in plan.written)
            if value is None:
                return None
            values.append(value)
            place += 1
        tensors = [a for a in call.arguments if hasattr(a, "data_ptr")]
        self._filled |= {tensors[i].untyped_storage()._cdata for i in plan.written}
        return Launch(plan, tuple(values))

    def _number(self, number: Number) -> Value:
        for index, told in enumerate(self._told):
            if number is told:
                self._used.add(index)
                return Told(index)
        return number

    def _tensor(self, x: Any, read: bool, written: bool) -> Value | None:
        """Return the source of a tensor's address, or None for an allocation that is read before it is written."""
        for index, base in enumerate(self._given):
            if x is base or x._base is base:
                if written:
                    self._mutated.add(index)
                return Given(index, _offset(x) - _offset(base)) if x.numel() else 0
        storage = x.untyped_storage()
        if storage._cdata in self._seen.empty:
            if read and storage._cdata not in self._filled:
                return None
            if not x.numel():
                return 0
            if storage._cdata not in self._rooms:
                self._rooms[storage._cdata] = len(self._made)
                self._made.append(room((storage.nbytes(),), sys.modules["torch"].uint8, x.device))
            return Made(self._rooms[storage._cdata], _offset(x))
        self._kept.append(x)
        return int(x.data_ptr())


def _dense(x: Any) -> bool:
    """Return True for a contiguous tensor, or one that is contiguous with its dimensions in another order."""
    return bool(x.permute(sorted(range(x.ndim), key=x.stride, reverse=True)).is_contiguous())


def _offset(x: Any) -> int:
    """Return the offset of a tensor in its storage, in bytes."""
    return int(x.storage_offset()) * int(x.itemsize)


def _allocations() -> Any:
    return _allocations_class()()


@lru_cache(maxsize=1)
def _allocations_class() -> Any:
    """Return a dispatch mode that records which tensors are allocated without contents (`empty`) or computed."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    aten = sys.modules["torch"].ops.aten
    empty = {aten.empty, aten.empty_strided, aten.empty_like, aten.new_empty, aten.new_empty_strided}

    class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Dispatch mode that records which tensors are allocated without contents and which are computed."""

        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.empty, self.computed = set[int](), set[int]()
            self._alive: list[Any] = []  # Kept alive, because another storage might otherwise get the same identity.

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Return False: to hide this mode from Dynamo, PyTorch would import all of it, which takes seconds."""
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            results = func(*args, **(kwargs or {}))
            had = self._storages((args, kwargs))
            new = self._storages(results) - had
            if func.overloadpacket in empty:
                self.empty |= new
            else:
                self.computed |= new
                if func._schema.is_mutable:
                    self.computed |= had & self.empty
                    self.empty -= had
            return results

        def _storages(self, tree: Any) -> set[int]:
            storages = [x.untyped_storage() for x in tree_leaves(tree) if hasattr(x, "untyped_storage")]
            self._alive += storages
            return {storage._cdata for storage in storages}

    return Allocations
