"""Attention that the backend hands to the library's kernels, and masks that it recognises by their elements."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from argus.graph.backend import Backend, Survey  # noqa: E402
from argus.graph.calls import Form, _many_heads, call_library, form_of  # noqa: E402
from argus.graph.constant import computed  # noqa: E402
from tests.graph.compiled import compiled, left, taken  # noqa: E402


def distance(queries: int, keys: int) -> Any:
    return torch.arange(queries)[:, None] - torch.arange(keys)


@pytest.mark.parametrize(
    ("mask", "form"),
    [
        (torch.ones(5, 7, dtype=torch.bool), Form(False)),
        (torch.ones(1, 1, 5, 1, dtype=torch.bool).expand(2, 3, 5, 7), Form(False)),
        (torch.zeros(1, 7), Form(False)),
        (distance(6, 6) >= 0, Form(True)),
        ((distance(6, 6) >= 0).expand(2, 3, 6, 6), Form(True)),
        (torch.zeros(6, 6).masked_fill(distance(6, 6) < 0, -float("inf")), Form(True)),
        (torch.zeros(6, 6).masked_fill(distance(6, 6) < 0, torch.finfo(torch.float32).min), Form(True)),
        ((distance(6, 6) >= 0) & (distance(6, 6) < 3), Form(True, 3)),
        (distance(6, 6) >= -1, None),
        ((distance(6, 6) >= 0) & (distance(6, 6) != 2), None),
        (torch.stack([distance(6, 6) >= 0, distance(6, 6) >= 1])[:, None], None),
        (distance(6, 8) >= 0, None),
        (torch.full((6, 6), 0.5), None),
        (torch.zeros(6, 6, dtype=torch.bool), None),
        (torch.zeros(6, 6, dtype=torch.int64), None),
    ],
)
def test_a_mask_has_the_form_of_its_elements(mask: Any, form: Form | None) -> None:
    queries, keys = (n if n > 1 else m for n, m in zip(mask.shape[-2:], (5, 7), strict=True))
    assert form_of(mask, queries, keys) == form


def traced(model: Any, *inputs: Any) -> Any:
    """Return the graph that Dynamo traces."""
    found: list[Any] = []
    torch._dynamo.reset()
    torch.compile(model, backend=lambda gm, _: found.append(gm) or gm.forward, dynamic=False)(*inputs)
    return found[0]


def causal(q: Any) -> Any:
    i = torch.arange(q.shape[2])
    return (i[:, None] >= i[None]) & torch.ones((), dtype=torch.bool)


def written(q: Any) -> Any:
    mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
    mask[0, 1] = True
    return mask


@pytest.mark.parametrize(
    ("mask", "known"),
    [
        (causal, True),
        (written, False),
        (lambda q: causal(q) & (q[0, 0, 0, 0] > 0), False),
        (lambda q: causal(q) & (torch.rand(()) > 2), False),
    ],
)
def test_only_what_depends_on_numbers_alone_is_computed_before_the_graph_runs(mask: Any, known: bool) -> None:
    q = torch.randn(1, 2, 8, 64).bfloat16()
    gm = traced(lambda q: F.scaled_dot_product_attention(q, q, q, attn_mask=mask(q)), q)
    (call,) = (n for n in gm.graph.nodes if n.target is F.scaled_dot_product_attention)
    found = computed(gm.graph, call.kwargs["attn_mask"])
    assert (found is not None) == known
    assert found is None or torch.equal(found, torch.ones(8, 8, dtype=torch.bool).tril())


@pytest.mark.parametrize(
    ("model", "shape", "replaced"),
    [
        (lambda q: F.scaled_dot_product_attention(q, q, q), (1, 2, 8, 64), True),
        (lambda q: F.scaled_dot_product_attention(q, q, q), (1, 2, 8, 96), True),
        (lambda q: F.scaled_dot_product_attention(q, q[:, :1], q[:, :1], enable_gqa=True), (1, 2, 8, 64), True),
        (lambda q: F.scaled_dot_product_attention(q, q, q), (1, 2, 8, 32), False),
        (lambda q: F.scaled_dot_product_attention(q, q, q), (2, 8, 64), False),
        (lambda q: F.scaled_dot_product_attention(q, q, q, scale=-1.0), (1, 2, 8, 64), False),
        (lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.1), (1, 2, 8, 64), False),
        (lambda q: F.scaled_dot_product_attention(q, q[:, :, :4], q[:, :, :4], is_causal=True), (1, 2, 8, 64), False),
        (lambda q: F.scaled_dot_product_attention(q.float(), q.float(), q.float()), (1, 2, 8, 64), True),
        (lambda q: F.scaled_dot_product_attention(*[q.float()] * 3, dropout_p=0.1), (1, 2, 8, 64), False),
    ],
)
def test_attention_that_the_library_lacks_stays(model: Any, shape: tuple[int, ...], replaced: bool) -> None:
    gm = traced(model, torch.randn(shape).bfloat16())
    call_library(gm)
    assert all(n.target is not F.scaled_dot_product_attention for n in gm.graph.nodes) == replaced


def test_a_causal_mask_becomes_causal_attention_with_its_gradient() -> None:
    def model(q: Any, k: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, k, attn_mask=causal(q))

    call, backend = compiled(model, dynamic=False)
    found: list[list[Any]] = []
    for run in (model, call):
        chance = torch.Generator().manual_seed(1)
        given = [torch.randn(1, 12, 2, 64, generator=chance).bfloat16().transpose(1, 2) for _ in range(2)]
        leaves = [x.requires_grad_() for x in given]
        result = run(*leaves)
        result.float().square().sum().backward()
        found.append([result.detach(), *(x.grad for x in leaves)])
        assert result.stride() == leaves[0].stride()  # the heads of a row lie together, as in PyTorch's attention
    for own, right in zip(*found, strict=True):
        torch.testing.assert_close(own, right, rtol=3e-2, atol=6e-2)
    report = backend.report(call)
    assert {"attention", "attention_backward"} <= set(taken(report)) and not left(report)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("ways", [{"need_weights": False}, {}, {"need_weights": False, "masked": True}])
def test_attention_of_several_heads_is_that_of_pytorch(ways: dict[str, Any], alone: bool) -> None:
    """With a mask, or if weights of attention are wanted, PyTorch's function is called."""
    torch.manual_seed(0)
    x, y = torch.randn(5, 3, 16), torch.randn(5, 3, 16)
    inner = torch.nn.MultiheadAttention(16, 2)
    mask = torch.ones(5, 5, dtype=torch.bool).tril() if ways.get("masked") else None
    arguments = (
        x, *((x, x) if alone else (y, y)), 16, 2, inner.in_proj_weight, inner.in_proj_bias, None, None, False, 0.0,
        inner.out_proj.weight, inner.out_proj.bias, True, None, ways.get("need_weights", True), mask,
    )  # fmt: skip
    found, wanted = _many_heads(*arguments), F.multi_head_attention_forward(*arguments)
    torch.testing.assert_close(found[0], wanted[0])
    assert (found[1] is None) == (wanted[1] is None)


def test_attention_of_several_heads_has_operators_with_kernels() -> None:
    torch._dynamo.reset()
    backend, model = Backend(survey=Survey("sm_90a", prove=False)), torch.nn.MultiheadAttention(16, 2)
    torch.compile(model, backend=backend, dynamic=False)(*[torch.randn(5, 3, 16)] * 3, need_weights=False)
    assert not left(backend.report(model))
