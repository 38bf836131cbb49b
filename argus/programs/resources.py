"""The buffers, streams, events and collectives of a program."""

from __future__ import annotations

from abc import ABC, abstractmethod

from argus.frontend import arguments
from argus.frontend.context import CallSite, Context, Wanted
from argus.frontend.expressions import items_of
from argus.frontend.surface import Attribute, Call, Expression, Name
from argus.frontend.tiles import as_tile
from argus.frontend.values import Constant, EventValue, Nothing, StreamValue, Value, View, describe
from argus.frontend.views import whole_view
from argus.ir.expr import Const, Expr, LoopVar, Op, Param, walk
from argus.ir.nodes import Tensor
from argus.ir.types import MAX_EXTENT, int32
from argus.programs.ir import MAIN, Buffer, Collective, Part, Record, Step, Wait
from argus.programs.parts import part_of
from argus.source import Span


class Resources(ABC):
    """The buffers and streams that a program has made so far, and its steps."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.streams: list[str] = [MAIN]
        self.steps: list[Step] = []

    context: Context

    @abstractmethod
    def value(self, node: Expression, wanted: Wanted | None = None) -> Value:
        """Evaluate an expression."""

    def empty(self, call: CallSite) -> Value:
        """Elaborate `h = al.empty(shape, dtype)`: a buffer."""
        context = self.context
        context.require_top_level("a buffer", call.span)
        if call.wanted is None:
            context.fail("bad-program", "a buffer has a name", call.span, "write `h = al.empty((M, N), al.float32)`")
        dtype, shape = arguments.dtype(call, "dtype"), items_of(call.args["shape"])
        if not shape:
            what = f"the shape of a buffer is a tuple of sizes, and this is {describe(call.args['shape'])}"
            context.fail("bad-shape", what, call.spans["shape"], "write `al.empty((M, N), al.float32)`")
        extents = tuple(self._extent(item, call.spans["shape"]) for item in shape)
        buffer = Buffer(context.unique(call.wanted.name), dtype, extents, span=call.span)
        self.buffers.append(buffer)
        return whole_view(Tensor(buffer.name, dtype, extents, buffer.strides, dtype.bytes, call.span))

    def _extent(self, item: Value, span: Span) -> Expr:
        found = as_tile(self.context, item, span, int32)
        if found.shape or found.dtype is not int32 or not on_host(found.expr):
            self.context.fail("bad-shape", f"an extent is an int32, and this is {describe(item)}", span, "use sizes")
        if isinstance(found.expr, Const) and not 0 <= int(found.expr.value) <= MAX_EXTENT:
            self.context.fail("bad-shape", f"an extent is 0 to {MAX_EXTENT}", span, "correct the extent")
        return found.expr

    def new_stream(self, call: CallSite) -> Value:
        """Elaborate `s = al.stream()`."""
        self.context.require_top_level("a stream", call.span)
        name = self.context.unique(call.wanted.name if call.wanted is not None else "stream")
        self.streams.append(name)
        return StreamValue(name)

    def current_stream(self, _call: CallSite) -> Value:
        """Elaborate `al.current_stream()`."""
        return StreamValue(MAIN)

    def is_method(self, node: Expression, name: str) -> bool:
        """Return True if a call is the method `name` of a stream."""
        match node:
            case Call(function=Attribute(value=Name(id=receiver), name=method)) if method == name:
                held = self.context.frame.names.get(receiver)
                return held is not None and isinstance(held.value, StreamValue)
            case _:
                return False

    def _receiver(self, node: Call, count: int) -> str:
        assert isinstance(node.function, Attribute) and isinstance(node.function.value, Name)
        if len(node.args) != count or node.keywords:
            help = "write `e = s.record()` and `s.wait(e)`"
            self.context.fail("wrong-arguments", f"`.{node.function.name}` takes {count} arguments", node.span, help)
        held = self.context.frame.names[node.function.value.id].value
        assert isinstance(held, StreamValue)
        return held.name

    def record(self, node: Expression, wanted: Wanted | None) -> Value:
        """Elaborate `e = s.record()`: an event, which may be recorded again."""
        assert isinstance(node, Call)
        stream = self._receiver(node, 0)
        if wanted is None:
            self.context.fail("bad-program", "an event has a name", node.span, "write `e = s.record()`")
        held = self.context.frame.names.get(wanted.name)
        again = held is not None and isinstance(held.value, EventValue)
        event = held.value if again and held is not None else EventValue(self.context.unique(wanted.name))
        assert isinstance(event, EventValue)
        self.steps.append(Record(event.name, stream, node.span))
        return event

    def wait(self, node: Call, span: Span) -> None:
        """Elaborate `s.wait(e)`."""
        stream = self._receiver(node, 1)
        event = self.value(node.args[0])
        if not isinstance(event, EventValue):
            what = f"a stream waits for an event, not for {describe(event)}"
            self.context.fail("wrong-arguments", what, node.args[0].span, "write `e = s.record()`, then `t.wait(e)`")
        self.steps.append(Wait(stream, event.name, span))

    def collective(self, call: CallSite) -> Value:
        """Elaborate `al.collective(...)`: an operation that is done elsewhere, with what it reads and writes."""
        reads, writes = (self._parts(call, name) for name in ("reads", "writes"))
        stream = call.args["stream"]
        if stream != Constant(None) and not isinstance(stream, StreamValue):
            what = f"`stream` is {describe(stream)}"
            self.context.fail("bad-launch", what, call.spans["stream"], "pass what `al.stream()` gives")
        name = stream.name if isinstance(stream, StreamValue) else MAIN
        self.steps.append(Collective(arguments.text(call, "name"), reads, writes, name, call.span))
        return Nothing()

    def _parts(self, call: CallSite, name: str) -> tuple[Part, ...]:
        value = call.args[name]
        items = (value,) if isinstance(value, View) else items_of(value)
        if items is None or not all(isinstance(i, View) for i in items):
            what = f"`{name}` is a tuple of tensors and buffers"
            self.context.fail("bad-launch", what, call.spans[name], f"write `{name}=(x,)`, with whole tensors or names")
        return tuple(part_of(i) for i in items if isinstance(i, View))


def on_host(expr: Expr) -> bool:
    """Return True if an expression is known on the host, because it consists of sizes, numbers and counters."""
    return all(isinstance(e, (Const, Param, LoopVar, Op)) for e in walk(expr))
