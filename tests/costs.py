"""What tests cost: CPU seconds of each test, with those of the processes that it starts, and of each folder.

`pytest --costs FILE` prints the seconds of each folder beside those that it may take, and writes those of each test to
FILE, the longest first. What a folder may take is guidance for authors: no test asserts it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

NAME = "cpu seconds"

MAY_TAKE = {
    "agents": 40, "backend": 60, "benchmarks": 8, "cli": 10, "docs": 40, "editor": 4, "frontend": 20, "graph": 55,
    "hardware": 2, "ir": 8, "kernels": 165, "knowledge": 8, "layers": 5, "layout": 12, "machine": 12, "mutate": 10,
    "packages": 4, "passes": 45, "programs": 10, "reject": 10, "runtime": 12, "simulate": 25, "tests": 28, "torch": 28,
    "tuning": 4, "verify": 130,
}  # fmt: skip
"""CPU seconds of a folder's tests in `make test` on two cores of 2024, start-up of the workers not counted."""


def used() -> float:
    """Return the CPU seconds that this process and those that it waited for have used."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


class Costs:
    """Measures tests where they run, and adds up where they are reported."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.tests: Counter[str] = Counter()
        self._began = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._began = used()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        report.user_properties.append((NAME, used() - self._began))
        self._began = used()
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid] += sum(float(str(value)) for name, value in report.user_properties if name == NAME)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a line for each folder; write one for each test."""
        folders: Counter[str] = Counter()
        for name, seconds in self.tests.items():
            parts = name.partition("::")[0].split("/")
            folders[parts[1] if len(parts) > 2 else "tests"] += seconds
        terminalreporter.section("CPU seconds")
        for folder, seconds in sorted(folders.items()):
            may = MAY_TAKE.get(folder)
            terminalreporter.line(f"{folder:12}{seconds:8.1f}" + (f" of {may}" if may is not None else ""))
        terminalreporter.line(f"{'all':12}{sum(folders.values()):8.1f} of {sum(MAY_TAKE.values())}")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text("".join(f"{s:.3f} {name}\n" for name, s in self.tests.most_common()), encoding="utf-8")
