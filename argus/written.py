"""Write files whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

PARTIAL = ".partial-"
"""Prefix of the names of unfinished files. A killed process leaves its unfinished file behind."""


def write_whole(path: Path, content: bytes, *, mode: int = 0o600, durable: bool = False) -> None:
    """Write `content` to `path`. A concurrent reader sees the old file, the new one, or none.

    The content is written under a temporary name in the same folder, and the file is renamed into place. `mode` holds
    its permissions. With `durable`, the content is on the disk before the rename, so that a loss of power leaves the
    old file or the new one. Raises `OSError`, and then removes the unfinished file.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=PARTIAL, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
