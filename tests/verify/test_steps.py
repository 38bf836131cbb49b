"""The work and the memory that proofs of the examples take: what grows is found where it begins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify import Report, verify
from tests.conftest import example_runs

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
GOLDEN = Path(__file__).parent / "golden" / "steps.json"
GROWTH = 1.5
"""How many times the steps of the table a proof may take. Steps are the same on every machine."""
ADDRESSES, RESIDENT = 4 << 30, 1 << 30
"""Bytes that a process with one proof may reserve, and that it may hold. The largest holds a quarter of these."""


def report(name: str) -> Report:
    """Return the report of the example's kernel on the target it is for."""
    target = "sm_90a" if example_runs(name, "sm_90a") else "gfx942"
    source = SourceFile(f"{name}.py", (EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
    (kernel,) = compile.kernels(source)
    return verify(compile.lower(compile.elaborate(source, kernel, Options(target=target)), target))


def test_every_example_is_in_the_table() -> None:
    assert sorted(json.loads(GOLDEN.read_text(encoding="utf-8"))) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_steps(name: str, request: pytest.FixtureRequest) -> None:
    found, table = report(name), json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert found.verdict is Verdict.PROVED
    if request.config.getoption("--update-golden"):
        table[name] = found.steps
        GOLDEN.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert 0 < found.steps <= GROWTH * table[name]


@pytest.mark.parametrize("name", NAMES)
def test_memory(name: str) -> None:
    """A process that reserved more than `ADDRESSES` would end with a MemoryError, not with the machine. The kernel's
    own count is read: `ru_maxrss` also holds what the parent had when it made the process."""
    program = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, ({ADDRESSES}, {ADDRESSES}))
from tests.verify.test_steps import report
assert report({name!r}).verdict.value == "proved"
(held,) = (line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(held.split()[1])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < RESIDENT
