"""What policies make can be printed, read back, changed, and proved again: every kernel that ships, on every target."""

from __future__ import annotations

from pathlib import Path

import pytest

import argus
from argus import compile
from argus.diagnostic import ArgusError, SourceError, Verdict
from argus.frontend import Options
from argus.ir.target import TARGETS
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.types import float32
from argus.source import SourceFile

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
SMALL = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "STAGES": 2}
"""Tiles of products that all targets have room for."""


def source(file: str) -> SourceFile:
    return SourceFile(file, (ROOT / file).read_text(encoding="utf-8"))


def kernels() -> list[tuple[str, str]]:
    """The file and name of every kernel that ships, and of every example."""
    folders = (ROOT / "examples", Path(argus.__file__).parent / "kernels")
    files = [str(path.relative_to(path.parents[1] if f is folders[0] else path.parents[2]))
             for f in folders for path in sorted(f.glob("*.py"))]  # fmt: skip
    return [(file, name) for file in files for name in compile.named_kernels(source(file))]


def explicit(
    file: str, name: str, target: str, warps: int | None = None, **constants: object
) -> compile.ExplicitKernel:
    read = source(file)
    declared = {parameter for parameter, _ in compile.declared(read, name)}
    chosen = {key: value for key, value in {**SMALL, **constants}.items() if key in declared}
    return compile.lower(compile.elaborate(read, name, Options(target, warps, chosen)), target)


def reads_back(kernel: compile.ExplicitKernel) -> str:
    """The text of a kernel, which is read as the same."""
    text = print_kernel(kernel)
    assert parse_kernel(text) == kernel
    assert print_kernel(compile.read(SourceFile("kernel.ir", text))) == text
    return text


NARROW = [t for t in TARGETS.values() if t.shared_bytes < 128 * 1024]

ELSEWHERE = {
    ("gemm_explicit", "gfx942"): "unknown-instruction",
    ("layernorm_held_rows", "gfx942"): "unknown-instruction",
    ("rmsnorm_held_rows", "gfx942"): "unknown-instruction",
    ("softmax_held_rows", "gfx942"): "unknown-instruction",
    ("add_layernorm_held_rows", "gfx942"): "unknown-instruction",
    ("reduce_odd_rows", "gfx942"): "unknown-instruction",
    ("transpose_to_odd_rows", "gfx942"): "unknown-instruction",
    ("attention_forward", "gfx942"): "shared-memory",
    ("attention_added", "gfx942"): "shared-memory",
    ("attention_decode_rows", "gfx942"): "shared-memory",
    ("chunk_updates", "gfx942"): "shared-memory",
    **{(name, "cpu"): "shared-memory" for name in ("lstm_steps", "gru_steps")},
    **{("attention_backward_blocks", target): "shared-memory" for target in ("sm_89", "gfx942")},
    **{
        (name, target): "shared-memory" if target == "sm_89" else "no-matrix-instruction"
        for name in ("product_of_blocks", "expert_blocks")
        for target in ("cpu", "sm_80", "sm_89", "gfx942")
    },
    **{("attention_eight_bits", target): "no-matrix-instruction" for target in ("cpu", "sm_80", "gfx942")},
    **{("gated_block_rows", t.name): "no-matrix-instruction" for t in TARGETS.values() if t.vendor != "amd"},
    **{
        (name, t.name): "unknown-instruction"
        for name in ("gemm_waves", "gemm_turns")
        for t in TARGETS.values()
        if t.vendor != "amd"
    },
    **{
        (name, t.name): "no-cluster"
        for name in ("cluster_softmax", "lstm_steps", "gru_steps")
        for t in TARGETS.values()
        if not t.clusters and t.vendor != "cpu"
    },
    **{
        (f"attention_backward_{part}", t.name): "shared-memory"
        for part in ("keys", "queries")
        for t in NARROW
        if t.vendor != "amd"
    },
}
"""Kernels that some targets lack the instructions or, with the tiles above, the room for, and what they are told."""


@pytest.mark.product
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("file, name", kernels())
def test_every_kernel_reads_back(file: str, name: str, target: str) -> None:
    if (name, target) not in ELSEWHERE:
        reads_back(explicit(file, name, target))


@pytest.mark.parametrize(("name", "target"), ELSEWHERE)
def test_what_a_target_lacks_is_said(name: str, target: str) -> None:
    file = next(file for file, found in kernels() if found == name)
    with pytest.raises(ArgusError) as caught:
        explicit(file, name, target)
    assert ELSEWHERE[name, target] in {d.code for d in caught.value.diagnostics}


GEMM, ATTENTION = ("argus/kernels/gemm.py", "gemm"), ("argus/kernels/attention.py", "attention_forward")
WIDE = {"BLOCK_M": 128, "BLOCK_N": 128, "PRODUCERS": 4}
POLICIES: dict[str, tuple[tuple[str, str], str, int | None, dict[str, object], str]] = {
    "groups of asynchronous copies": (("examples/gemm.py", "gemm"), "sm_80", None, {}, "wait_group"),
    "counted loads": (("examples/gemm.py", "gemm"), "gfx942", None, {"STAGES": 3}, "s_waitcnt"),
    "persistent, cooperative": (GEMM, "sm_90a", 8, WIDE, "tma.store"),
    "clusters": (GEMM, "sm_90a", 8, WIDE | {"CLUSTER": 2}, "tma.load.multicast"),
    "clusters of two by two": (GEMM, "sm_90a", 8, WIDE | {"CLUSTER": 4, "ACROSS": 2}, "among 2 by 2 among 2 by 1"),
    "parts of the depth": (GEMM, "sm_90a", 8, WIDE | {"C": "Z M N", "OUT": float32, "DEPTH": 192}, "192"),
    "ping-pong": (("examples/gemm_pingpong.py", "gemm_pingpong"), "sm_90a", 4, {}, "programs turn 1 of 2"),
    "attention": (ATTENTION, "sm_90a", 8, {"BLOCK_M": 128, "BLOCK_N": 128}, "wgmma"),
    "causal attention": (ATTENTION, "sm_90a", 8, {"BLOCK_M": 128, "BLOCK_N": 128, "CAUSAL": True}, "programs"),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_reads_back(policy: str) -> None:
    (file, name), target, warps, constants, shown = POLICIES[policy]
    assert shown in reads_back(explicit(file, name, target, warps, **constants))


PROVED_AGAIN = [("examples/gemm_waves.py", "gfx942"), ("examples/rmsnorm.py", "sm_80"), ("examples/gemm.py", "sm_80")]


@pytest.mark.parametrize("file, target", PROVED_AGAIN)
def test_proved_again(file: str, target: str) -> None:
    text = print_kernel(explicit(file, Path(file).stem, target))
    assert compile.verify(compile.read(SourceFile("kernel.ir", text)), 120.0).verdict is Verdict.PROVED


def test_changed_and_refuted() -> None:
    """The finding points at a line of the text that was changed."""
    text = print_kernel(explicit("examples/gemm.py", "gemm", "sm_80"))
    wait = next(line for line in text.splitlines() if line.strip().startswith("wait_group"))
    assert wait.strip() == "wait_group 0"
    changed = SourceFile("kernel.ir", text.replace(wait, wait.replace("0", "1"), 1))
    report = compile.verify(compile.read(changed), 120.0)
    assert report.verdict is Verdict.REFUTED
    places = [d.span for d in report.diagnostics if d.verdict is Verdict.REFUTED]
    assert places and all(span.file is changed and "copy" in changed.line(span.line) for span in places)


NOT_A_KERNEL = {
    "another word": ("barrier\n", "barier\n"),
    "an unknown type": ("bfloat16", "bfloat17"),
    "an unknown operator": ("bfloat16(acc[c0, c1])", "halve(acc[c0, c1])"),
    "a layout that is none": ("Sw<", "Sw<9,9,"),
    "a brace too many": ("body {", "body {{"),
}


@pytest.mark.parametrize("name", NOT_A_KERNEL)
def test_what_is_no_kernel_is_said(name: str) -> None:
    old, new = NOT_A_KERNEL[name]
    text = print_kernel(explicit("examples/gemm.py", "gemm", "sm_80"))
    assert old in text
    with pytest.raises(SourceError) as caught:
        compile.read(SourceFile("kernel.ir", text.replace(old, new, 1)))
    assert {d.code for d in caught.value.diagnostics} == {"ir-syntax"}
