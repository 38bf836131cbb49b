"""Garbage collection during work that makes many objects and hardly a cycle of them, such as a proof."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_THRESHOLDS = (50_000, 20, 50)


class _Seldom:
    """Counts the blocks that are running, because blocks of several threads may overlap."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._blocks = 0
        self._before: tuple[int, int, int] | None = None

    def begin(self) -> None:
        """Raise the thresholds, unless they are higher already or collection is off."""
        with self._lock:
            self._blocks += 1
            now = gc.get_threshold()
            if self._blocks == 1 and 0 < now[0] < _THRESHOLDS[0]:
                self._before = now
                gc.set_threshold(*_THRESHOLDS)

    def end(self) -> None:
        """Restore the thresholds at the end of the last block, unless somebody has changed them."""
        with self._lock:
            self._blocks -= 1
            if not self._blocks and self._before is not None:
                if gc.get_threshold() == _THRESHOLDS:
                    gc.set_threshold(*self._before)
                self._before = None


_ONE = _Seldom()


@contextmanager
def seldom() -> Iterator[None]:
    """Collect garbage less often inside the `with` block.

    In a process that has imported PyTorch, Python's collections take an eighth to a fifth of the time of a short proof.
    """
    _ONE.begin()
    try:
        yield
    finally:
        _ONE.end()
