"""Every kernel that ships says what it computes: no output is without a specification."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from argus.compile import elaborate
from argus.diagnostic import SourceError
from argus.frontend import Options
from argus.mutate import unspecified
from argus.source import SourceFile
from benchmarks.mutants import SUBJECTS
from tests.kernels.test_on_the_host import KERNELS

KERNEL = re.compile(r"^@argus\.kernel.*\ndef (\w+)", re.MULTILINE)
SHOWN = sorted((*Path("argus/examples").glob("*.py"), *Path("argus/knowledge/kernels").glob("*.py")))


def test_kernels_of_the_library() -> None:
    """`test_on_the_host.py` asserts of each of these that every output has a specification."""
    texts = (path.read_text(encoding="utf-8") for path in Path("argus/kernels").glob("*.py"))
    found = {name for text in texts for name in KERNEL.findall(text)}
    assert len(found) > 60
    amd = {s.kernel for s in SUBJECTS if s.target == "gfx942"}
    assert found <= set(KERNELS) | amd
    for subject in SUBJECTS:
        if subject.kernel not in KERNELS and Path(subject.file).parts[0] == "argus":
            source = SourceFile(subject.file, Path(subject.file).read_text(encoding="utf-8"))
            assert _unspecified(source, subject.kernel) == ()


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_examples(path: Path) -> None:
    source = SourceFile(str(path), path.read_text(encoding="utf-8"))
    names = KERNEL.findall(source.text)
    assert names
    for name in names:
        assert _unspecified(source, name) == ()


def _unspecified(source: SourceFile, name: str) -> tuple[str, ...]:
    try:
        return unspecified(elaborate(source, name, Options("sm_90a")))
    except SourceError:  # written for AMD
        return unspecified(elaborate(source, name, Options("gfx942")))


def test_an_output_without_a_specification_is_named() -> None:
    path = Path("argus/examples/vector_add.py")
    text = re.sub(r"    al\.spec\(.*\n", "", path.read_text(encoding="utf-8"))
    assert _unspecified(SourceFile("vector_add.py", text), "vector_add") != ()
