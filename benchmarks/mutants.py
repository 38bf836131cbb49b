"""Mutants of everything that ships: what verifier and simulator say of a sample of each kernel's (docs/mutate.md).

Every mutant's result is a line of a file in a folder, written when it is known. A run that is interrupted, or ends
after `seconds`, is taken up where it stopped by the next one; results of other sources than these are made anew.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from argus.compile import elaborate, lower
from argus.frontend import Options
from argus.ir.nodes import Kernel
from argus.ir.types import bfloat16, float8_e4m3fn, float32
from argus.kernels.gemm import relu
from argus.mutate import Judge, Kind, Outcome, drawn, mutations, result_json
from argus.source import SourceFile
from benchmarks.machine import sources
from benchmarks.table import Cell, Results

Line = Mapping[str, Any]
"""A result as it is kept: of `argus.mutate.result_json`, with the kernel, the mutant's number, and what it was of."""

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Of a process's products: one, where a process has one core."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel with constants other than its defaults, if any; `how` says which. `alignment`: bytes, of all tensors and
    their rows. `shares`: processes that judge its mutants."""

    file: str
    kernel: str
    how: str = ""
    target: str = "sm_90a"
    constants: Mapping[str, object] = field(default_factory=dict)
    num_warps: int | None = None
    alignment: int = 16
    shares: int = 1

    @property
    def title(self) -> str:
        """The kernel's name, which constants, and which file if that is an example."""
        example = " (example)" if self.file.startswith("examples/") else ""
        return f"{self.kernel}{f', {self.how}' if self.how else ''}{example}"

    def explicit(self) -> Kernel:
        """The kernel that is mutated."""
        source = SourceFile(self.file, Path(self.file).read_text(encoding="utf-8"))
        options = Options(
            target=self.target, num_warps=self.num_warps, constexprs=self.constants, default_alignment=self.alignment
        )
        return lower(elaborate(source, self.kernel, options), self.target)


_gemm = partial(Subject, "argus/kernels/gemm.py", "gemm", shares=3)
_attention = partial(Subject, "argus/kernels/attention.py", "attention_forward", shares=5)
_TALL = {"D": 64, "BLOCK_M": 192, "BLOCK_N": 128, "HEADS": 66, "SCHEDULE": "cooperative"}
_LOADED = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "PRODUCERS": 0}

_RECURRENT = {"PART": 32, "CLUSTER": 2, "SHIFT": 4}

SUBJECTS: tuple[Subject, ...] = (
    Subject("examples/stream_k_atomic.py", "stream_k_atomic", shares=6),
    _gemm("clusters of two by two", constants={"CLUSTER": 4, "ACROSS": 2}, shares=10),
    _attention(),
    _attention("causal", constants={"CAUSAL": True}),
    _attention("causal, in turns", constants={"CAUSAL": True, "SCHEDULE": "turns"}),
    _attention("heads of 64", constants=_TALL, num_warps=12),
    _attention("heads of 64, causal", constants={**_TALL, "CAUSAL": True}, num_warps=12),
    _attention("parts of the keys", constants={"BLOCK_M": 64, "PARTS": 2, "SPAN": 1024, "OUT": float32}, num_warps=4),
    _attention("sm_80", "sm_80", {"BLOCK_M": 64, "BLOCK_N": 64}, 4),
    _gemm(),
    _gemm("clusters of two", constants={"CLUSTER": 2}, shares=4),
    _gemm("in turns", constants={"SCHEDULE": "pingpong", "BLOCK_N": 192}, num_warps=4, shares=4),
    _gemm(
        "bias, ReLU, residual",
        constants={
            "BIAS": "N", "BIAS_TYPE": bfloat16, "RESIDUAL": "M N", "RESIDUAL_TYPE": bfloat16, "EPILOGUE": relu,
        },
    ),
    _gemm(
        "parts of the depth",
        constants={
            "DEPTH": 2048, "C": "Z M N", "OUT": float32, "BLOCK_M": 64, "BLOCK_N": 128, "STAGES": 8,
        },
        num_warps=4,
    ),
    _gemm(
        "scaled 8-bit operands",
        constants={
            "IN": float8_e4m3fn, "MULTIPLY": float8_e4m3fn, "BLOCK_K": 128,
            "SCALED": True, "SCALE_A": "M", "SCALE_B": "N",
        },
    ),
    _gemm("b by columns", constants={"B": "K N"}),
    _gemm(
        "rows in halves",
        constants={"A": "Z M K", "A_STRIDES": "za lda 1", "C": "Z M N", "SHIFT": 8, "BLOCK_N": 192},
    ),
    _gemm("192 rows", constants={"BLOCK_M": 192, "BLOCK_N": 144, "STAGES": 4}, num_warps=12),
    _gemm("sm_80", "sm_80", _LOADED, 4),
    _gemm("gfx942", "gfx942", _LOADED, 4),
    Subject("argus/kernels/attention.py", "attention_combine"),
    Subject("argus/kernels/attention_backward.py", "attention_backward_rows"),
    Subject("argus/kernels/attention_backward_fused.py", "attention_backward_blocks", num_warps=8, shares=3),
    Subject("argus/kernels/attention_backward_fused.py", "attention_backward_scaled"),
    Subject("argus/kernels/attention_backward.py", "attention_backward_keys", shares=3),
    Subject("argus/kernels/attention_backward.py", "attention_backward_queries", shares=3),
    Subject("argus/kernels/attention_decode.py", "attention_decode_pages", shares=2),
    Subject("argus/kernels/attention_decode.py", "attention_decode_scaled", shares=2),
    Subject("argus/kernels/attention_float8.py", "attention_eight_bits", shares=2),
    Subject("argus/kernels/attention_latent.py", "attention_decode_rows", shares=2),
    Subject("argus/kernels/attention_varlen.py", "attention_packed", shares=3),
    Subject("argus/kernels/attention_varlen.py", "cut_sequences", alignment=4),
    Subject("argus/kernels/attention_varlen_backward.py", "attention_packed_keys", shares=3),
    Subject("argus/kernels/attention_varlen_backward.py", "attention_packed_queries", shares=3),
    Subject("argus/kernels/blockwise.py", "quantized_blocks"),
    Subject("argus/kernels/blockwise.py", "product_of_blocks", shares=3),
    Subject("argus/kernels/cache_slots.py", "next_slots", alignment=4),
    Subject("argus/kernels/attention_with.py", "attention_added", constants={"CAUSAL": True}, num_warps=8, shares=3),
    Subject("argus/kernels/cache_append.py", "append_tokens"),
    Subject("argus/kernels/cache_append.py", "append_scaled"),
    Subject("argus/kernels/chunk_scan.py", "levels"),
    Subject("argus/kernels/chunk_scan.py", "chunk_states", shares=2),
    Subject("argus/kernels/chunk_scan.py", "states_before", shares=2),
    Subject("argus/kernels/chunk_scan.py", "chunk_outputs", shares=3),
    Subject("argus/kernels/delta_scan.py", "chunk_inverses"),
    Subject("argus/kernels/delta_scan.py", "chunk_terms", num_warps=8),
    Subject("argus/kernels/delta_scan.py", "chunk_updates", shares=3),
    Subject("argus/kernels/delta_scan.py", "delta_step"),
    Subject("argus/kernels/conv1d.py", "convolved"),
    Subject("argus/kernels/dispatch.py", "count_pairs"),
    Subject("argus/kernels/dispatch.py", "add_counts", alignment=4),
    Subject("argus/kernels/dispatch.py", "place_pairs"),
    Subject("argus/kernels/dispatch.py", "tokens_of_places"),
    Subject("argus/kernels/dispatch.py", "cut_into_tiles"),
    Subject("argus/kernels/experts.py", "expert_rows", shares=3),
    Subject("argus/kernels/experts.py", "gather_rows"),
    Subject("argus/kernels/experts.py", "combine_rows"),
    Subject("argus/kernels/gated_blocks.py", "gated_block_rows", target="gfx942", shares=3),
    Subject("argus/kernels/gemm.py", "combine"),
    Subject("argus/kernels/pack.py", "pack_rows"),
    Subject("argus/kernels/pack.py", "pack_columns"),
    Subject("argus/kernels/packed.py", "product_of_packed", shares=3),
    Subject("argus/kernels/packed.py", "unpacked_weights"),
    Subject("argus/kernels/rotary.py", "rotated"),
    Subject("argus/kernels/softmax.py", "softmax_rows"),
    Subject("argus/kernels/recurrent_steps.py", "lstm_steps", constants=_RECURRENT, num_warps=4, shares=3),
    Subject("argus/kernels/recurrent_steps.py", "gru_steps", constants=_RECURRENT, num_warps=4, shares=3),
    Subject("argus/kernels/softmax.py", "softmax_held_rows", shares=2),
    Subject("argus/kernels/softmax.py", "softmax_long_rows"),
    Subject("argus/kernels/rmsnorm.py", "rmsnorm_rows"),
    Subject("argus/kernels/rmsnorm.py", "rmsnorm_held_rows", shares=2),
    Subject("argus/kernels/rmsnorm.py", "rmsnorm_long_rows"),
    Subject("argus/kernels/layernorm.py", "layernorm_rows"),
    Subject("argus/kernels/layernorm.py", "layernorm_held_rows", shares=2),
    Subject("argus/kernels/layernorm.py", "layernorm_held_rows", "clusters of two", constants={"CLUSTER": 2}, shares=2),
    Subject("argus/kernels/layernorm.py", "layernorm_long_rows", shares=2),
    Subject("argus/kernels/layernorm.py", "add_layernorm_rows"),
    Subject("argus/kernels/layernorm.py", "add_layernorm_held_rows", shares=2),
    Subject(
        "argus/kernels/layernorm.py", "add_layernorm_held_rows", "clusters of two", constants={"CLUSTER": 2}, shares=2
    ),
    Subject("argus/kernels/cross_entropy.py", "cross_entropy_rows"),
    Subject("argus/kernels/cross_entropy.py", "cross_entropy_long_rows", shares=2),
    Subject("argus/kernels/quantize.py", "quantize_rows"),
    Subject("argus/kernels/quantize.py", "quantize_long_rows"),
    Subject("argus/kernels/reduce.py", "reduce_last"),
    Subject("argus/kernels/reduce.py", "reduce_inner"),
    Subject("argus/kernels/reduce.py", "join_parts"),
    Subject("argus/kernels/reduce.py", "reduce_odd_rows", alignment=2),
    Subject("argus/kernels/silu_mul.py", "silu_mul_tiles"),
    Subject("argus/kernels/silu_mul.py", "silu_mul_gradient_tiles"),
    Subject("argus/kernels/cross_entropy_backward.py", "cross_entropy_backward_tiles"),
    Subject("argus/kernels/layernorm_backward.py", "layernorm_backward_rows", shares=2),
    Subject("argus/kernels/layernorm_backward.py", "layernorm_backward_long_rows", shares=2),
    Subject("argus/kernels/layernorm_backward.py", "layernorm_backward_columns"),
    Subject("argus/kernels/rmsnorm_backward.py", "rmsnorm_backward_rows", shares=2),
    Subject("argus/kernels/rmsnorm_backward.py", "rmsnorm_backward_long_rows"),
    Subject("argus/kernels/rmsnorm_backward.py", "rmsnorm_backward_columns"),
    Subject("argus/kernels/shares.py", "add_shares"),
    Subject("argus/kernels/softmax_backward.py", "softmax_backward_rows"),
    Subject("argus/kernels/softmax_backward.py", "softmax_backward_held_rows", shares=2),
    Subject("argus/kernels/softmax_backward.py", "softmax_backward_long_rows"),
    Subject("argus/kernels/topk.py", "topk_rows", shares=2),
    Subject("argus/kernels/topk.py", "router_rows", shares=2),
    Subject("argus/kernels/expert_blocks.py", "gathered_blocks"),
    Subject("argus/kernels/expert_blocks.py", "activated_blocks"),
    Subject("argus/kernels/expert_blocks.py", "expert_blocks", shares=3),
    Subject("argus/kernels/experts_backward.py", "activated_rows"),
    Subject("argus/kernels/experts_backward.py", "activation_gradients"),
    Subject("argus/kernels/experts_backward.py", "weight_gradients", shares=2),
    Subject("argus/kernels/grouped_router.py", "router_scores"),
    Subject("argus/kernels/grouped_router.py", "group_scores"),
    Subject("argus/kernels/grouped_router.py", "best_experts"),
    Subject("argus/kernels/grouped_router.py", "expert_weights"),
    Subject("argus/kernels/transpose.py", "transpose_tiles"),
    Subject("argus/kernels/transpose.py", "transpose_to_odd_rows"),
    Subject("examples/gemm.py", "gemm", target="sm_80"),
    Subject("examples/gemm_explicit.py", "gemm_explicit"),
    Subject("examples/gemm_hopper.py", "gemm_hopper", shares=3),
    Subject("examples/gemm_pingpong.py", "gemm_pingpong", shares=3),
    Subject("examples/gemm_waves.py", "gemm_waves", target="gfx942", shares=2),
    Subject("examples/gemm_turns.py", "gemm_turns", target="gfx942", shares=2),
    Subject("examples/linear.py", "linear"),
    Subject("examples/grouped_matmul.py", "grouped_matmul", shares=2),
    Subject("examples/gathered_matmul.py", "gathered_matmul", shares=2),
    Subject("examples/paged_decode.py", "paged_decode"),
    Subject("examples/split_k.py", "split_k"),
    Subject("examples/cluster_softmax.py", "cluster_softmax"),
    Subject("examples/column_sum.py", "column_sum"),
    Subject("examples/conv2d.py", "conv2d"),
    Subject("examples/cumsum.py", "cumsum"),
    Subject("examples/dropout.py", "dropout"),
    Subject("examples/depthwise.py", "depthwise"),
    Subject("examples/embedding.py", "embedding"),
    Subject("examples/rmsnorm.py", "rmsnorm"),
    Subject("examples/rotary.py", "rotary"),
    Subject("examples/softmax.py", "softmax"),
    Subject("examples/transpose.py", "transpose"),
    Subject("examples/vector_add.py", "vector_add"),
)  # fmt: skip
"""All kernels of `argus/kernels` as they ship, those that take longest first, and the examples."""


@dataclass(frozen=True, slots=True)
class Sample:
    """`count` mutants of each subject, drawn with `seed`; `limit_s`: seconds of each proof."""

    seed: int
    count: int
    limit_s: float
    folder: Path

    def file(self, subject: Subject, share: int) -> Path:
        """Return the file with the results of one share of a subject."""
        return self.folder / f"{SUBJECTS.index(subject):02}-{share}.jsonl"

    def lines(self, subject: Subject) -> dict[int, Line]:
        """The results that there are, by the number of the mutant: those of these sources, and of this seed."""
        found, of = {}, self.of(subject)
        for share in range(subject.shares):
            file = self.file(subject, share)
            for text in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
                line = _parsed(text)
                if line is not None and line["of"] == of:
                    found[int(line["number"])] = line
        return found

    def of(self, subject: Subject) -> dict[str, Cell]:
        """Identify the experiment that a result belongs to: kernel, sources, seed and count."""
        return {"kernel": subject.title, "sources": sources()["sources"], "seed": self.seed, "count": self.count}


def _parsed(text: str) -> Line | None:
    try:
        line: Line = json.loads(text)
    except ValueError:  # the end of a run that was stopped
        return None
    return line


# ---------------------------------------------------------------------------- judging


def run(sample: Sample, jobs: int, seconds: float, subjects: Sequence[Subject] = SUBJECTS) -> Results:
    """Judges what is not judged yet, in `jobs` processes, until `seconds` have passed; then counts all there is."""
    sample.folder.mkdir(parents=True, exist_ok=True)
    waiting = [(subject, share) for subject in subjects for share in range(subject.shares)]
    running: dict[int, SpawnProcess] = {}
    end, total = time.monotonic() + seconds, len(waiting)
    for name in _THREADS:
        os.environ[name] = "1"
    context = multiprocessing.get_context("spawn")
    while (waiting or running) and time.monotonic() < end:
        while waiting and len(running) < jobs:
            process = context.Process(target=judge, args=(sample, *waiting.pop(0)))
            process.start()
            running[process.sentinel] = process
        for sentinel in wait(list(running), timeout=max(0.0, min(60.0, end - time.monotonic()))):
            if isinstance(sentinel, int):
                running.pop(sentinel).join()
        print(f"{total - len(waiting) - len(running)} of {total} shares done", flush=True)
    for process in running.values():
        process.terminate()
        process.join()
    return counted(sample, subjects)


def judge(sample: Sample, subject: Subject, share: int) -> None:
    """Judges the mutants of one share of a subject that have no result yet. The first share also insists on the kernel
    itself."""
    known = sample.lines(subject)
    kernel = subject.explicit()
    everything = mutations(kernel)
    numbers = [n for n in drawn(len(everything), sample.seed, sample.count)[share :: subject.shares] if n not in known]
    judged = Judge(kernel, sample.limit_s)
    if share == 0 and numbers:
        judged.insist()
    of = sample.of(subject)
    with sample.file(subject, share).open("a", encoding="utf-8") as file:
        for number in numbers:
            result = result_json(judged.result(everything[number]))
            line = {"of": of, "number": number, "possible": len(everything), **result}
            file.write(json.dumps(line) + "\n")
            file.flush()


# ---------------------------------------------------------------------------- counting

_OUTCOMES = tuple(outcome.value for outcome in Outcome)


def counted(sample: Sample, subjects: Sequence[Subject] = SUBJECTS) -> Results:
    """Rows by kernel and then by class of edits ("by" says which), with "all" last of each; notes on each mutant that
    was missed or is unknown."""
    rows: list[dict[str, Cell]] = []
    notes: list[str] = []
    everything: list[Line] = []
    for subject in subjects:
        lines = list(sample.lines(subject).values())
        wanted = min(sample.count, int(lines[0]["possible"])) if lines else sample.count
        if len(lines) < wanted:
            notes.append(f"not finished: {subject.title}, {len(lines)} of {wanted}")
        if lines:
            rows.append(_row("kernel", subject.title, subject.target, lines))
        notes += [f"{subject.title}: {note}" for note in _notes(lines)]
        everything += lines
    possible = sum(int(str(row["possible"])) for row in rows)
    rows.append({**_row("kernel", "all", "", everything), "possible": possible})
    for kind in Kind:
        of_kind = [line for line in everything if line["class"] == kind.value]
        rows.append({**_row("class", kind.value, "", of_kind), "possible": None})
    rows.append({**_row("class", "all", "", everything), "possible": possible})
    title = f"Mutants of the kernels that ship, {sample.count} of each, seed {sample.seed}"
    return Results(title, rows, tuple(notes))


def _row(by: str, what: str, target: str, lines: Sequence[Line]) -> dict[str, Cell]:
    numbers: dict[str, Cell] = {o: sum(line["outcome"] == o for line in lines) for o in _OUTCOMES}
    possible = int(lines[0]["possible"]) if lines else 0
    spent = float(sum(line["seconds"] for line in lines))
    return {
        "by": by, "what": what, "target": target, "possible": possible, "mutants": len(lines), **numbers, "s": spent,
    }  # fmt: skip


def _notes(lines: Sequence[Line]) -> Iterator[str]:
    for line in lines:
        if line["outcome"] in (Outcome.MISSED.value, Outcome.UNKNOWN.value):
            before, after = (" / ".join(text.split("\n")) for text in (line["before"], line["after"]))
            yield f"{line['outcome']}[{line['code']}] {line['name']}: {before} -> {after}: {line['detail']}"
