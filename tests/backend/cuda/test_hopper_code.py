"""The machine code of products by warpgroups: registers, and an inner loop of matrix instructions and little else."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from argus import kernels
from argus.backend.cuda import toolchain
from argus.backend.emit import emit
from argus.frontend import Options, check, parse
from argus.ir.types import float8_e4m3fn
from argus.kernels.attention_tiles import AttentionShape, hopper_tiles
from argus.passes import lower
from argus.source import SourceFile
from tests.backend import hopper_operands
from tests.backend.hopper_kernels import gemm
from tests.conftest import require

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Case:
    block: tuple[int, int]
    n: int
    warps: tuple[int, int]
    products: int


CASES = (Case((128, 256), 256, (8, 1), 4), Case((256, 128), 128, (8, 1), 8), Case((64, 256), 128, (4, 2), 4))


def products_until_wait(sass: str) -> list[Counter[str]]:
    """What stands from each WARPGROUP.ARRIVE to the next wait for products."""
    names = re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", sass, re.MULTILINE)
    found: list[Counter[str]] = []
    for i, name in enumerate(names):
        if name == "WARPGROUP.ARRIVE":
            end = next(j for j in range(i, len(names)) if names[j].startswith("WARPGROUP.DEPBAR"))
            found.append(Counter(names[i:end]))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.block[0]}x{c.block[1]}-{c.warps[0]}x{c.warps[1]}")
def test_machine_code(case: Case) -> None:
    require(toolchain.find_compiler(), "NVRTC or nvcc")
    require(toolchain.find_disassembler(), "nvdisasm")
    cubin, resources = toolchain.compile(emit(gemm(case.block, 3, case.n, case.warps)), "sm_90a")
    assert resources.spill_bytes == 0
    assert resources.warnings == ()
    assert resources.registers == 168  # what roles then share out
    sass = toolchain.disassemble(cubin)
    for name in ("UTMALDG.2D", "SYNCS.PHASECHK.TRANS64.TRYWAIT", "USETMAXREG.DEALLOC", "USETMAXREG.TRY_ALLOC"):
        assert name in sass
    groups = products_until_wait(sass)
    assert groups
    for group in groups:
        assert group[f"HGMMA.64x{case.n}x16.F32.BF16"] == case.products
        # Accumulators stay where they are, and nothing is waited for between products.
        assert not {"MOV", "FADD", "WARPGROUP.DEPBAR.LE", "R2UR"} & set(group)


OPERANDS = {"k by n": "gdesc[", "registers by n": "R", "groups side by side": "gdesc[", "repeated rows": "R"}
"""Where the first operand of the machine's products is."""


@pytest.mark.parametrize("name", OPERANDS)
def test_operands(name: str) -> None:
    """The first product of an accumulator does not add, and no register moves between products."""
    require(toolchain.find_compiler(), "NVRTC or nvcc")
    require(toolchain.find_disassembler(), "nvdisasm")
    case = hopper_operands.CASES[name]
    cubin, resources = toolchain.compile(emit(hopper_operands.kernel(case)), "sm_90a")
    assert (resources.spill_bytes, resources.warnings) == (0, ())
    sass = toolchain.disassemble(cubin)
    products = re.findall(rf"HGMMA.64x{case.n}x16.F32.BF16 R\d+, ([^;]*);", sass)
    repeats = case.block[0] // (16 * case.warps[0]) * (case.block[1] // (case.n * case.warps[1]))
    assert len(products) == case.depth // 16 * repeats
    assert all(text.startswith(OPERANDS[name]) and "tnspB" in text for text in products)
    assert sum("!UPT" in text for text in products) == repeats
    for group in products_until_wait(sass):
        assert not {"MOV", "FADD", "WARPGROUP.DEPBAR.LE", "R2UR"} & set(group)


@pytest.mark.parametrize("stages", [3, 4])
def test_products_of_the_persistent_example_do_not_wait_for_one_another(stages: int) -> None:
    """ptxas says so where it makes them; few registers are left beside the accumulator's."""
    require(toolchain.find_compiler(), "NVRTC or nvcc")
    path = Path(__file__).parents[3] / "examples" / "gemm_hopper.py"
    options = Options(target="sm_90a", constexprs={"STAGES": stages})
    kernel = lower(check(parse(SourceFile(path.name, path.read_text())), path.stem, options), "sm_90a")
    assert kernel.persistent
    _, resources = toolchain.compile(emit(kernel), "sm_90a")
    assert (resources.registers, resources.spill_bytes, resources.warnings) == (168, 0, ())


@pytest.mark.parametrize(("rows", "columns", "cluster"), [(64, 256, 1), (128, 128, 2), (128, 192, 1)])
def test_products_of_groups_that_take_turns_do_not_wait_for_one_another(rows: int, columns: int, cluster: int) -> None:
    require(toolchain.find_compiler(), "NVRTC or nvcc")
    path = Path(__file__).parents[3] / "examples" / "gemm_pingpong.py"
    options = Options(target="sm_90a", constexprs={"BLOCK_M": rows, "BLOCK_N": columns, "CLUSTER": cluster})
    kernel = lower(check(parse(SourceFile(path.name, path.read_text())), path.stem, options), "sm_90a")
    _, resources = toolchain.compile(emit(kernel), "sm_90a")
    assert (resources.registers, resources.spill_bytes, resources.warnings) == (168, 0, ())


TILES: dict[str, dict[str, object]] = {
    "few columns": {"C": "N M", "BLOCK_M": 64, "BLOCK_N": 8, "BLOCK_K": 256, "STAGES": 6},
    "by columns": {"A": "K M", "B": "K N", "BLOCK_M": 128, "BLOCK_N": 192, "BLOCK_K": 64, "STAGES": 4},
    "float8": {"IN": float8_e4m3fn, "MULTIPLY": float8_e4m3fn, "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 128},
}
"""Of the shipped matrix product: the ones whose products are the first to lose their registers."""


@pytest.mark.parametrize("name", TILES)
def test_products_of_the_shipped_kernel_do_not_wait_for_one_another(name: str) -> None:
    require(toolchain.find_compiler(), "NVRTC or nvcc")
    path, constants = Path(kernels.__file__).parent / "gemm.py", TILES[name]
    options = Options("sm_90a", 4 if constants["BLOCK_M"] == 64 else 8, constants)
    kernel = lower(check(parse(SourceFile(path.name, path.read_text())), path.stem, options), "sm_90a")
    _, resources = toolchain.compile(emit(kernel), "sm_90a")
    assert (resources.spill_bytes, resources.warnings) == (0, ())


@pytest.mark.product
@pytest.mark.parametrize(
    ("size", "rows", "causal"), [(64, 4096, False), (64, 4096, True), (64, 1024, False), (128, 4096, True)]
)
def test_maxima_of_attention_run_beside_its_second_product(size: int, rows: int, causal: bool) -> None:
    """ptxas would move the wait for that product in front of them. No register is spilled, nor moved for a product."""
    require(toolchain.find_compiler(), "NVRTC or nvcc")
    require(toolchain.find_disassembler(), "nvdisasm")
    path = Path(kernels.__file__).parent / "attention.py"
    constants = dict(hopper_tiles(AttentionShape(size, rows, rows, 64, 64, causal)))
    options = Options("sm_90a", constants.pop("num_warps"), {**constants, "D": size, "CAUSAL": causal})
    kernel = lower(check(parse(SourceFile(path.name, path.read_text())), "attention_forward", options), "sm_90a")
    cubin, resources = toolchain.compile(emit(kernel), "sm_90a")
    assert (resources.spill_bytes, resources.warnings) == (0, ())
    beside = toolchain.disassemble(cubin).split("WARPGROUP.DEPBAR.LE")[1]  # from the wait for the scores to the next
    assert beside.count("FMNMX") >= int(constants["BLOCK_N"]) // 2
