"""Random calls of the library's functions, each beside float64: shapes, layouts and dtypes that nobody chose.

`python -m tests.gpu.library SEED FIRST STEP END` runs the calls FIRST, FIRST + STEP, ... before END of a seed, and
prints what differs; call n of a seed is the same whatever else is run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import torch
import torch.nn.functional as F

from argus import kernels

Results = tuple[tuple[torch.Tensor, Any], ...]
"""Each result in float64, and the error that is allowed besides the rounding of its dtype."""

NARROW = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, *NARROW)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
_MOST = 1 << 33
"""Multiplications of one call."""


@dataclass(frozen=True)
class Call:
    """What is called, our function, the same in float64, and the operands of both."""

    name: str
    ours: Callable[..., Any]
    exact: Callable[..., Results]
    operands: tuple[torch.Tensor, ...]


def call(seed: int, number: int) -> Call:
    """Call `number` of `seed`."""
    draw = Draw(Random(f"{seed}.{number}"))
    kind = draw.of(_product, _product, _product, _attention, _attention, _rows, _rows, _rows, _reduction, _transpose)
    return kind(draw)


@dataclass(frozen=True)
class Draw:
    """Draws numbers, sizes and tensors."""

    random: Random

    def of(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def size(self, most: int) -> int:
        """Empty, tiny, odd, or whole vectors and tiles, up to `most`."""
        unit = self.of(0, 1, 1, 1, 8, 8, 16, 64, 128)
        limit = self.of(8, 100, 600, most)
        return unit * self.random.randint(1, max(1, min(limit, most) // unit)) if unit else self.of(0, 1, 2)

    def tensor(self, *shape: int, dtype: torch.dtype, turned: bool = False) -> torch.Tensor:
        """Normal numbers, contiguous or as a part of something wider that begins anywhere; `turned`: by columns."""
        if turned:
            return self.tensor(*shape[:-2], shape[-1], shape[-2], dtype=dtype).mT
        after, before = self.of((0, 0), (0, 0), (8, 0), (8, 8), (16, 16), (5, 3), (1, 0))
        wide = (*shape[:-1], before + shape[-1] + after)
        generator = torch.Generator(DEVICE).manual_seed(self.random.getrandbits(32))
        numbers = torch.randn(prod(wide), generator=generator, device=DEVICE) * self.of(0.25, 1.0, 4.0)
        return numbers.to(dtype).view(wide)[..., before : before + shape[-1]]


def described(*tensors: torch.Tensor) -> str:
    """Shapes, strides and places of tensors."""
    return ", ".join(
        f"{str(x.dtype)[6:]}{list(x.shape)} strides {list(x.stride())} from {x.data_ptr() % 16}" for x in tensors
    )


# ---------------------------------------------------------------------------- products

_ROUNDING = {torch.float16: 2**-18, torch.bfloat16: 2**-18, torch.float8_e4m3fn: 2**-12, torch.float32: 2**-10}
"""Of a sum of products, against that of their magnitudes: sums in float32, those of 8 bits with 13 bits of mantissa;
float32 numbers are multiplied as tf32."""


def _cut(a: torch.Tensor, b: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """What sums of 8-bit products lose besides: each instruction takes 32 terms and cuts off what is below 13 bits of
    the sum so far, which is taken for the last one and four standard deviations of a sum of such terms."""
    return (total.abs() + 4.0 * (a.square() @ b.square()).sqrt()) * (a.shape[-1] / 32 * 2**-13)


_EPILOGUES: dict[str | None, Callable[[torch.Tensor], torch.Tensor]] = {
    None: lambda x: x,
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def _product(draw: Draw) -> Call:
    m, n, k = draw.size(4096), draw.size(4096), draw.size(4096)
    while m * n * k > _MOST:
        m, n = max(1, m // 2), max(1, n // 2)
    dtype = draw.of(*_ROUNDING)
    batches = draw.of(None, None, None, 1, draw.random.randint(0, 5))
    of_a, of_b = ((() if batches is None else (draw.of(batches, batches, 1),)) for _ in range(2))
    a = draw.tensor(*of_a, m, k, dtype=dtype, turned=draw.of(True, False))
    b = draw.tensor(*of_b, k, n, dtype=dtype, turned=draw.of(True, False))
    shape = (*(() if batches is None else (1 if of_a == of_b == (1,) else batches,)), m, n)
    to = draw.of(None, None, *FLOATS)
    extras: dict[str, Any] = {"out_dtype": to} if to is not None else {}
    if draw.of(True, False):
        extras["bias"] = draw.tensor(n, dtype=draw.of(*FLOATS))
    if draw.of(True, False, False):
        extras["residual"] = draw.tensor(*shape, dtype=draw.of(*FLOATS))
    for side, extent in (("a", m), ("b", n)):
        if draw.of(True, False) if dtype.itemsize == 1 else draw.of(True, *(False,) * 5):
            extras[f"scale_{side}"] = draw.tensor(draw.of(1, extent), dtype=torch.float32).abs() + 0.1
    epilogue = draw.of(None, None, *_EPILOGUES)

    def exact(a: torch.Tensor, b: torch.Tensor) -> Results:
        wide = {name: x.double() for name, x in extras.items() if isinstance(x, torch.Tensor)}
        scale = wide.get("scale_a", torch.ones(1, device=a.device).double())[:, None]
        scale = scale * wide.get("scale_b", torch.ones(1, device=a.device).double())
        product = a @ b
        total = product * scale + wide.get("bias", 0.0)
        floor = (a.abs() @ b.abs()) * scale * _ROUNDING[dtype] + 4e-6 * total.abs()
        if dtype.itemsize == 1:
            floor += _cut(a, b, product) * scale
        # No epilogue is steeper than 1.13, and some add two numbers of the size of the sum.
        return ((_EPILOGUES[epilogue](total) + wide.get("residual", 0.0), 1.2 * floor + 1e-6),)

    extra = ", ".join(f"{name}={described(x) if isinstance(x, torch.Tensor) else x}" for name, x in extras.items())
    return Call(
        f"matmul({described(a, b)}, epilogue={epilogue}, {extra})",
        lambda a, b: kernels.matmul(a, b, epilogue=epilogue, **extras),
        exact,
        (a, b),
    )


# ---------------------------------------------------------------------------- attention


def _attention(draw: Draw) -> Call:
    batch, shared, group = draw.random.randint(1, 3), draw.random.randint(1, 4), draw.of(1, 1, 2, 3, 4, 8)
    rows, keys, size, dtype = draw.size(2048), draw.size(4096), draw.of(64, 128), draw.of(*NARROW)
    if draw.of(True, False):
        keys = max(rows, keys)
    causal, scale = draw.of(True, False), draw.of(None, None, 0.05, 0.3)
    q, k, v = (_heads(draw, batch, h, n, size, dtype)
               for h, n in ((shared * group, rows), (shared, keys), (shared, keys)))  # fmt: skip

    def exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Results:
        k, v = (x.repeat_interleave(group, 1) for x in (k, v))
        by = size**-0.5 if scale is None else scale
        scores = q @ k.mT * by
        if causal:
            seen = torch.ones(rows, keys, dtype=torch.bool, device=q.device).tril(keys - rows)
            scores = scores.masked_fill(~seen, -torch.inf)
        level = torch.logsumexp(scores, -1)
        weights = torch.exp(scores - level.masked_fill(level == -torch.inf, 0.0)[..., None])
        # Weights are rounded to the dtype before they are multiplied.
        wrong = (q.abs() @ k.abs().mT).amax((-1, -2), keepdim=True) * by * 2**-18 + 1e-5 if keys and rows else 0.0
        close = wrong[..., 0] if isinstance(wrong, torch.Tensor) else wrong
        return (weights @ v, (torch.finfo(dtype).eps + wrong) * (weights @ v.abs())), (level, close + 1e-6)

    return Call(
        f"attention({described(q, k, v)}, causal={causal}, scale={scale})",
        lambda q, k, v: kernels.attention(q, k, v, causal=causal, scale=scale, return_lse=True),
        exact,
        (q, k, v),
    )


def _heads(draw: Draw, batch: int, heads: int, rows: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """One head after the other, or all heads of a row together."""
    if draw.of(True, False):
        return draw.tensor(batch, heads, rows, size, dtype=dtype)
    return draw.tensor(batch, rows, heads, size, dtype=dtype).transpose(1, 2)


# ---------------------------------------------------------------------------- kernels of rows


def _rows(draw: Draw) -> Call:
    n = draw.of(draw.size(4096), draw.size(4096), draw.size(16384), draw.size(70000))
    shape = (*draw.of((), (), (draw.random.randint(1, 3),)), draw.size(2000 if n < 5000 else 50), n)
    dtype = draw.of(*FLOATS)
    x, other = draw.tensor(*shape, dtype=dtype), draw.tensor(*shape, dtype=dtype)
    of_weights = draw.of(*FLOATS)
    weight, bias = (draw.tensor(n, dtype=of_weights) for _ in range(2))
    return draw.of(_softmax, _rmsnorm, _layernorm, _add_layernorm, _silu_mul, _quantize, _cross_entropy)(
        draw, x, other, weight, bias
    )


_CLOSE = 1e-5
"""Of results of float32 arithmetic."""


def _softmax(draw: Draw, x: torch.Tensor, *_: torch.Tensor) -> Call:
    def exact(x: torch.Tensor) -> Results:
        y = torch.softmax(x, -1)
        return ((y, _CLOSE * y),)

    return Call(f"softmax({described(x)})", kernels.softmax, exact, (x,))


def _rmsnorm(draw: Draw, x: torch.Tensor, other: torch.Tensor, weight: torch.Tensor, *_: torch.Tensor) -> Call:
    def exact(x: torch.Tensor, weight: torch.Tensor) -> Results:
        y = F.rms_norm(x, weight.shape, weight, 1e-6)
        return ((y, _CLOSE * y.abs()),)

    return Call(f"rmsnorm({described(x, weight)})", kernels.rmsnorm, exact, (x, weight))


def _normalised(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    size = x.abs() / ((x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return F.layer_norm(x, weight.shape, weight, bias), _CLOSE * ((size + 1) * weight.abs() + bias.abs())


def _layernorm(draw: Draw, x: torch.Tensor, other: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Call:
    return Call(
        f"layernorm({described(x, weight, bias)})", kernels.layernorm, lambda *xs: (_normalised(*xs),),
        (x, weight, bias)
    )  # fmt: skip


def _add_layernorm(draw: Draw, x: torch.Tensor, other: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Call:
    if x.shape[-1] * x.element_size() > 192 << 10:
        return _layernorm(draw, x, other, weight, bias)

    def exact(x: torch.Tensor, other: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Results:
        return _normalised(x + other, weight, bias), (x + other, _CLOSE * (x + other).abs())

    operands = (x, other, weight, bias)
    return Call(f"add_layernorm({described(*operands)})", kernels.add_layernorm, exact, operands)


def _silu_mul(draw: Draw, x: torch.Tensor, other: torch.Tensor, *_: torch.Tensor) -> Call:
    def exact(x: torch.Tensor, other: torch.Tensor) -> Results:
        y = F.silu(x) * other
        return ((y, _CLOSE * y.abs()),)

    return Call(f"silu_mul({described(x, other)})", kernels.silu_mul, exact, (x, other))


def _quantize(draw: Draw, x: torch.Tensor, *_: torch.Tensor) -> Call:
    def exact(x: torch.Tensor) -> Results:
        largest = x.abs().amax(-1, keepdim=True) if x.shape[-1] else x.new_zeros(*x.shape[:-1], 1)
        scale = largest.clamp_min(1e-12) / 448
        return (x / scale, 2**-10 + _CLOSE * 448), (scale, _CLOSE * scale)

    return Call(f"quantize({described(x)})", kernels.quantize, exact, (x,))


def _cross_entropy(draw: Draw, x: torch.Tensor, *_: torch.Tensor) -> Call:
    logits = x.flatten(0, -2) if x.ndim > 2 else x
    rows, columns = logits.shape
    kind = draw.of(torch.int32, torch.int64)
    some = draw.tensor(rows, dtype=torch.float32).abs() * 1e4
    target = torch.where(some % 7 < 1, -100, some.long() % max(columns, 1)).to(kind)
    if not columns:
        target = torch.full_like(target, -100)

    def exact(logits: torch.Tensor, target: torch.Tensor) -> Results:
        if not columns:
            return ((logits.new_zeros(rows), 0.0),)
        y = F.cross_entropy(logits, target.long(), reduction="none")
        return ((y, _CLOSE * (1 + y.abs() + logits.abs().amax(-1))),)

    return Call(f"cross_entropy({described(logits, target)})", kernels.cross_entropy, exact, (logits, target))


# ---------------------------------------------------------------------------- reductions, transposes


def _reduction(draw: Draw) -> Call:
    rank = draw.random.randint(1, 4)
    shape = [draw.of(draw.size(40), draw.size(3000), draw.size(20000)) for _ in range(rank)]
    while prod(shape) > 1 << 25:
        shape[draw.random.randrange(rank)] = draw.random.randint(1, 30)
    x = draw.tensor(*shape, dtype=draw.of(*FLOATS))
    op = draw.of("sum", "mean", "max")
    dim = draw.of(None, *range(-rank, rank)) if x.is_contiguous() else draw.random.randrange(rank)
    if op == "max":  # of nothing there is none
        x = x if x.numel() else draw.tensor(*(max(1, n) for n in shape), dtype=x.dtype)
    over = tuple(range(rank)) if dim is None else (dim,)

    def exact(x: torch.Tensor) -> Results:
        if op == "max":
            return ((torch.amax(x, over), 0.0),)
        total, size = x.sum(over), x.abs().sum(over) * 2**-18
        count = prod(x.shape[i] for i in over) if op == "mean" else 1
        return ((total / count, size / count),)

    return Call(f"reduce({described(x)}, {op}, {dim})", lambda x: kernels.reduce(x, op, dim), exact, (x,))


def _transpose(draw: Draw) -> Call:
    x = draw.tensor(draw.size(5000), draw.size(3000), dtype=draw.of(*FLOATS))
    return Call(f"transpose({described(x)})", kernels.transpose, lambda x: ((x.t(), 0.0),), (x,))


# ---------------------------------------------------------------------------- comparison


def check(one: Call) -> str | None:
    """What is wrong with a call; None if nothing is."""
    found = one.ours(*one.operands)
    wanted = one.exact(*(x.double() if x.is_floating_point() else x for x in one.operands))
    for place, (got, (right, floor)) in enumerate(
        zip(found if isinstance(found, tuple) else (found,), wanted, strict=True)
    ):
        if got.shape != right.shape:
            return f"result {place} has the shape {list(got.shape)}, not {list(right.shape)}"
        wide, info = got.double(), torch.finfo(got.dtype)
        limit = info.eps * right.abs().clamp_min(info.tiny) + floor
        wrong = ~((wide == right) | ((wide - right).abs() <= limit) | (wide.isnan() & right.isnan()))
        if count := int(wrong.sum()):
            at = tuple(int(i) for i in wrong.nonzero()[0])
            values = f"at {at} {wide[at]:.9g}, not {right[at]:.9g}"
            return f"{count} of {wrong.numel()} elements of result {place} are wrong, {values}"
    return None


def main(seed: int, first: int, step: int, end: int) -> None:
    """Prints a line for each call that is wrong, or fails, and then "done"."""
    for number in range(first, end, step):
        one = call(seed, number)
        try:
            problem = check(one)
        except Exception as error:
            problem = f"{type(error).__name__}: {str(error)[:2000]}"
        if problem is not None:
            print(f"call {number} of seed {seed}: {one.name}: {problem}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
