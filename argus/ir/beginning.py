"""The statements with which a kernel with mbarriers begins."""

from __future__ import annotations

from collections.abc import Iterable

from argus.ir.nodes import Barrier, Mbarrier, MbarrierFence, MbarrierInit, Stmt
from argus.source import NO_SPAN, Span


def initialisation(barriers: Iterable[Mbarrier], span: Span = NO_SPAN, cluster: int = 1) -> tuple[Stmt, ...]:
    """Initialise mbarriers such that all threads of the block, or of all blocks of its cluster, and the copy engine
    find them ready afterwards."""
    meet = Barrier("block" if cluster == 1 else "cluster", span=span)
    return (*(MbarrierInit(b.name, span=span) for b in barriers), MbarrierFence(span=span), meet)
