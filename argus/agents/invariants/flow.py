"""The way of elements through a kernel: which tags each object carries where, as candidates for assertions.

This is no proof, and needs none: it guesses, in the order of the program, and whatever does not prove is dropped. Loops
are followed twice, so that the second time knows what one iteration leaves to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from argus.agents.invariants.candidates import Candidate, Candidates, axes_of, loads
from argus.agents.invariants.carried import (
    ZERO,
    Carried,
    Term,
    coordinates,
    gathered,
    intervals,
    mentions,
    plain,
    tidied,
    with_loop,
)
from argus.agents.invariants.names import names_of
from argus.agents.invariants.places import joined, solved
from argus.ir.expr import Const, Coord, Elem, Expr, LoopVar, Op, conjuncts, coords, op, substitute_coords
from argus.ir.expr import walk as parts_of
from argus.ir.nodes import (
    Access,
    Accumulate,
    Copy,
    For,
    If,
    Kernel,
    Map,
    Mma,
    Once,
    Scan,
    Share,
    Spec,
    Stage,
    Stmt,
    Tag,
    Tensor,
)
from argus.ir.visit import walk


@dataclass(frozen=True, slots=True)
class _Written:
    """The elements that statement `by` wrote to an object: at which index, over its coordinates; `then`: as it was at
    that time."""

    index: tuple[Expr, ...]
    carried: Carried
    then: Carried
    by: int = -1


@dataclass(slots=True)
class Flow:
    """The state of the objects, and the candidates found so far."""

    kernel: Kernel
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    state: dict[str, _Written] = field(default_factory=dict)
    loops: list[tuple[For, set[str]]] = field(default_factory=list)
    candidates: Candidates = field(init=False)

    def __post_init__(self) -> None:
        self.candidates = Candidates(self.kernel, self._writer)

    def _writer(self, name: str) -> int | None:
        written = self.state.get(name)
        return None if written is None else written.by

    def go(self) -> list[Candidate]:
        """Return the candidates of a numbered kernel, in the order in which they were found."""
        self.names = names_of(self.kernel)
        self._body(self.kernel.body)
        first = next(s for s in self.kernel.body if not isinstance(s, Spec))
        tags = [Candidate(first.id, False, _tag_of(t, self.names[t.name]), ("tag", t.name))
                for t in self.kernel.tensors if t.name in self.names and t.shape]  # fmt: skip
        return [*tags, *self.candidates.found.values()]

    # ------------------------------------------------------------------ statements

    def _body(self, body: Sequence[Stmt]) -> None:
        for stmt in body:
            match stmt:
                case Stage():
                    self._moved(stmt, Access(stmt.dst, coords(len(stmt.shape))), stmt.src, stmt.mask)
                case Copy():
                    self._moved(stmt, stmt.dst, stmt.src, stmt.mask)
                case Share():
                    self._moved(stmt, Access(stmt.dst, coords(len(stmt.shape))), stmt.src, None)
                case Map():
                    self._mapped(stmt)
                case Accumulate():
                    self._accumulated(stmt)
                case Mma():
                    self._multiplied(stmt)
                case For():
                    self._loop(stmt)
                case If():
                    self._body(stmt.then)
                    self._body(stmt.orelse)
                case Scan():
                    for tile in stmt.tiles:
                        self.state.pop(tile.result.obj, None)
                case _:
                    pass

    def _moved(self, stmt: Stmt, dst: Access, src: Access, mask: Expr | None) -> None:
        carried = self._read(src.obj, src.index)
        if isinstance(self.kernel.object(dst.obj), Tensor):
            self.candidates.carries(stmt, False, src, carried)
            return
        if carried is not None:
            conditions = tuple(dict.fromkeys((*carried.inside, *conjuncts(mask))))
            carried = replace(carried, inside=conditions)
        self._write(stmt, dst, carried)
        if carried is not None and dst.obj in {f.name for f in self.kernel.fragments}:
            self.candidates.carries(stmt, True, dst, carried)

    def _mapped(self, stmt: Map) -> None:
        combined, mixed = self._combined(stmt, stmt.value, stmt.shape, stmt.dst.obj)
        self._write(stmt, stmt.dst, combined)
        if combined is not None and not mixed and not combined.assumed:
            self.candidates.carries(stmt, True, stmt.dst, combined)

    def _accumulated(self, stmt: Accumulate) -> None:
        combined, _ = self._combined(stmt, stmt.value, stmt.shape, "")
        if combined is None:
            self.state.pop(stmt.dst.obj, None)
            return
        if stmt.op in ("maximum", "minimum"):  # a level: what it is the level of, nobody needs to know
            combined = replace(combined, assumed=True)
        if isinstance(self.kernel.object(stmt.dst.obj), Tensor):
            if isinstance(stmt.value, Elem):
                self.candidates.carries(stmt, False, Access(stmt.value.obj, stmt.value.index), combined)
            return
        self._collect(stmt, stmt.dst, combined, stmt.shape)

    def _multiplied(self, stmt: Mma) -> None:
        """Tag operands that lost their tags, compare what both carry, and add up along the depth."""
        sides = [self._operand(stmt, access) for access in (stmt.a, stmt.b)]
        a, b = sides
        if a is None or b is None:
            self._collect(stmt, stmt.d, a or b, stmt.shape)
            return
        self.candidates.meet(stmt, [(stmt.a, a), (stmt.b, b)], stmt.shape)
        fields = {**b.fields, **a.fields}
        for name in set(a.fields) & set(b.fields):
            fields[name] = tuple(dict.fromkeys((*b.fields[name], *a.fields[name])))
        both = Carried(fields, tuple(dict.fromkeys((*a.inside, *b.inside))))
        self._collect(stmt, stmt.d, both, stmt.shape)

    def _operand(self, stmt: Mma, access: Access) -> Carried | None:
        carried = self._read(access.obj, access.index)
        if carried is None:
            return None
        written = self.state[access.obj]
        if carried.assumed:
            shape = self.kernel.object(access.obj).shape
            fields = tuple((n, plain(t[0])) for n, t in written.then.fields.items())
            if self.candidates.noting and written.index == coords(len(shape)):
                tag = Tag(access.obj, tuple(e if not isinstance(e, int) else Const(e) for e in shape), fields)
                self.candidates.note(written.by, True, tag, ("retag", access.obj, written.by))
            return replace(carried, assumed=False)
        self.candidates.carries(stmt, False, access, carried)
        return carried

    # ------------------------------------------------------------------ loops

    def _loop(self, loop: For) -> None:
        """Follow a loop twice; then what was added up in it is whole, and what depends on its counter is over."""
        before, summed = dict(self.state), _summed(loop.body)
        noting, self.candidates.noting = self.candidates.noting, False
        self.loops.append((loop, summed))
        self._body(loop.body)
        previous = op("sub", LoopVar(loop.var), Const(loop.step))
        for name, written in list(self.state.items()):
            if name in summed:
                self._restore(name, before)
            elif before.get(name) != written:
                self.state[name] = _later(written, loop.var, previous)
        self.candidates.noting = noting
        self._body(loop.body)
        self.loops.pop()
        for name in list(self.state):
            if self.state[name] != before.get(name):
                self._leave(loop, name, name in summed)

    def _restore(self, name: str, before: dict[str, _Written]) -> None:
        if name in before:
            self.state[name] = before[name]
        else:
            self.state.pop(name, None)

    def _leave(self, loop: For, name: str, summed: bool) -> None:
        written = self.state[name]
        fields: dict[str, tuple[Term, ...]] = {}
        for key, terms in written.carried.fields.items():
            kept = [t for t in terms if not mentions(t, loop.var)]
            ends = [t for t in terms if isinstance(t, Once) and mentions(t, loop.var)] if summed else []
            for term in ends:
                last = tidied(with_loop(_whole(term), loop.var, op("sub", loop.stop, Const(loop.step))))
                kept += [Once(term.lo, self._size(key)), *intervals(term.lo, last, self._size(key))]
            if kept:
                fields[key] = tuple(dict.fromkeys(kept))
        inside = tuple(c for c in written.carried.inside if not mentions(c, loop.var))
        carried = replace(written.carried, fields=fields, inside=inside)
        self.state[name] = replace(written, carried=carried)
        shape = self.kernel.object(name).shape
        if summed and not carried.assumed and written.index == coords(len(shape)):
            self.candidates.carries(loop, True, Access(name, written.index), carried)

    # ------------------------------------------------------------------ state

    def _read(self, obj: str, index: tuple[Expr, ...]) -> Carried | None:
        if obj in self.names:
            fields = {n: (e,) for n, e in zip(self.names[obj], index, strict=True) if not loads(e)}
            return Carried(fields) if fields else None
        written = self.state.get(obj)
        if written is None:
            return None
        found = solved(written.index, index)
        if found is None:
            return None
        places, loops = found

        def change(e: Expr) -> Expr:
            for var, value in loops.items():
                e = with_loop(e, var, value)
            return substitute_coords(e, places)

        return written.carried.changed(change)

    def _write(self, stmt: Stmt, dst: Access, carried: Carried | None) -> None:
        if carried is None or not carried.fields:
            self.state.pop(dst.obj, None)
        else:
            self.state[dst.obj] = _Written(dst.index, carried, carried, stmt.id)

    def _combined(self, stmt: Stmt, value: Expr, shape: tuple[int, ...], into: str) -> tuple[Carried | None, bool]:
        """Return what an elementwise value carries, and whether its operands carry different tags."""
        sides = [(Access(e.obj, e.index), c) for e in _operands(value)
                 if (c := self._read(e.obj, e.index)) is not None and c.fields]  # fmt: skip
        own = [c for access, c in sides if access.obj == into]
        if own or not sides:
            return (own[0] if own else None), False
        if all(c.fields == sides[0][1].fields for _, c in sides):
            inside = tuple(dict.fromkeys(i for _, c in sides for i in c.inside))
            return replace(sides[0][1], inside=inside, assumed=any(c.assumed for _, c in sides)), False
        self.candidates.meet(stmt, [s for s in sides if not s[1].assumed], shape)
        every = set(range(len(shape)))
        whole = [c for access, c in sides if axes_of(access.index) >= every]
        if len(whole) != 1:
            return None, True
        return replace(whole[0].single, assumed=True), True

    def _collect(self, stmt: Stmt, dst: Access, carried: Carried | None, shape: tuple[int, ...]) -> None:
        """Add up what elements carry, along the axes that the destination does not have."""
        if carried is None:
            return
        kept = axes_of(dst.index)
        gone = set(range(len(shape))) - kept
        fields: dict[str, tuple[Term, ...]] = {}
        for name, terms in carried.fields.items():
            sums = tuple(dict.fromkeys(s for t in terms for s in gathered(t, shape, gone, self._size(name))))
            fields |= {name: sums} if sums else {}
        inside = tuple(c for c in carried.inside if not coordinates(c) & gone)
        before = self._read(dst.obj, dst.index)
        new = Carried(self._begun(dst.obj, fields), inside, carried.assumed)
        if before is not None:
            new = joined(before, new)
        self._write(stmt, dst, new)
        if not new.assumed:
            self.candidates.carries(stmt, True, dst, new)

    def _begun(self, name: str, fields: dict[str, tuple[Term, ...]]) -> dict[str, tuple[Term, ...]]:
        """Let sets begin where the loops that add them up do."""
        for loop, summed in self.loops:
            if name in summed:
                fields = {key: tuple(dict.fromkeys(b for t in terms for b in self._from_start(key, t, loop)))
                          for key, terms in fields.items()}  # fmt: skip
        return fields

    def _from_start(self, key: str, term: Term, loop: For) -> Iterator[Term]:
        if not mentions(term, loop.var):
            yield term
            return
        one = term if isinstance(term, Once) else Once(term, op("add", term, Const(1)))
        if not coordinates(one.lo):
            start = with_loop(one.lo, loop.var, loop.start)
            yield from intervals(start, _whole(one), self._size(key))

    def _size(self, name: str) -> Expr:
        for tensor in self.kernel.tensors:
            for dim, given in enumerate(self.names.get(tensor.name, ())):
                if given == name:
                    return tensor.shape[dim]
        return ZERO


def _tag_of(tensor: Tensor, names: tuple[str, ...]) -> Tag:
    return Tag(tensor.name, tensor.shape, tuple((n, Coord(d)) for d, n in enumerate(names)))


def _operands(expr: Expr) -> Iterator[Elem]:
    """Yield the elements whose tags count for a value: not those that a choice looks at."""
    match expr:
        case Elem():
            yield expr
        case Op(op="where", args=(_, *values)):
            for value in values:
                yield from _operands(value)
        case Op(args=args):
            for arg in args:
                yield from _operands(arg)
        case _:
            return


def _whole(term: Once) -> Expr:
    """Return the end of a set before the tensor cuts it."""
    match term.hi:
        case Op(op="minimum", args=(end, _)):
            return end
        case _:
            return term.hi


def _later(written: _Written, var: str, previous: Expr) -> _Written:
    carried = written.carried.changed(lambda e: with_loop(e, var, previous))
    return replace(written, carried=carried)


def _summed(body: Sequence[Stmt]) -> set[str]:
    """Return the objects that a loop adds to, and does not begin anew in each iteration."""
    first: dict[str, bool] = {}
    for stmt in walk(tuple(body)):
        match stmt:
            case Mma(d=d):
                first.setdefault(d.obj, True)
            case Accumulate(dst=dst):
                first.setdefault(dst.obj, True)
            case Map(dst=dst, value=value):
                first.setdefault(dst.obj, any(isinstance(e, Elem) and e.obj == dst.obj for e in parts_of(value)))
            case Copy(dst=dst):
                first.setdefault(dst.obj, False)
            case Stage(dst=name) | Share(dst=name):
                first.setdefault(name, False)
            case _:
                pass
    return {name for name, sums in first.items() if sums}
