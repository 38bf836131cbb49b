"""A matrix product c = a @ b.T of eight waves in explicit style, in which all waves load, and then all multiply."""

import argus
import argus.language as al


@argus.kernel(num_warps=8)
def waves(
    a: al.Tensor[al.bfloat16, "M K"],
    b: al.Tensor[al.bfloat16, "N K"],
    c: al.Tensor[al.bfloat16, "M N"],
):
    M, K = a.shape
    N = b.shape[0]
    al.spec(c, lambda m, n: al.sum(lambda k: a[m, k] * b[n, k]))
    al.tag(a, lambda m, k: (m, k))
    al.tag(b, lambda n, k: (n, k))
    pid_m, pid_n = al.grid(al.cdiv(M, 256), al.cdiv(N, 256), group=8)
    m0, n0 = pid_m * 256, pid_n * 256
    tiled = al.tiled_mma("mfma_f32_32x32x8_t", shape=(256, 256, 16), warps=(2, 4))
    swizzled = al.layout("Sw<3,2,4> o 0 o (2,256,32):(8192,32,1)")
    lanes = al.fragment_layout("[256x32 | t 4@1*8 128@0 | v 8@1 2@0*128]")
    sa = al.shared((2, 256, 32), al.bfloat16, layout=swizzled)
    sb = al.shared((2, 256, 32), al.bfloat16, layout=swizzled)
    acc = al.zeros((256, 256), al.float32, layout=tiled.c)
    al.store(sa[0, :, :], al.load(a[m0 : m0 + 256, 0:32], boundary_check=(0, 1), layout=lanes))
    al.store(sb[0, :, :], al.load(b[n0 : n0 + 256, 0:32], boundary_check=(0, 1), layout=lanes))
    more_a = al.load(a[m0 : m0 + 256, 32:64], boundary_check=(0, 1), layout=lanes)
    more_b = al.load(b[n0 : n0 + 256, 32:64], boundary_check=(0, 1), layout=lanes)
    al.barrier()
    for step in range(al.cdiv(K, 32)):
        a0 = al.load(sa[step % 2, :, 0:16], layout=tiled.a)
        b0 = al.load(sb[step % 2, :, 0:16], layout=tiled.b)
        a1 = al.load(sa[step % 2, :, 16:32], layout=tiled.a)
        b1 = al.load(sb[step % 2, :, 16:32], layout=tiled.b)
        al.store(sa[(step + 1) % 2, :, :], more_a)
        al.store(sb[(step + 1) % 2, :, :], more_b)
        ahead = (step + 2) * 32
        more_a = al.load(a[m0 : m0 + 256, ahead : ahead + 32], boundary_check=(0, 1), layout=lanes)
        more_b = al.load(b[n0 : n0 + 256, ahead : ahead + 32], boundary_check=(0, 1), layout=lanes)
        al.assert_tags(lambda i, j, k: a0[i, k].k == b0[j, k].k)
        al.assert_tags(lambda i, j, k: a1[i, k].k == b1[j, k].k)
        al.s_waitcnt(lgkmcnt=0)
        al.s_barrier()
        acc = al.mma(a0, b0, acc, instruction="mfma_f32_32x32x8_t", warps=(2, 4))
        acc = al.mma(a1, b1, acc, instruction="mfma_f32_32x32x8_t", warps=(2, 4))
    al.assert_tags(
        lambda i, j: acc[i, j] == (m0 + i, n0 + j, al.once(0, K)),
        where=lambda i, j: (m0 + i < M) & (n0 + j < N),
    )
    al.store(c[m0 : m0 + 256, n0 : n0 + 256], acc.to(al.bfloat16), boundary_check=(0, 1))
