"""Roles and barriers in the author's language: proved, refuted after an edit, and refused with a reason."""

from __future__ import annotations

import numpy as np
import pytest

from argus import compile
from argus.backend.cpu.toolchain import find_compiler
from argus.diagnostic import Severity, SourceError, Verdict
from argus.frontend import Options
from argus.ir.nodes import Programs, Roles
from argus.ir.text import parse_kernel, print_kernel
from argus.simulate import simulate
from argus.source import SourceFile
from tests.backend.host import run
from tests.frontend.roles import PINGPONG, PRODUCT, RELAY


def explicit(text: str, name: str, target: str = "sm_90a") -> compile.ExplicitKernel:
    tile = compile.elaborate(SourceFile("kernel.py", text), name, Options(target))
    return compile.lower(tile, target)


@pytest.mark.parametrize(
    "text, name",
    [(RELAY, "relay"), (RELAY.replace(", persistent=True", ""), "relay"), (PINGPONG, "pingpong"), (PRODUCT, "product")],
)
def test_proved(text: str, name: str) -> None:
    kernel = explicit(text, name)
    assert parse_kernel(print_kernel(kernel)) == kernel
    report = compile.verify(kernel, 120.0)
    assert report.verdict is Verdict.PROVED, report.diagnostics


def test_what_comes_first_is_not_of_every_program() -> None:
    (roles,) = (s for s in explicit(PINGPONG, "pingpong").body if isinstance(s, Roles))
    assert [r.first_warp for r in roles.roles] == [0, 4, 8]
    begun = [[type(s).__name__ for s in r.body if not isinstance(s, Programs)] for r in roles.roles]
    assert [b.count("BarrierArrive") for b in begun] == [0, 1, 2]


EDITS = {
    "the reader does not wait": ("        full.sync()\n", "", "relay"),
    "the writer does not wait": ("        free.sync()\n", "", "relay"),
    "the reader gives back too early": (
        "        full.sync()\n",
        "        free.arrive()\n        full.sync()\n",
        "relay",
    ),
    "nothing is free at first": ("    free.arrive()\n    for", "    for", "relay"),
    "the wrong number of threads": ("al.named_barrier(256), ", "al.named_barrier(128), ", "relay"),
    "nobody has the first turn": ("        other.arrive()\n    acc", "        pass\n    acc", "pingpong"),
    "both have the first turn": ("K, False", "K, True", "pingpong"),
    "a turn is kept": ("        other.arrive()\n        free", "        free", "pingpong"),
    "the products are not waited for": ("        al.mma_wait(0)\n", "", "product"),
    "registers are not fenced": ("        al.mma_fence()\n", "", "product"),
    "data are not waited for": ("        full[i % stages].wait(i // stages % 2)\n", "", "product"),
    "buffers are not waited for": ("        empty[i % stages].wait((i // stages + 1) % 2)\n", "", "product"),
    "a wait for the phase before": (".wait(i // stages % 2)", ".wait((i // stages + 1) % 2)", "product"),
    "too few bytes": ("(rows + columns) * depth * 2", "rows * depth * 2", "product"),
    "too many arrivals": ("al.mbarrier(STAGES, 4)", "al.mbarrier(STAGES, 5)", "product"),
    "another mbarrier is signalled": (
        "signal=full[i % stages])\n        al",
        "signal=empty[i % stages])\n        al",
        "product",
    ),
    "one reads the other's rows": ("sa[BLOCK:, :]", "sa[:BLOCK, :]", "pingpong"),
}


@pytest.mark.parametrize("name", EDITS)
def test_refuted(name: str) -> None:
    old, new, kernel = EDITS[name]
    text = {"relay": RELAY, "pingpong": PINGPONG, "product": PRODUCT}[kernel]
    assert old in text
    report = compile.verify(explicit(text.replace(old, new, 1), kernel), 120.0)
    assert report.verdict is Verdict.REFUTED, report.diagnostics
    found = [d for d in report.diagnostics if d.verdict is Verdict.REFUTED and d.severity is Severity.ERROR]
    assert found and all(d.span.known and d.witness is not None and d.witness.replayed for d in found)


@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_relay_on_the_host(target: str) -> None:
    m, n = 70, 100
    x = np.random.default_rng(1).standard_normal((m, n)).astype(np.float32)
    out = np.full((m, n), np.nan, np.float32)
    run(explicit(RELAY, "relay", target), (3,), False, x=x, out=out, M=m, N=n)
    assert np.array_equal(out, 2 * x)


@pytest.mark.parametrize("text, name", [(PINGPONG, "pingpong"), (PRODUCT, "product")])
def test_simulated(text: str, name: str) -> None:
    rng = np.random.default_rng(2)
    m, n, k = 70, 16, 136
    a, b = (rng.integers(-2, 3, shape).astype(np.float32) for shape in ((m, k), (n, k)))
    outcome = simulate(explicit(text, name), {"a": a, "b": b, "c": np.zeros((m, n), np.float32)})
    assert outcome.ok, outcome.violations
    assert np.array_equal(outcome.tensors["c"], a @ b.T)


ROLE = "    al.role(load, (x, tile, full, free, m0), num_warps=4)\n"
BEFORE = "    full, free = "
REFUSED = {
    "a role of no function": ("al.role(load,", "al.role(m0,", "bad-role", "a role's program is a function"),
    "work before the roles": (BEFORE, "    v = al.load(x[0, 0])\n" + BEFORE, "bad-role", "nothing before them"),
    "work after the roles": (ROLE, ROLE + "    al.barrier()\n", "bad-role", "after the roles"),
    "a role in a branch": (ROLE, "    if M > 5:\n    " + ROLE, "conditional-declaration", "a role holds"),
    "a role in a role": ("    free.arrive()\n    for", "    al.role(load, (), num_warps=4)\n    for",
                         "conditional-declaration", "a role holds"),
    "registers for a role": ("full, free, m0), num_warps=4)", "full, free, al.load(x[0, 0])), num_warps=4)", "bad-role",
                             "nothing before them"),
    "a result": ("        full.arrive()\n\n", "        full.arrive()\n    return rows\n\n", "bad-role", "returns"),
    "too many warps": ("(num_warps=8)", "(num_warps=12)", "bad-role", "the roles take 8 warps"),
    "a warp too few": ("num_warps=4)\n    al.role", "num_warps=5)\n    al.role", "bad-role", "the roles take 12 warps"),
    "an odd budget": ("num_warps=4)", "num_warps=4, registers=100)", "bad-role", "cannot have 100 registers"),
    "a pipelined loop": ("in range(0, x.shape", "in al.pipelined(0, x.shape", "bad-role", "makes roles of its own"),
    "half a warp": ("al.named_barrier(256), ", "al.named_barrier(16), ", "bad-barrier", "whole warps"),
    "a barrier in a branch": (BEFORE, "    if M > 5:\n        z = al.named_barrier(32)\n" + BEFORE,
                              "conditional-declaration", "a named barrier holds"),
    "a barrier of the whole block": (ROLE, "    full.sync()\n" + ROLE, "bad-barrier", "this is none"),
    "too many barriers": (BEFORE, "    z = (" + "al.named_barrier(32), " * 12 + ")\n" + BEFORE, "bad-barrier",
                          "there are 16 barriers"),
    "an argument of sync": ("full.sync()", "full.sync(1)", "wrong-arguments", "takes no argument"),
    "no such method": ("full.sync()", "full.wait()", "unknown-attribute", "a named barrier"),
}  # fmt: skip


FULL = "full[i % stages]."
OF_PRODUCT = {
    "a slice of mbarriers": (FULL, "full[:].", "bad-index", "named by its number"),
    "an mbarrier that is none": (FULL, "full[3].", "bad-index", "no mbarrier 3 of 3"),
    "all mbarriers at once": (FULL, "full.", "unknown-attribute", "an array of mbarriers"),
    "bytes at run time": ("(rows + columns) * depth * 2", "k0", "not-constant", "bytes of a phase"),
    "no parity": ("wait(i // stages % 2)", "wait()", "wrong-arguments", "takes one argument"),
    "a tile of parities": ("wait(i // stages % 2)", "wait(al.arange(8))", "type-mismatch", "a parity"),
    "a signal of another kind": ("signal=full[i % stages]", "signal=full", "bad-barrier", "signals an mbarrier"),
    "no such instruction": ("wgmma_m64n64k16", "wgmma_m64n63k16", "unknown-instruction", "is not a matrix instruction"),
    "a fence outside of roles": (
        "    full = al",
        "    al.mma_fence()\n    full = al",
        "bad-role",
        "orders what a role",
    ),
    "a wait outside of roles": ("    empty = al", "    full[0].wait(0)\n    empty = al", "bad-barrier", "this is none"),
}


@pytest.mark.parametrize("name", [*REFUSED, *OF_PRODUCT])
def test_refused(name: str) -> None:
    text, kernel = (RELAY, "relay") if name in REFUSED else (PRODUCT, "product")
    old, new, code, message = (REFUSED | OF_PRODUCT)[name]
    assert old in text
    with pytest.raises(SourceError) as caught:
        explicit(text.replace(old, new, 1), kernel)
    found = [d for d in caught.value.diagnostics if d.code == code]
    assert any(message in d.message for d in found), caught.value.diagnostics
    assert all(d.span.known and d.help for d in found)


@pytest.mark.parametrize("target, help", [("sm_80", "producer_warps"), ("gfx942", "al.begin_turns()")])
def test_other_targets_have_no_roles(target: str, help: str) -> None:
    """Neither roles nor barriers between them: each message says what the target has instead."""
    with pytest.raises(SourceError) as caught:
        explicit(RELAY, "relay", target)
    found = caught.value.diagnostics
    assert {d.code for d in found} == {"bad-role"}
    assert all(help in (d.help or "") for d in found)


def test_the_host_has_no_copy_engine() -> None:
    with pytest.raises(SourceError) as caught:
        explicit(PRODUCT, "product", "cpu")
    assert {d.code for d in caught.value.diagnostics} == {"unknown-instruction"}
