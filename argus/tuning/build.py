"""Build several kernels in parallel, each in its own process, which stores its build in the disk cache.

Such a process searches modules where its parent does, reads one pickled `BuildRequest` from it, and prints the reason
if the build fails. It does not run the parent's main module again, as processes of `multiprocessing` may.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from argus.backend.cache import DiskCache
from argus.diagnostic import ArgusError
from argus.frontend.options import Options
from argus.runtime.executable import CachedSource, KernelText


@dataclass(frozen=True)
class BuildRequest:
    """A kernel to be proved and built into the cache at `directory`."""

    kernel: KernelText
    options: Options
    directory: Path | None


Build = Callable[[BuildRequest], str]
"""Builds a kernel and returns the reason if that fails, else ""."""


def build_all(orders: Sequence[BuildRequest], build: Build, workers: int | None = None) -> Iterator[tuple[int, str]]:
    """Yield the position of each request, and the reason why it failed or "", in the order in which builds end.

    `workers` builds run at a time, by default one for each core that this process may use.
    """
    with ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))) as pool:
        places = {pool.submit(build, order): place for place, order in enumerate(orders)}
        for done in as_completed(places):
            yield places[done], done.result()


def in_a_process(order: BuildRequest) -> str:
    """Build in a separate process. Return the reason if the build fails, else ""."""
    path = [os.path.abspath(entry) for entry in sys.path]
    text = f"import sys; sys.path[:] = {path!r}; from argus.tuning.build import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", text], input=pickle.dumps(order), capture_output=True, check=False)
    said = done.stdout.decode(errors="replace").strip()
    if done.returncode and not said:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the building process ended with status {done.returncode}"
    return said


def main() -> int:
    """Build the request on standard input; return status 1 if the build fails."""
    order: BuildRequest = pickle.load(sys.stdin.buffer)
    try:
        CachedSource(order.kernel, DiskCache(order.directory)).executable(order.options)
    except ArgusError as error:
        print("; ".join(f"{d.code}: {d.message}" for d in error.diagnostics))
        return 1
    return 0
