"""Attention with windows, soft caps, packed sequences and paged decode beside PyTorch's own kernels, in one run.

Peers: FlexAttention (compiled), FlashAttention as PyTorch has it, cuDNN. A peer of decode reads dense keys, without
pages. Times are taken as `benchmarks.measure` says. A rate counts two products of every query with every key that it
sees. The error is the largest difference from the result in float64 on some rows of two heads, in units of that
result's root mean square.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from benchmarks import measure
from benchmarks.measure import Row
from benchmarks.table import Results

OURS, FLEX, FLASH, CUDNN = "argus", "flex", "flash", "cuDNN"
PEERS = (FLEX, FLASH, CUDNN)
_SAMPLED = 256  # rows of each of two heads of a sequence that are compared


@dataclass(frozen=True)
class Case:
    """Sequences of `lengths` tokens: `heads` heads of queries on `shared` of keys, of `size` elements, bfloat16.

    `window` and `cap` are 0 for none. With a `page`, one query of each sequence sees a cache of that many keys a page.
    """

    form: str
    lengths: tuple[int, ...]
    heads: int
    shared: int
    size: int
    causal: bool = True
    window: int = 0
    cap: float = 0.0
    page: int = 0

    def __str__(self) -> str:
        return f"{self.form} {self.tokens} {self.heads} {self.shared} {self.size} {'causal' if self.causal else 'full'}"

    @property
    def tokens(self) -> str:
        """The lengths in a few words."""
        even = len(set(self.lengths)) == 1
        return f"{len(self.lengths)} x {self.lengths[0]}" if even else f"{len(self.lengths)} of {sum(self.lengths)}"

    @property
    def operations(self) -> int:
        """Multiplications and additions of both products, over the pairs of a query and a key that it sees."""
        return 4 * self.heads * self.size * sum(map(self._pairs, self.lengths))

    def _pairs(self, length: int) -> int:
        if self.page:
            return length
        if not self.causal:
            return length * length
        seen = min(self.window or length, length)
        return seen * (seen + 1) // 2 + (length - seen) * seen

    @property
    def bytes_read(self) -> int:
        """Bytes of the keys and values that a decode step reads."""
        return 4 * self.shared * self.size * sum(self.lengths)


def uneven(count: int, tokens: int, seed: int) -> tuple[int, ...]:
    """Lengths that differ by a factor of 50 and more, together `tokens`."""
    draw = Random(seed)
    shares = [draw.random() ** 3 + 0.02 for _ in range(count)]
    lengths = [int(tokens * share / sum(shares)) for share in shares]
    return (*lengths[:-1], tokens - sum(lengths[:-1]))


CASES = (
    Case("window 1024", (16384,), 32, 32, 128, window=1024),
    Case("window 4096", (16384,), 32, 8, 128, window=4096),
    Case("window 512", (4096,) * 2, 32, 32, 64, window=512),
    Case("soft cap 50", (4096,) * 2, 32, 32, 128, cap=50.0),
    Case("packed", (4096,) * 8, 32, 32, 128),
    Case("packed", uneven(16, 32768, 1), 32, 8, 128),
    Case("packed", uneven(16, 32768, 1), 32, 8, 128, causal=False),
    Case("packed", uneven(64, 32768, 2), 32, 8, 128),
    Case("packed", uneven(16, 32768, 1), 32, 32, 64),
    Case("packed", uneven(1024, 40960, 3), 16, 16, 64),
    Case("decode", (4096,) * 64, 32, 8, 128, page=128),
    Case("decode", (32768,) * 8, 64, 8, 128, page=128),
    Case("decode", (4096,) * 64, 32, 8, 128, page=16),
    Case("decode", (1024,) * 128, 32, 8, 128, page=64),
)


def run(cases: Sequence[Case], batches: int) -> Results:
    """One row a case, and the geometric mean. Needs a GPU."""
    measure.needs_gpu("attention-forms")

    def rows_of(case: Case) -> tuple[list[Row], list[str]]:
        row, problems = row_of("cuda", case, sides_of(case), batches)
        return [row], problems

    def told(row: Row) -> str:
        return f"{row['us']} us, {row['TFLOP/s']} TFLOP/s, {row['speed / best']} of the best"

    rows, notes = measure.through(cases, rows_of, told)
    return Results(
        "attention in other forms, forward",
        rows,
        (
            measure.manner(batches),
            "TFLOP/s: 4 operations for each element of a head and each pair of a query and a key that it sees",
            "error: largest difference from the result in float64, over that result's root mean square",
            *notes,
        ),
        measure.means(rows, "speed / best"),
    )


# ---------------------------------------------------------------------------- sides

Make = Callable[[], Callable[..., Any]]
"""Makes a side, or raises. A side takes the operands of `operands_of`, and returns `[tokens, heads, size]`."""


def sides_of(case: Case) -> Mapping[str, Make]:
    """The sides of a case by name."""
    if case.page:
        return {OURS: partial(_our_decode, case), CUDNN: partial(_dense_decode, case)}
    if case.form == "packed":
        return {OURS: partial(_our_packed, case), FLEX: partial(_flex_packed, case), FLASH: partial(_flash, case)}
    return {OURS: partial(_ours, case), FLEX: partial(_flex, case), FLASH: partial(_flash, case)}


def _dense(case: Case, x: Any) -> Any:
    """Packed rows of equal sequences as `[batch, heads, rows, size]`."""
    return x.view(len(case.lengths), -1, *x.shape[1:]).transpose(1, 2)


def _rows(x: Any) -> Any:
    return x.transpose(1, 2).flatten(0, 1)


def _ours(case: Case) -> Callable[..., Any]:
    from argus.kernels import attention_with

    more: dict[str, Any] = {"causal": case.causal, "window": case.window or None, "softcap": case.cap or None}
    return lambda q, k, v, *_: _rows(attention_with(*(_dense(case, x) for x in (q, k, v)), **more))


def _our_packed(case: Case) -> Callable[..., Any]:
    from argus.kernels import attention_varlen

    return lambda q, k, v, offsets, *_: attention_varlen(q, k, v, offsets, offsets, causal=case.causal)


def _flash(case: Case) -> Callable[..., Any]:
    import torch

    if case.cap:
        raise ValueError("PyTorch's FlashAttention has no soft cap")
    attend, most = torch.ops.aten._flash_attention_forward, max(case.lengths)
    more = {"window_size_left": case.window - 1, "window_size_right": 0} if case.window else {}
    return lambda q, k, v, o, *_: attend(q, k, v, o, o, most, most, 0.0, case.causal, False, **more)[0]


def _flex(case: Case) -> Callable[..., Any]:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    length, window, cap = case.lengths[0], case.window or case.lengths[0], case.cap
    mask = create_block_mask(lambda b, h, i, j: (j <= i) & (i - j < window), None, None, length, length, device="cuda")
    score = (lambda x, b, h, i, j: cap * torch.tanh(x / cap)) if cap else None
    compiled = torch.compile(flex_attention, dynamic=False)
    call = partial(compiled, score_mod=score, block_mask=mask, enable_gqa=case.shared != case.heads)
    return lambda q, k, v, *_: _rows(call(*(_dense(case, x) for x in (q, k, v))))


def _flex_packed(case: Case) -> Callable[..., Any]:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    tokens, lengths = sum(case.lengths), torch.tensor(case.lengths, device="cuda")
    owner = torch.repeat_interleave(torch.arange(len(case.lengths), device="cuda"), lengths)

    def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (owner[i] == owner[j]) & ((j <= i) if case.causal else (j >= 0))

    mask = create_block_mask(seen, None, None, tokens, tokens, device="cuda", _compile=True)
    compiled = torch.compile(flex_attention, dynamic=False)
    call = partial(compiled, block_mask=mask, enable_gqa=case.shared != case.heads)
    return lambda q, k, v, *_: call(*(x.transpose(0, 1)[None] for x in (q, k, v)))[0].transpose(0, 1)


def _our_decode(_case: Case) -> Callable[..., Any]:
    import torch

    from argus.kernels import attention_decode

    def call(q: Any, _k: Any, _v: Any, keys: Any, values: Any, table: Any, lens: Any) -> Any:
        found = attention_decode(q, keys, values, table, lens)
        assert isinstance(found, torch.Tensor)
        return found[:, :, 0]

    return call


def _dense_decode(_case: Case) -> Callable[..., Any]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def call(q: Any, k: Any, v: Any, *_: Any) -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)[:, :, 0]

    return call


# ---------------------------------------------------------------------------- measurement


def row_of(device: str, case: Case, makers: Mapping[str, Make], batches: int) -> tuple[Row, list[str]]:
    """The row of a case, and the reason of each side that cannot be run, whose figures are None."""
    sets = measure.rotating(lambda: operands_of(device, case), device)
    runs: dict[str, Callable[[], float]] = {}
    errors: dict[str, float] = {}
    problems = []
    for name, maker in makers.items():
        try:
            call = maker()
            errors[name] = error_of(case, call(*sets[0]), sets[0])
            runs[name] = partial(measure.batch, call, sets)
        except Exception as error:
            problems.append(f"{name} at {case}: {measure.reason(error)}")
    seconds = measure.in_turns(runs, batches)
    mine, peers = seconds.get(OURS), [seconds[name] for name in PEERS if name in seconds]
    row: Row = {
        "form": case.form,
        "tokens": case.tokens,
        "H": case.heads,
        "H of k": case.shared,
        "D": case.size,
        "mask": "causal" if case.causal else "full",
        "us": None if mine is None else 1e6 * mine,
        "TFLOP/s": None if mine is None else 1e-12 * case.operations / mine,
        "TB/s": 1e-12 * case.bytes_read / mine if case.page and mine else None,
    }
    row |= {f"{name} us": 1e6 * seconds[name] if name in seconds else None for name in PEERS}
    row["speed / best"] = None if mine is None or not peers else min(peers) / mine
    return row | {"error" if n == OURS else f"{n} error": errors.get(n) for n in (OURS, *PEERS)}, problems


def operands_of(device: str, case: Case) -> Sequence[Any]:
    """q, k, v, packed, and the sequences' offsets; of decode q, dense k and v, and their pages, table and lengths."""
    import torch

    def random(*shape: int) -> Any:
        return torch.randn(*shape, case.size, device=device).to(torch.bfloat16)

    lengths = torch.tensor(case.lengths, dtype=torch.int32)
    if not case.page:
        tokens, offsets = sum(case.lengths), torch.cat((torch.zeros(1), lengths.cumsum(0))).to(device, torch.int32)
        return *(random(tokens, heads) for heads in (case.heads, case.shared, case.shared)), offsets
    count, most = len(case.lengths), max(case.lengths) // case.page
    keys, values = (random(count * most, case.page, case.shared) for _ in range(2))
    table = torch.randperm(count * most).view(count, most).to(device, torch.int32)
    dense = (x[table.long()].flatten(1, 2).transpose(1, 2).contiguous() for x in (keys, values))
    return random(count, case.heads, 1), *dense, keys, values, table, lengths.to(device)


def error_of(case: Case, found: Any, operands: Sequence[Any]) -> float:
    """The largest error on rows of two heads of the first and the last sequence, over the root mean square there."""
    worst, starts = 0.0, [0]
    for length in case.lengths:
        starts.append(starts[-1] + length)
    for b in {0, len(case.lengths) - 1}:
        for head in {0, case.heads - 1}:
            q, k, v = operands[:3]
            shared = head * case.shared // case.heads
            if case.page:
                mine, one = found[b, head][None], (q[b, head], k[b, shared], v[b, shared])
            else:
                rows = slice(starts[b], starts[b + 1])
                mine, one = found[rows, head], (q[rows, head], k[rows, shared], v[rows, shared])
            worst = max(worst, _error(case, mine, *one))
    return worst


def _error(case: Case, found: Any, q: Any, k: Any, v: Any) -> float:
    import torch

    rows = torch.randperm(len(q), device=q.device)[:_SAMPLED]
    scores = q[rows].double() @ k.double().T * case.size**-0.5
    if case.cap:
        scores = case.cap * torch.tanh(scores / case.cap)
    if case.causal and not case.page:
        behind = rows[:, None] - torch.arange(len(k), device=q.device)
        scores = scores.masked_fill((behind < 0) | (behind >= (case.window or len(k))), -float("inf"))
    return measure.relative_error(found[rows], torch.softmax(scores, -1) @ v.double())
