"""Persistent kernels whose programs take different steps: order and progress on a few programs in a row.

`Model` says of a persistent kernel that all programs of a block take the same steps. Where a loop's bound or a branch
depends on the program, what it says inside of one program still holds, but not what it says of several. `Window` is the
model of W consecutive programs, each with values of its own for whatever its steps depend on, from fresh mbarriers on;
W is one more than the buffers of the largest ring. Order and progress that are proved on it hold for every sequence of
programs of any length, because of these:

- Every program takes one turn at least of each ring, and of each named barrier in a loop (proved, or the kernel is
  refused). So the use of a barrier before one in program P was made in program P - W + 1 or later. All obligations of
  `protocol` are about a use and the ones before and after it: they are seen in the window that begins or ends with the
  program of the use.
- Uses are named by turns and compared by how many turns they are apart. A block that begins with the first program of
  the window has a part of the block's events, in the same order, and the waits of its first turns need nothing: what is
  ordered in it is ordered in the whole. A role that arrives at named barriers before its programs is as many arrivals
  ahead of the others at the beginning of every program: the window's stand for the last of the program before.
- Two accesses in programs P and Q are in one window, or Q is after that which begins with P. There the access in P has
  been released, completed or fenced (`Ordering` asks for that), and so before all of Q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from argus.ir.expr import Expr, Op, Param, op
from argus.ir.nodes import BarrierArrive, BarrierSync, For
from argus.ir.visit import walk
from argus.verify.model.isl import Set, involves, with_parameters
from argus.verify.model.program import PROGRAM, Site, differs_by_block, is_launch_constant, turns
from argus.verify.model.relations import Model
from argus.verify.model.translator import NonAffine, counter, identifier

_VALUE = "of program "
"""Begins the name of a parameter that stands for a value of each program of the window."""


class Window(Model):
    """A few consecutive programs of a block, whose loops and branches do not depend on each other's."""

    def __init__(self, even: Model) -> None:
        self._values: dict[Expr, str] = {}
        super().__init__(even.kernel, lean=even.lean)
        self.programs = 1 + max([1, *(b.count for b in even.kernel.barriers), *self.ring_sizes])
        for site in self.sites:
            if turns(site.role) > 1:
                raise NonAffine("roles take turns in programs that take different steps")
            if isinstance(site.stmt, For) and (site.stmt.counter is not None or _comes_to_barriers(site.stmt)):
                self._at_least_one_turn(even, site)

    def _at_least_one_turn(self, even: Model, site: Site) -> None:
        """Adds to the context that a loop which counts turns has some in every program; raises where it may not."""
        loop = site.stmt
        assert isinstance(loop, For)
        start, stop = self.resolve(site, loop.start), self.resolve(site, loop.stop)
        if differs_by_block(start):
            raise NonAffine(f"the first value of '{loop.var}' depends on the program: let it be a constant")
        if not differs_by_block(stop):
            return
        none = (even.when(op("le", e, start)).intersect(even.context.set) for e in _choices(stop))
        if not all(found.is_empty() for found in none):
            why = f"a program may take no turn of the loop over '{loop.var}', and others take some"
            raise NonAffine(f"{why}: let its stop be at least its start + 1 in every program")
        more = self.when(op("lt", self.in_program(start), self.in_program(stop)))
        for number in range(self.programs or 0):
            self.context.narrow(with_parameters(more, self._of(number)))

    def in_program(self, expr: Expr) -> Expr:
        """`expr` with a parameter for each largest part that is the same throughout a program, but not in all."""
        if not differs_by_block(expr):
            return expr
        if is_launch_constant(expr) and expr.dtype.is_int:
            return Param(self._values.setdefault(expr, f"{_VALUE}{len(self._values)}"), expr.dtype)
        return replace(expr, args=tuple(map(self.in_program, expr.args))) if isinstance(expr, Op) else expr

    def instances(self, dims: str, conditions: Sequence[str]) -> Set:
        """The points of a tuple in each program of the window, under conditions on that program's own values."""
        if counter(PROGRAM) not in dims:
            return super().instances(dims, conditions)
        inside = [*conditions, f"{counter(PROGRAM)} < {self.programs}"]
        found = super().instances(dims, inside)
        if not involves(found, map(identifier, self._values.values())):
            return found
        programs = []
        for number in range(self.programs or 0):
            its = super().instances(dims, [f"{counter(PROGRAM)} = {number}"])
            programs.append(with_parameters(found, self._of(number)).intersect(its))
        return reduce(Set.union, programs)

    def _of(self, number: int) -> dict[str, str]:
        """The parameters that stand for the values of program `number` of the window, by those of any program."""
        names = {identifier(name): f"{identifier(name)}_{number}" for name in self._values.values()}
        self.translator.parameters.update({own: Param(own) for own in names.values()})
        return names


def _choices(expr: Expr) -> tuple[Expr, ...]:
    """What an expression is, whatever its conditions are."""
    if isinstance(expr, Op) and expr.op == "where":
        return (*_choices(expr.args[1]), *_choices(expr.args[2]))
    return (expr,)


def _comes_to_barriers(loop: For) -> bool:
    return any(isinstance(stmt, BarrierSync | BarrierArrive) for stmt in walk(loop.body))
