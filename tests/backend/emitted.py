"""The emitted text of many kernels on the host, compiled as one library, and held against the simulator.

Tensors stand between pages that nothing may touch: at the end of memory, as little aligned as their declaration allows,
and at the beginning of it. What a kernel does to bytes that no element has shows as well.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import multiprocessing
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from argus.backend.abi import arguments, entry
from argus.backend.cpu import toolchain
from argus.backend.cpu.run import run_cpu
from argus.backend.emit import emit
from argus.backend.launch.evaluate import evaluate
from argus.diagnostic import ArgusError, LaunchError
from argus.ir.cluster import unite
from argus.ir.expr import OPERATORS, Const, Param
from argus.ir.nodes import Kernel, Tensor
from argus.ir.text import print_kernel
from argus.ir.types import DType
from argus.mutate import inputs
from argus.simulate import NotReplayable, simulate
from argus.simulate.numeric import from_bits, round_to, to_bits

Array = NDArray[Any]
T = TypeVar("T")

ULP = 4
"""How far two computations of a function like exp may be apart, in units of the last place."""
_EXACT = ("sqrt", "floor", "ceil", "abs")
_INEXACT = frozenset(o.name for o in OPERATORS.values() if o.function is not None) - set(_EXACT)
_EITHER_ZERO = ("minimum", "maximum")
_PATIENCE_S = 120.0
_PAGE = mmap.PAGESIZE
_UNUSED = 0x5A


@dataclass(frozen=True)
class Trial:
    """A run of an explicit kernel: what its parameters are. Symbolic strides leave `padding` times the least room."""

    kernel: Kernel
    arguments: Mapping[str, Array | int | float]
    padding: int = 0

    @cached_property
    def laid_out(self) -> dict[str, Array | int | float]:
        """The arguments, with the strides that the run has."""
        tensors = {t.name: t for t in self.kernel.tensors}
        return {
            name: _spread(tensors[name], value, self.padding) if isinstance(value, np.ndarray) else value
            for name, value in self.arguments.items()
        }


def trials(kernel: Kernel, sizes: Sequence[Mapping[str, int]]) -> Iterator[Trial]:
    """Runs of `kernel` at `sizes`, with values as mutation tests have them; with room behind rows, too, where strides
    are symbolic."""
    kernel = unite(kernel)
    symbolic = any(isinstance(s, Param) for t in kernel.tensors for s in t.strides)
    for values in sizes:
        for padding in (0, 1) if symbolic else (0,):
            yield Trial(kernel, inputs.arguments(kernel, values), padding)


def examples(strategy: st.SearchStrategy[T], count: int, number: int) -> list[T]:
    """`count` values drawn from the seed `number`."""
    found: list[T] = []

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def one(value: T) -> None:
        found.append(value)

    one()
    return found


def drawn(cases: st.SearchStrategy[tuple[Kernel, list[dict[str, int]]]], count: int, number: int) -> list[Trial]:
    """Runs of `count` cases, kernels and sizes, drawn from the seed `number`."""
    return [trial for case in examples(cases, count, number) for trial in trials(*case)]


def with_extremes(trial: Trial, number: int) -> Trial:
    """The same run, of numbers of all sizes: the ends of the integers, infinities, NaN, zeros of both signs."""
    rng = np.random.default_rng(number)
    tensors = {t.name: t for t in trial.kernel.tensors}
    changed = dict(trial.arguments)
    for name, array in trial.arguments.items():
        if not isinstance(array, np.ndarray) or tensors[name].dtype.kind == "bool":
            continue
        low, high = tensors[name].dtype.integers
        odd = _ODD if tensors[name].dtype.is_float else np.array([low, low + 1, high, 0, -1 % (high + 1), 7])
        mixed = np.where(rng.random(array.shape) < 0.4, rng.choice(odd, array.shape), array)
        with np.errstate(all="ignore"):
            changed[name] = round_to(mixed, tensors[name].dtype).astype(array.dtype)
    return replace(trial, arguments=changed)


_ODD = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 1e30, -3e38, 65519.0, 65520.0, 449.0, 1e9, -2147483648.0, 127.5]
)


def disagreements(runs: Sequence[Trial], text: Callable[[Kernel], str] = emit) -> tuple[int, list[tuple[Trial, str]]]:
    """How many launches of `text` were held against the simulator, and those that end otherwise than it, and how;
    asynchronous copies come late, and at once.

    Left out: runs that break a rule in the simulator, but for what leaves outputs unwritten, or are too long for it,
    and kernels that have no C++. Raises `ToolchainError` where a text does not compile.
    """
    wanted: list[_Wanted] = []
    for trial in runs:
        try:
            outcome = simulate(trial.kernel, trial.laid_out)
        except (LaunchError, NotReplayable):
            continue
        if outcome.complete and all(v.property == "coverage" for v in outcome.violations):
            wanted.append((trial, outcome.tensors))
    texts = numbered([trial.kernel for trial, _ in wanted], text)
    count, found = 0, list[tuple[Trial, str]]()
    for warp_size, eager in product((32, 64), (False, True)):
        some = [w for w in wanted if _takes(w[0].kernel, texts, warp_size, eager)]
        if some:
            library = _library({id(t.kernel): texts[id(t.kernel)] for t, _ in some}, warp_size, eager)
            found += _compare(library, some)
            count += len(some) * len(_PLACES)
    return count, found


_Wanted = tuple[Trial, dict[str, Array]]
_ASYNCHRONOUS = re.compile(r"argus::(cp_async|tma_|wgmma|load_(near_)?to_lds)")


def _takes(kernel: Kernel, texts: Mapping[int, tuple[str, str]], warp_size: int, eager: bool) -> bool:
    known = texts.get(id(kernel))
    return known is not None and kernel.warp_size == warp_size and (not eager or bool(_ASYNCHRONOUS.search(known[1])))


def _compare(library: Library, wanted: Sequence[_Wanted]) -> Iterator[tuple[Trial, str]]:
    runs = [(trial, place) for trial, _ in wanted for place in _PLACES]
    expected = [tensors for _, tensors in wanted for _ in _PLACES]
    for (trial, place), tensors, result in zip(runs, expected, _in_another_process(library, runs), strict=True):
        text = result if isinstance(result, str) else _difference(trial.kernel, result, tensors)
        if text:
            yield trial, f"{text} (tensors at the {place} of memory, padding {trial.padding})"


# ---------------------------------------------------------------------------- one library


@dataclass(frozen=True)
class Library:
    """A host library, and the launch functions in it of kernels, by their identity."""

    launches: dict[int, str]
    binary: bytes


def numbered(kernels: Sequence[Kernel], text: Callable[[Kernel], str] = emit) -> dict[int, tuple[str, str]]:
    """By a kernel's identity, the entry and the text of it under a name of its own; without those that have no C++."""
    texts = {}
    for number, kernel in enumerate({id(k): k for k in kernels}.values()):
        one = replace(kernel, name=f"{kernel.name}_{number}")
        try:
            texts[id(kernel)] = (entry(one), f'#line 1 "{one.name}"\n{text(one)}')
        except ArgusError:
            continue
    return texts


def _library(texts: Mapping[int, tuple[str, str]], warp_size: int, eager: bool) -> Library:
    launches = {key: f"launch_{symbol}" for key, (symbol, _) in texts.items()}
    exports = [
        f"#define argus_cpu_launch launch_{symbol}\nARGUS_CPU_EXPORT({symbol})\n#undef argus_cpu_launch"
        for symbol, _ in texts.values()
    ]
    source = "\n".join([*(text for _, text in texts.values()), *exports])
    any_symbol = next(iter(texts.values()))[0]
    return Library(launches, toolchain.compile(source, any_symbol, warp_size, eager_copies=eager)[0])


# ---------------------------------------------------------------------------- memory


def _spread(tensor: Tensor, array: Array, padding: int) -> Array:
    """A view of the same elements, with gaps where the strides are symbolic and may have them."""
    unit = max(1, tensor.alignment // tensor.dtype.bytes)
    strides, step = [0] * array.ndim, 1
    for axis in reversed(range(array.ndim)):
        stride = tensor.strides[axis]
        strides[axis] = stride.value if isinstance(stride, Const) else -(-step // unit) * unit + padding * unit  # type: ignore[assignment]
        step = max(1, strides[axis]) * max(1, array.shape[axis])
    memory = np.zeros(_cells(array.shape, strides), array.dtype)
    view = np.lib.stride_tricks.as_strided(memory, array.shape, [s * array.itemsize for s in strides])
    view[...] = array
    return view


def _cells(shape: Sequence[int], strides: Sequence[int]) -> int:
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


_PLACES = ("end", "beginning")


class Guarded:
    """Bytes between two pages that end the process when they are touched."""

    def __init__(self, size: int, alignment: int, place: str) -> None:
        room = -(-max(size, 1) // _PAGE) * _PAGE
        self._map = mmap.mmap(-1, room + 2 * _PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for page in (start, start + _PAGE + room):
            if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(_PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        at = (room - size) // alignment * alignment if place == "end" else 0
        self.all = np.frombuffer(self._map, np.uint8, room, _PAGE)
        self.all[:] = _UNUSED
        self.bytes = self.all[at : at + size]

    def holding(self, bits: Array) -> Array:
        """A view of these bytes with the strides and values of `bits`."""
        view = np.lib.stride_tricks.as_strided(self.bytes.view(bits.dtype), bits.shape, bits.strides)
        view[...] = bits
        return view


def _bits(array: Array, dtype: DType) -> Array:
    """The array as it is stored, with the same gaps."""
    stored = to_bits(np.ascontiguousarray(array), dtype)
    strides = [s // array.itemsize * stored.itemsize for s in array.strides]
    memory = np.zeros(_cells(array.shape, [s // array.itemsize for s in array.strides]), stored.dtype)
    view = np.lib.stride_tricks.as_strided(memory, array.shape, strides)
    view[...] = stored
    return view


# ---------------------------------------------------------------------------- runs


def _in_another_process(library: Library, todo: Sequence[tuple[Trial, str]]) -> Iterator[dict[str, Array] | str]:
    """What each run leaves in its tensors, or why it has no end. A run that ends its process takes nothing with it: the
    others get a new one."""
    context = multiprocessing.get_context("fork")
    while todo:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(library, todo, sender), daemon=True)
        process.start()
        sender.close()
        done = 0
        try:
            while done < len(todo) and receiver.poll(_PATIENCE_S):
                result = receiver.recv()
                done += 1
                yield result
            hangs = done < len(todo)
        except EOFError:
            hangs = False
        if hangs:
            process.kill()
        process.join()
        if done < len(todo):
            yield "the run does not end" if hangs else f"the run ends its process with {process.exitcode}"
            done += 1
        todo = todo[done:]


def _work(library: Library, todo: Sequence[tuple[Trial, str]], results: Connection) -> None:
    faulthandler.disable()  # what ends this process is for the other one to tell
    for trial, place in todo:
        try:
            results.send(_run(library, trial, place))
        except LaunchError as error:
            results.send(str(error))


def _run(library: Library, trial: Trial, place: str) -> dict[str, Array] | str:
    kernel, known = trial.kernel, dict[str, Any]()
    memory: dict[str, tuple[Guarded, Array, Array]] = {}
    for p in kernel.params:
        value = trial.laid_out[p.name]
        known[p.name] = value
        if isinstance(p, Tensor):
            assert isinstance(value, np.ndarray)
            bits = _bits(value, p.dtype)
            strides = tuple(s // bits.itemsize for s in bits.strides)
            guarded = Guarded(_cells(bits.shape, strides) * bits.itemsize, max(p.alignment, bits.itemsize), place)
            known[p.name] = guarded.holding(bits)
            memory[p.name] = guarded, bits, guarded.all.copy()
            for symbols, numbers in ((p.shape, bits.shape), (p.strides, strides)):
                known.update({s.name: n for s, n in zip(symbols, numbers, strict=True) if isinstance(s, Param)})
    sizes = {name: value for name, value in known.items() if isinstance(value, int)}
    grid = tuple(int(evaluate(g, sizes)) for g in kernel.grid or ())
    values = [known[a.name] for a in arguments(kernel) if a.kind != "tensormap"]
    run_cpu(library.binary, kernel, values, grid, 1, library.launches[id(kernel)])
    result = {name: known[name].copy() for name in memory}
    for name, (guarded, bits, before) in memory.items():
        known[name][...] = bits
        if (guarded.all != before).any():
            return f"bytes that no element of {name} has are written"
    return result


def _difference(kernel: Kernel, bits: Mapping[str, Array], wanted: Mapping[str, Array]) -> str:
    """Return where the two differ, or "" if they do not.

    NaNs are alike. Functions that are not exact may differ a little, and `minimum` and `maximum` may return either of
    two zeros (docs/targets.md).
    """
    text = print_kernel(kernel)
    inexact, either_zero = _calls(text, _INEXACT), any(word in text for word in _EITHER_ZERO)
    for t in kernel.tensors:
        got, expected = from_bits(bits[t.name], t.dtype), np.asarray(wanted[t.name])
        same = got == expected
        if t.dtype.is_float:
            same &= either_zero | (np.signbit(got) == np.signbit(expected))
            same |= np.isnan(got) & np.isnan(expected)
            if inexact:
                with np.errstate(all="ignore"):
                    same |= np.abs(got - expected) <= ULP * np.spacing(np.abs(expected))
        if not same.all():
            at = tuple(int(i) for i in np.argwhere(~same)[0])
            shown = f"{got[at]!r} where the simulator has {expected[at]!r}"
            return f"{t.name}{list(at)} is {shown}, and {int((~same).sum())} of {prod(same.shape)} elements differ"
    return ""


def _calls(text: str, functions: Iterable[str]) -> bool:
    return any(f"{name}(" in text for name in functions)
