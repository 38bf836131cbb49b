"""The beginning of a kernel with mbarriers."""

from __future__ import annotations

from collections.abc import Iterable

from argus.ir.nodes import Barrier, Mbarrier, MbarrierFence, MbarrierInit, Stmt
from argus.source import NO_SPAN, Span


def initialisation(barriers: Iterable[Mbarrier], span: Span = NO_SPAN, cluster: int = 1) -> tuple[Stmt, ...]:
    """Initialises mbarriers so that all threads of the block, or of the blocks of its cluster, and the copy engine find
    them ready after it."""
    meet = Barrier("block" if cluster == 1 else "cluster", span=span)
    return (*(MbarrierInit(b.name, span=span) for b in barriers), MbarrierFence(span=span), meet)
