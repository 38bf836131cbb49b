"""A copy of `examples/paged_decode.py` in which all sequences read the pages of the first one."""

import argus
import argus.language as al

NEVER = -float("inf")


@argus.kernel(num_warps=4)
def paged_decode_rejected(
    q: al.Tensor[al.bfloat16, "B HK G D"],
    keys: al.Tensor[al.bfloat16, "NB PAGE HK D"],
    values: al.Tensor[al.bfloat16, "NB PAGE HK D"],
    table: al.Tensor[al.int32, "B MAXP"],
    lens: al.Tensor[al.int32, "B"],
    out: al.Tensor[al.float32, "B HK G D"],
    scale: al.float32,
    G: al.constexpr = 8,
    D: al.constexpr = 64,
    PAGE: al.constexpr = 16,
    ROWS: al.constexpr = 64,
):
    B, HK, NB, MAXP = q.shape[0], q.shape[1], keys.shape[0], table.shape[1]
    al.requires((scale > 0.0) & (MAXP < 2**24))
    al.requires(al.in_range(table, 0, NB))
    al.requires(al.in_range(lens, 0, MAXP * PAGE + 1))
    al.tag(keys, lambda page, place, head, d: (page, place, head, d))
    al.tag(values, lambda page, place, head, e: (page, place, head, e))
    head, b = al.grid(HK, B)
    length = al.load(lens[b])
    qt = al.load(q[b, head, 0:ROWS, :], boundary_check=(0,))
    top = al.full((ROWS,), NEVER, al.float32)
    total = al.zeros((ROWS,), al.float32)
    acc = al.zeros((ROWS, D), al.float32)
    for p in range(al.cdiv(length, PAGE)):
        page = al.load(table[0, p])
        kt = al.stage(keys[page, :, head, :])
        vt = al.stage(values[page, :, head, :])
        al.assert_tags(lambda j, d: kt[j, d] == (table[b, p], j, head, d))
        al.assert_tags(lambda j, e: vt[j, e] == (table[b, p], j, head, e))
        s = al.mma(qt, kt, al.zeros((ROWS, PAGE), al.float32)) * scale
        s = al.where((p * PAGE + al.arange(PAGE) < length)[None, :], s, NEVER)
        new = al.maximum(top, al.max(s, axis=1))
        shift = al.where(new == NEVER, 0.0, new)
        shrink = al.exp2(top - shift)
        weights = al.exp2(s - shift[:, None])
        total = total * shrink + al.sum(weights, axis=1)
        top = new
        acc = acc * shrink[:, None]
        acc = al.mma(weights.to(al.bfloat16), al.trans(vt), acc)
    y = acc / al.where(total == 0.0, 1.0, total)[:, None]
    al.store(out[b, head, 0:ROWS, :], y, boundary_check=(0,))
