"""Matrix instructions of the CUDA header on the hardware, against the lane maps and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from argus.backend.device_api import cpp_type, mma_function
from argus.ir.instruction import MMA, MmaRow
from argus.ir.types import DType

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

from tests.gpu.device import architecture, run  # noqa: E402

ROWS = [row for row in MMA.values() if row.warp_size == 32]
CASES = [(row, a, b) for row in ROWS for a in row.operands for b in row.operands if a == b or "fp8" in row.name]


def encoded(values: np.ndarray, dtype: DType) -> np.ndarray:
    """The bits of small integers, which every operand type holds exactly."""
    if dtype.name == "tfloat32":
        return values.astype(np.float32).view(np.uint32)
    tensor = torch.from_numpy(values.astype(np.float32)).to(getattr(torch, dtype.name))
    return tensor.view({1: torch.uint8, 2: torch.int16}[dtype.bytes]).numpy()


@pytest.mark.parametrize(("row", "a", "b"), CASES, ids=[f"{r.name}-{a}-{b}" for r, a, b in CASES])
def test_every_matrix_instruction(row: MmaRow, a: DType, b: DType) -> None:
    """D = C + A B^T of small integers is exact, whatever the order of the sum."""
    if architecture() not in row.architectures and "sm_80" not in row.architectures:
        pytest.skip(f"needs {row.architectures[0]}")
    m, n, k = row.shape
    generator = np.random.default_rng(0)
    x, y = generator.integers(-4, 5, (m, k)), generator.integers(-4, 5, (n, k))
    z = generator.integers(-100, 100, (m, n))
    na, nb, nc = row.a.num_values, row.b.num_values, row.c.num_values
    body = f"""
    alignas(16) {cpp_type(a)} x[{na}];
    alignas(16) {cpp_type(b)} y[{nb}];
    alignas(16) {cpp_type(row.accumulator)} z[{nc}];
    for (int i = 0; i < {na}; ++i) x[i] = p0[t * {na} + i];
    for (int i = 0; i < {nb}; ++i) y[i] = p1[t * {nb} + i];
    for (int i = 0; i < {nc}; ++i) z[i] = p2[t * {nc} + i];
    argus::{mma_function(row).name}(z, x, y);
    for (int i = 0; i < {nc}; ++i) p2[t * {nc} + i] = z[i];"""
    held = [
        encoded(x.reshape(-1)[row.a.linear()], a),
        encoded(y.reshape(-1)[row.b.linear()], b),
        z.reshape(-1)[row.c.linear()].astype(np.float32 if row.accumulator.is_float else np.int32),
    ]
    types = [f"const {cpp_type(a)}", f"const {cpp_type(b)}", cpp_type(row.accumulator)]
    got = run(body, types, held)[2]
    expected = z + x @ y.T
    np.testing.assert_array_equal(got, expected.reshape(-1)[row.c.linear()])
