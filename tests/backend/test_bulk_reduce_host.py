"""Atomic updates by the copy engine on the host, as late and as early as it may make them."""

from __future__ import annotations

import numpy as np
import pytest

from argus.backend.cpu.toolchain import find_compiler
from argus.backend.emit import emit
from argus.ir.types import DType, bfloat16, float16, float32, int32, int64
from argus.simulate.numeric import carrier, from_bits, to_bits
from tests.backend.host import run
from tests.passes.test_bulk_results import TEXT, lowered

host = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
CASES = [
    ("add", "add", float32), ("add", "add", float16), ("add", "add", bfloat16), ("add", "add", int32),
    ("max", "maximum", bfloat16), ("max", "maximum", int64), ("min", "minimum", int32),
]  # fmt: skip


@pytest.mark.product
@host
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(("name", "op", "dtype"), CASES, ids=str)
def test_updates(name: str, op: str, dtype: DType, eager: bool) -> None:
    columns = 112 if dtype.bits == 16 else 56
    kernel = lowered("sm_90a", TEXT.replace("atomic_add", f"atomic_{name}"), OUT=dtype, BLOCK_N=columns)
    assert f"argus::tma_reduce_{op}<" in emit(kernel)
    m, n, k = 70, 88, 392
    a = (np.arange(m * k) % 5 - 2).astype(np.float32).reshape(m, k) * (np.arange(k) % 8 == 0)
    b = (np.arange(n * k) % 3 - 1).astype(np.float32).reshape(n, k)
    c = to_bits(np.full((m, n), 2, carrier(dtype)), dtype)
    run(kernel, (2, -(-n // columns), 2), eager, a=to_bits(a, bfloat16), b=to_bits(b, bfloat16), c=c, M=m, N=n, K=k)
    parts = [a[:, :256] @ b[:, :256].T, a[:, 256:] @ b[:, 256:].T, np.full((m, n), 2.0)]
    expected = {"add": sum(parts), "maximum": np.maximum.reduce(parts), "minimum": np.minimum.reduce(parts)}[op]
    np.testing.assert_array_equal(from_bits(c, dtype), expected)
