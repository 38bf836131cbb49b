"""Prepare a launch from a call's arguments, without shortcuts: names, signature, proof, build, checks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any, TypeVar

from argus.backend.launch.arguments import alignment
from argus.backend.launch.array import Array, array, is_torch
from argus.backend.launch.bind import bind, check_contents
from argus.backend.launch.evaluate import Number
from argus.backend.launch.plan import Function, LaunchPlan
from argus.backend.launch.signature import Signature
from argus.diagnostic import ArgusError, Diagnostic, LaunchError, Note, VerificationError
from argus.frontend.options import Options
from argus.ir.target import TARGETS
from argus.ir.types import ALIGNMENTS
from argus.runtime.device import load, machine_of, target_of
from argus.runtime.executable import CONSTEXPR, OPTIONAL, TENSOR, Executable, Parameter, Source
from argus.runtime.reader import count_writes

NUM_WARPS, CHECK_INDEX_TENSORS = "num_warps", "check_index_tensors"
"""Keywords of a call that are options, not kernel parameters."""

Grid = tuple[int, ...]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Call:
    """A call's arguments by name: the launch arguments in the order of declaration, the constants, and the call's
    options."""

    runtime: Mapping[str, Any]
    constexprs: Mapping[str, object]
    num_warps: int | None
    check_contents: bool

    @property
    def constants(self) -> Hashable:
        """The part of the call that determines the compiled text: constants and number of warps."""
        return repr((sorted(self.constexprs.items()), self.num_warps))


@dataclass(frozen=True, slots=True)
class Situation:
    """The target, device, sizes and alignments of a call.

    `values` holds sizes and strides, `scalars` the numbers, `alignments` bytes by tensor. `constants` are the names of
    the constexpr parameters, `written` the names of the tensors that the kernel writes, `order` the names of all
    parameters.
    """

    target: str
    device: str
    machine: str
    values: Mapping[str, int]
    scalars: Mapping[str, Number]
    alignments: Mapping[str, int]
    tensors: tuple[str, ...]
    constants: tuple[str, ...]
    written: frozenset[str]
    order: tuple[str, ...]

    def copies(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the call, with copies of the tensors that the kernel writes."""

        def copied(name: str, value: Any) -> Any:
            if name not in self.written:
                return value
            return value.clone() if hasattr(value, "clone") else value.copy()

        return (
            tuple(copied(name, value) for name, value in zip(self.order, args, strict=False)),
            {name: copied(name, value) for name, value in kwargs.items()},
        )


class Planner:
    """Prepares launches of one kernel and keeps what later calls share. Several threads may use it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = RLock()
        self._parameters: tuple[Parameter, ...] | None = None
        self._interfaces: dict[Hashable, Signature] = {}
        self._executables: dict[Hashable, Executable] = {}
        self._refused: dict[Hashable, tuple[Diagnostic, ...]] = {}
        self._functions: dict[Hashable, Function] = {}

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The kernel's parameters. Raises SourceError."""
        with self._lock:
            if self._parameters is None:
                self._parameters = self._source.parameters()
            return self._parameters

    def arrange(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """Return the arguments by name. Raises LaunchError "argument-count" if they do not fit the parameters."""
        declared = {p.name: p for p in self.parameters}
        options = {k: v for k, v in kwargs.items() if k in (NUM_WARPS, CHECK_INDEX_TENSORS) and k not in declared}
        given = dict(zip(declared, args, strict=False))
        problems = []
        if len(args) > len(declared):
            problems.append(f"takes {len(declared)} arguments, {len(args)} were given")
        for name in kwargs:
            if name not in declared and name not in options:
                problems.append(f"has no parameter `{name}`")
            elif name in given:
                problems.append(f"got `{name}` twice")
        given |= {name: kwargs[name] for name in declared if name in kwargs}
        absent = [name for name, p in declared.items() if p.kind == OPTIONAL and given.get(name) is None]
        given |= dict.fromkeys(absent)
        launched = {name for name, p in declared.items() if p.kind != CONSTEXPR and name not in absent}
        runtime = {name: given[name] for name in declared if name in launched and name in given}
        problems += [f"misses `{name}`" for name in declared if name in launched and name not in given]
        if problems:
            help = f"its parameters are {', '.join(declared)}"
            raise LaunchError.of("argument-count", f"the call {'; '.join(problems)}", help)
        constexprs = {name: value for name, value in given.items() if name not in launched}
        return Call(runtime, constexprs, options.get(NUM_WARPS), bool(options.get(CHECK_INDEX_TENSORS)))

    def constants(self, call: Call) -> dict[str, object]:
        """Return the value of every constexpr parameter, defaults included."""
        arrays, _ = self._split(call)
        return dict(self.interface(call, _target(arrays)).constexprs)

    def launch(self, grid: Grid | None, call: Call) -> None:
        """Prepare the launch, check index tensors if the call asks for it, and launch."""
        plan = self.plan(grid, call)
        arrays, scalars = self._split(call)
        if call.check_contents:
            found = self.interface(call, _target(arrays))
            check_contents(found, arrays, {**bind(found, arrays, scalars, grid).values, **scalars})
        tensors = list(arrays.values())
        count_writes(tensors[i].source for i in plan.written if is_torch(tensors[i].source))
        plan.run((*(a.pointer for a in tensors), *scalars.values()))

    def plan(self, grid: Grid | None, call: Call) -> LaunchPlan:
        """Return a plan for every call with the same shapes, types, devices and constants. Raises a call's errors."""
        arrays, scalars = self._split(call)
        target = _target(arrays)
        with self._lock:
            unaligned = self.interface(call, target)
            # Arguments are checked before anything is built, so that wrong ones do not cost a build.
            device = bind(unaligned, arrays, scalars, grid).device
            alignments = {t.name: alignment(t, arrays[t.name]) for t in unaligned.tensors}
            built = self.executable(call, target, alignments)
            function = self._function(built, device)
        return LaunchPlan(built.signature, bind(built.signature, arrays, scalars, grid), function)

    def situation(self, call: Call) -> Situation:
        """Return the target, device, sizes and alignments of the call. Raises the errors of its arguments."""
        arrays, scalars = self._split(call)
        target = _target(arrays)
        found = self.interface(call, target)
        bound = bind(found, arrays, scalars, None)
        return Situation(
            target,
            bound.device,
            machine_of(bound.device),
            bound.values,
            scalars,
            {t.name: alignment(t, arrays[t.name]) for t in found.tensors},
            tuple(arrays),
            tuple(p.name for p in self.parameters if p.kind == CONSTEXPR),
            frozenset(t.name for t in found.tensors if t.written),
            tuple(p.name for p in self.parameters),
        )

    def interface(self, call: Call, target: str) -> Signature:
        """Return the signature for a call's constants, without alignment requirements. Raises SourceError."""
        options = Options(target, call.num_warps, call.constexprs)
        return _kept(self._interfaces, (call.constants, target), lambda: self._source.interface(options))

    def executable(self, call: Call, target: str, alignments: Mapping[str, int]) -> Executable:
        """Return the kernel for a call's constants and alignments (bytes by tensor, 16 for tensors that are omitted).
        """
        options = Options(target, call.num_warps, call.constexprs, alignments)
        key = (call.constants, target, frozenset(item for item in alignments.items() if item[1] != ALIGNMENTS[0]))
        if key in self._refused:
            raise VerificationError(*self._refused[key])
        try:
            return _kept(self._executables, key, lambda: self._source.executable(options))
        except ArgusError as error:
            noted = _with_alignments(error, alignments)
            if isinstance(noted, VerificationError):
                self._refused[key] = noted.diagnostics
            raise noted from None

    def ahead(self, call: Call, target: object, alignments: object) -> Executable:
        """Return the kernel for constants, a target and alignments that an author names. Raises LaunchError for a
        target or an alignment that does not exist."""
        if not isinstance(target, str) or target not in TARGETS:
            message = f"there is no target {target!r}"
            raise LaunchError.of("unknown-target", message, f"one of {', '.join(sorted(TARGETS))}")
        self._insist_on_alignments(alignments)
        return self.executable(call, target, alignments)  # type: ignore[arg-type]

    def _insist_on_alignments(self, alignments: object) -> None:
        tensors = [p.name for p in self.parameters if p.kind in (TENSOR, OPTIONAL)]
        first = next(iter(tensors), "x")
        help = f"map tensors to {', '.join(map(str, ALIGNMENTS))} bytes: `alignment={{\"{first}\": 4}}`"
        if not isinstance(alignments, Mapping):
            raise LaunchError.of("bad-option", f"`alignment` is {alignments!r}, and no map from tensors to bytes", help)
        for name, bytes in alignments.items():
            if name not in tensors:
                message = f"`alignment` names {name!r}, and the kernel's tensors are {', '.join(tensors) or 'none'}"
                raise LaunchError.of("bad-option", message, help)
            if type(bytes) is not int:
                raise LaunchError.of("bad-option", f"the alignment of `{name}` is {bytes!r}", help)

    def _function(self, built: Executable, device: str) -> Function:
        return _kept(self._functions, (id(built), device), lambda: load(built, device))

    def _split(self, call: Call) -> tuple[dict[str, Array], dict[str, Number]]:
        """Return tensors and scalars by name. Raises LaunchError "argument-type"."""
        tensors = {p.name for p in self.parameters if p.kind in (TENSOR, OPTIONAL)}
        arrays = {name: array(name, value) for name, value in call.runtime.items() if name in tensors}
        return arrays, {name: value for name, value in call.runtime.items() if name not in tensors}


def grid_of(grid: object) -> Grid:
    """Convert a grid, an integer or a sequence of integers, to a tuple. Raises LaunchError "grid-mismatch"."""
    try:
        if isinstance(grid, (tuple, list)):
            return tuple(operator.index(extent) for extent in grid)
        return (operator.index(grid),)  # type: ignore[arg-type]
    except TypeError:
        message = f"the grid {grid!r} is not a number of blocks, nor a tuple of such"
        raise LaunchError.of("grid-mismatch", message, "write kernel[(blocks_x, blocks_y)](...)") from None


def _with_alignments(error: ArgusError, alignments: Mapping[str, int]) -> ArgusError:
    """Return `error` with a note on the tensors of this call that are less aligned than PyTorch's allocations."""
    less = [f"`{name}` to {bytes}" for name, bytes in alignments.items() if bytes < ALIGNMENTS[0]]
    if not less:
        return error
    note = Note(f"built for a call whose tensors are aligned to fewer than {ALIGNMENTS[0]} bytes: {', '.join(less)}")
    return type(error)(*(replace(d, notes=(*d.notes, note)) for d in error.diagnostics))


def _target(arrays: Mapping[str, Array]) -> str:
    return target_of(next((a.device for a in arrays.values()), "cpu"))


def _kept(memory: dict[Hashable, _T], key: Hashable, make: Callable[[], _T]) -> _T:
    if key not in memory:
        memory[key] = make()
    return memory[key]
