"""Helpers and constants from elsewhere: from files, packages, other cells of a notebook, and functions around."""

from __future__ import annotations

import linecache
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import argus
import argus.language as al
from argus.backend.fingerprint import file_from_json, file_to_json
from argus.diagnostic import Diagnostic, SourceError
from argus.frontend import Options, check, parse
from argus.frontend.decorator import FuncSource
from argus.frontend.decorator import kernel as source_of
from argus.frontend.linking import MAX_FILES, linked
from argus.ir.nodes import Kernel
from argus.ir.text import print_kernel
from argus.source import SourceFile

KERNEL = """
import argus
import argus.language as al
{imports}

@argus.kernel(num_warps=1)
def k(x: al.Tensor[al.float32, "32"]):
    i = al.grid(1) + al.arange(32)
    al.store(x[i], {value})
"""
HELPERS = """
import argus
import argus.language as al

FACTOR = 3.0
{more}

@argus.func
def scaled(v):
    return {value}
"""


def elaborate(source: SourceFile) -> Kernel:
    return check(parse(source), "k", Options(target="cpu"))


def written(folder: Path, **files: str) -> SourceFile:
    """Write modules, dots as `_`, and give the kernel's file."""
    for name, text in files.items():
        place = folder / (name.replace("__", "/").replace("INIT", "__init__") + ".py")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return SourceFile(str(folder / "k.py"), files["k"])


def kernel(imports: str, value: str) -> str:
    return KERNEL.format(imports=imports, value=value)


def helpers(value: str = "v * FACTOR", more: str = "") -> str:
    return HELPERS.format(value=value, more=more)


def refused(source: SourceFile) -> Diagnostic:
    with pytest.raises(SourceError) as caught:
        elaborate(source)
    (found,) = caught.value.diagnostics
    return found


@pytest.mark.parametrize(
    ("imports", "value"),
    [
        ("from helpers import scaled", "scaled(al.load(x[i]))"),
        ("from helpers import (\n    FACTOR,\n    scaled as s,\n)", "s(al.load(x[i])) * FACTOR"),
        ("import helpers", "helpers.scaled(al.load(x[i])) * helpers.FACTOR"),
        ("import helpers as h", "h.scaled(al.load(x[i]))"),
        ("try:\n    from helpers import scaled\nexcept ImportError:\n    pass", "scaled(al.load(x[i]))"),
    ],
)
def test_a_file_beside_the_kernel_is_read(tmp_path: Path, imports: str, value: str) -> None:
    source = written(tmp_path, helpers=helpers(), k=kernel(imports, value))
    assert "3.0" in print_kernel(elaborate(source))


@pytest.mark.parametrize(
    ("imports", "value"),
    [
        ("from .inner import scaled", "scaled(al.load(x[i]))"),
        ("from . import scaled", "scaled(al.load(x[i]))"),
        ("from . import inner", "inner.scaled(al.load(x[i]))"),
        ("from ..other import doubled", "doubled(al.load(x[i]))"),
        ("from top.other import doubled", "doubled(al.load(x[i]))"),
        ("import top.pack.inner", "top.pack.inner.scaled(al.load(x[i]))"),
    ],
)
def test_packages_and_relative_imports(tmp_path: Path, imports: str, value: str) -> None:
    written(
        tmp_path,
        top__INIT="",
        top__other=helpers("inner.scaled(v) + v", "from .pack import inner").replace("scaled(v):", "doubled(v):"),
        top__pack__INIT="from .inner import scaled",
        top__pack__inner=helpers(),
        k="",
    )
    source = SourceFile(str(tmp_path / "top" / "pack" / "k.py"), kernel(imports, value))
    Path(source.path).write_text(source.text)
    assert "3.0" in print_kernel(elaborate(source))


def test_modules_are_found_on_pythons_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far_helpers.py").write_text(helpers())
    text = kernel("from far_helpers import scaled", "scaled(al.load(x[i]))")
    assert refused(SourceFile("<text>", text)).code == "unknown-import"
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "3.0" in print_kernel(elaborate(SourceFile("<text>", text)))


def test_a_helper_is_handed_to_another(tmp_path: Path) -> None:
    imports = "from helpers import scaled\n\n@argus.func\ndef twice(f, v):\n    return f(f(v))\n"
    text = kernel(imports, "twice(scaled, al.load(x[i]))")
    source = written(tmp_path, helpers=helpers(), k=text)
    assert print_kernel(elaborate(source)).count("3.0") == 2


def test_nothing_of_an_imported_file_runs(tmp_path: Path) -> None:
    source = written(tmp_path, helpers=helpers(more="raise SystemExit(3)"), k=kernel("from helpers import scaled",
                     "scaled(al.load(x[i]))"))  # fmt: skip
    assert "3.0" in print_kernel(elaborate(source)) and "helpers" not in sys.modules


def test_messages_name_the_file_where_a_helper_stands(tmp_path: Path) -> None:
    source = written(
        tmp_path, helpers=helpers("al.exq(v)"), k=kernel("from helpers import scaled", "scaled(al.load(x[i]))")
    )
    found = refused(source)
    assert found.code == "unknown-function" and found.span.file is not None and found.span.call is not None
    assert found.span.file.path == str(tmp_path / "helpers.py") and found.span.line == 10
    assert found.span.call.file is not None and found.span.call.file.path == source.path


@pytest.mark.parametrize(
    ("files", "imports", "code", "words"),
    [
        ({}, "from nowhere import scaled", "unknown-import", "no file of the module `nowhere`"),
        ({"helpers": helpers()}, "from helpers import scald as scaled", "unknown-import", "has no helper"),
        ({"helpers": "scaled = [1.0]"}, "from helpers import scaled", "not-constant", "computed by Python"),
        ({"helpers": "from k import scaled"}, "from helpers import scaled", "unknown-import", "leads back"),
        ({"helpers": "from other import scaled", "other": "from helpers import scaled"},
         "from helpers import scaled", "unknown-import", "leads back"),
        ({"helpers": helpers("back(v)", "from other import back"),
          "other": "import argus\nfrom helpers import scaled\n\n@argus.func\ndef back(v):\n    return scaled(v)\n"},
         "from helpers import scaled", "unknown-import", "leads back"),
        ({"helpers": helpers()}, "from helpers import scaled\n@argus.func\ndef scaled(v):\n    return v\n",
         "name-clash", "defined in this file as well"),
        ({"helpers": helpers("scaled(v)")}, "from helpers import scaled", "recursive-function", "calls itself"),
        ({"helpers": "def scaled(v):\n    return v"}, "from helpers import scaled", "unknown-import", "no helper"),
    ],
)  # fmt: skip
def test_mistakes_have_one_located_message(
    tmp_path: Path, files: dict[str, str], imports: str, code: str, words: str
) -> None:
    found = refused(written(tmp_path, **files, k=kernel(imports, "scaled(al.load(x[i]))")))
    assert found.code == code and words in found.message and found.span.known and found.help
    twin = written(tmp_path, helpers=helpers(), k=kernel("from helpers import scaled", "scaled(al.load(x[i]))"))
    assert "3.0" in print_kernel(elaborate(twin))


def test_files_that_import_each_other_for_different_helpers_are_right(tmp_path: Path) -> None:
    source = written(
        tmp_path,
        helpers=helpers("other.back(v) * FACTOR", "import other"),
        other="import argus\nfrom helpers import FACTOR\n\n@argus.func\ndef back(v):\n    return v + FACTOR\n",
        k=kernel("from helpers import scaled", "scaled(al.load(x[i]))"),
    )
    assert print_kernel(elaborate(source)).count("3.0") == 2


def test_helpers_of_one_text_in_two_files_are_two_helpers(tmp_path: Path) -> None:
    text = "import argus\nfrom {} import step\n\n@argus.func\ndef again(v):\n    return step(v)\n"
    source = written(
        tmp_path,
        first=text.format("second").replace("step\n", "again as step\n"),
        second=text.format("helpers").replace("step\n", "scaled as step\n"),
        helpers=helpers(),
        k=kernel("from first import again", "again(al.load(x[i]))"),
    )
    assert "3.0" in print_kernel(elaborate(source))


def test_many_imports_end(tmp_path: Path) -> None:
    for n in range(12):
        inner = f"from m{n + 1} import f as g, f as h\n\n" if n < 11 else ""
        body = "g(v) + h(v)" if n < 11 else "v"
        (tmp_path / f"m{n}.py").write_text(f"import argus\n{inner}@argus.func\ndef f(v):\n    return {body}\n")
    source = written(tmp_path, k=kernel("from m0 import f", "f(al.load(x[i]))"))
    with pytest.raises(SourceError) as caught:
        elaborate(source)
    assert {d.code for d in caught.value.diagnostics} == {"unknown-import"}
    assert str(MAX_FILES) in caught.value.diagnostics[0].message


def test_a_digest_covers_what_is_imported(tmp_path: Path) -> None:
    files = {"k": kernel("from helpers import scaled", "scaled(al.load(x[i]))")}
    first = linked(written(tmp_path, helpers=helpers(), **files))
    again = linked(written(tmp_path, helpers=helpers(), **files))
    other = linked(written(tmp_path, helpers=helpers("v * FACTOR + 1.0"), **files))
    assert first.digest == again.digest != other.digest
    assert linked(first) is first and file_from_json(file_to_json(first)) == first


# ---------------------------------------------------------------------------- names of the Python program


def around(BLOCK: int, dtype: Any, function: FuncSource) -> Any:
    factor = 2.5

    @source_of
    def k(x: al.Tensor[dtype, "N"]):
        i = al.grid(al.cdiv(N, BLOCK)) * BLOCK + al.arange(BLOCK)
        al.store(x[i], function(al.load(x[i], mask=i < N)) * factor, mask=i < N)

    return k


FACTOR = 100.0


@argus.func
def plus(v):
    return v + FACTOR


def test_a_nested_kernel_sees_the_constants_and_helpers_of_the_function_around() -> None:
    text = print_kernel(elaborate(around(64, al.float32, plus).file))
    assert "2.5" in text and "100.0" in text and "64" in text
    assert "float16" in print_kernel(check(parse(around(32, al.float16, twice_of(2.0)).file), "k", Options()))
    digests = {around(block, al.float32, plus).file.digest for block in (32, 64, 64)}
    assert len(digests) == 2


def twice_of(number: float) -> FuncSource:
    @argus.func
    def twice(v):
        return (v.to(al.float32) * number).to(al.float16)

    return twice


def test_what_is_no_constant_of_the_function_around_is_named() -> None:
    numbers = [1.0]

    @source_of
    def k(x: al.Tensor[al.float32, "32"]):
        al.store(x[al.arange(32)], numbers)

    found = refused(k.file)
    assert found.code == "unknown-name" and "`numbers` of the function around is a list" in found.message


def cell(text: str, names: dict[str, Any], number: int) -> None:
    """Run a text as a notebook runs a cell."""
    path = f"<cell {number}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    exec(compile(text, path, "exec"), names)


CELLS = [
    "import argus\nimport argus.language as al\nimport numpy as np\nFACTOR = 3.0\n",
    "OFFSET = 0.5\n\n@argus.func\ndef scaled(v):\n    return v * FACTOR + OFFSET\n",
    '@argus.kernel(num_warps=1)\ndef k(x: al.Tensor[al.float32, "32"]):\n    i = al.grid(1) + al.arange(32)\n'
    "    al.store(x[i], scaled(al.load(x[i])))\n",
]


def test_cells_see_helpers_and_constants_of_other_cells() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, text in enumerate(CELLS):
        cell(text, names, number)
    x = np.arange(32, dtype=np.float32)
    names["k"](x)
    assert x.tolist() == [3.0 * v + 0.5 for v in range(32)]
    cell("FACTOR = 5.0", names, 3)
    cell(CELLS[1], names, 1)
    cell(CELLS[2], names, 2)
    x = np.ones(32, dtype=np.float32)
    names["k"](x)
    assert x.tolist() == [5.5] * 32


def test_a_cell_run_again_replaces_its_own_helper() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    whole = CELLS[0] + CELLS[1] + CELLS[2]
    cell(whole, names, 0)
    cell(whole.replace("+ OFFSET", "- OFFSET"), names, 0)
    x = np.ones(32, dtype=np.float32)
    names["k"](x)
    assert x.tolist() == [2.5] * 32


def test_imported_modules_of_python_are_read_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    value = "far.scaled(al.load(x[i])) + FACTOR"
    written(tmp_path, far=helpers(), k=kernel("import far\nfrom far import FACTOR", value))
    module = ModuleType("k")
    path = str(tmp_path / "k.py")
    exec(compile(Path(path).read_text(), path, "exec"), vars(module))
    copied = pickle.loads(pickle.dumps(module.k))
    (tmp_path / "far.py").unlink()
    x = np.ones(32, dtype=np.float32)
    copied(x)
    assert x.tolist() == [6.0] * 32
    sys.modules.pop("far", None)


def test_a_star_names_nothing() -> None:
    text = KERNEL.format(imports="from helpers import *", value="norm(al.load(x[i]))")
    with pytest.raises(SourceError, match=r"`from helpers import \*` names nothing") as error:
        check(parse(SourceFile("k.py", text)), "k", Options())
    assert [(d.code, d.help) for d in error.value.diagnostics] == [
        ("unknown-import", "name what is used: `from helpers import norm`")
    ]
    unused = KERNEL.format(imports="from helpers import *", value="al.load(x[i])")
    assert check(parse(SourceFile("k.py", unused)), "k", Options()).name == "k"


PRODUCT = """
import argus
import argus.language as al

@argus.func
def step(a, b, acc):
    return al.mma(a, b, acc)

@argus.func
def outer(a, b, acc):
    return step(a, b, acc)

@argus.kernel
def k(a: al.Tensor[al.float16, "64 64"], b: al.Tensor[al.float16, "64 64"], c: al.Tensor[al.float32, "64 64"]):
    p = al.grid(1)
    acc = al.zeros((64, 64), al.float32)
    for k0 in range(0, 64, 32):
        at, bt = al.load(a[:, k0 : k0 + 32]), al.load(b[:, k0 : k0 + 32])
        {target} = {call}
    al.store(c[p : p + 64, :], acc)
"""


@pytest.mark.parametrize("call", ["step(at, bt, acc)", "outer(at, bt, acc)"])
def test_a_helpers_product_accumulates_in_place(call: str) -> None:
    def made(target: str) -> list[str]:
        kernel = check(parse(SourceFile("k.py", PRODUCT.format(target=target, call=call))), "k", Options())
        return [fragment.name for fragment in kernel.fragments if fragment.shape == (64, 64)]

    assert made("acc") == ["acc"]
    assert len(made("other")) == 2
