"""No text makes anything but a kernel or a `SourceError`."""

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from argus.diagnostic import SourceError
from argus.frontend import Options, check, parse
from argus.source import SourceFile

EXAMPLES = [path.read_text() for path in sorted((Path(__file__).parents[2] / "examples").glob("*.py"))]
WORDS = [
    "(", ")", "[", "]", "{", ":", ",", "=", "==", "-", "**", "<<", "@", ":=", ";", "'", '"""', "\\", "\n", "    ", "\t",
    "\0", "#", "f''", "0x", "1e400", "9" * 30, "-1", "lambda", "for", "while", "if", "else", "def", "return", "not",
    "None", "al.", "al.load", "al.sum", "al.static_range", "@argus.kernel", "M", "acc", "é",
]  # fmt: skip


@st.composite
def mutated(draw):
    """An example with a few words cut out, doubled, replaced, or everything after a point gone."""
    text = draw(st.sampled_from(EXAMPLES))
    for _ in range(draw(st.integers(1, 4))):
        words = list(re.finditer(r"\w+|[^\w\s]|\s+", text))
        if not words:
            break
        first, second = (words[draw(st.integers(0, len(words) - 1))] for _ in range(2))
        new = draw(st.sampled_from(["", second.group(), *WORDS]))
        keep = draw(st.booleans())
        text = text[: first.start()] + new + (first.group() if keep else "") + text[first.end() :]
        if draw(st.integers(0, 15)) == 0:
            text = text[: first.end()]
    return text


def survives(text):
    try:
        module = parse(SourceFile("mutated.py", text))
    except SourceError as error:
        assert all(d.message and d.help for d in error.diagnostics)
        return
    for function in module.functions:
        if function.kind == "kernel":
            try:
                check(module, function.name, Options())
            except SourceError as error:
                assert all(d.message and d.help for d in error.diagnostics)


@settings(max_examples=60, deadline=2000)
@given(mutated())
def test_mutated_examples(text):
    survives(text)


@settings(max_examples=60, deadline=2000)
@given(st.text(max_size=200), st.text(st.sampled_from("()[]{}'\"\\:=,.@# \n\tdefx1"), max_size=200))
def test_garbage_in_and_around_a_kernel(first, second):
    survives(first)
    survives(f"import argus\n@argus.kernel\ndef k():\n    {second}\n")
    survives(f"@argus.kernel\ndef k({second}):\n    {first}")
