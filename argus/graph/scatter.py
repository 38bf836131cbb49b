"""Sums at places that an index tensor holds, as gradients of embeddings: the operator's row.

    embedding_dense_backward(g, at)[v, d] = sum over p of g[p, d] where at[p] == v
"""

from __future__ import annotations

from typing import Any

from argus.graph.row import SCATTER, NotExpressible, Operand, Row, Site, apply, real_at
from argus.graph.terms import Apply, Element, Index, Number, Reduce, Term


def _meaning(site: Site, gradient: Operand, at: Operand, rows: Any, padding: int, by_frequency: bool) -> Element:
    if padding >= 0 or by_frequency or gradient.dtype != "float32":
        raise NotExpressible("a gradient of an embedding that is scaled, padded, or not in float32")
    where = tuple(site.fresh(at, d) for d in range(len(at.shape)))

    def element(index: Index) -> Term:
        row: Term = Apply("cast", (index[0],), at.dtype) if at.dtype == "int64" else index[0]
        value = real_at(gradient, (*where, index[1]))
        chosen = apply("where", apply("eq", at.at(where), row), value, Number(0.0, "float32"))
        return Reduce("sum", tuple(v for i in where for v in i.digits), chosen, "float32")

    return element


ROWS: dict[str, Row] = {"embedding_dense_backward.default": Row(SCATTER, _meaning)}
"""The rows by the operator's name without "aten."."""
