"""The shipped programs as text, and changes of it."""

from pathlib import Path

from argus.frontend import Options
from argus.programs.ir import Program
from argus.programs.pipeline import lower
from argus.programs.prove.prove import prove
from argus.source import SourceFile
from argus.verify.report import Report

TEXT = (Path(__file__).parent / "shipped.py").read_text()
PROGRAMS = ("twice", "forked", "rows", "mlp", "chunks", "ring", "picked", "reduced")


def program(name: str, old: str = "", new: str = "", text: str = TEXT) -> Program:
    """A program of the text, with a change in its own lines."""
    head, mark, body = text.partition(f"def {name}(")
    assert old in body
    return lower(SourceFile("shipped.py", head + mark + body.replace(old, new, 1)), name, Options("cpu"))


def report(name: str, old: str = "", new: str = "") -> Report:
    return prove(program(name, old, new))
