"""Diagnostics for code hosts: SARIF 2.1."""

from __future__ import annotations

from collections.abc import Iterable

from argus.diagnostic import Diagnostic, Note, Severity
from argus.render.as_json import witness_json
from argus.render.as_text import diagnostic_text
from argus.render.outcome import Json, Outcome
from argus.source import Span


def sarif(outcomes: Iterable[Outcome], version: str) -> Json:
    """Return a SARIF 2.1.0 log with one run; `version` is the version of Argus. Reference: OASIS SARIF 2.1.0."""
    found = [(outcome, diagnostic) for outcome in outcomes for diagnostic in outcome.diagnostics]
    codes = sorted({diagnostic.code for _, diagnostic in found})
    driver = {"name": "argus", "version": version, "rules": [{"id": code} for code in codes]}
    results = [_sarif_result(outcome, diagnostic, codes) for outcome, diagnostic in found]
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }


def _sarif_result(outcome: Outcome, diagnostic: Diagnostic, codes: list[str]) -> Json:
    related = [note for note in diagnostic.notes if note.span.known]
    if diagnostic.witness is not None:
        related += [hop for hop in diagnostic.witness.provenance if hop.span.known]
        related += [Note(f"{e.role} {e.message}", e.span) for e in diagnostic.witness.trace if e.span.known]
    result: Json = {
        "ruleId": diagnostic.code,
        "ruleIndex": codes.index(diagnostic.code),
        "level": "warning" if diagnostic.severity is Severity.WARNING else "error",
        "message": {"text": diagnostic_text(diagnostic).plain},
        "locations": [_location(diagnostic.span)] if diagnostic.span.known else [],
        "relatedLocations": [{**_location(n.span), "message": {"text": n.message}} for n in related],
        "properties": {
            "kernel": outcome.kernel,
            "property": diagnostic.property,
            "verdict": diagnostic.verdict.value if diagnostic.verdict is not None else None,
        },
    }
    if diagnostic.witness is not None:
        result["properties"]["witness"] = witness_json(diagnostic.witness)
    return result


def _location(span: Span) -> Json:
    region = {"startLine": span.line, "startColumn": span.column}
    if span.end_line >= span.line and span.end_column:
        region |= {"endLine": span.end_line, "endColumn": span.end_column}
    path = span.file.path if span.file is not None else ""
    return {"physicalLocation": {"artifactLocation": {"uri": path.replace("\\", "/")}, "region": region}}
