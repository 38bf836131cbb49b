"""The files that a run leaves for readers: the best kernel, a plot, the lessons and a report."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from argus.agents.optimize.folder import Folder, State, Trial
from argus.agents.optimize.problem import Problem
from argus.render import Json

_WIDTH, _HEIGHT, _EDGE = 720, 320, 40
_COLOURS = {"": "#0a7", "parse": "#bbb", "task": "#a6c", "lower": "#999", "model": "#69c", "emit": "#c77",
            "prove": "#d44", "build": "#d80", "run": "#b00", "compare": "#b00", "time": "#b00"}  # fmt: skip
BEFORE_COMPILING = ("parse", "task", "lower", "model", "emit", "prove")


def write(folder: Folder, problem: Problem, state: State) -> None:
    """Write `best.py`, `history.svg`, `lessons.md` and `report.md`."""
    folder.write("best.py", folder.text(state.best))
    folder.write("history.svg", history(state))
    folder.write("report.md", report(problem, state))
    folder.write("lessons.md", "".join(f"- {lesson}\n" for lesson in state.planner.get("lessons", [])))


def as_json(folder: Folder, problem: Problem, state: State) -> Json:
    """Return the object that `argus optimize --json` prints."""
    start, best = state.trials[0], state.trials[state.best]
    wrong, early = rejected(state)
    return {"kernel": problem.name, "target": problem.target, "start_us": start.us, "best_us": best.us,
            "steps": len(state.trials) - 1, "refused": dict(state.refused()),
            "best": str(folder.path / "best.py"), "timed_on": state.timed_on, "copied": state.best == 0,
            "specialised": best.specialised, "sizes": dict(problem.sizes), "looked": dict(state.looked),
            "wrong_or_slower": wrong, "rejected_before_compilation": early}  # fmt: skip


def rejected(state: State) -> tuple[int, int]:
    """Count the candidates that are wrong or no faster than the best before them, and how many of these were not
    compiled.

    Candidates that were not compiled are those that a stage before the build refused, and the texts of the search ahead
    that are refused or expected to be slower.
    """
    best, useless = state.trials[0].us or 0.0, list[Trial]()
    for trial in state.trials[1:]:
        if trial.refused or (trial.us or 0.0) >= best:
            useless.append(trial)
        else:
            best = trial.us or best
    ahead = state.looked.get("refused", 0) + state.looked.get("slower", 0)
    return len(useless) + ahead, sum(t.refused in BEFORE_COMPILING for t in useless) + ahead


def report(problem: Problem, state: State) -> str:
    """Return the report in Markdown."""
    start, best = state.trials[0], state.trials[state.best]
    way: list[Trial] = [best]
    while way[-1].number:
        way.append(state.trials[way[-1].parent])
    wrong, early = rejected(state)
    said = {"gpu": "Times are of this machine's GPU.", "cpu": "Times are of this machine's processor.",
            "model": "No such GPU is here: times are what the performance model expects."}[state.timed_on]  # fmt: skip
    lines = [f"# {problem.name} on {problem.target}", "",
             f"{_us(start)} at the start, {_us(best)} at the end, after {len(state.trials) - 1} candidates.", said,
             "Sizes: " + ", ".join(f"{k} = {v}" for k, v in problem.sizes.items()) + ".", ""]  # fmt: skip
    if len(state.trials) == 1:
        lines += ["The time ended before a candidate was tried; the same command with more `--minutes` goes on.", ""]
    elif state.best == 0:
        lines += ["Nothing was faster: the best kernel is a copy of the author's.", ""]
    if best.specialised:
        lines += [
            "The preconditions of the best kernel have other numbers than the author's: it is for fewer sizes.",
            "",
        ]
    lines += ["| step | time |", "|---|---|",
              *(f"| {t.name}: {_cell(t.how)} | {_us(t)} |" for t in reversed(way)), ""]  # fmt: skip
    if state.refused():
        counts = [f"| {stage} | {count} |" for stage, count in state.refused().items()]
        lines += ["| refused at | candidates |", "|---|---|", *counts, ""]
    lines += [f"Candidates that were wrong or slower: {wrong}. A compiler ran for {wrong - early} of them.", "",
              "![Time of each candidate](history.svg)", ""]  # fmt: skip
    return "\n".join(lines)


def _us(trial: Trial) -> str:
    return "no time" if trial.us is None else f"{trial.us:.1f} µs"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def history(state: State) -> str:
    """Draw the time of each candidate, a line for the best so far, and the refused candidates below, by stage (SVG)."""
    times = [t.us for t in state.trials if t.us]
    low, high = min(times, default=1.0), max(times, default=1.0)
    right = max(1, len(state.trials) - 1)

    def x(number: int) -> float:
        return _EDGE + number * (_WIDTH - 2 * _EDGE) / right

    def y(us: float) -> float:
        return _EDGE + (high - us) / ((high - low) or 1.0) * -1 * (2 * _EDGE - _HEIGHT + 20)

    marks: list[str] = []
    line: list[str] = []
    least = state.trials[0].us or high
    for trial in state.trials:
        colour = _COLOURS.get(trial.refused, "#b00")
        title = escape(f"{trial.number} {trial.name} ({trial.how}): {trial.refused or _us(trial)}")
        if trial.us is None:
            marks.append(_mark(x(trial.number), _HEIGHT - _EDGE + 12, colour, title))
            continue
        least = min(least, trial.us)
        line.append(f"{x(trial.number):.1f},{_HEIGHT - y(least):.1f}")
        marks.append(_mark(x(trial.number), _HEIGHT - y(trial.us), colour, title))
    return _svg([f'<polyline points="{" ".join(line)}" fill="none" stroke="#0a7"/>', *marks,
                 _text(4, 16, f"{high:.1f} µs"), _text(4, _HEIGHT - _EDGE - 4, f"{low:.1f} µs"),
                 *(_text(60 + 70 * i, _HEIGHT - 6, f"{k} {v}", _COLOURS.get(k, "#b00"))
                   for i, (k, v) in enumerate(state.refused().items()))])  # fmt: skip


def _mark(x: float, y: float, colour: str, title: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{title}</title></circle>'


def _text(x: float, y: float, text: str, colour: str = "#444") -> str:
    return f'<text x="{x}" y="{y}" font-size="12" font-family="sans-serif" fill="{colour}">{escape(text)}</text>'


def _svg(parts: Sequence[Any]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}">'
    return "\n".join([head, *map(str, parts), "</svg>", ""])
