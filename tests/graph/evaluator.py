"""An evaluator of index expressions over NumPy-like index grids in PyTorch, which shares nothing with the compiler."""

from __future__ import annotations

from math import prod

import torch

from argus.graph.terms import Apply, Count, Flat, Load, Number, Reduce, Softmax, Term, Var

_UNARY = {
    "neg": torch.neg, "exp": torch.exp, "exp2": torch.exp2, "log": torch.log, "log2": torch.log2, "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt, "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh, "erf": torch.erf,
    "sigmoid": torch.sigmoid, "abs": torch.abs, "floor": torch.floor,
    "log1p": torch.log1p, "ceil": torch.ceil, "not": torch.logical_not,
}  # fmt: skip


def _sortable(x: torch.Tensor) -> torch.Tensor:
    """int32 in the order of float32: zeros are equal, NaN is above all."""
    bits = torch.where(x == 0, 0.0, x).to(torch.float32).view(torch.int32)
    keys = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return torch.where(x.isnan(), 0x7FFFFFFF, keys)


_UNARY["sortable"] = _sortable
_BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum,
    "minimum": torch.minimum, "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt,
    "ge": torch.ge, "and": torch.logical_and, "or": torch.logical_or, "mod": torch.remainder,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
}  # fmt: skip


def evaluate(
    term: Term, tensors: dict[object, torch.Tensor], index: tuple[Var, ...], shape: tuple[int, ...]
) -> torch.Tensor:
    """The tensor of the values that `term` has where the variables `index` go through `shape`."""
    grids: dict[str, torch.Tensor] = {}
    for place, variable in enumerate(index):
        line = [1] * len(index)
        line[place] = variable.size
        grids[variable.name] = torch.arange(variable.size).reshape(line)
    return _value(term, tensors, grids, len(index)).broadcast_to([v.size for v in index]).reshape(shape)


def _value(term: Term, tensors: dict[object, torch.Tensor], grids: dict[str, torch.Tensor], rank: int) -> torch.Tensor:
    match term:
        case Flat(digits=digits):
            total = torch.zeros([1] * rank, dtype=torch.int64)
            for digit in digits:
                total = total * digit.size + grids[digit.name]
            return total
        case Number(value=value, dtype=dtype):
            return torch.full([1] * rank, value, dtype=getattr(torch, dtype))
        case Load(source=source, index=index):
            x = tensors[source]
            places = [_value(i, tensors, grids, rank) for i in index]
            # What a choice leaves out may lie outside.
            inside = [p.clamp(0, max(size - 1, 0)) for p, size in zip(places, x.shape, strict=True)]
            return x[tuple(inside)] if inside else x.reshape([1] * rank)
        case Apply(op="cast", args=(arg,), dtype="tfloat32"):  # the nearest number with 10 bits of fraction
            value = _value(arg, tensors, grids, rank)
            spacing = 2.0 ** (value.double().abs().log2().floor() - 10)
            return ((value.double() / spacing).round() * spacing).nan_to_num().float()
        case Apply(op="cast", args=(arg,), dtype=dtype):
            return _value(arg, tensors, grids, rank).to(getattr(torch, dtype))
        case Apply(op="where", args=args):
            return torch.where(*(_value(a, tensors, grids, rank) for a in args))
        case Apply(op=op, args=args):
            values = [_value(a, tensors, grids, rank) for a in args]
            return _UNARY[op](*values) if len(values) == 1 else _BINARY[op](*values)
        case Count(vars=variables, dtype=dtype):
            return torch.full([1] * rank, float(prod(v.size for v in variables)), dtype=getattr(torch, dtype))
        case Reduce(op=op, vars=variables, body=body):
            value = _bound(body, variables, tensors, grids, rank)
            dims = tuple(range(rank, rank + len(variables)))
            match op:
                case "sum":
                    return value.sum(dims) if dims else value
                case "max":
                    return value.amax(dims) if dims else value
                case "min":
                    return value.amin(dims) if dims else value
            for dim in reversed(dims):
                value = value.prod(dim)
            return value
        case Softmax(vars=variables, at=at, score=score):
            value = _bound(score, variables, tensors, grids, rank)
            dims = tuple(range(rank, rank + len(variables)))
            weights = torch.exp(value - value.amax(dims, keepdim=True)) if dims else torch.ones_like(value)
            weights = weights / weights.sum(dims, keepdim=True) if dims else weights
            places = [grids[v.name] for v in at]
            lead = torch.broadcast_shapes(weights.shape[:rank], *(p.shape for p in places))
            full = weights.broadcast_to(lead + weights.shape[rank:])
            where = torch.meshgrid(*(torch.arange(n) for n in lead), indexing="ij")
            return full[(*where, *(p.broadcast_to(lead) for p in places))]
    raise AssertionError(term)


def _bound(
    body: Term,
    variables: tuple[Var, ...],
    tensors: dict[object, torch.Tensor],
    grids: dict[str, torch.Tensor],
    rank: int,
) -> torch.Tensor:
    count = len(variables)
    inner = {name: grid.reshape([*grid.shape, *[1] * count]) for name, grid in grids.items()}
    for place, variable in enumerate(variables):
        line = [1] * (rank + count)
        line[rank + place] = variable.size
        inner[variable.name] = torch.arange(variable.size).reshape(line)
    value = _value(body, tensors, inner, rank + count)
    return value.broadcast_to([*value.shape[:rank], *(v.size for v in variables)])
