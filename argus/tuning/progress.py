"""A progress bar for work that takes seconds; it is shown only on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Progress(Protocol):
    """A receiver of progress: it is told of each stage with its number of steps, and of each step."""

    def stage(self, name: str, steps: int) -> None:
        """Receive the begin of a stage of so many steps."""

    def step(self, what: str) -> None:
        """Receive the end of a step."""


@contextmanager
def progress(title: str, steps: int) -> Iterator[Progress]:
    """Show a bar on standard error, which disappears at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("{task.fields[what]}"))  # fmt: skip
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        yield _Bar(bars, title, bars.add_task(title, total=steps, what=""))


class _Bar:
    def __init__(self, bars: Any, title: str, task: Any) -> None:
        self._bars, self._title, self._task = bars, title, task

    def stage(self, name: str, steps: int) -> None:
        self._bars.reset(self._task, total=steps, description=f"{self._title}: {name}", what="")

    def step(self, what: str) -> None:
        self._bars.update(self._task, advance=1, what=what)
