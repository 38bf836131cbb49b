"""Scans along any axis of any layout: simulated, proved safe, emitted and run; and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import argus
import argus.language as al
from argus.compile import elaborate, lower, verify
from argus.diagnostic import SourceError, Verdict
from argus.frontend import Options
from argus.frontend.decorator import kernel
from argus.ir.nodes import Kernel, Scan
from argus.ir.text import parse_kernel, print_kernel
from argus.ir.visit import walk
from argus.passes.scan import in_steps
from argus.simulate import simulate
from argus.source import SourceFile

Array = NDArray[Any]


@argus.func
def recurrence(a, b, c, d):
    return a * c, b * c + d


@argus.func
def later(a, b):
    return b


@argus.func
def segmented(begins, total, begin, value):
    return begins | begin, al.where(begin != 0, value, total + value)


@kernel(num_warps=2)
def row(x: al.Tensor[al.float32, "M N"], y: al.Tensor[al.float32, "M N"], BACK: al.constexpr = False,
        BLOCK: al.constexpr = 512):  # fmt: skip
    al.requires(N <= BLOCK)
    i = al.grid(M)
    tile = al.load(x[i, 0:BLOCK], boundary_check=(0,))
    al.store(y[i, 0:BLOCK], al.cumsum(tile, 0, reverse=BACK), boundary_check=(0,))


@kernel(num_warps=4)
def tile(x: al.Tensor[al.int32, "R C"], y: al.Tensor[al.int32, "R C"], AXIS: al.constexpr = 1,
         BACK: al.constexpr = False, R: al.constexpr = 16, C: al.constexpr = 64):  # fmt: skip
    al.requires(al.in_range(x, -1000, 1000))
    p = al.grid(1)
    al.store(y[p * R : p * R + R, 0:C], al.cumsum(al.load(x[p * R : p * R + R, 0:C]), AXIS, BACK))


@argus.kernel(num_warps=2)
def chunks(x: al.Tensor[al.float32, "M N"], y: al.Tensor[al.float32, "M N"], BLOCK: al.constexpr = 256):
    i = al.grid(M)
    carry = 0.0
    for k in range(0, N, BLOCK):
        tile = al.load(x[i, k : k + BLOCK], boundary_check=(0,))
        al.store(y[i, k : k + BLOCK], al.cumsum(tile, 0) + carry, boundary_check=(0,))
        carry = carry + al.sum(tile, 0)


@kernel(num_warps=2)
def pairs(a: al.Tensor[al.float32, "256"], b: al.Tensor[al.float32, "256"], y: al.Tensor[al.float32, "256"],
          BACK: al.constexpr = False):  # fmt: skip
    p = al.grid(1)
    _decay, h = al.associative_scan((al.load(a[:]), al.load(b[:])), 0, recurrence, reverse=BACK)
    al.store(y[p : p + 256], h)


@kernel(num_warps=2)
def lasts(x: al.Tensor[al.float32, "128"], y: al.Tensor[al.float32, "128"]):
    p = al.grid(1)
    al.store(y[p : p + 128], al.associative_scan(al.load(x[:]), 0, later))


@kernel(num_warps=2)
def segments(f: al.Tensor[al.int32, "128"], x: al.Tensor[al.float32, "128"], y: al.Tensor[al.float32, "128"]):
    p = al.grid(1)
    _flags, sums = al.associative_scan((al.load(f[:]), al.load(x[:])), 0, segmented)
    al.store(y[p : p + 128], sums)


@kernel(num_warps=2)
def products(x: al.Tensor[al.float32, "R 64"], y: al.Tensor[al.float32, "R"], z: al.Tensor[al.float32, "R 64"]):
    r = al.grid(x.shape[0])
    t = al.load(x[r, :])
    al.store(y[r], al.prod(t))
    al.store(z[r, :], al.cumprod(t, 0))


def explicit(source: Any, target: str, **constants: object) -> Kernel:
    options = Options(target=target, default_alignment=4, constexprs=constants)
    return lower(elaborate(source.file, source.name, options), target)


def checked(source: Any, target: str, arguments: dict[str, Array], **constants: object) -> dict[str, Array]:
    """What a kernel that is proved safe leaves in its tensors."""
    lowered = explicit(source, target, **constants)
    assert verify(lowered).verdict is Verdict.PROVED
    outcome = simulate(lowered, arguments)
    assert outcome.ok, outcome.violations
    return outcome.tensors


def summed(x: Array, axis: int, back: bool) -> Array:
    return np.flip(np.cumsum(np.flip(x, axis), axis), axis) if back else np.cumsum(x, axis)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize("back", [False, True])
def test_rows_across_warps(target: str, back: bool) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (2, 389)).astype(np.float32)
    made = checked(row, target, {"x": x, "y": np.zeros_like(x)}, BACK=back)
    np.testing.assert_array_equal(made["y"], summed(x, 1, back))


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(("axis", "shape"), [(0, (16, 64)), (1, (16, 64)), (0, (64, 8)), (1, (1, 128)), (0, (1, 128))])
def test_any_axis(axis: int, shape: tuple[int, int], back: bool) -> None:
    x = np.random.default_rng(1).integers(-9, 9, shape).astype(np.int32)
    constants = {"AXIS": axis, "BACK": back, "R": shape[0], "C": shape[1]}
    made = checked(tile, "sm_80", {"x": x, "y": np.zeros_like(x)}, **constants)
    np.testing.assert_array_equal(made["y"], summed(x, axis, back))


def test_a_carried_scan_runs() -> None:
    x = np.random.default_rng(2).integers(-9, 9, (3, 700)).astype(np.float32)
    y = np.zeros_like(x)
    chunks(x, y)
    np.testing.assert_array_equal(y, np.cumsum(x, 1))


@pytest.mark.parametrize("back", [False, True])
def test_a_recurrence(back: bool) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-1, 2, 256).astype(np.float32), rng.integers(-3, 4, 256).astype(np.float32)
    h, wanted = np.float32(0), np.zeros(256, np.float32)
    for t in range(255, -1, -1) if back else range(256):
        h = wanted[t] = a[t] * h + b[t]
    made = checked(pairs, "sm_80", {"a": a, "b": b, "y": np.zeros(256, np.float32)}, BACK=back)
    np.testing.assert_array_equal(made["y"], wanted)


def test_the_order_of_what_is_combined() -> None:
    """The later of two is associative, and does not commute."""
    x = np.arange(128, dtype=np.float32)
    np.testing.assert_array_equal(checked(lasts, "sm_80", {"x": x, "y": np.zeros_like(x)})["y"], x)


def test_segments() -> None:
    rng = np.random.default_rng(4)
    f, x = (rng.random(128) < 0.1).astype(np.int32), rng.integers(0, 9, 128).astype(np.float32)
    total, wanted = 0.0, []
    for begin, value in zip(f, x, strict=True):
        total = value if begin else total + value
        wanted.append(total)
    made = checked(segments, "sm_80", {"f": f, "x": x, "y": np.zeros_like(x)})
    np.testing.assert_array_equal(made["y"], np.array(wanted, np.float32))


def test_products() -> None:
    x = np.random.default_rng(5).choice([1.0, -1.0, 2.0, 0.5], (3, 64)).astype(np.float32)
    arguments = {"x": x, "y": np.zeros(3, np.float32), "z": np.zeros_like(x)}
    made = checked(products, "sm_80", arguments)
    np.testing.assert_array_equal(made["y"], x.prod(1))
    np.testing.assert_array_equal(made["z"], x.cumprod(1))


def test_long_runs_are_parts_of_parts() -> None:
    assert in_steps(4) == (4,)
    assert in_steps(64) == (8, 8)
    assert in_steps(48) == (8, 6)
    assert in_steps(13) == (13,)


def test_its_text_is_read_back() -> None:
    made = elaborate(pairs.file, pairs.name, Options(target="sm_80"))
    assert [len(s.tiles) for s in walk(made.body) if isinstance(s, Scan)] == [2]
    assert parse_kernel(print_kernel(made)) == made


# ---------------------------------------------------------------------------- what is refused

HEAD = """
import argus
import argus.language as al

@argus.func
def combine(a, b):
    return {body}

@argus.kernel
def k(x: al.Tensor[al.float32, "128"], out: al.Tensor[al.float32, "128"]):
    p = al.grid(1)
    t = al.load(x[:])
    al.store(out[p : p + 128], {call})
"""


def codes(body: str, call: str = "al.associative_scan(t, 0, combine)") -> list[str]:
    text = HEAD.format(body=body, call=call)
    try:
        elaborate(SourceFile("k.py", text), "k", Options(target="sm_80"))
    except SourceError as error:
        return [d.code for d in error.diagnostics]
    return []


@pytest.mark.parametrize(
    "body",
    ["a + b", "a * b", "al.maximum(a, b)", "al.minimum(b, a)", "a + b + a * b", "a", "al.where(b < a, a, b)",
     "al.maximum(a, al.maximum(b, 0.0))", "2.0 * a * b"],
)  # fmt: skip
def test_associative_functions(body: str) -> None:
    assert codes(body) == []


@pytest.mark.parametrize(
    "body",
    ["a - b", "a + 2.0 * b", "0.5 * (a + b)", "al.abs(a) + b", "al.where(a < b, a - b, b)"],
)
def test_functions_that_are_not_associative(body: str) -> None:
    assert codes(body) == ["not-associative"]


def test_numbers_show_it() -> None:
    text = HEAD.format(body="a - b", call="al.associative_scan(t, 0, combine)")
    with pytest.raises(SourceError, match=r"of a = -?\d+, b = -?\d+ and c = -?\d+, a and b combined first give"):
        elaborate(SourceFile("k.py", text), "k", Options(target="sm_80"))


def test_the_authors_word() -> None:
    body = "al.log(al.exp(a) + al.exp(b))"
    assert codes(body) == ["not-associative"]
    assert codes(body, "al.associative_scan(t, 0, combine, associative=True)") == []


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("al.cumsum(p, 0)", "bad-shape"),
        ("al.cumsum(t, 1)", "bad-shape"),
        ("al.cumsum(t < 0.0, 0)", "type-mismatch"),
        ("al.associative_scan(t, 0, al.maximum)", "wrong-arguments"),
        ("al.associative_scan((t, t), 0, combine)[0]", "wrong-arguments"),
        ("al.associative_scan((t, al.load(x[0:64])), 0, combine)[0]", "shape-mismatch"),
    ],
)
def test_what_is_no_scan(call: str, code: str) -> None:
    assert codes("a + b", call) == [code]
    assert codes("a + b") == []


@pytest.mark.parametrize("body", ["a < b", "(a, b)", "al.load(x[0])", "t[0]"])
def test_what_is_no_combination(body: str) -> None:
    assert len(codes(body)) == 1
