"""Test proofs by mutation: make small edits of an explicit kernel, and ask verifier and simulator about each."""

from argus.mutate.inputs import arguments
from argus.mutate.judge import Judge, Outcome, Result, Trial, drawn, trial, unspecified
from argus.mutate.mutation import Change, Kind, Mutation, mutations
from argus.mutate.report import result_json, summary_table, trial_json, trial_table

__all__ = [
    "Change",
    "Judge",
    "Kind",
    "Mutation",
    "Outcome",
    "Result",
    "Trial",
    "arguments",
    "drawn",
    "mutations",
    "result_json",
    "summary_table",
    "trial",
    "trial_json",
    "trial_table",
    "unspecified",
]
