"""Programs on the command line: check, show, mutate."""

import json
from pathlib import Path

import pytest

from argus.cli import main

SHIPPED = str(Path(__file__).parents[1] / "programs" / "shipped.py")


def test_a_program_is_checked_with_its_kernels(capsys):
    assert main(["check", f"{SHIPPED}::twice", "--target", "cpu", "--json"]) == 0
    (outcome,) = json.loads(capsys.readouterr().out)
    assert (outcome["kernel"], outcome["verdict"]) == ("twice", "proved")


def test_a_file_of_programs_that_imports_its_kernels(tmp_path, capsys):
    Path(tmp_path / "kernels.py").write_text(Path(SHIPPED).read_text().partition("@argus.program")[0])
    only = tmp_path / "only.py"
    only.write_text(
        "import argus\nimport argus.language as al\nimport kernels\nfrom kernels import add as plus\n\n"
        '@argus.program\ndef p(x: al.Tensor[al.float32, "N"], y: al.Tensor[al.float32, "N"]):\n'
        "    h = al.empty((N,), al.float32)\n    kernels.scale(x, h, 2.0)\n    plus(x, h, y)\n"
        "    al.spec(y, lambda i: x[i] * 3.0)\n"
    )
    assert main(["check", str(only), "--target", "cpu"]) == 0
    assert "proved p" in capsys.readouterr().out
    only.write_text(only.read_text().replace("x[i] * 3.0", "x[i] * 4.0"))
    assert main(["check", f"{only}::p", "--target", "cpu"]) == 1
    assert "refuted[spec-mismatch]" in capsys.readouterr().out


def test_a_program_is_shown_with_its_memory(capsys):
    assert main(["show", f"{SHIPPED}::picked", "--target", "cpu"]) == 0
    assert "buffer z: float32[M] at maximum(h.bytes, u.bytes)" in capsys.readouterr().out


def test_mutants_of_a_program(capsys):
    assert main(["mutate", f"{SHIPPED}::twice", "--target", "cpu", "--count", "5", "--json"]) == 0
    (trial,) = json.loads(capsys.readouterr().out)
    assert (trial["kernel"], trial["count"], trial["missed"]) == ("twice", 5, 0)


@pytest.mark.parametrize("command", ["show", "check"])
def test_an_unknown_name_is_no_program(command, capsys):
    assert main([command, f"{SHIPPED}::nothing", "--target", "cpu"]) == 2
    assert "nothing" in capsys.readouterr().err + capsys.readouterr().out or command == "check"


def test_a_package_is_built(tmp_path, capsys):
    folder = tmp_path / "demo"
    assert main(["build", f"{SHIPPED}::chunks", "--target", "cpu", "--package", str(folder), "-D", "CHUNK=16"]) == 0
    assert "wrote" in capsys.readouterr().out
    assert "int demo_chunks(argus_package *package" in (folder / "demo.h").read_text()
    assert main(["build", f"{SHIPPED}::scale", "--target", "cpu", "--package", str(folder), "--alignment", "4"]) == 0
    assert 'argus_aligned(c, x_, "x", 4, 4, 1);' in (folder / "demo.c").read_text()
