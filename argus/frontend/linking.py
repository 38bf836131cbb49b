"""Resolve the imports of a text as files: `from helpers import norm` is what `helpers.py` defines. No file is run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from argus.diagnostic import SourceError
from argus.frontend.blocks import Block, imports, of_language
from argus.frontend.outline import Outline, name_of, outline, reachable
from argus.source import Elsewhere, Outer, SourceFile, Unusable

MAX_FILES = 200
"""Largest number of files from which a text may take names. A file counts as often as it is imported."""

MAX_FILE_BYTES = 4 << 20
"""Size in bytes of the largest file that is read."""

NOT_READ = frozenset({*sys.stdlib_module_names, "torch", "numpy", "triton", "jax", "cupy", "scipy"})
"""Packages that contain no helpers. Their files are not searched."""

_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+)?import[ \t]+(\([^)]*\)|[^\n#;]*)", re.MULTILINE)


class Unreadable(Exception):
    """A file that is not readable text, with the reason and a remedy."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.remedy = remedy


def read_text(path: str) -> str:
    """Return the text of a file. Raises `Unreadable`."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: the name contains a NUL character
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise Unreadable(why, "name a Python file with kernels in it") from error
    if len(content) > MAX_FILE_BYTES:
        raise Unreadable(f"it has more than {MAX_FILE_BYTES >> 20} MiB", "put kernels into a file of their own")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable("it is not UTF-8 text", "kernel files are Python text in UTF-8") from error
    if "\0" in text:
        raise Unreadable("it is not text", "kernel files are Python text in UTF-8")
    return text


@lru_cache(maxsize=256)
def imported_names(text: str) -> tuple[str, ...]:
    """Return the names that a text's import statements seem to bind, except for the language's own. The text is not
    tokenised."""
    found: list[str] = []
    for package, clauses in _IMPORT.findall(text):
        for clause in clauses.strip("()").split(","):
            path, _, name = (word.strip() for word in clause.partition(" as "))
            whole = f"{package}.{path}" if package else path
            if path.isidentifier() or not package:
                found += [name or path.split(".")[0]] if not of_language(whole) else []
    return tuple(dict.fromkeys(name for name in found if name.isidentifier()))


def linked(source: SourceFile, *, files: bool = True) -> SourceFile:
    """Return a text together with what it takes from files, unless the meanings of its names are already known.

    Only names that kernels, helpers and constants use are looked up. A name that cannot be found is an error where it
    is used, not before. `files`: whether the text may take names from files of the user. A stranger's text may not,
    because messages and results would show what is in them; it may import from `argus.kernels` alone.
    """
    if source.around is not None:
        return source
    if not imported_names(source.text):
        return replace(source, around=())
    return _Linker(files).linked(source, None)


@dataclass
class _Linker:
    """Follows imports. `trail` holds the files and names whose lookup is in progress, `count` the number of files read.
    """

    files: bool = True
    trail: list[tuple[str, str]] = field(default_factory=list)
    count: int = 0

    def linked(self, source: SourceFile, wanted: str | None) -> SourceFile:
        """Return `source` extended by the imported helpers and constants that `wanted`, or all of its functions, need.
        """
        try:
            cut = outline(source)
        except SourceError:  # The error is reported where the text is parsed.
            return replace(source, around=())
        only = [name_of(block) for block, _ in cut.functions] if wanted is None else [wanted]
        found = (Outer(name, self._meaning(path, source)) for name, path in _used(cut, only) if _may_be_read(path))
        return replace(source, around=tuple(found))

    def _meaning(self, path: str, importer: SourceFile) -> Elsewhere | Unusable:
        module, _, name = path.rpartition(".")
        module += "." * (not module.strip("."))  # The module of `.norm` is `.`.
        if not self.files and path.split(".")[0] != "argus":
            what = f"`{name}` is imported from `{module}`, and this text may read no files"
            return Unusable("unknown-import", what, "write the helper or the constant into the text")
        place, looked = _module_file(module, importer.path)
        if place is None:
            where = f"looked in {', '.join(looked[:4])}" if looked else "this text stands in no file"
            return Unusable(
                "unknown-import",
                f"there is no file of the module `{module}`, from which `{name}` is imported",
                f"{where}: put the module beside this file, into its package, or on PYTHONPATH",
            )
        if (os.path.realpath(place), name) in self.trail:
            return Unusable(
                "unknown-import",
                f"the import of `{name}` from {place} leads back to itself",
                "define the helper in one file, and import it from there; a helper cannot call itself",
            )
        self.count += 1
        if self.count > MAX_FILES:
            what = f"more than {MAX_FILES} imports are followed to find what names mean"
            return Unusable("unknown-import", what, "import helpers from the file that defines them")
        try:
            text = read_text(place)
        except Unreadable as error:
            return Unusable("unknown-import", f"cannot read `{place}`, the module `{module}`: {error}", error.remedy)
        self.trail.append((os.path.realpath(place), name))
        try:
            return Elsewhere(self.linked(SourceFile(place, text), name), name)
        finally:
            self.trail.pop()


def _may_be_read(path: str) -> bool:
    """Return True if the file at a dotted path may hold helpers. Within Argus itself, only `argus.kernels` may."""
    package, _, rest = path.partition(".")
    if package == "argus":
        return rest.split(".")[0] == "kernels"
    return not package or package not in NOT_READ


# ---------------------------------------------------------------------------- which names


def _used(cut: Outline, only: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the imported names that the functions and constants in `only` may use, each as written and with the object
    that it names."""
    aliases = {name: path for block in cut.rest for name, path in _imports(block) if not of_language(path)}
    words = reachable(cut, only)
    blocks = [b for b, _ in cut.functions if name_of(b) in words] + [b for b in cut.rest if _defines(b, words)]
    heads = {name for name in aliases if name in words}
    chains = {chain for block in blocks for chain in _chains(block, heads)}
    for chain in sorted(chains | (heads & set(only))):
        head, dot, rest = chain.partition(".")
        yield chain, aliases[head] + dot + rest


def _imports(block: Block) -> Iterator[tuple[str, str]]:
    """Yield the imports of a top-level block, including imports in branches but not those in functions and classes."""
    if block.header is not None and block.header.first.text not in ("def", "class", "async"):
        for line in block.lines:
            yield from imports(line)


def _defines(block: Block, words: set[str]) -> bool:
    """Return True for a statement that is no import and begins with one of `words`."""
    first = block.header.first.text if block.header is not None else ""
    return first in words and first not in ("from", "import")


def _chains(block: Block, heads: set[str]) -> Iterator[str]:
    """Yield the names in `heads` that occur in a block, with the attributes that are read from them."""
    for line in block.lines:
        tokens = line.tokens
        for i, token in enumerate(tokens):
            if token.text in heads and (i == 0 or tokens[i - 1].text != "."):
                chain, at = token.text, i + 1
                while at + 1 < len(tokens) and tokens[at].text == "." and tokens[at + 1].kind == "name":
                    chain += f".{tokens[at + 1].text}"
                    at += 2
                yield chain


# ---------------------------------------------------------------------------- where modules are


def _module_file(module: str, importer: str) -> tuple[str | None, list[str]]:
    """Return the file of a module, and the folders that were searched for it."""
    dots = len(module) - len(module.lstrip("."))
    parts = [part for part in module[dots:].split(".") if part]
    folders = _folders(importer, dots)
    for folder in folders:
        base = os.path.join(folder, *parts)
        for place in (f"{base}.py", os.path.join(base, "__init__.py")) if parts else (f"{base}/__init__.py",):
            if os.path.isfile(place):
                return place, folders
    return None, folders


def _folders(importer: str, dots: int) -> list[str]:
    """Return the folders in which a file's imports are searched.

    An absolute import is searched beside the file, beside its package, and on Python's path. A relative import (with
    `dots`) is searched only in the folder that the dots name.
    """
    if not os.path.isfile(importer):
        return [] if dots else list(dict.fromkeys(p for p in sys.path if os.path.isdir(p or ".")))
    own = os.path.dirname(importer) or "."
    if dots:
        return [os.path.normpath(os.path.join(own, *[".."] * (dots - 1)))]
    root = os.path.abspath(own)
    while os.path.isfile(os.path.join(root, "__init__.py")) and os.path.dirname(root) != root:
        root = os.path.dirname(root)
    return list(dict.fromkeys([own, root, *(p for p in sys.path if os.path.isdir(p or "."))]))
