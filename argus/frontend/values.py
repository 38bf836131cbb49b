"""The values of names and expressions while a kernel is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from argus.frontend.surface import Function, Lambda, Module
from argus.ir.expr import Const, Coord, Elem, Expr, coords
from argus.ir.instruction.tiled import TiledMma
from argus.ir.nodes import Access, Arranged, InRange, Shared, SpecTerm, Tensor
from argus.ir.types import DType
from argus.layout import FragmentLayout, Layout, Swizzle, SwizzledLayout


@dataclass(frozen=True, slots=True)
class Constant:
    """A compile-time constant: int, float, bool, str, None, dtype, tuple of these, or a layout."""

    value: object


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of `shape` whose element at `Coord(0), ...` is `expr`. The shape `()` is a scalar.

    `fresh`: `expr` reads a fragment that no name is bound to, so the name that is bound next may adopt it.
    """

    shape: tuple[int, ...]
    dtype: DType
    expr: Expr
    fresh: bool = False

    @property
    def fragment(self) -> str | None:
        """The fragment whose elements are exactly those of this tile, or None for any other expression."""
        if isinstance(self.expr, Elem) and self.expr.index == coords(len(self.shape)):
            return self.expr.obj
        return None


@dataclass(frozen=True, slots=True)
class View:
    """A part of a tensor or shared tile. Its element at `Coord(0), ...` is `obj[index]`.

    Extents are numbers, or expressions for whole dimensions of symbolic extent. With `block`, the object belongs to
    another block of the cluster.
    """

    obj: Tensor | Shared
    index: tuple[Expr, ...]
    shape: tuple[int | Expr, ...]
    block: Expr | None = None

    @property
    def access(self) -> Access:
        """The element at `Coord(0), ...`."""
        return Access(self.obj.name, self.index, self.block)

    @property
    def whole(self) -> bool:
        """True if the view is the whole object itself."""
        return self.block is None and self.shape == extents_of(self.obj) and self.index == coords(len(self.shape))

    @property
    def order(self) -> tuple[int, ...] | None:
        """The view's dimension for each dimension of the object, or None unless the view is the whole object, possibly
        permuted."""
        axes = tuple(e.axis for e in self.index if isinstance(e, Coord))
        extents = extents_of(self.obj)
        if self.block is not None or sorted(axes) != list(range(len(extents))) or len(axes) != len(self.index):
            return None
        return axes if tuple(self.shape[axis] for axis in axes) == extents else None

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape as integers. Raises ValueError unless all extents are constant."""
        if not all(isinstance(n, int) for n in self.shape):
            raise ValueError("a view with a symbolic extent")
        return tuple(n for n in self.shape if isinstance(n, int))


def extents_of(obj: Tensor | Shared) -> tuple[int | Expr, ...]:
    """Return the shape of a tensor or shared tile. Constant extents are returned as integers."""
    return tuple(int(n.value) if isinstance(n, Const) else n for n in obj.shape)


@dataclass(frozen=True, slots=True)
class TupleValue:
    """A tuple with an item that is not constant."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class LambdaValue:
    """A lambda that is not evaluated yet."""

    node: Lambda


@dataclass(frozen=True, slots=True)
class ModuleValue:
    """The module `argus.language`, or another dotted path of an import."""

    path: str


@dataclass(frozen=True, slots=True)
class Builtin:
    """A function of the language, identified by its name in `argus.language`."""

    name: str


@dataclass(frozen=True, slots=True)
class Helper:
    """An `@argus.func`, with the file whose names it sees."""

    function: Function
    module: Module


@dataclass(frozen=True, slots=True)
class Method:
    """The method `receiver.name`, which is to be called."""

    receiver: Value
    name: str


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a `for`. `kind`: "range", "static" or "pipelined"; only the last uses `stages`, `producer_warps`."""

    kind: str
    start: Value
    stop: Value
    step: int
    stages: int = 1
    producer_warps: int = 0


@dataclass(frozen=True, slots=True)
class Contents:
    """`al.in_range(tensor, lo, hi)` and the like, for `al.requires`."""

    fact: InRange | Arranged


@dataclass(frozen=True, slots=True)
class Specified:
    """A term of a specification that has a name, such as a parameter of a helper."""

    term: SpecTerm


@dataclass(frozen=True, slots=True)
class NamedBarrier:
    """The kernel's named barrier number `index`, made by `al.named_barrier(threads)`."""

    index: int
    threads: int


@dataclass(frozen=True, slots=True)
class MbarrierArray:
    """An array made by `al.mbarrier(count, arrivals)`, identified by its name."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class MbarrierSlot:
    """One mbarrier of an array."""

    array: str
    index: Expr


@dataclass(frozen=True, slots=True)
class StreamValue:
    """A program's stream, identified by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class EventValue:
    """A program's event, identified by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """The value of a call that only has an effect."""


@dataclass(frozen=True, slots=True)
class Poison:
    """The value of an expression or name whose error was already reported."""


Value = Union[
    Constant,
    Tile,
    View,
    TupleValue,
    LambdaValue,
    ModuleValue,
    Builtin,
    Helper,
    Method,
    Range,
    Contents,
    Specified,
    StreamValue,
    EventValue,
    NamedBarrier,
    MbarrierArray,
    MbarrierSlot,
    Nothing,
    Poison,
]


def fragment_tile(name: str, shape: tuple[int, ...], dtype: DType, fresh: bool = False) -> Tile:
    """Return the tile that a fragment holds."""
    return Tile(shape, dtype, Elem(name, coords(len(shape)), dtype), fresh)


def shape_text(shape: tuple[int | Expr, ...]) -> str:
    """Return a shape as text, `(64, 32)`. Symbolic extents are shown by name."""
    inner = ", ".join(str(n) if isinstance(n, int) else getattr(n, "name", "?") for n in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def describe(value: Value) -> str:
    """Return a short noun phrase that describes the value in messages."""
    match value:
        case Constant(value=None):
            return "None"
        case Constant(value=bool() | int() | float() | str() as constant):
            return f"the constant {constant!r}"
        case Constant(value=DType() as dtype):
            return f"the dtype {dtype}"
        case Constant(value=FragmentLayout() | Layout() | SwizzledLayout() | Swizzle()):
            return "a layout"
        case Constant(value=TiledMma()):
            return "a tiled mma"
        case Constant():
            return "a constant tuple"
        case Tile(shape=(), dtype=dtype):
            return f"a scalar of {dtype}"
        case Tile(shape=shape, dtype=dtype):
            return f"a tile of {dtype} {shape_text(shape)}"
        case View(obj=Tensor(name=name)) if value.whole:
            return f"the tensor `{name}`"
        case View(obj=Shared(name=name)) if value.whole:
            return f"the shared tile `{name}`"
        case View(obj=obj, shape=shape):
            return f"a view of `{obj.name}` {shape_text(shape)}"
        case TupleValue(items=items):
            return f"a tuple of {len(items)}"
        case LambdaValue():
            return "a lambda"
        case ModuleValue(path=path):
            return f"the module `{path}`"
        case Builtin(name=name):
            return f"the function `al.{name}`"
        case Helper(function=function):
            return f"the function `{function.name}`"
        case Method(name=name):
            return f"the method `{name}`"
        case Range():
            return "a range"
        case Contents():
            return "a condition on a tensor's contents"
        case Specified():
            return "a term of a specification"
        case StreamValue():
            return "a stream"
        case EventValue():
            return "an event"
        case NamedBarrier():
            return "a named barrier"
        case MbarrierArray():
            return "an array of mbarriers"
        case MbarrierSlot():
            return "an mbarrier"
        case Nothing():
            return "nothing"
        case Poison():
            return "an erroneous value"
