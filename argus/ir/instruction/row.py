"""The columns of the instruction tables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Union

from argus.ir.types import DType
from argus.layout import FragmentLayout


class Order(Enum):
    """The order of an access relative to what follows in its thread."""

    SYNC = "sync"  # program order
    ASYNC_GROUP = "async-group"  # complete after the wait that covers its commit group (cp.async)
    ASYNC_BULK = "async-bulk"  # complete when the phase of its mbarrier is (TMA)
    VMCNT = "vmcnt"  # complete after a wait of its wave that leaves at most as many loads open as came since (AMD)
    ASYNC_MMA = "async-mma"  # complete after the wait that covers its commit group (wgmma)
    BULK_READ = "bulk-read"  # read when a wait covers its bulk group (TMA store or reduction, its source)
    BULK_WRITE = "bulk-write"  # complete after the wait, not only for reads, that covers its bulk group (the same)

    @property
    def by_proxy(self) -> bool:
        """Return True if such accesses go through the asynchronous proxy, not the way of ordinary ones."""
        return self in (Order.ASYNC_BULK, Order.ASYNC_MMA, Order.BULK_READ, Order.BULK_WRITE)


class Mechanism(Enum):
    """The hardware that moves the data of a copy. It decides which further fields of a `Copy` have a meaning."""

    THREADS = "threads"  # each thread moves its own vectors, between memory and its registers
    MATRIX = "matrix"  # the lanes of a warp together move matrices; they may address for one another
    ASYNCHRONOUS = "asynchronous"  # each thread starts copies from global to shared memory
    BULK = "bulk"  # one thread hands a whole box to the copy engine: no layout; loads signal an mbarrier


class Ends(Enum):
    """The ends at which the mask of a copy may cut through an access (`ir.prefix`)."""

    WHOLE = "whole"  # nowhere: an access is masked as a whole, and aligned to its size
    LAST = "last"  # it may end inside of an access; the address is a multiple of the element's size alone
    BOTH = "both"  # it may begin and end there, the same otherwise; what is left out is filled, or kept, as usual


@dataclass(frozen=True, slots=True)
class CopyRow:
    """A data-movement instruction: spaces, allowed vector sizes in bytes, who moves the data, in which ordering class.

    `call` is the device function that it becomes, or the beginning of the names of several (`device_api`).
    `alignment`: the address of each access is a multiple of its vector size, or of this many bytes if not 0.
    `ends` says where a mask may cut through an access.
    `transposed`: lanes hold columns of the matrices, not rows.
    `in_lane_order`: the lanes of a wave write one run of bytes, in their order, and all of them take part.
    `peer`: the shared tile is that of a block of the cluster, by its number (`Access.block`).
    `multicast`: the same box comes to several blocks of the cluster.
    `architectures` are the keys of targets that have it.
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
    peer: bool = False
    multicast: bool = False

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

    `order` is how the update completes; the tile is read as a bulk store reads its source. Each element is updated
    atomically, at device scope, relaxed.
    """

    name: str
    op: str
    dtypes: tuple[DType, ...]
    order: Order
    architectures: tuple[str, ...]
    document: str


@dataclass(frozen=True, slots=True)
class MmaRow:
    """A matrix instruction on one warp: shape, operand and accumulator types, fragment layouts.

    `a` is over (m, k), `b` over (n, k), `c` over (m, n); each of one warp's threads.
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
    """An asynchronous matrix instruction on a warpgroup (128 threads): b in shared memory, a there or in registers.

    Shared operands stand in panels, rows of `row_bytes` contiguous bytes in the layout `swizzle_bits` of XOR swizzle
    over 16-byte units (3: 128-byte swizzle), 8 rows together. They are K-major (along a row goes k); with `transposes`
    MN-major as well. `a` is over (m, k), `c` over (m, n), of the warpgroup's threads.
    `order` is the ordering class of all accesses.
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
    """An instruction on one of a block's `barriers` named barriers, made by whole warps, of `unit` threads.

    Ordering law: a phase completes when as many threads have arrived as the instruction counts; accesses before any of
    these arrivals are ordered before what follows an instruction that `waits` for the phase.
    """

    name: str
    waits: bool
    barriers: int
    unit: int
    architectures: tuple[str, ...]
    document: str


class Law(Enum):
    """The order that a step of AMD's waves gives.

    `argus.verify.order.order` proves with it, and `argus.simulate` executes it.
    """

    LOADS = "the wave's loads to LDS after which n or more were issued are complete, for its own lanes"
    ACCESSES = "with n = 0 the wave's accesses to LDS are done, for what a barrier of waves then orders"
    MEETING = "what each wave's last wait for lgkmcnt 0 found done is before what the others do next"
    HINT = "nothing"


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of a wave that orders others, or hints at an order: the ranges of its operands, by name; its law.

    `call` is the device function that a hint becomes, with its operands as template arguments; none if it is "".
    """

    name: str
    operands: tuple[tuple[str, int, int], ...]
    law: Law
    architectures: tuple[str, ...]
    document: str
    call: str = ""


Row = Union[CopyRow, ReduceRow, MmaRow, WgmmaRow, BarrierRow, StepRow]
