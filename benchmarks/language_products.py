"""Products with experts' and quantised weights beside quack, sonic-moe, DeepGEMM, cuBLAS and Triton: the cases of
`benchmarks.language`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from benchmarks.language import OURS, Case, Side, distance, normal

QUACK, TORCH, TRITON, SONIC, DEEP = "quack", "PyTorch", "Triton", "sonic-moe", "DeepGEMM"


@dataclass(frozen=True)
class Model:
    """`tokens` tokens of `hidden` elements, each for `chosen` of `experts` experts of `inner` elements."""

    name: str
    experts: int
    chosen: int
    hidden: int
    inner: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.name} {self.tokens} tokens"

    @property
    def pairs(self) -> int:
        """Rows of all experts together."""
        return self.tokens * self.chosen


_MODELS = (
    Model("Mixtral", 8, 2, 4096, 14336, 8192),
    Model("DeepSeek 32 of 256", 32, 8, 7168, 2048, 4096),
    Model("Qwen3", 128, 8, 2048, 768, 16384),
)
_LAYERS = (
    Model("Mixtral", 8, 2, 4096, 14336, 4096),
    Model("Mixtral", 8, 2, 4096, 14336, 64),
    Model("DeepSeek 64 of 256", 64, 8, 7168, 2048, 4096),
    Model("DeepSeek 64 of 256", 64, 8, 7168, 2048, 64),
    Model("Qwen3", 128, 8, 2048, 768, 4096),
    Model("Qwen3", 128, 8, 2048, 768, 64),
)
_BLOCKS = (
    (4096, 4096, 7168),
    (8192, 8192, 8192),
    (4096, 24576, 1536),
    (4096, 7168, 2048),
    (128, 7168, 4096),
    (64, 7168, 2048),
)
_INT4 = tuple((m, n, k) for n, k in ((28672, 8192), (4096, 4096), (14336, 4096), (4096, 14336)) for m in (1, 16, 64))
_ROWS = tuple((m, n, k) for n, k in ((4096, 4096), (4096, 14336), (28672, 4096)) for m in (1, 64, 1024, 8192))
_GROUP = 128
_TILE = 128  # rows and columns that share a scale


def cases() -> tuple[Case, ...]:
    """The rows of products."""
    return (
        *(_gathered(m) for m in _MODELS),
        *(_layer(m) for m in _LAYERS),
        *(_blocks(*shape) for shape in _BLOCKS),
        *(_sorted(m, down) for m in _MODELS for down in (False, True)),
        *(_int4(*shape) for shape in _INT4),
        *(_invariant(*shape) for shape in _ROWS),
    )


@cache
def _quack() -> Any:
    """quack's products, which tune their tiles for each shape: here by some ten calls of each candidate."""
    import quack.autotuner
    import triton
    from quack import gemm_interface

    def few(call: Any, given: Any, named: Any, extra_kwargs: Any, quantiles: Any = ()) -> Any:
        once = partial(call, *given[0], **named[0], **extra_kwargs)
        return triton.testing.do_bench(once, warmup=2, rep=10, quantiles=quantiles)

    quack.autotuner._bench_cuda_graph_l2_rotate = few
    return gemm_interface


# ---------------------------------------------------------------------------- rows of experts


def _chosen(m: Model) -> Any:
    """Numbers of experts, int32 `[tokens, chosen]`, without repetition in a row."""
    import torch

    return torch.rand(m.tokens, m.experts, device="cuda").topk(m.chosen, -1).indices.int()


def _offsets(chosen: Any, count: int) -> Any:
    import torch

    ends = torch.bincount(chosen.flatten(), minlength=count).cumsum(0)
    return torch.cat((torch.zeros_like(ends[:1]), ends)).int()


def _sorted(m: Model, down: bool) -> Case:
    depth, columns = (m.inner, m.hidden) if down else (m.hidden, 2 * m.inner)

    def operands() -> Sequence[Any]:
        return normal(m.pairs, depth), normal(m.experts, columns, depth), _offsets(_chosen(m), m.experts)

    def ours() -> Side:
        from argus.kernels.grouped import grouped_product

        return Side(lambda x, w, offsets: grouped_product(x, w.mT, offsets))

    def vendor() -> Side:
        import torch

        return Side(lambda x, w, offsets: torch._grouped_mm(x, w.mT, offs=offsets[1:]))

    def quack() -> Side:
        return Side(lambda x, w, offsets: _quack().gemm(x, w.mT, cu_seqlens_m=offsets))

    def error(found: Any, x: Any, w: Any, offsets: Any) -> float:
        first, last = offsets[-2:].tolist()
        rows = slice(first, min(last, first + 256))
        return distance(found[rows], x[rows].double() @ w[-1].double().T)

    return Case(
        "grouped products", f"{m} {'down' if down else 'up'}", operands, {OURS: ours, TORCH: vendor, QUACK: quack},
        error, 2 * m.pairs * depth * columns,
    )  # fmt: skip


def _gathered(m: Model) -> Case:
    """The first product of experts, from the tokens in their own order to what passes the gates."""

    def operands() -> Sequence[Any]:
        return normal(m.tokens, m.hidden), normal(m.experts, 2 * m.inner, m.hidden), _chosen(m)

    def ours() -> Side:
        from argus.ir.types import DTYPES
        from argus.kernels import experts
        from argus.kernels.expert_products import Products
        from argus.kernels.sorting import order_of

        def prepared(x: Any, w: Any, chosen: Any) -> Any:
            order = order_of(chosen, m.experts)
            products, hidden = Products(order, DTYPES["bfloat16"]), x.new_empty(m.pairs, m.inner)
            products.add(x, order.token, w, hidden, ACTIVATION=experts.swiglu)
            for call in order.calls:
                call.run()
            return products.calls[len(order.calls) :], hidden

        def call(calls: Any, hidden: Any) -> Any:
            for each in calls:
                each.run()
            return hidden

        return Side(call, prepared)

    def rows(x: Any, w: Any, chosen: Any) -> Any:
        """Tokens of rows and offsets of experts, as peers take them."""
        order = chosen.flatten().sort(stable=True).indices
        return x, w, (order // m.chosen).int(), _offsets(chosen, m.experts)

    def fused() -> Side:
        def call(x: Any, w: Any, token: Any, offsets: Any) -> Any:
            how = {"cu_seqlens_m": offsets, "A_idx": token, "store_preact": False, "concat_layout": ("B",)}
            return _quack().gemm_gated(x, w.mT, activation="swiglu", **how)[1]

        return Side(call, rows)

    def separate() -> Side:
        from argus.kernels import silu_mul

        def call(x: Any, w: Any, token: Any, offsets: Any) -> Any:
            both = _quack().gemm(x, w.mT, cu_seqlens_m=offsets, A_idx=token)
            return silu_mul(both[:, : m.inner], both[:, m.inner :])

        return Side(call, rows)

    def error(found: Any, x: Any, w: Any, chosen: Any) -> float:
        import torch

        _, _, token, offsets = rows(x, w, chosen)
        first, last = offsets[-2:].tolist()
        own = slice(first, min(last, first + 256))
        gate, up = (x[token[own].long()].double() @ w[-1].double().T).chunk(2, -1)
        return distance(found[own], torch.nn.functional.silu(gate) * up)

    sides = {OURS: ours, "quack gemm_gated": fused, "quack, activation apart": separate}
    return Case("gather and SwiGLU", str(m), operands, sides, error, 4 * m.pairs * m.hidden * m.inner)


# ---------------------------------------------------------------------------- whole layers of experts


def _layer(m: Model) -> Case:
    def operands() -> Sequence[Any]:
        w1 = normal(m.experts, 2 * m.inner, m.hidden) * m.hidden**-0.5
        return (
            normal(m.tokens, m.hidden),
            normal(m.tokens, m.experts),
            w1,
            normal(m.experts, m.hidden, m.inner) * m.inner**-0.5,
        )

    def ours() -> Side:
        from argus.kernels import moe

        return Side(partial(moe, topk=m.chosen))

    def triton() -> Side:
        from benchmarks.triton_experts import mixture

        return Side(partial(mixture, topk=m.chosen))

    def eager() -> Side:
        return Side(partial(_eager, m))

    sides: dict[str, Callable[[], Side]] = {
        OURS: ours,
        SONIC: partial(_sonic, m),
        TRITON: triton,
        "eager, sorted": eager,
    }
    return Case(
        "mixture of experts", str(m), operands, sides, partial(_layer_error, m), 6 * m.pairs * m.hidden * m.inner
    )


def _routed(logits: Any, count: int) -> Any:
    weights, chosen = logits.float().softmax(-1).topk(count, -1)
    return weights / weights.sum(-1, keepdim=True), chosen


def _eager(m: Model, x: Any, logits: Any, w1: Any, w2: Any) -> Any:
    """The layer in PyTorch: rows sorted by expert, two grouped products, and an addition by tokens."""
    import torch

    weights, chosen = _routed(logits, m.chosen)
    order = chosen.flatten().sort(stable=True).indices
    token, ends = order // m.chosen, torch.histc(chosen.float(), m.experts, 0, m.experts - 1).cumsum(0).int()
    gate, up = torch._grouped_mm(x[token], w1.mT, offs=ends).chunk(2, -1)
    found = torch._grouped_mm(torch.nn.functional.silu(gate) * up, w2.mT, offs=ends)
    return torch.zeros_like(x).index_add_(0, token, found * weights.flatten()[order, None].to(x.dtype))


def _sonic(m: Model) -> Side:
    """sonic-moe's inference, from the router's logits on."""
    import torch

    _quack()
    from sonicmoe import functional as own
    from sonicmoe.enums import ActivationType

    def call(x: Any, logits: Any, w1: Any, w2: Any) -> Any:
        scores, chosen = own.TC_Softmax_Topk_Router_Function.apply(logits, m.experts, m.chosen, True, False)
        places, back, token = (x.new_empty(m.pairs, dtype=torch.int32) for _ in range(3))
        counts, offsets = (x.new_empty(m.experts + more, dtype=torch.int32) for more in (0, 1))
        own.TC_topk_router_metadata_triton(chosen, m.experts, counts, offsets, token, places, back)
        shape = (m.pairs, m.chosen, token, places, back, None, False, ActivationType.SWIGLU)
        gated, _ = own._UpProjection.apply(x, w1.permute(1, 2, 0), None, offsets, *shape, True, True)
        rest = (m.tokens, m.chosen, token, places, back, None, False, ActivationType.SWIGLU)
        return own._DownProjection.apply(gated, None, w2.permute(1, 2, 0), None, scores, offsets, *rest)

    def without_gradients(*operands: Any) -> Any:
        with torch.no_grad():
            return call(*operands)

    return Side(without_gradients)


def _layer_error(m: Model, found: Any, x: Any, logits: Any, w1: Any, w2: Any) -> float:
    """The error of the last four tokens."""
    import torch

    last = slice(len(x) - 4, len(x))
    weights, chosen = _routed(logits[last].double(), m.chosen)
    exact = torch.zeros_like(x[last], dtype=torch.float64)
    for t, own in enumerate(chosen.tolist()):
        for weight, e in zip(weights[t], own, strict=True):
            gate, up = (w1[e].double() @ x[last][t].double()).chunk(2)
            exact[t] += weight.double() * (w2[e].double() @ (torch.nn.functional.silu(gate) * up))
    return distance(found[last], exact)


# ---------------------------------------------------------------------------- quantised


def _blocks(rows: int, columns: int, depth: int) -> Case:
    """Float8 with scales of 1 x 128 and 128 x 128 elements."""

    def operands() -> Sequence[Any]:
        import torch

        from argus.kernels import quantize_blocks

        a, scale_a = quantize_blocks(normal(rows, depth))
        b = torch.randn(columns, depth, device="cuda").mul_(100).clamp_(-448, 448).to(torch.float8_e4m3fn)
        scale_b = torch.rand(columns // _TILE, depth // _TILE, device="cuda")
        return a, b, scale_a, scale_b

    def ours() -> Side:
        from argus.kernels import matmul_blocks

        return Side(matmul_blocks)

    def deep() -> Side:
        import torch
        from deep_gemm import fp8_gemm_nt

        def prepared(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
            return a, b, scale_a, scale_b, a.new_empty(rows, columns, dtype=torch.bfloat16)

        def call(a: Any, b: Any, scale_a: Any, scale_b: Any, out: Any) -> Any:
            fp8_gemm_nt((a, scale_a), (b, scale_b), out, disable_ue8m0_cast=True)
            return out

        return Side(call, prepared)

    def vendor() -> Side:
        import torch

        def prepared(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
            wide = torch.nn.functional.pad(scale_b, (0, -scale_b.shape[1] % 4))  # as cuBLASLt reads scales of blocks
            return a, b.t(), scale_a, wide[:, : scale_b.shape[1]].t()

        def call(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
            return torch._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16)

        return Side(call, prepared)

    def error(found: Any, a: Any, b: Any, scale_a: Any, scale_b: Any) -> float:
        own = slice(0, min(rows, 128)), slice(columns - _TILE, columns)
        left = a[own[0]].double() * scale_a[own[0]].double().repeat_interleave(_TILE, 1)
        right = b[own[1]].double() * scale_b[-1:].double().repeat_interleave(_TILE, 1)
        return distance(found[own], left @ right.T)

    sides = {OURS: ours, DEEP: deep, "torch._scaled_mm": vendor}
    return Case("float8 blocks", f"{rows} x {columns} x {depth}", operands, sides, error, 2 * rows * columns * depth)


def _invariant(rows: int, columns: int, depth: int) -> Case:
    """A product whose bits do not depend on the number of rows, beside our fastest."""

    def ours(invariant: bool) -> Side:
        from argus.kernels import matmul

        return Side(partial(matmul, batch_invariant=invariant))

    def error(found: Any, a: Any, b: Any) -> float:
        return distance(found[-1:], a[-1:].double() @ b.double())

    def operands() -> Sequence[Any]:
        return normal(rows, depth), normal(columns, depth).T

    name = f"product {rows} x {columns} x {depth}"
    sides = {OURS: partial(ours, True), "our fastest": partial(ours, False)}
    return Case("batch-invariant", name, operands, sides, error, 2 * rows * columns * depth)


def _int4(tokens: int, rows: int, depth: int) -> Case:
    """Weights of 4 bits with scales and zeros of 128, beside the time in which their bytes are read."""
    groups = depth // _GROUP

    def operands() -> Sequence[Any]:
        import torch

        packed = torch.randint(-(2**31), 2**31 - 1, (depth // 256, rows, 32), dtype=torch.int32, device="cuda")
        scales = (torch.rand(rows, groups, device="cuda") * 0.1 + 0.01).bfloat16()
        return normal(tokens, depth), packed, scales, torch.randint(0, 16, (rows, groups), device="cuda").bfloat16()

    def ours() -> Side:
        from argus.kernels import matmul_int4

        return Side(partial(matmul_int4, group=_GROUP))

    def error(found: Any, x: Any, packed: Any, scales: Any, zeros: Any) -> float:
        weights = _unpacked(packed[:, -64:]).double() - zeros[-64:].double().repeat_interleave(_GROUP, 1)
        return distance(found[:, -64:], x.double() @ (weights * scales[-64:].double().repeat_interleave(_GROUP, 1)).T)

    read = rows * depth // 2 + 4 * rows * groups
    name = f"{tokens} tokens, {rows} x {depth}"
    return Case("int4", name, operands, {OURS: ours}, error, 2 * tokens * rows * depth, read)


def _unpacked(packed: Any) -> Any:
    """The weights `[N, K]` of what `pack_weights` packed with 4 bits."""
    import torch

    k = torch.arange(256 * len(packed), device=packed.device)
    p = k % 256
    words = packed[k // 256, :, p // 32 * 4 + p % 8 // 2]
    return (words >> (p % 32 // 8 * 4 + p % 2 * 16)[:, None] & 15).T
