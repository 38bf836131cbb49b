"""Decode attention over a paged cache: a few queries of each sequence attend to keys in the pages of a table. Programs
work on parts of the keys side by side, and a second kernel joins the parts."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import argus
import argus.language as al
from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.ir.machine import H200
from argus.ir.types import DType
from argus.kernels.attention import attention_combine, room_of
from argus.kernels.attention_operands import EIGHT_BITS, HEAD_SIZES, check_scales, results, scale_of
from argus.kernels.attention_scores import NEVER, raise_top
from argus.kernels.dispatch import clamped
from argus.kernels.exponentials import LN2, LOG2E
from argus.kernels.rows import dtype_of, same_rank, same_shape
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

MOST_QUERIES, MOST_ROWS = 8, 64
_LEAST_KEYS = 256  # of a part
_INVARIANT_KEYS = 1024  # of a part, whatever else there is
_STEP_KEYS = 64  # of a step of 8 bits
_WARPS = 16  # of all programs on a multiprocessor, for which there are registers
_BESIDE = 4096  # bytes of shared memory of a program beside its keys, values and queries
_QUARTERS = 4  # parts of the longest sequence, at least
_EVEN = 0.85  # the part of the most even share of multiprocessors' time that is good enough: parts have to be joined

Tensors = tuple[Any, ...]


@argus.func
def scaled(x, scales, h):
    """Return a number times the scale of its head, if heads have scales."""
    return x if scales is None else x * scales[h]


@argus.func
def key_score(q, keys, key_scales, table, lens, b, h, t, i, j, scale, PAGE, QUERIES, SPAN):
    """Return the score of row i and key j of sequence b, -inf for keys that are not of part t or not seen."""
    return al.where(
        (j <= lens[b] - QUERIES + i % QUERIES) & (t * SPAN * PAGE <= j) & (j < (t + 1) * SPAN * PAGE),
        scaled(al.sum(lambda d: q[b, h, i, d] * keys[table[b, j // PAGE], j % PAGE, h, d]), key_scales, h)
        * (scale * LN2),
        NEVER,
    )


@argus.func
def value_of(values, value_scales, table, b, n, h, e, PAGE):
    """Return element e of the value of key n of sequence b."""
    return scaled(values[table[b, n // PAGE], n % PAGE, h, e], value_scales, h)


@argus.func
def before(first, BLOCK, length):
    """Return True for those of BLOCK keys from `first` on that a sequence has."""
    return (first + al.arange(BLOCK) < length)[:, None]


@argus.func
def decode(
    q, keys, values, key_scales, value_scales, table, lens, parts, levels, scale,
    DTYPE, PAGE, BLOCK, QUERIES, ROWS, SPAN, INVARIANT,
):  # fmt: skip
    """Attention of the R rows of each head to the keys of SPAN pages: `parts`, and their log-sum-exps, `levels`.

    Key j of sequence b is `keys[table[b, j // PAGE], j % PAGE]`, for `j < lens[b]`. A head's rows are of the queries
    that share its keys, QUERIES of each, which see the last keys one after the other. Without `values` these are the
    first elements of the keys. Keys and values are multiplied in DTYPE, and by the scales of their heads.
    A step takes BLOCK keys of a page.
    INVARIANT: the bits of a sequence's results do not depend on the other sequences, nor on how many there are.
    """
    assert PAGE % BLOCK == 0, "a step's keys are of one page"
    PER = PAGE // BLOCK
    B, H, R, PAGES, MOST, P = q.shape[0], q.shape[1], q.shape[2], keys.shape[0], table.shape[1], parts.shape[2]
    E = parts.shape[4]
    al.requires(scale > 0.0)
    al.requires(R <= ROWS)
    al.requires(MOST <= P * SPAN)
    al.requires((MOST < 2**20) & (P < 2**20))
    al.requires(al.in_range(table, 0, PAGES))
    al.requires(al.in_range(lens, 0, MOST * PAGE + 1))
    if INVARIANT:
        al.invariant(parts, B)
        al.invariant(levels, B)
    held = keys if values is None else values
    # fmt: off
    al.spec(parts, lambda b, h, t, i, e: al.sum(lambda n: al.softmax(lambda j: key_score(
        q, keys, key_scales, table, lens, b, h, t, i, j, scale, PAGE, QUERIES, SPAN
    ))[n] * value_of(held, value_scales, table, b, n, h, e, PAGE)))
    al.spec(levels, lambda b, h, t, i: al.logsumexp(lambda j: key_score(
        q, keys, key_scales, table, lens, b, h, t, i, j, scale, PAGE, QUERIES, SPAN)))
    # fmt: on
    head, part, b = al.grid(H, P, B)
    length = al.minimum(al.load(lens[b]), MOST * PAGE)  # one that nobody checked reads no more than the table
    rows = al.arange(ROWS)
    hidden = QUERIES - 1 - rows % QUERIES  # how many of the last keys a row does not see
    if values is None:
        qt = al.stage(q[b, head, 0:ROWS, :], boundary_check=(0,))
    else:
        qt = al.load(q[b, head, 0:ROWS, :], boundary_check=(0,))
    top = al.full((ROWS,), NEVER, al.float32)
    total = al.zeros((ROWS,), al.float32)
    acc = al.zeros((ROWS, E), al.float32)
    for p in range(part * SPAN * PER, al.minimum(al.cdiv(length, BLOCK), (part + 1) * (SPAN * PER))):
        page = clamped(al.load(table[b, p // PER]), PAGES)  # a number that nobody checked is one of a page
        at = 0 if PER == 1 else p % PER * BLOCK
        # What stands behind a sequence may be no number, and zero times that is none.
        if values is None:
            kt = al.stage(keys[page, at : at + BLOCK, head, :], mask=before(p * BLOCK, BLOCK, length))
            vt = kt[:, 0:E]
        elif keys.dtype != DTYPE:
            # The copies of both are under way before either is converted.
            k8 = al.stage(keys[page, at : at + BLOCK, head, :])
            v8 = al.stage(values[page, at : at + BLOCK, head, :], mask=before(p * BLOCK, BLOCK, length))
            kt, vt = al.stage(al.load(k8).to(DTYPE)), al.stage(al.load(v8).to(DTYPE))
        else:
            kt = al.stage(keys[page, at : at + BLOCK, head, :])
            vt = al.stage(values[page, at : at + BLOCK, head, :], mask=before(p * BLOCK, BLOCK, length))
        s = al.mma(qt, kt, al.zeros((ROWS, BLOCK), al.float32))
        if key_scales is not None:
            s = s * al.load(key_scales[head])
        s = al.where((p * BLOCK + al.arange(BLOCK))[None, :] + hidden[:, None] < length, s, NEVER)
        top, shift, shrink = raise_top(s, top, scale)
        w = al.exp2(al.fma(s, scale, shift[:, None]))
        total = total * shrink + al.sum(w, axis=1)
        acc = acc * shrink[:, None]
        acc = al.mma(al.moderate(w).to(DTYPE), al.trans(vt), acc)
    y = acc * (1.0 / al.where(total == 0.0, 1.0, total))[:, None]
    if value_scales is not None:
        y = y * al.load(value_scales[head])
    al.store(parts[b, head, part, 0:ROWS, :], y, boundary_check=(0,))
    level = al.where(top == NEVER, 0.0, top * scale) + al.log2(total)
    al.store(levels[b, head, part, rows], level * LN2, mask=rows < R)


@argus.kernel(num_warps=4)
def attention_decode_pages(
    q: al.Tensor[DTYPE, "B H R D"],
    keys: al.Tensor[DTYPE, "PAGES PAGE H D"],
    values: al.Tensor[DTYPE, "PAGES PAGE H D"],
    table: al.Tensor[al.int32, "B MOST"],
    lens: al.Tensor[al.int32, "B"],
    parts: al.Tensor[al.float32, "B H P R D"],
    levels: al.Tensor[al.float32, "B H P R"],
    scale: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    D: al.constexpr = 128,
    PAGE: al.constexpr = 64,
    QUERIES: al.constexpr = 1,
    ROWS: al.constexpr = 16,
    SPAN: al.constexpr = 16,
    INVARIANT: al.constexpr = False,
    BLOCK: al.constexpr = 0,
):
    """Attention as `decode` computes it. BLOCK 0: a step takes the keys of a page."""
    decode(
        q, keys, values, None, None, table, lens, parts, levels, scale,
        DTYPE, PAGE, BLOCK if BLOCK else PAGE, QUERIES, ROWS, SPAN, INVARIANT,
    )  # fmt: skip


@argus.kernel(num_warps=4)
def attention_decode_scaled(
    q: al.Tensor[DTYPE, "B H R D"],
    keys: al.Tensor[STORED, "PAGES PAGE H D"],
    values: al.Tensor[STORED, "PAGES PAGE H D"],
    key_scales: al.Tensor[al.float32, "H"],
    value_scales: al.Tensor[al.float32, "H"],
    table: al.Tensor[al.int32, "B MOST"],
    lens: al.Tensor[al.int32, "B"],
    parts: al.Tensor[al.float32, "B H P R D"],
    levels: al.Tensor[al.float32, "B H P R"],
    scale: al.float32,
    DTYPE: al.constexpr = al.bfloat16,
    STORED: al.constexpr = al.float8_e4m3fn,
    D: al.constexpr = 128,
    PAGE: al.constexpr = 64,
    BLOCK: al.constexpr = 64,
    QUERIES: al.constexpr = 1,
    ROWS: al.constexpr = 16,
    SPAN: al.constexpr = 16,
    INVARIANT: al.constexpr = False,
):
    """Attention as `decode` computes it, over keys and values of 8 bits, with a scale for each head."""
    decode(
        q, keys, values, key_scales, value_scales, table, lens, parts, levels, scale,
        DTYPE, PAGE, BLOCK, QUERIES, ROWS, SPAN, INVARIANT,
    )  # fmt: skip


def attention_decode(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    table: torch.Tensor,
    lens: torch.Tensor,
    *,
    key_scale: torch.Tensor | None = None,
    value_scale: torch.Tensor | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    batch_invariant: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of the last queries `[B, H, M, D]` of sequences to their keys in a cache `[pages, page, H / G, D]`.

    Key j of sequence b is `keys[table[b, j // page], j % page]`, for `j < lens[b]`; `table` `[B, most]` and `lens`
    `[B]` are int32. The M queries, at most 8, are the last of each sequence: the last one sees all keys, the one before
    it one key less. D is 64 or 128, a page a multiple of 16 keys, and `M * G` at most 64. A number in `table` that is
    none of a page counts as the nearest that is, and a length beyond `most * page` as that. Queries that see no key
    give zeros. `scale` and `return_lse` are those of `attention`.

    A cache has the dtype of q, or is float8_e4m3fn or int8, as `cache_append` writes it. Then its numbers
    are multiplied by `key_scale` and `value_scale`, float32 `[H / G]`, or `[1]` for all heads, which is copied.
    `batch_invariant`: the bits of a sequence's results do not depend on the other sequences, nor on how many there are,
    which is proved; keys are then cut into parts of about a thousand. Raises LaunchError.
    """
    scales = tuple(x for x in (key_scale, value_scale) if x is not None)
    o, lse = _decode((q, keys, values, table, lens, *scales), scale_of(scale), (batch_invariant,))
    return (o, lse) if return_lse else o


def _work(tensors: Tensors, numbers: tuple[Number, ...], invariant: bool) -> Work:
    q, keys, values, table, lens, *scales = tensors
    dtype, made = _checked(*tensors), results(q)
    if not (q.numel() and table.numel() and keys.numel()):
        return Work((), (made[0].zero_(), made[1].fill_(NEVER)))
    heads, D = keys.shape[2:]
    rows = q.contiguous().view(len(q), heads, -1, D)
    cache = tuple(x if x.stride(3) == 1 else x.contiguous() for x in (keys, values))
    page, kernel = keys.shape[1], attention_decode_pages
    constants: dict[str, object] = {"DTYPE": dtype, "D": D, "QUERIES": q.shape[2], "INVARIANT": invariant}
    constants["num_warps"] = 2 if page % 32 else 4
    if scales:
        kernel, constants["STORED"] = attention_decode_scaled, dtype_of("keys", keys, EIGHT_BITS)
        constants["BLOCK"] = page if page % _STEP_KEYS else _STEP_KEYS
    if target_of(str(q.device)) == "gfx942":
        constants |= wave_step(page, rows.shape[2])
    factors = tuple(x.expand(heads).contiguous() for x in scales)
    width = keys.element_size() + (q.element_size() if scales else 0)
    room = 2 * int(str(constants.get("BLOCK", page))) * D * width
    scale = numbers or (D**-0.5 * LOG2E,)
    return in_parts(kernel, (rows, *cache, *factors), (table, lens), scale, made, constants, room)


def wave_step(page: int, rows: int) -> dict[str, object]:
    """Return the constants of a step on gfx942: LDS has room for few keys, and a wave computes 16 x 16 scores."""
    block = next(n for n in (_STEP_KEYS, 32, 16) if page % n == 0)
    return {"BLOCK": block, "num_warps": min(4, block // 16 * _tile_rows(rows) // 16)}


def _tile_rows(rows: int) -> int:
    """Return the number of rows of a tile that holds the queries of a head."""
    return max(16, 1 << (rows - 1).bit_length())


def in_parts(
    kernel: Any, read: Tensors, index: Tensors, scale: tuple[Number, ...], made: Tensors, constants: dict[str, object],
    room: int, least: int = _LEAST_KEYS,
) -> Work:  # fmt: skip
    """Return the launch of `kernel` for all parts of the keys, and that which joins the parts.

    `read` begins with the rows of queries and the keys' pages; `index` are table and lengths; `made` the results. A
    program holds `room` bytes of keys, values and queries in shared memory, and a part has at least `least` keys.
    """
    (B, heads, R, _), page, E = read[0].shape, read[1].shape[1], made[0].shape[3]
    table, lens = index
    index = table if table.stride(1) == 1 else table.contiguous(), lens.contiguous()
    beside = min(_WARPS // int(str(constants["num_warps"])), H200.shared_bytes // (room + _BESIDE))
    pages, programs = table.shape[1], max(1, beside) * H200.multiprocessors
    fixed = constants["INVARIANT"]
    span = -(-_INVARIANT_KEYS // page) if fixed else _span(pages, -(-least // page), B * heads, programs)
    parts = -(-pages // span)
    found, levels = (made[1].new_empty(B, heads, parts, R, *each) for each in ((E,), ()))
    constants |= {"PAGE": page, "SPAN": span, "ROWS": _tile_rows(R)}
    first = Call(kernel, (*read, *index, found, levels, *scale), constants)
    joined = found.view(B * heads, parts, -1, E), levels.view(B * heads, parts, -1)
    together = made[0].view(B * heads, -1, E), made[1].view(B * heads, -1)
    join = Call(attention_combine, (*joined, *together), {"DTYPE": constants["DTYPE"], "D": E, "ROOM": room_of(parts)})
    return Work((first, join), made)


@lru_cache(maxsize=4096)
def _span(pages: int, least: int, heads: int, programs: int) -> int:
    """Return the number of pages in a part, at least `least`, such that all rounds of programs are nearly full.

    `programs` run together, and sequences are taken to be as long as they may be. Longer ones than others leave no
    programs idle for long, because a part is at most a quarter of one. Only few numbers are tried, so that few kernels
    are built.
    """
    spans = [n << shift for shift in range(21) for n in ((1, 2, 3) if not shift else ()) + (4, 5, 6, 7)]
    spans = [n for n in spans if least <= n <= -(-pages // _QUARTERS)] or [least]

    def even(span: int) -> float:
        """Return the share of the programs' time that pages take, if each takes as long as one with a whole part."""
        rounds = -(-heads * -(-pages // span) // programs)
        return heads * pages / (rounds * programs * span)

    best = max(map(even, spans))
    return max(n for n in spans if even(n) >= _EVEN * best)


def _checked(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    table: torch.Tensor,
    lens: torch.Tensor,
    *scales: torch.Tensor,
) -> DType:
    """Return the dtype. Raises LaunchError."""
    dtype = dtype_of("q", q, ("float16", "bfloat16"))
    stored = dtype_of("keys", keys, (dtype.name, *EIGHT_BITS))
    dtype_of("values", values, (stored.name,))
    for name, x, rank in (("q", q, 4), ("keys", keys, 4)):
        same_rank(name, x, rank)
    check_index(table, lens, len(q))
    (_, H, M, D), (_, page, heads, _) = q.shape, keys.shape
    same_shape("keys", keys, (*keys.shape[:3], D))
    same_shape("values", values, tuple(keys.shape))
    if D not in HEAD_SIZES or page % 16 or not page or not 0 < M <= MOST_QUERIES:
        what = f"{M} queries of size {D} over pages of {page} keys"
        help = f"pass 1 to {MOST_QUERIES} queries of 64 or 128 elements, and pages of a multiple of 16 keys"
        raise LaunchError.of("shape-mismatch", what, help)
    if not heads or H % heads or H // heads * M > MOST_ROWS:
        what = f"{H} heads of {M} queries share {heads} heads of keys"
        help = f"pass a divisor of the heads, which leaves each of them at most {MOST_ROWS} rows of queries"
        raise LaunchError.of("shape-mismatch", what, help)
    check_scales(stored, heads, scales)
    return dtype


def check_index(table: torch.Tensor, lens: torch.Tensor, count: int) -> None:
    """Raise LaunchError unless `table` and `lens` are those of `count` sequences."""
    for name, x, rank in (("table", table, 2), ("lens", lens, 1)):
        same_rank(name, x, rank)
        dtype_of(name, x, ("int32",))
    same_shape("table", table, (count, table.shape[1]))
    same_shape("lens", lens, (count,))


def _fake(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    tensors, _, _ = _split(*given)
    _checked(*tensors)
    return results(tensors[0])


def _joined(tensors: Tensors, numbers: tuple[Number, ...], way: tuple[bool]) -> Tensors:
    scales = tensors[5:] if len(tensors) == 7 else (*tensors[5:], *(None,) * (7 - len(tensors)))
    return (*tensors[:5], *scales, numbers[0] / LOG2E if numbers else None, *way)


def _split(*given: Any) -> tuple[Tensors, tuple[Number, ...], tuple[bool]]:
    *tensors, scale, invariant = given
    found = tuple(x for x in tensors if x is not None)
    return found, () if scale is None else (scale * LOG2E,), (invariant,)


_decode = Function(
    _work,
    Operator(
        "attention_decode(Tensor q, Tensor keys, Tensor values, Tensor table, Tensor lens, Tensor? key_scale=None, "
        "Tensor? value_scale=None, float? scale=None, bool batch_invariant=False) -> (Tensor, Tensor)",
        _fake,
        join=_joined,
        split=_split,
    ),
)
