"""Print a trial as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from argus.mutate.judge import Outcome, Result, Trial
from argus.mutate.kind import Kind
from argus.render import span_json

_STYLES = {
    Outcome.KILLED: "green",
    Outcome.EQUIVALENT: "dim",
    Outcome.MISSED: "bold red",
    Outcome.UNKNOWN: "bold yellow",
}


def trial_table(trial: Trial) -> RenderableType:
    """Return the numbers by class of edit and in total, then the unspecified outputs, the missed mutants and the
    unknown mutants."""
    tried = len(trial.results)
    title = f"{trial.kernel}: {tried} of {trial.possible} mutants, seed {trial.seed}"
    table = Table(title=title, title_justify="left")
    table.add_column("edit")
    for heading in ("mutants", *(o.value for o in Outcome)):
        table.add_column(heading, justify="right")
    for kind in Kind:
        if any(r.mutation.kind is kind for r in trial.results):
            table.add_row(kind.value, *_numbers(trial, kind))
    table.add_section()
    table.add_row("all", *_numbers(trial, None))
    return Group(table, *_unspecified(trial), *_missed(trial), *_unknown(trial))


def summary_table(trials: Sequence[Trial]) -> RenderableType:
    """Return the numbers by kernel, by class of edits, and in total."""
    table = Table(title="all kernels", title_justify="left")
    table.add_column("")
    for heading in ("mutants", *(o.value for o in Outcome)):
        table.add_column(heading, justify="right")
    for trial in trials:
        table.add_row(trial.kernel, *_numbers(trial, None))
    table.add_section()
    together = Trial("", 0, 0, tuple(r for trial in trials for r in trial.results))
    for kind in Kind:
        if any(r.mutation.kind is kind for r in together.results):
            table.add_row(kind.value, *_numbers(together, kind))
    table.add_section()
    table.add_row("all", *_numbers(together, None))
    return table


def _numbers(trial: Trial, kind: Kind | None) -> Iterator[Text]:
    yield Text(str(sum(kind in (None, r.mutation.kind) for r in trial.results)))
    for outcome in Outcome:
        number = trial.number(outcome, kind)
        yield Text(str(number) if number else "", _STYLES[outcome])


def _unspecified(trial: Trial) -> Iterator[Text]:
    for name in trial.unspecified:
        yield Text(f"no al.spec says what `{name}` is: other values there may be missed", "bold yellow")


def _missed(trial: Trial) -> Iterator[Text]:
    for result in trial.results:
        if result.outcome is Outcome.MISSED:
            yield _described(result, result.mutation.name)


def _unknown(trial: Trial) -> Iterator[Text]:
    """Yield the first undecided mutant for each code that explains why."""
    undecided = [r for r in trial.results if r.outcome is Outcome.UNKNOWN]
    for code, number in Counter(r.code for r in undecided).most_common():
        first = next(r for r in undecided if r.code == code)
        yield _described(first, f"{first.mutation.name}" + (f", and {number - 1} more" if number > 1 else ""))


def _described(result: Result, heading: str) -> Text:
    mutation, span = result.mutation, result.mutation.span
    text = Text()
    text.append(f"{result.outcome.value}[{result.code}]", _STYLES[result.outcome])
    text.append(f": {heading}\n", "bold")
    if span.file is not None:
        text.append(f"  --> {span}: {span.file.line(span.line).strip()}\n", "blue")
    for sign, lines in (("-", mutation.before), ("+", mutation.after)):
        for line in lines.splitlines():
            text.append(f"  {sign} {line}\n")
    text.append(f"  {result.detail}\n")
    return text


def trial_json(trial: Trial) -> dict[str, Any]:
    """Return the JSON object of a report: `count` of `possible` mutants were tried, and each of `mutants` has its edit,
    outcome, code and seconds. No specification covers the outputs in `unspecified`."""
    return {
        "kernel": trial.kernel,
        "seed": trial.seed,
        "count": len(trial.results),
        "possible": trial.possible,
        "unspecified": list(trial.unspecified),
        **{outcome.value: trial.number(outcome) for outcome in Outcome},
        "mutants": [result_json(r) for r in trial.results],
    }


def result_json(result: Result) -> dict[str, Any]:
    """Return the JSON object of one mutant."""
    return {
        "name": result.mutation.name,
        "class": result.mutation.kind.value,
        "span": span_json(result.mutation.span),
        "before": result.mutation.before,
        "after": result.mutation.after,
        "outcome": result.outcome.value,
        "code": result.code,
        "detail": result.detail,
        "seconds": round(result.seconds, 6),
    }
