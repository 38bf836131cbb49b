"""Argus: a tile language for GPU kernels whose compiler proves how data moves."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argus.frontend.decorator import func
    from argus.graph import compile_report
    from argus.packages import package
    from argus.programs import JitProgram, program
    from argus.runtime import Call, Function, JitKernel, Operator, Work, from_text, kernel
    from argus.tuning import Autotuner, Config, autotune, do_bench

__all__ = [
    "Autotuner",
    "Call",
    "Config",
    "Function",
    "JitKernel",
    "JitProgram",
    "Operator",
    "Work",
    "autotune",
    "compile_report",
    "do_bench",
    "from_text",
    "func",
    "kernel",
    "package",
    "program",
]

_HOMES = {
    "compile_report": "argus.graph",
    "func": "argus.frontend.decorator",
    "package": "argus.packages",
    **dict.fromkeys(("JitProgram", "program"), "argus.programs"),
    **dict.fromkeys(("Call", "Function", "JitKernel", "Operator", "Work", "from_text", "kernel"), "argus.runtime"),
    **dict.fromkeys(("Autotuner", "Config", "autotune", "do_bench"), "argus.tuning"),
}
"""The module of each public name. A module is imported when one of its names is first used, so `argus --version`
imports none."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `argus` has no attribute `{name}`")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
