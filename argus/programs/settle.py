"""Choose the alignment for which each launch's kernel is compiled: the largest that every call is known to keep."""

from __future__ import annotations

from dataclasses import replace

from argus import compile
from argus.frontend import Options
from argus.ir.expr import Const, Expr, op
from argus.ir.nodes import Kernel, Tensor
from argus.ir.types import ALIGNMENTS
from argus.programs.bound import bound, strides_of
from argus.programs.ir import Buffer, For, If, Launch, Part, Program, Step, Use, wide
from argus.programs.prove.facts import Facts
from argus.work import LIMIT_S, Work


def settled(program: Program) -> Program:
    """Return the program with the uses that its launches need, one for each choice of alignments."""
    return _Settling(program).program()


class _Settling:
    def __init__(self, program: Program) -> None:
        self.given, self.facts = program, Facts(program, Work.of_seconds(LIMIT_S))
        self.uses: list[Use] = []

    def program(self) -> Program:
        body = self.body(self.given.body)
        return replace(self.given, body=body, uses=tuple(self.uses))

    def body(self, body: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(self.step(s) for s in body)

    def step(self, step: Step) -> Step:
        match step:
            case Launch():
                return self.launch(step)
            case For():
                return replace(step, body=self.body(step.body))
            case If():
                return replace(step, then=self.body(step.then), orelse=self.body(step.orelse))
            case _:
                return step

    def launch(self, step: Launch) -> Launch:
        use, found = self.given.uses[step.use], bound(self.given, step)
        parts = [(t, found.part(t.name)) for t in found.kernel.tensors]
        alignment = tuple((t.name, alignment_of(self.facts, self.given, p, t)) for t, p in parts)
        chosen = replace(use, alignment=alignment)
        known = [replace(u, kernel=use.kernel) for u in self.uses]
        if chosen in known:
            return replace(step, use=known.index(chosen))
        self.uses.append(replace(chosen, kernel=elaborated(chosen, self.given.target)))
        return replace(step, use=len(self.uses) - 1)


def elaborated(use: Use, target: str) -> Kernel:
    """Return the kernel of a use, elaborated for its constants and alignments."""
    return compile.elaborate(use.source, use.name, options_of(use, target))


def options_of(use: Use, target: str) -> Options:
    """Return the options with which a use is elaborated and built."""
    return Options(target, use.num_warps, dict(use.constexprs), dict(use.alignment))


def alignment_of(facts: Facts, program: Program, part: Part, tensor: Tensor) -> int:
    """Return the largest alignment, in bytes, that is known for the part passed as the argument `tensor`."""
    quantities = aligned_quantities(program, part, tensor)
    obj = program.object(part.obj)
    most = ALIGNMENTS[0] if isinstance(obj, Buffer) else obj.alignment
    return max(min([most, *(facts.power(q) for q in quantities)]), tensor.dtype.bytes)


def aligned_quantities(program: Program, part: Part, tensor: Tensor) -> list[Expr]:
    """Return the quantities that an alignment divides: the bytes before the part, its strides, and its contiguous rows.
    """
    item, obj = Const(tensor.dtype.bytes), program.object(part.obj)
    found = [op("mul", item, op("mul", wide(s), wide(t))) for s, t in zip(part.start, obj.strides, strict=True)]
    for declared, stride, extent in zip(tensor.strides, strides_of(program, part), part.shape, strict=True):
        unit = isinstance(declared, Const) and declared.value == 1
        found.append(op("mul", item, wide(extent if unit else stride)))
    return found
