"""Identities of statements: given by `numbered`, kept by rewriting, no part of what is equal or printed."""

from __future__ import annotations

from dataclasses import replace

from argus.ir.expr import Const
from argus.ir.nodes import Barrier, For, Kernel, Stmt
from argus.ir.statement import UNNUMBERED
from argus.ir.text import print_kernel
from argus.ir.visit import map_exprs, numbered, rewrite_body, walk
from tests.ir.kernels import tile_gemm


def twice() -> Kernel:
    """A kernel in which equal statements stand in two places."""
    loop = For("i", Const(0), Const(4), 1, (Barrier(), Barrier()))
    return replace(tile_gemm(), body=(Barrier(), loop, loop))


def test_equal_statements_have_identities_of_their_own() -> None:
    kernel = numbered(twice())
    identities = [s.id for s in walk(kernel.body)]
    assert sorted(identities) == list(range(7))
    assert kernel == twice() and print_kernel(kernel) == print_kernel(twice())
    assert {s.id for s in walk(twice().body)} == {UNNUMBERED}


def test_rewriting_keeps_identities() -> None:
    kernel = numbered(twice())

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        return (replace(stmt, scope="cluster"), Barrier()) if isinstance(stmt, Barrier) else None

    def same(stmt: Stmt) -> tuple[Stmt, ...]:
        return (map_exprs(stmt, lambda e: Const(8) if e == Const(4) else None),)

    body = rewrite_body(rewrite_body(kernel.body, change), same)
    found = [s.id for s in walk(body) if s.id != UNNUMBERED]
    assert found == [s.id for s in walk(kernel.body)]
    assert sum(s.id == UNNUMBERED for s in walk(body)) == 5
