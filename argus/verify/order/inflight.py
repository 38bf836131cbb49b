"""Checks on registers of asynchronous products: not accessed between issue and completion, and fenced before.

PTX ISA, wgmma: accumulator registers must not be accessed before wgmma.wait_group covers the product. wgmma.fence must
order earlier register accesses, except those of products of the same shape into the same accumulator.
"""

from __future__ import annotations

from argus.diagnostic import Note, Verdict
from argus.ir.access import Mode
from argus.ir.instruction import Order
from argus.ir.nodes import Fragment, Mma
from argus.verify.checks.races import conflicts
from argus.verify.findings import Finding, place_of, unknown
from argus.verify.model.isl import Map, smallest
from argus.verify.model.relations import Cells, Model
from argus.verify.order.order import Ordering


def check(model: Model, ordering: Ordering) -> list[Finding]:
    """Find accesses to registers of a product that is not complete, and products without a fence before them."""
    findings = []
    for fragment in model.kernel.fragments:
        accesses = model.accesses_of(fragment.name)
        products = [c for c in accesses if c.relation.order is Order.ASYNC_MMA]
        for product in products:
            for other in accesses:
                if product.relation.mode is other.relation.mode is Mode.READ or _of_one_shape(product, other):
                    continue
                finding = _in_flight(model, ordering, fragment, product, other)
                finding = finding or _fence(model, ordering, fragment, other, product)
                if finding is not None:
                    findings.append(finding)
    return findings


def _of_one_shape(a: Cells, b: Cells) -> bool:
    """Return True if both are products by the same instruction, which the hardware keeps in order."""
    first, second = a.site.stmt, b.site.stmt
    return isinstance(first, Mma) and isinstance(second, Mma) and first.instr == second.instr


def _in_flight(model: Model, ordering: Ordering, fragment: Fragment, product: Cells, other: Cells) -> Finding | None:
    early = ordering.uncompleted(conflicts(model, product, other), product.site, other.site, Order.ASYNC_MMA)
    if early.is_empty():
        return None
    verb = "read" if other.relation.mode is Mode.READ else "written"
    does = "reads" if product.relation.mode is Mode.READ else "writes"
    text = f"registers '{fragment.name}' are {verb} while an asynchronous product still {does} them"
    help = "wait for the product first (wgmma.commit_group, then wgmma.wait_group)"
    return _finding(model, "register-in-flight", text, help, product, other, early)


def _fence(model: Model, ordering: Ordering, fragment: Fragment, other: Cells, product: Cells) -> Finding | None:
    unfenced = ordering.unfenced(conflicts(model, other, product), other.site, product.site)
    if unfenced.is_empty():
        return None
    text = f"no fence orders the accesses to registers '{fragment.name}' before this asynchronous product"
    return _finding(model, "missing-mma-fence", text, "put wgmma.fence before the product", other, product, unfenced)


def _finding(model: Model, code: str, text: str, help: str, first: Cells, second: Cells, pairs: Map) -> Finding:
    span = second.site.stmt.span
    if not (first.exact and second.exact):
        return unknown("races-unknown", "races", span, f"cannot exclude: {text}", help)
    return Finding(
        code,
        "races",
        Verdict.REFUTED,
        text,
        span,
        notes=(Note("the other access", first.site.stmt.span),),
        help=help,
        place=place_of(model.kernel, smallest(pairs.range()), second.site),
    )
