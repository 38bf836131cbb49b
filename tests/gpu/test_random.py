"""The library beside float64 on random calls: `--seed` repeats them, `--calls` says how many."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]


def test_random_calls(pytestconfig: pytest.Config, seed: int) -> None:
    """Spread over processes: kernels are proved and compiled by one each."""
    calls, count = pytestconfig.getoption("calls"), os.cpu_count() or 1
    command = [sys.executable, "-m", "tests.gpu.library", str(seed)]
    started = [
        subprocess.Popen(
            [*command, str(first), str(count), str(calls)],
            cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for first in range(count)
    ]  # fmt: skip
    texts = [process.communicate()[0] for process in started]
    wrong = "\n".join(text.removesuffix("done\n").strip() for text in texts if text != "done\n")
    assert not wrong, f"\n{wrong}\nagain: {' '.join(command)} <call> 1 <call + 1>"
