"""Mutation testing of proofs: small edits of an explicit kernel, and what verifier and simulator say of each."""

from argus.mutate.inputs import arguments
from argus.mutate.judge import Outcome, Result, Trial, trial
from argus.mutate.mutation import Kind, Mutation, mutations
from argus.mutate.report import summary_table, trial_json, trial_table

__all__ = [
    "Kind",
    "Mutation",
    "Outcome",
    "Result",
    "Trial",
    "arguments",
    "mutations",
    "summary_table",
    "trial",
    "trial_json",
    "trial_table",
]
