"""Files with text, outside of kernels, that Python cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.cli import main

KERNEL = """import argus
import argus.language as al

@argus.kernel
def double(x: al.Tensor[al.float32, "N"], BLOCK: al.constexpr = 128):
    N = x.shape[0]
    i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
    al.store(x[i], al.load(x[i], mask=i < N) * 2.0, mask=i < N)

"""


@pytest.mark.parametrize(
    ("rest", "said"),
    [("def other(:\n    pass\n", "k.py:10:"), ("if True:\npass\n", "k.py:11:"), ("x = (1,\n", "k.py:10:"),
     ("print 'x'\n", "k.py:10:")],
)  # fmt: skip
def test_a_file_that_python_cannot_read_is_unusable(
    rest: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "k.py").write_text(KERNEL + rest)
    assert main(["check", str(tmp_path / "k.py")]) == 2
    shown = "".join(capsys.readouterr())
    assert "error[syntax-error]: " in shown and said in shown and "proved" not in shown
    assert main(["check", f"{tmp_path / 'k.py'}::double"]) == 0  # this reads one kernel and nothing else


@pytest.mark.parametrize("rest", ["def other():\n    pass\n", "x = '\\d'\n", "from elsewhere import nothing\n"])
def test_other_text_is_read_and_not_run(rest: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.py").write_text("\ufeff" + KERNEL + rest, encoding="utf-8")
    assert main(["check", str(tmp_path / "k.py")]) == 0
    assert "proved double" in capsys.readouterr().out
