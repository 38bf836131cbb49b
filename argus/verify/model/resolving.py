"""Values of registers and bounds, as the sites of a kernel see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from argus.ir.expr import Const, Elem, Expr, Op, Param, ProgramId, Thread, coords, op, rewrite, substitute_coords, walk
from argus.ir.nodes import Access, Accumulate, Copy, For, Map
from argus.ir.text import print_expr
from argus.verify.model.program import PROGRAM, Site, is_launch_constant

LOADED = "value of "
"""The prefix of the name of a parameter that stands for a number loaded by the block."""
BOUND, BOUND_OF_BLOCK = "bound ", "bound of block "
"""The prefixes of the names of parameters that stand for bounds of loops and branches; see `named`."""


def resolved(sites: tuple[Site, ...], site: Site, expr: Expr) -> Expr:
    """Replace registers in `expr` by the integer or boolean expressions that they hold when the site evaluates it.

    A register is replaced if its tile has one writer in the kernel, which runs before the site in the same iteration
    and only under conditions that hold at the site too. A scalar loaded once for the program becomes a parameter.
    """

    def change(e: Expr) -> Expr | None:
        if not isinstance(e, Elem) or e.dtype.is_float:
            return None
        writer = only_writer(sites, site, e.obj)
        match writer.stmt if writer is not None else None:
            case Map(dst=dst, value=value, shape=shape) if writer is not None and dst.index == coords(len(shape)):
                value = resolved(sites, writer, value)
                if any(isinstance(part, Elem) or part.dtype.is_float for part in walk(value)):
                    return None
                if is_of_others(site, value):
                    return None
                return substitute_coords(value, e.index)
            case Copy(src=src, shape=(), mask=None) if writer is not None and once_a_program(writer):
                # Loaded once for the program: the same unknown number wherever it is used.
                return Param(LOADED + (_place(sites, src) or e.obj), e.dtype)
            case _:
                return None

    return rewrite(expr, change)


def is_of_others(site: Site, value: Expr) -> bool:
    """Return True if a site reads registers of other lanes whose `value` depends on the thread.

    The thread in `value` is then the one that computed it, not the one that reads it.
    """
    across = isinstance(site.stmt, Map | Accumulate) and site.stmt.scope == "warp"
    return across and any(isinstance(part, Thread) for part in walk(value))


def once_a_program(site: Site) -> bool:
    """Return True if each loop around a statement is the one over a block's programs, or has one trip."""
    return all(loop.var == PROGRAM or _has_one_trip(loop) for loop in site.loops)


def _has_one_trip(loop: For) -> bool:
    match loop:
        case For(start=Const(value=start), stop=Const(value=stop), step=step):
            return 0 < stop - start <= step
        case _:
            return False


def loaded(sites: tuple[Site, ...], every: tuple[Site, ...] = ()) -> dict[Access, str]:
    """Map each place that `sites` load once, and the kernel never writes, to the parameter that `resolved` makes of it.

    `every`: all sites of the kernel, if `sites` are only some of them.
    """
    once = (s.stmt for s in sites if isinstance(s.stmt, Copy) and once_a_program(s))
    places = {stmt.src for stmt in once if not (stmt.shape or stmt.mask)}
    return {src: LOADED + name for src in places if (name := _place(every or sites, src))}


def _place(sites: tuple[Site, ...], src: Access) -> str:
    """Return a name for a place at a fixed index that the kernel never writes, the same for all loads, or "" for other
    places."""
    constant = all(map(is_launch_constant, src.index))
    written = any(src.obj in site.written for site in sites)
    return f"{src.obj}[{', '.join(map(print_expr, src.index))}]" if constant and not written else ""


def differs_by_block(expr: Expr) -> bool:
    """Return True if a launch constant may differ between blocks, because it depends on a program id or on data."""
    return any(
        isinstance(e, ProgramId) or (isinstance(e, Param) and e.name.startswith((LOADED, BOUND_OF_BLOCK)))
        for e in walk(expr)
    )


def block_bounds(sites: tuple[Site, ...]) -> dict[Expr, Param]:
    """Name what loop bounds compute from loaded numbers: quotients by constants, minima and maxima.

    A proof for any trip count with the properties of `least` holds for the one that a name stands for. The exact
    relation to the loaded numbers would split sets by the remainder in the last iteration, or by the operand.
    """
    found: dict[Expr, Param] = {}
    loops = ((site, site.stmt) for site in sites if isinstance(site.stmt, For))
    for expr in (resolved(sites, site, e) for site, loop in loops for e in (loop.start, loop.stop)):
        for part in walk(expr):
            if _is_bound(part) and is_launch_constant(part) and _reads_loaded(part):
                found.setdefault(part, Param(f"{BOUND_OF_BLOCK}number {len(found)}", part.dtype))
    return found


def _is_bound(expr: Expr) -> bool:
    match expr:
        case Op(op="floordiv", args=(_, Const(value=count))):
            return count > 0
        case Op(op="minimum" | "maximum"):
            return expr.dtype.is_int
        case _:
            return False


def _reads_loaded(expr: Expr) -> bool:
    return any(isinstance(e, Param) and e.name.startswith(LOADED) for e in walk(expr))


def least(names: Mapping[Expr, Param]) -> Iterator[Expr]:
    """Yield the simple properties of `block_bounds`: a maximum is at least each of its operands, a minimum at most."""
    for expr, name in names.items():
        match expr:
            case Op(op="minimum" | "maximum" as way, args=args):
                yield from (op("le" if way == "minimum" else "ge", name, rewrite(e, names.get)) for e in args)
            case _:
                pass


def definitions_of(names: Mapping[Expr, Param]) -> Iterator[Expr]:
    """Return the definitions of the names of `block_bounds`, as conditions.

    The definition of a quotient `whole // count` is `name * count <= whole < name * count + count`.
    """
    for expr, name in names.items():
        match expr:
            case Op(op="floordiv", args=(whole, Const() as count)):
                whole, multiple = rewrite(whole, names.get), op("mul", name, count)
                yield op("and", op("le", multiple, whole), op("lt", whole, op("add", multiple, count)))
            case Op(op=way, args=(a, b)):
                yield op("eq", name, op(way, rewrite(a, names.get), rewrite(b, names.get)))
            case _:
                raise ValueError("no bound that is named")


def only_writer(sites: tuple[Site, ...], site: Site, obj: str) -> Site | None:
    """Return the only statement that writes a tile, if it runs before `site` in each iteration in which `site` runs."""
    writers = [s for s in sites if obj in s.written]
    if len(writers) != 1:
        return None
    writer = writers[0]
    before = writer.index < site.index and writer.loops == site.loops[: len(writer.loops)]
    before = before and writer.role in (None, site.role)
    return writer if before and set(writer.guards) <= set(site.guards) else None
