"""Twenty kernels that are wrong in one place: a text, or an explicit kernel, for "make this kernel right"."""

from __future__ import annotations

from pathlib import Path

from argus import compile
from argus.frontend import Options
from argus.ir.text import print_kernel
from argus.source import SourceFile

EXAMPLES = Path(__file__).parents[2] / "examples"


def _text(name: str) -> str:
    return (EXAMPLES / f"{name}.py").read_text()


def _explicit(name: str) -> str:
    source = SourceFile(f"{name}.py", _text(name))
    return print_kernel(compile.lower(compile.elaborate(source, name, Options(target="sm_80")), "sm_80"))


def _broken(text: str, old: str, new: str) -> str:
    assert old in text, old
    return text.replace(old, new, 1)


def tasks() -> dict[str, tuple[str, str]]:
    """Form and text, by title."""
    add, transpose = _text("vector_add"), _explicit("transpose")
    gemm, softmax, added = _explicit("gemm"), _explicit("softmax"), _explicit("vector_add")
    slices = add[: add.index("    offs =")] + (
        "    here = al.load(x[pid * BLOCK : pid * BLOCK + BLOCK]{0})\n"
        "    total = here + al.load(y[pid * BLOCK : pid * BLOCK + BLOCK]{1})\n"
        "    al.store(out[pid * BLOCK : pid * BLOCK + BLOCK], total{2})\n"
    )
    check = ", boundary_check=(0,)"
    python = {
        "a function that does not exist": _broken(add, "al.load(", "al.laod("),
        "a type that does not exist": _broken(add, "al.float32", "al.flaot32"),
        "a name that does not exist": _broken(add, "x[offs]", "x[ofs]"),
        "a load without a check": slices.format("", check, check),
        "another load without a check": slices.format(check, "", check),
        "a store without a check": slices.format(check, check, ""),
        "a missing barrier": _text("rejected/transpose"),
    }
    ir = {
        "an explicit barrier is missing": _broken(transpose, "  barrier\n", ""),
        "a wait is missing": _broken(gemm, "    wait_group 1\n", ""),
        "a wait for too few": _broken(gemm, "    wait_group 1\n", "    wait_group 2\n"),
        "a shifted index": _broken(transpose, "x[program_id(0) * 32 + c0,", "x[program_id(0) * 32 + c0 + 1,"),
        "exchanged indices": _broken(transpose, "tile[c1, c0]", "tile[c0, c1]"),
        "half of a mask": _broken(transpose, " & (program_id(0) * 32 + c1 < M) layout", " layout"),
        "a mask that is too narrow": _broken(transpose, "c0 < N) &", "c0 < N - 1) &"),
        "a mask that is too wide": _broken(transpose, "c0 < N) &", "c0 < N + 1) &"),
        "a grid that is rounded down": _broken(transpose, "grid [(M + 31) // 32", "grid [M // 32"),
        "a barrier for some threads": _broken(transpose, "  barrier\n", "  if thread % 2 == 1 {\n    barrier\n  }\n"),
        "another reduction": _broken(softmax, "maximum scores", "minimum scores"),
        "an empty wait": _broken(gemm, "    wait_group 1\n", "    wait_group 3\n"),
        "a vector that begins one further": _broken(added, "x[program_id(0)", "x[1 + program_id(0)"),
    }
    return {**{k: ("python", v) for k, v in python.items()}, **{k: ("ir", v) for k, v in ir.items()}}
