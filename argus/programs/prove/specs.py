"""Check specifications: those of the launched kernels, composed, equal the program's.

For every tensor and buffer, the written pieces are kept in order. Each has the term that its kernel specifies, in terms
of the program's inputs. A loop writes one piece for each of its iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from argus.diagnostic import Verdict
from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, Param, conjuncts, coords, op, rewrite
from argus.ir.nodes import Spec, SpecOp, SpecReduce, SpecSoftmax, SpecTerm, Tensor
from argus.ir.own_results import names_results
from argus.ir.spec_terms import mapped, strip
from argus.ir.types import boolean
from argus.ir.visit import walk as statements
from argus.programs.held import accumulates
from argus.programs.ir import Collective, For, If, Launch, Part, Step
from argus.programs.prove.cases import Cases
from argus.programs.prove.contents import Turns, Written, choices, inside, instance, part_at, with_counters
from argus.programs.prove.facts import Doubt, Facts
from argus.programs.prove.normal import TooLarge
from argus.programs.sites import Site, in_range, primed, primed_part

_FIRST_BOUND = 64
"""The first number of a bound variable in composed terms. There are fewer free axes than this number."""


class NotKnown(Exception):
    """The contents of a part have no term. The message says why."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part that was written, for all turns of some loops, with its contents as a term over its own coordinates.

    `term` is None if the contents are not known, and `reason` says why.
    """

    written: Written
    term: SpecTerm | None
    reason: str = ""


State = dict[str, tuple[Piece, ...]]


def check(facts: Facts, sites: tuple[Site, ...]) -> Iterator[Doubt]:
    """Find specifications of the program that do not follow from those of its kernels."""
    if not facts.program.specs:
        return
    walk = _Walk(facts, {id(s.step): s for s in sites})
    state = walk.body(facts.program.body, {})
    for spec in facts.program.specs:
        tensor = facts.program.object(spec.output)
        part = Part(tensor.name, tuple(Const(0) for _ in tensor.shape), tensor.shape, tuple(True for _ in tensor.shape))
        cases = Cases(facts, tensor.name, tensor.shape)
        try:
            found = walk.read(state, part, coords(len(tensor.shape)), [])
            same = cases.equal(found, spec.value)
            reason = "the two are not the same sum of products; other equalities are not known"
        except (NotKnown, TooLarge) as error:
            same, reason = False, str(error) or "the term is too large"
        if not same:
            what = f"it does not follow from the kernels' specifications that `{spec.output}` is as specified"
            yield Doubt("spec-unknown", what, spec, spec.output, "", cases.sizes, reason)


class _Walk:
    def __init__(self, facts: Facts, sites: dict[int, Site]) -> None:
        self.facts, self.sites, self.next = facts, sites, _FIRST_BOUND

    # ------------------------------------------------------------------ statements

    def body(self, body: tuple[Step, ...], state: State) -> State:
        for step in body:
            match step:
                case Launch():
                    state = self.launch(self.sites[id(step)], state)
                case Collective():
                    why = f'"{step.name}" is not defined by the program'
                    for part in step.writes:
                        state = _with_piece(state, Piece(Written(part), None, why))
                case For():
                    state = self.loop(step, state)
                case If():
                    state = self.branch(step, state)
                case _:
                    pass
        return state

    def launch(self, site: Site, state: State) -> State:
        assert site.bound is not None
        kernel, result = site.bound.kernel, state
        specs = {s.output: s for s in statements(kernel.body) if isinstance(s, Spec)}
        for access in site.accesses:
            if access.writes:
                piece = self.specified(site, access.name, specs.get(access.name), state)
                result = _with_piece(result, piece)
        return result

    def specified(self, site: Site, output: str, spec: Spec | None, state: State) -> Piece:
        """Return the piece that a launch writes to one of its outputs."""
        bound = site.bound
        assert bound is not None
        part, kernel = bound.part(output), bound.kernel
        written = Written(part)
        added = accumulates(kernel, output)
        if spec is None:
            return Piece(written, None, f"`{kernel.name}` does not specify `{output}`")
        if names_results(kernel, spec):
            return Piece(written, None, f"`{kernel.name}` specifies `{output}` by its own results")
        if any(c.output == output for c in kernel.covers) or added is None:
            return Piece(written, None, f"`{kernel.name}` writes a part of `{output}` only")
        if kernel.grid is None:
            return Piece(written, None, f"`{kernel.name}` declares no grid, so it may write a part of `{output}` only")
        dtype = next(t.dtype for t in kernel.tensors if t.name == output)
        if dtype.is_int and dtype.bits < 32 and not isinstance(strip(spec.value), Elem):
            return Piece(written, None, f"integers of {dtype.bits} bits in `{output}` may wrap around")
        try:
            term = self.term(spec.value, {i: Coord(i) for i in range(len(spec.names))}, site, state)
            if added:
                old = self.read(state, part, coords(len(spec.names)), site.given)
                term = SpecOp("add", (old, term), term.dtype)
        except NotKnown as error:
            return Piece(written, None, str(error))
        return Piece(written, term)

    def loop(self, step: For, state: State) -> State:
        """Process a loop. Inside it, the pieces of other iterations are unknown; after it, every piece exists for all
        iterations."""
        written = self.body(step.body, {})
        before = state
        for name, pieces in written.items():
            why = f"an iteration of the loop over `{step.var}` reads what others wrote to `{name}`"
            for piece in pieces:
                before = _with_piece(before, Piece(_before(step, piece.written), None, why))
        inner = self.body(step.body, before)
        result = state
        for name, pieces in inner.items():
            made = pieces[len(before.get(name, ())) :]
            apart = self.apart(step, made)
            for piece in made:
                turns = (Turns(step), *piece.written.turns)
                why = piece.reason or f"iterations of the loop over `{step.var}` write the same elements of `{name}`"
                term = piece.term if apart else None
                result = _with_piece(result, Piece(replace(piece.written, turns=turns), term, why))
        return result

    def apart(self, step: For, pieces: tuple[Piece, ...]) -> bool:
        """Return True if no element is written in two iterations of a loop."""
        loops = (step,)
        ne = op("ne", LoopVar(step.var), LoopVar(f"{step.var}'"))
        ranges = [*in_range(step, LoopVar(step.var)), *in_range(step, LoopVar(f"{step.var}'")), ne]
        for i, one in enumerate(pieces):
            for two in pieces[i:]:
                a, b = one.written, two.written
                inner = tuple(t.loop for t in b.turns)
                other = primed_part(b.part, (*loops, *inner))
                cell = _cell(a.part)
                given = [*ranges, *_ranged(a), *(primed(c, (*loops, *inner)) for c in _ranged(b))]
                answer = self.facts.impossible([*given, *inside(cell, a.part), *inside(cell, other)])
                if answer.verdict is not Verdict.PROVED:
                    return False
        return True

    def branch(self, step: If, state: State) -> State:
        ways = [self.body(branch, state) for branch in (step.then, step.orelse)]
        result = state
        for name in {*ways[0], *ways[1]}:
            known = len(state.get(name, ()))
            made = [way.get(name, ())[known:] for way in ways]
            parts = list(dict.fromkeys(p.written for pieces in made for p in pieces))
            for written in parts:
                result = _with_piece(result, self.chosen(step, written, ways))
        return result

    def chosen(self, step: If, written: Written, ways: list[State]) -> Piece:
        """Return the piece that one of two branches wrote, chosen by the condition."""
        if written.turns:
            return Piece(written, None, "a loop inside of a condition writes it")
        place = coords(sum(written.part.kept))
        try:
            then, orelse = (self.read(way, written.part, place, []) for way in ways)
        except NotKnown as error:
            return Piece(written, None, str(error))
        return Piece(written, SpecOp("where", (step.cond, then, orelse), then.dtype))

    # ------------------------------------------------------------------ reading

    def read(self, state: State, part: Part, index: tuple[Expr, ...], given: list[Expr]) -> SpecTerm:
        """Return the contents of a part at `index`, in the part's own coordinates. Raises `NotKnown`."""
        places = iter(index)
        cell = tuple(op("add", s, next(places)) if kept else s for s, kept in zip(part.start, part.kept, strict=True))
        pieces = state.get(part.obj, ())
        if pieces:
            last = pieces[-1]
            if last.term is not None and not last.written.turns and last.written.part == part:
                return self.at(last.term, index)
        return self.newest(pieces, part, cell, [*given, *inside(_cell(part), part)])

    def newest(self, pieces: tuple[Piece, ...], part: Part, cell: tuple[Expr, ...], within: list[Expr]) -> SpecTerm:
        """Return the contents at `cell` of a part to which the pieces were written, the last one last. Raises
        `NotKnown`.

        `within`: facts about an element of the part at the place `_cell(part)`.
        """
        free = _cell(part)
        for number, piece in reversed(list(enumerate(pieces))):
            written = piece.written
            outside = self.facts.impossible([*within, *_ranged(written), *inside(free, written.part)])
            if outside.verdict is Verdict.PROVED:
                continue
            if piece.term is None:
                raise NotKnown(piece.reason)
            turns = list(zip(choices(written, free), choices(written, list(cell)), strict=True))
            for values, place in turns:
                if self._follows(instance(written, free, values), within):
                    return self.of_piece(piece, cell, place)
            for values, place in turns:
                other = [*within, Op("not", (instance(written, free, values),), boolean)]
                if self._exact(written, free, other):
                    rest = self.newest(pieces[:number], part, cell, other)
                    at = instance(written, list(cell), place)
                    return SpecOp("where", (at, self.of_piece(piece, cell, place), rest), rest.dtype)
            raise NotKnown(f"it is not known which elements of `{part.obj}` a loop wrote")
        if isinstance(tensor := self.facts.program.object(part.obj), Tensor):
            return Elem(tensor.name, cell, tensor.dtype)
        raise NotKnown(f"`{part.obj}` is read before it is written")

    def of_piece(self, piece: Piece, cell: tuple[Expr, ...], counters: Mapping[str, Expr]) -> SpecTerm:
        """Return the contents at `cell` of a piece, as the iteration with these counters wrote it."""
        part = part_at(piece.written.part, counters)
        index = tuple(op("sub", c, s) for c, s, kept in zip(cell, part.start, part.kept, strict=True) if kept)
        assert piece.term is not None
        return _numbered(self.at(piece.term, index), counters)

    def _exact(self, written: Written, free: list[Expr], other: list[Expr]) -> bool:
        """Return True if no iteration wrote an element `free` for which the conditions `other` hold."""
        there = [*other, *_ranged(written), *inside(free, written.part)]
        return self.facts.impossible(there).verdict is Verdict.PROVED

    def _follows(self, condition: Expr, within: list[Expr]) -> bool:
        """Return True if each part of a condition follows from `within`."""
        return all(self.facts.ask(goal, within).verdict is Verdict.PROVED for goal in conjuncts(condition))

    # ------------------------------------------------------------------ terms

    def at(self, term: SpecTerm, index: tuple[Expr, ...]) -> SpecTerm:
        """Return a term over its own coordinates, evaluated at `index`. Bound variables get new numbers."""
        return self.placed(term, dict(enumerate(index)))

    def placed(self, term: SpecTerm, axes: Mapping[int, Expr]) -> SpecTerm:
        match term:
            case SpecReduce(axis=axis, body=body):
                new = self.fresh()
                return replace(term, axis=new, body=self.placed(body, {**axes, axis: Coord(new)}))
            case SpecSoftmax(axis=axis, at=at, score=score):
                new = self.fresh()
                there = self.placed(at, axes)
                assert not isinstance(there, (SpecReduce, SpecSoftmax, SpecOp))
                return replace(term, axis=new, at=there, score=self.placed(score, {**axes, axis: Coord(new)}))
            case SpecOp(args=args):
                return replace(term, args=tuple(self.placed(a, axes) for a in args))
            case _:
                expr: Expr = term
                return rewrite(expr, lambda e: axes[e.axis] if isinstance(e, Coord) else None)

    def fresh(self) -> int:
        self.next += 1
        return self.next

    def term(self, term: SpecTerm, axes: Mapping[int, Expr], site: Site, state: State) -> SpecTerm:
        """Return a term of a kernel's specification in terms of the program's inputs. Raises `NotKnown`."""
        bound = site.bound
        assert bound is not None
        match term:
            case SpecReduce(axis=axis, extent=extent, body=body):
                new = self.fresh()
                inner = self.term(body, {**axes, axis: Coord(new)}, site, state)
                return replace(term, axis=new, extent=bound.of(extent), body=inner)
            case SpecSoftmax(axis=axis, extent=extent, at=at, score=score):
                new = self.fresh()
                there = self.expr(at, axes, site, state)
                inner = self.term(score, {**axes, axis: Coord(new)}, site, state)
                return replace(term, axis=new, extent=bound.of(extent), at=there, score=inner)
            case SpecOp(op=name, args=args) | Op(op=name, args=args):
                parts = tuple(self.term(a, axes, site, state) for a in args)
                exprs = tuple(p for p in parts if not isinstance(p, (SpecReduce, SpecSoftmax, SpecOp)))
                plain = isinstance(term, Op) and len(exprs) == len(parts)
                return Op(name, exprs, term.dtype) if plain else SpecOp(name, parts, term.dtype)
            case Elem(obj=obj, index=index):
                places = tuple(self.expr(e, axes, site, state) for e in index)
                return self.read(state, bound.part(obj), places, site.given)
            case Coord(axis=axis):
                return axes[axis]
            case _:
                return bound.of(term)

    def expr(self, expr: Expr, axes: Mapping[int, Expr], site: Site, state: State) -> Expr:
        found = self.term(expr, axes, site, state)
        if isinstance(found, (SpecReduce, SpecSoftmax, SpecOp)):
            raise NotKnown("an index depends on computed numbers")
        return found


def _with_piece(state: State, piece: Piece) -> State:
    name = piece.written.part.obj
    return {**state, name: (*state.get(name, ()), piece)}


def _cell(part: Part) -> list[Expr]:
    return [Param(f"{part.obj}[{axis}]") for axis in range(len(part.start))]


_OTHER = "~"
"""Suffix of the counters of an earlier iteration."""


def _before(step: For, written: Written) -> Written:
    """Return the parts that earlier iterations of a loop wrote, with counters of their own."""
    loops = (step, *(t.loop for t in written.turns))

    def other(turns: Turns) -> Turns:
        loop = turns.loop
        start, stop = (primed(e, loops, _OTHER) for e in (loop.start, loop.stop))
        return replace(turns, loop=replace(loop, var=loop.var + _OTHER, start=start, stop=stop))

    turns = tuple(other(t) for t in (Turns(step, True), *written.turns))
    return Written(primed_part(written.part, loops, _OTHER), turns)


def _ranged(written: Written) -> list[Expr]:
    """Return the conditions that the counters of a piece are in their ranges, or before the current iteration."""
    found: list[Expr] = []
    for turns in written.turns:
        value = LoopVar(turns.loop.var)
        found += in_range(turns.loop, value)
        if turns.so_far:
            found.append(op("lt", value, LoopVar(turns.loop.var.removesuffix(_OTHER))))
    return found


def _numbered(term: SpecTerm, values: Mapping[str, Expr]) -> SpecTerm:
    """Return a term with counters of loops replaced by expressions."""
    return mapped(term, lambda expr: with_counters(expr, values))
