"""A kernel whose accesses to shared memory conflict on purpose: a transposition through a tile without a swizzle."""

import argus
import argus.language as al


@argus.kernel
def transpose_rows(
    x: al.Tensor[al.float32, "M N"],
    out: al.Tensor[al.float32, "N M"],
    TILE: al.constexpr = 32,
):
    M, N = x.shape
    al.spec(out, lambda n, m: x[m, n])
    pid_m, pid_n = al.grid(al.cdiv(M, TILE), al.cdiv(N, TILE))
    m0, n0 = pid_m * TILE, pid_n * TILE
    tile = al.shared((TILE, TILE), al.float32, layout=al.layout("(32,32):(32,1)"))
    al.store(tile, al.load(x[m0 : m0 + TILE, n0 : n0 + TILE], boundary_check=(0, 1)))
    al.barrier()
    al.store(out[n0 : n0 + TILE, m0 : m0 + TILE], al.load(al.trans(tile)), boundary_check=(0, 1))
