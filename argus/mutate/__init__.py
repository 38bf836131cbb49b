"""Mutation testing of proofs: small edits of an explicit kernel, and what verifier and simulator say of each."""

from argus.mutate.inputs import admissible, arguments, size_vectors
from argus.mutate.judge import Outcome, Result, Trial, trial
from argus.mutate.mutation import Kind, Mutation, mutations
from argus.mutate.report import trial_json, trial_table

__all__ = [
    "Kind",
    "Mutation",
    "Outcome",
    "Result",
    "Trial",
    "admissible",
    "arguments",
    "mutations",
    "size_vectors",
    "trial",
    "trial_json",
    "trial_table",
]
