"""The beginning of a kernel with mbarriers."""

from __future__ import annotations

from collections.abc import Iterable

from argus.ir.nodes import Barrier, Mbarrier, MbarrierFence, MbarrierInit, Stmt
from argus.source import NO_SPAN, Span


def initialisation(barriers: Iterable[Mbarrier], span: Span = NO_SPAN) -> tuple[Stmt, ...]:
    """Initialises mbarriers so that all threads of the block, and the copy engine, find them ready after it."""
    return (*(MbarrierInit(b.name, span) for b in barriers), MbarrierFence(span), Barrier(span))
