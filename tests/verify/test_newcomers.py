"""Kernels as newcomers write them, each beside a textbook's specification: proved at the first try, and quickly.

Each wrong edit is refuted or unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from argus.compile import elaborate, lower, named_kernels
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.source import SourceFile
from argus.verify import verify

pytestmark = pytest.mark.nightly
FOLDER = Path(__file__).parent / "newcomers"
MOST_S = 5.0
"""The limit of a proof, in the steps that a processor does in so many seconds."""


def kernels() -> Iterator[tuple[str, str]]:
    for path in sorted(FOLDER.glob("*.py")):
        for name in named_kernels(SourceFile(path.name, path.read_text(encoding="utf-8"))):
            yield path.stem, name


def verdict(file: str, name: str, before: str = "", after: str = "") -> Verdict:
    """Return the verdict on a kernel, after an edit of its first occurrence of `before`."""
    text = (FOLDER / f"{file}.py").read_text(encoding="utf-8")
    start = text.index(f"def {name}(")
    assert before in text[start:]
    text = text[:start] + text[start:].replace(before, after, 1)
    return verify(lower(elaborate(SourceFile(f"{file}.py", text), name, Options()), "sm_80"), MOST_S).verdict


@pytest.mark.parametrize(("file", "name"), list(kernels()))
def test_proved(file: str, name: str) -> None:
    assert verdict(file, name) is Verdict.PROVED


WRONG = (
    ("norms", "layer_norm_one_pass", "- mean * mean", "- mean"),
    ("norms", "group_norm", "beta[g, c]) - mean * scale", "beta[g, c]) + mean * scale"),
    ("norms", "log_softmax_online", "total * al.exp(top - new)", "total * al.exp(new - top)"),
    ("norms", "softmax_backward", "z - p * al.sum(z)", "z - d * al.sum(z)"),
    ("norms", "layer_norm_backward", "xhat * c1 + c2", "xhat * c2 + c1"),
    ("norms", "softmax_temperature", "1.0 / temperature", "temperature"),
    ("losses", "huber_loss", "d - 0.5 * q", "d - q"),
    ("losses", "bce_with_logits", "al.exp(-al.abs(v))", "al.exp(-v)"),
    ("losses", "focal_loss", "-(pos + neg)", "pos + neg"),
    ("losses", "triplet_margin", "dist + margin > 0.0", "dist > 0.0"),
    ("losses", "adamw", "(gi - mi) * (1.0 - b1)", "(gi - mi) * b1"),
    ("losses", "scalar_order_clip", "al.requires(lo <= hi)", "al.requires(hi <= lo)"),
    ("indices", "histogram", "al.int32), mask=i < N)", "al.int32), mask=i < N - 1)"),
    ("indices", "segmented_sum", "al.load(off[s + 1])", "al.load(off[s + 1]) - 1"),
    ("indices", "mean_by_lengths", "acc / n.to", "acc / T.to"),
    ("indices", "topk_gate", "al.store(ids[t, :], p)", "al.store(ids[t, :], p + 1)"),
    ("indices", "paged_kv_copy", "s % 16, d]", "(s + 1) % 16, d]"),
    ("indices", "gated_load", "flag >= 1", "flag >= 0"),
    ("indices", "one_hot", "k == al.load", "k >= al.load"),
    ("places", "dequant_int4_packed", "v >> 4", "v >> 3"),
    ("places", "rotary_interleaved", "odd * c + even * s", "odd * c - even * s"),
    ("places", "channel_shuffle", "source = (c % G)", "source = (c // G % G)"),
    ("places", "flat_p_mod", "(c <= r)", "(c < r)"),
    ("places", "flat_transpose", "x[p // W, p % W]", "x[p % H, p // H]"),
    ("places", "conv1d_causal_depthwise", "t - (3 - r)", "t - r"),
    ("places", "max_pool_3_stride2", "2 * u + r - 1", "2 * u + r"),
    ("places", "strided_slice", "x[step * i]", "x[step + i]"),
    ("places", "xorshift_hash", "h >> 16", "h >> 15"),
    ("sums", "attention_bias_softcap", "acc * alpha[:, None]", "acc"),
    ("sums", "decode_attention_sink", "al.full((1,), 1.0, al.float32)", "al.zeros((1,), al.float32)"),
    ("sums", "cumsum_scan", "carry + al.cumsum", "al.cumsum"),
    ("sums", "linear_attention_recurrent", "state += ", "state = state * 0.5 + "),
    ("sums", "mamba_step", "old * al.exp(a * step[:, None])", "old * al.exp(a)"),
)


@pytest.mark.parametrize(("file", "name", "before", "after"), WRONG)
def test_never_proved(file: str, name: str, before: str, after: str) -> None:
    assert verdict(file, name, before, after) is not Verdict.PROVED
