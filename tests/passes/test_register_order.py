"""Left operands whose lanes hold the right elements get the order of registers that the instruction takes."""

from __future__ import annotations

from argus.backend.emit import emit
from argus.compile import elaborate, lower
from argus.frontend import Options
from argus.source import SourceFile

TEXT = """
import argus
import argus.language as al


@argus.kernel(num_warps=4)
def twice(
    a: al.Tensor[al.float8_e4m3fn, "M 128"], b: al.Tensor[al.float8_e4m3fn, "N 128"],
    c: al.Tensor[al.float8_e4m3fn, "128 N"], out: al.Tensor[al.float32, "M 128"],
):
    M, N = a.shape[0], b.shape[0]
    m0 = al.grid(al.cdiv(M, 64)) * 64
    at = al.stage(a[m0 : m0 + 64, :], boundary_check=(0,))
    acc = al.zeros((64, 128), al.float32)
    for n in al.pipelined(0, N, 128, stages=2, producer_warps=4):
        bt = al.stage(b[n : n + 128, :], boundary_check=(0,))
        ct = al.stage(c[:, n : n + 128], boundary_check=(1,))
        s = al.mma(at, bt, al.zeros((64, 128), al.float32))
        apart = al.reshape(s.to(al.float8_e4m3fn), (64, 8, 2, 4, 2))
        pairs = al.reshape(al.permute(apart, (0, 1, 3, 2, 4)), (64, 128))
        acc = al.mma(pairs, ct, acc)
    al.store(out[m0 : m0 + 64, :], acc, boundary_check=(0,))
"""


def test_pairs_of_columns_become_the_operand_without_a_move() -> None:
    """Sums of 32 bits lie in pairs of columns, and operands of 8 bits in fours: columns in another order fit them."""
    kernel = lower(elaborate(SourceFile("twice.py", TEXT), "twice", Options("sm_90a")), "sm_90a")
    assert not kernel.remarks
    assert not any("scratch" in tile.name for tile in kernel.shared)
    assert "(&acc[0], &" in emit(kernel)  # an operand in registers, whose order the emitter insists on
