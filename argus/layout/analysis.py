"""Questions about layouts: equality, injectivity, linear forms, vector width, bank conflicts."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argus.layout.algebra import coalesced_modes
from argus.layout.core import Layout, flat_modes
from argus.layout.inttuple import LayoutError
from argus.layout.swizzle import AnyLayout, Swizzle, SwizzledLayout, offsets


def equal(a: AnyLayout, b: AnyLayout) -> bool:
    """Return True if both layouts have the same size and the same offset for every flat index."""
    if a.size() != b.size():
        return False
    if isinstance(a, Layout) and isinstance(b, Layout):
        return coalesced_modes(flat_modes(a)) == coalesced_modes(flat_modes(b)) or _same_offsets(a, b)
    return _same_offsets(a, b)


def _same_offsets(a: AnyLayout, b: AnyLayout) -> bool:
    return bool(np.array_equal(offsets(a), offsets(b)))


def is_injective(layout: AnyLayout) -> bool:
    """Return True if no two coordinates share an offset. Nested strides decide this directly; otherwise the offsets are
    enumerated."""
    inner = layout.inner if isinstance(layout, SwizzledLayout) else layout  # a swizzle is a bijection
    modes = sorted((abs(step), extent) for extent, step in flat_modes(inner) if extent > 1)
    reach = 0
    for step, extent in modes:
        if step <= reach:
            break
        reach += step * (extent - 1)
    else:
        return True
    if any(step == 0 for step, _ in modes):
        return False
    return len(np.unique(offsets(inner))) == inner.size()


def vector_width(layout: AnyLayout, limit: int = 1 << 30) -> int:
    """Largest w dividing the size such that each aligned run of w flat indices is w consecutive offsets from a
    multiple of w, so that it can move as one vector of w elements (given a base aligned to it). At most `limit`.

    Exact. The widths that fit are the divisors of one number, which strides give for a plain layout and the offsets of
    all elements for a swizzled one.
    """
    width = _swizzled_width(layout) if isinstance(layout, SwizzledLayout) else _plain_width(layout)
    return next((w for w in range(min(width, limit), 0, -1) if width % w == 0), 1)


def _plain_width(layout: Layout) -> int:
    modes = coalesced_modes(flat_modes(layout))
    if not modes or modes[0][1] != 1:
        return 1
    return gcd(modes[0][0], *(step for _, step in modes[1:]))


def _swizzled_width(layout: SwizzledLayout) -> int:
    """Return the largest width whose runs have consecutive offsets and start at a multiple of the width.

    A swizzle can also make runs longer than those of its inner layout, so only the offsets tell.
    """
    found = offsets(layout)
    breaks = np.flatnonzero(np.diff(found) != 1) + 1
    run = gcd(found.size, *breaks.tolist())
    return gcd(run, *found[::run].tolist())


# F2 form


@dataclass(frozen=True, slots=True)
class F2Form:
    """A layout as an affine map over bits: offset = `offset` XOR the columns of the set bits of the index.

    `columns[i]` is the offset contributed by bit i of the flat index, as an integer whose bits are the
    rows of the matrix.
    """

    columns: tuple[int, ...]
    offset: int = 0

    def __call__(self, index: int) -> int:
        """Offset of a flat index below `2**len(columns)`."""
        result = self.offset
        for bit, column in enumerate(self.columns):
            if index >> bit & 1:
                result ^= column
        return result

    def rank(self) -> int:
        """Rank over F2; the map is injective exactly when it equals the number of columns."""
        basis: list[int] = []
        for column in self.columns:
            for vector in basis:
                column = min(column, column ^ vector)
            if column:
                basis.append(column)
        return len(basis)


def f2_matrix(layout: AnyLayout) -> F2Form:
    """Return the F2 form. Law: `f2_matrix(L)(i) == L(i)` for all `i < L.size()`.

    Exists when every extent is a power of two and addition never carries: no two index bits may set the same bit of the
    (inner) offset. Raises `LayoutError` otherwise.
    """
    inner = layout.inner if isinstance(layout, SwizzledLayout) else layout
    start = layout.offset if isinstance(layout, SwizzledLayout) else 0
    columns: list[int] = []
    for extent, step in flat_modes(inner):
        if extent & (extent - 1):
            raise LayoutError(f"layout {layout} has no F2 form: its extent {extent} is not a power of two")
        if step < 0:
            raise LayoutError(f"layout {layout} has no F2 form: its stride {step} is negative")
        columns += [step << bit for bit in range(extent.bit_length() - 1)]
    used = start
    for column in columns:
        if used & column:
            raise LayoutError(f"layout {layout} has no F2 form: adding {column} carries into bits already in use")
        used |= column
    if isinstance(layout, SwizzledLayout):
        return F2Form(tuple(layout.swizzle(c) for c in columns), layout.swizzle(start))
    return F2Form(tuple(columns), start)


def from_f2(form: F2Form) -> AnyLayout:
    """Return a layout with this F2 form: a plain layout if the columns are disjoint single bits, else one swizzle
    applied to a layout.

    Law: `f2_matrix(from_f2(F)) == F`. Raises `LayoutError` when no layout with a single `Swizzle` has it.
    """
    plain = _disjoint(form.columns)
    if plain is not None and form.offset == 0:
        return plain
    for swizzle in _swizzle_candidates(form):
        inner = _disjoint(tuple(swizzle(c) for c in form.columns), swizzle(form.offset))
        if inner is not None:
            return SwizzledLayout(swizzle, swizzle(form.offset), inner)
    raise LayoutError(
        f"no layout with one XOR swizzle has the F2 columns {form.columns} and offset {form.offset}: "
        "its bits mix in more than one step"
    )


def _disjoint(columns: tuple[int, ...], used: int = 0) -> Layout | None:
    """Return the layout of these columns if no two share a bit (so that XOR is addition), else None."""
    for column in columns:
        if used & column:
            return None
        used |= column
    modes = coalesced_modes(tuple((2, column) for column in columns))
    if not modes:
        return Layout(1, 0)
    return Layout(tuple(s for s, _ in modes), tuple(d for _, d in modes)) if len(modes) > 1 else Layout(*modes[0])


def _swizzle_candidates(form: F2Form) -> list[Swizzle]:
    """Swizzles that could act on offsets this wide, the one that does nothing first, then small ones."""
    width = max([form.offset, *form.columns], default=0).bit_length()
    found = [Swizzle(0, 0, 0)]
    for bits in range(1, width // 2 + 1):
        for shift in range(bits, width - bits + 1):
            for base in range(width - shift - bits + 1):
                found += [Swizzle(bits, base, shift), Swizzle(bits, base, -shift)]
    return found


# ISL form


def to_isl(layout: AnyLayout, shape: tuple[int, ...] | None = None) -> Any:
    """Return the `isl.Map` from the coordinates `[c0, …]` of a tile to the offset `[o]`, exact on the tile's box.

    `shape` (default: the sizes of the top-level modes) is as in `table`. Extents of nested modes become existential
    digits; a swizzle becomes digits of its bits, so any layout is representable. Needs islpy.
    """
    import islpy as isl  # type: ignore[import-not-found, unused-ignore]

    sizes = tuple(mode.size() for mode in layout)
    if shape is not None and tuple(shape) != sizes:
        raise LayoutError(f"layout {layout} describes a tile of shape {sizes}, not {tuple(shape)}")
    names = [f"c{i}" for i in range(len(sizes))]
    bounds = [f"0 <= {n} < {size}" for n, size in zip(names, sizes, strict=True)]
    inner = layout.inner if isinstance(layout, SwizzledLayout) else layout
    terms = [term for name, mode in zip(names, inner, strict=True) for term in _isl_terms(name, mode)]
    total = " + ".join(terms) or "0"
    if isinstance(layout, SwizzledLayout):
        total, extra = _isl_swizzle(layout, total)
        bounds += extra
    exists = "exists x : " if isinstance(layout, SwizzledLayout) else ""
    condition = " and ".join([*bounds, f"o = {total}"])
    return isl.Map(f"{{ [{', '.join(names)}] -> [o] : {exists}{condition} }}")


def _isl_terms(name: str, mode: Layout) -> list[str]:
    """Return `stride * ((name / place) mod extent)` for each leaf of one mode."""
    terms: list[str] = []
    place, size = 1, mode.size()
    for extent, step in flat_modes(mode):
        digit = f"floor({name}/{place})" if place > 1 else name
        if place * extent < size:
            digit = f"({digit} mod {extent})"
        if step and extent > 1:
            terms.append(f"{step}*{digit}")
        place *= extent
    return terms


def _isl_swizzle(layout: SwizzledLayout, total: str) -> tuple[str, list[str]]:
    """Return the swizzled offset as isl text, and its conditions. `x` is the plain offset; each target bit t XOR source
    bit s becomes `(t + s) mod 2`."""
    swizzle = layout.swizzle
    low = swizzle.base - min(0, swizzle.shift)
    source = swizzle.base + max(0, swizzle.shift)
    flips = []
    for bit in range(swizzle.bits):
        t, s = f"(floor(x/{1 << (low + bit)}) mod 2)", f"(floor(x/{1 << (source + bit)}) mod 2)"
        flips.append(f"{1 << (low + bit)}*((({t} + {s}) mod 2) - {t})")
    return " + ".join(["x", *flips]), [f"x = {layout.offset} + {total}"]


# Bank conflicts


@dataclass(frozen=True, slots=True)
class BankModel:
    """The way one memory serves a wave: its banks of 4 bytes, and the lanes that are served together for each width.

    `phases[width]` lists groups of lanes. Each group is served on its own. It takes as many passes as the largest
    number of different words that it requests from one bank.
    """

    name: str
    banks: int
    phases: MappingProxyType[int, tuple[tuple[int, ...], ...]]
    source: str


def _runs(lanes: int, group: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(first, first + group)) for first in range(0, lanes, group))


NVIDIA_SHARED = BankModel(
    "NVIDIA shared memory",
    32,
    MappingProxyType({1: _runs(32, 32), 2: _runs(32, 32), 4: _runs(32, 32), 8: _runs(32, 16), 16: _runs(32, 8)}),
    "CUDA C++ Programming Guide, shared memory of compute capability 5.x and later: 32 banks of 4 bytes; "
    "8-byte accesses are served by half-warps and 16-byte accesses by quarter-warps",
)

_LDS_NARROW = {1: _runs(64, 32), 2: _runs(64, 32), 4: _runs(64, 32), 8: _runs(64, 16)}
_LDS_SOURCE = (
    "CDNA3 ISA guide 11, LDS: 32 banks of 4 bytes, 128 bytes a clock; lanes of a phase of ds_read_b128 and "
    "ds_write_b128: Composable Kernel documentation, Understanding AMD GPU LDS and Bank Conflicts"
)

AMD_LDS_WRITE = BankModel("AMD LDS (write)", 32, MappingProxyType({**_LDS_NARROW, 16: _runs(64, 8)}), _LDS_SOURCE)

_READ_B128 = tuple(
    tuple(range(half + 4 * run, half + 4 * run + 4)) + tuple(range(mate := half + 16 + 4 * (run ^ 1), mate + 4))
    for half in (0, 32)
    for run in range(4)
)

AMD_LDS = BankModel("AMD LDS (read)", 32, MappingProxyType({**_LDS_NARROW, 16: _READ_B128}), _LDS_SOURCE)


@dataclass(frozen=True, slots=True)
class Conflicts:
    """`wavefronts`: passes that the access takes; `ideal`: passes the same words need without any conflict."""

    wavefronts: int
    ideal: int

    @property
    def degree(self) -> float:
        """1.0 without conflicts."""
        return self.wavefronts / self.ideal


def access_conflicts(
    addresses: NDArray[Any], width: int, model: BankModel = NVIDIA_SHARED, active: NDArray[Any] | None = None
) -> Conflicts:
    """Return the passes of one access of a wave: lane l touches `width` bytes at byte `addresses[l]`.

    `addresses`: integers `[lanes]` with the lanes of the model (32 or 64); `active`: bool `[lanes]`, all by
    default. Equal words within a phase are broadcast and count once. Raises `LayoutError` for a width the model
    does not have, a wrong number of lanes, or an address not aligned to the width.
    """
    if width not in model.phases:
        raise LayoutError(f"{model.name} has no {width!r}-byte access: use one of {sorted(model.phases)} bytes")
    phases = model.phases[width]
    where = np.asarray(addresses)
    lanes = sum(len(group) for group in phases)
    if where.shape != (lanes,) or where.dtype.kind not in "iu":
        raise LayoutError(f"{model.name} serves {lanes} lanes: pass an integer array of shape ({lanes},)")
    if (where % width).any() or (where < 0).any():
        raise LayoutError(f"a {width}-byte access needs addresses that are non-negative multiples of {width}")
    mask = np.ones(lanes, dtype=np.bool_) if active is None else np.asarray(active, dtype=np.bool_)
    wavefronts = ideal = 0
    for group in phases:
        chosen = where[list(group)][mask[list(group)]]
        if chosen.size == 0:
            continue
        words = np.unique(chosen[:, None] // 4 + np.arange(max(1, width // 4))[None, :])
        wavefronts += int(np.bincount(words % model.banks).max())
        ideal += -(-len(words) // model.banks)
    return Conflicts(wavefronts, max(1, ideal))


def bank_conflicts(addresses_bytes: NDArray[Any], width_bytes: int, model: BankModel = NVIDIA_SHARED) -> int:
    """Return the number of shared-memory wavefronts (passes) of one access; see `access_conflicts` for ideal and
    degree."""
    return access_conflicts(addresses_bytes, width_bytes, model).wavefronts
