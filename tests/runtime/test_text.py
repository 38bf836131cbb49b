"""Kernels of texts that no file holds."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import argus
from argus.diagnostic import SourceError, VerificationError

HEAD = "import argus\nimport argus.language as al\n\n"
SHIFT = """@argus.kernel
def shift(x: al.Tensor[al.float32, "N"], out: al.Tensor[al.float32, "N"], BLOCK: al.constexpr = 64):
    N = x.shape[0]
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(out[i], al.load(x[i + 1], mask=i + 1 < N), mask=i < N)
"""


def test_kernels_of_a_text_run(require_tool: Any) -> None:
    require_tool("g++", "clang++", "c++")
    found = argus.from_text(HEAD + SHIFT + "\n\n" + SHIFT.replace("shift", "other"))
    assert list(found) == ["shift", "other"]
    x = np.arange(100, dtype=np.float32)
    out = np.empty_like(x)
    found["shift"](x, out)
    assert np.array_equal(out, [*range(1, 100), 0])


def test_none_of_the_text_runs(tmp_path: Path) -> None:
    place = tmp_path / "made"
    argus.from_text(HEAD + f"open({str(place)!r}, 'w')\n\n" + SHIFT)
    assert not place.exists()


def test_a_wrong_kernel_is_refuted_in_the_text() -> None:
    with pytest.raises(VerificationError) as caught:
        argus.from_text(HEAD + SHIFT.replace("i + 1 < N", "i < N"), "made by a program")["shift"].build("cpu")
    found = caught.value.diagnostics[0]
    assert found.code == "out-of-bounds" and found.span.line == 8 and str(found.span).startswith("made by a program:8:")


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "no-kernel"), ("x = 1\n", "no-kernel"), (HEAD + "@argus.kernel\ndef f(:\n    pass\n", "unmatched-bracket")],
)
def test_a_text_without_a_kernel_is_refused(text: str, code: str) -> None:
    with pytest.raises(SourceError) as caught:
        argus.from_text(text)
    assert caught.value.diagnostics[0].code == code


CUT = """import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(x: al.Tensor[al.float32, "1000"], y: al.Tensor[al.float32, "128"], NAME: al.int32):
    al.requires((NAME >= 0) & (NAME <= 64))
    o = al.grid(1) + al.arange(128)
    t = al.load(x[o + NAME], mask=o < NAME, layout=al.blocked((128,), (0,), 4), instruction="ld.global.HOW")
    al.store(y[o], t)
"""


@pytest.mark.parametrize(("name", "how"), [("n", "cut"), ("aligned", "cut"), ("amid", "unaligned"), ("words", "cut")])
def test_names_that_the_emitted_text_has_for_itself(require_tool: Any, name: str, how: str) -> None:
    require_tool("g++", "clang++", "c++")
    x, y, o = np.arange(1000, dtype=np.float32), np.empty(128, np.float32), np.arange(128)
    argus.from_text(CUT.replace("NAME", name).replace("HOW", how))["kernel"](x, y, 5)
    assert (y == np.where(o < 5, o + 5, 0)).all()


LARGE = """import argus
import argus.language as al

@argus.kernel(num_warps=1)
def kernel(x: al.Tensor[al.float32, "32"]):
    al.spec(x, lambda i: NUMBER)
    al.store(x[al.grid(1) + al.arange(32)], al.full((32,), NUMBER, al.float32))
"""


@pytest.mark.parametrize("number", ["3.4e38", "1e39", "-1e300"])
def test_numbers_that_float32_has_no_room_for_are_infinite(require_tool: Any, number: str) -> None:
    require_tool("g++", "clang++", "c++")
    x = np.zeros(32, np.float32)
    argus.from_text(LARGE.replace("NUMBER", number))["kernel"](x)
    with np.errstate(over="ignore"):
        assert (x == np.float32(float(number))).all()


def test_tracebacks_begin_with_the_authors_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most three frames of ours stand below the call that is wrong, unless the author asks for all."""
    kernel = argus.from_text(HEAD + SHIFT.replace("mask=i + 1 < N", "mask=i < N"))["shift"]

    def frames() -> list[str]:
        with pytest.raises(VerificationError) as error:
            kernel(np.zeros(100, np.float32), np.zeros(100, np.float32))
        found = [frame.filename for frame in traceback.extract_tb(error.value.__traceback__)]
        return found[found.index(__file__) :]

    first = frames()
    assert first[0] == __file__ and len(first) <= 4
    monkeypatch.setenv("ARGUS_DEBUG", "1")
    assert len(frames()) > 4
