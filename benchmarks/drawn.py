"""Cases that nobody chose: drawn at random, the same ones again for the same seed (`--drawn COUNT --seed SEED`).

Extents are drawn evenly by their logarithm. Only what all sides of a benchmark can compute is drawn.
"""

from __future__ import annotations

from random import Random

from benchmarks import gemm
from benchmarks.attention import Case as Attention
from benchmarks.gemm import Case as Product
from benchmarks.memory import Case as Memory
from benchmarks.memory_kernels import KERNELS

_HALVES = ("bfloat16", "bfloat16", "float16")
_FLOATS = (*_HALVES, "float32")
_STEPS = (1, 8, 128)
"""What row lengths are multiples of: nothing, a vector of 16 bits an element, a tile."""
_MOST_QUERIES = 2**20
_LOGITS = (2**10, 2**18)


def products(count: int, seed: int) -> tuple[Product, ...]:
    """Large ones, few rows, odd extents, 8-bit and tf32 operands."""
    draw = Random(f"products {seed}")
    return tuple(_product(draw) for _ in range(count))


def _product(draw: Random) -> Product:
    match draw.choice(("large", "large", "large", "few", "few", "odd", "fp8", "tf32")):
        case "large":
            step = draw.choice((8, 16, 64, 128))
            m, n, k = (_extent(draw, 512, 8192, step) for _ in range(3))
            return Product(m, n, k, draw.choice(("bf16", "bf16", "fp16")), draw.choice(gemm.LAYOUTS))
        case "few":
            step = draw.choice((8, 64, 128))
            n, k = (_extent(draw, 1024, 32768, step) for _ in range(2))
            return Product(_extent(draw, 1, 128), n, k)
        case "odd":
            m, n, k = (_extent(draw, 200, 4000) for _ in range(3))
            return Product(m, n, k)
        case "fp8":
            m, n, k = (_extent(draw, 64, 8192, 16) for _ in range(3))
            return Product(m, n, k, "fp8")
        case _:
            m, n, k = (_extent(draw, 256, 4096, 4) for _ in range(3))
            return Product(m, n, k, "tf32", draw.choice(gemm.LAYOUTS))


def attentions(count: int, seed: int) -> tuple[Attention, ...]:
    """Draw attention problems. Causal ones have as many keys as queries: PyTorch aligns other masks differently."""
    draw = Random(f"attention {seed}")
    return tuple(_attention(draw) for _ in range(count))


def _attention(draw: Random) -> Attention:
    causal = draw.random() < 0.5
    rows = _extent(draw, 64, 16384, draw.choice((1, 64)))
    keys = rows if causal or draw.random() < 0.6 else _extent(draw, 64, 16384)
    heads = draw.choice((4, 8, 12, 16, 32, 40))
    batch = min(_extent(draw, 1, 32), max(1, _MOST_QUERIES // (heads * max(rows, keys))))
    dtype, shared, size = draw.choice(_HALVES), draw.choice((heads, heads // 4, 1)), draw.choice((64, 128))
    return Attention(dtype, batch, heads, shared, rows, keys, size, causal)


def memories(count: int, seed: int) -> tuple[Memory, ...]:
    """Every kernel in turn."""
    draw = Random(f"memory {seed}")
    names = list(KERNELS)
    return tuple(_memory(draw, names[place % len(names)]) for place in range(count))


def _memory(draw: Random, kernel: str) -> Memory:
    low, high = _LOGITS if kernel == "cross_entropy" else (32, 32768)
    columns = _extent(draw, low, high, draw.choice(_STEPS))
    elements = _extent(draw, max(2**17, columns), 2**27)
    return Memory(kernel, draw.choice(_FLOATS), elements // columns, columns)


def _extent(draw: Random, low: int, high: int, step: int = 1) -> int:
    """A multiple of `step`, at least `low` or `step`, at most `high`."""
    return max(step, int(low * (high / low) ** draw.random()) // step * step)
