"""Embedding lookup: gathers the rows of a table that a tensor of token numbers names."""

import argus
import argus.language as al


@argus.kernel
def embedding(
    tokens: al.Tensor[al.int32, "T"],
    table: al.Tensor[al.float16, "V D"],
    out: al.Tensor[al.float16, "T D"],
    BLOCK_T: al.constexpr = 16,
    BLOCK_D: al.constexpr = 128,
):
    T = tokens.shape[0]
    V, D = table.shape
    al.requires(al.in_range(tokens, 0, V))
    al.spec(out, lambda t, d: table[tokens[t], d])
    pid_t, pid_d = al.grid(al.cdiv(T, BLOCK_T), al.cdiv(D, BLOCK_D))
    t = pid_t * BLOCK_T + al.arange(BLOCK_T)
    d0 = pid_d * BLOCK_D
    live = t < T
    rows = al.load(tokens[t], mask=live)
    tile = al.load(table[rows, d0 : d0 + BLOCK_D], mask=live[:, None], boundary_check=(1,))
    al.store(out[t, d0 : d0 + BLOCK_D], tile, mask=live[:, None], boundary_check=(1,))
