"""Diagnostics for people (text), for programs (JSON) and for code hosts (SARIF 2.1)."""

from argus.render.as_json import SCHEMA, diagnostic_json, outcome_json, span_json, witness_json
from argus.render.as_sarif import sarif
from argus.render.as_text import diagnostic_text, diagnostics_text, outcome_text
from argus.render.outcome import Json, Outcome

__all__ = [
    "SCHEMA",
    "Json",
    "Outcome",
    "diagnostic_json",
    "diagnostic_text",
    "diagnostics_text",
    "outcome_json",
    "outcome_text",
    "sarif",
    "span_json",
    "witness_json",
]
