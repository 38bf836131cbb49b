"""The emitter's state: the text so far, the variables of the prologue, and the coordinates of one statement."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from argus.backend.emit import registers
from argus.backend.emit.flight import Flight
from argus.backend.emit.registers import Affine, Digit, Ints
from argus.ir.expr import Elem, Expr
from argus.ir.nodes import Access, Fragment, Kernel
from argus.layout import FragmentLayout, Mode
from argus.source import Span


@dataclass
class Writer:
    """The text of one kernel, or of one of its roles.

    `prologue` maps the text of expressions that depend only on the thread, computed once, to their names. `threads` is
    the number of threads that run the text. In a role, `barrier` is the number of the barrier that joins them.
    `flight` describes the tiles that asynchronous products use at this point. `empty` are tiles that the next such
    product overwrites. `least` holds the least values of sizes that the preconditions allow.
    """

    kernel: Kernel
    names: Mapping[str, str]
    natural: set[str]
    threads: int
    flight: Flight
    least: Mapping[str, int]
    barrier: int | None = None
    lines: list[str] = field(default_factory=list)
    prologue: dict[tuple[str, str], str] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)
    depth: int = 1

    def line(self, text: str) -> None:
        """Append one line at the current depth."""
        self.lines.append("    " * self.depth + text if text else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Enclose the lines in `head {` ... `}`; add nothing if `head` is empty."""
        if not head:
            yield
            return
        self.line(head + " {")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def braces(self) -> Iterator[None]:
        """Enclose the lines in a scope for local variables."""
        self.line("{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def loops(self, digits: tuple[Digit, ...]) -> Iterator[None]:
        """Enclose the lines in unrolled loops over the counters."""
        for d in digits:
            self.line("#pragma unroll")
            up, down = (f"= 0; {d.name} < {d.extent}; ++{d.name}", f"= {d.extent - 1}; {d.name} >= 0; --{d.name}")
            self.line(f"for (int {d.name} {down if d.down else up}) {{")
            self.depth += 1
        yield
        for _ in digits:
            self.depth -= 1
            self.line("}")

    def hoist(self, ctype: str, text: str, letter: str) -> str:
        """Return the prologue's variable for `text`, which depends only on the thread; return a constant as it is."""
        if text.isdigit():
            return text
        key = (ctype, text)
        if key not in self.prologue:
            number = sum(bool(re.fullmatch(rf"{letter}\d+", name)) for name in self.prologue.values())
            self.prologue[key] = f"{letter}{number}"
        return self.prologue[key]

    def block_id(self, axis: int) -> str:
        """Return the variable for the program's index along an axis; "0" for an axis that the grid does not have.

        The kernel declares the variable if the index is computed from more than the block's index along that axis.
        Otherwise it is a variable of the prologue.
        """
        if self.kernel.grid is not None and axis >= len(self.kernel.grid):
            return "0"
        if self.kernel.group > 1 or self.kernel.flat or self.kernel.persistent:
            return f"block{axis}"
        return self.prologue.setdefault(("int", f"argus::block_id<{axis}>()"), f"block{axis}")

    @property
    def waves(self) -> bool:
        """True if warps are AMD's waves of 64 lanes: some device functions exist for these only."""
        return self.kernel.warp_size == 64

    def fragment(self, name: str) -> Fragment | None:
        """Return the register tile of that name, or None if there is none."""
        return next((f for f in self.kernel.fragments if f.name == name), None)


def digit_text(modes: tuple[Mode, ...], dim: int | None, threads: int, variable: str = "thread") -> str:
    """Return, as C++, the sum of `variable`'s mixed-radix digits that move along `dim`; "0" if there are none."""
    terms: list[str] = []
    weight = 1
    for mode in modes:
        if mode.dim == dim and mode.extent > 1:
            text = variable if weight == 1 else f"{variable} / {weight}"
            text = text if weight * mode.extent >= threads else f"{text} % {mode.extent}"
            terms.append(text if mode.stride == 1 else f"{text} * {mode.stride}")
        weight *= mode.extent
    return " + ".join(terms) or "0"


@dataclass(frozen=True)
class Domain:
    """The elements of one statement as its text sees them: a layout, and the counters of its unrolled loops.

    `fixed` gives counters their values if the loops are written out.
    """

    writer: Writer
    layout: FragmentLayout
    loops: tuple[Digit, ...]
    span: Span
    fixed: Mapping[str, int] | None = None

    @property
    def threads(self) -> Ints:
        """The thread numbers, int64 `[threads, 1]`."""
        return np.arange(self.writer.threads, dtype=np.int64)[:, None]

    def coordinates(self, inner: int = 0) -> tuple[Ints, ...]:
        """Return the coordinates, `[threads, combinations]` for each dimension."""
        return registers.coordinates(self.layout, self.loops, inner)

    def thread_part(self, dim: int) -> str:
        """Return the thread's part of the coordinate along `dim`: a variable of the prologue, or "0"."""
        text = digit_text(self.layout.threads, dim, self.writer.threads)
        return self.writer.hoist("int", text, "t")

    def counter(self, digit: Digit) -> str:
        """Return the counter of a loop, or its value if that is fixed."""
        return digit.name if self.fixed is None else str(self.fixed[digit.name])

    def counted(self, dim: int) -> list[str]:
        """Return the loop counters' part of the coordinate along `dim`, as terms of a sum."""
        along = [d for d in self.loops if d.dim == dim]
        if self.fixed is not None:
            known = sum(self.fixed[d.name] * d.stride for d in along)
            return [str(known)] if known else []
        return [d.name if d.stride == 1 else f"{d.name} * {d.stride}" for d in along]

    def coordinate(self, dim: int) -> str:
        """Return the coordinate along `dim` as C++."""
        return " + ".join(t for t in (self.thread_part(dim), *self.counted(dim)) if t != "0") or "0"

    def rounded_down(self, dim: int, width: int) -> str | None:
        """Return the coordinate along `dim` rounded down to a multiple of `width`, if some of its digits sum to it."""
        threads = [m for m in self.layout.threads if m.dim == dim and m.extent > 1]
        along = [d for d in self.loops if d.dim == dim]
        small = [d for d in along if d.stride % width]
        if any(m.stride % width for m in threads) or sum((d.extent - 1) * d.stride for d in small) >= width:
            return None
        large = replace(self, loops=tuple(d for d in self.loops if d not in small))
        return large.coordinate(dim)

    def below(self, dim: int, bound: int) -> str | None:
        """Return a condition on loop counters that makes the coordinate along `dim` less than `bound` in every thread.

        It is "true", a test of the counter with the largest stride, or None if there is no such condition.
        """
        threads = sum((m.extent - 1) * m.stride for m in self.layout.threads if m.dim == dim)
        along = sorted((d for d in self.loops if d.dim == dim), key=lambda d: d.stride)
        if self.fixed is not None:
            return "true" if threads + sum(self.fixed[d.name] * d.stride for d in along) < bound else None
        rest = threads + sum((d.extent - 1) * d.stride for d in along[:-1])
        if not along or rest >= bound:
            return "true" if rest < bound else None
        turns = -(-(bound - rest) // along[-1].stride)
        return "true" if turns >= along[-1].extent else f"{along[-1].name} < {turns}"

    def above(self, dim: int, bound: int) -> str | None:
        """Return a condition, like `below`, that makes the coordinate along `dim` at least `bound` in every thread."""
        along = sorted((d for d in self.loops if d.dim == dim), key=lambda d: d.stride)
        if self.fixed is not None:
            return "true" if sum(self.fixed[d.name] * d.stride for d in along) >= bound else None
        if not along or bound <= 0:
            return "true" if bound <= 0 else None
        turns = -(-bound // along[-1].stride)
        return f"{along[-1].name} >= {turns}" if turns < along[-1].extent else None

    def combination(self) -> int:
        """Return the position of `fixed` among all combinations of counters."""
        index = 0
        for d in self.loops:
            index = index * d.extent + (self.fixed or {})[d.name]
        return index

    def registers(self, fragment: Fragment, index: tuple[Expr, ...], inner: int = 0) -> Ints:
        """Return the register of `fragment[index]` at value `inner` of each vector, `[combinations]`."""
        at = self.coordinates(inner)
        found = registers.uniform_registers(fragment, index, at, self.threads, self.span)
        return np.broadcast_to(found, prod(d.extent for d in self.loops))

    def register(self, fragment: Fragment, index: tuple[Expr, ...]) -> str:
        """Return `name[number]`, the register that holds `fragment[index]` at the current counters."""
        found = self.registers(fragment, index)
        name = self.writer.names[fragment.name]
        if self.fixed is not None:
            return f"{name}[{int(found[self.combination()])}]"
        form = registers.fit(found, self.loops)
        assert form is not None, "`unrolled` writes such loops out"
        return f"{name}[{form.text()}]"

    def affine(self, elems: list[tuple[Fragment, tuple[Expr, ...]]]) -> bool:
        """Return True if every register number is affine in the counters, so that the loops can stay loops."""
        return all(isinstance(registers.fit(self.registers(f, index), self.loops), Affine) for f, index in elems)

    def iterations(self, cells: Sequence[Elem | Access]) -> Iterator[Domain]:
        """Yield the domain in which to print the statement: once inside loops, or once per combination of counters.

        Combinations are written out if register numbers are not affine in the counters.
        """
        used = [(f, e.index) for e in cells if (f := self.writer.fragment(e.obj)) is not None]
        if self.affine(used):
            with self.writer.loops(self.loops):
                yield self
            return
        table = registers.counters(self.loops)
        for i in range(prod(d.extent for d in self.loops)):
            fixed = {name: int(column[i]) for name, column in table.items()}
            yield Domain(self.writer, self.layout, self.loops, self.span, fixed)
