"""Every shipped kernel on small operands that end within a tile, each result beside PyTorch's in float64.

`python -m tests.gpu.shipped` runs them all, `... 2 8` the third of eight parts, `... 2 8 NAME` without a call of that
name: compute-sanitizer watches that.
Operands come from the host, by copies that its tools know, and results are compared there: on the device run our
kernels and next to nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F

from argus import kernels
from argus.diagnostic import ArgusError
from argus.kernels.matmul_packed import pack_weights
from tests.kernels.common import random

Call = tuple[str, Callable[..., Any], Callable[..., Any], tuple[Any, ...]]
"""What is called, our kernel, the same in float64, and the operands of both, on the host."""

UNSEEN = "attention 64 causal, few queries of heads that share keys"
"""The call in which one kernel reads what another has stored by bulk copies, which initcheck does not see."""

_TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float8_e4m3fn: 0.15}


def calls() -> Iterator[Call]:
    """All of them."""
    yield from _products()
    yield from _attention()
    yield from _attention_added()
    yield from _rows()
    yield from _gradients()
    yield from _chosen()
    yield from _others()


def _product(name: str, shape: tuple[int, int, int], dtype: Any, layout: str = "nt", **more: Any) -> Call:
    m, n, k = shape
    a, b = (random(*s, seed=i).to(dtype) for i, s in enumerate(((m, k), (n, k))))
    a = a.t().contiguous().t() if layout[0] == "t" else a
    b = b if layout[1] == "n" else b.t().contiguous().t()
    precise = torch.float32 if dtype is torch.float32 else None
    scales = {"scale_a": torch.rand(m) + 0.5, "scale_b": torch.rand(n) + 0.5} if dtype.itemsize == 1 else {}

    given = {**scales, **more}

    def ours(a: Any, b: Any) -> Any:
        extras = {key: value.to(a.device) if isinstance(value, torch.Tensor) else value for key, value in given.items()}
        return kernels.matmul(a, b.t(), out_dtype=precise, **extras)

    def exact(a: Any, b: Any) -> Any:
        scaled = (a @ b.t()) * (scales["scale_a"][:, None] * scales["scale_b"] if scales else 1.0)
        return F.relu(scaled + given["bias"].double()) + given["residual"].double() if more else scaled

    return f"matmul {name} {m}x{n}x{k} {layout}", ours, exact, (a, b)


def _products() -> Iterator[Call]:
    names = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp8": torch.float8_e4m3fn}
    shapes = ((130, 200, 88), (33, 65, 67), (5, 264, 200), (300, 520, 272), (1, 1, 1))
    for (name, dtype), shape in product(names.items(), shapes):
        yield _product(name, shape, dtype)
    for layout in ("nn", "tn", "tt"):
        for shape in shapes[:2]:
            yield _product("bf16", shape, torch.bfloat16, layout)
    for name, dtype in names.items():  # operands that are copied first
        yield _product(name, (517, 391, 1029), dtype)
        yield _product(name, shapes[3], dtype, "nn")
    for bits, (tokens, rows, depth) in product((4, 8), ((3, 37, 200), (20, 200, 1100), (300, 130, 264))):
        yield _packed(bits, tokens, rows, depth)
    bias, residual = random(200, seed=3).bfloat16(), random(130, 200, seed=4).bfloat16()
    yield _product("epilogue", shapes[0], torch.bfloat16, bias=bias, residual=residual, epilogue="relu")


def _packed(bits: int, tokens: int, rows: int, depth: int) -> Call:
    weights = torch.randint(0, 2**bits, (rows, depth), generator=torch.manual_seed(bits))
    scales, group = (torch.rand(rows, -(-depth // 128)) / 10).bfloat16(), torch.arange(depth) // 128
    ours = kernels.matmul_int4 if bits == 4 else kernels.matmul_int8

    def exact(x: Any, _packed: Any, scales: Any) -> Any:
        return x @ ((weights - 2 ** (bits - 1)) * scales[:, group]).t()

    given = (random(tokens, depth).bfloat16(), pack_weights(weights, bits), scales)
    return f"matmul int{bits} {tokens}x{rows}x{depth}", ours, exact, given


def _attention() -> Iterator[Call]:
    for size, causal, aligned in product((64, 128), (False, True), (True, False)):
        shapes = ((2, 4, 200, size), (2, 2, 300, size), (2, 2, 300, size))
        wide = (random(*s[:3], size + 8 * (not aligned), seed=i).bfloat16() for i, s in enumerate(shapes))
        q, k, v = (x[..., :size] if aligned else x[..., 1 : size + 1] for x in wide)

        def ours(q: Any, k: Any, v: Any, causal: bool = causal) -> Any:
            return kernels.attention(q, k, v, causal=causal)

        def exact(q: Any, k: Any, v: Any, causal: bool = causal) -> Any:
            k, v = (x.repeat_interleave(2, 1) for x in (k, v))
            seen = torch.ones(200, 300, dtype=torch.bool).tril(100) if causal else None
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)

        name = f"attention {size} {'causal' if causal else 'full'}{'' if aligned else ' misaligned'}"
        yield name, ours, exact, (q, k, v)
    few = tuple(random(8, heads, n, 64, seed=n).bfloat16() for heads, n in ((64, 2), (1, 1000), (1, 1001)))
    q, k, v = few[0], few[1], few[2][:, :, 1:]
    seen = torch.ones(2, 1000, dtype=torch.bool).tril(998)
    yield (
        UNSEEN,
        lambda q, k, v: kernels.attention(q, k, v, causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True),
        (q, k, v),
    )


def _attention_added() -> Iterator[Call]:
    """Sinks and a bias, other values, a cache of 8 bits, and latent heads."""
    q, k, v = (random(1, 2, n, 64, seed=n).bfloat16() for n in (70, 130, 131))
    seen = torch.ones(70, 130, dtype=torch.bool).tril(60)

    def exact(q: Any, k: Any, v: Any, sinks: Any, bias: Any) -> Any:
        x = (q @ k.mT / 8 + bias).masked_fill(~seen, -float("inf"))
        return torch.softmax(torch.cat((x, sinks[:, None, None].expand(1, 2, 70, 1)), 3), 3)[..., :-1] @ v

    def ours(q: Any, k: Any, v: Any, sinks: Any, bias: Any) -> Any:
        return kernels.attention_with(q, k, v, causal=True, sinks=sinks, bias=bias)

    yield "attention with sinks and a bias", ours, exact, (q, k, v[:, :, 1:], random(2), random(2, 70, 130))
    rows = tuple(random(1, 1, n, size, seed=n).bfloat16() for n, size in ((70, 192), (130, 192), (130, 128)))
    attend = F.scaled_dot_product_attention
    yield (
        "attention 192 128",
        lambda q, k, v: kernels.attention_with(q, k, v, causal=True),
        lambda q, k, v: attend(q, k, v, attn_mask=seen),
        rows,
    )
    table, lens = torch.tensor([[3, 1], [0, 2]], dtype=torch.int32), torch.tensor([20, 5], dtype=torch.int32)
    live = (torch.arange(32) < lens[:, None])[:, None, None]
    keys, values = ((30 * random(4, 16, 2, 64, seed=n)).to(torch.int8) for n in (1, 2))

    def scaled(q: Any, keys: Any, values: Any, table: Any, lens: Any, *scales: Any) -> Any:
        both = dict(zip(("key_scale", "value_scale"), scales, strict=True))
        return kernels.attention_decode(q, keys, values, table, lens, **both)

    def exactly(q: Any, keys: Any, values: Any, table: Any, _lens: Any, *scales: Any) -> Any:
        caches = (
            (x.double() * f[:, None])[table.long()].flatten(1, 2) for x, f in zip((keys, values), scales, strict=True)
        )
        k, v = (x.transpose(1, 2).repeat_interleave(2, 1) for x in caches)
        return attend(q, k, v, attn_mask=live)

    scales = (torch.rand(2) / 30, torch.rand(2) / 30)
    yield "decode int8", scaled, exactly, (random(2, 4, 1, 64).bfloat16(), keys, values, table, lens, *scales)
    cache = random(4, 16, 576, seed=3).bfloat16()

    def latent(q: Any, cache: Any, table: Any, _lens: Any) -> Any:
        k = cache[table.long()].flatten(1, 2)[:, None]
        return attend(q, k.expand(-1, 4, -1, -1), k[..., :512].expand(-1, 4, -1, -1), attn_mask=live, scale=0.05)

    yield (
        "decode latent",
        lambda *given: kernels.attention_decode_latent(*given, scale=0.05),
        latent,
        (random(2, 4, 1, 576, seed=4).bfloat16(), cache, table, lens),
    )


def _rows() -> Iterator[Call]:
    """Kernels of rows: aligned, odd, parts of wider rows, in one warp and in many, too long for registers."""
    tensors = {
        "aligned": random(7, 264).bfloat16(),
        "odd": random(5, 1301).bfloat16(),
        "part": random(9, 800).half()[:, 3:600],
        "float32": random(3, 4500),
        "long": random(2, 40001).bfloat16(),
    }
    for name, x in tensors.items():
        n = x.shape[1]
        weight, bias, other = (random(*s, seed=9).to(x.dtype) for s in ((n,), (n,), tuple(x.shape)))
        yield f"softmax {name}", kernels.softmax, lambda x: torch.softmax(x, -1), (x,)
        yield f"rmsnorm {name}", kernels.rmsnorm, lambda x, w: F.rms_norm(x, w.shape, w, 1e-6), (x, weight)
        normed = (x, weight, bias)
        yield f"layernorm {name}", kernels.layernorm, lambda x, w, b: F.layer_norm(x, w.shape, w, b), normed
        if n <= 16384:
            yield f"add_layernorm {name}", kernels.add_layernorm, _add_layernorm, (x, other, weight, bias)
        yield f"silu_mul {name}", kernels.silu_mul, lambda g, u: F.silu(g) * u, (x, other)
        yield f"quantize {name}", kernels.quantize, _quantize, (x,)
        target = torch.arange(len(x)) * 37 % n
        yield f"cross_entropy {name}", kernels.cross_entropy, _cross_entropy, (x, target)
        # PyTorch's own kernels copy parts of rows for a reduction of all, and the tools do not see them write.
        for op, dim in product(("sum", "max"), (0, 1, None) if x.is_contiguous() else (0, 1)):
            yield f"{op} {name} {dim}", _reducing(op, dim), _reduced(op, dim), (x,)


def _others() -> Iterator[Call]:
    for dtype, shape in product((torch.bfloat16, torch.float32), ((64, 72), (65, 130), (72, 131), (130, 72))):
        yield f"transpose {shape}", kernels.transpose, lambda x: x.t(), (random(*shape).to(dtype),)
    for shape, dim in (((9000, 40), 0), ((9001, 33), 0), ((2, 5000, 24), 1), ((3, 70001), 1), ((400, 600), 0)):
        yield f"sum {shape} {dim}", _reducing("sum", dim), _reduced("sum", dim), (random(*shape).bfloat16(),)


def _gradients() -> Iterator[Call]:
    """Backward passes: rows in registers, and rows that are too long for them."""
    for columns in (264, 1301, 40000):
        x, dy = random(5, columns, seed=1).bfloat16(), random(5, columns, seed=2).bfloat16()
        weight, other = random(columns, seed=3).bfloat16(), random(5, columns, seed=4).bfloat16()
        name = f"backward {columns}"
        yield f"softmax {name}", _gradient(kernels.softmax), _gradient(lambda x: torch.softmax(x, -1)), (dy, x)
        exact = _gradient(lambda x, w: F.rms_norm(x, w.shape, w, 1e-6))
        yield f"rmsnorm {name}", _gradient(kernels.rmsnorm), exact, (dy, x, weight)
        exact = _gradient(lambda x, w, b: F.layer_norm(x, w.shape, w, b))
        yield f"layernorm {name}", _gradient(kernels.layernorm), exact, (dy, x, weight, weight)
        yield f"silu_mul {name}", _gradient(kernels.silu_mul), _gradient(lambda g, u: F.silu(g) * u), (dy, x, other)


def _gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradients of all operands but the first one, which is that of the result."""

    def gradients(dy: Any, *operands: Any) -> Any:
        leaves = [x.detach().requires_grad_() for x in operands]
        return torch.autograd.grad(function(*leaves), leaves, dy)

    return gradients


def _chosen() -> Iterator[Call]:
    """The greatest numbers of rows, whose places PyTorch gives in the same order: no two numbers of a row are equal."""
    for columns, k in ((64, 4), (131, 8), (256, 2)):
        x = torch.stack([torch.randperm(columns, generator=torch.manual_seed(row)) for row in range(9)]).bfloat16()
        yield f"topk {columns}", lambda x, k=k: kernels.topk(x, k)[0], lambda x, k=k: torch.topk(x, k).values, (x,)


def _add_layernorm(x: Any, residual: Any, weight: Any, bias: Any) -> Any:
    return F.layer_norm(x + residual, weight.shape, weight, bias), x + residual


def _quantize(x: Any) -> Any:
    scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 448
    return x / scale, scale


def _cross_entropy(logits: Any, target: Any) -> Any:
    return F.cross_entropy(logits, target, reduction="none")


def _reducing(op: str, dim: int | None) -> Callable[..., Any]:
    return lambda x: kernels.reduce(x, op, dim)


def _reduced(op: str, dim: int | None) -> Callable[..., Any]:
    function = torch.sum if op == "sum" else torch.amax
    return lambda x: function(x, dim=tuple(range(x.ndim)) if dim is None else dim)


def compare(call: Call, device: str = "cuda") -> None:
    """Run one call. AssertionError if it differs from the result in float64.

    An element's error is a share of its own size, which rounding follows, plus that of a typical element.
    """
    name, ours, exact, operands = call
    found = ours(*(_moved(x, device) for x in operands))
    wanted = exact(*(x.double() if x.is_floating_point() else x for x in operands))
    for got, right in zip(*(y if isinstance(y, tuple) else (y,) for y in (found, wanted)), strict=True):
        size = float(right.square().mean().sqrt())
        error = float(((got.cpu().double() - right).abs() / (right.abs() + max(size, 1e-30))).max())
        limit = max(_TOLERANCE[got.dtype], 0.01 if "tf32" in name else 0.0)
        assert error < 4 * limit, f"{name}: {error}"


def outcome(call: Call, device: str = "cuda") -> str:
    """Run one call; return "right", or what it ends with, whatever that is."""
    try:
        compare(call, device)
    except ArgusError as error:
        return f"refused: {error.diagnostics[0].message}"
    except Exception as error:  # a finding like any other
        return f"{type(error).__name__}: {error}"
    return "right"


def _moved(x: torch.Tensor, device: str) -> torch.Tensor:
    """`x` on the device, with its strides and its misalignment."""
    base = x if x._base is None else x._base
    return base.to(device).as_strided(x.shape, x.stride(), x.storage_offset())


if __name__ == "__main__":
    part, parts, *left_out = sys.argv[1:] or ("0", "1")
    for one in list(calls())[int(part) :: int(parts)]:
        if one[0] not in left_out:
            compare(one)
    print("all right")
