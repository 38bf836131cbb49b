"""A device for oneself while something is timed or compared there. Other runs of this user wait for their turn."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager

from argus.environment import cache_directory


@contextmanager
def alone(device: str) -> Iterator[None]:
    """Wait until no other run times or compares on a device ("cuda:0", for example), and keep it for the block.

    A process that dies gives the device back. Where no file can be locked, nobody waits: times are then disturbed, but
    nothing is lost.
    """
    path = cache_directory() / f"timing-{re.sub(r'[^A-Za-z0-9]+', '-', device)}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = path.open("a")
    except OSError:
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
