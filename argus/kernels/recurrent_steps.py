"""Recurrent cells over time, in one launch: the blocks of a cluster keep the weights on chip, and tell each other the
hidden state after each step.

A block computes PART features of ROWS sequences. `given` is the part of the gates that does not depend on the hidden
state, computed for all steps by one product. In every step, each block reads the hidden state of its cluster from the
others' shared memory (`told`), multiplies it by its weights, and stores its own features. The gates are an output too,
so that cells and hidden states are specified by them, and by themselves one step earlier: a recurrence.

D sequences of steps run side by side: the two directions of a bidirectional layer. SHIFT distributes the rows of
weights over the banks of shared memory: log2(PART * CLUSTER) - 2.
"""

from __future__ import annotations

import argus
import argus.language as al


@argus.func
def sigmoid(x):
    """Return the logistic function."""
    return 1.0 / (1.0 + al.exp(-x))


@argus.func
def collected(held, told, turn):
    """Return the hidden state after the step before, which is copied from all blocks of the cluster to `held`. Two
    loads are in flight at a time."""
    PART = told.shape[2]
    for pair in al.static_range(held.shape[1] // PART // 2):
        one = al.load(al.peer(told[turn, :, :], 2 * pair))
        other = al.load(al.peer(told[turn, :, :], 2 * pair + 1))
        al.store(held[:, 2 * pair * PART : 2 * pair * PART + PART], one.to(al.tfloat32))
        al.store(held[:, 2 * pair * PART + PART : 2 * pair * PART + 2 * PART], other.to(al.tfloat32))
    al.barrier()
    return al.load(held)


@argus.func
def multiplied(x, own):
    """Return the product of the hidden state and the weights of a gate."""
    return al.mma(x, own, al.zeros((x.shape[0], own.shape[0]), al.float32))


@argus.kernel(num_warps=8)
def lstm_steps(
    given: al.Tensor[al.float32, "D T B G"],
    weights: al.Tensor[al.float32, "D G H"],
    first: al.Tensor[al.float32, "D B H"],
    memory: al.Tensor[al.float32, "D B H"],
    gates: al.Tensor[al.float32, "D T B G"],
    cell: al.Tensor[al.float32, "D T B H"],
    hidden: al.Tensor[al.float32, "D T B H"],
    PART: al.constexpr = 64,
    CLUSTER: al.constexpr = 4,
    ROWS: al.constexpr = 16,
    SHIFT: al.constexpr = 6,
):
    """Compute the gates, cells and hidden states of an LSTM. Gates are in the order of PyTorch: input, forget, cell,
    output."""
    D, T, B, H = hidden.shape
    al.requires((H == PART * CLUSTER) & (given.shape[3] == 4 * H) & (T > 0) & (T < 2**24) & (B < 2**20))
    al.spec(
        gates,
        lambda d, t, b, g: (
            given[d, t, b, g]
            + al.sum(lambda k: weights[d, g, k] * al.where(t > 0, hidden[d, t - 1, b, k], first[d, b, k]))
        ),
    )
    al.spec(
        cell,
        lambda d, t, b, j: (
            sigmoid(gates[d, t, b, H + j]) * al.where(t > 0, cell[d, t - 1, b, j], memory[d, b, j])
            + sigmoid(gates[d, t, b, j]) * al.tanh(gates[d, t, b, 2 * H + j])
        ),
    )
    al.spec(hidden, lambda d, t, b, j: sigmoid(gates[d, t, b, 3 * H + j]) * al.tanh(cell[d, t, b, j]))
    place, d = al.grid(al.cdiv(B, ROWS) * CLUSTER, D, cluster=CLUSTER)
    b = (place // CLUSTER * ROWS + al.arange(ROWS))[:, None]
    j = (al.cluster_rank() * PART + al.arange(PART))[None, :]
    row = (al.cluster_rank() * PART + al.arange(PART))[:, None]
    k = al.arange(PART * CLUSTER)[None, :]
    inside = b < B
    own = al.shared((3, PART, PART * CLUSTER), al.tfloat32, layout=al.swizzle(3, 2, SHIFT))
    told = al.shared((2, ROWS, PART), al.float32)
    held = al.shared((ROWS, PART * CLUSTER), al.tfloat32, layout=al.swizzle(3, 2, SHIFT))
    kept = al.shared((ROWS, PART), al.float32)
    for g in al.static_range(3):
        al.store(own[g, :, :], al.load(weights[d, g * H + row, k]).to(al.tfloat32))
    last = al.load(weights[d, 3 * H + row, k]).to(al.tfloat32)
    al.store(told[0, :, :], al.load(first[d, b, j], mask=inside, other=0.0))
    al.store(kept, al.load(memory[d, b, j], mask=inside, other=0.0))
    al.barrier(scope="cluster")
    for t in range(T):
        i0 = al.load(given[d, t, b, j], mask=inside, other=0.0)
        f0 = al.load(given[d, t, b, H + j], mask=inside, other=0.0)
        c0 = al.load(given[d, t, b, 2 * H + j], mask=inside, other=0.0)
        o0 = al.load(given[d, t, b, 3 * H + j], mask=inside, other=0.0)
        x = collected(held, told, t % 2)
        i = multiplied(x, own[0, :, :]) + i0
        f = multiplied(x, own[1, :, :]) + f0
        c = multiplied(x, own[2, :, :]) + c0
        o = multiplied(x, last) + o0
        new = sigmoid(f) * al.load(kept) + sigmoid(i) * al.tanh(c)
        out = sigmoid(o) * al.tanh(new)
        al.store(kept, al.where(inside, new, 0.0))
        al.store(told[(t + 1) % 2, :, :], al.where(inside, out, 0.0))
        al.store(gates[d, t, b, j], i, mask=inside)
        al.store(gates[d, t, b, H + j], f, mask=inside)
        al.store(gates[d, t, b, 2 * H + j], c, mask=inside)
        al.store(gates[d, t, b, 3 * H + j], o, mask=inside)
        al.store(cell[d, t, b, j], new, mask=inside)
        al.store(hidden[d, t, b, j], out, mask=inside)
        al.barrier(scope="cluster")


@argus.kernel(num_warps=8)
def gru_steps(
    given: al.Tensor[al.float32, "D T B G"],
    weights: al.Tensor[al.float32, "D G H"],
    bias: al.Tensor[al.float32, "D H"],
    first: al.Tensor[al.float32, "D B H"],
    gates: al.Tensor[al.float32, "D T B G"],
    hidden: al.Tensor[al.float32, "D T B H"],
    PART: al.constexpr = 64,
    CLUSTER: al.constexpr = 4,
    ROWS: al.constexpr = 16,
    SHIFT: al.constexpr = 6,
):
    """Compute the part of a GRU's gates that depends on the hidden state, and the hidden states. Gates are in the order
    of PyTorch: reset, update, new."""
    D, T, B, H = hidden.shape
    al.requires((H == PART * CLUSTER) & (given.shape[3] == 3 * H) & (T > 0) & (T < 2**24) & (B < 2**20))
    al.spec(
        gates,
        lambda d, t, b, g: (
            al.where(g < 2 * H, given[d, t, b, g], bias[d, g - 2 * H])
            + al.sum(lambda k: weights[d, g, k] * al.where(t > 0, hidden[d, t - 1, b, k], first[d, b, k]))
        ),
    )
    al.spec(
        hidden,
        lambda d, t, b, j: (
            (1.0 - sigmoid(gates[d, t, b, H + j]))
            * al.tanh(given[d, t, b, 2 * H + j] + sigmoid(gates[d, t, b, j]) * gates[d, t, b, 2 * H + j])
            + sigmoid(gates[d, t, b, H + j]) * al.where(t > 0, hidden[d, t - 1, b, j], first[d, b, j])
        ),
    )
    place, d = al.grid(al.cdiv(B, ROWS) * CLUSTER, D, cluster=CLUSTER)
    b = (place // CLUSTER * ROWS + al.arange(ROWS))[:, None]
    j = (al.cluster_rank() * PART + al.arange(PART))[None, :]
    row = (al.cluster_rank() * PART + al.arange(PART))[:, None]
    k = al.arange(PART * CLUSTER)[None, :]
    inside = b < B
    own = al.shared((3, PART, PART * CLUSTER), al.tfloat32, layout=al.swizzle(3, 2, SHIFT))
    told = al.shared((2, ROWS, PART), al.float32)
    held = al.shared((ROWS, PART * CLUSTER), al.tfloat32, layout=al.swizzle(3, 2, SHIFT))
    kept = al.shared((ROWS, PART), al.float32)
    for g in al.static_range(3):
        al.store(own[g, :, :], al.load(weights[d, g * H + row, k]).to(al.tfloat32))
    al.store(told[0, :, :], al.load(first[d, b, j], mask=inside, other=0.0))
    al.store(kept, al.load(first[d, b, j], mask=inside, other=0.0))
    al.barrier(scope="cluster")
    for t in range(T):
        r0 = al.load(given[d, t, b, j], mask=inside, other=0.0)
        z0 = al.load(given[d, t, b, H + j], mask=inside, other=0.0)
        n0 = al.load(given[d, t, b, 2 * H + j], mask=inside, other=0.0)
        x = collected(held, told, t % 2)
        r = multiplied(x, own[0, :, :]) + r0
        z = multiplied(x, own[1, :, :]) + z0
        n = multiplied(x, own[2, :, :]) + al.load(bias[d, j])
        update = sigmoid(z)
        new = al.tanh(n0 + sigmoid(r) * n)
        out = (1.0 - update) * new + update * al.load(kept)
        al.store(kept, al.where(inside, out, 0.0))
        al.store(told[(t + 1) % 2, :, :], al.where(inside, out, 0.0))
        al.store(gates[d, t, b, j], r, mask=inside)
        al.store(gates[d, t, b, H + j], z, mask=inside)
        al.store(gates[d, t, b, 2 * H + j], n, mask=inside)
        al.store(hidden[d, t, b, j], out, mask=inside)
        al.barrier(scope="cluster")
