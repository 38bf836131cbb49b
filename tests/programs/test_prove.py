"""Right programs are proved; each wrong twin, one edit away, is refuted at small sizes, or unknown with a reason."""

import pytest

from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.programs.pipeline import lower
from argus.programs.prove import order
from argus.programs.prove.prove import prove
from argus.programs.sites import sites
from argus.source import SourceFile
from tests.programs.texts import PROGRAMS, TEXT, program, report


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_right_program_is_proved(name):
    found = report(name)
    assert (found.verdict, found.diagnostics) == (Verdict.PROVED, ())


WRONG = [
    # a wait that is missing
    ("forked", "    side.wait(begin)\n", "", "program-race", ("x", "side")),
    ("forked", "    main.wait(done)\n", "", "program-race", ("right", "main")),
    ("chunks", "        side.wait(ready)\n", "", "program-race", ("h", "side")),
    ("ring", "        main.wait(used)\n", "", "program-race", ("h", "main")),
    ("ring", "    main.wait(done)\n", "", "program-race", ("h", "side")),
    # an event that is recorded too early
    ("forked", "    scale(x, right, 3.0, stream=side)\n    done = side.record()\n",
     "    done = side.record()\n    scale(x, right, 3.0, stream=side)\n", "program-race", ("right", "main")),
    # a ring of one buffer
    ("ring", "h[i % 2, :], 2.0", "h[0, :], 2.0", "program-race", ("h", "main")),
    # memory that is not written
    ("twice", "    scale(x, half, 2.0)\n", "", "program-uninitialised", ("half", "main")),
    ("rows", "    for i in range(M):", "    for i in range(1, M):", "program-uninitialised", ("h", "main")),
    ("picked", "    else:\n        scale(x, h, 1.0)\n", "", "program-uninitialised", ("h", "main")),
    # sizes
    ("twice", "al.empty((N,)", "al.empty((N + 1,)", "program-shape", ("", "main")),
    ("mlp", "al.empty((M, H)", "al.empty((H, M)", "program-shape", ("", "main")),
    ("rows", "h = al.empty((M, N)", "h = al.empty((M // 2, N)", "program-bounds", ("", "main")),
    ("chunks", "    al.requires(N % CHUNK == 0)\n", "", "spec-mismatch", ("y", "")),
    # facts about index tensors
    ("picked", "    al.requires(al.in_range(index, 0, N))\n", "    al.requires(al.in_range(index, 0, N + 1))\n",
     "program-index", ("index", "main")),
    # one memory for two arguments
    ("twice", "scale(half, y, 3.0, BLOCK=256)", "add(half, x, half)\n    scale(half, y, 3.0)", "program-alias",
     ("half", "main")),
    # values
    ("twice", "scale(half, y, 3.0, BLOCK=256)", "scale(half, y, 2.0)", "spec-mismatch", ("y", "")),
    ("mlp", "product(h, w2, y)", "product(h, w2, y, RELU=True)", "spec-mismatch", ("y", "")),
    ("rows", "scale(h[i, :], y[i, :], 3.0)", "scale(h[M - 1 - i, :], y[i, :], 3.0)", "spec-mismatch", ("y", "")),
    ("picked", "    if deep > 0:", "    if deep >= 0:", "spec-mismatch", ("y", "")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "code", "about"), WRONG, ids=lambda v: str(v)[:30])
def test_a_wrong_twin_is_refuted_with_launch_buffer_and_stream(name, old, new, code, about):
    found = report(name, old, new)
    assert found.verdict is Verdict.REFUTED
    first = next(d for d in found.diagnostics if d.verdict is Verdict.REFUTED)
    assert first.code == code
    witness = first.witness
    assert witness is not None and witness.replayed
    buffer, stream = about
    assert witness.object == buffer + (f" on stream {stream}" if stream else "")
    if stream:
        assert any(note.message.startswith(("launch ", "collective ")) for note in first.notes)
    if name != "forked":
        assert witness.sizes and max(witness.sizes.values()) <= 100


def test_what_a_collective_computes_is_not_known():
    found = report(
        "reduced", "    scale(whole, y, 0.5)\n", "    scale(whole, y, 0.0)\n    al.spec(y, lambda i: x[i] * 0.0)\n"
    )
    (doubt,) = found.diagnostics
    assert (found.verdict, doubt.code) == (Verdict.UNKNOWN, "spec-unknown")
    assert '"all_reduce" is not defined by the program' in doubt.notes[0].message


def test_lags_count_the_last_instances_that_may_be_incomplete():
    """In the ring, the launch that fills a buffer waits for all of the other stream's launches but the last."""
    found = program("ring")
    fill, use = sites(found)
    ordered = order.order(found, (fill, use))
    assert ordered.lag(fill, use.number) == 1
    assert ordered.lag(use, fill.number) == 0
    assert ordered.end.streams["main"].get(use.number, 0) == 0


def test_buffers_that_are_never_in_use_together_share_memory():
    found = program("picked")
    places = {b.name: b.offset for b in found.buffers}
    assert places["h"] == places["u"] != places["z"]


NO_GRID = """
@argus.kernel
def loose(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
    i = al.program_id(0) * 128 + al.arange(128)
    al.store(y[i], al.load(x[i], mask=i < N), mask=i < N)
    al.spec(y, lambda i: x[i])

@argus.program
def p(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):
    h = al.empty((N,), al.float32)
    loose[(al.cdiv(N, 256),)](x, h)
    scale(h, y, 1.0)
    al.spec(y, lambda i: x[i])
"""


def test_a_kernel_on_a_grid_that_it_does_not_declare_may_write_a_part_only():
    found = prove(lower(SourceFile("p.py", TEXT + NO_GRID), "p", Options("cpu")))
    assert found.verdict is Verdict.UNKNOWN
    assert {d.code for d in found.diagnostics} == {"program-uninitialised", "spec-unknown"}


NARROW = """
@argus.kernel
def add8(x: al.Tensor[al.int8, "N"], y: al.Tensor[al.int8, "N"]):
    i = al.grid(al.cdiv(N, 128)) * 128 + al.arange(128)
    v = al.load(x[i], mask=i < N, other=0)
    al.store(y[i], v + v, mask=i < N)
    al.spec(y, lambda i: x[i] + x[i])

@argus.kernel
def wide(x: al.Tensor[al.int8, "N"], y: al.Tensor[al.int32, "N"]):
    i = al.grid(al.cdiv(N, 128)) * 128 + al.arange(128)
    al.store(y[i], al.load(x[i], mask=i < N, other=0).to(al.int32), mask=i < N)
    al.spec(y, lambda i: x[i].to(al.int32))

@argus.program
def p(x: al.Tensor[al.int8, "N"], y: al.Tensor[al.int32, "N"]):
    h = al.empty((N,), al.int8)
    add8(x, h)
    wide(h, y)
    al.spec(y, lambda i: x[i].to(al.int32) + x[i].to(al.int32))
"""


def test_narrow_integers_that_may_wrap_around_are_not_known():
    found = prove(lower(SourceFile("p.py", TEXT + NARROW), "p", Options("cpu")))
    (doubt,) = found.diagnostics
    assert (found.verdict, doubt.code) == (Verdict.UNKNOWN, "spec-unknown")
    assert "may wrap around" in doubt.notes[0].message
