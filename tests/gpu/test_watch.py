"""Prints and assertions on a GPU, in a process of their own: a failed assertion leaves none that could go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

PROGRAM = """
import sys
import torch
import argus
import argus.language as al
from argus.diagnostic import ArgusError

@argus.kernel
def scale(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"]):
    N, = x.shape
    i = al.grid(al.cdiv(N, 4)) * 4 + al.arange(4)
    v = al.load(x[i], boundary_check=(0,))
    al.device_print("100% v", v)
    al.device_assert(v < 100.0, "small")
    al.store(out[i], v * 2.0, boundary_check=(0,))

x, out = torch.arange(8.0, device="cuda"), torch.empty(8, device="cuda")
scale(x, out)
torch.cuda.synchronize()
assert out.tolist() == [2.0 * i for i in range(8)]
x[5] = 200.0
scale(x, out)
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    print(error, file=sys.stderr)
try:
    scale(x, out)
except ArgusError as error:
    print(error.diagnostics[0].code, file=sys.stderr)
"""


def test_lines_and_the_error_that_ends_a_process(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120, check=False)
    lines = done.stdout.splitlines()
    assert sorted(lines[:8]) == [f"scale, program ({i // 4}) element ({i % 4}): 100% v = {i}" for i in range(8)]
    assert "program.py:14: al.device_assert failed: small [scale, program (1) element (1)]" in lines
    assert "device-side assert triggered" in done.stderr
    assert done.stderr.splitlines()[-1] == "device-assert"
