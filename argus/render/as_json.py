"""Diagnostics for programs: JSON."""

from __future__ import annotations

from argus.diagnostic import Diagnostic, Event, Note, Opinion, Witness
from argus.render.outcome import Json, Outcome
from argus.source import Span

SCHEMA = "argus.check/1"
"""The version of `--json`. It changes when a field is removed or changes its meaning; fields may be added."""


def outcome_json(outcome: Outcome) -> Json:
    """Return an object of `docs/schema/check-1.json`. `verdict` is "error" for unusable input."""
    return {
        "schema": SCHEMA,
        "kernel": outcome.kernel,
        "verdict": outcome.word,
        "seconds": round(outcome.seconds, 6),
        "assumptions": list(outcome.assumptions),
        "alignment": dict(outcome.alignment),
        "accepted": list(outcome.accepted),
        "equality": dict(outcome.equality),
        "diagnostics": [diagnostic_json(d) for d in outcome.diagnostics],
        "second_opinion": [_opinion_json(o) for o in outcome.opinions],
    }


def _opinion_json(opinion: Opinion) -> Json:
    return {
        "engine": opinion.engine,
        "question": opinion.question,
        "agreed": opinion.agreed,
        "undecided": opinion.undecided,
        "disagreed": list(opinion.disagreed),
    }


def diagnostic_json(diagnostic: Diagnostic) -> Json:
    """Return all fields of a diagnostic. The field `witness` is present only if there is one."""
    result: Json = {
        "code": diagnostic.code,
        "property": diagnostic.property,
        "severity": diagnostic.severity.value,
        "verdict": diagnostic.verdict.value if diagnostic.verdict is not None else None,
        "message": diagnostic.message,
        "span": span_json(diagnostic.span),
        "label": diagnostic.label,
        "notes": [_note_json(note) for note in diagnostic.notes],
        "help": diagnostic.help,
    }
    if diagnostic.witness is not None:
        result["witness"] = witness_json(diagnostic.witness)
    return result


def span_json(span: Span) -> Json | None:
    """Return `file`, `line`, `column` (from 1), `end_line`, `end_column` (exclusive) and `call`, or None for generated
    code."""
    if span.file is None:
        return None
    return {
        "file": span.file.path,
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
        "call": span_json(span.call) if span.call is not None else None,
    }


def _note_json(note: Note) -> Json:
    return {"message": note.message, "span": span_json(note.span)}


def witness_json(witness: Witness) -> Json:
    """Return all fields of a witness. Its element is under `element`, and each hop of `provenance` is a span with a
    message."""
    return {
        "sizes": witness.sizes,
        "block": list(witness.block),
        "thread": witness.thread,
        "warp": witness.warp,
        "lane": witness.lane,
        "iteration": witness.iteration,
        "element": {
            "object": witness.object,
            "logical": list(witness.logical),
            "physical": witness.physical,
        },
        "arrived": witness.arrived,
        "expected": witness.expected,
        "provenance": [{"message": hop.message, **(span_json(hop.span) or {})} for hop in witness.provenance],
        "other": witness.other,
        "failing": witness.failing,
        "unique": witness.unique,
        "replayed": witness.replayed,
        "trace": [_event_json(event) for event in witness.trace],
        "missing": witness.missing,
        "contents": witness.contents,
    }


def _event_json(event: Event) -> Json:
    """Return one step of a trace. `barrier` and `phase` are None if no mbarrier takes part, and the fields of a span
    are present if it is known."""
    return {
        "role": event.role,
        "what": event.what,
        "message": event.message,
        "block": list(event.block),
        "iteration": event.iteration,
        "barrier": event.barrier or None,
        "phase": event.phase if event.barrier else None,
        **(span_json(event.span) or {}),
    }
