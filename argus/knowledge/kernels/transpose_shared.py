"""A transposition through shared memory whose columns lie in one bank."""

import argus
import argus.language as al


@argus.kernel
def transpose_shared(
    x: al.Tensor[al.float32, "M N"],
    out: al.Tensor[al.float32, "N M"],
    TILE: al.constexpr = 32,
):
    M, N = x.shape
    al.spec(out, lambda n, m: x[m, n])
    pid_m, pid_n = al.grid(al.cdiv(M, TILE), al.cdiv(N, TILE))
    m0, n0 = pid_m * TILE, pid_n * TILE
    tile = al.shared((TILE, TILE), al.float32)
    al.store(tile, al.load(x[m0 : m0 + TILE, n0 : n0 + TILE], boundary_check=(0, 1)))
    al.barrier()
    al.store(out[n0 : n0 + TILE, m0 : m0 + TILE], al.load(al.trans(tile)), boundary_check=(0, 1))
