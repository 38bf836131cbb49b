"""Whole models compared with eager and torch.compile: published widths, few layers, random weights.

    python -m benchmarks models [--only NAME] [--survey generate|prove] [--small]

Models are those of `transformers` where it has them, and plain PyTorch elsewhere. Each runs for inference and for one
training step: forward, mean square of the results, gradients of all parameters. Results are compared with the model in
float64.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import nn

from benchmarks.measure import Row, batch_by_host, in_turns, means, needs_gpu, through
from benchmarks.table import Results

WORSE = 1.25
"""Results are correct if their error is at most this many times the error of eager."""

Tensors = dict[str, torch.Tensor]
Made = tuple[nn.Module, Tensors]
"""A model, and the arguments of a call to it."""


def llama(small: bool) -> Made:
    """Two layers of Llama-3-8B, one sequence of 2048 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = (64, 160, 4, 2, 16, 300) if small else (4096, 14336, 32, 8, 2048, 128256)
    width, inner, heads, kv_heads, tokens, words = sizes
    config = LlamaConfig(
        hidden_size=width, intermediate_size=inner, num_hidden_layers=2, num_attention_heads=heads,
        num_key_value_heads=kv_heads, vocab_size=words, use_cache=False, rope_theta=500000.0,
    )  # fmt: skip
    return LlamaForCausalLM(config), _words(1, tokens, words)


def qwen_moe(small: bool) -> Made:
    """Two layers of Qwen3-30B-A3B: 128 experts, eight for each token."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    sizes = (64, 96, 4, 2, 8, 2, 16, 300, 16) if small else (2048, 768, 32, 4, 128, 8, 1024, 151936, 128)
    width, inner, heads, kv_heads, experts, taken, tokens, words, head = sizes
    config = Qwen3MoeConfig(
        hidden_size=width, moe_intermediate_size=inner, intermediate_size=3 * width, num_hidden_layers=2,
        num_attention_heads=heads, num_key_value_heads=kv_heads, num_experts=experts, num_experts_per_tok=taken,
        vocab_size=words, head_dim=head, use_cache=False, norm_topk_prob=True,
    )  # fmt: skip
    return Qwen3MoeForCausalLM(config), _words(1, tokens, words)


def bert(small: bool) -> Made:
    """Four layers of BERT-large, 16 sequences of 512 tokens."""
    from transformers import BertConfig, BertModel

    width, heads, batch, tokens, words = (64, 4, 2, 16, 300) if small else (1024, 16, 16, 512, 30522)
    config = BertConfig(
        hidden_size=width, num_hidden_layers=4, num_attention_heads=heads, intermediate_size=4 * width,
        vocab_size=words, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertModel(config), _words(batch, tokens, words)


def whisper(small: bool) -> Made:
    """Two layers each of the encoder and decoder of Whisper-large, two pieces of 30 seconds."""
    from transformers import WhisperConfig, WhisperModel

    width, heads, frames, tokens, words = (64, 4, 40, 8, 300) if small else (1280, 20, 3000, 128, 51866)
    config = WhisperConfig(
        d_model=width, encoder_layers=2, decoder_layers=2, encoder_attention_heads=heads, vocab_size=words,
        decoder_attention_heads=heads, encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width, num_mel_bins=80,
        max_source_positions=frames // 2, use_cache=False, pad_token_id=1, bos_token_id=1, eos_token_id=1,
        decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    words_in = _words(2, tokens, words)["input_ids"]
    return WhisperModel(config), {"input_features": torch.randn(2, 80, frames), "decoder_input_ids": words_in}


def vit(small: bool) -> Made:
    """Four layers of ViT-large, 64 images."""
    from transformers import ViTConfig, ViTModel

    width, heads, batch, side = (64, 4, 2, 32) if small else (1024, 16, 64, 224)
    config = ViTConfig(
        hidden_size=width, num_hidden_layers=4, num_attention_heads=heads, intermediate_size=4 * width,
        image_size=side, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return ViTModel(config), {"pixel_values": torch.randn(batch, 3, side, side)}


def convnext(small: bool) -> Made:
    """ConvNeXt-base with one block in each stage, 32 images."""
    from transformers import ConvNextConfig, ConvNextModel

    widths, batch, side = ([16, 32, 64, 128], 2, 64) if small else ([128, 256, 512, 1024], 32, 224)
    return ConvNextModel(ConvNextConfig(hidden_sizes=widths, depths=[1, 1, 1, 1])), {
        "pixel_values": torch.randn(batch, 3, side, side)
    }


def resnet(small: bool) -> Made:
    """ResNet-50 with one block in each stage, 64 images."""
    from transformers import ResNetConfig, ResNetModel

    stem, widths, batch, side = (16, [32, 64], 2, 32) if small else (64, [256, 512, 1024, 2048], 64, 224)
    config = ResNetConfig(embedding_size=stem, hidden_sizes=widths, depths=[1] * len(widths))
    return ResNetModel(config), {"pixel_values": torch.randn(batch, 3, side, side)}


def mamba(small: bool) -> Made:
    """Two layers of Mamba-790m, a sequence of 512 tokens."""
    from transformers import MambaConfig, MambaModel

    width, tokens, words = (32, 8, 300) if small else (1536, 512, 50280)
    config = MambaConfig(hidden_size=width, num_hidden_layers=2, vocab_size=words, use_cache=False)
    return MambaModel(config), _words(1, tokens, words)


def unet(small: bool) -> Made:
    """A U-Net of three levels with group norms and skip connections, eight images."""
    width, batch, side = (8, 1, 16) if small else (64, 8, 128)
    return UNet(width), {"x": torch.randn(batch, 3, side, side)}


class UNet(nn.Module):
    """A U-Net with `width` channels on the first level and twice as many on each further level."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = _block(3, width)
        self.down = nn.ModuleList([_block(width << i, width << i + 1) for i in range(2)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(width << i + 1, width << i, 2, 2) for i in (1, 0)])
        self.after = nn.ModuleList([_block(width << i + 1, width << i) for i in (1, 0)])
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return images of the same size."""
        levels = [self.first(x)]
        for block in self.down:
            levels.append(block(nn.functional.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for grow, block in zip(self.up, self.after, strict=True):
            x = block(torch.cat([grow(x), levels.pop()], 1))
        return self.last(x)  # type: ignore[no-any-return]


def _block(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
    )  # fmt: skip


def _words(batch: int, tokens: int, words: int) -> Tensors:
    return {"input_ids": torch.randint(words, (batch, tokens))}


MODELS: Mapping[str, Callable[[bool], Made]] = {
    make.__name__: make for make in (llama, qwen_moe, bert, whisper, vit, convnext, resnet, mamba, unet)
}


@dataclass(frozen=True)
class Case:
    """A model to run. `training`: one training step instead of inference; `small`: widths for a test."""

    model: str
    training: bool
    small: bool

    def __str__(self) -> str:
        return f"{self.model}, {'training' if self.training else 'inference'}"

    def made(self) -> Made:
        """Make the model, in evaluation mode so that nothing is random, and its arguments."""
        torch.manual_seed(0)
        model, arguments = MODELS[self.model](self.small)
        return model.eval(), arguments


def run(only: Sequence[str], modes: Sequence[bool], small: bool, survey: str, batches: int) -> Results:
    """Make the table of all models, or of those in `only`. `modes`: False for inference, True for training."""
    cases = [Case(name, training, small) for training in modes for name in only or MODELS]
    if survey:
        rows, problems = through(cases, lambda case: ([surveyed(case, survey == "prove")], []), _told)
        return Results("models, not run", rows, ["shares are of the estimated time on an H200", *problems])
    needs_gpu("models")
    rows, problems = through(cases, lambda case: ([measured(case, batches)], []), _told)
    notes = ["bfloat16; errors are root mean squares against float64, of results or of all gradients"]
    return Results("models", rows, notes + problems, means(rows, "over eager") | means(rows, "over compile"))


def surveyed(case: Case, proves: bool) -> Row:
    """Return the row of what the backend would run of a model, found with tensors without contents."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from argus.graph.backend import Backend, Survey

    backend = Backend(survey=Survey("sm_90a", proves))
    model, arguments = case.made()
    model = model.bfloat16()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        call = torch.compile(model, backend=backend, dynamic=False)
        contents = {name: mode.from_tensor(t) for name, t in _cast(arguments, torch.bfloat16).items()}
        _step(call, model, contents, case.training)
    report = backend.report(call)
    return {"model": case.model, "training": str(case.training)} | _of_report(report)


def measured(case: Case, batches: int) -> Row:
    """Measure a model and return its row: microseconds, the error over eager's, and the seconds of first calls."""
    import argus

    with torch.device("cuda"):
        model, arguments = case.made()
    model, arguments = model.bfloat16(), _cast(arguments, torch.bfloat16)
    exact = _exact(model, arguments, case.training)
    models = {name: copy.deepcopy(model) for name in ("eager", "compile", "argus")}
    calls: dict[str, Any] = dict(models)
    calls["compile"] = torch.compile(models["compile"], dynamic=False)
    calls["argus"] = torch.compile(models["argus"], backend="argus", dynamic=False)
    errors, seconds = {}, {}
    for name, call in calls.items():
        start = perf_counter()
        found = _results(call, models[name], arguments, case.training)
        seconds[name] = perf_counter() - start
        errors[name] = _error(found, exact)
    runs = {name: _timed(call, models[name], arguments, case.training) for name, call in calls.items()}
    times = in_turns(runs, batches)
    right = errors["argus"] <= WORSE * errors["eager"]
    return (
        {"model": case.model, "training": str(case.training), "correct": "yes" if right else "no"}
        | {f"{name}_us": time * 1e6 for name, time in times.items()}
        | {"over eager": times["eager"] / times["argus"], "over compile": times["compile"] / times["argus"]}
        | {"error over eager's": errors["argus"] / max(errors["eager"], 1e-30)}
        | {f"{name} compiled, s": seconds[name] for name in ("compile", "argus")}
        | _of_report(argus.compile_report(calls["argus"]))
    )


def _of_report(report: Any) -> Row:
    left: dict[str, float] = {}
    for row in report.rows:
        if row["by"] != "argus":
            left[str(row["reason"])] = left.get(str(row["reason"]), 0.0) + row["share"]
    worst = sorted(left, key=lambda reason: -left[reason])[:4]
    own = [row for row in report.rows if row["by"] == "argus"]
    proved = sum(row["share"] for row in own if row["verdict"] == "proved")
    taken = sum(row["share"] for row in own)
    why = "; ".join(f"{left[reason]:.1%} {reason[:90]}" for reason in worst)
    return {"kernels": len(own), "taken": float(taken), "proved": float(proved), "left": why}


def _step(call: Any, model: nn.Module, arguments: Tensors, training: bool) -> list[torch.Tensor]:
    """Return the float tensors of a call's result or, in training, the gradients of all parameters after one step."""
    if not training:
        with torch.no_grad():
            return _tensors(call(**arguments))
    model.zero_grad(set_to_none=True)
    results = _tensors(call(**arguments))
    torch.stack([result.float().square().mean() for result in results]).sum().backward()  # type: ignore[no-untyped-call]
    return [p.grad for p in model.parameters() if p.grad is not None]


def _exact(model: nn.Module, arguments: Tensors, training: bool) -> list[torch.Tensor]:
    """Return the results in float64 of the weights and inputs as rounded: rounding them is nobody's error.

    Models with operators that PyTorch lacks in float64 are computed in float32."""
    for dtype in (torch.float64, torch.float32):
        wide = copy.deepcopy(model).to(dtype)
        try:
            return _results(wide, wide, _cast(arguments, dtype), training)
        except RuntimeError:
            if dtype is torch.float32:
                raise
    raise AssertionError("a dtype is tried last")


def _results(call: Any, model: nn.Module, arguments: Tensors, training: bool) -> list[torch.Tensor]:
    return [t.detach().to(torch.float64).clone() for t in _step(call, model, arguments, training)]


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result] if result.is_floating_point() else []
    values = result.values() if isinstance(result, Mapping) else result if isinstance(result, (tuple, list)) else ()
    return [t for value in values for t in _tensors(value)]


def _timed(call: Any, model: nn.Module, arguments: Tensors, training: bool) -> Callable[[], float]:
    def once() -> None:  # results are not kept: gradients of several steps may not fit
        _step(call, model, arguments, training)

    time = batch_by_host(lambda _: torch.cuda.synchronize())
    return lambda: time(once, [()])


def _error(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """Return the root of the mean over tensors of the squared error, each relative to the exact tensor."""
    if [t.shape for t in found] != [t.shape for t in exact]:
        return float("inf")
    squares = [
        float((own - right).square().mean() / right.square().mean().clamp_min(1e-30))
        for own, right in zip(found, exact, strict=True)
    ]
    return float((sum(squares) / len(squares)) ** 0.5)


def _cast(arguments: Tensors, dtype: torch.dtype) -> Tensors:
    return {name: t.to(dtype) if t.is_floating_point() else t for name, t in arguments.items()}


def _told(row: Row) -> str:
    cells = (f"{value:.3g}" if isinstance(value, float) else value for value in row.values())
    return ", ".join(f"{key} {cell}" for key, cell in zip(row, cells, strict=True))
