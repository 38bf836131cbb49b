"""What is asked of one form of a kernel by data-flow, order and progress; engines that several questions need once."""

from __future__ import annotations

from functools import cached_property

from argus.diagnostic import Verdict
from argus.ir.access import Mode
from argus.ir.nodes import Spec
from argus.verify.checks import initialisation, races
from argus.verify.findings import Finding
from argus.verify.model.relations import Model
from argus.verify.order import beginning, inflight, peers
from argus.verify.order.order import Ordering
from argus.verify.order.protocol import Protocol
from argus.verify.reductions.window import Window
from argus.verify.values import assertions, spec
from argus.verify.values.tags import TagAnalysis


class Questions:
    """Each method gives the findings of one question."""

    def __init__(self, model: Model, *, last: bool = True) -> None:
        """`last`: no other form of the kernel is asked, so that what follows from one mistake is left out.
        Each question may raise `NonAffine`."""
        self.model, self.last, self._silent = model, last, False
        self.analysis = TagAnalysis(self.model)

    @cached_property
    def several(self) -> Model:
        """Order and progress are proved on a window where programs of a persistent block take other steps."""
        return Window(self.model) if self.model.uneven else self.model

    @cached_property
    def order(self) -> Ordering:
        return Ordering(self.several, lambda: self.steps)

    @cached_property
    def within(self) -> Ordering:
        """In tensors two programs of a block meet as two blocks do; what a block keeps goes from one to the next."""
        return Ordering(self.model, lambda: Protocol(self.model)) if self.model.uneven else self.order

    @cached_property
    def steps(self) -> Protocol:
        return Protocol(self.several)

    @property
    def added_up(self) -> bool:
        """Whether blocks add up atomically what is specified: where each begins and ends matters."""
        specified = {s.stmt.output for s in self.model.sites if isinstance(s.stmt, Spec)}
        accesses = (a for s in self.model.sites for a in s.accesses)
        return any(a.mode is Mode.ACCUMULATE and a.obj in specified for a in accesses)

    @property
    def broken(self) -> bool:
        """Without its protocol, every order between roles is missing too: the protocol is what to mend."""
        if self.last and any(f.verdict is Verdict.REFUTED for f in self.steps.findings):
            self._silent = True
        return self._silent

    def kept_silent(self) -> list[Finding]:
        """What is wrong with the protocol, if other questions have said nothing for that reason."""
        return self.steps.findings if self._silent else []

    def initialisation(self) -> list[Finding]:
        return initialisation.check(self.model, self.analysis)

    def progress(self) -> list[Finding]:
        return self.steps.check()

    def races(self) -> list[Finding]:
        return [] if self.broken else races.check(self.several, self.order, self.model.kernel.shared)

    def races_in_tensors(self) -> list[Finding]:
        found = races.check(self.model, self.within, self.model.kernel.tensors)
        return [] if found and self.broken else found  # mostly nothing is found, and no order is asked for

    def registers(self) -> list[Finding]:
        """Of asynchronous products."""
        return inflight.check(self.several, self.order)

    def peers(self) -> list[Finding]:
        """Blocks of a cluster that reach each other's shared memory."""
        return [] if self.broken else peers.check(self.several, self.order)

    def beginning(self) -> list[Finding]:
        return [] if self.broken else beginning.initialised(self.several, self.order)

    def end(self) -> list[Finding]:
        return [] if self.broken else beginning.finished(self.several, self.order)

    def tags(self) -> list[Finding]:
        return assertions.check(self.analysis)

    def values(self) -> list[Finding]:
        return spec.check(self.analysis)
