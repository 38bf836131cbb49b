"""The three memories of a block: registers, shared memory as bytes, global tensors.

Each memory identifies its storage places by integers, its *cells*: register `thread * values + value`; a grain of
shared memory (the largest number of bytes that divides every element size and tile offset); an element of a tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Protocol

import numpy as np

from argus.ir.nodes import Fragment, Shared, Tensor
from argus.ir.types import DType
from argus.layout import FragmentLayout, table
from argus.simulate.numeric import Array, carrier, from_bits, is_wide, round_to, to_bits
from argus.simulate.order import NOBODY, MemoryOrder
from argus.simulate.tagset import BOTTOM, Schemas, Tags

POISON = 0xFF
"""The byte that fills unwritten memory. In every float type that has NaN, it makes a NaN."""


class Memory(Protocol):
    """The operations of a memory object that statements need. Cells and values are flat arrays of equal length."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def order(self) -> MemoryOrder | None: ...
    @property
    def tags(self) -> Tags | None: ...

    def grains(self, cell: Array) -> Array: ...
    def load(self, cell: Array) -> Array: ...
    def store(self, cell: Array, values: Array) -> None: ...
    def written(self, cell: Array) -> Array: ...
    def logical(self, cell: int) -> tuple[int, ...]: ...
    def physical(self, cell: int) -> str: ...


@dataclass(frozen=True, slots=True)
class Holders:
    """The registers that hold each element of a fragment. The keys are sorted for look-ups by element."""

    size: int
    warp_size: int
    by_thread: tuple[Array, Array]
    by_warp: tuple[Array, Array]
    by_block: tuple[Array, Array]

    def own(self, thread: Array, element: Array) -> Array:
        """Return the register of `thread` that holds `element` (row-major index), or -1."""
        return self._find(self.by_thread, thread * self.size + element)

    def warp(self, thread: Array, element: Array) -> Array:
        """Return the lowest register of the thread's warp that holds `element`, or -1."""
        return self._find(self.by_warp, thread // self.warp_size * self.size + element)

    def replicas(self, element: Array) -> Array:
        """Return every register that holds each element as an array `[n, most]`. The last register is repeated, and -1
        means none."""
        keys, registers = self.by_block
        first, last = np.searchsorted(keys, element, "left"), np.searchsorted(keys, element, "right")
        most = max(1, int((last - first).max(initial=0)))
        position = np.minimum(first[:, None] + np.arange(most), last[:, None] - 1)
        return np.where((last > first)[:, None], registers[np.maximum(position, 0)], -1)

    @staticmethod
    def _find(table: tuple[Array, Array], key: Array) -> Array:
        keys, registers = table
        position = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        return np.where(keys[position] == key, registers[position], -1)


@lru_cache(maxsize=256)
def holders(layout: FragmentLayout, warp_size: int) -> Holders:
    """Look-up tables of a fragment layout."""
    linear = layout.linear()
    thread = np.repeat(np.arange(linear.shape[0]), linear.shape[1])
    element = linear.reshape(-1)

    size = layout.size
    # If one thread holds an element twice, its lowest register counts.
    _, first = np.unique(thread * size + element, return_index=True)

    def sort(key: Array) -> tuple[Array, Array]:
        registers = first[np.argsort(key[first], kind="stable")]
        return key[registers], registers

    return Holders(
        size,
        warp_size,
        sort(thread * size + element),
        sort(thread // warp_size * size + element),
        sort(element),
    )


class Hazards:
    """The events that make a register of an asynchronous product unsafe to use.

    `flight`: a product that has not written the register yet. `reading`: a product that has not read it yet.
    `unfenced`: an ordinary access since the last fence, or, for an operand, a write since the last fence.
    """

    __slots__ = ("flight", "operand", "reading", "unfenced")

    def __init__(self, cells: int, operand: bool) -> None:
        self.operand = operand
        self.flight = np.full(cells, NOBODY, dtype=np.int32)
        self.reading = np.full(cells, NOBODY, dtype=np.int32)
        self.unfenced = np.full(cells, NOBODY, dtype=np.int32)


class Registers:
    """A fragment: `values[thread * V + v]`, each with a mark that says if it is written. Threads count from thread
    `first` of the block."""

    first = 0
    hazards: Hazards | None = None

    def __init__(
        self, obj: Fragment, layout: FragmentLayout, threads: int, warp_size: int, schemas: Schemas | None
    ) -> None:
        self.name, self.dtype, self.shape, self.layout = obj.name, obj.dtype, obj.shape, layout
        self.per_thread = layout.num_values
        cells = threads * layout.num_values
        self.order: MemoryOrder | None = None
        self.holders = holders(layout, warp_size)
        unset = np.full(cells, -1).astype(f"uint{obj.dtype.bits}")
        self.values = np.full(cells, np.nan) if is_wide(obj.dtype) else from_bits(unset, obj.dtype)
        self.marks = np.zeros(cells, dtype=np.bool_)
        self.tags = Tags.uniform(cells, BOTTOM, schemas) if schemas is not None else None

    def grains(self, cell: Array) -> Array:
        return cell

    def load(self, cell: Array) -> Array:
        return self.values[cell]

    def store(self, cell: Array, values: Array) -> None:
        self.values[cell] = round_to(values, self.dtype)
        self.marks[cell] = True

    def written(self, cell: Array) -> Array:
        return self.marks[cell]

    def logical(self, cell: int) -> tuple[int, ...]:
        element = int(self.layout.linear().reshape(-1)[cell])
        return tuple(int(i) for i in np.unravel_index(element, self.shape)) if self.shape else ()

    def physical(self, cell: int) -> str:
        return f"r{cell % self.per_thread}"


class SharedMemory:
    """The shared memory of one block, with a mark and an order record for every grain."""

    def __init__(self, tiles: tuple[Shared, ...], schemas: Schemas | None) -> None:
        ends = [(s.offset or 0) + table_of(s).max() * s.dtype.bytes + s.dtype.bytes for s in tiles]
        self.grain = gcd(*(s.dtype.bytes for s in tiles), *(s.offset or 0 for s in tiles)) if tiles else 1
        self.mixed = any(s.dtype.bytes != self.grain for s in tiles)
        """True if elements of different sizes, or at unaligned places, may share bytes."""
        size = int(max(ends, default=0))
        self.bytes = np.full(size + 16, POISON, dtype=np.uint8)
        cells = size // self.grain + 1
        self.marks = np.zeros(cells, dtype=np.bool_)
        self.numbers = np.full(cells if any(is_wide(s.dtype) for s in tiles) else 0, np.nan)
        """Floats that are carried in 64 bits, stored at the first grain of each."""
        # At the first grain of the last written element: its number of grains. At other grains: 0.
        self.span = np.zeros(cells, dtype=np.int8)
        self.order = MemoryOrder(cells, True)
        self.tags = Tags.uniform(cells, BOTTOM, schemas) if schemas is not None else None


def table_of(obj: Shared) -> Array:
    """Return an int64 array of the tile's shape with the element offsets."""
    if obj.layout is None:
        raise ValueError(f"shared tile {obj.name} has no layout: lower the kernel first")
    return table(obj.layout, obj.shape)


class SharedTile:
    """A typed view of the shared memory."""

    def __init__(self, obj: Shared, memory: SharedMemory) -> None:
        self.name, self.dtype, self.shape = obj.name, obj.dtype, obj.shape
        self.memory, self.order, self.tags = memory, memory.order, memory.tags
        self.offset = obj.offset or 0
        self.addresses = (self.offset + table_of(obj) * obj.dtype.bytes).reshape(-1)
        self.cells = self.addresses // memory.grain
        self.span = obj.dtype.bytes // memory.grain
        skew = self.offset % obj.dtype.bytes
        words = (len(memory.bytes) - skew) // obj.dtype.bytes
        self._words = memory.bytes[skew : skew + words * obj.dtype.bytes].view(f"uint{obj.dtype.bits}")

    def grains(self, cell: Array) -> Array:
        """Return all grains of the elements at `cell` as an array `[n * span]`, element by element."""
        return cell if self.span == 1 else (cell[:, None] + np.arange(self.span)).reshape(-1)

    def load(self, cell: Array) -> Array:
        if is_wide(self.dtype):
            return self.memory.numbers[cell]
        return from_bits(self._words[cell // self.span], self.dtype)

    def store(self, cell: Array, values: Array) -> None:
        if is_wide(self.dtype):
            self.memory.numbers[cell] = values
        else:
            self._words[cell // self.span] = to_bits(round_to(values, self.dtype), self.dtype)
        grains = self.grains(cell)
        self.memory.marks[grains] = True
        self.memory.span[grains] = 0
        self.memory.span[cell] = self.span

    def whole(self, cell: Array) -> Array:
        """Return a mask of the elements at `cell` that were last written as whole elements of this size."""
        spans = self.memory.span[self.grains(cell)].reshape(-1, self.span)
        result: Array = (spans[:, 0] == self.span) & (spans[:, 1:] == 0).all(axis=1)
        return result

    def written(self, cell: Array) -> Array:
        marks = self.memory.marks
        return np.asarray(marks[self.grains(cell)].reshape(-1, self.span).all(axis=1))

    def logical(self, cell: int) -> tuple[int, ...]:
        found = np.flatnonzero(self.cells == cell)
        return tuple(int(i) for i in np.unravel_index(int(found[0]), self.shape)) if len(found) else ()

    def physical(self, cell: int) -> str:
        return f"shared+{cell * self.memory.grain:#x}"


class GlobalTensor:
    """A tensor: its contents, write counts, and order records if the kernel writes it.

    In a dense tensor, `values` holds every element, and the cell is the row-major index. In a sparse tensor (`fill` is
    given), only accessed elements are stored, and cells are numbered in the order of first access; `fill(index)` gives
    the contents of row-major indices before the kernel.
    """

    def __init__(
        self,
        obj: Tensor,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        contents: Contents,
        order: MemoryOrder | None,
    ) -> None:
        self.name, self.dtype, self.shape, self.strides = obj.name, obj.dtype, shape, strides
        self.alignment, self.contents = obj.alignment, contents
        self.order = order
        self.tags: Tags | None = None
        self.writes = np.zeros(len(contents), dtype=np.int32)
        self.writers = np.full(len(contents), NOBODY, dtype=np.int32)
        """The number of the program that wrote each cell last."""

    @property
    def dense(self) -> bool:
        """True if every element is stored."""
        return isinstance(self.contents, Dense)

    def cells(self, coords: tuple[Array, ...]) -> Array:
        """Return the cells of in-range coordinates."""
        index = np.zeros(len(coords[0]) if coords else 1, dtype=np.int64)
        for coord, extent in zip(coords, self.shape, strict=True):
            index = index * extent + coord
        cell = self.contents.cells(index)
        room = len(self.contents)
        if room > len(self.writes):
            more = room - len(self.writes)
            self.writes = np.concatenate([self.writes, np.zeros(more, dtype=np.int32)])
            self.writers = np.concatenate([self.writers, np.full(more, NOBODY, dtype=np.int32)])
            if self.order is not None:
                self.order.grow(room)
            if self.tags is not None:
                self.tags = self.tags.grown(room)
        return cell

    def addresses(self, coords: tuple[Array, ...]) -> Array:
        """Return the distances in bytes from the base address."""
        total = np.zeros(len(coords[0]) if coords else 1, dtype=np.int64)
        for coord, stride in zip(coords, self.strides, strict=True):
            total = total + coord * stride
        return total * self.dtype.bytes

    def grains(self, cell: Array) -> Array:
        return cell

    def load(self, cell: Array) -> Array:
        return self.contents.values[cell]

    def store(self, cell: Array, values: Array) -> None:
        self.contents.values[cell] = round_to(values, self.dtype)

    def wrote(self, cell: Array, program: int) -> None:
        """Count writes by a program."""
        np.add.at(self.writes, cell, 1)
        self.writers[cell] = program

    def written(self, cell: Array) -> Array:
        """Return True for every cell: the caller passes all elements of a tensor, so each has a value."""
        return np.ones(len(cell), dtype=np.bool_)

    def logical(self, cell: int) -> tuple[int, ...]:
        index = int(self.contents.index(np.asarray(cell)))
        return tuple(int(i) for i in np.unravel_index(index, self.shape)) if self.shape else ()

    def physical(self, cell: int) -> str:
        offset = sum(c * s for c, s in zip(self.logical(cell), self.strides, strict=True))
        return f"global {self.name}+{offset * self.dtype.bytes:#x}"


class Contents(Protocol):
    """Storage of a tensor's elements: `values[cell]`."""

    values: Array

    def __len__(self) -> int: ...
    def cells(self, index: Array) -> Array: ...
    def index(self, cell: Array) -> Array: ...
    def initial(self, index: Array) -> Array: ...


class Dense:
    """All elements in row-major order. `keep`: the contents before the kernel are needed at the end."""

    def __init__(self, values: Array, keep: bool = False) -> None:
        self.values = np.array(values).reshape(-1)
        self._before = self.values.copy() if keep else self.values

    def __len__(self) -> int:
        return len(self.values)

    def cells(self, index: Array) -> Array:
        return index

    def index(self, cell: Array) -> Array:
        return cell

    def initial(self, index: Array) -> Array:
        return self._before[index]


class Generator(Protocol):
    """The contents of a tensor as a function of the row-major index, without an array."""

    def __call__(self, index: Array) -> Array: ...


class Sparse:
    """Only the accessed elements. The others have the values that `fill` gives. There are at most 2^63 elements in all.
    """

    def __init__(self, dtype: DType, fill: Generator) -> None:
        self.fill = fill
        self.values = np.zeros(0, dtype=carrier(dtype))
        self._indices = np.zeros(0, dtype=np.int64)  # indexed by cell
        self._sorted = np.zeros(0, dtype=np.int64)
        self._cell = np.zeros(0, dtype=np.int64)  # the cell of each sorted index

    def __len__(self) -> int:
        return len(self._indices)

    def cells(self, index: Array) -> Array:
        """Return the cells of the row-major indices. Indices not seen before get new cells."""
        wanted = np.unique(index)
        new = wanted[~np.isin(wanted, self._sorted, assume_unique=True)]
        if len(new):
            self.values = np.concatenate([self.values, self.fill(new).astype(self.values.dtype)])
            self._indices = np.concatenate([self._indices, new])
            self._cell = np.argsort(self._indices, kind="stable")
            self._sorted = self._indices[self._cell]
        return self._cell[np.searchsorted(self._sorted, index)]

    def index(self, cell: Array) -> Array:
        return self._indices[cell]

    def initial(self, index: Array) -> Array:
        return self.fill(index).astype(self.values.dtype)
