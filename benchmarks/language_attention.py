"""Attention and decode beside FlashAttention-4, FlashInfer and cuDNN: the cases of `benchmarks.language`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.attention_forms import uneven
from benchmarks.language import OURS, Case, Side, distance, normal

FA4, CUDNN, INFER = "FlashAttention-4", "cuDNN", "FlashInfer"
_ROWS = 256  # of a head that are compared
_LONG = 4096  # rows above which gradients are compared on some rows alone


@dataclass(frozen=True)
class Shape:
    """`batch` sequences of `rows` tokens, `heads` heads of queries on `shared` of keys, of `size` elements."""

    batch: int
    heads: int
    shared: int
    rows: int
    size: int
    causal: bool
    window: int = 0

    def __str__(self) -> str:
        mask = f"window {self.window}" if self.window else "causal" if self.causal else "full"
        return f"B{self.batch} H{self.heads}/{self.shared} {self.rows} D{self.size} {mask}"

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees, of a head."""
        if not self.causal:
            return self.rows * self.rows
        seen = min(self.window or self.rows, self.rows)
        return seen * (seen + 1) // 2 + (self.rows - seen) * seen

    def operations(self, products: int) -> int:
        """Multiplications and additions of so many products."""
        return 2 * products * self.batch * self.heads * self.pairs * self.size


_FORWARD = (
    Shape(1, 32, 32, 16384, 128, False),
    Shape(2, 32, 32, 4096, 64, False),
    Shape(1, 32, 32, 16384, 64, True),
    Shape(2, 32, 8, 8192, 128, True),
    Shape(2, 32, 32, 4096, 128, False),
    Shape(2, 32, 32, 4096, 128, True),
    Shape(1, 32, 32, 16384, 128, True),
    Shape(2, 32, 32, 4096, 64, True),
    Shape(8, 32, 32, 1024, 128, True),
    Shape(1, 32, 32, 16384, 128, True, window=1024),
)
_BACKWARD = (
    Shape(2, 32, 32, 4096, 128, False),
    Shape(2, 32, 32, 4096, 128, True),
    Shape(2, 32, 8, 8192, 128, True),
    Shape(2, 32, 32, 4096, 64, False),
    Shape(2, 32, 32, 4096, 64, True),
    Shape(1, 32, 32, 16384, 128, True),
)
_PACKED = (uneven(16, 32768, 1), uneven(64, 32768, 2))
_PAGED = (
    ((4096,) * 64, 32, 8, 128),
    ((4096,) * 64, 32, 8, 16),
    ((32768,) * 8, 64, 8, 128),
    ((1024,) * 128, 32, 8, 64),
    ((32768,), 32, 8, 64),
    (uneven(64, 200_000, 4), 32, 8, 64),
    (uneven(16, 100_000, 5), 64, 8, 16),
)


def cases() -> tuple[Case, ...]:
    """The rows of attention."""
    return (
        *(_forward(s) for s in _FORWARD),
        *(_packed(lengths, causal) for lengths in _PACKED for causal in (True, False)),
        *(_backward(s) for s in _BACKWARD),
        *(_decode(*given) for given in _PAGED),
        *(_invariant(s) for s in (_FORWARD[5], _FORWARD[8])),
        _invariant_decode((4096,) * 64, 32, 8, 64),
        _invariant_decode((8192,) * 4, 32, 8, 64),
    )


def _turned(*tensors: Any) -> Any:
    """Copies with tokens before heads, or the other way round."""
    found = tuple(t.transpose(1, 2).contiguous() for t in tensors)
    return found if len(found) > 1 else found[0]


def _sdpa(backend: str, **how: Any) -> Callable[..., Any]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def call(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **how)

    return call


# ---------------------------------------------------------------------------- forward


def _qkv(s: Shape) -> Sequence[Any]:
    heads = (s.heads, s.shared, s.shared)
    return [normal(s.batch, h, s.rows, s.size) for h in heads]


def _forward(s: Shape) -> Case:
    def ours() -> Side:
        from argus.kernels import attention, attention_with

        return Side(
            partial(attention_with, causal=True, window=s.window) if s.window else partial(attention, causal=s.causal)
        )

    def flash() -> Side:
        from flash_attn.cute.interface import flash_attn_func

        window = (s.window - 1, 0) if s.window else (None, None)
        call = partial(flash_attn_func, causal=s.causal and not s.window, window_size=window)
        return Side(call, _turned, lambda found: (found[0] if isinstance(found, tuple) else found).transpose(1, 2))

    def cudnn() -> Side:
        return Side(_sdpa("CUDNN_ATTENTION", is_causal=s.causal, enable_gqa=s.heads != s.shared))

    sides: dict[str, Callable[[], Side]] = {OURS: ours, FA4: flash}
    if not s.window:
        sides[CUDNN] = cudnn
    return Case("attention", str(s), partial(_qkv, s), sides, partial(_error, s), s.operations(2))


def _error(s: Shape, found: Any, q: Any, k: Any, v: Any) -> float:
    """The error on some rows of the first and the last head."""
    import torch

    worst = 0.0
    rows = torch.randperm(s.rows, device=q.device)[:_ROWS]
    for b, h in {(0, 0), (s.batch - 1, s.heads - 1)}:
        own = h * s.shared // s.heads
        worst = max(worst, distance(found[b, h, rows], _exact(q[b, h], k[b, own], v[b, own], rows, s.causal, s.window)))
    return worst


def _weights(q: Any, k: Any, rows: Any, causal: bool, window: int = 0) -> Any:
    import torch

    scores = q[rows].double() @ k.double().T * q.shape[-1] ** -0.5
    if causal:
        behind = rows[:, None] + len(k) - len(q) - torch.arange(len(k), device=q.device)
        scores = scores.masked_fill((behind < 0) | (behind >= (window or len(k))), -float("inf"))
    return torch.softmax(scores, -1)


def _exact(q: Any, k: Any, v: Any, rows: Any, causal: bool, window: int = 0) -> Any:
    return _weights(q, k, rows, causal, window) @ v.double()


def _packed(lengths: tuple[int, ...], causal: bool) -> Case:
    heads, shared, size, most = 32, 8, 128, max(lengths)
    pairs = sum(n * (n + 1) // 2 if causal else n * n for n in lengths)

    def operands() -> Sequence[Any]:
        import torch

        offsets = torch.tensor((0, *lengths)).cumsum(0).to("cuda", torch.int32)
        return *(normal(sum(lengths), h, size) for h in (heads, shared, shared)), offsets

    def ours() -> Side:
        from argus.kernels import attention_varlen

        return Side(lambda q, k, v, o: attention_varlen(q, k, v, o, o, causal=causal))

    def flash() -> Side:
        from flash_attn.cute.interface import flash_attn_varlen_func

        def call(q: Any, k: Any, v: Any, o: Any) -> Any:
            found = flash_attn_varlen_func(
                q, k, v, cu_seqlens_q=o, cu_seqlens_k=o, max_seqlen_q=most, max_seqlen_k=most, causal=causal
            )
            return found[0] if isinstance(found, tuple) else found

        return Side(call)

    def error(found: Any, q: Any, k: Any, v: Any, offsets: Any) -> float:
        import torch

        worst, start = 0.0, 0
        for length in lengths[:2]:
            own = slice(start, start + length)
            rows = torch.randperm(length, device=q.device)[:_ROWS]
            exact = _exact(q[own, heads - 1], k[own, shared - 1], v[own, shared - 1], rows, causal)
            worst, start = max(worst, distance(found[own, heads - 1][rows], exact)), start + length
        return worst

    name = f"{len(lengths)} of {sum(lengths)} tokens H{heads}/{shared} D{size} {'causal' if causal else 'full'}"
    operations = 4 * heads * size * pairs
    return Case("attention, packed", name, operands, {OURS: ours, FA4: flash}, error, operations)


def _invariant(s: Shape) -> Case:
    """The batch-invariant form beside our own fastest."""

    def fixed() -> Side:
        from argus.kernels import attention_with

        return Side(partial(attention_with, causal=s.causal, batch_invariant=True))

    def fastest() -> Side:
        from argus.kernels import attention

        return Side(partial(attention, causal=s.causal))

    sides = {OURS: fixed, "our fastest": fastest}
    return Case("batch-invariant", f"attention {s}", partial(_qkv, s), sides, partial(_error, s), s.operations(2))


# ---------------------------------------------------------------------------- backward


def _backward(s: Shape) -> Case:
    import torch

    def operands() -> Sequence[Any]:
        from argus.kernels import attention

        q, k, v = _qkv(s)
        y, lse = attention(q, k, v, causal=s.causal, return_lse=True)
        return torch.randn_like(q), q, k, v, y, lse

    def ours() -> Side:
        from argus.kernels import attention_backward

        return Side(partial(attention_backward, causal=s.causal))

    def flash() -> Side:
        from flash_attn.cute.interface import _flash_attn_bwd

        def prepared(dy: Any, q: Any, k: Any, v: Any, y: Any, lse: Any) -> Any:
            return *_turned(q, k, v, y, dy), lse

        def call(q: Any, k: Any, v: Any, y: Any, dy: Any, lse: Any) -> Any:
            return _flash_attn_bwd(q, k, v, y, dy, lse, causal=s.causal)[:3]

        return Side(call, prepared, lambda found: tuple(x.transpose(1, 2) for x in found))

    def cudnn() -> Side:
        forward = _sdpa("CUDNN_ATTENTION", is_causal=s.causal, enable_gqa=s.heads != s.shared)

        def prepared(dy: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            # Gradients run on the stream of their forward pass, and a graph needs a stream of its own.
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            with torch.cuda.stream(stream):
                found = forward(*leaves)
            stream.synchronize()
            return found, dy, stream, *leaves

        def call(found: Any, dy: Any, stream: Any, *leaves: Any) -> Any:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                gradients = torch.autograd.grad(found, leaves, dy, retain_graph=True)
            torch.cuda.current_stream().wait_stream(stream)
            return gradients

        return Side(call, prepared)

    return Case(
        "attention backward", str(s), operands, {OURS: ours, FA4: flash, CUDNN: cudnn}, partial(_gradient_error, s),
        s.operations(5),
    )  # fmt: skip


def _gradient_error(s: Shape, found: Any, dy: Any, q: Any, k: Any, v: Any, *_: Any) -> float:
    """The largest error of the three gradients, of one head of keys; of long sequences, that of some rows of q's."""
    import torch

    if s.rows > _LONG:
        rows = torch.randperm(s.rows, device=q.device)[:_ROWS]
        return distance(found[0][0, 0, rows], _exact_gradient(q[0, 0], k[0, 0], v[0, 0], dy[0, 0], rows, s.causal))
    group, wide = s.heads // s.shared, torch.float64
    with torch.enable_grad():
        own = [x.detach().to(wide).requires_grad_() for x in (q[0, :group], k[0, :1], v[0, :1])]
        scores = own[0] @ own[1].mT * s.size**-0.5
        if s.causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -float("inf"))
        exact = torch.autograd.grad(torch.softmax(scores, -1) @ own[2], own, dy[0, :group].to(wide))
    return distance((found[0][0, :group], found[1][0, :1], found[2][0, :1]), exact)


def _exact_gradient(q: Any, k: Any, v: Any, dy: Any, rows: Any, causal: bool) -> Any:
    """The gradient of some rows of q."""
    weights, slopes = _weights(q, k, rows, causal), dy[rows].double() @ v.double().T
    slopes = weights * (slopes - (weights * slopes).sum(-1, keepdim=True))
    return slopes @ k.double() * q.shape[-1] ** -0.5


# ---------------------------------------------------------------------------- decode


def _pages(lengths: tuple[int, ...], heads: int, shared: int, page: int) -> Sequence[Any]:
    """q, pages of keys and of values, the table and the lengths. Entries behind a sequence's last page are 0."""
    import torch

    counts = [-(-n // page) for n in lengths]
    keys, values = (normal(sum(counts), page, shared, 128) for _ in range(2))
    order, table = torch.randperm(sum(counts)).int(), torch.zeros(len(lengths), max(counts), dtype=torch.int32)
    for row, own in zip(table, torch.split(order, counts), strict=True):
        row[: len(own)] = own
    return normal(len(lengths), heads, 1, 128), keys, values, table.cuda(), torch.tensor(lengths).int().cuda()


def _decode_error(found: Any, q: Any, keys: Any, values: Any, table: Any, lens: Any) -> float:
    import torch

    worst = 0.0
    for b in {0, len(q) - 1}:
        length = int(lens[b])
        k, v = (x[table[b].long()].flatten(0, 1)[:length, -1] for x in (keys, values))
        exact = _exact(q[b, -1], k, v, torch.zeros(1, dtype=torch.long, device=q.device), False)
        worst = max(worst, distance(found[b, -1].view(1, -1), exact))
    return worst


def _our_decode(**how: Any) -> Callable[[], Side]:
    def make() -> Side:
        from argus.kernels import attention_decode

        return Side(partial(attention_decode, **how))

    return make


def _decode(lengths: tuple[int, ...], heads: int, shared: int, page: int) -> Case:
    even = len(set(lengths)) == 1

    def flash() -> Side:
        from flash_attn.cute.interface import flash_attn_varlen_func

        def call(q: Any, keys: Any, values: Any, table: Any, lens: Any) -> Any:
            found = flash_attn_varlen_func(
                q, keys, values, page_table=table, seqused_k=lens, max_seqlen_k=max(lengths), causal=True, num_splits=1
            )
            return found[0] if isinstance(found, tuple) else found

        return Side(call, lambda q, *more: (_turned(q), *more), lambda found: found.transpose(1, 2))

    def dense() -> Side:
        def prepared(q: Any, keys: Any, values: Any, table: Any, _: Any) -> Any:
            return q, *(x[table.long()].flatten(1, 2).transpose(1, 2).contiguous() for x in (keys, values))

        return Side(_sdpa("CUDNN_ATTENTION", enable_gqa=True), prepared)

    sides: dict[str, Callable[[], Side]] = {
        OURS: _our_decode(),
        FA4: flash,
        INFER: partial(_infer, heads, shared, page),
    }
    if even:
        sides[CUDNN] = dense
    words = f"{len(lengths)} x {lengths[0]}" if even else f"{len(lengths)} of {sum(lengths)} tokens"
    name = f"{words} H{heads}/{shared} pages of {page}"
    operands = partial(_pages, lengths, heads, shared, page)
    return Case("decode", name, operands, sides, _decode_error, read=4 * shared * 128 * sum(lengths))


def _infer(heads: int, shared: int, page: int) -> Side:
    """FlashInfer's decode with tensor cores, planned for each set of operands; planning is not measured."""
    import torch
    from flashinfer.decode import BatchDecodeWithPagedKVCacheWrapper

    space = torch.zeros(2**27, dtype=torch.uint8, device="cuda")

    def prepared(q: Any, keys: Any, values: Any, table: Any, lens: Any) -> Any:
        counts = (lens + page - 1) // page
        ends = torch.cat((torch.zeros_like(counts[:1]), counts.cumsum(0))).int()
        pages = torch.cat([row[:n] for row, n in zip(table, counts.tolist(), strict=True)])
        wrapper = BatchDecodeWithPagedKVCacheWrapper(space, "NHD", use_tensor_cores=True, backend="fa2")
        last = lens - (counts - 1) * page
        wrapper.plan(ends, pages, last.int(), heads, shared, 128, page, q_data_type=q.dtype, kv_data_type=q.dtype)
        return wrapper, q[:, :, 0].contiguous(), keys, values

    return Side(lambda wrapper, q, k, v: wrapper.run(q, (k, v)), prepared, lambda found: found[:, :, None])


def _invariant_decode(lengths: tuple[int, ...], heads: int, shared: int, page: int) -> Case:
    name = f"decode {len(lengths)} x {lengths[0]} H{heads}/{shared} pages of {page}"
    sides = {OURS: _our_decode(batch_invariant=True), "our fastest": _our_decode()}
    operands = partial(_pages, lengths, heads, shared, page)
    return Case("batch-invariant", name, operands, sides, _decode_error, read=4 * shared * 128 * sum(lengths))
