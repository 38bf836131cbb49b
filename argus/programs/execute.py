"""Execute a program at concrete sizes: check the obligations of every launch and their order, and compute results.

Kernels do not run. A launch gives its outputs the values of their specifications, in float64. Outputs without a
specification get numbers that depend on everything that the kernel reads. Order is exact: each launch has a vector
clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argus.backend.launch.evaluate import Number, evaluate
from argus.ir.contents import offence, outside, ranges, spaced
from argus.ir.expr import Expr, LoopVar, Param, rewrite
from argus.ir.nodes import Arranged, Scalar, Spec, Tensor
from argus.ir.own_results import names_results
from argus.ir.visit import walk as statements
from argus.programs.bound import Bound, bound, exact_bytes, obligations, strides_of, touched
from argus.programs.held import Held, accumulates, differs
from argus.programs.inputs import MOST_ELEMENTS, Array, carrier, carrier_of, drawn, seed_of
from argus.programs.ir import MAIN, POOL_ALIGNMENT, Collective, For, If, Launch, Part, Program, Record, Step, Wait
from argus.simulate.reference import Reference

MOST_STEPS = 4000
"""Largest number of launches of an execution, and of iterations of its loops."""


class NotExecutable(Exception):
    """The sizes are too large to execute the program at them."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that an execution broke, at a statement in an iteration. `other` is the second access of a race."""

    code: str
    message: str
    step: Step | None
    buffer: str = ""
    stream: str = ""
    iteration: Mapping[str, int] = field(default_factory=dict)
    other: Step | None = None
    element: tuple[int, ...] = ()
    arrived: str = ""
    expected: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The violations that an execution found, and the contents of the tensors at its end."""

    violations: tuple[Violation, ...]
    tensors: Mapping[str, Array]


Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Access:
    obj: str
    box: Box
    writes: bool
    stream: str
    number: int
    step: Step | None


def execute(program: Program, values: Mapping[str, Number], inputs: Mapping[str, Array]) -> Result:
    """Execute a program on `inputs`, with the sizes and scalars `values`. Raises `NotExecutable`."""
    return _Execution(program, values, inputs).run()


@lru_cache(maxsize=4096)
def hosted(expr: Expr) -> Expr:
    """Return an expression with counters as parameters, so that one table holds the values of all names."""
    return rewrite(expr, lambda e: Param(e.name, e.dtype) if isinstance(e, LoopVar) else None)


class _Execution:
    def __init__(self, program: Program, values: Mapping[str, Number], inputs: Mapping[str, Array]) -> None:
        self.program, self.env = program, dict(values)
        self.violations: list[Violation] = []
        self.steps = 0
        self.loops: list[str] = []
        self.arrays: dict[str, Array] = {name: np.array(a, dtype=carrier(a.dtype)) for name, a in inputs.items()}
        self.initial = {name: a.copy() for name, a in self.arrays.items()}
        self.ready: dict[str, NDArray[np.bool_]] = {}
        self.spoiled: dict[str, str] = {}
        self.clocks: dict[str, dict[str, int]] = {s: {} for s in program.streams}
        self.events: dict[str, dict[str, int]] = {}
        self.accesses: list[_Access] = []
        self._bind()
        self._allocate()

    def run(self) -> Result:
        """Execute all statements, and compare outputs with the program's specifications."""
        self._begin()
        self._body(self.program.body)
        self._end()
        for spec in self.program.specs:
            self._specified(spec)
        names = {t.name for t in self.program.tensors}
        return Result(tuple(self.violations), {n: a for n, a in self.arrays.items() if n in names})

    # ------------------------------------------------------------------ beginning and end

    def _bind(self) -> None:
        """Bind the strides of contiguous inputs."""
        for t in self.program.tensors:
            shape, stride = self.arrays[t.name].shape, 1
            for axis in reversed(range(len(shape))):
                declared = t.strides[axis]
                if isinstance(declared, Param):
                    self.env.setdefault(declared.name, stride)
                stride *= shape[axis]

    def _allocate(self) -> None:
        self.places: dict[str, tuple[int, int]] = {}
        sizes: dict[str, int] = {}
        for b in self.program.buffers:
            shape = tuple(self.number(e) for e in b.shape)
            if min(shape) < 0:
                self._fail("program-shape", f"the buffer `{b.name}` has the shape {shape}", None, b.name)
                shape = tuple(max(n, 0) for n in shape)
            if int(np.prod(shape, dtype=object)) > MOST_ELEMENTS:
                raise NotExecutable
            self.arrays[b.name] = np.zeros(shape, dtype=carrier_of(b.dtype))
            self.ready[b.name] = np.zeros(shape, dtype=np.bool_)
            size = max(self.number(exact_bytes(b)), 0)
            sizes[b.bytes.name] = -(-size // POOL_ALIGNMENT) * POOL_ALIGNMENT
        self.env |= sizes
        for b in self.program.buffers:
            if b.offset is not None:
                self.places[b.name] = (self.number(b.offset), self.number(exact_bytes(b)))
                if self.program.pool is not None and sum(self.places[b.name]) > self.number(self.program.pool):
                    self._fail("program-memory", f"the buffer `{b.name}` ends beyond the pool", None, b.name)

    def _begin(self) -> None:
        """Record the caller's earlier work, which may have written everything, on the caller's stream."""
        self.clocks[MAIN][MAIN] = 1
        for name, array in self.arrays.items():
            if array.size:
                box = tuple((0, n) for n in array.shape)
                self.accesses.append(_Access(name, box, True, MAIN, 1, None))

    def _end(self) -> None:
        """Record that later work of the caller, on its stream, comes after all work of the program."""
        for access in self.accesses:
            if self.clocks[MAIN].get(access.stream, 0) < access.number:
                what = f"the caller may go on before this work on stream `{access.stream}` is complete"
                self._fail("program-race", what, access.step, access.obj, access.stream)

    def _specified(self, spec: Spec) -> None:
        output = self.arrays[spec.output]
        if not output.size:
            return
        held: Any = {name: Held(a, self.program.object(name).dtype) for name, a in self.initial.items()}
        mesh = np.ix_(*(np.arange(n) for n in output.shape))
        expected = np.broadcast_to(Reference(held, self.env).term(spec.value, dict(enumerate(mesh))), output.shape)
        wrong = differs(output, expected)
        if wrong.any():
            at = tuple(int(i[0]) for i in np.nonzero(wrong))
            what = f"an element of `{spec.output}` is not what the specification of the program says"
            self.violations.append(
                Violation("spec-mismatch", what, None, spec.output, element=at, arrived=f"{output[at]:.6g}",
                          expected=f"{expected[at]:.6g}")
            )  # fmt: skip

    # ------------------------------------------------------------------ statements

    def _body(self, body: tuple[Step, ...]) -> None:
        for step in body:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise NotExecutable
            match step:
                case Launch():
                    self._launch(step)
                case Collective():
                    self._collective(step)
                case Record(event=event, stream=stream):
                    self.events[event] = dict(self.clocks[stream])
                case Wait(stream=stream, event=event):
                    for name, number in self.events.get(event, {}).items():
                        self.clocks[stream][name] = max(self.clocks[stream].get(name, 0), number)
                case For():
                    self._for(step)
                case If(cond=cond, then=then, orelse=orelse):
                    self._body(then if self.number(cond) else orelse)

    def _for(self, step: For) -> None:
        for value in range(self.number(step.start), self.number(step.stop), step.step):
            self.env[step.var] = value
            self.loops.append(step.var)
            self._body(step.body)
            self.loops.pop()
        self.env.pop(step.var, None)

    def _launch(self, step: Launch) -> None:
        found = bound(self.program, step)
        if self._refused(step, found):
            return
        reads, writes = touched(found.kernel)
        parts = {t.name: found.part(t.name) for t in found.kernel.tensors}
        self._queue(step, [(p, n in reads, n in writes) for n, p in parts.items()], step.stream)
        self._compute(step, found, parts, writes)

    def _collective(self, step: Collective) -> None:
        parts = [(p, True, False) for p in step.reads] + [(p, False, True) for p in step.writes]
        self._queue(step, parts, step.stream)
        seed = seed_of(step.name, [self.arrays[p.obj][self._slices(p)] for p in step.reads], ())
        for number, part in enumerate(step.writes):
            self._write(part, drawn(seed, number, self.arrays[part.obj][self._slices(part)]))

    # ------------------------------------------------------------------ what a launch keeps

    def _refused(self, step: Launch, found: Bound) -> bool:
        """Report the first obligation that does not hold."""
        for obligation in obligations(self.program, found):
            if not self.number(obligation.cond):
                self._fail(obligation.code, f"it does not hold that {obligation.what}", step, "", step.stream)
                return True
        alignment = dict(self.program.uses[step.use].alignment)
        for t in found.kernel.tensors:
            if not self._aligned(found.part(t.name), t, alignment.get(t.name, t.dtype.bytes)):
                what = f"`{t.name}` of `{found.kernel.name}` is not aligned to {alignment[t.name]} bytes"
                self._fail("program-alignment", what, step, found.part(t.name).obj, step.stream)
                return True
        return self._offending(step, found)

    def _offending(self, step: Launch, found: Bound) -> bool:
        """Report facts about index tensors that their contents break."""
        wrong: str | None
        for r in ranges(found.kernel):
            contents = self.arrays[found.part(r.tensor).obj][self._slices(found.part(r.tensor))]
            wrong = outside(contents, self.number(found.of(r.lo)), self.number(found.of(r.hi)))
            if wrong is not None:
                self._fail("program-index", f"`{r.tensor}`{wrong}", step, found.part(r.tensor).obj, step.stream)
                return True
        for o in (p for p in found.kernel.preconditions if isinstance(p, Arranged)):
            contents = self.arrays[found.part(o.tensor).obj][self._slices(found.part(o.tensor))]
            total, longest = (None if e is None else self.number(found.of(e)) for e in (o.total, o.longest))
            wrong = offence(o.how, contents, total or 0, longest)
            if wrong is not None:
                self._fail("program-index", f"`{o.tensor}`{spaced(wrong)}", step, found.part(o.tensor).obj, step.stream)
                return True
        return False

    def _aligned(self, part: Part, tensor: Tensor, alignment: int) -> bool:
        item = tensor.dtype.bytes
        starts = [self.number(e) for e in part.start]
        strides = [self.number(e) for e in self.program.object(part.obj).strides]
        address = self.places.get(part.obj, (0, 0))[0] + item * sum(a * b for a, b in zip(starts, strides, strict=True))
        quantities = [address]
        kept = zip(tensor.strides, strides_of(self.program, part), part.shape, strict=True)
        for declared, stride, extent in kept:
            unit = not isinstance(declared, Param) and self.number(declared) == 1
            quantities.append(item * self.number(extent if unit else stride))
        return all(q % alignment == 0 for q in quantities)

    # ------------------------------------------------------------------ order

    def _queue(self, step: Launch | Collective, parts: Sequence[tuple[Part, bool, bool]], stream: str) -> None:
        """Queue work: compare its accesses with earlier unordered accesses, and check the contents that it reads."""
        clock = self.clocks[stream]
        clock[stream] = clock.get(stream, 0) + 1
        mine = [_Access(p.obj, self._box(p), w, stream, clock[stream], step) for p, _, w in parts]
        mine = [a for a in mine if all(lo < hi for lo, hi in a.box)]
        for i, a in enumerate(mine):
            for b in mine[i + 1 :]:
                if a.obj == b.obj and (a.writes or b.writes) and _meet(a.box, b.box):
                    self._fail("program-alias", f"the launch writes a part of `{a.obj}` that it is given twice", step,
                               a.obj, stream)  # fmt: skip
        for a in mine:
            for b in self.accesses:
                if clock.get(b.stream, 0) < b.number:
                    self._unordered(step, a, b)
        for part, reads, _ in parts:
            if reads and part.obj in self.ready and not self.ready[part.obj][self._slices(part)].all():
                spoiled = self.spoiled.get(part.obj)
                what = f"`{part.obj}` is read, and not all of that was written before"
                what = what if spoiled is None else f"`{part.obj}` is read after `{spoiled}` was put in its place"
                code = "program-uninitialised" if spoiled is None else "program-memory"
                self._fail(code, what, step, part.obj, stream)
        self.accesses += mine

    def _unordered(self, step: Step, a: _Access, b: _Access) -> None:
        """Report two accesses that are not ordered, if they meet."""
        if a.obj == b.obj:
            if (a.writes or b.writes) and _meet(a.box, b.box):
                with_ = "what the caller did before" if b.step is None else f"the launch on stream `{b.stream}`"
                what = f"this access of `{a.obj}` on stream `{a.stream}` is not ordered after {with_}"
                self._fail("program-race", what, step, a.obj, a.stream, b.step)
        elif b.step is not None and self._shared(a.obj, b.obj) and (a.writes or b.writes):
            what = f"`{a.obj}` and `{b.obj}` share memory, and stream `{a.stream}` does not wait for `{b.stream}`"
            self._fail("program-memory", what, step, a.obj, a.stream, b.step)

    def _shared(self, one: str, two: str) -> bool:
        if one not in self.places or two not in self.places:
            return False
        (first, size), (second, other) = self.places[one], self.places[two]
        return size > 0 and other > 0 and first < second + other and second < first + size

    # ------------------------------------------------------------------ values

    def _compute(self, step: Launch, found: Bound, parts: Mapping[str, Part], writes: frozenset[str]) -> None:
        kernel = found.kernel
        held: Any = {
            n: Held(self.arrays[p.obj][self._slices(p)].copy(), kernel.object(n).dtype) for n, p in parts.items()
        }
        params: dict[str, Number] = {name: self.number(e) for name, e in found.values.items()}
        numbers = tuple(params[s.name] for s in kernel.params if isinstance(s, Scalar))
        seed = seed_of(f"{kernel.name} {kernel.constexprs}", [h.values for h in held.values()], numbers)
        specs = {s.output: s for s in statements(kernel.body) if isinstance(s, Spec)}
        results: dict[str, Array] = {}
        for number, name in enumerate(sorted(writes)):
            spec, old = specs.get(name), held[name].values
            part = any(c.output == name for c in kernel.covers)
            if spec is None or part or names_results(kernel, spec):
                results[name] = drawn(seed, number, old)
            elif old.size:
                mesh = np.ix_(*(np.arange(n) for n in old.shape))
                value = np.broadcast_to(Reference(held, params).term(spec.value, dict(enumerate(mesh))), old.shape)
                added = accumulates(kernel, name)
                results[name] = drawn(seed, number, old) if added is None else old + value if added else value
        for name, result in results.items():
            self._write(parts[name], result)

    def _write(self, part: Part, values: Array) -> None:
        self.arrays[part.obj][self._slices(part)] = values
        if part.obj in self.ready:
            self.ready[part.obj][self._slices(part)] = True
            for other in self.ready:
                if other != part.obj and self._shared(part.obj, other) and self.ready[other].any():
                    self.ready[other][...] = False
                    self.spoiled[other] = part.obj

    # ------------------------------------------------------------------ helpers

    def number(self, expr: Expr) -> Any:
        """Return the current value of an expression."""
        return evaluate(hosted(expr), self.env)

    def _box(self, part: Part) -> Box:
        begins = [self.number(e) for e in part.start]
        return tuple((s, s + self.number(e)) for s, e in zip(begins, part.extent, strict=True))

    def _slices(self, part: Part) -> tuple[slice | int, ...]:
        pairs = zip(self._box(part), part.kept, strict=True)
        return tuple(slice(lo, hi) if kept else lo for (lo, hi), kept in pairs)

    def _fail(
        self, code: str, message: str, step: Step | None, buffer: str = "", stream: str = "", other: Step | None = None
    ) -> None:
        where = {name: int(self.env[name]) for name in self.loops}
        self.violations.append(Violation(code, message, step, buffer, stream, where, other))


def _meet(a: Box, b: Box) -> bool:
    return all(lo < other_hi and other_lo < hi for (lo, hi), (other_lo, other_hi) in zip(a, b, strict=True))
