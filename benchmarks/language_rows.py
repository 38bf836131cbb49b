"""Gradients of norms and losses, top-k and softmax beside quack and PyTorch: the cases of `benchmarks.language`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.language import OURS, Case, Side, distance, normal

QUACK, TORCH, TRITON = "quack", "PyTorch", "Triton"
_EPS = 1e-6


def cases() -> tuple[Case, ...]:
    """The rows of kernels that go through rows."""
    return (
        *(_topk(*shape) for shape in ((65536, 128, 8), (65536, 256, 8), (4096, 128, 8))),
        *(_router(*shape) for shape in ((65536, 128, 8), (65536, 256, 8), (4096, 128, 8))),
        *(_rmsnorm(*shape) for shape in ((32768, 4096), (16384, 8192), (65536, 1024))),
        *(_layernorm(*shape) for shape in ((32768, 4096), (65536, 1024))),
        *(_losses(*shape) for shape in ((8192, 32000), (4096, 128256))),
        *(_softmax_backward(*shape) for shape in ((16384, 4096), (4096, 32768))),
        *(_softmax(*shape) for shape in ((4096, 65536), (8192, 16384), (2048, 131072))),
    )


def _case(area: str, shape: tuple[int, ...], operands: Callable[[], Any], sides: Mapping[str, Callable[[], Side]],
          exact: Callable[..., Any]) -> Case:  # fmt: skip
    def error(found: Any, *given: Any) -> float:
        return distance(found, exact(*given))

    return Case(area, " x ".join(map(str, shape)), operands, sides, error)


# ---------------------------------------------------------------------------- choices


def _topk(rows: int, columns: int, k: int) -> Case:
    def ours() -> Side:
        from argus.kernels import topk

        return Side(partial(topk, k=k), finished=lambda found: found[0])

    def quack() -> Side:
        from quack.topk import topk_fwd

        return Side(partial(topk_fwd, k=k), finished=lambda found: found[0])

    def vendor() -> Side:
        return Side(lambda x: x.topk(k), finished=lambda found: found[0])

    sides = {OURS: ours, QUACK: quack, TORCH: vendor}
    return _case("top-k", (rows, columns, k), lambda: (normal(rows, columns),), sides, lambda x: x.double().topk(k)[0])


def _router(rows: int, columns: int, k: int) -> Case:
    def ours() -> Side:
        from argus.kernels import router

        return Side(partial(router, k=k), finished=lambda found: found[0])

    def quack() -> Side:
        from quack.topk import topk_fwd

        return Side(partial(topk_fwd, k=k, softmax=True), finished=lambda found: found[0])

    def vendor() -> Side:
        return Side(lambda x: x.float().topk(k)[0].softmax(-1))

    def exact(x: Any) -> Any:
        return x.double().topk(k)[0].softmax(-1)

    sides = {OURS: ours, QUACK: quack, TORCH: vendor}
    return _case("router", (rows, columns, k), lambda: (normal(rows, columns),), sides, exact)


# ---------------------------------------------------------------------------- norms


def _gradients(function: Callable[..., Any], dy: Any, *leaves: Any) -> Any:
    """The gradients in float64, of leaves in float64."""
    import torch

    with torch.enable_grad():
        own = [x.double().detach().requires_grad_() for x in leaves]
        return torch.autograd.grad(function(*own), own, dy.double())


def _rmsnorm(rows: int, columns: int) -> Case:
    import torch

    def operands() -> Sequence[Any]:
        return normal(rows, columns), normal(rows, columns), normal(columns)

    def ours() -> Side:
        from argus.kernels import rmsnorm_backward

        return Side(partial(rmsnorm_backward, eps=_EPS))

    def quack() -> Side:
        from quack.rmsnorm import rmsnorm_bwd

        def prepared(dy: Any, x: Any, w: Any) -> Any:
            return x, w, dy, (x.float().square().mean(-1) + _EPS).rsqrt()

        return Side(lambda *given: rmsnorm_bwd(*given)[:2], prepared)

    def exact(dy: Any, x: Any, w: Any) -> Any:
        return _gradients(lambda x, w: torch.nn.functional.rms_norm(x, (columns,), w, _EPS), dy, x, w)

    return _case("rmsnorm backward", (rows, columns), operands, {OURS: ours, QUACK: quack}, exact)


def _layernorm(rows: int, columns: int) -> Case:
    import torch

    def operands() -> Sequence[Any]:
        return normal(rows, columns), normal(rows, columns), normal(columns)

    def ours() -> Side:
        from argus.kernels import layernorm_backward

        return Side(partial(layernorm_backward, eps=_EPS))

    def quack() -> Side:
        from quack.rmsnorm import layernorm_bwd

        def prepared(dy: Any, x: Any, w: Any) -> Any:
            wide = x.float()
            mean = wide.mean(-1)
            return x, w, dy, (wide.var(-1, correction=0) + _EPS).rsqrt(), mean

        return Side(layernorm_bwd, prepared)

    def exact(dy: Any, x: Any, w: Any) -> Any:
        return _gradients(
            lambda x, w, b: torch.nn.functional.layer_norm(x, (columns,), w, b, _EPS), dy, x, w, torch.zeros_like(w)
        )

    return _case("layernorm backward", (rows, columns), operands, {OURS: ours, QUACK: quack}, exact)


# ---------------------------------------------------------------------------- losses and softmax


def _losses(rows: int, columns: int) -> Case:
    import torch

    def operands() -> Sequence[Any]:
        logits, target = normal(rows, columns), torch.randint(0, columns, (rows,), device="cuda")
        return torch.rand(rows, device="cuda"), logits, target, torch.logsumexp(logits.float(), -1)

    def ours() -> Side:
        from argus.kernels import cross_entropy_backward

        return Side(cross_entropy_backward)

    def quack() -> Side:
        from quack.cross_entropy import cross_entropy_bwd

        return Side(cross_entropy_bwd, lambda dloss, logits, target, level: (logits, target, dloss, level))

    def error(found: Any, dloss: Any, logits: Any, target: Any, _: Any) -> float:
        own = slice(0, 64)
        exact = _gradients(
            lambda x: torch.nn.functional.cross_entropy(x, target[own], reduction="none"), dloss[own], logits[own]
        )
        return distance(found[own], exact[0])

    name = f"{rows} x {columns}"
    return Case("cross-entropy backward", name, operands, {OURS: ours, QUACK: quack}, error)


def _softmax_backward(rows: int, columns: int) -> Case:
    def operands() -> Sequence[Any]:
        return normal(rows, columns), normal(rows, columns).softmax(-1)

    def ours() -> Side:
        from argus.kernels import softmax_backward

        return Side(softmax_backward)

    def quack() -> Side:
        from quack.softmax import softmax_bwd

        return Side(softmax_bwd)

    def exact(dy: Any, y: Any) -> Any:
        wide = y.double()
        return wide * (dy.double() - (dy.double() * wide).sum(-1, keepdim=True))

    return _case("softmax backward", (rows, columns), operands, {OURS: ours, QUACK: quack}, exact)


def _softmax(rows: int, columns: int) -> Case:
    def ours() -> Side:
        from argus.kernels import softmax

        return Side(softmax)

    def quack() -> Side:
        from quack.softmax import softmax_fwd

        return Side(softmax_fwd)

    sides = {OURS: ours, QUACK: quack, TORCH: lambda: Side(lambda x: x.softmax(-1))}
    return _case("softmax", (rows, columns), lambda: (normal(rows, columns),), sides, lambda x: x.double().softmax(-1))
