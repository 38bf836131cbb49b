"""What can be shared by two roles: a kernel with one pipelined loop, whose staged tiles only products read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from argus.ir.expr import Expr, elements
from argus.ir.instruction import WGMMA
from argus.ir.instruction.tiled import wgmma_accumulator
from argus.ir.nodes import AssertTags, Copy, For, Fragment, Kernel, Mma, Shared, Stage, Stmt
from argus.ir.visit import rewrite_body
from argus.ir.visit import walk as statements
from argus.layout import LayoutError
from argus.passes.fresh import Fresh, names
from argus.passes.moves import target_of
from argus.passes.specialise.rings import Ring

_WARPGROUP = 4  # warps
_MAX_N = 256  # columns of the widest wgmma
_DEPTH_BITS = 256  # of a row of either operand, in every wgmma


@dataclass(frozen=True, slots=True)
class Plan:
    """A kernel whose products have their instructions, its pipelined loop, and the rings of its staged tiles."""

    kernel: Kernel
    loop: For
    rings: tuple[Ring, ...]
    turn: str


def plan(kernel: Kernel) -> Plan | None:
    """How the kernel is shared by two roles, if everything in it has a place in one of them."""
    target = target_of(kernel)
    loops = [s for s in statements(kernel.body) if isinstance(s, For) and s.kind == "pipelined"]
    if "sm_90a" not in target.architectures or len(loops) != 1 or kernel.barriers:
        return None
    (loop,) = loops
    warps = kernel.num_warps + loop.producer_warps
    if loop.producer_warps < 1 or loop.producer_warps % _WARPGROUP or kernel.num_warps % _WARPGROUP:
        return None
    if loop.stages < 2 or warps * kernel.warp_size > target.max_threads or not any(s is loop for s in kernel.body):
        return None
    if not _separable(kernel, loop):
        return None
    chosen = _with_instructions(kernel)
    if chosen is None:
        return None
    loop = next(s for s in chosen.body if isinstance(s, For) and s.kind == "pipelined")
    rings, turn = _rings(chosen, loop)
    return Plan(chosen, loop, rings, turn)


# ---------------------------------------------------------------------------- what stands where


def _separable(kernel: Kernel, loop: For) -> bool:
    """Whether the copies need nothing that the products or the rest of the kernel make, and the other way round."""
    everything = list(statements(kernel.body))
    staged = [s for s in everything if isinstance(s, Stage)]
    tiles = {s.dst for s in staged}
    if len(tiles) != len(staged) or not any(isinstance(s, Stage) for s in loop.body):
        return False
    if any(isinstance(s, Shared) and s.name in tiles and s.layout is not None for s in kernel.shared):
        return False
    direct = {id(s) for s in (*kernel.body, *loop.body)}
    if any(isinstance(s, Stage | Mma) and id(s) not in direct for s in everything):
        return False
    if not _read_by_products(kernel.body, tiles, set()) or not _read_by_products(
        loop.body, tiles, {s.dst for s in kernel.body if isinstance(s, Stage)}
    ):
        return False
    written = {s.dst.obj for s in everything if isinstance(s, Copy) and s.dst.obj not in tiles}
    exprs: list[Expr] = [loop.start, loop.stop]
    for stage in staged:
        exprs += [*stage.src.index, *([stage.mask] if stage.mask is not None else [])]
    return not any(s.src.obj in written for s in staged) and not any(True for e in exprs for _ in elements(e))


def _read_by_products(body: tuple[Stmt, ...], tiles: set[str], before: set[str]) -> bool:
    """Whether only products of this body, and claims, read tiles, and only those that were staged `before` or here."""
    filled = set(before)
    for stmt in body:
        match stmt:
            case Stage(dst=dst):
                filled.add(dst)
            case Mma() | AssertTags():
                if names(stmt) & tiles - filled:
                    return False
            case For(kind="pipelined"):
                pass
            case _:
                if any(names(s) & tiles for s in statements((stmt,))):
                    return False
    return True


def _with_instructions(kernel: Kernel) -> Kernel | None:
    """The kernel with an instruction for each product; None if one of them is not for warpgroups."""
    faults: list[Mma] = []

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, Mma):
            return None
        chosen = _product(kernel, stmt)
        if chosen is None:
            faults.append(stmt)
        return None if chosen is None else (chosen,)

    body = rewrite_body(kernel.body, change)
    return None if faults else replace(kernel, body=body)


def _product(kernel: Kernel, product: Mma) -> Mma | None:
    """`product` with the widest instruction that divides it, over warpgroups along M."""
    target = kernel.object(product.d.obj)
    if product.instr is not None or product.warps is not None or not isinstance(target, Fragment):
        return None
    columns = product.shape[1]
    width = max((n for n in range(8, _MAX_N + 1, 8) if columns % n == 0), default=0)
    row = WGMMA.get(f"wgmma_m64n{width}k{_DEPTH_BITS // kernel.object(product.b.obj).dtype.bits}")
    if row is None:
        return None
    try:
        needed = wgmma_accumulator(row, product.shape[:2], (kernel.num_warps, 1))
    except LayoutError:
        return None
    if target.layout is not None and target.layout.simplify() != needed.simplify():
        return None
    return replace(product, instr=row.name, warps=(kernel.num_warps, 1))


# ---------------------------------------------------------------------------- rings


def _rings(kernel: Kernel, loop: For) -> tuple[tuple[Ring, ...], str]:
    """A ring for all tiles that products bring together, in the order of their staging; the loop's running count."""
    fresh = Fresh(kernel)
    turn = fresh.name("turn")
    products = [s for s in statements(kernel.body) if isinstance(s, Mma)]
    rings: list[Ring] = []
    for stmt in kernel.body:
        inside = stmt is loop
        body, count = (loop.body, loop.stages) if inside else ((stmt,), 1)
        for group in _together([s for s in body if isinstance(s, Stage)], products):
            full = fresh.name("full")
            empty = fresh.name("empty") if inside else None
            rings.append(Ring(group, count, full, empty, turn, stmt.span))
    return tuple(rings), turn


def _together(stages: list[Stage], products: list[Mma]) -> list[tuple[Stage, ...]]:
    """The stages in groups: two that one product reads are in one."""
    groups: list[list[Stage]] = [[s] for s in stages]
    for product in products:
        read = {product.a.obj, product.b.obj}
        joined = [g for g in groups if any(s.dst in read for s in g)]
        if len(joined) > 1:
            place = groups.index(joined[0])
            groups = [g for g in groups if g not in joined]
            groups.insert(place, [s for s in stages if any(s in g for g in joined)])
    return [tuple(g) for g in groups]
