"""The values that a launch passes to its kernel (sizes, strides and scalars by name), and the obligations on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from argus.ir.expr import TRUE, Const, Expr, Param, conjunction, op, rewrite
from argus.ir.nodes import Kernel, Requires
from argus.ir.types import MAX_EXTENT
from argus.programs.ir import Buffer, Launch, Part, Program, wide


@dataclass(frozen=True, slots=True)
class Obligation:
    """A condition that a launch must keep. `what` describes it in words, and `code` is the code of the finding if it
    fails."""

    code: str
    cond: Expr
    what: str


@dataclass(frozen=True, slots=True)
class Bound:
    """A launch with its kernel's parameters bound: `values` are expressions of the program, by the kernel's names."""

    launch: Launch
    kernel: Kernel
    values: Mapping[str, Expr]
    equalities: tuple[Obligation, ...]

    def of(self, expr: Expr) -> Expr:
        """Return an expression over the kernel's launch parameters in the program's terms."""
        return rewrite(expr, lambda e: self.values.get(e.name, e) if isinstance(e, Param) else None)

    def part(self, name: str) -> Part:
        """Return the part that a launch passes for a tensor."""
        found = dict(self.launch.arguments)[name]
        assert isinstance(found, Part)
        return found


def bound(program: Program, launch: Launch) -> Bound:
    """Bind the parameters of a launch's kernel. Each repeated use of a name, and each constant, becomes an equality."""
    kernel = program.uses[launch.use].kernel
    values: dict[str, Expr] = {}
    equalities: list[Obligation] = []

    def meet(declared: Expr, actual: Expr, place: str, unless: Expr | None = None) -> None:
        known = values.get(declared.name) if isinstance(declared, Param) else declared
        if known is None and isinstance(declared, Param):
            values[declared.name] = actual
        elif known is not None and known != actual:
            cond = op("eq", actual, known)
            cond = cond if unless is None else op("or", unless, cond)
            name = f"`{declared.name}`" if isinstance(declared, Param) else f"{declared.value}"  # type: ignore[union-attr]
            equalities.append(Obligation("program-shape", cond, f"{place} of `{kernel.name}` is {name}"))

    arguments = dict(launch.arguments)
    for t in kernel.tensors:
        part = arguments[t.name]
        assert isinstance(part, Part)
        for axis, (declared, actual) in enumerate(zip(t.shape, part.shape, strict=True)):
            meet(declared, actual, f"dimension {axis} of `{t.name}`")
    for t in kernel.tensors:
        part = arguments[t.name]
        assert isinstance(part, Part)
        for axis, (declared, actual) in enumerate(zip(t.strides, strides_of(program, part), strict=True)):
            single = op("le", part.shape[axis], Const(1)) if isinstance(declared, Const) else None
            meet(declared, actual, f"stride {axis} of `{t.name}`", single)
    for name, value in arguments.items():
        if not isinstance(value, Part):
            values[name] = value
    return Bound(launch, kernel, values, tuple(equalities))


def strides_of(program: Program, part: Part) -> tuple[Expr, ...]:
    """Return the strides, in elements, of the dimensions that a part keeps."""
    strides = program.object(part.obj).strides
    return tuple(s for s, kept in zip(strides, part.kept, strict=True) if kept)


def obligations(program: Program, bound: Bound) -> Iterator[Obligation]:
    """Yield everything that a launch must keep, apart from alignments, facts about index tensors, and order."""
    for name, part in parts(bound.launch):
        yield from within(program, part, name)
    yield from bound.equalities
    for name in bound.kernel.sizes:
        small = op("le", bound.values[name], Const(MAX_EXTENT))
        yield Obligation("program-shape", small, f"the size `{name}` of `{bound.kernel.name}` is at most {MAX_EXTENT}")
    for p in bound.kernel.preconditions:
        if isinstance(p, Requires):
            yield Obligation("program-precondition", bound.of(p.cond), f"`{bound.kernel.name}` requires it")


def parts(launch: Launch) -> Iterator[tuple[str, Part]]:
    """Yield the parts that a launch passes, with the kernel's names for them."""
    return ((name, a) for name, a in launch.arguments if isinstance(a, Part))


def within(program: Program, part: Part, name: str) -> Iterator[Obligation]:
    """Check that a part lies inside its object, and that its extents are not negative."""
    obj = program.object(part.obj)
    for axis, (start, extent, whole) in enumerate(zip(part.start, part.extent, obj.shape, strict=True)):
        if start == Const(0) and extent == whole:
            continue
        where = f"dimension {axis} of `{part.obj}`, passed as `{name}`"
        yield Obligation("program-bounds", op("ge", start, Const(0)), f"{where} begins at 0 or later")
        yield Obligation("program-bounds", op("ge", extent, Const(0)), f"{where} has no negative extent")
        end = op("le", op("add", start, extent), whole)
        yield Obligation("program-bounds", end, f"{where} ends inside of it")


def overlap(a: Part, b: Part) -> Expr:
    """Return the condition that two parts of one object share an element."""
    conds: list[Expr] = []
    for start, extent, other, width in zip(a.start, a.extent, b.start, b.extent, strict=True):
        conds += [op("lt", start, op("add", other, width)), op("lt", other, op("add", start, extent))]
        conds += [op("gt", extent, Const(0)), op("gt", width, Const(0))]
    return conjunction(conds) or TRUE


def touched(kernel: Kernel) -> tuple[frozenset[str], frozenset[str]]:
    """Return the tensors that a kernel reads and the tensors that it writes. An accumulated tensor is in both."""
    from argus.backend.launch.signature import signature

    tensors = signature(kernel).tensors
    return frozenset(t.name for t in tensors if t.read), frozenset(t.name for t in tensors if t.written)


def exact_bytes(buffer: Buffer) -> Expr:
    """Return the size of a buffer's elements in bytes."""
    size: Expr = Const(buffer.dtype.bytes)
    for extent in buffer.shape:
        size = op("mul", size, wide(extent))
    return size
