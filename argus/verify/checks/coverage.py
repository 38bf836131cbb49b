"""Coverage: every element of every output is written exactly once.

Outputs are tensors that have a specification or are stored to, and are never read. A tensor that is read and written is
updated in place: if it has a specification, each element must be written, possibly more than once. A tensor that is
accumulated into is not checked.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from argus.diagnostic import Note, Verdict
from argus.ir.access import Mode
from argus.ir.nodes import Spec, Tensor
from argus.simulate.sizes import integer_parameters
from argus.source import Span
from argus.verify.checks.meetings import never_meet
from argus.verify.checks.parts import Part, declared, made_of, missing, outside
from argus.verify.checks.races import by_block, without
from argus.verify.findings import FailurePlace, Finding, axes_help, place_of, unknown
from argus.verify.model.formulas import Tuple, between, multiple, numbered, points
from argus.verify.model.isl import isl, smallest
from argus.verify.model.program import own_turn, turns
from argus.verify.model.relations import Cells, Model
from argus.verify.model.translator import NonAffine, identifier


def check(model: Model) -> list[Finding]:
    """Find missing and repeated writes of all outputs."""
    findings: list[Finding] = []
    for tensor in model.kernel.tensors:
        accesses = model.accesses_of(tensor.name)
        modes = {c.relation.mode for c in accesses}
        writes = [c for c in accesses if c.relation.mode is Mode.WRITE]
        part = declared(model.kernel, tensor)
        if part is not None:
            findings += _of_part(model, tensor, part, accesses)
            findings += _repeated(model, tensor, writes) if modes == {Mode.WRITE} else []
            continue
        if Mode.ACCUMULATE in modes:
            continue
        if not writes:
            findings += _never_written(model, tensor)
        elif modes == {Mode.WRITE}:
            findings += _missing(model, tensor, writes)
            findings += _repeated(model, tensor, writes)
        elif _specifications(model, tensor):
            findings += _missing(model, tensor, writes)
    return findings


def _of_part(model: Model, tensor: Tensor, part: Part, accesses: list[Cells]) -> list[Finding]:
    """Find elements of a declared part that are not written, and writes outside the part."""
    covers = next(c for c in model.kernel.covers if c.output == tensor.name)
    writes = [c for c in accesses if c.relation.mode is not Mode.READ]
    accumulated = any(c.relation.mode is Mode.ACCUMULATE for c in writes)
    help = "say by `al.covers` exactly which elements are written, with the facts that hold of index tensors"
    findings: list[Finding] = []
    try:
        left = _left(model, tensor, part, writes)
        if not (accumulated or left.is_empty()):
            found = _uncovered(model, tensor, left, covers.span, "declared here", help)
            values = ", ".join(f"{n} = {v}" for n, v in zip(covers.names, smallest(left).values, strict=True))
            text = f"an element of output '{tensor.name}' that the kernel covers is never written: the one at {values}"
            findings.append(replace(found, message=text))
        for cells in writes:
            left = outside(model, part, cells)
            if not left.is_empty():
                text, span = f"'{tensor.name}' is written outside of what the kernel covers", cells.site.stmt.span
                place = replace(place_of(model.kernel, smallest(left), cells.site), block=())
                label, notes = "written here", (Note("declared here", covers.span),)
                code = "output-written-outside"
                findings.append(
                    Finding(code, "coverage", Verdict.REFUTED, text, span, label, help, notes, place=place)
                )
    except NonAffine as error:
        text = f"cannot tell whether the declared part of '{tensor.name}' is written: {error}"
        findings.append(unknown("coverage-unknown", "coverage", covers.span, text, help))
    return findings


def _left(model: Model, tensor: Tensor, part: Part, writes: list[Cells]) -> isl.Set:
    """Return the variables of a part for which no write was found, whichever role runs the program.

    Roles that take turns differ in nothing but the programs that they run. Raises `NonAffine`.
    """
    if model.kernel.grid is None:
        raise NonAffine("the kernel declares no grid")
    found = [missing(model, tensor, part, _of_turn(writes, turn)) for turn in range(_turns(model))]
    return reduce(isl.Set.union, found)


def _turns(model: Model) -> int:
    """Return the number of roles any of which may run a given program."""
    return max((turns(site.role) for site in model.sites), default=1)


def _of_turn(writes: list[Cells], turn: int) -> list[Cells]:
    """Return the writes of a program whose number is `turn`, modulo the number of roles that take turns."""
    return [c for c in writes if c.site.role is None or turns(c.site.role) == 1 or own_turn(c.site.role) == turn]


def _by_parts(model: Model, tensor: Tensor, writes: list[Cells]) -> bool:
    """Return True if a declared index tensor divides the tensor into parts, and every element of them is written."""
    try:
        return any(_left(model, tensor, p, writes).is_empty() for p in made_of(model, tensor))
    except NonAffine:
        return False


def _specifications(model: Model, tensor: Tensor) -> list[Spec]:
    return [s.stmt for s in model.sites if isinstance(s.stmt, Spec) and s.stmt.output == tensor.name]


def _missing(model: Model, tensor: Tensor, accesses: list[Cells]) -> list[Finding]:
    span = accesses[-1].site.stmt.span
    if model.kernel.grid is None:
        help = "declare the launch grid with al.grid(...), so that the blocks that run are known"
        return [
            unknown(
                "coverage-unknown",
                "coverage",
                span,
                f"cannot tell whether '{tensor.name}' is written whole: the kernel declares no grid",
                help,
            )
        ]
    inexact = [c.reason for c in accesses if not c.exact]
    whole = _whole(model, tensor)
    absent = isl.Set.empty(whole.get_space())
    most = _turns(model)
    for turn in range(most):
        written = isl.Set.empty(whole.get_space())
        for cells in accesses:
            written = written.union(_written(model, _in_turn(cells, turn, most), whole))
        absent = absent.union(whole.subtract(written))
    if (inexact or not absent.is_empty()) and _by_parts(model, tensor, accesses):
        return []
    if absent.is_empty():
        if inexact:
            help = "write the output through affine indices, or state al.requires on the index tensor"
            text = f"cannot tell whether every element of '{tensor.name}' is written: {inexact[0]}"
            return [unknown("coverage-unknown", "coverage", span, text, help)]
        return []
    usual = "make the grid and the tiles cover the whole tensor (al.cdiv for the grid, boundary_check for the tails)"
    help = axes_help(model.kernel) or usual
    return [_uncovered(model, tensor, absent, span, "the last store to it", help)]


def _never_written(model: Model, tensor: Tensor) -> list[Finding]:
    """Report an output that has a specification but is never written."""
    specs = _specifications(model, tensor)
    absent = _whole(model, tensor)
    if not specs or absent.is_empty():
        return []
    help = f"store the result to '{tensor.name}'"
    return [_uncovered(model, tensor, absent, specs[0].span, "specified here", help)]


def _uncovered(model: Model, tensor: Tensor, missing: isl.Set, span: Span, label: str, help: str) -> Finding:
    point = smallest(missing)
    place = FailurePlace(
        sizes={n: point.parameters.get(identifier(n), 1) for n in integer_parameters(model.kernel)},
        block=(),
        element=point.values,
    )
    return Finding(
        "output-not-covered",
        "coverage",
        Verdict.REFUTED,
        f"element {list(point.values)} of output '{tensor.name}' is never written",
        span,
        label=label,
        help=help,
        place=place,
        arrived="⊥ (never written)",
    )


def _written(model: Model, cells: Cells, whole: isl.Set) -> isl.Set:
    """Return the elements that some block writes for all values of the numbers that blocks load or compute."""
    axes = len(model.kernel.program_ids)
    by_all = by_block(cells.map.range(), axes)
    varying = model.varying(cells.map)
    if not varying:
        return by_all.range()
    every = by_block(whole.intersect_params(model.context.set), axes)
    return every.subtract(without(every.subtract(by_all), varying)).range()


def _in_turn(cells: Cells, turn: int, most: int) -> Cells:
    """Restrict an access to the programs of a block whose number is `turn` modulo `most`."""
    if most == 1:
        return cells
    dims = numbered("i", cells.map.dim(isl.dim_type.in_))
    own = points(Tuple(dims, cells.map.get_tuple_name(isl.dim_type.in_)), [multiple(f"i0 - {turn}", most)])
    return replace(cells, bare=cells.bare.intersect_domain(own))


def _whole(model: Model, tensor: Tensor) -> isl.Set:
    """Return all elements of a tensor, under the known facts about sizes."""
    dims = numbered("e", len(tensor.shape))
    bounds = [between(d, "0", model.translator.integer(e, ())) for d, e in zip(dims, tensor.shape, strict=True)]
    return model.points(Tuple(dims, identifier(tensor.name)), *bounds).intersect_params(model.context.sizes)


def _repeated(model: Model, tensor: Tensor, accesses: list[Cells]) -> list[Finding]:
    """Find two writes of one element by one block. Writes by two blocks are a race (see `races`)."""
    for number, first in enumerate(accesses):
        for second in accesses[number:]:
            twice = first.map.apply_range(second.map.reverse())
            if model.persistent:  # two programs of a block count as two blocks
                twice = twice.equate(isl.dim_type.in_, 0, isl.dim_type.out, 0)
            if first is second:
                twice = twice.subtract(isl.Map.identity(twice.get_space()))
            if twice.is_empty():
                continue
            span = second.site.stmt.span
            message = f"an element of output '{tensor.name}' is written twice"
            help = "write each element once: keep the value in registers until it is final"
            if not (first.exact and second.exact):
                if never_meet(model, first, second, blocks=False):
                    continue
                reason = first.reason or second.reason
                text, help = f"cannot exclude that {message} ({reason})", axes_help(model.kernel) or help
                return [unknown("coverage-unknown", "coverage", span, text, help)]
            point = smallest(twice.range())
            return [
                Finding(
                    "output-written-twice",
                    "coverage",
                    Verdict.REFUTED,
                    message,
                    span,
                    label="written here",
                    notes=(Note("and here", first.site.stmt.span),),
                    help=help,
                    place=place_of(model.kernel, point, second.site),
                )
            ]
    return []
