"""Persistent kernels whose programs take different steps: order and progress on a few consecutive programs.

`Model` assumes that all programs of a block of a persistent kernel take the same steps. If a loop's bound or a branch
depends on the program, the model is still right within one program, but not across several. `Window` is the model of W
consecutive programs that start with fresh mbarriers. Each program has its own values of the expressions on which its
steps depend. W is one more than the number of buffers of the largest ring. Order and progress that are proved on the
window hold for every sequence of programs of any length, for these reasons:

- Every program takes at least one turn of each ring, and of each named barrier in a loop (this is proved, or the kernel
  is refused). So if a barrier is used in program P, its previous use is in program P - W + 1 or later. All obligations
  of `protocol` are about a use and the uses before and after it. They are seen in the window that begins or ends with
  the program of the use.
- Uses are named by turns and compared by the number of turns between them. A block that begins with the first program
  of the window has a subset of the real block's events, in the same order, and the waits of its first turns need
  nothing. So what is ordered in the window is ordered in the whole. A role that arrives at named barriers before its
  programs is equally many arrivals ahead of the others at the beginning of every program. In the window, the arrivals
  before its programs represent the last arrivals of the previous program.
- Two accesses in programs P and Q are in one window, or Q comes after the window that begins with P. In that window the
  access in P has been released, completed or fenced (`Ordering` demands that), and so before all of Q.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from argus.ir.expr import Expr, Op, Param, op
from argus.ir.nodes import BarrierArrive, BarrierSync, For
from argus.ir.visit import walk
from argus.verify.model.formulas import equal
from argus.verify.model.isl import Set, involves, with_parameters
from argus.verify.model.program import PROGRAM, Site, is_launch_constant, turns
from argus.verify.model.relations import Model
from argus.verify.model.resolving import differs_by_block
from argus.verify.model.translator import NonAffine, counter, identifier

_VALUE = "of program "
"""The prefix of the name of a parameter that stands for a value of each program of the window."""


class Window(Model):
    """A few consecutive programs of a block, each with its own values for loop bounds and branches."""

    def __init__(self, even: Model) -> None:
        self._values: dict[Expr, str] = {}
        super().__init__(even.kernel, lean=even.lean, work=even.work)
        self.programs = 1 + max([1, *(b.count for b in even.kernel.barriers), *self.rings.sizes])
        for site in self.sites:
            if turns(site.role) > 1:
                raise NonAffine("roles take turns in programs that take different steps")
            if isinstance(site.stmt, For) and (site.stmt.counter is not None or _comes_to_barriers(site.stmt)):
                self._at_least_one_turn(even, site)

    def _at_least_one_turn(self, even: Model, site: Site) -> None:
        """Add to the context that a loop that counts turns runs in every program; raise `NonAffine` if it may not."""
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
        """Replace the largest parts of `expr` that are fixed within a program, but differ between programs, by
        parameters."""
        if not differs_by_block(expr):
            return expr
        if is_launch_constant(expr) and expr.dtype.is_int:
            return Param(self._values.setdefault(expr, f"{_VALUE}{len(self._values)}"), expr.dtype)
        return replace(expr, args=tuple(map(self.in_program, expr.args))) if isinstance(expr, Op) else expr

    def instances(self, dims: tuple[str, ...], conditions: tuple[str, ...]) -> Set:
        """Return the points of a tuple in each program of the window, under conditions on that program's own values."""
        if counter(PROGRAM) not in dims:
            return super().instances(dims, conditions)
        found = super().instances(dims, (*conditions, f"{counter(PROGRAM)} < {self.programs}"))
        if not involves(found, map(identifier, self._values.values())):
            return found
        programs = []
        for number in range(self.programs or 0):
            its = super().instances(dims, (equal(counter(PROGRAM), str(number)),))
            programs.append(with_parameters(found, self._of(number)).intersect(its))
        return reduce(Set.union, programs)

    def _of(self, number: int) -> dict[str, str]:
        """Map the parameters for values of any program to those for program `number` of the window."""
        names = {identifier(name): f"{identifier(name)}_{number}" for name in self._values.values()}
        self.translator.parameters.update({own: Param(own) for own in names.values()})
        return names


def _choices(expr: Expr) -> tuple[Expr, ...]:
    """Return the alternatives of the `where` choices that an expression consists of."""
    if isinstance(expr, Op) and expr.op == "where":
        return (*_choices(expr.args[1]), *_choices(expr.args[2]))
    return (expr,)


def _comes_to_barriers(loop: For) -> bool:
    return any(isinstance(stmt, BarrierSync | BarrierArrive) for stmt in walk(loop.body))
