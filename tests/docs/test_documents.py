"""The README's and the documents' examples run; the documents name what exists; nobody's machine shows."""

from __future__ import annotations

import inspect
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import pytest

from tests.docs.examples import Example, examples, execute, missing

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if p.parent.name != "errors"),  # their own test runs those
]


def tracked() -> list[Path]:
    """Every text file that git knows, or, outside of a checkout, every file of the project's folders."""
    try:
        listing = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True,
                                 text=True, check=True).stdout.splitlines()  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        listing = [str(p.relative_to(ROOT)) for top in ("argus", "tests", "docs", "examples") for p in
                   (ROOT / top).rglob("*") if "__pycache__" not in p.parts]  # fmt: skip
    return [path for name in listing if (path := ROOT / name).is_file() and not path.is_symlink()]


EXAMPLES = [
    pytest.param(example, id=f"{page.name}-{example.line}-{example.kind}")
    for page in DOCUMENTS
    for example in examples(page)
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = execute(example, tmp_path, capsys)
    assert (code == 0) == (example.kind in ("accepted", "runs", "warned")), output
    assert not missing(example, output), output


def test_architecture_names_every_part() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    parts = {p.name for p in (ROOT / "argus").iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    assert not [part for part in sorted(parts) if f"argus/{part}" not in text]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = [t for t in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in t]
    assert not [t for t in targets if not (document.parent / t).exists()]


def test_no_machine_of_a_developer_shows() -> None:
    """No absolute path of a home or work folder stands in any file."""
    pattern = re.compile(rb"/(?:home|Users|root|work)/[A-Za-z0-9_.-]+|[A-Z]:\\\\Users")
    wrong = [
        f"{path.relative_to(ROOT)}: {match[0].decode()}"
        for path in tracked()
        for match in [pattern.search(path.read_bytes())]
        if match is not None and path != Path(__file__)
    ]
    assert not wrong


def test_the_site_lists_pages_that_exist() -> None:
    """Every page of `mkdocs.yml` exists, and the tutorial is complete and in order."""
    listed = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert not [name for name in listed if not (ROOT / "docs" / name).is_file()]
    chapters = sorted(p.name for p in (ROOT / "docs" / "tutorial").glob("*.md"))
    assert [name.removeprefix("tutorial/") for name in listed if name.startswith("tutorial/")] == chapters
    assert len(chapters) == 6


def test_signatures_of_the_api_page_have_types() -> None:
    """Each parameter and result of what the page shows has a type that says more than `Any`."""
    shown = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    found = {name: text for page in shown for name, text in signatures(page, resolve_name(page))}
    assert len(found) > 150
    assert {name for name, text in found.items() if re.search(r"\bAny\b", text)} == set()


def signatures(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield the signatures of a function, of a class and its public methods, or of a module's public names."""
    if inspect.ismodule(value):
        for n, v in vars(value).items():
            public = n in getattr(value, "__all__", (n,)) and not n.startswith("_")
            if public and getattr(v, "__module__", None) == value.__name__:
                yield from signatures(f"{name}.{n}", v)
    elif inspect.isclass(value):
        for n, v in vars(value).items():
            method = v.fget if isinstance(v, property) else getattr(v, "__func__", v)
            if inspect.isfunction(method) and (not n.startswith("_") or n in ("__init__", "__call__", "__getitem__")):
                yield f"{name}.{n}", str(inspect.signature(method))
    elif inspect.isfunction(value):
        yield name, str(inspect.signature(value))
