"""Builds of everything that ships, for sm_90a: registers, spills, and if products are made to wait for one another.

Kernels with asynchronous products are built in each form that the library calls; others with their defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from argus.backend.artifact import SERIALISED
from argus.backend.build import build
from argus.compile import elaborate
from argus.frontend import Options
from argus.ir.nodes import Kernel
from argus.ir.types import float8_e4m3fn, float32
from argus.kernels.attention_backward import _HOPPER as STEPS_OF_64
from argus.kernels.attention_backward import _KEYS_OF_64 as STEPS_OF_128
from argus.kernels.attention_backward_fused import ORDERS, STEPS
from argus.kernels.attention_float8 import _HOPPER as EIGHT_BIT_TILES
from argus.kernels.attention_tiles import AttentionShape, hopper_tiles
from argus.kernels.attention_varlen import _SHORT as SHORT
from argus.kernels.attention_varlen import _TILES as TILES
from argus.kernels.attention_with import _WIDE as WIDE
from argus.kernels.expert_products import tile_of as expert_tile
from argus.kernels.experts import swiglu
from argus.kernels.matmul_packed import tile_of as packed_tile
from argus.passes import lower
from argus.source import SourceFile
from benchmarks.mutants import SUBJECTS
from benchmarks.table import Cell, Results

TARGET = "sm_90a"
_FOLDER = Path("argus/kernels")
Constants = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Built:
    """A kernel of argus/kernels/`file`.py, and the constants of one form; `num_warps` may be among them."""

    file: str
    kernel: str
    how: str
    constants: Constants
    alignment: int = 16

    @property
    def title(self) -> str:
        """The kernel's name and form."""
        return f"{self.kernel}, {self.how}" if self.how else self.kernel

    def lowered(self) -> Kernel:
        """Return the explicit kernel."""
        path = _FOLDER / f"{self.file}.py"
        constants = dict(self.constants)
        warps = constants.pop("num_warps", None)
        assert warps is None or isinstance(warps, int)
        options = Options(TARGET, warps, constants, default_alignment=self.alignment)
        source = SourceFile(str(path), path.read_text(encoding="utf-8"))
        return lower(elaborate(source, self.kernel, options), TARGET)


def _defaults() -> Iterator[Built]:
    """Yield each subject of the mutants that is for this target."""
    for s in SUBJECTS:
        if s.file.startswith(str(_FOLDER)) and s.target == TARGET:
            warps: Constants = {} if s.num_warps is None else {"num_warps": s.num_warps}
            yield Built(Path(s.file).stem, s.kernel, s.how, {**s.constants, **warps}, s.alignment)


def _attention() -> Iterator[Built]:
    """Yield attention in the tiles that the model chooses: for many and few rows, and for few keys."""
    shapes = ((4096, 4096, 64), (1024, 1024, 32), (512, 4096, 8), (77, 77, 160))
    for size, causal, (rows, keys, heads) in product((64, 128), (False, True), shapes):
        tiles = hopper_tiles(AttentionShape(size, rows, keys, heads, heads, causal))
        out: Constants = {"OUT": float32} if "PARTS" in tiles else {}
        how = f"{size}{' causal' if causal else ''}, {rows} x {keys}"
        yield Built("attention", "attention_forward", how, {"D": size, "CAUSAL": causal, **out, **tiles})
    for (width, values), columns in WIDE.items():
        tiles = {"BLOCK_M": 128, "BLOCK_N": columns, "STAGES": 2, "num_warps": 8, "WIDTH": width}
        for causal in (False, True):
            how = f"{width} and {values}{' causal' if causal else ''}"
            yield Built("attention_with", "attention_added", how,
                        {"D": width, "E": values, "CAUSAL": causal, **tiles})  # fmt: skip
    for size, causal in product((64, 128), (False, True)):
        eight: Constants = {"D": size, "CAUSAL": causal, **EIGHT_BIT_TILES}
        yield Built("attention_float8", "attention_eight_bits", f"{size}{' causal' if causal else ''}", eight)
    windows: Constants = {"CAUSAL": True, "WINDOW": 512, "SCHEDULE": "turns", "num_warps": 8}
    for size in (64, 128):
        yield Built("attention", "attention_forward", f"{size}, window", {"D": size, **windows})
        yield Built("attention", "attention_forward", f"{size}, soft cap", {"D": size, **windows, "CAP": 30.0})
    for tiles, size, causal in product((TILES, SHORT), (64, 128), (False, True)):
        how = f"{size}{' causal' if causal else ''}, {tiles['BLOCK_M']} rows"
        yield Built("attention_varlen", "attention_packed", how, {"D": size, "CAUSAL": causal, **tiles})


def _backward() -> Iterator[Built]:
    """Yield the gradients of attention."""
    ways: tuple[tuple[str, Constants], ...] = (
        ("", {}), (" causal", {"CAUSAL": True}), (" window", {"CAUSAL": True, "WINDOW": 512}),
        (" shared", {"GROUP": 4}),
    )  # fmt: skip
    for size, (how, constants) in product((64, 128), ways):
        wide = STEPS_OF_128 if size == 64 else STEPS_OF_64
        base: Constants = {"D": size, **constants}
        yield Built("attention_backward", "attention_backward_keys", f"{size}{how}", {**base, **wide})
        queries = {**base, **STEPS_OF_64}
        yield Built("attention_backward", "attention_backward_queries", f"{size}{how}", queries)
    for size, (how, constants) in product((64, 128), ways):
        if "WINDOW" not in constants:
            tile: Constants = {"D": size, "STEP": STEPS[size], "SUMS": f"B H GROUP {ORDERS[size]}"}
            yield Built("attention_backward_fused", "attention_backward_blocks", f"{size}{how}", {**tile, **constants})
    for size, causal in product((64, 128), (False, True)):
        tiles = {"D": size, **STEPS_OF_64}
        how = f"{size}{' causal' if causal else ''}"
        hidden: Constants = {} if causal else {"shift": None}
        yield Built("attention_varlen_backward", "attention_packed_keys", how, {**tiles, **hidden})
        yield Built("attention_varlen_backward", "attention_packed_queries", how, tiles | {"CAUSAL": causal})


def _products() -> Iterator[Built]:
    """Yield matrix products."""
    for schedule in ("cooperative", "rows"):
        for rows, columns in ((64, 256), (128, 256), (128, 192), (128, 128), (128, 176)):
            tile: Constants = {"BLOCK_M": rows, "BLOCK_N": columns, "SCHEDULE": schedule, "num_warps": rows // 16}
            yield Built("gemm", "gemm", f"{schedule}, {rows} x {columns}", tile)
    for rows, columns in ((64, 256), (128, 128), (128, 176), (128, 192)):
        turns: Constants = {"BLOCK_M": rows, "BLOCK_N": columns, "SCHEDULE": "pingpong", "num_warps": 4}
        yield Built("gemm", "gemm", f"pingpong, {rows} x {columns}", turns)
    eight: Constants = {"IN": float8_e4m3fn, "MULTIPLY": float8_e4m3fn, "BLOCK_K": 128}
    yield Built("gemm", "gemm", "float8", eight)
    yield Built("gemm", "gemm", "float8, pingpong", {**eight, "BLOCK_N": 192, "SCHEDULE": "pingpong", "num_warps": 4})
    few: Constants = {"C": "N M", "BLOCK_M": 64, "BLOCK_N": 8, "BLOCK_K": 256, "STAGES": 6, "num_warps": 4}
    yield Built("gemm", "gemm", "few rows", few)
    for rows in (64, 128):
        yield Built("blockwise", "product_of_blocks", f"{rows} rows", {"ROWS": rows, "num_warps": rows // 16})
        yield Built("expert_blocks", "expert_blocks", f"{rows} rows", {"ROWS": rows, "num_warps": rows // 16})


def _experts() -> Iterator[Built]:
    """Yield products with the weights of experts, and with packed weights."""
    for rows, depth, gated, turned in (
        (512, 2048, False, False), (512, 8192, False, False), (512, 2048, True, False), (512, 8192, True, False),
        (512, 2048, False, True), (20, 2048, False, False), (20, 2048, True, False), (8, 2048, False, False),
        (20, 2048, False, True),
    ):  # fmt: skip
        tile = expert_tile(TARGET, rows, 1, depth, True, gated, turned)
        way: Constants = {"token": None, **({"ACTIVATION": swiglu} if gated else {})}
        sums = f" of {depth}" if rows > 20 and not turned else ""
        how = f"{rows} rows an expert{sums}" + ", gated" * gated + ", weights by columns" * turned
        yield Built("experts", "expert_rows", how, {**way, **({"WEIGHTS": "E K N"} if turned else {}), **tile})
    for bits, tokens, rows in product((4, 8), (8, 64), (1024, 4096, 28672)):
        tile = packed_tile(TARGET, tokens, rows, 8192, bits, 128, True)
        parts: Constants = {"OUT": float32, "OUT_SHAPE": "Z M N"} if tile["DEPTH"] else {}
        yield Built("packed", "product_of_packed", f"{bits} bits, {tokens} tokens, {rows} rows",
                    {"BITS": bits, **parts, **tile})  # fmt: skip
    weights = {"ROWS": 128, "COLUMNS": 128, "DEPTH": 64, "STAGES": 4, "PRODUCERS": 8, "num_warps": 8}
    yield Built("experts_backward", "weight_gradients", "128 x 128", weights)


def kernels() -> Sequence[Built]:
    """Return every kernel and form once."""
    forms = (*_attention(), *_backward(), *_products(), *_experts(), *_defaults())
    return tuple({form.title: form for form in forms}.values())


def run(only: Sequence[str] = ()) -> Results:
    """Make the table: a row for each kernel whose title contains one of the words `only`, if there are any."""
    chosen = [form for form in kernels() if not only or any(word in form.title for word in only)]
    return Results("Everything that ships, built for sm_90a", [row(form) for form in chosen])


def row(form: Built) -> dict[str, Cell]:
    """Build one kernel and return its row."""
    artifact = build(form.lowered(), TARGET)
    assert artifact.resources is not None
    waits = [d.message.partition(": ")[2] for d in artifact.remarks if d.code == SERIALISED]
    figures = (artifact.resources.registers, artifact.resources.spill_bytes, "; ".join(waits) or "no")
    return {"kernel": form.title, **dict(zip(("registers", "spilled bytes", "products wait"), figures, strict=True))}
