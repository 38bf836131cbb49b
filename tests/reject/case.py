"""A wrong kernel: a kernel that ships, or is an example, one edit away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from argus import compile
from argus.frontend import Options
from argus.ir.nodes import Kernel
from argus.ir.text import parse_kernel
from argus.source import SourceFile

ROOT = Path(__file__).parent.parent.parent

Edit = Callable[[Kernel], Kernel]
"""A mistake in the lowered form: an edit of the explicit IR, which keeps the places in the source."""


@dataclass(frozen=True, slots=True)
class Text:
    """A mistake of an author: `old`, which stands in the kernel's file once, becomes `new`."""

    old: str
    new: str

    def __call__(self, text: str) -> str:
        assert text.count(self.old) == 1, f"{self.old!r} occurs {text.count(self.old)} times"
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Case:
    """One wrong kernel: its file, kernel and target, the mistake, and the code and property that it is refuted for.

    The file is a kernel's text, or, as `.ir`, explicit IR. The property is "refused" where no launch could run it.
    `also` are further edits that the mistake needs to be that mistake alone; the accepted twin has them, too.
    """

    file: str
    mistake: Text | Edit
    code: str
    property: str
    target: str = "sm_80"
    kernel: str = ""
    constants: Mapping[str, object] = field(default_factory=dict)
    also: tuple[Text, ...] = ()

    @property
    def name(self) -> str:
        """The kernel's name, by default that of its file."""
        return self.kernel or Path(self.file).stem

    def text(self, path: str) -> str:
        """Return the text of a file that the refusal names: the kernel's with the mistake, or one that it imports."""
        text = (ROOT / path).read_text(encoding="utf-8")
        edits = (*self.also, self.mistake) if path == self.file else ()
        for edit in edits:
            text = edit(text) if isinstance(edit, Text) else text
        return text

    def accepted(self) -> Kernel:
        """The explicit IR of the kernel without the mistake."""
        return _explicit(self.file, self.name, self.target, tuple(self.constants.items()), self.also)

    def rejected(self) -> Kernel:
        """The explicit IR of the kernel with the mistake, which changes it."""
        right = self.accepted()
        if isinstance(self.mistake, Text):
            edits = (*self.also, self.mistake)
            wrong = _explicit(self.file, self.name, self.target, tuple(self.constants.items()), edits)
        else:
            wrong = self.mistake(right)
        assert wrong != right, "the mistake changes nothing"
        return wrong


@cache
def _explicit(
    file: str, name: str, target: str, constants: tuple[tuple[str, object], ...], edits: tuple[Text, ...]
) -> Kernel:
    text = (ROOT / file).read_text(encoding="utf-8")
    for edit in edits:
        text = edit(text)
    if file.endswith(".ir"):
        return parse_kernel(text)
    options = Options(target=target, constexprs=dict(constants))
    return compile.lower(compile.elaborate(SourceFile(file, text), name, options), target)
