"""The benchmarks run, and their tables say what they claim; figures are not tested."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from argus.diagnostic import Diagnostic, LaunchError
from argus.mutate import unspecified
from benchmarks import __main__, cold, gemm, measure, mutants, trust, verify
from benchmarks.machine import digest, machine, sources
from benchmarks.table import Results, show
from tests.kernels.test_on_the_host import KERNELS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_a_table_goes_to_the_terminal_and_to_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"what": "kernel[grid](...)", "us": 3.25}, {"what": "other", "us": None}]
    show(Results("Title", rows, ("a note [of 3]",), {"the mean": 3.5}), tmp_path / "t.json")
    printed = capsys.readouterr().out
    assert (
        "kernel[grid](...)" in printed
        and "3.25" in printed
        and "–" in printed
        and "a note [of 3]" in printed
        and "the mean: 3.5" in printed
    )
    written = json.loads((tmp_path / "t.json").read_text())
    assert written["rows"] == rows and written["summary"] == {"the mean": 3.5}
    assert written["machine"] == machine()
    assert written["argus"] == sources() and re.fullmatch(r"[0-9a-f]{12}", written["argus"]["sources"])


def test_a_table_that_goes_to_a_file_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    heads = [f"a column with number {n}" for n in range(12)]
    show(Results("Title", [dict.fromkeys(heads, 1.5)]), None)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if heads[0] in line]
    assert all(head in line for head in heads)


def test_the_digest_of_the_sources_is_that_of_their_copy(tmp_path: Path) -> None:
    there, copied = tmp_path / "there", tmp_path / "copied"
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "page.py").write_text("page")
    (there / "inner").mkdir(parents=True)
    (there / "a.py").write_text("a = 1")
    (there / "inner" / "b.h").write_text("int b;")
    (there / "errors").symlink_to(tmp_path / "pages")
    shutil.copytree(there, copied)
    (copied / "__pycache__").mkdir()
    (copied / "__pycache__" / "a.pyc").write_bytes(b"1")
    assert digest(there) == digest(copied)
    (copied / "inner" / "b.h").write_text("int c;")
    assert digest(there) != digest(copied)


@pytest.mark.parametrize(
    "command",
    ["gemm --shapes 1x1x1", "gemm --quick", "attention --shapes x", "memory --shapes x"],
)
def test_shapes_are_drawn_or_given(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", *command.split(), "--drawn", "3"])
    with pytest.raises(SystemExit):
        __main__.main()
    assert "not allowed with" in capsys.readouterr().err


def test_launch_measures_what_needs_no_gpu(require_tool: Any) -> None:
    torch = pytest.importorskip("torch")
    require_tool("g++", "clang++", "c++")
    from benchmarks import launch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    rows = launch.run(256, 10).rows
    assert [row["what"] for row in rows] == ["argus, empty grid", "torch.add(..., out=), no elements"]
    assert all(row["median us"] >= row["least us"] > 0 for row in rows)  # type: ignore[operator]


def test_a_cold_start_has_its_steps(monkeypatch: pytest.MonkeyPatch, require_tool: Any) -> None:
    require_tool("g++", "clang++", "c++")
    monkeypatch.setattr(cold, "_RUNS", 1)
    monkeypatch.chdir(ROOT)
    rows = cold.run("cpu").rows
    assert [row["step"] for row in rows][:2] == ["all, from the start of Python", "start of Python"]
    assert [row["step"] for row in rows][4:] == ["parse", "check", "lower", "prove", "emit", "compile to machine code"]
    assert all(row["ms"] > 0 and row["cpu ms"] > 0 for row in rows)  # type: ignore[operator]


def test_verify_has_a_row_for_each_property_and_a_total(tmp_path: Path) -> None:
    for name in ("vector_add.py", "gemm_waves.py"):  # the second is for another machine
        shutil.copy(ROOT / "examples" / name, tmp_path)
    found = verify.run("sm_80", [tmp_path])
    rows = found.rows
    assert any(note.startswith("not measured: gemm_waves: ") for note in found.notes)
    assert {row["kernel"] for row in rows} == {"vector_add"}
    properties = [str(row["property"]) for row in rows]
    assert properties[:2] == ["front end", "passes"]
    assert properties[-2:] == ["total: proved", "from the cache"]
    assert rows[-2]["ms"] > 0 and rows[-2]["cpu ms"] > 0  # type: ignore[operator]
    assert {"bounds", "races", "tags"} <= set(properties)


def test_shapes_and_kernels_are_read() -> None:
    assert gemm.cases_of("1x2x3,64x4096x4096:fp8") == (gemm.Case(1, 2, 3), gemm.Case(64, 4096, 4096, "fp8"))
    assert gemm.cases_of("1x2x3:tf32:nn") == (gemm.Case(1, 2, 3, "tf32", "nn"),)
    config = gemm.config_of("gemm:BLOCK_M=128, STAGES=4")
    assert (config.kernel, config.constants) == ("gemm", {"BLOCK_M": 128, "STAGES": 4})
    assert str(config) == "gemm:BLOCK_M=128,STAGES=4"
    assert str(gemm.config_of("gemm")) == "gemm"
    for bad in ("1x2", "axbxc", "", "1x2x3:fp9", "1x2x3:fp8:xy", "1x2x3:fp8:nn:more"):
        with pytest.raises(ValueError):
            gemm.cases_of(bad)
    with pytest.raises(ValueError):
        gemm.config_of("gemm:BLOCK_M")


def test_a_kernel_that_does_not_fit_leaves_its_reason() -> None:
    torch = pytest.importorskip("torch")

    def right(a: Any, b: Any, c: Any) -> None:
        torch.mm(a, b.t(), out=c)

    def incomplete(a: Any, b: Any, c: Any) -> None:
        right(a, b, c)
        c[-1, -1] = float("nan")

    def refused(a: Any, b: Any, c: Any) -> None:
        raise LaunchError(Diagnostic("launch-refused", "too large"))

    def batch(product: gemm.Product, sets: Any) -> float:
        product(*sets[0])
        return 2e-6 if product is incomplete else 1e-6

    products = {"incomplete": incomplete, "refused": refused, gemm.LIBRARY: right}
    rows, notes = gemm.rows_of(torch, "cpu", gemm.Case(30, 20, 40), products, 3, batch)
    first, second = rows
    assert (first["kernel"], first["us"], first["library us"], first["speed / library"]) == ("incomplete", 2, 1, 0.5)
    assert math.isnan(first["error"]) and 0 < first["library error"] < 0.02  # type: ignore[arg-type,operator]
    assert first["TFLOP/s"] == pytest.approx(2e-12 * 30 * 20 * 40 / 2e-6)
    assert (second["kernel"], second["us"], second["error"], second["library us"]) == ("refused", None, None, 1)
    (note,) = notes
    assert note.startswith("refused at 30x20x40:bf16:nt:") and "too large" in note


@pytest.mark.parametrize(
    "case", [*(gemm.Case(9, 8, 16, dtype) for dtype in gemm.DTYPES), gemm.Case(9, 8, 16, "bf16", "tn")]
)
def test_operands_of_all_dtypes_and_layouts(case: gemm.Case) -> None:
    torch = pytest.importorskip("torch")
    places: list[tuple[bool, bool]] = []

    def product(a: Any, b: Any, c: Any) -> None:
        places.append((a.stride(1) == 1, b.stride(1) == 1))
        c.copy_(a.float() @ b.float().t())

    (row,), notes = gemm.rows_of(torch, "cpu", case, {"it": product, gemm.LIBRARY: product}, 1, lambda *_: 1e-6)
    assert not notes and float(row["error"] or 1) < 0.02  # type: ignore[arg-type]
    assert set(places) == {(case.layout[0] == "n", case.layout[1] == "t")}


def test_means_are_geometric_and_over_what_was_measured() -> None:
    rows = [{"kernel": k, "speed": s} for k, s in (("x", 0.5), ("x", 2.0), ("x", None), ("y", None), ("z", 8.0))]
    assert measure.means(rows, "speed") == {"speed, 3 cases, geometric mean": pytest.approx(2.0)}
    assert measure.means(rows, "speed", "kernel") == {
        "x: speed, 2 cases, geometric mean": pytest.approx(1.0),
        "z: speed, 1 cases, geometric mean": pytest.approx(8.0),
    }


def test_sides_take_turns() -> None:
    order: list[str] = []
    figures = {"a": iter((1.0, 9.0, 2.0) * 4), "b": iter((4.0, 5.0, 6.0) * 4)}

    def run(name: str) -> float:
        order.append(name)
        return next(figures[name])

    assert measure.in_turns({"a": lambda: run("a"), "b": lambda: run("b")}, 12) == {"a": 2.0, "b": 5.0}
    rounds = list(zip(order[::2], order[1::2], strict=True))
    assert set(rounds) == {("a", "b"), ("b", "a")}, "each side once a round, in no fixed order"


def test_what_cannot_be_run_does_not_stop_the_others() -> None:
    pytest.importorskip("torch")

    def rows_of(case: int) -> tuple[list[measure.Row], list[str]]:
        return [{"inverse": 1 / case}], []

    rows, notes = measure.through((2, 0, 4), rows_of, str)
    assert rows == [{"inverse": 0.5}, {"inverse": 0.25}]
    assert notes == ["0: ZeroDivisionError: division by zero"]


def test_operands_rotate() -> None:
    torch = pytest.importorskip("torch")
    first, second = measure.rotating(lambda: (torch.zeros(3), 5), "cpu")
    assert first[0].data_ptr() != second[0].data_ptr() and first[1] == 5


@pytest.mark.parametrize("shape", [(16, 2**13, 2**13), (200, 2**20, 2**10), (1000, 300, 50)])
def test_all_rows_of_small_products_are_compared(shape: gemm.Shape) -> None:
    torch = pytest.importorskip("torch")
    assert gemm.sampled(torch, shape).tolist() == list(range(shape[0]))


@pytest.mark.parametrize("m", [257, 1000, 16384])
def test_sampled_rows_are_of_all_bands(m: int) -> None:
    torch = pytest.importorskip("torch")
    rows = gemm.sampled(torch, (m, 2**14, 2**14)).tolist()
    assert len(set(rows)) == gemm.SAMPLED_ROWS
    for i, row in enumerate(rows):
        assert i * m // gemm.SAMPLED_ROWS <= row < (i + 1) * m // gemm.SAMPLED_ROWS


def test_cases_of_memory_kernels_are_read() -> None:
    pytest.importorskip("torch")
    from benchmarks import memory

    text = "softmax bfloat16 16384 4096\n\n# nothing\nrmsnorm float32 7 9  # odd\n"
    assert memory.cases_of(text) == (
        memory.Case("softmax", "bfloat16", 16384, 4096),
        memory.Case("rmsnorm", "float32", 7, 9),
    )
    for bad in ("softmax bfloat16 16384", "soft bfloat16 1 1", "softmax bfloat16 x 1"):
        with pytest.raises(ValueError):
            memory.cases_of(bad)


def test_every_memory_kernel_and_its_peer_meet_the_exact_result(require_tool: Any) -> None:
    pytest.importorskip("torch")
    require_tool("g++", "clang++", "c++")
    from benchmarks import memory

    for name in memory.KERNELS:
        case = memory.Case(name, "float32", 3, 20)
        row, problems = memory.row_of("cpu", case, memory.own_sides(case), 1, lambda *_: 1e-6, 4.0)
        assert not problems
        least = 0.1 if name == "quantize" else 1e-5
        assert float(row["error"] or 0) < least and float(row["eager error"] or 0) < least  # type: ignore[arg-type]
        assert row["speed / best peer"] == 1.0 and row["compile TB/s"] is None


def test_a_memory_kernel_that_cannot_run_leaves_its_reason() -> None:
    pytest.importorskip("torch")
    from benchmarks import memory

    def wrong(*_: Any) -> None:
        raise LaunchError(Diagnostic("shape-mismatch", "not here"))

    case = memory.Case("softmax", "float32", 3, 20)
    row, problems = memory.row_of("cpu", case, {memory.OURS: wrong}, 1, lambda *_: 1e-6, 4.0)
    assert row["TB/s"] is None and row["error"] is None
    assert len(problems) == 1 and "not here" in problems[0]


def test_cases_of_attention_are_read() -> None:
    from benchmarks import attention

    (case,) = attention.cases_of("# heads\nbfloat16 2 32 8 64 128 64 causal  # shared\n")
    assert str(case) == "bfloat16 2 32 8 64 128 64 causal"
    assert case.operations == 4 * 2 * 32 * 64 * sum(range(65, 129))
    assert attention.cases_of("float16 1 1 1 3 2 64 causal")[0].operations == 4 * 64 * 3
    for bad in ("bfloat16 2 32 8 64 128 64", "bfloat16 2 32 8 64 128 64 half", "bfloat16 a 32 8 64 128 64 full"):
        with pytest.raises(ValueError):
            attention.cases_of(bad)


def test_attention_has_a_row_whatever_its_peers_do() -> None:
    torch = pytest.importorskip("torch")
    from benchmarks import attention

    def failing() -> attention.Side:
        raise ValueError("not on this machine\nat all")

    def batch(call: Any, sets: Any) -> float:
        return 1e-3 * len(call(*sets[0]))

    right = attention.Side(torch.nn.functional.scaled_dot_product_attention, batch=batch)
    case = attention.Case("bfloat16", 1, 2, 2, 5, 7, 64, False)
    makers = {attention.OURS: lambda: right, attention.CUDNN: lambda: right, attention.FLASH: failing}
    row, problems = attention.row_of("cpu", case, makers, 2)
    assert row["speed / cuDNN"] == row["speed / best"] == 1.0 and row["flash TFLOP/s"] is None
    assert isinstance(row["error"], float) and 0 < row["error"] < 0.1
    assert problems == [f"flash at {case}: ValueError: not on this machine"]


def test_pictures_follow_the_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The pictures that the documents show are those of the figures that are kept."""
    from benchmarks import plot

    monkeypatch.chdir(Path(__file__).parents[2])
    kept = {p.name: p.read_text(encoding="utf-8") for p in plot.PICTURES.glob("*.svg")}
    monkeypatch.setattr(plot, "PICTURES", tmp_path)
    assert {p.name: p.read_text(encoding="utf-8") for p in plot.draw()} == kept


def test_tables_follow_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import page

    monkeypatch.chdir(Path(__file__).parents[2])
    kept = "".join(p.read_text(encoding="utf-8") for p in page.PAGES)
    assert kept.count("<!-- table ") == len(page.TABLES)
    assert page.with_tables(kept) == kept
    assert page.with_tables(kept.replace("**1.0", "**9.9")) == kept


def test_a_table_says_what_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from benchmarks import page

    monkeypatch.setattr(page, "RESULTS", tmp_path)
    content = {"rows": [{"what": "x", "median us": 1.0}], "argus": {"sources": "0123", "commit": "abcd"}}
    (tmp_path / "launch-h200.json").write_text(json.dumps(content))
    written = page.with_tables("Before\n\n<!-- table launch -->\n\nAfter\n")
    expected = "| what | µs |\n|---|---|\n| `x` | 1.0 |\n\nMeasured with sources `0123`, commit `abcd`.\n\nAfter\n"
    assert written == "Before\n\n<!-- table launch -->\n" + expected
    assert page.with_tables(written) == written
    (tmp_path / "launch-h200.json").write_text(json.dumps({"rows": content["rows"]}))
    assert "Measured" not in page.with_tables(written)


def test_drawn_cases_are_those_of_their_seed_and_such_that_all_sides_compute() -> None:
    pytest.importorskip("torch")
    from benchmarks import drawn
    from benchmarks.memory_kernels import KERNELS

    for draw in (drawn.products, drawn.attentions, drawn.memories):
        assert draw(200, 3) == draw(200, 3) and draw(200, 3)[:5] == draw(5, 3) != draw(5, 4)
    products = drawn.products(500, 1)
    assert {c.dtype for c in products} == set(gemm.DTYPES) and {c.layout for c in products} == set(gemm.LAYOUTS)
    assert all(c.n % 16 == c.k % 16 == 0 and c.layout == "nt" for c in products if c.dtype == "fp8")
    assert any(c.m <= 16 for c in products) and any(c.k % 2 for c in products)
    heads = drawn.attentions(500, 1)
    assert all(c.rows == c.keys or not c.causal for c in heads) and any(c.rows != c.keys for c in heads)
    assert all(c.heads % c.shared == 0 for c in heads)
    rows = drawn.memories(500, 1)
    assert {c.kernel for c in rows} == set(KERNELS) and any(c.columns % 2 for c in rows)
    assert all(c.rows > 0 and c.rows * c.columns <= 2**27 for c in rows)


def test_static_conflicts() -> None:
    """A transposition without a swizzle conflicts as its layout says; with one it does not."""
    from benchmarks.conflicts import CASES, static

    counts = {case.name: static(case) for case in CASES if case.name.startswith("transpose")}
    assert counts["transpose"] == {"ld": (4096, 4096), "st": (4096, 4096)}
    assert counts["transpose_rows"] == {"ld": (32768, 4096), "st": (4096, 4096)}


def test_mutants_are_judged_once_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (subject,) = (s for s in mutants.SUBJECTS if s.kernel == "vector_add")
    sample = mutants.Sample(1, 3, 60.0, tmp_path)
    mutants.judge(sample, subject, 0)
    (file,) = tmp_path.iterdir()
    written = file.read_text()
    mutants.judge(sample, subject, 0)
    assert file.read_text() == written and len(written.splitlines()) == 3
    found = mutants.counted(sample, [subject])
    rows = {(row["by"], row["what"]): row for row in found.rows}
    assert rows["kernel", subject.title]["mutants"] == rows["kernel", "all"]["mutants"] == 3
    outcomes = [sum(int(str(rows["class", "all"][o])) for o in ("killed", "equivalent", "missed", "unknown"))]
    assert outcomes == [3] and found.notes == ()
    file.write_text(written.replace(sources()["sources"], "0" * 12))
    assert mutants.counted(sample, [subject]).notes == (f"not finished: {subject.title}, 0 of 3",)


def test_all_kernels_that_ship_have_mutants() -> None:
    judged = {(s.file, s.kernel) for s in mutants.SUBJECTS}
    files = [*(ROOT / "argus" / "kernels").glob("*.py"), *(ROOT / "examples").glob("*.py")]
    shipped = {
        (str(file.relative_to(ROOT)), found[1])
        for file in files
        for found in re.finditer(r"^@argus\.kernel.*\ndef (\w+)", file.read_text(), re.MULTILINE)
    }
    assert judged == shipped
    assert len({s.title for s in mutants.SUBJECTS}) == len(mutants.SUBJECTS)


def test_all_outputs_of_examples_are_specified(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of the kernel that the host has no products for; see `tests/kernels/test_on_the_host.py` for the others."""
    monkeypatch.chdir(ROOT)
    kernels = {(s.file, s.kernel): s for s in mutants.SUBJECTS if s.kernel not in KERNELS}
    assert kernels and not any(unspecified(s.explicit()) for s in kernels.values())


def test_classes_hold_each_product_once_and_tell_of_those_that_are_behind() -> None:
    from benchmarks import classes, drawn

    rows = [{**vars(case), "M": case.m, "N": case.n, "K": case.k} for case in drawn.products(300, 5)]
    *apart, everything = classes.PRODUCTS.values()
    assert all(sum(holds(i, row) for holds in apart) == 1 and everything(i, row) for i, row in enumerate(rows))
    found = classes.means(
        classes.Area("ratio", {"even": lambda i, r: i % 2 == 0, "none": lambda i, r: False}),
        [{"ratio": 4.0}, {"ratio": 9.0}, {"ratio": None}, {"ratio": 9.0}, {"ratio": 0.25}],
    )
    assert found == [{"class": "even", "cases": 2, "mean": 1.0, "median": 2.125, "worst": 0.25, "behind": 1}]


def test_second_opinions_go_on_from_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of these sources and this limit count; half a line, and rows of other sources, do not."""
    some, other = mutants.SUBJECTS[-2:]

    def row(title: str, verdict: str) -> trust.Row:
        counts: trust.Row = dict.fromkeys(("asked", "agreed", "undecided", "disagreed"), 2)
        return {"what": title, "target": "cpu", "verdict": verdict, "exact": verdict, **counts, "s": 1.0,
                "exact s": 1.0, "why": ""}  # fmt: skip

    asked: list[str] = []

    def judged(subjects: Any, jobs: int, seconds: float, kept: trust.Kept) -> list[trust.Row]:
        asked.extend(subject.title for subject in subjects)
        for subject in subjects:
            kept.add(row(subject.title, "unknown"))
        return [row(subject.title, "unknown") for subject in subjects]

    monkeypatch.setattr(trust, "_judged", judged)
    kept = trust.Kept(tmp_path / "rows.jsonl", 60.0)
    kept.add(row(some.title, "proved"))
    trust.Kept(tmp_path / "rows.jsonl", 1.0).add(row(other.title, "proved"))
    with kept.file.open("a", encoding="utf-8") as file:
        file.write('{"of": {"sources": "x"}\n')
    for _ in range(2):
        found = trust.run(1, 5.0, 60.0, tmp_path, (some, other))
        assert [r["verdict"] for r in found.rows] == ["proved", "unknown", "1 of 2 proved"]
        assert found.rows[-1]["asked"] == 4
    assert asked == [other.title]
