"""The disk cache: content-addressed entries of JSON and raw bytes, each with its own digest.

An entry is found by its key, the SHA-256 of everything that could change the entry. It is trusted only if its digest
and its recorded key are right and the file belongs to this user or to root. Anything else is a miss, and is rebuilt
and overwritten. Reading an entry never runs anything in it. A file is written whole
(`argus.written`), so a concurrent process sees the old entry, the new one, or none.

Layout of a file, integers little-endian::

    8 bytes   magic and version of this layout
    32 bytes  SHA-256 of everything that follows
    4 bytes   length of the header
    header    UTF-8 JSON {"key": ..., "data": ..., "blobs": [[name, length], ...]}
    blobs     one after the other
"""

from __future__ import annotations

import json
import os
import stat
import struct
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from argus.written import PARTIAL, write_whole

_MAGIC = b"ARGUSC01"
_PREFIX = struct.Struct("<8s32sI")
_SUFFIX = ".entry"
_ABANDONED_S = 3600.0

DEFAULT_LIMIT = 2 * 2**30
"""Size in bytes of a cache directory beyond which the least recently used entries are evicted."""


MAX_ENTRY = 256 * 2**20
"""Size in bytes of the largest file that is read as an entry. The entries that Argus writes are a thousand times
smaller."""


class CacheWarning(UserWarning):
    """The cache directory cannot be written; compiled kernels are not kept."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The contents stored under one key. `data` is a JSON value; `blobs` are raw bytes by name."""

    data: Any
    blobs: Mapping[str, bytes] = field(default_factory=dict)


class DiskCache:
    """Entries in `directory`, at most `limit` bytes of them. If `directory` is None, nothing is kept.

    Concurrent processes may share a directory. A directory that cannot be read or written raises no error: every
    lookup misses, and the first failed write gives a `CacheWarning`.
    """

    def __init__(self, directory: Path | None, limit: int = DEFAULT_LIMIT) -> None:
        self.directory = directory
        self.limit = limit
        self._warned = False

    def get(self, key: str) -> Entry | None:
        """Return the entry under `key`, or None if there is no entry that can be trusted."""
        if self.directory is None:
            return None
        path = self._path(self.directory, key)
        try:
            content = _read(path)
        except OSError:
            return None
        if content is None:
            return None
        entry = _decode(key, content)
        if entry is not None:
            with suppress(OSError):  # a read-only cache still works, but does not record when entries were used
                os.utime(path)
        return entry

    def put(self, key: str, entry: Entry) -> None:
        """Store `entry` under `key`, replacing any older entry, and evict old entries beyond the limit."""
        if self.directory is None:
            return
        content = _encode(key, entry)
        path = self._path(self.directory, key)
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(path, content)
        except OSError as error:
            self._warn(error)
            return
        _evict(self.directory, self.limit, keep=path)

    @staticmethod
    def _path(directory: Path, key: str) -> Path:
        return directory / (key + _SUFFIX)

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            reason = error.strerror or str(error)
            warnings.warn(
                f"the kernel cache {self.directory} cannot be written ({reason}): compiled kernels are not "
                "kept. Set ARGUS_CACHE_DIR to a directory that can be written.",
                CacheWarning,
                stacklevel=2,
            )


def cache_key(parts: Any) -> str:
    """Return the hexadecimal SHA-256 of `parts`, a JSON value; the order of a dictionary's keys does not matter."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return sha256(text.encode()).hexdigest()


def _read(path: Path) -> bytes | None:
    """Return a regular file's content if the file has a trusted owner and is not too large. Opening a pipe does not
    block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        ours = status.st_uid in (os.getuid(), 0)
        if not ours or not stat.S_ISREG(status.st_mode) or status.st_size > MAX_ENTRY:
            return None
        return file.read(MAX_ENTRY)


def _encode(key: str, entry: Entry) -> bytes:
    blobs = [[name, len(blob)] for name, blob in entry.blobs.items()]
    header = json.dumps({"key": key, "data": entry.data, "blobs": blobs}, allow_nan=False).encode()
    payload = b"".join((struct.pack("<I", len(header)), header, *entry.blobs.values()))
    return _MAGIC + sha256(payload).digest() + payload


def _decode(key: str, content: bytes) -> Entry | None:
    if len(content) < _PREFIX.size:
        return None
    magic, digest, length = _PREFIX.unpack_from(content)
    payload = memoryview(content)[_PREFIX.size - 4 :]
    if magic != _MAGIC or sha256(payload).digest() != digest:
        return None
    position = _PREFIX.size + length
    try:
        header = json.loads(content[_PREFIX.size : position])
        if header["key"] != key:  # The file is another key's entry under a wrong name.
            return None
        blobs: dict[str, bytes] = {}
        for name, size in header["blobs"]:
            blobs[name] = content[position : position + size]
            position += size
        return Entry(header["data"], blobs)
    except (ValueError, LookupError, TypeError):  # The digest is right, but Argus did not write the content.
        return None


def _evict(directory: Path, limit: int, keep: Path) -> None:
    """Evict the least recently used entries until `limit` bytes are left; delete abandoned temporary files.

    `keep` is never evicted. Another process may delete the same files at the same time.
    """
    entries: list[tuple[float, int, str]] = []
    now = time.time()
    with suppress(OSError), os.scandir(directory) as files:
        for file in files:
            with suppress(OSError):
                status = file.stat(follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    continue
                if file.name.startswith(PARTIAL):
                    if now - status.st_mtime > _ABANDONED_S:
                        os.unlink(file.path)
                elif file.name.endswith(_SUFFIX):
                    entries.append((status.st_mtime, status.st_size, file.path))
    total = sum(size for _, size, _ in entries)
    for _, size, name in sorted(entries):
        if total <= limit:
            return
        if name != str(keep):
            with suppress(OSError):
                os.unlink(name)
            total -= size
