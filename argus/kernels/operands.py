"""The request of a call of `matmul`: its tensors are checked, folded, and described to the kernel with their memory
layout."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING, Any

from argus.backend.fingerprint import file_from_json, file_to_json
from argus.diagnostic import LaunchError
from argus.frontend.decorator import FuncSource
from argus.ir.machine import MI300X
from argus.ir.types import DTYPES, DType
from argus.kernels import pack
from argus.kernels.gemm import gelu, gelu_tanh, relu, silu
from argus.kernels.product_tile import LINE, ProductShape, Tile
from argus.numbered import numbered
from argus.runtime.device import target_of
from argus.runtime.jit_kernel import JitKernel

if TYPE_CHECKING:
    import torch

EPILOGUES = {"relu": relu, "silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh}
"""Named epilogues. Any other `@argus.func` of one float32 tile may be passed directly."""

OPERANDS = ("float16", "bfloat16", "float32", "float8_e4m3fn")
WAVE_OPERANDS = (*OPERANDS, "float8_e4m3fnuz")
"""Those of gfx942, whose matrix instructions take no other format of 8 bits than the last."""
RESULTS = ("float16", "bfloat16", "float32")
NEAR = 2**22
"""Elements: of rows that are fewer apart, 256 span less than 2**31 bytes."""
NEAR_TILES = ((256, 256, 16), (128, 128, 16))
"""Rows, columns and bits of operands of tiles whose loops have less vector work by such loads, and are no slower, or by
less than a hundredth, in the model of time. In others clang places these loads worse (docs/performance/mi300x.md)."""
_ALIGNED = 16  # bytes: the alignment that the copy engine needs for addresses and strides


@dataclass(frozen=True, slots=True)
class Request:
    """A product c[.., m, n] of a[.., m, k] and b[.., n, k], each with two or three dimensions. The other tensors may be
    absent.

    `turned`: a and b are exchanged, so that `bias` goes along m. `tf32`: float32 is multiplied as tfloat32.
    """

    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor
    bias: torch.Tensor | None
    residual: torch.Tensor | None
    scale_a: torch.Tensor | None
    scale_b: torch.Tensor | None
    epilogue: FuncSource | None
    turned: bool = False
    tf32: bool = True


def dtype_name(x: torch.Tensor | torch.dtype) -> str:
    """Return the dtype's name, such as `float16`."""
    return str(getattr(x, "dtype", x)).removeprefix("torch.")


def result_dtype(a: torch.Tensor, wanted: torch.dtype | None, out: torch.Tensor | None) -> str:
    """Return the name of the result's dtype. Raises LaunchError "dtype-mismatch"."""
    of_a = dtype_name(a)
    name = dtype_name(wanted) if wanted is not None else dtype_name(out) if out is not None else of_a
    if wanted is None and out is None and of_a.startswith("float8"):
        name = "bfloat16"
    if name not in RESULTS or (out is not None and dtype_name(out) != name):
        found = name if out is None else dtype_name(out)
        raise LaunchError.of("dtype-mismatch", f"the result cannot be {found}", f"use one of {', '.join(RESULTS)}")
    return name


def result_shape(a: torch.Tensor, b: torch.Tensor) -> tuple[int, ...]:
    """Return the shape of a @ b. Raises LaunchError "shape-mismatch"."""
    batches = {x.shape[0] for x in (a, b) if x.ndim == 3} - {1}
    if not (2 <= a.ndim <= 3 and 2 <= b.ndim <= 3) or a.shape[-1] != b.shape[-2] or len(batches) > 1:
        raise LaunchError.of(
            "shape-mismatch",
            f"`a` {tuple(a.shape)} and `b` {tuple(b.shape)} have no product",
            "pass [M, K] or [Z, M, K], and [K, N] or [Z, K, N]",
        )
    single = a.ndim == b.ndim == 2
    return (*(() if single else (max(batches, default=1),)), a.shape[-2], b.shape[-1])


def check(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    epilogue: str | FuncSource | None,
    tf32: bool = True,
) -> None:
    """Raise LaunchError for tensors of wrong shapes or dtypes, for an invalid epilogue, and for products that the
    target has no instruction for. Tensors on the device meta are for any target."""
    shape = result_shape(a, b)
    target = None if a.is_meta else target_of(str(a.device))
    known = WAVE_OPERANDS if target in (None, MI300X.target) else OPERANDS
    if dtype_name(a) != dtype_name(b) or dtype_name(a) not in known:
        what = f"`a` is of {dtype_name(a)} and `b` of {dtype_name(b)}"
        raise LaunchError.of("dtype-mismatch", what, f"pass both of one of {', '.join(known)}")
    if dtype_name(a) == "float32" and not tf32 and target not in (None, MI300X.target):
        what = f"{target} has no matrix instruction for float32 times float32"
        raise LaunchError.of("no-matrix-instruction", what, "leave out `tf32=False`, or call `torch.matmul`")
    _check("out", out, (shape,), RESULTS)
    _check("residual", residual, (shape,), RESULTS)
    _check("bias", bias, ((shape[-1],),), RESULTS)
    _check("scale_a", scale_a, ((1,), (shape[-2],)), ("float32",))
    _check("scale_b", scale_b, ((1,), (shape[-1],)), ("float32",))
    if not (epilogue is None or isinstance(epilogue, FuncSource) or epilogue in EPILOGUES):
        what = f"{epilogue!r} is no epilogue"
        help = f"use one of {', '.join(EPILOGUES)}, or a function under `@argus.func`"
        raise LaunchError.of("argument-type", what, help)


def request(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    epilogue: str | FuncSource | None,
    tf32: bool = True,
) -> Request:
    """Return the checked request, with as few batches as views allow. Raises LaunchError."""
    check(a, b, c, bias, residual, scale_a, scale_b, epilogue, tf32)
    a, b = (x[0] if x.ndim == 3 and x.shape[0] == 1 and c.ndim == 3 else x for x in (a, b))
    named = EPILOGUES[epilogue] if isinstance(epilogue, str) else epilogue
    found = Request(a, b.mT, c, bias, residual, scale_a, scale_b, named, tf32=tf32)
    return _folded(found) if c.ndim == 3 else found


def epilogue_text(epilogue: str | FuncSource | None) -> str | None:
    """Return an epilogue as the text that an operator takes: a name, or a function with its file, as JSON."""
    return _text_of(epilogue.number) if isinstance(epilogue, FuncSource) else epilogue


def _text_of(function: int) -> str:
    found = numbered(function)
    return json.dumps([found.name, file_to_json(found.file)])


# Dynamo reads this attribute, which `torch.compiler.assume_constant_result` sets. PyTorch need not be imported.
_text_of._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache(maxsize=256)
def epilogue_of(text: str | None) -> str | FuncSource | None:
    """Return the epilogue that `epilogue_text` wrote as text: a name, or a function with its file."""
    if text is None or not text.startswith("["):
        return text
    name, file = json.loads(text)
    return FuncSource(name, file_from_json(file))


def _check(name: str, x: torch.Tensor | None, shapes: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...]) -> None:
    if x is None:
        return
    if tuple(x.shape) not in shapes:
        wanted = " or ".join(str(s) for s in shapes)
        raise LaunchError.of("shape-mismatch", f"`{name}` has the shape {tuple(x.shape)}", f"pass one of {wanted}")
    if dtype_name(x) not in dtypes:
        raise LaunchError.of("dtype-mismatch", f"`{name}` is of {dtype_name(x)}", f"pass one of {', '.join(dtypes)}")


def _folded(r: Request) -> Request:
    """Return a product of one matrix and a batch as one matrix product, if the batch's rows are evenly spaced."""
    if r.a.ndim == 3 and r.b.ndim == 2 and r.scale_a is None:
        views = [_rows(x) for x in (r.a, r.c, r.residual) if x is not None]
        if all(v is not None for v in views):
            a, c, *residual = views
            return replace(r, a=a, c=c, residual=residual[0] if residual else None)
    if r.a.ndim == r.b.ndim == 2:  # one batch
        return replace(r, c=r.c[0], residual=None if r.residual is None else r.residual[0])
    return r


def _rows(x: torch.Tensor) -> Any:
    """Return `x[z, i, j]` as a matrix of all rows, without copying, or None if there is no such view."""
    even = x.shape[0] == 1 or x.stride(0) == x.shape[1] * x.stride(1)
    return x.flatten(0, 1) if even else None


def problem(r: Request) -> ProductShape:
    """Return the shape of the product, from which a tile is chosen. Raises LaunchError "unsupported-device"."""
    (a, a_names, _), (b, b_names, _) = _stored(r.a, "M K", "a"), _stored(r.b, "N K", "b")
    target = target_of(str(r.a.device))
    bits = 8 * r.a.element_size()
    rows = a_names.endswith("K"), b_names.endswith("K")
    terms = r.a.shape[-1] > 0  # The copy engine cannot describe tensors without elements.
    bulk = target == "sm_90a" and terms and (bits == 16 or all(rows))
    loaded = sum(not _for_the_copy_engine(x) for x in (a, b)) if bulk else 0
    batch = r.c.shape[0] if r.c.ndim == 3 else 1
    packs = _packs(r) if batch == 1 and r.a.ndim == r.b.ndim == 2 else (False, False)
    lines = [_line(x) if bulk or any(packs) else LINE for x in (a, b)]
    stores = _for_the_copy_engine(_stored(r.c, "M N", "c")[0]) and r.c.stride(-1) == 1
    return ProductShape(
        r.a.shape[-2], r.b.shape[-2], r.a.shape[-1], batch, bits, 8 * r.c.element_size(), target, bulk, *rows,
        bulk_out=stores, residual=0 if r.residual is None else 8 * r.residual.element_size(), loaded=loaded,
        a_line=lines[0], b_line=lines[1], pack_a=packs[0], pack_b=packs[1],
        halves=bulk and not loaded and lines[0] == _ALIGNED and rows[0] and _in_two(r), exact=not r.tf32,
    )  # fmt: skip


def _in_two(r: Request) -> bool:
    """Return True if even and odd rows may be treated as two batches, because rows differ only in the elements of a."""
    alone = r.a.ndim == r.c.ndim == 2 and (r.scale_a is None or r.scale_a.shape[0] == 1)
    even = r.a.shape[0] % 2 == 0 and r.a.data_ptr() % (2 * _ALIGNED) == 0
    return alone and even and (r.bias is None or not r.turned)


def in_halves(r: Request) -> Request:
    """Return the product as two batches: the even rows of `a` and the odd ones."""
    residual = None if r.residual is None else _in_turns(r.residual)
    return replace(r, a=_in_turns(r.a), c=_in_turns(r.c), residual=residual)


def _in_turns(x: torch.Tensor) -> torch.Tensor:
    return x.view(-1, 2, x.shape[1]).transpose(0, 1)


def _packs(r: Request) -> tuple[bool, bool]:
    """Return which operands must be copied for wgmma and the copy engine to take both; none if copies do not help.

    Both have the same depth. If that is not a whole number of vectors, both are copied.
    """
    stored = [_stored(x, name, name[0].lower()) for x, name in ((r.a, "M K"), (r.b, "N K"))]
    wrong = [
        not _for_the_copy_engine(x) or not (names.endswith("K") or r.a.element_size() == 2) for x, names, _ in stored
    ]
    if r.a.shape[-1] * r.a.element_size() % _ALIGNED:
        wrong = [True, True]
    possible = all(strides.endswith(" 1") for _, _, strides in stored) and r.a.shape[-1] > 0
    first, second = wrong
    return possible and first, possible and second


@dataclass(frozen=True, slots=True)
class Packing:
    """`kernel(x, out, **constants)` copies operand `x` to `out`."""

    kernel: JitKernel
    x: torch.Tensor
    out: torch.Tensor
    constants: dict[str, object]


def packing(x: torch.Tensor) -> Packing:
    """Return the copy of an operand [rows, k] into rows of whole vectors that begin whole cache lines apart."""
    kept, names, _ = _stored(x, "M K", "x")
    kernel, constants = pack.kernel_for(kept, DTYPES[dtype_name(x)], rows=names.endswith("K"))
    return Packing(kernel, kept, _room(x.shape[0], x.shape[1], x.dtype, x.device), constants)


def _room(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    import torch

    line, vector = LINE // dtype.itemsize, _ALIGNED // dtype.itemsize
    return torch.empty(rows, -(-columns // line) * line, dtype=dtype, device=device)[
        :, : -(-columns // vector) * vector
    ]


def turned(r: Request) -> Request:
    """Return the transposed product: b times a."""
    residual = None if r.residual is None else r.residual.mT
    return Request(r.b, r.a, r.c.mT, r.bias, residual, r.scale_b, r.scale_a, r.epilogue, not r.turned, r.tf32)


def of_parts(r: Request, parts: torch.Tensor) -> Request:
    """Return the product whose result is `parts`, [S, M, N]. `combine` applies the epilogue to their sum."""
    return replace(r, c=parts, bias=None, residual=None, scale_a=None, scale_b=None, epilogue=None)


def by_rows(r: Request) -> Request:
    """Return the product or its transpose, whichever has a result with contiguous rows."""
    return turned(r) if _stored(r.c, "M N", "c")[1] == "N M" else r


def combined(r: Request, bulk: bool, ones: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], dict[str, object]]:
    """Return the arguments of `combine` between the parts and k, and its constants except those of the parts."""
    tensors, constants = arguments(r, bulk, ones)
    names = ("OUT", "BIAS", "BIAS_TYPE", "RESIDUAL", "RESIDUAL_TYPE", "SCALED", "SCALE_A", "SCALE_B", "EPILOGUE")
    return tensors[2:], {name: constants[name] for name in names if name in constants}


def arguments(r: Request, bulk: bool, ones: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], dict[str, object]]:
    """Return the kernel's tensors in order, with `ones` for absent ones, and its constants except the tile's."""
    a, a_names, a_strides = _stored(r.a, "M K", "a")
    b, b_names, b_strides = _stored(r.b, "N K", "b")
    c, c_names, _ = _stored(r.c, "M N", "c")
    of: DType = DTYPES["tfloat32"] if dtype_name(r.a) == "float32" and r.tf32 else DTYPES[dtype_name(r.a)]
    constants: dict[str, object] = {
        "IN": of,
        "MULTIPLY": _multiplied(of, target_of(str(r.a.device)), bulk),
        "OUT": DTYPES[dtype_name(c)],
        "A": a_names, "A_STRIDES": a_strides,
        "B": b_names, "B_STRIDES": b_strides,
        "C": c_names,
        "EPILOGUE": r.epilogue,
    }  # fmt: skip
    bias, residual, scale_a, scale_b = ones, ones[None], ones, ones
    if r.bias is not None:
        bias = r.bias
        constants |= {"BIAS": "M" if r.turned else "N", "BIAS_TYPE": DTYPES[dtype_name(bias)]}
    if r.residual is not None:
        residual, names, _ = _stored(r.residual, "M N", "r")
        constants |= {"RESIDUAL": names, "RESIDUAL_TYPE": DTYPES[dtype_name(residual)]}
    if r.scale_a is not None or r.scale_b is not None:
        scale_a, scale_b = (ones if s is None else s for s in (r.scale_a, r.scale_b))
        constants |= {
            "SCALED": True,
            "SCALE_A": "1" if scale_a.shape[0] == 1 else "M",
            "SCALE_B": "1" if scale_b.shape[0] == 1 else "N",
        }
    return (a, b, c, bias, residual, scale_a, scale_b), constants


def _multiplied(of: DType, target: str, bulk: bool) -> DType:
    """Return the dtype in which operands are multiplied; all conversions of 8 bits to it are exact."""
    if of.bits != 8 or bulk:
        return of
    return DTYPES["float8_e4m3fnuz" if target == MI300X.target else "float16"]


def near(problem: ProductShape, tile: Tile, a: torch.Tensor, b: torch.Tensor) -> dict[str, int]:
    """Return the constant for rows of operands that are close together in memory, if it makes the tile's loop faster.

    gfx942 then loads by offsets of 32 bits.
    """
    gains = problem.target == MI300X.target and (tile.block_m, tile.block_n, problem.bits) in NEAR_TILES
    return {"NEAR": NEAR} if gains and all(0 <= x.stride(-2) < NEAR for x in (a, b)) else {}


def _stored(x: torch.Tensor, names: str, tensor: str) -> tuple[torch.Tensor, str, str]:
    """Return `x` with its dimensions in memory order, their names in that order, and names for its strides.

    Where no dimension has stride 1, all strides are symbols.
    """
    across, down = x.stride(-1), x.stride(-2)
    by_columns = across != 1 and (down == 1 or (x.shape[-1] != 1 and x.shape[-2] == 1))
    last = "1" if across == 1 or x.shape[-1] == 1 or by_columns else f"s{tensor}"
    if by_columns:
        x, names = x.mT, " ".join(reversed(names.split()))
    batch = x.ndim == 3
    return x, f"Z {names}" if batch else names, f"{f'z{tensor} ' if batch else ''}ld{tensor} {last}"


def _for_the_copy_engine(x: torch.Tensor) -> bool:
    """Return True if the address, the strides and the rows are multiples of 16 bytes."""
    unit = x.element_size()
    places = (x.data_ptr(), x.shape[-1] * unit, *(s * unit for s in x.stride()[:-1]))
    return (x.stride(-1) == 1 or x.shape[-1] == 1) and all(place % _ALIGNED == 0 for place in places)


def _line(x: torch.Tensor) -> int:
    """Return the alignment of the rows of `x` in bytes, 16 to 128."""
    places = (x.data_ptr(), *(s * x.element_size() for s in x.stride()[:-1]))
    return max(_ALIGNED, gcd(LINE, *places))
