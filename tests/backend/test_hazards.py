"""Left operands of asynchronous products in registers: machine code that overwrites them too early is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus import compile
from argus.backend.build import build
from argus.backend.cuda import toolchain
from argus.backend.cuda.hazards import insist, overwritten
from argus.diagnostic import ToolchainError
from argus.frontend import Options
from argus.source import SourceFile

ROOT = Path(__file__).parent.parent.parent
START = """
.section .text.k,"ax",@progbits
        /*0000*/                   MOV R30, R4 ;
        /*0010*/                   WARPGROUP.ARRIVE ;
        /*0020*/                   HGMMA.64x64x16.F32.BF16 R40, R20, gdesc[UR4].tnspB, R40, gsb0 ;
"""
WAIT = "        /*0100*/                   WARPGROUP.DEPBAR.LE gsb0, 0x{pending} ;\n"
EXIT = "        /*0fff*/                   EXIT ;\n"
PLANTED = [
    ("MOV R20, R3", True),
    ("@P0 MOV R23, R3", True),
    ("LDS.128 R16, [R3]", False),
    ("LDS.128 R17, [R3]", True),
    ("LDSM.16.M88.4 R22, [R3]", True),
    ("IMAD.WIDE.U32 R19, R2, R3, R4", True),
    ("IMAD.U32 R19, R2, R3, R4", False),
    ("SHFL.BFLY PT, R21, R3, 0x1, 0x1f", True),
    ("ISETP.GE.AND P0, PT, R21, R22, PT", False),
    ("STS.128 [R3], R20", False),
    ("FADD R24, R20, R21", False),
    ("F2FP.BF16.F32.PACK_AB R22, R2, R3", True),
]


def after(planted: str, address: str = "0050") -> str:
    predicate, _, rest = planted.partition(" ") if planted.startswith("@") else ("", "", planted)
    return f"        /*{address}*/              {predicate:5}     {rest} ;\n"


@pytest.mark.parametrize(("planted", "wrong"), PLANTED)
def test_a_register_is_overwritten_before_the_wait(planted: str, wrong: bool) -> None:
    early = START + after(planted) + WAIT.format(pending=0) + EXIT
    late = START + WAIT.format(pending=0) + after(planted, "0200") + EXIT
    assert [o.address for o in overwritten(early) or ()] == ([0x50] if wrong else [])
    assert overwritten(late) == ()


def test_a_wait_that_leaves_the_group_open() -> None:
    second = "        /*0060*/                   HGMMA.64x64x16.F32.BF16 R72, gdesc[UR4], R72, gsb0 ;\n"
    text = START + second + WAIT + after("MOV R20, R3", "0200") + EXIT
    assert overwritten(text.format(pending=1)) == ()  # the other group may be open, the first one is done
    assert overwritten(text.format(pending=2)) != ()


def test_the_accumulator_of_another_product() -> None:
    text = START + "        /*0060*/                   HGMMA.64x32x16.F32.BF16 R8, gdesc[UR4], R8, gsb0 ;\n"
    assert overwritten(text + WAIT.format(pending=0) + EXIT) != ()
    assert overwritten(text.replace("R8,", "R72,") + WAIT.format(pending=0) + EXIT) == ()


def test_a_loop_comes_back_to_what_writes() -> None:
    loop = START.replace(
        "        /*0000*/                   MOV R30, R4 ;", ".L_x_1:\n        /*0000*/   MOV R20, R4 ;"
    )
    branch = "        /*0200*/              @!P0 BRA `(.L_x_1) ;\n"
    assert overwritten(loop + WAIT.format(pending=1) + branch + EXIT) != ()
    assert overwritten(loop + WAIT.format(pending=0) + branch + EXIT) == ()


def test_a_build_refuses_such_code(monkeypatch: pytest.MonkeyPatch) -> None:
    early = START + after("MOV R20, R3") + WAIT.format(pending=0) + EXIT
    monkeypatch.setattr(toolchain, "find_disassembler", lambda: "nvdisasm")
    monkeypatch.setattr(toolchain, "disassemble", lambda cubin: early)
    with pytest.raises(ToolchainError, match="MOV R20, R3") as error:
        insist(b"")
    assert error.value.diagnostics[0].code == "register-overwritten"
    monkeypatch.setattr(toolchain, "disassemble", lambda cubin: START + WAIT.format(pending=0) + EXIT)
    insist(b"")


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_attention_as_it_is_assembled_here(causal: bool) -> None:
    """Its weights are left operands in registers, and two groups are under way."""
    if toolchain.find_compiler() is None or toolchain.find_disassembler() is None:
        pytest.skip("needs a CUDA compiler and nvdisasm")
    path = ROOT / "argus" / "kernels" / "attention.py"
    source = SourceFile(str(path), path.read_text(encoding="utf-8"))
    options = Options(target="sm_90a", constexprs={"CAUSAL": causal})
    kernel = compile.lower(compile.elaborate(source, "attention_forward", options), "sm_90a")
    binary = build(kernel, "sm_90a").binary
    assert binary is not None
    sass = toolchain.disassemble(binary)
    products = [line for line in sass.splitlines() if "HGMMA" in line and ", gdesc" in line.split(" R", 2)[-1]]
    assert products
    assert overwritten(sass) == ()
