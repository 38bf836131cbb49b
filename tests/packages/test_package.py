"""Packages are called from C and C++ without Python: the same bits, and the same checks."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import argus
from argus.diagnostic import ArgusError, VerificationError
from argus.programs import from_text
from tests.programs import shipped
from tests.programs.texts import TEXT

HERE = Path(__file__).parent
CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
CXX = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
needs_compilers = pytest.mark.skipif(CC is None or CXX is None, reason="no C and C++ compiler")
NAMES = ("twice", "chunks", "picked", "reduced", "ring", "mlp")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package") / "demo"
    argus.package(folder, {"scale": shipped.scale, **{n: getattr(shipped, n) for n in NAMES}}, target="cpu")
    return folder


def output(demo: Path, main: str, compiler: str | None) -> bytes:
    """Compile the package and a main program, without warnings, and return what that prints."""
    assert CC is not None and compiler is not None
    objects = []
    for name in ("argus.c", "demo.c"):
        objects.append(str(demo / f"{name}.o"))
        strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-format-truncation"]
        subprocess.run([CC, *strict, "-O1", "-c", str(demo / name), "-o", objects[-1]], check=True)
    program = str(demo / f"{main}.out")
    libraries = ["-ldl", "-lm", "-lpthread", "-lstdc++"]
    subprocess.run([compiler, "-Wall", "-Wextra", f"-I{demo}", str(HERE / main), *objects, "-o", program, *libraries],
                   check=True)  # fmt: skip
    run = subprocess.run([program, str(demo)], capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout


@needs_compilers
def test_c_gets_the_same_bits_and_errors_for_wrong_arguments(demo):
    x = (np.arange(96) % 7).astype(np.float32) * np.float32(0.3) - np.float32(1)
    index = ((np.arange(12) * 5) % 96).astype(np.int32)
    y, few = np.empty_like(x), np.empty(12, np.float32)
    expected = []

    def note(array):
        expected.append(array.tobytes())

    shipped.scale(x, y, 0.7)
    note(y)
    shipped.twice(x, y)
    note(y)
    shipped.chunks(x, y)
    note(y)
    for deep in (1, -1):
        shipped.picked(x, index, few, 0.5, deep)
        note(few)

    def doubled(reads, writes):
        writes[0][...] = 2 * reads[0]

    shipped.reduced(x, y, collectives={"all_reduce": doubled})
    note(y)
    shipped.ring(x.reshape(8, 12), y.reshape(8, 12))
    note(y)
    assert output(demo, "main.c", CC) == b"".join(expected)


@needs_compilers
def test_cpp_gets_the_same_bits(demo):
    def matrix(rows, columns, scale):
        return ((np.arange(rows * columns) % 11 - 5).astype(np.float32) / np.float32(scale)).reshape(rows, columns)

    y = np.empty((12, 8), np.float32)
    shipped.mlp(matrix(12, 20, 3), matrix(20, 24, 7), matrix(24, 8, 5), y)
    assert output(demo, "main.cpp", CXX) == y.tobytes()


def test_the_manifest_says_what_the_package_holds(demo):
    found = json.loads((demo / "manifest.json").read_text())
    schema = json.loads((HERE.parents[1] / "docs" / "schema" / "package-1.json").read_text())
    assert found["schema"] == 1 and set(found) == set(schema["required"])
    assert [f["name"] for f in found["functions"]] == ["scale", *NAMES]
    assert [f["kind"] for f in found["functions"]] == ["kernel"] + ["program"] * len(NAMES)
    (twice,) = (f for f in found["functions"] if f["name"] == "twice")
    assert [p[1] for p in twice["signature"]["params"]] == ["x", "y"] and len(twice["kernels"]) == 2
    for binary in found["binaries"]:
        assert set(binary) == set(schema["properties"]["binaries"]["items"]["required"])
        assert (demo / binary["file"]).stat().st_size > 0 and binary["verdict"] == "proved"
    assert {f["name"]: f["collectives"] for f in found["functions"] if f["kind"] == "program"}["reduced"] is True


def test_equal_kernels_are_packaged_once(demo):
    found = json.loads((demo / "manifest.json").read_text())
    digests = [b["sha256"] for b in found["binaries"]]
    assert len(digests) == len(set(digests))


def test_what_is_not_proved_is_not_packaged(tmp_path):
    wrong = from_text(TEXT.replace("    scale(x, half, 2.0)\n", ""))["twice"]
    with pytest.raises(VerificationError):
        argus.package(tmp_path / "wrong", {"twice": wrong}, target="cpu")
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize(
    ("entries", "target", "words"),
    [({"a-b": shipped.scale}, "cpu", "cannot be a name in C"), ({"scale": shipped.scale}, "gfx942", "NVIDIA GPU")],
)
def test_a_package_that_cannot_be(entries, target, words, tmp_path):
    with pytest.raises(ArgusError, match=words) as caught:
        argus.package(tmp_path / "p", entries, target=target)
    assert caught.value.diagnostics[0].code == "bad-package"
