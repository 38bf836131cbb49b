"""Every example checks into tile IR; the IR is kept as golden text."""

from pathlib import Path

import pytest

from argus.frontend import Options, check, parse
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.wellformed import check_tile
from argus.source import SourceFile
from tests.conftest import example_target

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(ROOT.glob("examples/*.py")) + sorted(ROOT.glob("examples/rejected/*.py"))


def kernel_of(path: Path):
    module = parse(SourceFile(path.name, path.read_text()))
    suffix = "_rejected" if path.parent.name == "rejected" else ""
    return check(module, path.stem + suffix, Options(target=example_target(path.stem)))


def test_the_tile_ir_of_a_product_and_of_attention(golden):
    """The two kernels that use most of the language, as golden text."""
    golden("gemm_explicit.txt", print_kernel(kernel_of(ROOT / "examples" / "gemm_explicit.py")))
    golden("attention.txt", print_kernel(kernel_of(Path(__file__).parent / "attention.py")))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_example_checks_into_ir_that_prints_and_reads_back(path):
    kernel = kernel_of(path)
    assert check_tile(kernel) == ()
    assert parse_kernel(print_kernel(kernel)) == kernel
