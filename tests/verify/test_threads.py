"""Threads that prove at the same time."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


def verdict(name: str) -> Verdict:
    source = SourceFile(f"{name}.py", (EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
    return compile.prove(source, name, Options()).verdict


def test_threads_prove_one_after_the_other() -> None:
    """The engines keep one context a process, which two threads at once would bring down."""
    names = ("vector_add", "transpose") * 2
    with ThreadPoolExecutor(len(names)) as pool:
        assert set(pool.map(verdict, names)) == {Verdict.PROVED}


def test_a_thread_that_collects_frees_nothing_beside_the_solver() -> None:
    """Terms in cycles may be freed on any thread, also while another is inside of Z3."""
    done = Event()

    def collect() -> None:
        while not done.wait(0.001):
            gc.collect()

    with ThreadPoolExecutor(1) as pool:
        collecting = pool.submit(collect)
        found = verdict("vector_add")
        done.set()
        collecting.result()
    assert found is Verdict.PROVED
