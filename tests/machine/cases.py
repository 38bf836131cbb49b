"""Kernels with operands that end within a tile, and what NumPy makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from argus.compile import elaborate
from argus.frontend import Options
from argus.ir.nodes import Kernel
from argus.ir.types import DType, bfloat16, float8_e4m3fn, float8_e4m3fnuz, float32
from argus.kernels import experts
from argus.kernels.attention_tiles import AttentionShape, wave_tiles
from argus.kernels.operands import NEAR
from argus.passes import lower
from argus.simulate.numeric import from_bits
from argus.source import SourceFile
from tests.backend.host import from_bfloat16, to_bfloat16
from tests.machine.gfx942.code import Code
from tests.machine.gfx942.numbers import FP8
from tests.machine.kernels import KERNELS, lowered, run

_ONE = np.ones(1, np.float32)
NEAR_ROWS = """    M, K = a.shape
    al.requires((0 <= a.stride(0)) & (a.stride(0) < 2**24) & (0 <= b.stride(0)) & (b.stride(0) < 2**24))
"""
"""The facts of a product's operands whose tiles of 64 rows span less than 2**31 bytes."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel, its grid, arrays and numbers by name, and for each output the right result.

    `error`: the largest difference that rounding explains, relative and absolute.
    """

    kernel: Kernel
    grid: Sequence[int]
    named: dict[str, Any]
    right: dict[str, Any]
    error: tuple[float, float]

    def check(self, code: Code | None = None, visited: set[int] | None = None) -> None:
        """Run the kernel, or `code` in its place, and compare. Raises Hazard, or AssertionError."""
        outputs = {name: np.zeros_like(self.named[name]) for name in self.right}
        run(self.kernel, self.grid, tuple(outputs), code, visited, **{**self.named, **outputs})
        relative, absolute = self.error
        for name, right in self.right.items():
            found = outputs[name]
            wide = {np.uint16: from_bfloat16, np.uint8: FP8["fp8"].__getitem__}.get(found.dtype.type, np.asarray)(found)
            np.testing.assert_allclose(wide, right, rtol=relative, atol=absolute)


def random(*shape: int) -> Any:
    """Numbers that are the same in each run."""
    return np.random.default_rng(shape).standard_normal(shape)


@cache
def gemm(rows: int, columns: int, waves: int, m: int, n: int, k: int) -> Case:
    """c = a bᵀ in tiles of `rows` by `columns`."""
    constants = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": 32, "STAGES": 2, "PRODUCERS": 0}
    constants["NEAR"] = NEAR if waves < 8 else 0  # both ways of loading are run
    a, b = to_bfloat16(random(m, k)), to_bfloat16(random(n, k))
    right = from_bfloat16(a) @ from_bfloat16(b).T
    return _product(constants, waves, (rows, columns), a, b, np.zeros((m, n), np.uint16), right, (2**-7, 1e-3))


@cache
def gemm_fp8(rows: int, columns: int, waves: int, m: int, n: int, k: int) -> Case:
    """The same of operands of 8 bits, e4m3 without infinities."""
    constants = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": 64, "STAGES": 2, "PRODUCERS": 0,
                 "NEAR": NEAR, "IN": float8_e4m3fnuz, "MULTIPLY": float8_e4m3fnuz}  # fmt: skip
    bits = np.random.default_rng(k).integers(0, 120, (m + n, k), np.uint8)
    a, b = bits[:m], bits[m:]
    right = FP8["fp8"][a].astype(np.float64) @ FP8["fp8"][b].T
    return _product(constants, waves, (rows, columns), a, b, np.zeros((m, n), np.uint16), right, (2**-7, 1e-3))


@cache
def gemm_float32(dtype: DType, rows: int, columns: int, waves: int, m: int, n: int, k: int) -> Case:
    """The same of float32: as it is, or as tfloat32, of which 10 bits of the mantissa count."""
    constants = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": 16, "STAGES": 2, "PRODUCERS": 0,
                 "IN": dtype, "MULTIPLY": dtype, "OUT": float32}  # fmt: skip
    a, b = random(m, k).astype(np.float32), random(n, k).astype(np.float32)
    left, right = (x.astype(np.float64) if dtype == float32 else nearest_tfloat32(x) for x in (a, b))
    return _product(constants, waves, (rows, columns), a, b, np.zeros((m, n), np.float32), left @ right.T, (1e-5, 1e-5))


def nearest_tfloat32(x: Any) -> Any:
    """The nearest numbers with 10 bits of mantissa, as float64; between two the larger one."""
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


@cache
def gemm_e4m3fn(rows: int, columns: int, waves: int, m: int, n: int, k: int) -> Case:
    """The same of the format of other machines, whose halves are multiplied. Each of its finite numbers takes part."""
    constants = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": 64, "STAGES": 2, "PRODUCERS": 0,
                 "IN": float8_e4m3fn, "MULTIPLY": float8_e4m3fnuz, "OUT": float32}  # fmt: skip
    finite = np.delete(np.arange(256, dtype=np.uint8), (0x7F, 0xFF))
    bits = np.random.default_rng(k).choice(finite, (m + n, k))
    bits.reshape(-1)[:254] = finite
    a, b = bits[:m], bits[m:]
    right = from_bits(a, float8_e4m3fn).astype(np.float64) @ from_bits(b, float8_e4m3fn).T
    return _product(constants, waves, (rows, columns), a, b, np.zeros((m, n), np.float32), right, (1e-5, 0.25))


@cache
def example(name: str, side: int, m: int, n: int, k: int, near: bool = False) -> Case:
    """A product of the examples whose author wrote its waits and barriers, with square tiles of `side`.

    `near`: rows are close together, and loads to LDS go by offsets.
    """
    path = Path(f"examples/{name}.py")
    text = path.read_text(encoding="utf-8")
    if near:
        text = text.replace("global_load_lds", "buffer_load_lds.offen").replace("    M, K = a.shape\n", NEAR_ROWS)
    kernel = lower(elaborate(SourceFile(str(path), text), name, Options("gfx942")), "gfx942")
    a, b = to_bfloat16(random(m, k)), to_bfloat16(random(n, k))
    named = {"a": a, "b": b, "c": np.zeros((m, n), np.uint16), "M": m, "N": n, "K": k}
    right = {"c": from_bfloat16(a) @ from_bfloat16(b).T}
    return Case(kernel, (-(-m // side), -(-n // side)), named, right, (2**-7, 1e-3))


def _product(constants: Any, waves: int, tile: tuple[int, int], a: Any, b: Any, c: Any, right: Any, error: Any) -> Case:
    kernel = lowered(KERNELS / "gemm.py", "gemm", waves, constants)
    (m, k), n = a.shape, len(b)
    more = {"bias": _ONE, "residual": np.ones((1, 1), np.float32), "scale_a": _ONE, "scale_b": _ONE}
    named = {"a": a, "b": b, "c": c, **more, "M": m, "N": n, "K": k, "lda": k, "ldb": k}
    return Case(kernel, (-(-m // tile[0]), -(-n // tile[1])), named, {"c": right}, error)


@cache
def attention(size: int, causal: bool, heads: int, m: int, n: int) -> Case:
    """Attention of one head in the tile that the library takes for `heads` of them."""
    tiles = dict(wave_tiles(AttentionShape(size, 4096, 4096, heads, heads, causal), bfloat16))
    waves, rows = int(tiles.pop("num_warps")), int(tiles["BLOCK_M"])
    constants = {**tiles, "D": size, "DTYPE": bfloat16, "OUT": bfloat16, "CAUSAL": causal}
    kernel = lowered(KERNELS / "attention.py", "attention_forward", waves, constants)
    q, k, v = (to_bfloat16(random(1, 1, length, size + i)[..., i:]) for i, length in enumerate((m, n, n)))
    scale, blocks = size**-0.5, -(-m // rows)
    arrays = {"q": q, "k": k, "v": v, "o": np.zeros((1, 1, 1, m, size), np.uint16)}
    named = {**arrays, "lse": np.zeros((1, 1, 1, m), np.float32), "scale": scale * 1.4426950408889634}
    sizes = {"B": 1, "H": 1, "HK": 1, "M": m, "N": n, "P": 1}
    s = from_bfloat16(q)[0, 0].astype(np.float64) @ from_bfloat16(k)[0, 0].T * scale
    s = np.where(np.arange(n) <= np.arange(m)[:, None] + n - m, s, -np.inf) if causal else s
    e = np.exp(s - s.max(1, keepdims=True))
    o = e @ from_bfloat16(v)[0, 0] / e.sum(1, keepdims=True)
    right = {"o": o[None, None, None], "lse": (np.log(e.sum(1)) + s.max(1))[None, None, None]}
    return Case(kernel, (1, 1, blocks) if causal else (blocks, 1, 1), {**named, **sizes}, right, (0.02, 0.02))


@cache
def grouped(dtype: DType, tile: tuple[int, int, int], columns: int, depth: int, ends: tuple[int, ...]) -> Case:
    """Products of experts with SwiGLU, rows gathered: expert e has the rows up to `ends[e]`.

    `tile`: rows, columns and waves of a block.
    """
    side, across, waves = tile
    tokens, count = 50, len(ends)
    first, owner = _tiles(ends, side)
    constants = {"DTYPE": dtype, "ACTIVATION": experts.swiglu, "ROWS": side, "COLUMNS": across,
                 "DEPTH": 512 // dtype.bits, "STAGES": 2, "PRODUCERS": 0}  # fmt: skip
    kernel = lowered(KERNELS / "experts.py", "expert_rows", waves, constants)
    narrow, wide = (to_bfloat16, from_bfloat16) if dtype == bfloat16 else (_bytes, FP8["fp8"].__getitem__)
    x, w = narrow(random(tokens, depth) / 4), narrow(random(count, 2 * columns, depth) / 4)
    token = np.random.default_rng(3).integers(0, tokens, ends[-1]).astype(np.int32)
    whose = np.searchsorted(ends, np.arange(ends[-1]), side="right")
    both = np.einsum("pk,pnk->pn", wide(x)[token].astype(np.float64), wide(w).astype(np.float64)[whose])
    gate, up = both[:, :columns], both[:, columns:]
    named = {"x": x, "token": token, "first": np.array(first, np.int32), "w": w}
    named |= {"owner": np.array([*owner, 0], np.int32), "out": np.zeros((ends[-1], columns), x.dtype)}
    sizes = {"T": tokens, "K": depth, "E": count, "N": 2 * columns, "P": ends[-1], "C": columns, "L1": len(first)}
    grid = (len(owner) * -(-columns // across),)
    error = (2**-6, 1e-2) if dtype == bfloat16 else (2**-3, 1e-2)
    return Case(kernel, grid, {**named, **sizes}, {"out": gate / (1 + np.exp(-gate)) * up}, error)


@cache
def grouped_blocks(columns: int, depth: int, ends: tuple[int, ...], side: int = 256, waves: int = 8) -> Case:
    """The same of 8 bits, with scales of blocks, in tiles of `side` rows, by default those of the kernel."""
    across, tokens, count = 128, 50, len(ends)
    first, owner = _tiles(ends, side)
    constants = {"ACTIVATION": experts.swiglu, "ROWS": side}
    kernel = lowered(KERNELS / "gated_blocks.py", "gated_block_rows", waves, constants)
    x, w = _bytes(random(tokens, depth) / 4), _bytes(random(count, 2 * columns, depth) / 4)
    blocks = -(-depth // 128)
    scale_x = np.abs(random(blocks, tokens)).astype(np.float32) + 0.5
    scale_w = np.abs(random(count, 2, -(-columns // 128), blocks)).astype(np.float32) + 0.5
    token = np.random.default_rng(3).integers(0, tokens, ends[-1]).astype(np.int32)
    whose, wide = np.searchsorted(ends, np.arange(ends[-1]), side="right"), FP8["fp8"].__getitem__
    rows = wide(x).astype(np.float64) * scale_x.repeat(128, 0)[:depth].T
    weights = wide(w).astype(np.float64).reshape(count, 2, columns, depth)
    weights = weights * scale_w.repeat(128, 2)[:, :, :columns].repeat(128, 3)[..., :depth]
    gate, up = np.einsum("pk,phnk->hpn", rows[token], weights[whose])
    named = {"x": x, "scale_x": scale_x, "token": token, "first": np.array(first, np.int32), "w": w}
    named |= {"scale_w": scale_w, "owner": np.array([*owner, 0], np.int32)}
    named |= {"out": np.zeros((ends[-1], columns), np.uint16)}
    sizes = {"T": tokens, "K": depth, "E": count, "N": 2 * columns, "P": ends[-1], "C": columns, "L1": len(first)}
    sizes |= {"G": blocks, "H": 2, "L": scale_w.shape[2]}
    grid = (len(owner) * -(-columns // across),)
    return Case(kernel, grid, {**named, **sizes}, {"out": gate / (1 + np.exp(-gate)) * up}, (2**-7, 1e-2))


def _tiles(ends: tuple[int, ...], side: int) -> tuple[list[int], list[int]]:
    """Where the tiles of `side` rows begin, and whose they are."""
    first, owner = [0], []
    for e, (begin, end) in enumerate(zip((0, *ends), ends, strict=False)):
        for start in range(begin, end, side):
            first.append(min(start + side, end))
            owner.append(e)
    return first, owner


def _bytes(x: Any) -> Any:
    """The nearest numbers of 8 bits, of those that are finite."""
    values = np.where(np.isnan(FP8["fp8"]), np.inf, FP8["fp8"])
    order = np.argsort(values)
    middles = (values[order][1:] + values[order][:-1]) / 2
    return order[np.searchsorted(middles, x)].astype(np.uint8)
