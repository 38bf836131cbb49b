"""Candidates that their own sizes do not confirm: the sizes of another finding may, for the same tensor alone."""

from __future__ import annotations

from pathlib import Path

from argus import compile
from argus.diagnostic import Diagnostic, Verdict
from argus.frontend import Options
from argus.source import SourceFile

EXAMPLES = Path(__file__).parent.parent.parent / "examples"

SECOND = (
    (
        '    c: al.Tensor[al.bfloat16, "M N"],\n',
        '    c: al.Tensor[al.bfloat16, "M N"],\n    d: al.Tensor[al.bfloat16, "M N"],\n',
    ),
    ("    al.tag(a,", "    al.spec(d, lambda m, n: al.sum(lambda k: a[m, k] * b[n, k]){more})\n    al.tag(a,"),
    (
        "    al.store(c[m0 :",
        "    al.store(d[m0 : m0 + BLOCK_M, n0 : n0 + BLOCK_N], acc.to(al.bfloat16), boundary_check=(0, 1))\n"
        "    al.store(c[m0 :",
    ),
)
"""Edits that give the product a second output with the same values."""


def found(*edits: tuple[str, str]) -> tuple[Diagnostic, ...]:
    """Return the errors of the rejected product after edits of its text."""
    text = (EXAMPLES / "rejected" / "gemm.py").read_text(encoding="utf-8")
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    report = compile.prove(SourceFile("gemm.py", text), "gemm_rejected", Options())
    return tuple(d for d in report.diagnostics if d.verdict is not None)


def of(diagnostics: tuple[Diagnostic, ...], name: str) -> Diagnostic:
    return next(d for d in diagnostics if d.message.startswith(f"'{name}' does not follow"))


def test_a_wrong_value_is_shown_at_the_sizes_of_a_wrong_tag() -> None:
    """The product takes the first tile of b: tags and values are both refuted, and nothing is left undecided."""
    diagnostics = found()
    assert {d.verdict for d in diagnostics} == {Verdict.REFUTED}
    witness = of(diagnostics, "c").witness
    assert witness is not None and witness.replayed and witness.object == "c"


def test_each_output_is_refuted_by_its_own_elements() -> None:
    edits = [(old, new.replace("{more}", " * 2.0")) for old, new in SECOND]
    diagnostics = found(*edits)
    for name in ("c", "d"):
        witness = of(diagnostics, name).witness
        assert witness is not None and witness.object == name


def test_a_right_output_beside_a_wrong_one_is_not_refuted() -> None:
    """Only the specification of `d` doubles the product, and the kernel is right otherwise."""
    right = ("b[n0 : n0 + BLOCK_N, 0:BLOCK_K]", "b[n0 : n0 + BLOCK_N, k0 : k0 + BLOCK_K]")
    edits = [(old, new.replace("{more}", " * 2.0")) for old, new in SECOND]
    diagnostics = found(*edits, right)
    assert [d.message.split()[0] for d in diagnostics] == ["'d'"]
    assert diagnostics[0].witness is not None and diagnostics[0].witness.object == "d"
