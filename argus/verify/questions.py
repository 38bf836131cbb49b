"""The questions about data-flow, order and progress of one form of a kernel, and the engines that they share.

A question returns all of its findings. If the protocol between roles is refuted, every order between roles is missing
too. Findings that only follow from that are left out, which only `without_consequences` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from argus.diagnostic import Verdict
from argus.ir.access import Mode
from argus.ir.nodes import Spec
from argus.verify.checks import initialisation, invariance, races
from argus.verify.findings import Finding
from argus.verify.model.relations import Model
from argus.verify.model.translator import NonAffine
from argus.verify.order import beginning, inflight, peers, progress
from argus.verify.order.order import Ordering
from argus.verify.order.protocol import Protocol
from argus.verify.reductions.window import Window
from argus.verify.values import assertions, spec
from argus.verify.values.compare import Comparison
from argus.verify.values.data_flow import DataFlow
from argus.verify.values.stated import Stated
from argus.verify.values.tags import TagAnalysis
from argus.verify.values.term_builder import TermBuilder


class Questions:
    """The questions about one model. Each method returns the findings of one question, and may raise `NonAffine`."""

    def __init__(self, model: Model, exact: bool = False) -> None:
        """Prepare the questions. `exact`: never use a window of programs in place of all programs."""
        self.model, self.exact = model, exact
        self.data = DataFlow(self.model)
        self.tag_values = TagAnalysis(self.data)

    @cached_property
    def _compared(self) -> tuple[Comparison, Stated]:
        """What is known of terms. A question that is asked again goes on where it was stopped."""
        terms = TermBuilder(self.data)
        return Comparison(terms), Stated(terms)

    @cached_property
    def several(self) -> Model:
        """The model for order and progress: a window if the programs of a persistent block take different steps."""
        if not self.model.uneven:
            return self.model
        if self.exact:
            raise NonAffine("the programs of a block differ in their steps: only a window of them can be looked at")
        return Window(self.model)

    @cached_property
    def order(self) -> Ordering:
        return Ordering(self.several, lambda: self.steps)

    @cached_property
    def within(self) -> Ordering:
        """The order for accesses to tensors, where two programs of a block count as two blocks.

        So no window is needed: only the block's own memory carries data from one program to the next.
        """
        return Ordering(self.model, lambda: Protocol(self.model)) if self.model.uneven else self.order

    @cached_property
    def steps(self) -> Protocol:
        return Protocol(self.several)

    @property
    def added_up(self) -> bool:
        """Return True if blocks add atomically to a specified output, so the bounds of each block's share matter."""
        specified = {s.stmt.output for s in self.model.sites if isinstance(s.stmt, Spec)}
        accesses = (a for s in self.model.sites for a in s.accesses)
        return any(a.mode is Mode.ACCUMULATE and a.obj in specified for a in accesses)

    @property
    def broken(self) -> bool:
        """Return True if the protocol between roles is refuted."""
        return any(f.verdict is Verdict.REFUTED for f in self.steps.findings)

    def initialisation(self) -> list[Finding]:
        return initialisation.check(self.model, self.data)

    def progress(self) -> list[Finding]:
        return progress.check(self.steps)

    def races(self) -> list[Finding]:
        return races.check(self.several, self.order, self.model.kernel.shared)

    def races_in_tensors(self) -> list[Finding]:
        return races.check(self.model, self.within, self.model.kernel.tensors)

    def registers(self) -> list[Finding]:
        """Check the registers of asynchronous products."""
        return inflight.check(self.several, self.order)

    def peers(self) -> list[Finding]:
        """Check accesses of blocks to each other's shared memory in a cluster."""
        return peers.check(self.several, self.order)

    def beginning(self) -> list[Finding]:
        return beginning.initialised(self.several, self.order)

    def end(self) -> list[Finding]:
        return beginning.finished(self.several, self.order)

    def tags(self) -> list[Finding]:
        return assertions.check(self.tag_values)

    def values(self) -> list[Finding]:
        return spec.check(*self._compared)

    def invariance(self) -> list[Finding]:
        return invariance.check(self.data)

class Follows(Enum):
    """The times at which to ask about the protocol, if findings of a question may follow from its refutation."""

    NEVER = "never"
    FIRST = "first"  # ask about the protocol first, because the question takes longer
    LAST = "last"  # ask about the protocol only once something is found, which is rare


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a property."""

    property: str
    ask: Callable[[Questions], list[Finding]]
    follows: Follows = Follows.NEVER


@dataclass(frozen=True, slots=True)
class Answer:
    """The findings of a question. `left_out`: they are left out, since they may follow from a refuted protocol."""

    findings: list[Finding]
    left_out: bool = False


FLOW = (
    Question("initialisation", Questions.initialisation),
    Question("progress", Questions.progress),
    Question("races", Questions.races, Follows.FIRST),
    Question("races", Questions.races_in_tensors, Follows.LAST),
    Question("races", Questions.registers),
    Question("races", Questions.peers, Follows.FIRST),
    Question("initialisation", Questions.beginning, Follows.FIRST),
    Question("progress", Questions.end, Follows.FIRST),
    Question("tags", Questions.tags),
    Question("tags", Questions.values),
    Question("invariance", Questions.invariance),
)
"""The questions about data-flow, order and progress, in the order in which they are asked."""


def without_consequences(question: Question, of: Questions) -> Answer:
    """Answer a question, without findings that may follow from a refuted protocol, which has to be fixed first."""
    if question.follows is Follows.FIRST and of.broken:
        return Answer([], True)
    found = question.ask(of)
    if question.follows is Follows.LAST and found and of.broken:
        return Answer([], True)
    return Answer(found)
