"""The columns of the instruction tables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Union

from argus.ir.types import DType
from argus.layout import FragmentLayout


class Order(Enum):
    """The ordering class of an access: when it completes, relative to what follows in its thread."""

    SYNC = "sync"  # completes in program order
    ASYNC_GROUP = "async-group"  # completes after the wait that covers its commit group (cp.async)
    ASYNC_BULK = "async-bulk"  # completes with the phase of its mbarrier (TMA)
    # completes after a wait of its wave that leaves at most as many loads open as were issued since (AMD)
    VMCNT = "vmcnt"
    ASYNC_MMA = "async-mma"  # completes after the wait that covers its commit group (wgmma)
    BULK_READ = "bulk-read"  # has read its source after a wait that covers its bulk group (TMA store or reduction)
    # completes after a wait, other than one for reads only, that covers its bulk group (TMA store or reduction)
    BULK_WRITE = "bulk-write"

    @property
    def by_proxy(self) -> bool:
        """Return True if such accesses go through the asynchronous proxy, unlike ordinary accesses."""
        return self in (Order.ASYNC_BULK, Order.ASYNC_MMA, Order.BULK_READ, Order.BULK_WRITE)


class Mechanism(Enum):
    """The hardware that moves the data of a copy. It decides which other fields of a `Copy` have a meaning."""

    THREADS = "threads"  # each thread moves its own vectors between memory and its registers
    MATRIX = "matrix"  # the lanes of a warp together move matrices; a lane may give the address for another lane
    ASYNCHRONOUS = "asynchronous"  # each thread starts copies from global to shared memory
    BULK = "bulk"  # one thread hands a whole box to the copy engine: there is no layout, and loads signal an mbarrier


class Ends(Enum):
    """The ends at which the mask of a copy may cut through an access (`ir.prefix`)."""

    WHOLE = "whole"  # nowhere: the mask covers an access as a whole, and the access is aligned to its size
    LAST = "last"  # at the end: the address need only be a multiple of the element's size
    # at the beginning and the end, with the same alignment; masked elements are filled, or kept, as usual
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class CopyRow:
    """A data-movement instruction: its spaces, its vector sizes in bytes, its mechanism, and its ordering class.

    `call` is the device function that it becomes, or the common beginning of the names of several (`device_api`).
    `alignment`: the address of each access is a multiple of this many bytes, or of its vector size if this is 0. `ends`
    says where a mask may cut through an access. `transposed`: lanes hold columns of the matrices instead of rows.
    `in_lane_order`: the lanes of a wave write consecutive bytes, in the order of lanes, and all of them take part.
    `reach`: no element lies so many bytes or more behind the first place of the tile (`ir.reach`); 0: wherever it lies.
    `peer`: the shared tile belongs to another block of the cluster (`Access.block`). `multicast`: several blocks of the
    cluster receive the same box. `pixels`: the box is a column of pixels (`argus.ir.pixels`). `architectures` are the
    keys of targets that have the instruction.
    """

    name: str
    src: str
    dst: str
    vector_bytes: tuple[int, ...]
    mechanism: Mechanism
    order: Order
    call: str
    architectures: tuple[str, ...]
    document: str
    alignment: int = 0
    dtypes_bits: tuple[int, ...] = (8, 16, 32, 64)
    ends: Ends = Ends.WHOLE
    transposed: bool = False
    in_lane_order: bool = False
    reach: int = 0
    peer: bool = False
    multicast: bool = False
    pixels: bool = False

    @property
    def collective(self) -> bool:
        """Return True if the lanes of a warp act together."""
        return self.mechanism is Mechanism.MATRIX

    @property
    def writes_memory(self) -> bool:
        """Return True if the destination is shared or global memory."""
        return self.dst != "fragment"


@dataclass(frozen=True, slots=True)
class ReduceRow:
    """An update of a box of a tensor by the copy engine: `tensor = tensor op tile`, for elements of `dtypes`.

    `order` is the ordering class of the update; the tile is read as a bulk store reads its source. Each element is
    updated atomically and relaxed, at device scope.
    """

    name: str
    op: str
    dtypes: tuple[DType, ...]
    order: Order
    architectures: tuple[str, ...]
    document: str


@dataclass(frozen=True, slots=True)
class MmaRow:
    """A matrix instruction of one warp: its shape, operand and accumulator types, and fragment layouts.

    `a` is over (m, k), `b` over (n, k), and `c` over (m, n), each spread over the threads of one warp.
    """

    name: str
    shape: tuple[int, int, int]
    operands: tuple[DType, ...]
    accumulator: DType
    a: FragmentLayout
    b: FragmentLayout
    c: FragmentLayout
    warp_size: int
    architectures: tuple[str, ...]
    document: str


@dataclass(frozen=True, slots=True)
class WgmmaRow:
    """An asynchronous matrix instruction of a warpgroup (128 threads). `b` is in shared memory, `a` in shared memory or
    registers.

    Shared operands lie in panels: rows of `row_bytes` contiguous bytes, 8 rows together, in the layout `swizzle_bits`
    of an XOR swizzle over 16-byte units (3: 128-byte swizzle). Operands are K-major (k runs along a row); with
    `transposes`, MN-major operands are allowed as well. `a` is over (m, k) and `c` over (m, n), spread over the
    warpgroup's threads. `order` is the ordering class of all accesses.
    """

    name: str
    shape: tuple[int, int, int]
    operands: tuple[DType, ...]
    accumulator: DType
    a: FragmentLayout
    c: FragmentLayout
    row_bytes: int
    swizzle_bits: int
    transposes: bool
    architectures: tuple[str, ...]
    document: str
    order: Order = Order.ASYNC_MMA


@dataclass(frozen=True, slots=True)
class BarrierRow:
    """An instruction on one of a block's `barriers` named barriers, executed by whole warps of `unit` threads.

    Ordering law: a phase completes when as many threads have arrived as the instruction counts. Accesses before any of
    these arrivals are ordered before everything that follows an instruction that `waits` for the phase.
    """

    name: str
    waits: bool
    barriers: int
    unit: int
    architectures: tuple[str, ...]
    document: str


class Law(Enum):
    """The order that a step of AMD's waves establishes.

    `argus.verify.order.order` uses it in proofs, and `argus.simulate` executes it.
    """

    LOADS = "the wave's loads to LDS after which n or more were issued are complete, for its own lanes"
    ACCESSES = "with n = 0 the wave's accesses to LDS are done, for what a barrier of waves then orders"
    MEETING = "what each wave's last wait for lgkmcnt 0 found done is before what the others do next"
    HINT = "nothing"


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of a wave that orders other accesses or gives a hint: the ranges of its operands, by name, and its law.

    `call` is the device function that a hint becomes, with its operands as template arguments, or "" if there is none.
    """

    name: str
    operands: tuple[tuple[str, int, int], ...]
    law: Law
    architectures: tuple[str, ...]
    document: str
    call: str = ""


Row = Union[CopyRow, ReduceRow, MmaRow, WgmmaRow, BarrierRow, StepRow]
