"""Imports point one way, and each foreign library has its place. Read from the text of every module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "argus"

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"source", "diagnostic", "render", "layout", "environment", "work", "written", "numbered",
               "garbage"}),
    frozenset({"ir", "pages", "hardware"}),
    frozenset({"language"}),
    frozenset({"frontend", "passes", "verify", "simulate", "backend"}),
    frozenset({"compile", "mutate"}),
    frozenset(
        {"torch", "kernels", "layers", "runtime", "programs", "packages", "tuning", "editor", "graph", "demo", "cli",
         "agents", "knowledge", "__main__", "__init__"}
    ),
)
"""A part imports its own layer and those above it in this list."""

PRIVATE = {
    "islpy": {"argus.verify.model.isl"},
    "z3": {"argus.verify.model.solver"},
    "lark": {"argus.frontend.parse", "argus.frontend.parser", "argus.frontend.build", "argus.frontend.constructs",
             "argus.frontend.tables",
             "argus.ir.text_parser", "argus.ir.text_terms"},
}  # fmt: skip
"""Which modules may import a library when they are imported themselves."""

BACK = {
    ("argus", "argus.graph"),  # the report on a compiled model, which may run the library's kernels
    ("argus.ir.nodes", "argus.ir.text"),  # a kernel, as text
    ("argus.layout.core", "argus.layout.picture"),  # a layout, as a picture
    ("argus.layout.swizzle", "argus.layout.picture"),
    ("argus.layout.fragment", "argus.layout.picture"),
    ("argus.diagnostic", "argus.render"),  # an error, as text
    ("argus.runtime.jit_kernel", "argus.torch"),  # a kernel, as an operator
    ("argus.runtime.jit_kernel", "argus.torch.operator"),
    ("argus.runtime.function", "argus.torch.library"),  # a function, as an operator
}
"""Imports, when asked for alone, of what imports the module itself."""


@dataclass(frozen=True)
class Import:
    """`module` imports `name`; `late`: inside of a function or for types only."""

    module: str
    name: str
    late: bool

    def __str__(self) -> str:
        return f"{self.module} imports {self.name}"


@cache
def modules() -> dict[str, ast.Module]:
    """The tree of every module by its name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(ROOT)
        if relative.parts[1] != "examples":
            name = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
            found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


@cache
def every_import() -> tuple[Import, ...]:
    return tuple(imports())


def imports() -> Iterator[Import]:
    for module, tree in modules().items():
        top = {id(node) for statement in tree.body for node in _immediate(statement)}
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{module}: imports are absolute"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (Import(module, name, id(node) not in top) for name in names)


def _immediate(statement: ast.stmt) -> Iterator[ast.AST]:
    """What runs when the module is imported: not function bodies, not `if TYPE_CHECKING`."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
        return
    yield statement
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from _immediate(child)


def _part(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def _layer(part: str) -> int:
    found = [index for index, layer in enumerate(LAYERS) if part in layer]
    assert found, f"argus.{part} has no layer: add it to LAYERS and to docs/architecture.md"
    return found[0]


def test_there_is_something_to_check() -> None:
    assert len({i.module for i in every_import()}) > 20


def test_every_part_has_a_layer() -> None:
    for module in modules():
        _layer(_part(module))


def test_imports_point_one_way() -> None:
    known = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir()}
    wrong = []
    for found in every_import():
        parts = found.name.split(".")
        if parts[0] != "argus" or (len(parts) > 1 and parts[1] not in known):
            continue  # not ours, or a public name of the package itself
        if _layer(_part(found.module)) < _layer(_part(found.name)):
            wrong.append(str(found))
    assert not wrong


def test_parts_of_one_layer_do_not_import_one_another() -> None:
    """The middle layer's parts meet only in compile; Options are the frontend's to give to all."""
    middle = LAYERS[3]
    wrong = [
        str(found)
        for found in every_import()
        if found.name.startswith("argus.")
        and {_part(found.module), _part(found.name)} <= middle
        and _part(found.module) != _part(found.name)
        and not (_part(found.module) == "verify" and _part(found.name) == "simulate")  # witnesses are replayed
    ]
    assert not wrong


def test_modules_stand_in_no_circle() -> None:
    known = set(modules())
    needs: dict[str, set[str]] = {name: set() for name in known}
    for found in every_import():
        target = found.name if found.name in known else found.name.rpartition(".")[0]
        if target in known and target != found.module and (found.module, target) not in BACK:
            needs[found.module].add(target)
    TopologicalSorter(needs).prepare()  # raises CycleError


def test_layout_stands_alone() -> None:
    assert not [
        str(i)
        for i in every_import()
        if _part(i.module) == "layout" and i.name.startswith("argus.") and not i.name.startswith("argus.layout")
    ]


@pytest.mark.parametrize("library", PRIVATE)
def test_solvers_and_parsers_have_one_door(library: str) -> None:
    users = {i.module for i in every_import() if i.name.split(".")[0] == library and not i.late}
    assert users <= PRIVATE[library]


@pytest.mark.parametrize("library", ["torch", "cuda", "triton"])
def test_heavy_libraries_are_imported_late(library: str) -> None:
    early = {i.module for i in every_import() if i.name.split(".")[0] == library and not i.late}
    early = {module for module in early if _part(module) not in ("torch", "graph", "layers")}
    assert not early


def test_the_environment_is_read_in_one_file() -> None:
    readers = {
        module
        for module, tree in modules().items()
        if any(
            isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb", "putenv")
            for node in ast.walk(tree)
        )
    }
    assert readers <= {"argus.environment"}
