"""Sums of the columns of a matrix, added past the end of the result where the last block is not full."""

import argus
import argus.language as al


@argus.kernel
def column_sum_rejected(
    x: al.Tensor[al.float32, "M N"],
    total: al.Tensor[al.float32, "N"],
    ROWS: al.constexpr = 32,
    COLUMNS: al.constexpr = 128,
):
    M, N = x.shape
    al.spec(total, lambda n: al.sum(lambda m: x[m, n]))
    al.tag(x, lambda m, n: (m, n))
    pid_m, pid_n = al.grid(al.cdiv(M, ROWS), al.cdiv(N, COLUMNS))
    rows = pid_m * ROWS + al.arange(ROWS)
    cols = pid_n * COLUMNS + al.arange(COLUMNS)
    values = al.load(x[rows[:, None], cols], mask=(rows < M)[:, None] & (cols < N))
    part = al.sum(values, axis=0)
    al.assert_tags(
        lambda j: part[j] == (al.once(pid_m * ROWS, al.minimum(pid_m * ROWS + ROWS, M)), pid_n * COLUMNS + j),
        where=lambda j: pid_n * COLUMNS + j < N,
    )
    al.atomic_add(total[cols], part)
