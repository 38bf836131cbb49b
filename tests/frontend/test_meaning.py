"""Generated kernels mean what Python means: the text run as Python over NumPy against the simulated IR."""

from __future__ import annotations

from types import ModuleType

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from argus.diagnostic import SourceError
from argus.frontend import Options, check, parse
from argus.passes import lower
from argus.simulate import simulate
from argus.source import SourceFile
from tests.frontend import reference

TILES, SCALARS = ("p", "q", "r"), ("i", "j")
HEAD = """\
import argus.language as al
import argus

BIAS = 3

@argus.func
def shifted(v, k):
    v = v + 1.0
    for step in range(k):
        v += v
    return v

@argus.func
def pair(v, w):
    old = v
    v = al.maximum(v, w)
    return v, old

@argus.func
def reader(v):
    return v * 0.5

@argus.func
def chosen(v, w, first):
    if first:
        return v
    if BIAS == 3:
        w = w + reader(v)
    return w

@argus.kernel(num_warps=1)
def k(
    x: al.Tensor[al.float32, "4 64"],
    out: al.Tensor[al.float32, "3 64"],
    ints: al.Tensor[al.int32, "2"],
    n: al.int32,
):
    p = al.load(x[0, 0:64])
    q = al.load(x[1, 0:64])
    r = al.zeros((64,), al.float32)
    o = al.arange(64)
    i = 0
    j = n
"""
TAIL = """\
    al.store(out[0, 0:64], p)
    al.store(out[1, 0:64], q)
    al.store(out[2, 0:64], r + o.to(al.float32))
    al.store(ints[0], i)
    al.store(ints[1], j)
"""


@st.composite
def simple(draw: st.DrawFn) -> str:
    """One simple statement."""
    a, b, c = (draw(st.sampled_from(TILES)) for _ in range(3))
    s, t = (draw(st.sampled_from(SCALARS)) for _ in range(2))
    number = draw(st.integers(-2, 3))
    return draw(
        st.sampled_from(
            [
                f"{a} = {b}",
                f"{a} = {b} + {c}",
                f"{a} = {a} + {b}",
                f"{a} += {b}",
                f"{a} -= {b}",
                f"{a} = {b} * 0.5",
                f"{a} = {b} + {number}",
                f"{a} = al.maximum({a}, {b})",
                f"{a} = al.minimum({b}, {c} + {number}.0)",
                f"{a} = {a} + al.max({b}) - al.max({c})",
                f"{a} = al.load(x[{draw(st.integers(0, 3))}, 0:64])",
                f"{a} = al.load(x[{draw(st.integers(0, 3))}, o], mask=o < 64)",
                f"{a} = al.where(o < {s}, {b}, {c})",
                f"{a}, {b} = {b}, {a}",
                f"{a}, {b} = {b} + 1.0, {a}",
                f"{a} = shifted({b}, 2)",
                f"{a}, {b} = pair({b}, {c})",
                f"{a} = reader({b}) + reader({a})",
                f"{a} = chosen({b}, {c}, {draw(st.booleans())})",
                f"w = {a}",
                f"{a} = w * 0.5",
                f"w = {b} + {c}\n{a} = w",
                f"{a} = reader(w)\nw = {b}",
                f"{a} = al.load(view)",
                f"{s} = {t}",
                f"{s} = {s} + 1",
                f"{s} += {t}",
                f"{s} = {number}",
                f"{s} = al.maximum({t}, {number}) + BIAS",
                "o = al.where(o < 3, o, 2)",
                f"view = x[{draw(st.integers(0, 3))}, o]",
                f"o = (o + 1) % {draw(st.integers(1, 64))}",
            ]
        )
    )


@st.composite
def block(draw: st.DrawFn, depth: int = 0) -> list[str]:
    """Statements, with loops and branches up to two deep."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 5 if depth == 0 else 3))):
        kind = draw(st.integers(0, 9)) if depth < 2 else 9
        if kind > 4:
            lines += draw(simple()).split("\n")
            continue
        s, number = draw(st.sampled_from(SCALARS)), draw(st.integers(0, 3))
        header = [
            f"for a{depth} in range(n):",
            f"for a{depth} in al.static_range({number}):",
            f"if {s} > {number}:",
            f"if n > {number}:",
            f"for v{depth} in ({', '.join(draw(st.permutations(TILES)))}, p + q):",
        ][kind]
        used = [f"r = r + v{depth}"] if kind == 4 else []
        lines += [header, *(f"    {line}" for line in (*used, *draw(block(depth + 1))))]
        if kind in (2, 3) and draw(st.booleans()):
            lines += ["else:", *(f"    {line}" for line in draw(block(depth + 1)))]
    return lines


def run_as_python(text: str, arrays: dict[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
    """The kernel's text, run with `al` over NumPy."""
    argus = ModuleType("argus")
    argus.kernel = lambda **_options: lambda function: function  # type: ignore[attr-defined]
    argus.func = lambda function: function  # type: ignore[attr-defined]
    scope: dict[str, object] = {"argus": argus, "al": reference}
    lines = [line for line in text.split("\n") if not line.startswith("import")]
    source = "from __future__ import annotations\n" + "\n".join(lines)  # so that nothing evaluates them
    exec(compile(source, "kernel.py", "exec"), scope)
    result = {name: array.copy() for name, array in arrays.items()}
    with np.errstate(all="ignore"):
        scope["k"](*(reference.Memory(result[name]) for name in ("x", "out", "ints")), n)  # type: ignore[operator]
    return result


@settings(max_examples=25, deadline=None)
@given(block(), st.integers(0, 3), st.integers(0, 2**16))
def test_a_kernel_means_what_its_text_means_to_python(lines, n, seed):
    text = HEAD + "".join(f"    {line}\n" for line in lines) + TAIL
    try:
        kernel = check(parse(SourceFile("kernel.py", text)), "k", Options(target="cpu"))
    except SourceError as error:
        allowed = {"undefined-after-block", "unknown-name", "loop-carried-type", "bad-constant"}
        assert {d.code for d in error.diagnostics} <= allowed, text
        assume(False)
    random = np.random.default_rng(seed)
    arrays = {
        "x": random.integers(-8, 8, (4, 64)).astype(np.float32),
        "out": np.zeros((3, 64), np.float32),
        "ints": np.zeros((2,), np.int32),
    }
    expected = run_as_python(text, arrays, n)
    outcome = simulate(lower(kernel, "cpu"), {**arrays, "n": n}, grid=(1,))
    for name in ("out", "ints"):
        np.testing.assert_allclose(outcome.tensors[name], expected[name], rtol=1e-5, err_msg=text)
