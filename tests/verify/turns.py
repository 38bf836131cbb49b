"""A persistent kernel of two computing roles that take turns in every iteration, as attention's do.

Both read the tiles that a producer brings. Each waits for its own barrier, multiplies, and arrives at the other's;
what follows, softmax in attention, runs beside the other's products.
"""

from __future__ import annotations

ACCUMULATOR = "[64x64 | t 4@1*2 8@0 4@0*16 | v 2@1 2@0*8 8@1*8]"
OWN, OTHER = 5, 6


def text(stop: str = "K", depth: str = "K", begins: str = "      barrier_arrive 5 count 256\n") -> str:
    """The text of the kernel: loops run to `stop`, and what they sum is `depth` deep. `begins`: the first turn."""
    roles = _compute(0, OWN, OTHER, "", stop, depth) + _compute(1, OTHER, OWN, begins, stop, depth)
    return f"""kernel turns
target sm_90a
warps 12 of 32
size M
size K
size N
tensor a: bfloat16[M, K] strides [a.stride0:int64, 1:int64] align 16
tensor b: bfloat16[N, K] strides [b.stride0:int64, 1:int64] align 16
tensor c: bfloat16[M, N] strides [c.stride0:int64, 1:int64] align 16
grid [(M + 127) // 128, (N + 63) // 64] persistent
shared at0: bfloat16 2x64x64 layout Sw<3,3,3> o 0 o (2,64,64):(4096,64,1) at 0
shared at1: bfloat16 2x64x64 layout Sw<3,3,3> o 0 o (2,64,64):(4096,64,1) at 16384
shared bt: bfloat16 2x64x64 layout Sw<3,3,3> o 0 o (2,64,64):(4096,64,1) at 32768
mbarrier full count 2 arrivals 1 at 49152
mbarrier empty count 2 arrivals 8 at 49168
fragment acc0: float32 64x64 layout {ACCUMULATOR}
fragment acc1: float32 64x64 layout {ACCUMULATOR}
fragment out0: bfloat16 64x64 layout {ACCUMULATOR}
fragment out1: bfloat16 64x64 layout {ACCUMULATOR}
body {{
  tag a[M, K] = {{m = c0, k = c1}}
  tag b[N, K] = {{n = c0, k = c1}}
  mbarrier_init full
  mbarrier_init empty
  mbarrier_fence
  barrier
  roles {{
    role producer warps 1 from 8 registers 40 {{
      programs {{
        for k0 in 0 .. {stop} step 64 counter turn wrap 4 {{
          mbarrier_wait empty[turn % 2] parity (turn // 2 + 1) % 2
          mbarrier_expect full[turn % 2] bytes 24576
          copy at0[turn % 2, c0, c1] <~ a[program_id(0) * 128 + c0, k0 + c1] shape 64x64 if (program_id(0) * 128 + c0 < M) & (k0 + c1 < K) else 0.0:bfloat16 via tma.load signal full[turn % 2]
          copy at1[turn % 2, c0, c1] <~ a[program_id(0) * 128 + 64 + c0, k0 + c1] shape 64x64 if (program_id(0) * 128 + 64 + c0 < M) & (k0 + c1 < K) else 0.0:bfloat16 via tma.load signal full[turn % 2]
          copy bt[turn % 2, c0, c1] <~ b[program_id(1) * 64 + c0, k0 + c1] shape 64x64 if (program_id(1) * 64 + c0 < N) & (k0 + c1 < K) else 0.0:bfloat16 via tma.load signal full[turn % 2]
        }}
      }}
    }}
{roles}  }}
}}
"""  # noqa: E501


def _compute(group: int, own: int, other: int, begins: str, stop: str, depth: str) -> str:
    row = f"program_id(0) * 128 + {64 * group}"
    inside = f"({row} + c0 < M) & (program_id(1) * 64 + c1 < N)"
    return f"""    role compute{group} warps 4 from {4 * group} registers 200 {{
{begins}      programs {{
        map acc{group}[c0, c1] = 0.0 shape 64x64 layout {ACCUMULATOR} scope thread
        for k0 in 0 .. {stop} step 64 counter turn wrap 4 {{
          barrier_sync {own} count 256
          mbarrier_wait full[turn % 2] parity turn // 2 % 2
          mma_fence
          mma acc{group}[c0, c1] += at{group}[turn % 2, c0, c2] * bt[turn % 2, c1, c2] shape 64x64x64 via wgmma_m64n64k16 warps 4x1
          mma_commit
          barrier_arrive {other} count 256
          mma_wait 0
          mbarrier_arrive empty[turn % 2]
        }}
        assert (i, j) in 64x64 {{acc{group}[c0, c1] carries [{row} + c0, program_id(1) * 64 + c1, once(0, {depth})]}} where {inside}
        map out{group}[c0, c1] = bfloat16(acc{group}[c0, c1]) shape 64x64 layout {ACCUMULATOR} scope thread
        copy c[{row} + c0, program_id(1) * 64 + c1] <- out{group}[c0, c1] shape 64x64 if {inside} layout {ACCUMULATOR} via st.global vector 2
      }}
    }}
"""  # noqa: E501
