"""Products with each named epilogue behind each bias: all are proved."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from argus import compile
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.kernels.operands import EPILOGUES
from argus.source import SourceFile

gemm = Path(import_module("argus.kernels.gemm").__file__ or "")
TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "STAGES": 2, "PRODUCERS": 0}


@pytest.mark.parametrize("bias", ["1", "M", "N"])
@pytest.mark.parametrize("epilogue", list(EPILOGUES))
def test_every_epilogue_is_proved_with_every_bias(epilogue: str, bias: str) -> None:
    constants = {**TILE, "EPILOGUE": EPILOGUES[epilogue], "BIAS": bias}
    options = Options(target="sm_80", constexprs=constants)
    report = compile.prove(SourceFile("gemm.py", gemm.read_text(encoding="utf-8")), "gemm", options)
    assert report.verdict is Verdict.PROVED


def test_a_bias_behind_the_epilogue_is_not_proved() -> None:
    text = gemm.read_text(encoding="utf-8")
    before = '    elif BIAS == "N":\n        acc = acc + along(bias, BIAS, n0, BLOCK_N)[None, :]\n'
    applied = "    if EPILOGUE is not None:\n        acc = EPILOGUE(acc)\n"
    assert before + applied in text
    wrong = text.replace(before + applied, f"{applied}{before.replace('elif', 'if')}")
    options = Options(target="sm_80", constexprs={**TILE, "EPILOGUE": EPILOGUES["silu"], "BIAS": "N"})
    assert compile.prove(SourceFile("gemm.py", wrong), "gemm", options).verdict is not Verdict.PROVED
