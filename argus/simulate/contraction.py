"""Tags of a contraction: the contributions of `sum over k of a[m, k] * b[n, k]` to each (m, n)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from argus.simulate.numeric import Array
from argus.simulate.tagset import BOTTOM, TAGGED, TOP, Contributions, Field, Schemas, Tags


@dataclass(frozen=True, slots=True)
class Operand:
    """Tags of a row-major operand `[rows, K]`. `zero`: the element is known to be the constant 0."""

    tags: Tags
    zero: Array


def contract(a: Operand, b: Operand, schemas: Schemas) -> Contributions:
    """Return the contributions to the `[M, N]` cells, row-major. `a.zero` is `[M, K]`, `b.zero` is `[N, K]`."""
    m, n = a.zero.shape[0], b.zero.shape[0]
    status_a, status_b = a.tags.status.reshape(a.zero.shape), b.tags.status.reshape(b.zero.shape)
    tagged_a, tagged_b = status_a == TAGGED, status_b == TAGGED
    bad_a, bad_b = (status_a == TOP) | (status_a == BOTTOM), (status_b == TOP) | (status_b == BOTTOM)
    plain_a, plain_b = ~tagged_a & ~bad_a & ~a.zero, ~tagged_b & ~bad_b & ~b.zero
    stray = _meet(plain_a, ~b.zero) | _meet(~a.zero, plain_b)
    mixed = np.full((m, n), -1, dtype=np.int32)
    # Neutral times anything is neutral, so a mixed operand counts only beside a tagged or mixed one.
    for bad, other, operand, transposed in (
        (bad_a, tagged_b | bad_b, a, False),
        (bad_b, tagged_a | bad_a, b, True),
    ):
        if bad.any():
            where = _meet(other, bad).T if not transposed else _meet(other, bad)
            mixed[where] = _reason(operand.tags, bad, schemas)
    schema, fields, count = _tagged(a, b, tagged_a, tagged_b, mixed, schemas)
    return Contributions(count.reshape(-1), schema, fields, stray.reshape(-1), mixed.reshape(-1))


def _meet(x: Array, y: Array) -> Array:
    """Return bool `[M, N]`: True if some k has both x[m, k] and y[n, k]."""
    return _common(x, y) > 0


def _common(x: Array, y: Array) -> Array:
    """Return `[M, N]`: the number of k that have both x[m, k] and y[n, k]. If all rows are equal, which is common, only
    one is computed."""
    m, n = x.shape[0], y.shape[0]
    if not x.any() or not y.any():
        return np.zeros((m, n), dtype=np.int64)
    x, y = (z[:1] if (z == z[0]).all() else z for z in (x, y))
    return np.broadcast_to((x.astype(np.float32) @ y.astype(np.float32).T).astype(np.int64), (m, n))


def _reason(tags: Tags, bad: Array, schemas: Schemas) -> int:
    first = int(np.argmax(bad.reshape(-1)))
    number = int(tags.reason[first])
    return number if number >= 0 else schemas.reason("an uninitialised value was multiplied")


def _tagged(
    a: Operand, b: Operand, on_a: Array, on_b: Array, mixed: Array, schemas: Schemas
) -> tuple[Array, dict[str, Field], Array]:
    """Return (schema, fields, count) of the tagged contributions, and mark the `mixed` cells whose contributions
    disagree."""
    m, n = mixed.shape
    count = _common(on_a, on_b)
    schema = np.full((m, n), -1, dtype=np.int16)
    fields: dict[str, Field] = {}
    schema_a = a.tags.schema.reshape(on_a.shape)
    schema_b = b.tags.schema.reshape(on_b.shape)
    for number_a in _numbers(schema_a[on_a]):
        for number_b in _numbers(schema_b[on_b]):
            here_a, here_b = on_a & (schema_a == number_a), on_b & (schema_b == number_b)
            cells = _meet(here_a, here_b)
            if not cells.any():
                continue
            names_a, names_b = schemas.names[int(number_a)], schemas.names[int(number_b)]
            shared = tuple(name for name in names_a if name in names_b)
            only_a = tuple(name for name in names_a if name not in names_b)
            only_b = tuple(name for name in names_b if name not in names_a)
            number = schemas.number(only_a + only_b + shared)
            mixed[cells & (schema >= 0) & (schema != number)] = schemas.reason(
                "contributions with different tag fields were accumulated"
            )
            schema[cells] = number
            for name in shared:
                differ = _differ(_grid(a, name), _grid(b, name), here_a, here_b)
                mixed[differ] = schemas.reason(f"a product of elements whose tags differ in `{name}`")
            for name in (*only_a, *shared):
                fields[name] = _sum(_grid(a, name), here_a, here_b)
            for name in only_b:
                fields[name] = _transposed(_sum(_grid(b, name), here_b, here_a), n, m)
    return schema.reshape(-1), fields, count


def _numbers(schema: Array) -> Array:
    """Return the distinct numbers. There is most often one."""
    if len(schema) and (schema == schema[0]).all():
        return schema[:1]
    return np.unique(schema)


def _grid(operand: Operand, name: str) -> Field:
    f, shape = operand.tags.field(name), operand.zero.shape
    return Field(f.low.reshape(shape), f.high.reshape(shape), f.size.reshape(shape), f.print.reshape(shape))


def _transposed(field: Field, rows: int, columns: int) -> Field:
    def flip(x: Array) -> Array:
        return np.ascontiguousarray(x.reshape(rows, columns).T).reshape(-1)

    return Field(flip(field.low), flip(field.high), flip(field.size), flip(field.print))


def _sum(field: Field, on: Array, beside: Array) -> Field:
    """Return the union over k of the multisets field[m, k] for which both on[m, k] and beside[n, k] hold: `[M * N]`."""
    m, n = on.shape[0], beside.shape[0]
    lowest, highest = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    low, high = np.where(on, field.low, lowest), np.where(on, field.high, highest)
    size, print_ = np.where(on, field.size, 0), np.where(on, field.print, np.uint64(0))
    result = Field.blank(m * n)
    # Rows of the other operand with tags at the same places share their sums.
    for pattern, columns in _patterns(beside):
        if not pattern.any():
            continue
        places = slice(None) if pattern.all() else pattern
        for target, source, ufunc in (
            (result.low, low, np.minimum),
            (result.high, high, np.maximum),
            (result.size, size, np.add),
            (result.print, print_, np.add),
        ):
            target.reshape(m, n)[:, columns] = ufunc.reduce(source[:, places], axis=1)[:, None]
    return result


def _patterns(rows: Array) -> list[tuple[Array, Array | slice]]:
    """Return the distinct rows, each with its positions. Most often there is one."""
    if (rows == rows[0]).all():
        return [(rows[0], slice(None))]
    patterns, which = np.unique(rows, axis=0, return_inverse=True)
    return [(pattern, np.flatnonzero(which.reshape(-1) == number)) for number, pattern in enumerate(patterns)]


def _differ(a: Field, b: Field, on_a: Array, on_b: Array) -> Array:
    """Return bool `[M, N]`: some k with on_a[m, k] and on_b[n, k] has different values on the two sides."""
    m, n = on_a.shape[0], on_b.shape[0]
    code_a, code_b = a.code(), b.code()
    same_rows = _one_row(code_a, on_a), _one_row(code_b, on_b)
    if same_rows[0] is not None and same_rows[1] is not None:
        wrong = same_rows[0] != same_rows[1]
        return _meet(on_a & wrong, on_b)
    result = np.zeros((m, n), dtype=np.bool_)
    for k in range(on_a.shape[1]):
        result |= (code_a[:, k, None] != code_b[None, :, k]) & on_a[:, k, None] & on_b[None, :, k]
    return result


def _one_row(code: Array, on: Array) -> Array | None:
    """Return the value at each k if all rows that have a value there agree, else None."""
    filled = np.where(on, code, np.uint64(0))
    row = filled.max(axis=0)
    return row if bool(((filled == row) | ~on).all()) else None
