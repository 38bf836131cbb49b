"""The backward pass of a mixture of experts: what experts' rows and weights pull at.

Rows are in the order of experts, as in `argus.kernels.experts`. The gradient of a row's result goes back through both
products without the token's weight, which is a factor of all that comes out: beside the activations it is the gradient
of the weight, `combine_rows` applies it to the gradients of tokens, and one operand of each `weight_gradients` has it.
So nothing of the forward pass is kept but the rows before the activation.
"""

from __future__ import annotations

import argus
import argus.language as al
from argus.kernels.experts import LIMIT, SLOPE, SQRT_HALF, swiglu
from argus.kernels.exponentials import MINUS_LOG2E, root

DENSITY = 0.3989422804014327  # of the normal distribution at 0


@argus.func
def gate_of_swiglu(gate, up):
    """Return the derivative of `silu(gate) * up` with respect to the gate."""
    return (root(gate) * root(gate)) * (1.0 + gate * (1.0 - root(gate) * root(gate))) * up


@argus.func
def up_of_swiglu(gate, up):
    """Return the derivative of `silu(gate) * up` with respect to `up`."""
    return gate * (root(gate) * root(gate))


@argus.func
def gate_of_geglu(gate, up):
    """Return the derivative of `gelu(gate) * up` with respect to the gate."""
    return (0.5 * (1.0 + al.erf(gate * SQRT_HALF)) + gate * DENSITY * al.exp2(gate * gate * (0.5 * MINUS_LOG2E))) * up


@argus.func
def up_of_geglu(gate, up):
    """Return the derivative of `gelu(gate) * up` with respect to `up`."""
    return 0.5 * gate * (1.0 + al.erf(gate * SQRT_HALF))


@argus.func
def share(gate):
    """Return the part of a gate that `clamped_swiglu` lets through."""
    return root(SLOPE * al.minimum(gate, LIMIT)) * root(SLOPE * al.minimum(gate, LIMIT))


@argus.func
def gate_of_clamped_swiglu(gate, up):
    """Return the derivative of `clamped_swiglu` with respect to the gate: 0 where that is clamped."""
    return al.where(
        gate <= LIMIT,
        share(gate)
        * (1.0 + SLOPE * al.minimum(gate, LIMIT) * (1.0 - share(gate)))
        * (al.minimum(al.maximum(up, -LIMIT), LIMIT) + 1.0),
        0.0,
    )


@argus.func
def up_of_clamped_swiglu(gate, up):
    """Return the derivative of `clamped_swiglu` with respect to `up`."""
    return al.where((-LIMIT <= up) & (up <= LIMIT), al.minimum(gate, LIMIT) * share(gate), 0.0)


@argus.kernel
def activated_rows(
    both: al.Tensor[DTYPE, "P 2 C"],
    out: al.Tensor[DTYPE, "P C"],
    ACTIVATION: al.constexpr = swiglu,
    DTYPE: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 1024,
):
    """Compute the activation of the two halves of each row."""
    P, C = out.shape
    al.spec(out, lambda p, n: ACTIVATION(both[p, 0, n], both[p, 1, n]))
    p, column = al.grid(P, al.cdiv(C, BLOCK))
    n = column * BLOCK + al.arange(BLOCK)
    gate = al.load(both[p, 0, n], mask=n < C).to(al.float32)
    up = al.load(both[p, 1, n], mask=n < C).to(al.float32)
    result = ACTIVATION(gate, up)
    al.store(out[p, n], result.to(DTYPE), mask=n < C)


@argus.kernel
def activation_gradients(
    both: al.Tensor[DTYPE, "P 2 C"],
    pulled: al.Tensor[DTYPE, "P C"],
    place: al.Tensor[al.int32, "P"],
    weights: al.Tensor[al.float32, "P"],
    of_both: al.Tensor[DTYPE, "P 2 C"],
    hidden: al.Tensor[DTYPE, "P C"],
    of_weights: al.Tensor[al.float32, "P"],
    factor: al.Tensor[al.float32, "P"],
    ACTIVATION: al.constexpr = swiglu,
    OF_GATE: al.constexpr = gate_of_swiglu,
    OF_UP: al.constexpr = up_of_swiglu,
    DTYPE: al.constexpr = al.bfloat16,
    BLOCK: al.constexpr = 1024,
):
    """Compute, for pair q in row p = place[q], where `pulled[p]` is the gradient of its activations without its weight:
    the gradient `of_weights[q]`, that of what was activated without the weight, `of_both[p]`, the activations times the
    weight, `hidden[p]`, and the weight, `factor[p]`."""
    P, C = pulled.shape
    al.requires(al.permutation(place))
    al.spec(
        of_weights,
        lambda q: al.sum(lambda n: pulled[place[q], n] * ACTIVATION(both[place[q], 0, n], both[place[q], 1, n])),
    )
    al.covers(hidden, at=lambda q, n: (place[q], n))
    al.spec(hidden, lambda q, n: weights[q] * ACTIVATION(both[place[q], 0, n], both[place[q], 1, n]))
    al.covers(of_both, at=lambda q, h, n: (place[q], h, n))
    al.spec(
        of_both,
        lambda q, h, n: al.where(
            h == 0,
            pulled[place[q], n] * OF_GATE(both[place[q], 0, n], both[place[q], 1, n]),
            pulled[place[q], n] * OF_UP(both[place[q], 0, n], both[place[q], 1, n]),
        ),
    )
    al.covers(factor, at=lambda q: (place[q],))
    al.spec(factor, lambda q: weights[q])
    q = al.grid(P)
    p, weight = al.load(place[q]), al.load(weights[q])
    total = al.zeros((BLOCK,), al.float32)
    for n0 in range(0, C, BLOCK):
        n = n0 + al.arange(BLOCK)
        gate = al.load(both[p, 0, n], mask=n < C).to(al.float32)
        up = al.load(both[p, 1, n], mask=n < C).to(al.float32)
        pull = al.load(pulled[p, n], mask=n < C).to(al.float32)
        active = ACTIVATION(gate, up)
        of_gate, of_up = OF_GATE(gate, up), OF_UP(gate, up)
        total += al.where(n < C, pull * active, 0.0)
        al.store(hidden[p, n], (weight * active).to(DTYPE), mask=n < C)
        al.store(of_both[p, 0, n], (pull * of_gate).to(DTYPE), mask=n < C)
        al.store(of_both[p, 1, n], (pull * of_up).to(DTYPE), mask=n < C)
    al.store(of_weights[q], al.sum(total))
    al.store(factor[p], weight)


@argus.kernel(num_warps=8)
def weight_gradients(
    g: al.Tensor[DTYPE, "P N"],
    x: al.Tensor[DTYPE, "P K"],
    offsets: al.Tensor[al.int32, "E1"],
    out: al.Tensor[DTYPE, "E N K"],
    DTYPE: al.constexpr = al.bfloat16,
    ROWS: al.constexpr = 128,
    COLUMNS: al.constexpr = 128,
    DEPTH: al.constexpr = 64,
    STAGES: al.constexpr = 4,
    PRODUCERS: al.constexpr = 8,
):
    """Compute `out[e, n, k]`: the sum of `g[p, n] * x[p, k]` over the rows p of expert e, 0 if it has none."""
    P, N, K, E = g.shape[0], g.shape[1], x.shape[1], out.shape[0]
    al.requires((offsets.shape[0] == E + 1) & (P < 2**30))
    al.requires(al.offsets(offsets, P))
    al.spec(
        out,
        lambda e, n, k: al.sum(lambda p: al.where((offsets[e] <= p) & (p < offsets[e + 1]), g[p, n] * x[p, k], 0.0)),
    )
    i, j, e = al.grid(al.cdiv(N, ROWS), al.cdiv(K, COLUMNS), E)
    n0, k0, first, end = i * ROWS, j * COLUMNS, al.load(offsets[e]), al.load(offsets[e + 1])
    acc = al.zeros((ROWS, COLUMNS), al.float32)
    for p1 in al.pipelined(0, end - first, DEPTH, stages=STAGES, producer_warps=PRODUCERS):
        p0 = first + p1
        p = p0 + al.arange(DEPTH)
        gt = al.stage(g[p0 : p0 + DEPTH, n0 : n0 + ROWS], mask=(p < end)[:, None], boundary_check=(1,))
        xt = al.stage(x[p0 : p0 + DEPTH, k0 : k0 + COLUMNS], mask=(p < end)[:, None], boundary_check=(1,))
        acc = al.mma(al.trans(gt), al.trans(xt), acc)
    al.store(out[e, n0 : n0 + ROWS, k0 : k0 + COLUMNS], acc.to(DTYPE), boundary_check=(0, 1))
