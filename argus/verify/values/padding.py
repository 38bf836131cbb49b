"""Padding that affects a sum of exponentials: zeros have weight exp(0), whereas -inf would have weight 0."""

from __future__ import annotations

from argus.ir.expr import Elem, Expr, Op, walk
from argus.ir.nodes import Accumulate, Copy, Fragment, Kernel, Map, Tensor
from argus.ir.visit import walk as statements


def padded_exponentials(kernel: Kernel) -> tuple[str, ...]:
    """Return the tensors whose masked loads write zeros to tiles whose exponentials are summed."""
    padded: dict[str, set[str]] = {}
    weights: dict[str, set[str]] = {}
    found: dict[str, None] = {}
    for stmt in statements(kernel.body):
        match stmt:
            case Copy(dst=dst, src=src, mask=mask, other=other) if isinstance(kernel.object(dst.obj), Fragment):
                source = kernel.object(src.obj)
                if isinstance(source, Tensor) and mask is not None and other is not None and other.value == 0:
                    padded.setdefault(dst.obj, set()).add(src.obj)
            case Map(dst=dst, value=value):
                read = _from(value, padded)
                if read:
                    padded.setdefault(dst.obj, set()).update(read)
                powers = [e for e in walk(value) if isinstance(e, Op) and e.op in ("exp", "exp2")]
                weighed = _from(value, weights).union(*(_from(e, padded) for e in powers))
                if weighed:
                    weights.setdefault(dst.obj, set()).update(weighed)
            case Accumulate(op="add", value=value):
                found |= dict.fromkeys(sorted(_from(value, weights)))
            case _:
                pass
    return tuple(found)


def _from(value: Expr, tiles: dict[str, set[str]]) -> set[str]:
    """Return the tensors that reach `value` through `tiles`."""
    return {tensor for e in walk(value) if isinstance(e, Elem) for tensor in tiles.get(e.obj, ())}
