"""Repairs by what the specification says: a value that it does not mention is replaced by one that it does.

`inverse = eps` stands for nothing in the specification of an RMS norm, and nothing in the kernel stands for the
specification's `al.rsqrt(...)`. So that is written in its place, by the names that stand for its parts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

from argus.agents.text_meaning import MANY, Meanings, Term, within
from argus.agents.text_missing import dtype_of, items_of
from argus.agents.text_places import bindings, shape_of
from argus.agents.text_scope import Scope, Sort, TextEdit, computing
from argus.frontend.surface import (
    Assign,
    Attribute,
    AugAssign,
    Call,
    Expression,
    Literal,
    Name,
    Slice,
    Statement,
    Subscript,
)
from argus.knowledge.draft import Draft, every, expressions

_FORMS, _MOST = 3, 6
"""The most texts of one term, and the most terms that are tried in one place."""
_CONDITIONS = ("<", "<=", "==", "!=", "&", "|")


def specified(draft: Draft, scope: Scope) -> Iterator[TextEdit]:
    """Yield the texts in which one value is what the specification says."""
    writer = Writer.of(draft, scope)
    if writer.terms:
        yield from writer.values()
        yield from writer.stores()
        yield from writer.missing()


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes terms of the specification in the names of a kernel."""

    draft: Draft
    scope: Scope
    meanings: Meanings
    terms: tuple[Term, ...]
    loads: Mapping[Term, str]
    bound: Mapping[str, int]

    @classmethod
    def of(cls, draft: Draft, scope: Scope) -> Writer:
        """Read a kernel and its specifications."""
        meanings = Meanings.of(draft, scope)
        wanted = [meanings.wanted(spec, at) for name, spec in meanings.specified().items()
                  for at in [*_indices(draft, meanings, name)] or [()]]  # fmt: skip
        wanted += [c for spec in meanings.specified().values() for c in meanings.conditions(spec)]
        terms = tuple(dict.fromkeys(t for term in wanted for t in within(term) if t[0] not in ("name", "num")))
        calls = [c for c in draft.calls("load", "stage", within=draft.function.body) if c.args]
        loads = {meanings.term(c): draft.read(c) for c in calls}
        bound: dict[str, int] = {}
        for statement in computing(draft):
            for _, names in bindings(statement):
                bound |= {name: statement.span.line for name in names if name not in bound}
        return cls(draft, scope, meanings, terms, loads, bound)

    # ------------------------------------------------------------------ places

    def values(self) -> Iterator[TextEdit]:
        """Write a term that no name stands for where a name stands for no term."""
        masks = {k.value.id for c in self.draft.calls("load", "store", "stage", "atomic_add", "where")
                 for k in c.keywords if k.name == "mask" and isinstance(k.value, Name)}  # fmt: skip
        for statement in computing(self.draft):
            line = statement.span.line
            pairs = list(bindings(statement))
            if isinstance(statement, AugAssign):
                pairs.append((statement.value, (statement.target.id,)))
            for value, names in pairs:
                name = names[0]
                if len(names) > 1 or name in self.scope.places or self.meanings.places(value):
                    continue
                if self.meanings.term(value) in self.terms or self._begins(statement, name):
                    continue
                wanted = list(self._open(name, name in masks, isinstance(statement, AugAssign)))
                settling = [t for t in wanted if self._settles(name, t)]
                for term in (settling or wanted)[:_MOST]:
                    yield from self._replaced(value, term, line)

    def _begins(self, statement: Statement, name: str) -> bool:
        """Return True if a statement only gives a name a number as its first value, and later ones give it another."""
        return isinstance(statement, Assign) and self.meanings.term(statement.value)[0] == "num" and (
            self.meanings.env.get(name, ("num",))[0] != "num")  # fmt: skip

    def _settles(self, name: str, term: Term) -> bool:
        """Return True if every store would be what the specification says if a name stood for a term."""
        then = Meanings.of(self.draft, self.scope, {name: term})
        stores = [then.stored(s) for s in computing(self.draft)]
        specs = then.specified()
        agree = [then.term(s[2]) == then.wanted(specs[s[0]], s[1].items)
                 for s in stores if s is not None and s[0] in specs and isinstance(s[1], Subscript)]  # fmt: skip
        return bool(agree) and all(agree)

    def _open(self, name: str, mask: bool, added: bool) -> Iterator[Term]:
        """Yield the terms that no other name stands for, of conditions for a mask and of values for another name."""
        others = {t for n, t in self.meanings.env.items() if n != name}
        for term in self.terms:
            if (term[0] in _CONDITIONS) != mask or term in others:
                continue
            yield term[1] if added and term[0] == "sum" and term[1][0] != "sum" else term

    def stores(self) -> Iterator[TextEdit]:
        """Store what the specification says about the element, or an operand in shared memory."""
        for statement in computing(self.draft):
            stored = self.meanings.stored(statement)
            if stored is None:
                continue
            name, place, value = stored
            spec = self.meanings.specified().get(name)
            if spec is not None and isinstance(place, Subscript):
                term = self.meanings.wanted(spec, place.items)
                if self.meanings.term(value) != term:
                    yield from self._replaced(value, term, statement.span.line)
            elif name not in self.scope.tensors and self.meanings.term(value) not in self.terms:
                for term in (t for t in self.terms if t[0] == "at"):
                    yield from self._replaced(value, term, statement.span.line)

    def missing(self) -> Iterator[TextEdit]:
        """Store the elements of an output that are specified and not stored: at the places of what is stored."""
        last = computing(self.draft)[-1]
        end, line = self.draft.starts[last.span.end_line], last.span.line
        for name, spec in self.meanings.specified().items():
            stored = [i for at in _indices(self.draft, self.meanings, name) for i in at]
            here = {self.draft.text[slice(*self.draft.place(i.span))] for i in stored}
            for at, tail in (pair for pair in self._unstored(name) if not here.issuperset(pair[0])):
                items = tuple(Literal(int(i)) if i.isdecimal() else Name(i) for i in at)
                term = self.meanings.wanted(spec, items)
                dtype = dtype_of(self.draft, name)
                for text in islice(self.written(term, line + 1), _FORMS):
                    forms = [text] if dtype.endswith("float32") else [f"({text}).to({dtype})", text]
                    for function, form in product(("store", "atomic_add"), forms):
                        new = f"{self.draft.language}.{function}({name}[{', '.join(at)}], {form}{tail})"
                        yield TextEdit(f"add `{new}`", Sort.SPECIFIED, line, ((end, end, f"    {new}\n"),))

    def _unstored(self, name: str) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield indices of an output where nothing is stored, each with the options of the store."""
        stores = [c for c in self.draft.calls("store", "atomic_add", within=self.draft.function.body)
                  if c.args and isinstance(c.args[0], Subscript) and _is(c.args[0].value, name)]  # fmt: skip
        for call in stores:
            access = call.args[0]
            assert isinstance(access, Subscript)
            texts = [self.draft.text[slice(*self.draft.place(i.span))] for i in access.items]
            tail = "".join(f", {k.name}={self.draft.read(k.value)}" for k in call.keywords)
            for number, item in enumerate(access.items):
                if isinstance(item, Literal) and isinstance(item.value, int):
                    for other in ("0", "1"):
                        if other != texts[number]:
                            yield (*texts[:number], other, *texts[number + 1 :]), tail
        if stores:
            return
        sizes = shape_of(self.draft, Name(name))
        for index in islice(product(*(self._items(size) for size in sizes)), _FORMS):
            checks = [str(number) for number, (item, _) in enumerate(index) if ":" in item]
            at = tuple(item for item, _ in index)
            vectors = [f"({i} < {s})" for i, s in zip(at, sizes, strict=True)
                       if i in self.scope.local and i not in self.scope.ids]  # fmt: skip
            masks = [mask for item, mask in index if mask and set(re.findall(r"\w+", mask)) <= {item, *sizes}]
            for mask in dict.fromkeys([*masks[:1], " & ".join(vectors)] if vectors and not checks else [""]):
                tail = f", boundary_check=({', '.join(checks)},)" if checks else f", mask={mask}" if mask else ""
                yield at, tail

    def _items(self, size: str) -> list[tuple[str, str]]:
        """Return the indices of a dimension of this size: first the places to which the grid's axis of that size leads,
        then those of other tensors, each with the mask of its access."""
        found: dict[tuple[str, str], None] = {}
        for statement in computing(self.draft):
            if isinstance(statement, Assign) and isinstance(statement.value, Call):
                grid = self.draft.called(statement.value) == "grid"
                for target, arg in zip(statement.targets, statement.value.args if grid else (), strict=False):
                    if any(_is(e, size) for e in every(arg)):
                        found |= dict.fromkeys((name, "") for name in self._leads(target.id, _is(arg, size)))
        return list(found | dict.fromkeys(items_of(self.draft, size)))

    def _leads(self, number: str, whole: bool) -> list[str]:
        """Return the places that a program number leads to: itself if each program has one, or vectors from there on.
        """
        if whole:
            return [number]
        return [names[0] for s in computing(self.draft) for value, names in bindings(s) if len(names) == 1
                and any(_is(e, number) for e in every(value))
                and any(self.draft.called(e) == "arange" for e in every(value))]  # fmt: skip

    def _replaced(self, value: Expression, term: Term, line: int) -> Iterator[TextEdit]:
        inner = value
        if isinstance(value, Call) and isinstance(value.function, Attribute) and not self.draft.called(value):
            inner = value.function.value
        for text in islice(self.written(term, line), _FORMS):
            new = f"({text})" if inner is not value else text
            yield TextEdit(f"`{text}`", Sort.SPECIFIED, line, ((*self.draft.place(inner.span), new),))

    # ------------------------------------------------------------------ texts

    def written(self, term: Term, line: int, inside: bool = False) -> Iterator[str]:
        """Yield texts of a term by the names that are bound before a line, the shortest first."""
        for name, known in self.meanings.env.items():
            if known == term and self.bound.get(name, 0) < line and (inside or term[0] != "num"):
                yield from self._forms(name)
        match term:
            case ("name", text):
                yield from dict.fromkeys(re.findall(rf"\b{re.escape(text)}\.to\([\w.]+\)", self.draft.text))
                yield str(text)
            case ("num", text):
                yield str(text)
            case ("at", *_):
                if term in self.loads:
                    yield self.loads[term]
                yield from self._load(term)
            case (("sum" | "max" | "min") as name, body):
                for text, axis in product(islice(self.written(body, line, True), 2), (0, 1)):
                    if "load(" not in text and "stage(" not in text:  # of a tile, which is a part of the whole
                        yield f"{self.draft.language}.{name}({text}, axis={axis})"
            case (op, *parts) if op in MANY:
                yield from self._many(op, parts, line)
            case (op, *parts):
                for texts in product(*([*islice(self.written(p, line, True), 2)] for p in parts)):
                    yield self._applied(op, texts)

    def _many(self, op: str, parts: Sequence[Term], line: int) -> Iterator[str]:
        """Yield texts of a sum or product; a name that stands for several of its parts is written for them."""
        for name, known in self.meanings.env.items():
            left = Counter(parts)
            if known[0] == op and self.bound.get(name, 0) < line and Counter(known[1:]) <= left:
                rest = list((left - Counter(known[1:])).elements())
                for texts in product(*([*islice(self.written(p, line, True), 2)] for p in rest)):
                    yield f" {op} ".join((name, *map(_bracketed, texts)))
        for texts in product(*([*islice(self.written(p, line, True), 2)] for p in parts)):
            yield f" {op} ".join(map(_bracketed, texts))

    def _applied(self, op: str, texts: Sequence[str]) -> str:
        if op.isidentifier():
            return f"{self.draft.language}.{op}({', '.join(texts)})"
        if len(texts) == 1:
            return f"{op.strip()}{_bracketed(texts[0])}"
        return f" {op} ".join(map(_bracketed, texts))

    def _forms(self, name: str) -> Iterator[str]:
        """Yield a name as the kernel reads it, with and without new axes."""
        tails = {self.draft.read(e)[len(name) :]: None for s in computing(self.draft) for x in expressions(s)
                 for e in every(x) if isinstance(e, Subscript) and _is(e.value, name)}  # fmt: skip
        yield from (f"{name}{tail}" for tail in ("", *tails))

    def _load(self, term: Term) -> Iterator[str]:
        """Yield loads of a tensor at the places of its dimensions."""
        sizes = shape_of(self.draft, Name(term[1]))
        found = [items_of(self.draft, size) for size in sizes]
        for index in islice(product(*found), 2) if found else ():
            checks = [str(number) for number, (item, _) in enumerate(index) if ":" in item]
            masks = [mask for _, mask in index if mask]
            tail = f", boundary_check=({', '.join(checks)},)" if checks else f", mask={masks[0]}" if masks else ""
            yield f"{self.draft.language}.load({term[1]}[{', '.join(item for item, _ in index)}]{tail})"


def _indices(draft: Draft, meanings: Meanings, name: str) -> Iterator[tuple[Expression | Slice, ...]]:
    for statement in computing(draft):
        stored = meanings.stored(statement)
        if stored is not None and stored[0] == name and isinstance(stored[1], Subscript):
            yield stored[1].items


def _is(expr: object, name: str) -> bool:
    return isinstance(expr, Name) and expr.id == name


def _bracketed(text: str) -> str:
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and not (letter.isalnum() or letter in "_.)]") and place < len(text):
            return f"({text})"
    return text
