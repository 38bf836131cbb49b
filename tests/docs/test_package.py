"""The wheel and the source archive contain what the installed program and its messages refer to."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCES = ("argus", "docs", "examples", "tests")
FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in", "Makefile", "constraints.txt",
         "mkdocs.yml")  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and a source archive, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("package")
    copy = folder / "copy"
    copy.mkdir()
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, copy / name)
    program = "from setuptools import build_meta as b; b.build_wheel('..'); b.build_sdist('..')"
    subprocess.run([sys.executable, "-c", program], cwd=copy, check=True, capture_output=True)
    return folder


def test_the_wheel(built: Path) -> None:
    (wheel,) = built.glob("argus_tile-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = next(n for n in names if n.endswith(".dist-info/METADATA"))
        fields = archive.read(metadata).decode()
    pages = {f"argus/docs/errors/{p.name}" for p in (ROOT / "docs" / "errors").glob("*.md")}
    texts = {f"argus/docs/{p.relative_to(ROOT / 'docs')}" for p in (ROOT / "docs").rglob("*.md")
             if p.parent.name in ("docs", "tutorial", "guide")}  # fmt: skip
    assert pages and texts and pages | texts | {"argus/docs/schema/check-1.json"} <= names
    assert {"argus/examples/gemm.py", "argus/frontend/grammar.lark", "argus/py.typed"} <= names
    assert any(n.endswith("licenses/LICENSE") for n in names)
    assert "Name: argus-tile" in fields and "License-Expression: Apache-2.0" in fields


def test_the_source_archive(built: Path) -> None:
    (archive,) = built.glob("argus_tile-*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"LICENSE", "CHANGELOG.md", "docs/language.md", "docs/tutorial/1-first-kernel.md", "examples/gemm.py",
            "tests/docs/test_package.py", "argus/cli/main.py"} <= names  # fmt: skip
