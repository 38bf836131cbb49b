"""Callable programs: proved once, then run from Python on PyTorch tensors or NumPy arrays, or as a CUDA graph."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Any

from argus.backend.cache import DiskCache, Entry, cache_key
from argus.backend.fingerprint import FORMAT, compiler
from argus.backend.launch.arguments import alignment, held
from argus.backend.launch.array import Array, array, is_torch
from argus.backend.launch.bind import bind, check_apart, check_contents
from argus.backend.launch.evaluate import Number
from argus.backend.launch.plan import Function, overlapping
from argus.backend.launch.signature import Condition, Signature, TensorParam
from argus.diagnostic import LaunchError, Severity, Verdict, VerificationError
from argus.environment import cache_directory
from argus.frontend.decorator import KernelSource
from argus.frontend.options import Options
from argus.programs.call import Call, Collectives, Plan
from argus.programs.ir import Program
from argus.programs.ready import Ready
from argus.runtime.argument import Argument
from argus.runtime.device import load, target_of
from argus.runtime.executable import OPTIONAL, SCALAR, TENSOR, CachedSource, Executable, is_constant, options_json
from argus.runtime.reader import ABSENT, UNREADABLE, Cold, Prepared, Run, Site, count_writes, in_memory

if TYPE_CHECKING:
    from torch._ops import OpOverload

_MOST_PLANS = 256
"""Largest number of calls with different sizes that a program keeps ready."""


class JitProgram:
    """A program that is proved when it is called, and run from Python.

    Arguments are those of the program, by position or name, constexpr parameters included: PyTorch tensors on one
    device, or NumPy arrays, and numbers. `collectives` gives a function for the name of each collective:
    `function(reads, writes)` gets two tuples of tensors, and queues its work on the current stream.

    Raises SourceError, VerificationError if the program is not proved or a kernel is neither proved nor accepted by its
    decorator, ToolchainError, and LaunchError for arguments that break a precondition; then nothing has been launched.
    """

    def __init__(self, text: KernelSource) -> None:
        self.__name__, self.__doc__ = text.name, text.doc
        self.text = text
        self._lock = RLock()
        self._ready: dict[Hashable, Ready] = {}
        self._plans: dict[Hashable, Plan] = {}
        self._functions: dict[Hashable, Function] = {}
        self._operators: dict[str, Any] = {}
        self._sites: dict[Hashable, Site] = {}
        self._prepared: dict[Hashable, Prepared] = {}

    def __repr__(self) -> str:
        return f"<argus program {self.__name__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the text only."""
        return type(self), (self.text,)

    def __call__(
        self,
        *args: Argument,
        collectives: Collectives | None = None,
        check_index_tensors: bool = False,
        **kwargs: object,
    ) -> None:
        """Run the program: queue all of its launches, on PyTorch's current stream and on streams of its own."""
        if not kwargs and collectives is None and not check_index_tensors and self._started(args):
            return
        call = self._arranged(args, kwargs)
        plan = self._plan(call, check_index_tensors)
        check_apart(plan.signature, plan.binding.apart, [call.arrays[t.name].pointer for t in plan.signature.tensors])
        plan.run(call, collectives or {})
        count_writes(a.source for n, a in call.arrays.items() if n in plan.written and is_torch(a.source))

    def graph(self, *args: Argument, **kwargs: object) -> Graph:
        """Record the program as a CUDA graph for these tensors. `replay()` runs it on their current contents."""
        torch = sys.modules.get("torch")
        if torch is None or not any(is_torch(a) and a.is_cuda for a in (*args, *kwargs.values())):
            raise LaunchError.of("argument-type", "a CUDA graph records work on a GPU", "pass PyTorch tensors on a GPU")
        run: Callable[..., None] = self
        run(*args, **kwargs)  # Everything is built, loaded and allocated before the recording.
        torch.cuda.synchronize()
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            run(*args, **kwargs)
        return Graph(recorded, (args, kwargs))

    def build(self, target: str, *, alignment: Mapping[str, int] | None = None, **constexprs: object) -> Ready:
        """Prove the program for a target and build its kernels, without running it.

        `alignment` maps tensors to bytes; tensors that it omits have 16. Raises the errors of a call.
        """
        options = Options(target, None, constexprs, alignment or {})
        key = repr((target, sorted(constexprs.items()), sorted((alignment or {}).items())))
        with self._lock:
            if key not in self._ready:
                self._ready[key] = self._proved(options)
            return self._ready[key]

    def as_torch_op(self, name: str, **constexprs: object) -> OpOverload:
        """Register the program with fixed constants as the PyTorch operator `name` ("namespace::name"), and return the
        operator.

        The operator takes the tensors and scalars in order and returns nothing. `torch.compile` and `torch.export` know
        which tensors it writes. Raises SourceError, and LaunchError "operator-name".
        """
        from argus.programs.operator import register
        from argus.programs.pipeline import lower

        if name in self._operators:
            self._operators.pop(name)._destroy()
        signature = signature_of(lower(self.text.file, self.text.name, Options("cpu", None, constexprs)))
        found: OpOverload
        found, self._operators[name] = register(name, signature, self, constexprs)
        return found

    def _proved(self, options: Options) -> Ready:
        from argus.programs.pipeline import lower

        program = lower(self.text.file, self.text.name, options)
        insist(self.text, program, options)
        kernels = tuple(executables(program))
        return Ready(program, signature_of(program), kernels)

    # ------------------------------------------------------------------ calls

    def _started(self, args: tuple[Any, ...]) -> bool:
        """Run a call of positional PyTorch tensors if a launch for such tensors is ready. Return False for any other
        call."""
        way = (len(args), *(i for i, a in enumerate(args) if a is None))
        try:
            found = self._sites[way].read(*args)
        except (KeyError, *UNREADABLE):
            found = self._cold(way, args)
        if found is None:
            return True
        if not isinstance(found, Cold):
            return False
        prepared = self._prepared.get(found.key)
        if prepared is None:
            call = self._arranged(args, {})
            plan = self._plan(call, False)
            if plan.calls:
                return False
            prepared = Prepared(
                Runs(self, call, plan), tuple(i for i, t in enumerate(plan.signature.tensors) if t.written)
            )
            if len(self._prepared) >= _MOST_PLANS:
                self._prepared.clear()
            self._prepared[found.key] = prepared
        site = self._sites[way]
        site.settle(prepared, args, found.values)
        prepared.started([a for a, kind in zip(args, site.kinds, strict=True) if kind == TENSOR], found.values)
        return True

    def _cold(self, way: Hashable, args: tuple[Any, ...]) -> Any:
        """Create the site for calls like this one. Return what it reads, or False if it cannot read the arguments."""
        kinds = tuple(self._kinds.values())
        missing = any(kind in (TENSOR, SCALAR) for kind in kinds[len(args) :])
        if way in self._sites or len(args) > len(kinds) or missing or not in_memory(args):
            return False
        given = tuple(_site_kind(kind, a) for kind, a in zip(kinds, args, strict=False))
        site = Site(given, way, {})
        try:
            found = site.read(*args)
        except UNREADABLE:
            return False
        self._sites[way] = site
        return found

    @cached_property
    def _kinds(self) -> Mapping[str, str]:
        """The kind of each parameter, in order of declaration."""
        from argus.compile import declared

        return dict(declared(self.text.file, self.text.name))

    def _arranged(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """Return the arguments by name. Raises LaunchError "argument-count"."""
        kinds = self._kinds
        given = dict(zip(kinds, args, strict=False))
        problems = [f"takes {len(kinds)} arguments, {len(args)} were given"] if len(args) > len(kinds) else []
        problems += [f"has no parameter `{n}`" for n in kwargs if n not in kinds]
        problems += [f"got `{n}` twice" for n in kwargs if n in given]
        given |= {n: v for n, v in kwargs.items() if n in kinds}
        problems += [f"misses `{n}`" for n, kind in kinds.items() if n not in given and kind in ("tensor", "scalar")]
        if problems:
            help = f"its parameters are {', '.join(kinds)}"
            raise LaunchError.of("argument-count", f"the call {'; '.join(problems)}", help)
        optional = {n for n, kind in kinds.items() if kind == "optional"}
        absent = {n: None for n in optional if given.get(n) is None}
        tensors = {n for n, kind in kinds.items() if kind in ("tensor", "optional")} - absent.keys()
        arrays = {n: array(n, given[n]) for n in kinds if n in tensors}
        scalars = {n: given[n] for n, kind in kinds.items() if kind == "scalar"}
        constexprs = {n: given[n] for n, kind in kinds.items() if kind == "constexpr" and n in given}
        for name, value in constexprs.items():
            if not is_constant(value):
                raise LaunchError.of("constexpr-argument", f"`{name}` is {value!r}", "pass a constant")
        return Call(arrays, scalars, {**constexprs, **absent})

    def _plan(self, call: Call, check: bool) -> Plan:
        device = next((a.device for a in call.arrays.values()), "cpu")
        alignments = {n: alignment(_declared(n, a), a) for n, a in call.arrays.items()}
        shapes = tuple((a.dtype, a.shape, a.strides, alignments[n]) for n, a in call.arrays.items())
        with self._lock:
            ready = self.build(target_of(device), alignment=alignments, **call.constexprs)
            scalars = held(ready.signature, call.scalars)
            deciding = tuple((n, v) for n, v in scalars.items() if n in ready.deciding)
            key = (device, shapes, repr(deciding), repr(sorted(call.constexprs.items())))
            if key not in self._plans or check:
                bound = bind(ready.signature, call.arrays, call.scalars, None)
                if check:
                    check_contents(ready.signature, call.arrays, {**bound.values, **scalars})
                functions = [self._function(e, device) for e in ready.kernels]
                if len(self._plans) >= _MOST_PLANS:
                    self._plans.clear()
                exact = replace(call, scalars=scalars)
                self._plans[key] = Plan(ready, functions, bound, exact)
            return self._plans[key]

    def _function(self, executable: Executable, device: str) -> Function:
        key = (id(executable), device)
        if key not in self._functions:
            self._functions[key] = load(executable, device)
        return self._functions[key]


class Runs:
    """The runs of a program on tensors of one kind, with a plan for each choice of the deciding scalars."""

    def __init__(self, program: JitProgram, call: Call, plan: Plan) -> None:
        self._program, self._call = program, call
        self._signature, self._apart = plan.signature, plan.binding.apart
        self._overlap = overlapping(self._apart)
        self._first = len(plan.signature.tensors)
        names = [s.name for s in plan.signature.scalars]
        self._deciding = tuple(i for i, n in enumerate(names) if n in plan.deciding)
        self._known = {self._key(tuple(call.scalars.values())): plan.runner()}

    def __call__(self, values: tuple[Number, ...]) -> None:
        """Run the program with these addresses and scalars. Raises LaunchError before the first launch."""
        if self._overlap(values):
            check_apart(self._signature, self._apart, [int(v) for v in values[: self._first]])
        key = self._key(values[self._first :]) if self._deciding else ()
        run = self._known.get(key)
        if run is None:
            run = self._planned(values)
            if len(self._known) >= _MOST_PLANS:
                self._known.clear()
            self._known[key] = run
        run(values)

    def _key(self, scalars: tuple[Number, ...]) -> tuple[str, ...]:
        return tuple([repr(scalars[i]) for i in self._deciding])

    def _planned(self, values: tuple[Number, ...]) -> Run:
        pairs = zip(self._call.arrays.items(), values, strict=False)
        arrays = {n: replace(a, pointer=int(address)) for (n, a), address in pairs}
        scalars = dict(zip(self._call.scalars, values[self._first :], strict=True))
        return self._program._plan(replace(self._call, arrays=arrays, scalars=scalars), False).runner()


@dataclass(frozen=True, slots=True)
class Graph:
    """A program that is recorded as a CUDA graph. `kept` are its arguments, whose memory the graph uses."""

    recorded: Any
    kept: Any

    def replay(self) -> None:
        """Queue the recorded work on the current stream."""
        self.recorded.replay()


def _site_kind(kind: str, argument: object) -> str:
    """Return the kind of an argument for a site. An optional tensor is present or absent."""
    return kind if kind != OPTIONAL else ABSENT if argument is None else TENSOR


def _declared(name: str, given: Array) -> TensorParam:
    from argus.ir.expr import Const, Expr, Param

    rank = len(given.shape)
    outer: list[Expr] = [Param(f"{name}.stride{i}") for i in range(rank - 1)]
    strides = (*outer, Const(1))[:rank]
    return TensorParam(name, given.dtype, given.itemsize, (), strides, 1, True, True)


def insist(text: KernelSource, program: Program, options: Options) -> None:
    """Prove a program, or find its proof in the cache. Raises VerificationError."""
    kept = DiskCache(cache_directory())
    what = {"kind": "program", "text": text.file.digest, "name": text.name}
    key = cache_key({"format": FORMAT, "compiler": compiler(), **what, **options_json(options)})
    if kept.get(key) is not None:
        return
    from argus.programs.prove.prove import prove

    report = prove(program)
    if report.verdict is not Verdict.PROVED:
        raise VerificationError(*(d for d in report.diagnostics if d.severity is Severity.ERROR))
    kept.put(key, Entry({"verdict": report.verdict.value}))


def executables(program: Program) -> Sequence[Executable]:
    """Return the proved and built kernels of a program. Raises VerificationError and ToolchainError."""
    from argus.programs.settle import options_of

    return [
        CachedSource(KernelSource(use.name, use.source)).executable(options_of(use, program.target))
        for use in program.uses
    ]


def signature_of(program: Program) -> Signature:
    """Return the signature against which a call of a program is checked, in the form that kernels use."""
    from argus.backend.launch import signature as sig
    from argus.ir.contents import ranges
    from argus.ir.expr import Const
    from argus.ir.nodes import Arranged, Requires, Tensor
    from argus.programs.inputs import as_kernel
    from argus.programs.sites import sites

    accesses = [a for s in sites(program) for a in s.accesses]
    read, written = ({a.part.obj for a in accesses if getattr(a, how)} for how in ("reads", "writes"))
    params = tuple(
        TensorParam(p.name, p.dtype.name, p.dtype.bytes, p.shape, p.strides, p.alignment, p.name in read,
                    p.name in written, p.span)
        if isinstance(p, Tensor) else sig.ScalarParam(p.name, p.dtype.name)
        for p in program.params
    )  # fmt: skip
    facts = program.preconditions
    return Signature(
        program.name, program.constexprs, params, program.sizes, (Const(1),),
        tuple(Condition(p.cond, p.span) for p in facts if isinstance(p, Requires)),
        tuple(sig.ContentRange(r.tensor, r.lo, r.hi, r.span) for r in ranges(as_kernel(program))),
        tuple(sig.ContentOrder(p.tensor, p.how, p.total, p.longest, p.span) for p in facts if isinstance(p, Arranged)),
        (), (), 1, 0, False, 1, False,
    )  # fmt: skip
