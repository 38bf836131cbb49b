"""Print programs as text, in the style of the IR of kernels.

buffer half: float32[N] at 0 launch scale#0(x = x[0 +: N], y = half[0 +: N], a = 2.0) on main
"""

from __future__ import annotations

from collections.abc import Iterator

from argus.backend.launch.evaluate import show
from argus.ir.expr import Expr, LoopVar, Op, Param, rewrite
from argus.ir.nodes import Arranged, Assume, InRange, Precondition, Requires, SpecTerm, Tensor
from argus.ir.print_terms import Names, print_expr
from argus.programs.ir import Collective, For, If, Launch, Part, Program, Record, Step, Use, Wait


def print_program(program: Program) -> str:
    """Return a program as text."""
    return "\n".join(_lines(program)) + "\n"


def shown(expr: Expr) -> str:
    """Return an expression on the host in the author's notation."""

    def plain(e: Expr) -> Expr | None:
        if isinstance(e, LoopVar):
            return Param(e.name, e.dtype)
        return e.args[0] if isinstance(e, Op) and e.op == "cast" and e.dtype.is_int else None

    return show(rewrite(expr, plain))


def part_text(part: Part) -> str:
    """Return a part as text: `x[i, lo +: n]`, where `n` elements begin at `lo`."""
    dims = zip(part.start, part.extent, part.kept, strict=True)
    inner = ", ".join(f"{shown(s)} +: {shown(e)}" if kept else shown(s) for s, e, kept in dims)
    return f"{part.obj}[{inner}]"


def step_text(step: Step, program: Program) -> str:
    """Return a statement as one line, without nested statements."""
    match step:
        case Launch(use=number, arguments=arguments, stream=stream, grid=grid):
            given = ", ".join(f"{n} = {part_text(a) if isinstance(a, Part) else shown(a)}" for n, a in arguments)
            on = "" if grid is None else f" grid ({', '.join(map(shown, grid))})"
            return f"launch {program.uses[number].name}#{number}({given}){on} on {stream}"
        case Collective(name=name, reads=reads, writes=writes, stream=stream):
            inner = f"reads {', '.join(map(part_text, reads))} writes {', '.join(map(part_text, writes))}"
            return f'collective "{name}" {inner} on {stream}'
        case Record(event=event, stream=stream):
            return f"record {event} on {stream}"
        case Wait(stream=stream, event=event):
            return f"wait {stream} for {event}"
        case For(var=var, start=start, stop=stop, step=width):
            return f"for {var} in {shown(start)} .. {shown(stop)} step {width}"
        case If(cond=cond):
            return f"if {shown(cond)}"


def _lines(program: Program) -> Iterator[str]:
    yield f"program {program.name} target {program.target}"
    for p in program.params:
        if isinstance(p, Tensor):
            shape, strides = (", ".join(map(shown, e)) for e in (p.shape, p.strides))
            yield f"  tensor {p.name}: {p.dtype}[{shape}] strides [{strides}] align {p.alignment}"
        else:
            yield f"  scalar {p.name}: {p.dtype}"
    yield from (f"  {_fact(p)}" for p in program.preconditions)
    if len(program.streams) > 1:
        yield f"  streams {', '.join(program.streams)}"
    for b in program.buffers:
        place = "" if b.offset is None else f" at {shown(b.offset)}"
        yield f"  buffer {b.name}: {b.dtype}[{', '.join(map(shown, b.shape))}]{place}"
    if program.pool is not None:
        yield f"  pool {shown(program.pool)}"
    for number, use in enumerate(program.uses):
        yield f"  kernel {use.name}#{number}{_constants(use)}"
    yield from _body(program.body, program, "  ")
    for spec in program.specs:
        yield f"  spec {spec.output}({', '.join(spec.names)}) = {spec_text(spec.value, program)}"


def spec_text(term: SpecTerm, program: Program) -> str:
    """Return a term of a specification as text."""
    params = {e.name: e.dtype for t in program.tensors for e in (*t.shape, *t.strides) if isinstance(e, Param)}
    params |= {s.name: s.dtype for s in program.scalars}
    return print_expr(term, Names(params, {t.name: t.dtype for t in program.tensors}))


def _body(body: tuple[Step, ...], program: Program, indent: str) -> Iterator[str]:
    for step in body:
        blocks: tuple[tuple[Step, ...], ...] = ()
        match step:
            case For(body=inner):
                blocks = (inner,)
            case If(then=then, orelse=orelse):
                blocks = (then, orelse) if orelse else (then,)
            case _:
                pass
        yield indent + step_text(step, program) + (" {" if blocks else "")
        for number, block in enumerate(blocks):
            if number:
                yield indent + "} else {"
            yield from _body(block, program, indent + "  ")
        if blocks:
            yield indent + "}"


def _constants(use: Use) -> str:
    options = [f"{name} = {value!r}" for name, value in use.constexprs]
    options += [f"num_warps = {use.num_warps}"] if use.num_warps is not None else []
    aligned = [f"{name} {alignment}" for name, alignment in use.alignment]
    return f" ({', '.join(options)})" * bool(options) + f" align {', '.join(aligned)}" * bool(aligned)


def _fact(fact: Precondition) -> str:
    match fact:
        case Requires(cond=cond):
            return f"requires {shown(cond)}"
        case Assume(cond=cond, reason=reason):
            return f"assume {shown(cond)}: {reason}"
        case InRange(tensor=tensor, lo=lo, hi=hi):
            return f"requires in_range({tensor}, {shown(lo)}, {shown(hi)})"
        case Arranged(tensor=tensor, how=how, total=total, longest=longest):
            rest = "".join(f", {shown(e)}" for e in (total, longest) if e is not None)
            return f"requires {how}({tensor}{rest})"
