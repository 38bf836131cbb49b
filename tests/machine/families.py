"""Tests of the shipped kernels' results, with every launch executed by the interpreter from code for gfx942.

`python -m tests.machine.families [NAME ...]` runs the tests of the families of that name, or of all, and prints as JSON
how many passed, which failed, and how many launches were interpreted. A program of its own, because what it prepares
must not stay in a process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import pytest

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "attention, gradients": ("attention_backward.py::test_results", "attention_backward.py::test_windows"),
    "attention, packed": ("attention_varlen.py::test_results", "attention_varlen_backward.py::test_results"),
    "attention, windows and more": ("attention_with.py::test_results", "attention_with.py::test_what_is_added"),
    "decode": (
        "attention_decode.py::test_results",
        "attention_decode.py::test_caches_of_8_bits",
        "attention_decode.py::test_latent_heads",
    ),
    "caches": (
        "cache_append.py::test_results",
        "cache_append.py::test_numbers_of_8_bits",
        "cache_slots.py::test_slots",
    ),
    "experts": ("moe.py::test_layer", "moe.py::test_order_of_pairs", "moe.py::test_rows_are_gathered"),
    "experts, gradients": ("moe.py::test_gradients_of_uneven_experts",),
    "experts of 8 bits": ("mixture_blocks.py::test_layer",),
    "router": ("routing.py::test_without_groups", "routing.py::test_groups_with_a_bias", "routing.py::test_gradient"),
    "products of 8 bits": ("blockwise.py::test_products", "blockwise.py::test_quantized"),
    "products of packed weights": ("packed.py::test_results",),
    "products in parts": ("split.py::test_values",),
    "losses": ("cross_entropy.py",),
    "scans": ("linear_attention.py::test_results", "delta_rule.py::test_results"),
    "convolutions and angles": ("mixers.py::test_convolutions", "mixers.py::test_rotary"),
    "choices": ("topk.py::test_topk", "topk.py::test_ties_and_special_values"),
}
"""The tests of each family, below `tests/kernels/test_`."""


class Outcomes:
    """Counts the tests that pass, and keeps the names of those that fail."""

    def __init__(self) -> None:
        self.passed, self.failed = 0, list[str]()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note what pytest reports of a test."""
        self.passed += report.when == "call" and report.passed
        self.failed += [report.nodeid] if report.failed else []


def counting() -> list[int]:
    """Count the launches from now on; the list's only number is their count."""
    from tests.machine import library

    count, prepare = [0], library.Interpreted.prepare

    def prepared(self: Any, *given: Any) -> Any:
        count[0] += 1
        return prepare(self, *given)

    setattr(library.Interpreted, "prepare", prepared)  # noqa: B010 (of this process alone)
    return count


def main() -> None:
    """Run the families that are asked for."""
    import argus.kernels  # all that asks for a tensor's target is there before `interpret`
    import argus.layers  # noqa: F401
    from tests.machine import library

    library.interpret()
    launches, outcomes = counting(), Outcomes()
    tests = [f"tests/kernels/test_{test}" for name in sys.argv[1:] or FAMILIES for test in FAMILIES[name]]
    chosen = "(cpu or test_split) and not proved"
    pytest.main(["-q", "-p", "no:cacheprovider", "-k", chosen, *tests], plugins=[outcomes])
    print(json.dumps({"passed": outcomes.passed, "failed": outcomes.failed, "launches": launches[0]}))


if __name__ == "__main__":
    main()
