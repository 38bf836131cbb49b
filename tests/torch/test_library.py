"""Functions of `argus.kernels` as PyTorch operators: PyTorch's own checks, graphs, fake tensors, gradients, vmap."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from argus import kernels  # noqa: E402
from argus.diagnostic import LaunchError  # noqa: E402
from argus.kernels.gemm import relu  # noqa: E402
from argus.kernels.matmul_packed import pack_weights  # noqa: E402
from argus.torch import register_library  # noqa: E402
from tests.kernels.common import random  # noqa: E402

Make = Callable[[], tuple[Any, ...]]

DECAY_AND_STATE = -torch.ones(2, 2), torch.ones(2, 2), torch.ones(2, 2, 4, 4)
DECAYS = torch.arange(40.0).view(1, 20, 2) / 100
INDEX = torch.tensor([0, 3, -100, 19])
PAGES, LENS = torch.tensor([[3, 1], [2, 0]], dtype=torch.int32), torch.tensor([17, 32], dtype=torch.int32)
OFFSETS = torch.tensor([0, 4, 9], dtype=torch.int32)
EIGHT = torch.float8_e4m3fn


def layer(tokens: int) -> tuple[torch.Tensor, ...]:
    """Tokens, logits of four experts, and the experts' weights."""
    shapes = ((tokens, 8), (tokens, 4), (4, 32, 8), (4, 8, 16))
    return tuple(random(*shape, dtype="bfloat16", seed=i) / 4 for i, shape in enumerate(shapes))


def packed(bits: int) -> tuple[torch.Tensor, ...]:
    """Tokens, packed weights, scales and zeros."""
    weights, scales = INDEX.abs().view(2, 2).repeat(10, 75) % 16, random(20, 2, dtype="float16", seed=1) / 100
    return random(3, 150, dtype="float16"), pack_weights(weights, bits), scales, torch.full_like(scales, 3)


def in_blocks(x: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Float8 operands of a product, and their scales."""
    values, scale_x = kernels.quantize_blocks(x)
    return values, b.to(torch.float8_e4m3fn), scale_x, scale


def appended(k: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Caches of their own, after tokens were appended."""
    caches = keys.clone(), keys.clone()
    kernels.cache_append(k, k, *caches, torch.arange(4, dtype=torch.int32, device=k.device))
    return caches


CASES: dict[str, tuple[Callable[..., Any], Make, Make]] = {
    "add_layernorm": (
        kernels.add_layernorm,
        lambda: (random(4, 20), random(4, 20, seed=1), random(20), random(20)),
        lambda: (random(4, 20), random(3, 20), random(20), random(20)),
    ),
    "attention": (
        lambda q, k: kernels.attention(q, k, k, causal=True, scale=0.3, return_lse=True),
        lambda: (random(1, 2, 6, 64, dtype="float16"), random(1, 1, 9, 64, dtype="float16")),
        lambda: (random(1, 2, 6, 64, dtype="float16"), random(1, 1, 9, 32, dtype="float16")),
    ),
    "attention_backward": (
        lambda q, k, lse: kernels.attention_backward(q, q, k, k, q, lse, lse),
        lambda: (random(1, 2, 6, 64, dtype="float16"), random(1, 1, 9, 64, dtype="float16"), random(1, 2, 6)),
        lambda: (random(1, 2, 6, 64, dtype="float16"), random(1, 1, 9, 64, dtype="float16"), random(1, 2, 5)),
    ),
    "attention_decode": (
        kernels.attention_decode,
        lambda: (random(2, 4, 1, 64, dtype="float16"), *(random(5, 16, 2, 64, dtype="float16"),) * 2, PAGES, LENS),
        lambda: (random(2, 4, 1, 64, dtype="float16"), *(random(5, 16, 2, 64, dtype="float16"),) * 2, PAGES, LENS[:1]),
    ),
    "attention_decode_latent": (
        lambda *given: kernels.attention_decode_latent(*given, scale=0.1),
        lambda: (random(2, 4, 1, 576, dtype="float16"), random(5, 16, 576, dtype="float16"), PAGES, LENS),
        lambda: (random(2, 4, 1, 512, dtype="float16"), random(5, 16, 576, dtype="float16"), PAGES, LENS),
    ),
    "attention_float8": (
        lambda q, k, one: kernels.attention_float8(q, k, k, query_scale=one, key_scale=one, value_scale=one),
        lambda: (random(1, 2, 6, 64).to(EIGHT), random(1, 1, 9, 64).to(EIGHT), torch.ones(1)),
        lambda: (random(1, 2, 6, 64).to(EIGHT), random(1, 1, 9, 32).to(EIGHT), torch.ones(1)),
    ),
    "attention_varlen": (
        lambda q, k: kernels.attention_varlen(q, k, k, OFFSETS, OFFSETS, causal=True, scale=0.3, return_lse=True),
        lambda: (random(9, 4, 64, dtype="float16"), random(9, 2, 64, dtype="float16")),
        lambda: (random(9, 4, 64, dtype="float16"), random(9, 3, 64, dtype="float16")),
    ),
    "attention_varlen_backward": (
        lambda q, k, lse: kernels.attention_varlen_backward(q, q, k, k, OFFSETS, OFFSETS, q, lse, lse, causal=True),
        lambda: (random(9, 4, 64, dtype="float16"), random(9, 2, 64, dtype="float16"), random(4, 9)),
        lambda: (random(9, 4, 64, dtype="float16"), random(9, 2, 64, dtype="float16"), random(9, 4)),
    ),
    "attention_with": (
        lambda q, k: kernels.attention_with(q, k, k, causal=True, window=4, softcap=2.0, return_lse=True),
        lambda: (random(1, 2, 6, 80, dtype="float16"), random(1, 1, 9, 80, dtype="float16")),
        lambda: (random(1, 2, 6, 80, dtype="float16"), random(1, 1, 9, 64, dtype="float16")),
    ),
    "cache_append": (
        appended,
        lambda: (random(4, 2, 16, dtype="float16"), random(3, 2, 2, 16, dtype="float16")),
        lambda: (random(4, 2, 16, dtype="float16"), random(3, 2, 2, 32, dtype="float16")),
    ),
    "causal_conv1d": (
        lambda x, weight: kernels.causal_conv1d(x, weight, activation="silu"),
        lambda: (random(2, 5, 20), random(20, 4)),
        lambda: (random(2, 5, 20), random(19, 4)),
    ),
    "cross_entropy": (kernels.cross_entropy, lambda: (random(4, 20), INDEX), lambda: (random(4, 20), INDEX[:3])),
    "cross_entropy_backward": (
        kernels.cross_entropy_backward,
        lambda: (random(4), random(4, 20), INDEX, random(4, seed=1)),
        lambda: (random(4), random(4, 20), INDEX[:3], random(4, seed=1)),
    ),
    "layernorm": (
        kernels.layernorm,
        lambda: (random(4, 20), random(20), random(20)),
        lambda: (random(4, 20), random(20), random(19)),
    ),
    "layernorm_backward": (
        kernels.layernorm_backward,
        lambda: (random(4, 20), random(4, 20, seed=1), random(20)),
        lambda: (random(4, 20), random(4, 20, seed=1), random(19)),
    ),
    "log_softmax_backward": (
        kernels.log_softmax_backward,
        lambda: (random(4, 20), random(4, 20, seed=1)),
        lambda: (random(4, 20), random(3, 20)),
    ),
    "gated_delta_step": (
        kernels.gated_delta_step,
        lambda: (*(random(2, 1, 4, dtype="float16"),) * 2, random(2, 2, 4, dtype="float16"), *DECAY_AND_STATE),
        lambda: (*(random(2, 1, 4, dtype="float16"),) * 2, random(2, 3, 4, dtype="float16"), *DECAY_AND_STATE),
    ),
    "gated_delta_rule": (
        kernels.gated_delta_rule,
        lambda: (*(random(1, 20, 1, 8, dtype="float16"),) * 2, random(1, 20, 2, 8, dtype="float16"), -DECAYS, DECAYS),
        lambda: (*(random(1, 20, 1, 8, dtype="float16"),) * 2, random(1, 19, 2, 8, dtype="float16"), -DECAYS, DECAYS),
    ),
    "linear_attention": (
        kernels.linear_attention,
        lambda: (*(random(1, 20, 1, 8, dtype="float16"),) * 2, random(1, 20, 2, 8, dtype="float16"), -DECAYS),
        lambda: (*(random(1, 20, 1, 8, dtype="float16"),) * 2, random(1, 19, 2, 8, dtype="float16"), -DECAYS),
    ),
    "matmul": (
        lambda a, b, bias: kernels.matmul(a, b, bias=bias, epilogue="relu"),
        lambda: (random(4, 20), random(20, 8), random(8)),
        lambda: (random(4, 20), random(20, 8), random(9)),
    ),
    "matmul_blocks": (
        lambda x, b, scale: kernels.matmul_blocks(*in_blocks(x, b, scale)),
        lambda: (random(3, 150, dtype="float16"), random(20, 150), random(1, 2)),
        lambda: (random(3, 150, dtype="float16"), random(20, 140), random(1, 2)),
    ),
    "matmul_int4": (kernels.matmul_int4, lambda: packed(4), lambda: (INDEX,) * 4),
    "matmul_int8": (kernels.matmul_int8, lambda: packed(8), lambda: packed(4)),
    "mixture": (
        kernels.mixture,
        lambda: (layer(3)[0], random(3, 2), INDEX[:2].abs().int().expand(3, 2), *layer(3)[2:]),
        lambda: (layer(3)[0], random(3, 2), INDEX[:2].abs().int().expand(2, 2), *layer(3)[2:]),
    ),
    "mixture_blocks": (
        lambda x, weights, chosen, w1, w2, *scales: kernels.mixture_blocks(
            x, weights, chosen, *(w.to(torch.float8_e4m3fn) for w in (w1, w2)), *scales
        ),
        lambda: (*CASES["mixture"][1](), random(4).abs(), random(4, 1, 1).abs()),
        lambda: (*CASES["mixture"][1](), random(3).abs(), random(4, 1, 1).abs()),
    ),
    "moe": (
        lambda *given: kernels.moe(*given, topk=2),
        lambda: layer(3),
        lambda: (INDEX,) * 4,
    ),
    "quantize": (
        lambda x: tuple(part.float() for part in kernels.quantize(x)),
        lambda: (random(4, 20),),
        lambda: (INDEX,),
    ),
    "quantize_blocks": (
        lambda x: tuple(part.float() for part in kernels.quantize_blocks(x)),
        lambda: (random(4, 200, dtype="float16"),),
        lambda: (INDEX,),
    ),
    "reduce": (lambda x: kernels.reduce(x, "mean", 0), lambda: (random(4, 20),), lambda: (random(),)),
    "rmsnorm": (kernels.rmsnorm, lambda: (random(4, 20), random(20)), lambda: (random(4, 20), random(4))),
    "rmsnorm_backward": (
        kernels.rmsnorm_backward,
        lambda: (random(4, 20), random(4, 20, seed=1), random(20)),
        lambda: (random(4, 20), random(4, 20, seed=1), random(19)),
    ),
    "rmsnorm_quantize": (
        lambda x, weight: tuple(part.float() for part in kernels.rmsnorm_quantize(x, weight)),
        lambda: (random(4, 200, dtype="float16"), random(200, dtype="float16")),
        lambda: (random(4, 200, dtype="float16"), random(4, dtype="float16")),
    ),
    "rotary": (
        kernels.rotary,
        lambda: (random(2, 5, 3, 20), random(5, 8), random(5, 8)),
        lambda: (random(2, 5, 3, 20), random(4, 8), random(5, 8)),
    ),
    "router": (
        lambda x: kernels.router(x, 2),
        lambda: (random(4, 20, dtype="float16"),),
        lambda: (INDEX,),
    ),
    "silu_mul": (
        kernels.silu_mul,
        lambda: (random(4, 20), random(4, 20, seed=1)),
        lambda: (random(4, 20), random(4, 20, dtype="float16")),
    ),
    "softmax": (kernels.softmax, lambda: (random(4, 20),), lambda: (random(),)),
    "softmax_backward": (
        kernels.softmax_backward,
        lambda: (random(4, 20), random(4, 20, seed=1)),
        lambda: (random(4, 20), random(3, 20)),
    ),
    "topk": (
        lambda x: kernels.topk(x, 2),
        lambda: (random(4, 20, dtype="float16"),),
        lambda: (INDEX,),
    ),
    "transpose": (kernels.transpose, lambda: (random(4, 20),), lambda: (random(4),)),
}
"""A call of each function, arguments for it, and arguments that it refuses."""


@pytest.fixture(autouse=True)
def compiler(require_tool: Any, granted: None) -> None:
    require_tool("g++", "clang++", "c++")
    torch._dynamo.reset()


def test_every_function_has_a_case() -> None:
    assert set(CASES) == set(kernels.__all__)


def traced(name: str, dynamic: bool) -> None:
    """Trace the call whole."""
    call, make, _ = CASES[name]
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    torch.testing.assert_close(compiled(*make()), call(*make()))


def exported(name: str) -> None:
    """Export a module that makes the call."""
    call, make, _ = CASES[name]

    class Module(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            return call(*args)

    program = torch.export.export(Module(), make())
    operator = {"log_softmax_backward": "softmax_backward", "moe": "mixture"}.get(name, name)
    assert any(f"argus.{operator}" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(*make()), call(*make()))


def described(name: str) -> None:
    """Call the function with tensors without memory: they are checked, and its results are described."""
    call, make, wrong = CASES[name]
    got = call(*(x.to("meta") for x in make()))
    for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, call(*make()))), strict=True):
        assert one.device.type == "meta"
        assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())
    for device in ("cpu", "meta"):
        with pytest.raises(LaunchError):
            call(*(x.to(device) for x in wrong()))


WAYS: dict[str, Callable[[str], None]] = {
    "traced": partial(traced, dynamic=False),
    "traced with any sizes": partial(traced, dynamic=True),
    "exported": exported,
    "described": described,
}


@pytest.mark.product
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", WAYS)
def test_functions_are_operators(way: str, name: str) -> None:
    WAYS[way](name)


OPERATORS: dict[str, Make] = {
    "add_layernorm": lambda: (*CASES["add_layernorm"][1](), 1e-5),
    "attention": lambda: (*(random(1, 2, 6, 64, dtype="float16"),) * 3, None, False),
    "attention_backward": lambda: (
        *(random(1, 2, 6, 64, dtype="float16"),) * 5,
        *(random(1, 2, 6),) * 2,
        None,
        True,
        4,
        False,
    ),
    "attention_decode": lambda: (*CASES["attention_decode"][1](), None, None, None, True),
    "attention_decode_latent": lambda: (*CASES["attention_decode_latent"][1](), 0.1, False),
    "attention_varlen": lambda: (*(random(9, 2, 64, dtype="float16"),) * 3, OFFSETS, OFFSETS, None, True),
    "attention_varlen_backward": lambda: (
        *(random(9, 2, 64, dtype="float16"),) * 4,
        *(OFFSETS, OFFSETS, random(9, 2, 64, dtype="float16")),
        *(random(2, 9),) * 2,
        None,
        True,
    ),
    "attention_with": lambda: (
        *(random(1, 2, 6, 64, dtype="float16"),) * 3,
        random(2),
        None,
        random(6, 6),
        *(None, True, 0, 0.0, True),
    ),
    "cache_append": lambda: (
        *(random(4, 2, 16, dtype="float16"),) * 2,
        *(random(3, 2, 2, 16, dtype="float16", seed=seed) for seed in (1, 2)),
        torch.tensor([3, 0, 5, 1], dtype=torch.int32),
        *(random(4, 8),) * 2,
        *(None, None),
    ),
    "causal_conv1d": lambda: (random(2, 5, 20), random(20, 4), random(20), "silu"),
    "cross_entropy": lambda: (*CASES["cross_entropy"][1](), -100),
    "layernorm": lambda: (*CASES["layernorm"][1](), 1e-5),
    "gated_delta_step": CASES["gated_delta_step"][1],
    "gated_delta_rule": CASES["gated_delta_rule"][1],
    "linear_attention": CASES["linear_attention"][1],
    "matmul": lambda: (random(4, 20), random(20, 8), None, None, None, None, None, torch.float32, True, True),
    "matmul_out": lambda: (random(4, 20), random(20, 8), *(None,) * 6, True, False, random(4, 8)),
    "matmul_int4": lambda: (*packed(4), 128),
    "matmul_int8": lambda: (*packed(8), 128),
    "mixture": lambda: (*(x.requires_grad_(x.is_floating_point()) for x in CASES["mixture"][1]()), None, "geglu"),
    "quantize": lambda: (random(4, 20),),
    "quantize_blocks": lambda: (random(4, 20, dtype="float16"),),
    "reduce": lambda: (random(4, 20), "sum", 1, True),
    "rmsnorm": lambda: (*CASES["rmsnorm"][1](),),
    "rmsnorm_quantize": lambda: (*CASES["rmsnorm_quantize"][1](), 1e-6),
    "rotary": lambda: (random(2, 5, 3, 20).requires_grad_(), random(5, 8), random(5, 8), True),
    "router": lambda: (random(4, 20).requires_grad_(), None, 2.5, 3, True, False, 1, 1),
    "silu_mul": CASES["silu_mul"][1],
    "silu_mul_gradient": lambda: tuple(random(4, 20, seed=i) for i in range(3)),
    "softmax": CASES["softmax"][1],
    "transpose": CASES["transpose"][1],
}


@pytest.mark.parametrize("name", OPERATORS)
def test_pytorchs_own_checks_pass(name: str) -> None:
    register_library()
    operator = getattr(torch.ops.argus, name).default
    torch.library.opcheck(operator, OPERATORS[name]())
    operator(*OPERATORS[name]())


REFERENCES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Make]] = {
    "a product": (kernels.matmul, torch.matmul, lambda: (random(5, 20), random(20, 8))),
    "products": (kernels.matmul, torch.matmul, lambda: (random(3, 5, 20), random(3, 20, 8))),
    "one matrix for all": (kernels.matmul, torch.matmul, lambda: (random(3, 5, 20), random(20, 8))),
    "one left matrix for all": (kernels.matmul, torch.matmul, lambda: (random(5, 20), random(3, 20, 8))),
    "a batch of one": (kernels.matmul, torch.matmul, lambda: (random(1, 5, 20), random(3, 20, 8))),
    "a bias and a residual": (
        lambda a, b, c, d: kernels.matmul(a, b, bias=c, residual=d),
        lambda a, b, c, d: a @ b + c + d,
        lambda: (random(5, 20), random(20, 8), random(8), random(5, 8)),
    ),
    "a sum": (lambda x: kernels.reduce(x, "sum"), torch.sum, lambda: (random(4, 20),)),
    "a mean": (
        lambda x: kernels.reduce(x, "mean", -2),
        lambda x: x.mean(-2),
        lambda: (random(3, 4, 20),),
    ),
    "a mean that keeps its dimension": (
        lambda x: kernels.reduce(x, "mean", 1, keepdim=True),
        lambda x: x.mean(1, keepdim=True),
        lambda: (random(4, 20),),
    ),
    "a gate": (
        kernels.silu_mul,
        lambda x, y: torch.nn.functional.silu(x) * y,
        lambda: (random(4, 20), random(4, 20, seed=1)),
    ),
    "a transpose": (kernels.transpose, torch.t, lambda: (random(4, 20),)),
    "a transpose that is a view": (kernels.transpose, torch.t, lambda: (random(1, 20),)),
}


@pytest.mark.product
@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_are_those_of_pytorch(name: str, compiled: bool) -> None:
    call, reference, make = REFERENCES[name]
    if compiled:
        call = torch.compile(call, backend="aot_eager", fullgraph=True)
    for weight in (None, 0.5):
        found = []
        for function in (call, reference):
            inputs = [x.requires_grad_() for x in make()]
            result = function(*inputs)
            loss = result.sum() if weight is None else (result * result * weight).sum()  # gradients with stride 0
            found.append(torch.autograd.grad(loss, inputs))
        torch.testing.assert_close(*found, rtol=5e-3, atol=5e-3)


def test_a_gradient_after_calls_that_recorded_none() -> None:
    """A call that is known from inference is another one where gradients are recorded."""
    x, weight = random(4, 20), torch.nn.Parameter(random(20))
    for _ in range(3):
        with torch.no_grad():
            assert not kernels.rmsnorm(x, weight).requires_grad
    for _ in range(2):
        (gradient,) = torch.autograd.grad(kernels.rmsnorm(x, weight).sum(), [weight])
        assert gradient.shape == (20,)
    with torch.no_grad():
        assert not kernels.rmsnorm(x, weight).requires_grad


def test_a_gradient_of_each_argument_alone() -> None:
    a, b = random(5, 20), random(20, 8)
    for first, second in ((a.clone().requires_grad_(), b), (a, b.clone().requires_grad_())):
        kernels.matmul(first, second).sum().backward()
        assert (first.grad is None) == (first is a) and (second.grad is None) == (second is b)


def test_what_has_no_gradient_says_so_where_one_is_needed() -> None:
    x = random(4, 20).requires_grad_()
    calls: list[Callable[[], Any]] = [
        lambda: kernels.quantize(x)[1],
        lambda: kernels.reduce(x, "max", 1),
        lambda: kernels.matmul(x, random(20, 8), epilogue="gelu"),
        lambda: kernels.matmul(x, random(20, 8), scale_a=torch.ones(1)),
    ]
    for call in calls:
        result = call()
        assert result.requires_grad
        with pytest.raises(LaunchError) as caught:
            result.sum().backward()
        assert caught.value.diagnostics[0].code == "no-gradient"
        with torch.no_grad():
            assert not call().requires_grad
    with pytest.raises(LaunchError, match="writes to a tensor that needs a gradient"):
        kernels.matmul(x, random(20, 8), out=random(4, 8).requires_grad_())


@pytest.mark.parametrize("name", ["rmsnorm", "softmax", "silu_mul", "layernorm", "quantize"])
def test_rows_of_a_batch_are_one_call(name: str) -> None:
    call, make, _ = CASES[name]
    x, *rest = make()
    batch = torch.stack([x, 2 * x, 3 * x], dim=1)
    got = torch.vmap(lambda row: call(row, *rest), in_dims=1)(batch)
    wanted = torch.vmap(lambda row: call(row, *rest))(batch.transpose(0, 1).contiguous())
    torch.testing.assert_close(got, wanted)
    alone = call(2 * x, *rest)
    second = tuple(part[1] for part in got) if isinstance(got, tuple) else got[1]
    torch.testing.assert_close(second, alone)


def test_other_functions_are_called_for_each_element() -> None:
    a, b = random(3, 5, 20), random(20, 8)
    torch.testing.assert_close(torch.vmap(lambda x: kernels.matmul(x, b))(a), kernels.matmul(a, b))
    weights = random(3, 20)
    got = torch.vmap(kernels.rmsnorm)(a, weights)
    torch.testing.assert_close(got, torch.stack([kernels.rmsnorm(*pair) for pair in zip(a, weights, strict=True)]))


def test_an_epilogue_of_ones_own_is_traced() -> None:
    a, b = random(5, 20), random(20, 8)
    compiled = torch.compile(lambda a, b: kernels.matmul(a, b, epilogue=relu), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(a, b), kernels.matmul(a, b, epilogue="relu"))


COLD = """
import sys
import argus, argus.kernels
assert "torch" not in sys.modules
import torch
model = torch.compile(lambda x: argus.kernels.softmax(x) * 2, backend="aot_eager", fullgraph=True)
x = torch.rand(4, 20)
torch.testing.assert_close(model(x), 2 * x.softmax(-1))
"""


LOADED = """
import sys
import torch
import argus.torch
argus.torch.register_library()
program = torch.export.load(sys.argv[1])
x = torch.rand(4, 20)
torch.testing.assert_close(program.module()(x), x.softmax(-1))
"""


def test_another_process_loads_an_exported_program(tmp_path: Any) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return kernels.softmax(x)

    path = str(tmp_path / "program.pt2")
    torch.export.save(torch.export.export(Module(), (random(4, 20),)), path)
    done = subprocess.run([sys.executable, "-c", LOADED, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_first_call_may_be_a_traced_one(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGUS_CACHE_DIR", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
