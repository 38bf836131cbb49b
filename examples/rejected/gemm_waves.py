"""Matrix product that leaves the loads of two steps on their way: the rows that it reads are among them."""

import argus
import argus.language as al


@argus.kernel(num_warps=4)
def gemm_waves_rejected(
    a: al.Tensor[al.bfloat16, "M K"],
    b: al.Tensor[al.bfloat16, "N K"],
    c: al.Tensor[al.bfloat16, "M N"],
):
    M, K = a.shape
    N = b.shape[0]
    al.spec(c, lambda m, n: al.sum(lambda k: a[m, k] * b[n, k]))
    al.tag(a, lambda m, k: (m, k))
    al.tag(b, lambda n, k: (n, k))
    pid_m, pid_n = al.grid(al.cdiv(M, 64), al.cdiv(N, 64))
    m0, n0 = pid_m * 64, pid_n * 64
    tiled = al.tiled_mma("mfma_f32_32x32x8", shape=(64, 64, 32), warps=(2, 2))
    # 256 bytes of a wave are rows r, r + 16, r + 32 and r + 48; 8 bytes of padding keep their readers apart.
    runs = al.layout("(3,(16,4),32):(2112,(132,32),1)")
    sa = al.shared((3, 64, 32), al.bfloat16, layout=runs)
    sb = al.shared((3, 64, 32), al.bfloat16, layout=runs)
    acc = al.zeros((64, 64), al.float32, layout=tiled.c)
    fill(sa[0, :, :], sb[0, :, :], a, b, m0, n0, 0)
    fill(sa[1, :, :], sb[1, :, :], a, b, m0, n0, 32)
    for step in range(al.cdiv(K, 32)):
        # A wave issues 8 loads a step, and those of this step are the older half of 16.
        al.s_waitcnt(vmcnt=16, lgkmcnt=0)
        al.s_barrier()
        fill(sa[(step + 2) % 3, :, :], sb[(step + 2) % 3, :, :], a, b, m0, n0, (step + 2) * 32)
        at = al.load(sa[step % 3, :, :], layout=tiled.a)
        bt = al.load(sb[step % 3, :, :], layout=tiled.b)
        al.assert_tags(lambda i, j, k: at[i, k].k == bt[j, k].k)
        al.s_setprio(1)
        acc = al.mma(at, bt, acc, instruction="mfma_f32_32x32x8", warps=(2, 2))
        al.s_setprio(0)
    al.s_waitcnt(vmcnt=0)
    al.assert_tags(
        lambda i, j: acc[i, j] == (m0 + i, n0 + j, al.once(0, K)),
        where=lambda i, j: (m0 + i < M) & (n0 + j < N),
    )
    al.store(c[m0 : m0 + 64, n0 : n0 + 64], acc.to(al.bfloat16), boundary_check=(0, 1))


@argus.func
def fill(sa, sb, a, b, m0, n0, k0):
    """Starts the loads of one K tile of both operands: 4 bytes a lane, which fill the tiles in the order of lanes."""
    lanes = al.fragment_layout("[64x32 | t 16@1*2 4@0*16 4@0 | v 2@1 4@0*4]")
    to_lds = "global_load_lds"
    al.copy(sa, a[m0 : m0 + 64, k0 : k0 + 32], boundary_check=(0, 1), other=0.0, instruction=to_lds, layout=lanes)
    al.copy(sb, b[n0 : n0 + 64, k0 : k0 + 32], boundary_check=(0, 1), other=0.0, instruction=to_lds, layout=lanes)
