"""Products with weights of 4 or 8 bits: packing, the choice of tiles, and the operators.

For few tokens, products read packed weights directly, so that the weights are read only once. For many tokens the
arithmetic dominates, so the weights are first unpacked to 16 bits for `matmul`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from argus.backend.launch.evaluate import Number
from argus.diagnostic import LaunchError
from argus.ir.machine import H200
from argus.ir.types import DTYPES, DType
from argus.kernels.gemm import combine, gemm
from argus.kernels.matmul import calls, tiles_of_parts
from argus.kernels.operands import problem, request
from argus.kernels.packed import WORDS, product_of_packed, unpacked_weights
from argus.kernels.rows import columns, dtype_of, matrix, same_rank, same_shape
from argus.kernels.table import tile_for
from argus.runtime.device import target_of
from argus.runtime.function import Function, Operator
from argus.runtime.work import Call, Work

if TYPE_CHECKING:
    import torch

_HALVES = ("bfloat16", "float16")
_FEW = 256  # tokens up to which products read packed weights
_ENOUGH = 200
"""Number of blocks above which sums are not cut into parts."""
_BLOCKS = {4: 2 * H200.multiprocessors, 8: H200.multiprocessors, 16: H200.multiprocessors}
"""The largest number of blocks that parts may make, by their warps: all of them run at once."""
_MOST_TOKENS = 64  # of a tile
_BUSY = 100  # blocks that keep the machine busy
_TOGETHER = 8  # scales in 16 bytes
_MOST_PARTS = 16
_LEAST_DEPTH = 2048  # of a part; half of it where there are fewer blocks than multiprocessors
_SCALES, _MOST_SCALES = 64, 128  # groups whose scales fill 128 bytes, and the most that a tile has room for
_SMALLEST_GROUP = {4: 32, 8: 16}


def span(bits: int) -> int:
    """Return the number of weights of a row that are packed together."""
    return 32 // bits * WORDS


def pack_weights(weights: torch.Tensor, bits: int) -> torch.Tensor:
    """Integer weights `[N, K]` of 0 to `2**bits - 1`, packed as `matmul_int4` and `matmul_int8` take them.

    The result is of int32, `[ceil(K / s), N, 32]`, with `s = 1024 / bits`. With `p = k % s`, weight k of row n is in
    block `k // s`, in word `p // (128 // bits) * 4 + p % 8 // 2`, from bit `p % (128 // bits) // 8 * bits + p % 2 * 16`
    on. What is beyond K is 0. Raises LaunchError.
    """
    import torch

    _check_bits(bits)
    same_rank("weights", weights, 2)
    rows, depth = weights.shape
    blocks, each = -(-depth // span(bits)), span(bits)
    padded = torch.zeros(rows, blocks * each, dtype=torch.int64, device=weights.device)
    padded[:, :depth] = weights.to(torch.int64) & (2**bits - 1)
    chunks = padded.view(rows, blocks, WORDS // 4, 16 // bits, 4, 2)  # chunk, eighth, lane, half
    places = torch.arange(16 // bits, device=weights.device)[:, None, None] * bits
    places = places + torch.arange(2, device=weights.device) * 16
    words = (chunks << places).sum(dim=(3, 5)).view(rows, blocks, WORDS)
    words = torch.where(words >= 2**31, words - 2**32, words)
    return words.to(torch.int32).permute(1, 0, 2).contiguous()


def matmul_int4(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None = None, *, group: int = 128
) -> torch.Tensor:
    """Return `x @ w.T` in x's dtype, with `w[n, k] = (packed weight - zeros[n, k // group]) * scales[n, k // group]`.

    `x` `[..., K]` is bfloat16 or float16, as are `scales` `[N, ceil(K / group)]`; `packed` is what `pack_weights` makes
    of weights `[N, K]` of 0 to 15; `zeros`, in the dtype and shape of `scales`, are any numbers, by default all 8.
    Differences of weights and zeros are rounded to x's dtype, which holds those of whole zeros from 0 to 15 exactly.
    `group` is 32, 64, 128 or a multiple of 256, such as one of all K rounded up. Float32 arithmetic; no gradient.
    Raises LaunchError.
    """
    return _matmul(x, packed, scales, zeros, 4, group)


def matmul_int8(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None = None, *, group: int = 128
) -> torch.Tensor:
    """Return the same product as `matmul_int4` for weights from 0 to 255. The default of all zeros is 128.

    All shapes and dtypes but that of `packed` are those of `matmul_int4`; `packed` is what `pack_weights` makes with
    `bits=8`. `group` is 16, 32, 64 or a multiple of 128. Float32 arithmetic; no gradient. Raises LaunchError.
    """
    return _matmul(x, packed, scales, zeros, 8, group)


def _matmul(
    x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, bits: int, group: int
) -> torch.Tensor:
    tensors = (x, packed, scales) if zeros is None else (x, packed, scales, zeros)
    result: torch.Tensor = (_int4 if bits == 4 else _int8)(tensors, (), (group,))
    return result


@lru_cache(maxsize=4096)
def tile_of(target: str, tokens: int, rows: int, depth: int, bits: int, group: int, aligned: bool) -> Mapping[str, Any]:
    """Return the constants of a product straight from packed weights. DEPTH is 0 if the sum is not split.

    `aligned`: the copy engine can bring all operands.
    """
    shape = _tile(target, tokens, rows, depth, group, aligned)
    unit = max(_TOGETHER * group, span(bits))  # the copy engine begins at whole vectors of scales
    units = -(-depth // unit)
    blocks = -(-rows // shape["ROWS"]) * -(-tokens // shape["TOKENS"])
    wanted = 1 if target == "cpu" or blocks > _ENOUGH else _parts(blocks, depth, shape["num_warps"])
    most = _SCALES if target == "gfx942" else _MOST_SCALES
    needed = -(-depth // (most * group))
    each = -(-units // max(1, wanted, needed)) * unit
    scales = -(-min(each, depth) // group)
    return {**shape, "DEPTH": 0 if each >= depth else each, "SCALES": -(-scales // _SCALES) * _SCALES}


def _parts(blocks: int, depth: int, warps: int) -> int:
    """Return into how many parts to cut sums of `depth` terms whose tiles make so many blocks."""
    deep = min(_BLOCKS[warps] // blocks, depth // _LEAST_DEPTH)
    short = min(H200.multiprocessors // blocks, 2 * depth // _LEAST_DEPTH)
    return min(_MOST_PARTS, max(deep, short))


def _tile(target: str, tokens: int, rows: int, depth: int, group: int, aligned: bool) -> dict[str, Any]:
    """Return the constants of a tile. With producer warps, as many computing warps share a multiprocessor as leave
    enough blocks, parts of sums included: unpacking weights is what they are busy with."""
    if target == "cpu":
        return {"ROWS": 32, "TOKENS": 16, "STAGES": 1, "num_warps": 2}
    if target == "gfx942":  # whose matrix instructions multiply 16 columns, and whose LDS has 64 KiB
        return {"ROWS": 64, "TOKENS": 16 if tokens <= 16 else 32, "STAGES": 2, "PRODUCERS": 0, "num_warps": 4}
    width = next(n for n in (8, 16, 32, _MOST_TOKENS) if tokens <= n or n == _MOST_TOKENS)
    shape = {"ROWS": 64, "TOKENS": width, "STAGES": 4, "PRODUCERS": 0, "num_warps": 4}
    if target != "sm_90a" or not aligned:
        return shape
    shape |= {"PRODUCERS": 4, "STAGES": 3}
    if width == _MOST_TOKENS and rows * max(1, depth // _LEAST_DEPTH) >= _BUSY * 128:
        return {**shape, "ROWS": 128, "num_warps": 8, "SCHEDULE": "rows"}
    if width < _MOST_TOKENS and rows >= _BUSY * 256 and -(-depth // group) <= _SCALES:
        return {**shape, "ROWS": 256, "num_warps": 16, "SCHEDULE": "rows"}
    if width < _MOST_TOKENS and rows >= _BUSY * 128:
        return {**shape, "ROWS": 128, "STAGES": 4, "num_warps": 8, "SCHEDULE": "rows"}
    return shape


def _aligned(*tensors: torch.Tensor | None) -> bool:
    """Return True if addresses and rows of all tensors begin at multiples of 16 bytes."""
    given = [t for t in tensors if t is not None]
    places = (p for t in given for p in (t.data_ptr(), *(s * t.element_size() for s in t.stride()[:-1])))
    return all(place % 16 == 0 for place in places)


def _work(tensors: tuple[torch.Tensor, ...], bits: int, group: int) -> Work:
    dtype = _checked(*tensors, bits=bits, group=group)
    x, packed, scales = matrix(tensors[0]), tensors[1].contiguous(), tensors[2].contiguous()
    zeros = tensors[3].contiguous() if len(tensors) > 3 else None
    (tokens, depth), rows = x.shape, scales.shape[0]
    out = x.new_empty(tokens, rows)
    result = out.view(*tensors[0].shape[:-1], rows)
    target = target_of(str(x.device))
    constants = {"DTYPE": dtype, "BITS": bits, "GROUP": group}
    if not out.numel():
        return Work((), (result,))
    if tokens > _FEW and target != "cpu":
        weights = x.new_empty(rows, depth)
        unpack = Call(unpacked_weights, (packed, scales, zeros, weights), constants)
        asked = request(x, weights.mT, out, None, None, None, None, None)
        shape = problem(asked)
        return Work((unpack, *calls(gemm, combine, asked, shape, tile_for(shape), _unread(x))), (result,))
    given = (x, packed, scales, zeros)
    tile = tile_of(target, tokens, rows, depth, bits, group, _aligned(*given))
    if not tile["DEPTH"]:
        return Work((Call(product_of_packed, (*given, out), {**constants, "OUT": dtype, **tile}),), (result,))
    return Work(_of_parts(given, out, {**constants, **tile}), (result,))


def _of_parts(given: tuple[Any, ...], out: torch.Tensor, constants: dict[str, Any]) -> tuple[Call, ...]:
    """Return the launches that compute partial sums and add them up."""
    import torch

    x, depth = given[0], int(constants["DEPTH"])
    count = -(-x.shape[1] // depth)
    parts = x.new_empty(count, *out.shape, dtype=torch.float32)
    one = _unread(x)
    added = {"OUT": constants["DTYPE"], "PARTS": count, "DEPTH": depth, **tiles_of_parts(count, *out.shape)}
    return (
        Call(product_of_packed, (*given, parts), {**constants, "OUT": DTYPES["float32"], "OUT_SHAPE": "S M N"}),
        Call(combine, (parts, out, one, one[None], one, one, x.shape[1]), added),
    )


def _unread(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor in place of absent scales and biases."""
    import torch

    return x.new_empty(1, dtype=torch.float32)


def _check_bits(bits: int) -> None:
    if bits not in _SMALLEST_GROUP:
        raise LaunchError.of("argument-type", f"`bits` is {bits}", "use 4 or 8")


def _checked(
    x: torch.Tensor,
    packed: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None = None,
    *,
    bits: int,
    group: int,
) -> DType:
    """Return the dtype. Raises LaunchError."""
    dtype, depth = dtype_of("x", x, _HALVES), columns(x)
    dtype_of("scales", scales, (dtype.name,))
    dtype_of("packed", packed, ("int32",))
    same_rank("packed", packed, 3)
    least, each = _SMALLEST_GROUP[bits], span(bits)
    if group < least or group % least or (each % group and group % each):
        what = f"groups of {group} weights of {bits} bits are not supported"
        raise LaunchError.of("argument-type", what, f"use {least}, {2 * least}, {each} or a multiple of {each}")
    rows = packed.shape[1]
    same_shape("packed", packed, (-(-depth // each), rows, WORDS))
    same_shape("scales", scales, (rows, -(-depth // group)))
    if zeros is not None:
        dtype_of("zeros", zeros, (dtype.name,))
        same_shape("zeros", zeros, tuple(scales.shape))
    return dtype


def _function(bits: int) -> Function:
    """Return the operator for weights of the given number of bits."""

    def work(tensors: tuple[torch.Tensor, ...], _numbers: tuple[Number, ...], group: int) -> Work:
        return _work(tensors, bits, group)

    def fake(
        x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, group: int
    ) -> torch.Tensor:
        _checked(x, packed, scales, zeros, bits=bits, group=group)
        return x.new_empty(*x.shape[:-1], scales.shape[0])

    given = "Tensor x, Tensor packed, Tensor scales, Tensor? zeros=None, int group=128"
    return Function(work, Operator(f"matmul_int{bits}({given}) -> Tensor", fake, join=_joined, split=_split))


def _joined(tensors: tuple[Any, ...], _numbers: tuple[Number, ...], way: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*tensors[:3], tensors[3] if len(tensors) > 3 else None, *way)


def _split(*given: Any) -> tuple[tuple[Any, ...], tuple[Number, ...], tuple[Any, ...]]:
    return tuple(t for t in given[:4] if t is not None), (), given[4:]


_int4, _int8 = _function(4), _function(8)
