"""Attention with sinks, slopes and biases, values of other sizes, caches of 8 bits and latent heads, beside peers in
one run.

Peers: FlexAttention (compiled), PyTorch's `scaled_dot_product_attention` as it chooses a backend, and for decode our
own kernel over a cache of bfloat16. Times are taken as `benchmarks.measure` says. A rate counts both products of every
query with every key that it sees. Decode is compared with the time in which a sum reads as many bytes in the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import measure
from benchmarks.measure import Row
from benchmarks.table import Results

OURS, FLEX, SDPA, WIDE, READ = "argus", "flex", "sdpa", "cache of bfloat16", "read"
_SAMPLED = 64  # rows of a head that are compared


@dataclass(frozen=True)
class Case:
    """`batch` sequences of `keys` tokens, causal: `heads` heads of queries on `shared` of keys, of `size` elements,
    values of `values`. With a `page`, `queries` of each see a cache of that many keys a page, in the dtype `cache`."""

    form: str
    batch: int
    keys: int
    heads: int
    shared: int
    size: int
    values: int
    window: int = 0
    page: int = 0
    queries: int = 1
    cache: str = "bfloat16"

    @property
    def operations(self) -> int:
        """Multiplications and additions of both products."""
        seen = min(self.window or self.keys, self.keys)
        pairs = self.queries * self.keys if self.page else seen * (seen + 1) // 2 + (self.keys - seen) * seen
        return 2 * self.batch * self.heads * (self.size + self.values) * pairs

    @property
    def bytes_read(self) -> int:
        """Bytes of the cache that a decode step reads."""
        row = self.size if self.form == "latent" else 2 * self.size
        return self.batch * self.keys * self.shared * row * (2 if self.cache == "bfloat16" else 1)


CASES = (
    Case("sinks", 2, 4096, 64, 8, 64, 64, window=128),
    Case("sinks", 2, 4096, 64, 8, 64, 64),
    Case("slopes", 2, 4096, 32, 32, 128, 128),
    Case("bias", 2, 4096, 16, 16, 128, 128),
    Case("192/128", 2, 4096, 32, 32, 192, 128),
    Case("192/128", 1, 16384, 16, 16, 192, 128),
    Case("decode", 64, 4096, 32, 8, 128, 128, page=64, cache="float8_e4m3fn"),
    Case("decode", 64, 4096, 32, 8, 128, 128, page=64, cache="int8"),
    Case("decode", 8, 32768, 64, 8, 128, 128, page=128, cache="float8_e4m3fn"),
    Case("invariant", 64, 4096, 32, 8, 128, 128, page=64),
    Case("invariant", 4, 8192, 32, 8, 128, 128, page=64),
    Case("latent", 64, 4096, 16, 1, 576, 512, page=64),
    Case("latent", 64, 4096, 128, 1, 576, 512, page=64),
    Case("latent", 32, 8192, 32, 1, 576, 512, page=64, queries=2),
)


def run(cases: Sequence[Case], batches: int) -> Results:
    """One row a case, and geometric means. Needs a GPU."""
    measure.needs_gpu("attention-added")

    def rows_of(case: Case) -> tuple[list[Row], list[str]]:
        row, problems = row_of("cuda", case, batches)
        return [row], problems

    def told(row: Row) -> str:
        return f"{row['us']} us, {row['TFLOP/s']} TFLOP/s, {row['speed / best']} of the best, error {row['error']}"

    rows, notes = measure.through(cases, rows_of, told)
    return Results(
        "attention with more terms, and caches of other forms",
        rows,
        (
            measure.manner(batches),
            "error: largest difference from the result in float64, over that result's root mean square",
            "read: the time in which a sum reads as many bytes, in the same run",
            *notes,
        ),
        measure.means(rows, "speed / best", "form"),
    )


Side = Callable[..., Any]


def sides_of(case: Case) -> dict[str, Callable[[], Side]]:
    """Return functions that make the sides of a case, by name. A side takes the operands of `operands_of`."""
    from argus.kernels import attention_decode, attention_decode_latent, attention_with

    if case.form == "latent":
        scale = 192**-0.5
        return {OURS: lambda: lambda q, c, t, n, *_: attention_decode_latent(q, c, t, n, scale=scale), READ: _reading}
    if case.page:
        many = case.form == "invariant"

        def ours(q: Any, k: Any, v: Any, t: Any, n: Any, *scales: Any) -> Any:
            both = dict(zip(("key_scale", "value_scale"), scales, strict=False))
            return attention_decode(q, k, v, t, n, batch_invariant=many, **both)

        def wide(q: Any, k: Any, v: Any, t: Any, n: Any, *_: Any) -> Any:
            return attention_decode(q, k, v, t, n)

        return {OURS: lambda: ours, READ: _reading, **({WIDE: lambda: wide} if many else {})}
    name = {"sinks": "sinks", "slopes": "alibi_slopes", "bias": "bias"}.get(case.form)

    def added(q: Any, k: Any, v: Any, *more: Any) -> Any:
        return attention_with(q, k, v, causal=True, window=case.window or None, **({name: more[0]} if name else {}))

    peers: dict[str, Callable[[], Side]] = {OURS: lambda: added}
    if case.form in ("bias", "192/128"):
        peers[SDPA] = partial(_sdpa, case)
    if case.size == case.values:
        peers[FLEX] = partial(_flex, case)
    return peers


def _reading() -> Side:
    """A sum over the cache's bytes."""
    import torch

    def read(*operands: Any) -> Any:
        wide = [x.view(torch.int64) for x in operands if x.ndim >= 3 and x.numel() > 1 << 22]
        return [x.sum() for x in wide]

    return read


def _sdpa(case: Case) -> Side:
    import torch

    attend = torch.nn.functional.scaled_dot_product_attention
    if case.form == "bias":
        hidden = torch.full((case.keys, case.keys), -float("inf"), device="cuda").triu(1)
        return lambda q, k, v, bias: attend(q, k, v, attn_mask=(bias + hidden).to(q.dtype))
    return lambda q, k, v, *_: attend(q, k, v, is_causal=True)


def _flex(case: Case) -> Side:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    window = case.window or case.keys
    mask = create_block_mask(
        lambda b, h, i, j: (j <= i) & (i - j < window), None, None, case.keys, case.keys, device="cuda"
    )
    compiled = torch.compile(flex_attention, dynamic=False)
    call: Callable[..., Any] = partial(compiled, block_mask=mask, enable_gqa=case.shared != case.heads)
    if case.form == "sinks":

        def with_sinks(q: Any, k: Any, v: Any, sinks: Any) -> Any:
            o, lse = call(q, k, v, return_lse=True)
            return (o * torch.sigmoid(lse - sinks[:, None])[..., None]).to(q.dtype)

        return torch.compile(with_sinks, dynamic=False)
    if case.form == "slopes":
        return lambda q, k, v, slopes: call(q, k, v, score_mod=lambda x, b, h, i, j: x + slopes[h] * (j - i))
    return lambda q, k, v, bias: call(q, k, v, score_mod=lambda x, b, h, i, j: x + bias[b, h, i, j])


# ---------------------------------------------------------------------------- measurement


def row_of(device: str, case: Case, batches: int) -> tuple[Row, list[str]]:
    """The row of a case, and the reason of each side that cannot be run, whose figures are None."""
    sets = measure.rotating(lambda: operands_of(device, case), device)
    runs: dict[str, Callable[[], float]] = {}
    problems, error = [], None
    for name, maker in sides_of(case).items():
        try:
            call = maker()
            found = call(*sets[0])
            error = error_of(case, found, sets[0]) if name == OURS else error
            runs[name] = partial(measure.batch, call, sets)
        except Exception as problem:
            problems.append(f"{name} at {case}: {measure.reason(problem)}")
    seconds = measure.in_turns(runs, batches)
    mine, peers = seconds.get(OURS), [s for name, s in seconds.items() if name != OURS]
    row: Row = {
        "form": case.form,
        "B": case.batch,
        "N": case.keys,
        "H": case.heads,
        "H of k": case.shared,
        "D": case.size,
        "queries": case.queries if case.page else case.keys,
        "cache": case.cache if case.page else "",
        "window": case.window,
        "us": None if mine is None else 1e6 * mine,
        "TFLOP/s": None if mine is None else 1e-12 * case.operations / mine,
        "TB/s": 1e-12 * case.bytes_read / mine if case.page and mine else None,
    }
    row |= {f"{name} us": 1e6 * seconds[name] if name in seconds else None for name in (FLEX, SDPA, WIDE, READ)}
    return row | {"speed / best": None if mine is None or not peers else min(peers) / mine, "error": error}, problems


def operands_of(device: str, case: Case) -> Sequence[Any]:
    """The operands of a case's sides: queries, keys and values, and what is added to scores; of decode the pages,
    table, lengths and scales."""
    import torch

    def random(*shape: int) -> Any:
        return torch.randn(*shape, device=device).to(torch.bfloat16)

    B, N, H = case.batch, case.keys, case.heads
    if not case.page:
        rows = random(B, H, N, case.size), *(random(B, case.shared, N, d) for d in (case.size, case.values))
        added = {"bias": (B, H, N, N), "192/128": None}.get(case.form, (H,))
        if added is None:
            return rows
        return *rows, random(*added) if case.form == "bias" else torch.rand(*added, device=device)
    count, most = B, N // case.page
    table = torch.randperm(count * most, device=device).view(count, most).to(torch.int32)
    index = table, torch.full((count,), N, dtype=torch.int32, device=device)
    q = random(B, H, case.queries, case.size)
    if case.form == "latent":
        return q, random(count * most, case.page, case.size), *index
    caches = [random(count * most, case.page, case.shared, case.size) for _ in range(2)]
    if case.cache == "bfloat16":
        return q, *caches, *index
    whole = ((32 * x).to(getattr(torch, case.cache)) for x in caches)
    return q, *whole, *index, *(torch.full((case.shared,), 1 / 32, device=device) for _ in range(2))


def error_of(case: Case, found: Any, operands: Sequence[Any]) -> float:
    """The largest error on rows of the first and the last head of the last sequence, over the root mean square."""
    import torch

    b, worst = case.batch - 1, 0.0
    for head in {0, case.heads - 1}:
        shared = head * case.shared // case.heads
        q, rows = operands[0][b, head].double(), torch.arange(case.queries, device=found.device)
        if case.page:
            index, last = operands[-2 if case.form == "latent" else 3], case.keys - case.queries
            pages = operands[1][index[b].long()]
            if case.form == "latent":
                k = pages.flatten(0, 1).double()
                v, scale = k[:, : case.values], 192**-0.5
            else:
                k, v = (x[index[b].long()][:, :, shared].flatten(0, 1).double() for x in operands[1:3])
                k, v = (k / 32, v / 32) if case.cache != "bfloat16" else (k, v)
                scale = case.size**-0.5
            place = rows + last
        else:
            rows = torch.randperm(case.keys, device=found.device)[:_SAMPLED]
            (k, v), scale, place = (x[b, shared].double() for x in operands[1:3]), case.size**-0.5, rows
        x = q[rows] @ k.T * scale
        behind = place[:, None] - torch.arange(len(k), device=found.device)
        if case.form == "slopes":
            x = x - operands[3][head].double() * behind
        if case.form == "bias":
            x = x + operands[3][b, head, rows].double()
        x = x.masked_fill((behind < 0) | (behind >= (case.window or len(k))), -float("inf"))
        sink = operands[3][head].double().expand(len(x), 1) if case.form == "sinks" else x[:, :0]
        weights = torch.softmax(torch.cat((x, sink), 1), -1)[:, : len(k)]
        worst = max(worst, measure.relative_error(found[b, head, rows], weights @ v))
    return worst
