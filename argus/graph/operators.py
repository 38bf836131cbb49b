"""The operator table: the meaning of each ATen operator, with one row for each operator.

A row gives the value of one element of the result as a term over the operands (`argus.graph.terms`). Rows do not depend
on kernels. The `al.spec` of a generated kernel is made from them, and the tests compare them with PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from argus.graph import placed, pointwise, precise, reductions, scatter, smooth, turned, turns, views, windows
from argus.graph.own import NAMESPACE
from argus.graph.row import Operand, Row, Site
from argus.graph.terms import Element

TABLE: dict[str, Row] = {
    **pointwise.ROWS, **reductions.ROWS, **views.ROWS, **windows.ROWS, **turns.ROWS, **turned.ROWS, **precise.ROWS,
    **smooth.ROWS, **scatter.ROWS, **placed.ROWS,
}  # fmt: skip
"""The rows by the operator's name without "aten.": "add.Tensor", "_softmax.default"."""


def name_of(target: Any) -> str:
    """Return the table name of an operator: the name of an ATen `torch._ops.OpOverload` without "aten.", or that of an
    operator of this package, or "" for other operators."""
    namespace = getattr(target, "namespace", "")
    if namespace not in ("aten", NAMESPACE) or not hasattr(target, "_schema"):
        return ""
    return str(target).removeprefix(f"{namespace}.")


def row_of(target: Any) -> Row | None:
    """Return the table row of an operator, or None if the table has no such row."""
    return TABLE.get(name_of(target))


def arguments(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of an operator in the order of its schema, defaults included.

    Arguments that state the device, dtype or memory format of the result are left out: the result itself has these."""
    values = []
    for place, argument in enumerate(target._schema.arguments):
        if argument.name in (
            "dtype",
            "layout",
            "device",
            "pin_memory",
            "memory_format",
            "non_blocking",
            "half_to_float",
        ):
            continue
        if place < len(args):
            values.append(args[place])
        elif argument.name in kwargs:
            values.append(kwargs[argument.name])
        else:
            values.append(argument.default_value if argument.has_default_value() else None)
    return tuple(values)


def elements(row: Row, site: Site, given: Sequence[Any]) -> tuple[Element | None, ...]:
    """Return terms for the elements of an operator's results. `given` are the arguments; tensors among them are
    `Operand`.

    Raises NotExpressible if the row has no meaning for these arguments.
    """
    found = row.meaning(site, *given)
    return found if isinstance(found, tuple) else (found,)


def operands(given: Sequence[Any]) -> list[Operand]:
    """Return the tensors among the arguments, including those in lists."""
    found: list[Operand] = []
    for value in given:
        match value:
            case Operand():
                found.append(value)
            case list() | tuple():
                found += operands(value)
            case _:
                pass
    return found
