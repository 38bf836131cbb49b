"""Gradients of functions of tensors, such as those in `argus.kernels`.

A function that is an operator (`_softmax = Function(_work, Operator(...))`) gets its gradient below its definition:

    from argus.torch.gradient import attach

    def _save(ctx, inputs, output):     # `inputs` are the operator's arguments, in the order of its schema
        ctx.save_for_backward(output)

    def _backward(ctx, grad):           # one gradient for each result; None for a result that nothing depends on
        (y,) = ctx.saved_tensors
        return _softmax_backward((y, grad))

    attach(_softmax, _backward, _save)

`backward` and `setup_context` are those of `torch.library.register_autograd`: `backward` returns one gradient for each
argument of the operator, None for numbers, and reads `ctx.needs_input_grad[i]` to skip work. If the backward pass needs
more than arguments and results, `forward` computes it: `forward` takes the operator's arguments and returns the
results, followed by tensors that only `setup_context` sees.

    def _forward(x, weight, eps):
        return _rmsnorm_and_inverse((x, weight), (eps,))      # out, inverse: the operator returns `out` alone

    attach(_rmsnorm, _backward, _save, forward=_forward)

`forward` and `backward` call functions that are operators themselves, or PyTorch's own, so that `torch.compile` and
`torch.export` follow them. A function without a gradient raises LaunchError "no-gradient" in the backward pass.
Gradients come with any strides: `y.sum().backward()` passes one element with strides of 0. `matrix` and other helpers
of `argus.kernels.rows` copy such tensors. This module does not import PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from argus.runtime.function import Function


@dataclass(frozen=True, slots=True)
class Gradient:
    """The functions that compute a function's gradient: see the module's docstring."""

    backward: Callable[..., Any]
    setup_context: Callable[..., None] | None
    forward: Callable[..., tuple[Any, ...]] | None


def attach(
    function: Function,
    backward: Callable[..., Any],
    setup_context: Callable[..., None] | None = None,
    *,
    forward: Callable[..., tuple[Any, ...]] | None = None,
) -> None:
    """Give `function`, which must be an operator, a gradient: see the module's docstring."""
    if function.operator is None:
        raise ValueError("a function without an operator has no gradient: Function(work, Operator(schema, fake))")
    function.gradient = Gradient(backward, setup_context, forward)
