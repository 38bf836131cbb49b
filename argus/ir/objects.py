"""Memory objects, and the accesses of statements to their cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union

from argus.ir.expr import Expr
from argus.ir.types import DType
from argus.layout import AnyLayout, FragmentLayout
from argus.source import Span, span_field


@dataclass(frozen=True, slots=True)
class Tensor:
    """A global tensor parameter. `shape` and `strides` (in elements) are `Param`s or `Const`s.

    `alignment` (bytes, a power of two up to 16) divides the base address, every stride other than 1, and the extent of
    the stride-1 dimension, each times the item size. It is a precondition, checked at launch.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    alignment: int
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar launch parameter, read as `Param(name)`."""

    name: str
    dtype: DType
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Shared:
    """A tile in the block's shared memory (LDS). `layout` maps logical coordinates to element offsets from byte
    `offset` of the block's shared memory. Tiles whose byte ranges overlap share memory on purpose."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    layout: AnyLayout | None = None
    offset: int | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Fragment:
    """A tile in registers, spread over the block's threads by `layout`. Replicas always hold equal values."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    layout: FragmentLayout | None = None
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class Mbarrier:
    """An array of `count` mbarriers in shared memory, 8 bytes each from byte `offset` (PTX ISA, mbarrier).

    Each phase of each mbarrier completes after `arrivals` arrivals and all bytes expected in it. A use comes after the
    array's `MbarrierInit`, a `MbarrierFence`, and a synchronisation that makes both visible to the using thread.
    """

    name: str
    count: int
    arrivals: int
    offset: int | None = None
    span: Span = span_field()


MemoryObject = Union[Tensor, Shared, Fragment]


@dataclass(frozen=True, slots=True)
class Access:
    """The cell `obj[index]`, with one expression for each dimension of `obj`, over the statement's `Coord`s.

    `block` is used in a `Copy`, for a shared tile: the cell is that of block number `block` of the cluster (distributed
    shared memory). It is an expression over the block's own number in the cluster, `ProgramId(0) % cluster`, and
    constants.
    """

    obj: str
    index: tuple[Expr, ...]
    block: Expr | None = None


IN_REGISTERS: Mapping[str, object] = {"spaces": (Fragment,)}
IN_REGISTERS_OR_GLOBAL: Mapping[str, object] = {"spaces": (Fragment, Tensor)}
IN_REGISTERS_OR_SHARED: Mapping[str, object] = {"spaces": (Fragment, Shared)}
IN_GLOBAL: Mapping[str, object] = {"spaces": (Tensor,)}
"""Metadata of a field that holds an access: the kinds of objects that it may name."""
