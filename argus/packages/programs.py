"""Programs in C: the same statements are executed twice, first to check every launch and then to make the launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from argus.backend.launch.signature import Signature
from argus.packages.expressions import identifier, in_c
from argus.packages.functions import (
    SCALARS,
    checks,
    function,
    inner_parameters,
    parameters,
    passed,
    quoted,
    type_code,
    viewed,
)
from argus.programs.bound import exact_bytes
from argus.programs.ir import (
    MAIN,
    POOL_ALIGNMENT,
    Buffer,
    Collective,
    For,
    If,
    Launch,
    Part,
    Program,
    Record,
    Step,
    Wait,
    walk,
)


@dataclass(frozen=True, slots=True)
class Places:
    """The numbers that a package gives to a program's kernels, streams and events."""

    kernels: Sequence[int]
    streams: Mapping[str, int]
    events: Mapping[str, int]


def events_of(program: Program) -> list[str]:
    """Return the events that a program records, in order."""
    return list(dict.fromkeys(s.event for s in walk(program.body) if isinstance(s, Record)))


def has_collectives(program: Program) -> bool:
    """Return True if a program calls what it does not define."""
    return any(isinstance(s, Collective) for s in walk(program.body))


def public_program(
    prefix: str, program: Program, signature: Signature, kernels: Sequence[Signature], places: Places
) -> tuple[str, str]:
    """Return the declarations and the definitions of a program's public functions, and of the functions that they call.
    """
    name = f"{prefix}_{program.name}"
    more = ", argus_collective collective, void *context" if has_collectives(program) else ""
    body = _Body(program, kernels, places)
    inner = f"static int run_{program.name}({inner_parameters(signature)}, char *pool, size_t *bytes{more})"
    lines = [*checks(signature), *body.memory(), *body.body(program.body), "return c->status;"]
    head = (
        f"int {name}({parameters(signature)}, void *workspace, size_t workspace_bytes, void *stream{more}, "
        "char *message, size_t size)"
    )
    asking = f"int {name}_workspace({parameters(signature)}, size_t *bytes, char *message, size_t size)"
    given = passed(signature)
    extra = ", collective, context" if more else ""
    none = ", NULL, NULL" if more else ""
    begin = ["argus_call call = argus_begin(package, stream, message, size);", *viewed(signature)]
    asked = [begin[0].replace("stream", "NULL"), *begin[1:]]
    asked += [
        "*bytes = 0;",
        "call.dry = ARGUS_ASKING;",
        f"if (!call.status) run_{program.name}(&call, {given}, NULL, bytes{none});",
        "return call.status;",
    ]
    public = [
        *begin,
        "size_t bytes = workspace_bytes;",
        "call.dry = ARGUS_CHECKING;",
        f"if (!call.status) run_{program.name}(&call, {given}, (char *)workspace, &bytes{extra});",
        "call.dry = 0;",
        f"if (!call.status) run_{program.name}(&call, {given}, (char *)workspace, &bytes{extra});",
        "return call.status;",
    ]
    comment = "// `workspace`: memory on the device, aligned to 256 bytes, of the size that the other function gives.\n"
    return f"{comment}{head};\n{asking};", "\n\n".join(
        [function(inner, lines), function(head, public), function(asking, asked)]
    )


class _Body:
    def __init__(self, program: Program, kernels: Sequence[Signature], places: Places) -> None:
        self.program, self.kernels, self.places = program, kernels, places
        self.count = 0

    def memory(self) -> Iterator[str]:
        """Return the statements that place the buffers in the workspace and check the workspace's size."""
        for b in self.program.buffers:
            unit = POOL_ALIGNMENT
            size = in_c(exact_bytes(b))
            yield f"const int64_t {identifier(b.bytes.name)} = argus_mul(c, argus_floordiv(c, argus_add(c, {size}, {unit - 1}), {unit}), {unit});"  # noqa: E501
        pool = in_c(self.program.pool) if self.program.pool is not None else "0"
        yield f"const int64_t needed = {pool};"
        yield 'if (c->bad) return argus_fail(c, ARGUS_ARGUMENT, "size-overflow: a size exceeds 64 bits");'
        yield "if (c->status) return c->status;"
        yield "if (c->dry == ARGUS_ASKING) {"
        yield "    *bytes = (size_t)needed;"
        yield "    return ARGUS_OK;"
        yield "}"
        yield "if (*bytes < (size_t)needed || (uintptr_t)pool % 256 != 0)"
        yield '    return argus_fail(c, ARGUS_ARGUMENT, "workspace-too-small: %llu bytes aligned to 256 are needed", (unsigned long long)needed);'  # noqa: E501
        yield "const argus_view room = {pool, 1, {needed}, {1}};"
        for t in self.program.tensors:
            yield f'argus_apart(c, &room, 1, "workspace", {t.name}_, {t.dtype.bytes}, "{t.name}");'
        for b in self.program.buffers:
            yield self.buffer(b)
        yield from (f"(void){identifier(b.bytes.name)}, (void)b_{b.name};" for b in self.program.buffers)
        yield "(void)room;"

    def buffer(self, b: Buffer) -> str:
        assert b.offset is not None
        shape, strides = (", ".join(map(in_c, e)) for e in (b.shape, b.strides))
        place = f"pool + {in_c(b.offset)}"
        return f"const argus_view b_{b.name} = {{{place}, {len(b.shape)}, {{{shape}}}, {{{strides}}}}};"

    def body(self, body: tuple[Step, ...]) -> Iterator[str]:
        """Yield the statements of a block."""
        for step in body:
            match step:
                case Launch():
                    yield from self.launch(step)
                case Collective():
                    yield from self.collective(step)
                case Record(event=event, stream=stream):
                    yield f"argus_record(c, {self.places.events[event]}, {self.stream(stream)});"
                case Wait(stream=stream, event=event):
                    yield f"argus_wait(c, {self.stream(stream)}, {self.places.events[event]});"
                case For(var=var):
                    i = identifier(var)
                    start, stop = in_c(step.start), in_c(step.stop)
                    yield f"for (int64_t {i} = {start}; {i} < {stop} && !c->status; {i} += {step.step}) {{"
                    yield from (f"    {line}" for line in self.body(step.body))
                    yield "}"
                case If(cond=cond, then=then, orelse=orelse):
                    yield f"if ({in_c(cond)}) {{"
                    yield from (f"    {line}" for line in self.body(then))
                    if orelse:
                        yield "} else {"
                        yield from (f"    {line}" for line in self.body(orelse))
                    yield "}"

    def stream(self, name: str) -> int:
        return -1 if name == MAIN else self.places.streams[name]

    def launch(self, step: Launch) -> Iterator[str]:
        arguments = dict(step.arguments)
        signature = self.kernels[step.use]
        yield "{"
        given = []
        for p in signature.params:
            value = arguments[p.name]
            if isinstance(value, Part):
                yield f"    const argus_view p_{p.name} = {self.part(value)};"
                given.append(f"&p_{p.name}")
            else:
                given.append(f"({SCALARS[p.dtype]})({in_c(value)})")
                if p.dtype == "int32":
                    yield f'    argus_number(c, {in_c(value)}, INT32_MIN, INT32_MAX, "{p.name}");'
        yield "    void *caller = c->stream;"
        yield f"    c->stream = argus_stream(c, {self.stream(step.stream)});"
        yield f"    if (!c->status) launch_{self.places.kernels[step.use]}(c, {', '.join(given)});"
        yield "    c->stream = caller;"
        yield "}"

    def collective(self, step: Collective) -> Iterator[str]:
        yield "{"
        for name, parts in (("reads", step.reads), ("writes", step.writes)):
            for i, part in enumerate(parts):
                yield f"    const argus_view {name}_{i} = {self.part(part)};"
            made = ", ".join(self.tensor(f"{name}_{i}", part) for i, part in enumerate(parts))
            yield f"    const DLTensor {name}[] = {{{made or '{0}'}}};"
        yield f"    if (collective == NULL) argus_fail(c, ARGUS_ARGUMENT, {quoted(f'argument-count: no function for the collective {step.name}')});"  # noqa: E501
        stream = f"argus_stream(c, {self.stream(step.stream)})"
        yield f"    if (!c->status && !c->dry && collective(context, {quoted(step.name)}, reads, {len(step.reads)}, writes, {len(step.writes)}, {stream}) != 0)"  # noqa: E501
        yield f"        argus_fail(c, ARGUS_KERNEL, {quoted(f'collective-failed: {step.name}')});"
        yield "}"

    def tensor(self, view: str, part: Part) -> str:
        dtype = self.program.object(part.obj).dtype
        return f"argus_as_tensor(c, &{view}, {type_code(dtype)}, {dtype.bits})"

    def part(self, part: Part) -> str:
        """Return the C text of a part as a view."""
        obj = self.program.object(part.obj)
        whole = f"&b_{part.obj}" if isinstance(obj, Buffer) else f"{part.obj}_"
        axes = [axis for axis, kept in enumerate(part.kept) if kept]
        start = ", ".join(map(in_c, part.start)) or "0"
        extent = ", ".join(map(in_c, part.shape)) or "0"
        kept = ", ".join(map(str, axes)) or "0"
        return (
            f"argus_part({whole}, {obj.dtype.bytes}, {len(axes)}, (int64_t[]){{{start}}}, (int[]){{{kept}}}, "
            f"(int64_t[]){{{extent}}})"
        )
