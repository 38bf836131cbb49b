"""Tiles of a peer in a cluster: proved, refuted after every single edit, and right under every schedule tried."""

from __future__ import annotations

import numpy as np
import pytest

from argus import compile
from argus.backend.cpu.toolchain import find_compiler
from argus.backend.emit import emit
from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.ir.cluster import unite
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.wellformed import check_explicit
from argus.simulate import explore, simulate
from argus.source import SourceFile
from argus.verify import verify
from tests.backend.host import run
from tests.conftest import Golden

HEAD = '''
@argus.kernel(num_warps=1)
def swap(x: al.Tensor[al.float32, "M N"], out: al.Tensor[al.float32, "M N"], PART: al.constexpr = 32):
    """Exchanges the halves of every row."""
    M, N = x.shape
    al.requires((N == 2 * PART) & (M < 2**28))
    al.spec(out, lambda i, j: x[i, (j + PART) % (2 * PART)])
    row, rank = al.grid(2 * M, cluster=2) // 2, al.cluster_rank()
    cols = al.arange(PART)
    held = al.shared((PART,), al.float32)
'''
MEET = '    al.barrier(scope="cluster")\n'
READS = f"""{HEAD}    al.copy(held[:], x[row, rank * PART + cols])
    # before
{MEET}    al.copy(out[row, rank * PART + cols], al.peer(held, 1 - rank)[:])
    # after
{MEET}"""
WRITES = f"""{HEAD}    # before
{MEET}    al.copy(al.peer(held, 1 - rank)[:], x[row, rank * PART + cols])
    # after
{MEET}    al.copy(out[row, rank * PART + cols], held[:])
"""
FOURS = HEAD.replace("(M < 2**28)", "(M < 2**28) & (M % 4 == 0)").replace("2 * M, cl", "M // 2, cl")
TURNS = f"""{FOURS}    row = row * 4
    for turn in range(4):
        al.copy(held[:], x[row + turn, rank * PART + cols])
    # before
    {MEET}        al.copy(out[row + turn, rank * PART + cols], al.peer(held, 1 - rank)[:])
        # after
    {MEET}"""
KERNELS = {"reads": READS, "writes": WRITES, "turns": TURNS}
BEFORE, AFTER = f"    # before\n{MEET}", f"    # after\n{MEET}"
IN_BLOCK = "    al.barrier()\n"
EDITS = [
    ("reads", AFTER, "", "peer-exited"),
    ("reads", AFTER, IN_BLOCK, "peer-exited"),
    ("reads", BEFORE, "", "data-race"),
    ("reads", BEFORE, IN_BLOCK, "peer-not-started"),
    ("reads", "1 - rank", "rank", "spec-mismatch"),
    ("reads", "1 - rank", "0", "spec-mismatch"),
    ("writes", BEFORE, "", "peer-not-started"),
    ("writes", BEFORE, IN_BLOCK, "peer-not-started"),
    ("writes", AFTER, "", "peer-exited"),
    ("writes", AFTER, IN_BLOCK, "data-race"),
    ("writes", "1 - rank", "0", "data-race"),
    ("writes", AFTER, f'    if rank == 0:\n    {MEET}', "arrival-count"),
    ("turns", f"        # after\n    {MEET}", "", "data-race"),
    ("turns", f"        # after\n    {MEET}", f"    {IN_BLOCK}", "data-race"),
    ("turns", f"    # before\n    {MEET}", "", "data-race"),
]  # fmt: skip


def made(text: str) -> Kernel:
    source = SourceFile("swap.py", f"import argus\nimport argus.language as al\n{text}")
    return compile.lower(compile.elaborate(source, "swap", Options(target="sm_90a")), "sm_90a")


def rows(count: int) -> np.ndarray:
    return np.arange(64 * count, dtype=np.float32).reshape(count, 64)


def swapped(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x[:, 32:], x[:, :32]], axis=1)


@pytest.mark.parametrize("name", KERNELS)
def test_proved(name: str) -> None:
    report = verify(made(KERNELS[name]), limit_s=120)
    assert report.verdict is Verdict.PROVED, [d.message for d in report.diagnostics]


@pytest.mark.parametrize(("name", "old", "new", "code"), EDITS)
def test_refuted(name: str, old: str, new: str, code: str) -> None:
    text = KERNELS[name].replace(old, new)
    assert text != KERNELS[name]
    report = verify(made(text), limit_s=120)
    assert report.verdict is Verdict.REFUTED
    found = [d for d in report.diagnostics if d.verdict is Verdict.REFUTED]
    assert code in {d.code for d in found}
    assert all(d.witness is not None and d.witness.replayed for d in found)


def test_after_its_last_program_a_block_ends() -> None:
    """What orders an access before the next program's does not keep the peer's block."""
    head, _, rest = print_kernel(made(READS)).partition("body {\n")
    spec, *work, meet, _ = rest.splitlines(keepends=True)
    assert spec.lstrip().startswith("spec") and meet == "  barrier scope cluster\n"
    head = head.replace("cluster 2\n", "cluster 2 persistent\n")
    for steps, verdict in (([*work, meet], Verdict.PROVED), ([meet, *work], Verdict.REFUTED)):
        text = "".join([head, "body {\n", spec, "programs {\n", *steps, "}\n", "}\n"])
        report = verify(parse_kernel(text), limit_s=120)
        assert report.verdict is verdict
        assert verdict is Verdict.PROVED or "peer-exited" in {d.code for d in report.diagnostics}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("schedule", ["program", "reverse", "lazy", "eager-block.1", "random(7)"])
def test_right_under_every_schedule(name: str, schedule: str) -> None:
    x = rows(4)
    outcome = simulate(made(KERNELS[name]), {"x": x, "out": np.zeros_like(x)}, schedule=schedule)
    assert outcome.ok, outcome.violations
    assert (outcome.tensors["out"] == swapped(x)).all()


def test_every_order_of_two_blocks() -> None:
    x = rows(1)
    outcomes = list(explore(made(READS), {"x": x, "out": np.zeros_like(x)}))
    assert len(outcomes) > 1
    assert all(o.ok and (o.tensors["out"] == swapped(x)).all() for o in outcomes)


@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("name", KERNELS)
def test_united_on_the_host(name: str) -> None:
    x = rows(4)
    out = np.zeros_like(x)
    run(unite(made(KERNELS[name])), (1 if name == "turns" else 4,), x=x, out=out, M=4, N=64)
    assert (out == swapped(x)).all()


@pytest.mark.parametrize("name", KERNELS)
def test_text_survives(name: str) -> None:
    kernel = made(KERNELS[name])
    assert parse_kernel(print_kernel(kernel)) == kernel


def test_text(golden: Golden) -> None:
    golden("peers.ir", print_kernel(made(READS)))
    golden("peers_united.ir", print_kernel(unite(made(READS))))
    golden("peers.cpp", emit(made(WRITES)))


STORED = "held[c0] <- held_in[c0] shape 32 layout [32 | t 32@0 | v] via st.shared\n"
PEER = "held[c0] block 1 - program_id(0) % 2"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (PEER, "held[c0] block program_id(0) % 2 + 1", "a cluster of 2 has no block 2"),
        (PEER, "held[c0] block program_id(0)", "depends on more than the own block's number"),
        (PEER, "held[c0]", "ld.shared.cluster reaches tiles of a peer in a cluster"),
        ("via ld.shared.cluster", "via ld.shared", "ld.shared reaches no tile of a peer in a cluster"),
        ("[program_id(0) // 2, program_id(0) % 2 * 32 + c0] <-", "[0, c0] block 0 <-", "is no shared tile"),
        (STORED, "held[c0] <~ x[program_id(0) // 2, c0] shape 32 via tma.load\n", "so does the copy engine"),
        ("cluster 2", "cluster 1", "a barrier joins the blocks of a cluster, and the kernel has none"),
        ("target sm_90a", "target sm_80", "sm_80 has no clusters"),
    ],
)
def test_ill_formed(old: str, new: str, message: str) -> None:
    text = print_kernel(made(READS))
    assert old in text
    assert any(message in d.message for d in check_explicit(parse_kernel(text.replace(old, new))))
