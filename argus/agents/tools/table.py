"""The tools: functions from texts and numbers to JSON. They read no files of the user and run no text as Python.

A text comes from a stranger: it may import from `argus.kernels`, and from no other file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from argus import compile, layout, mutate, pages
from argus.agents.imported import foreign
from argus.agents.invariants import annotated, annotated_json
from argus.agents.optimize import Folder, Limits, Run, as_json, place_of_timing, problem_of
from argus.agents.optimize.examine import predicted
from argus.agents.repair import repair, repair_json
from argus.agents.task import changed_task, specialised
from argus.agents.verifier import Task, judge, judgement_json, lowered
from argus.diagnostic import ArgusError, Diagnostic
from argus.frontend import Options
from argus.frontend.linking import linked
from argus.ir.text import print_kernel
from argus.knowledge import applicable, entries, entry_json, facts_of, reasons, search
from argus.layout import LayoutError, picture
from argus.render import Json, diagnostics_text
from argus.simulate import NotReplayable, simulate
from argus.simulate.sizes import size_vectors
from argus.source import SourceFile
from argus.work import LIMIT_S

PATH = "kernel.py"
MOST_TEXT, MOST_SIZE = 200_000, 2**31 - 1
"""The most characters of a text, and the largest size of a tensor, that a tool accepts."""

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: its function, its description, and the seconds after which its process is ended."""

    function: Callable[..., Any]
    description: str
    limit_s: float = 120.0


def _task(text: str, kernel: str, target: str, form: str = "python") -> Task:
    """Find the kernel of a text; without a name, its only kernel. `form` "ir": the text is what `show` returned.

    Raises `ArgusError`.
    """
    if form not in ("python", "ir"):
        raise _unusable(f"there is no form {form!r}", "the forms are python and ir")
    if form == "ir":
        return Task(SourceFile(f"{kernel or 'kernel'}.ir", text), kernel or "kernel")
    source = linked(SourceFile(PATH, text), files=False)
    names = compile.kernels(source)
    if kernel and kernel not in names:
        raise _unusable(f"there is no kernel `{kernel}`", f"the kernels are {', '.join(names)}")
    if not kernel and len(names) > 1:
        raise _unusable(f"the text has {len(names)} kernels", f"name one of {', '.join(names)}")
    return Task(source, kernel or names[0], Options(target=target))


def _explicit(text: str, kernel: str, target: str) -> compile.ExplicitKernel:
    task = _task(text, kernel, target)
    return compile.lower(compile.elaborate(task.source, task.name, Options(target=target)), target)


def _sizes(sizes: Sizes | None) -> dict[str, int]:
    """Return the sizes of a call. Raises `ArgusError` for numbers that are no sizes of a tensor."""
    for name, value in (sizes or {}).items():
        if not isinstance(value, int) or not 0 <= value <= MOST_SIZE:
            raise _unusable(f"`{name}` cannot be {str(value)[:40]}", f"a size is an integer from 0 to {MOST_SIZE}")
    return dict(sizes or {})


def _unusable(message: str, help: str) -> ArgusError:
    return ArgusError(Diagnostic("bad-option", message, property="input", help=help))


def check(text: str, kernel: str = "", target: str = "sm_80", form: str = "python", author: str = "") -> Json:
    """Prove one kernel. With the `author`'s text, also say whether it still has the author's task."""
    found = judge(_task(text, kernel, target, form))
    answer: dict[str, Any] = {
        **_object(judgement_json(found)),
        "proved": found.proved,
        "report": diagnostics_text(found.diagnostics).plain,
    }
    if author:
        changes = _changes(author, text, kernel, target, form) if found.explicit is not None else ""
        answer |= {"changes": changes, "accepted": found.proved and not changes}
    return answer


def _changes(author: str, text: str, kernel: str, target: str, form: str) -> str:
    """Say which part of the author's task a text changes, or what it adds for Python to run; "" for neither."""
    runs = foreign(author, text) if form == "python" else ""
    if runs:
        return runs
    theirs, ours = (lowered(_task(t, kernel, target, form)) for t in (author, text))
    return changed_task(theirs, ours) or ("preconditions" if specialised(theirs, ours) else "")


def explain(code: str) -> Json:
    """Return the page of an error code."""
    return {"code": code, "page": pages.explanation(code)}


def show(text: str, kernel: str = "", target: str = "sm_80") -> Json:
    """Return the explicit kernel that the policies of a text make."""
    return {"explicit": print_kernel(_explicit(text, kernel, target))}


def build(text: str, kernel: str = "", target: str = "sm_80") -> Json:
    """Prove one kernel and return its source and, where there is a compiler, its resources."""
    explicit = _explicit(text, kernel, target)
    report = compile.verify(explicit)
    try:
        artifact = compile.build(explicit, report)
    except ArgusError as error:
        if any(d.code != "compiler-missing" for d in error.diagnostics):
            raise
        artifact = compile.build(explicit, report, machine_code=False)
    resources = artifact.resources
    return {"source": artifact.source, "resources": None if resources is None else asdict(resources)}


def simulate_(text: str, kernel: str = "", target: str = "sm_80") -> Json:
    """Run one kernel in the simulator at small sizes; return the rules that it breaks."""
    explicit = _explicit(text, kernel, target)
    runs: list[Json] = []
    for values in size_vectors(explicit):
        try:
            outcome = simulate(explicit, mutate.arguments(explicit, values), tags=True, stop_at_first=True, resident=1)
        except NotReplayable as error:
            runs.append({"sizes": dict(values), "skipped": str(error)})
            continue
        runs.append({"sizes": dict(values), "violations": [f"{v.code}: {v}" for v in outcome.violations]})
    return {"runs": runs}


def mutate_(text: str, kernel: str = "", target: str = "sm_80", count: int = 10, seed: int = 0) -> Json:
    """Make mutants of one kernel and count those that its proof catches."""
    return mutate.trial_json(mutate.trial(_explicit(text, kernel, target), seed, max(1, min(count, 100)), LIMIT_S))


def layout_(notation: str) -> Json:
    """Draw a layout as text."""
    read = layout.parse_fragment if notation.strip().startswith("[") else layout.parse
    try:
        return {"drawing": str(picture.text(read(notation), False, None))}
    except LayoutError as error:
        raise _unusable(str(error), "a notation is like (8,64):(64,1)") from error


def time(text: str, kernel: str = "", target: str = "sm_90a", sizes: Sizes | None = None) -> Json:
    """Return the time of one kernel that the performance model predicts."""
    task = _task(text, kernel, target)
    problem = problem_of(task.source, task.name, target, _sizes(sizes), files=False)
    us, reason = predicted(problem, _explicit(text, kernel, target))
    return {"us": us, "timed_on": "model", "sizes": dict(problem.sizes), "cannot_run": reason}


def knowledge(
    query: str = "", text: str = "", kernel: str = "", target: str = "sm_90a", sizes: Sizes | None = None
) -> Json:
    """Search the knowledge base by words, or for entries that apply to a kernel."""
    if not text:
        return {"entries": [entry_json(e) for e in (search(query) if query else entries())]}
    task = _task(text, kernel, target)
    facts = facts_of(task.source, task.name, Options(target=target), _sizes(sizes) or None)
    return {"entries": [entry_json(e, reasons(e, facts)) for e in applicable(facts)]}


def repair_(text: str, kernel: str = "", target: str = "sm_80", form: str = "python", steps: int = 48) -> Json:
    """Look for one edit that makes a wrong kernel right."""
    return repair_json(repair(_task(text, kernel, target, form), steps=max(1, min(steps, 200))))


def annotate(text: str, kernel: str = "", target: str = "sm_80") -> Json:
    """Find the tags and assertions that hold for a kernel that is right."""
    task = _task(text, kernel, target)
    return annotated_json(task.name, target, annotated(task.source, task.name, Options(target=target)))


def optimize(
    text: str,
    kernel: str = "",
    target: str = "sm_90a",
    sizes: Sizes | None = None,
    minutes: float = 2.0,
    steps: int = 20,
) -> Json:
    """Look for a faster kernel that is proved to compute the same."""
    task = _task(text, kernel, target)
    if not minutes > 0:
        raise _unusable(f"no run takes {minutes} minutes", "give a number above 0")
    problem = problem_of(task.source, task.name, target, _sizes(sizes), files=False)
    with tempfile.TemporaryDirectory(prefix="argus-optimize-") as where:
        folder = Folder(Path(where))
        state = Run(problem, folder, Limits(min(minutes, 10.0), max(1, min(steps, 500)))).go()
        said = _object(as_json(folder, problem, state))
        return {**said, "best": folder.text(state.best), "timed_on": place_of_timing(target)}


def _object(value: Json) -> dict[str, Json]:
    assert isinstance(value, dict)
    return value


TOOLS: Mapping[str, Tool] = {
    "check": Tool(check, "Prove a kernel for every thread, element, iteration and admissible size, or get a "
                         "counterexample: which element, where, what arrived and what should have. With the `author`'s "
                         "text, `accepted` says that it is proved and still has the author's specification, interface "
                         "and preconditions."),
    "explain": Tool(explain, "Explain an error code: what it means, and a wrong and a right example.", 10.0),
    "show": Tool(show, "See the explicit kernel: every buffer, wait, layout and instruction."),
    "build": Tool(build, "Prove a kernel and get its source and resources.", 300.0),
    "simulate": Tool(simulate_, "Run a kernel at small sizes in a simulator that is as adversarial as rules allow."),
    "mutate": Tool(mutate_, "Measure how many small mistakes the kernel's own specification catches.", 300.0),
    "layout": Tool(layout_, "Draw a layout.", 10.0),
    "time": Tool(time, "Predict a kernel's time at given sizes with the performance model."),
    "knowledge": Tool(knowledge, "Find optimisations by words, or those that apply to a kernel, and why."),
    "repair": Tool(repair_, "Find one edit that makes a wrong kernel right, and prove it.", 300.0),
    "annotate": Tool(annotate, "Find tags and assertions that are proved of a right kernel, so that later edits of it "
                               "are caught where they move another element.", 300.0),
    "optimize": Tool(optimize, "Find a faster kernel that is proved to compute the same.", 660.0),
}  # fmt: skip


def call(name: str, arguments: Mapping[str, Any]) -> Json:
    """Call a tool. An input that it cannot use gives an answer with `error` and `codes`, not an exception."""
    try:
        for title, value in arguments.items():
            if isinstance(value, str) and len(value) > MOST_TEXT:
                raise _unusable(f"`{title}` has {len(value)} characters, and a tool takes {MOST_TEXT}",
                                "send the kernel alone")  # fmt: skip
        result: Json = TOOLS[name].function(**arguments)
        return result
    except ArgusError as error:
        return {"error": diagnostics_text(error.diagnostics).plain, "codes": [d.code for d in error.diagnostics]}
