"""A wait leaves one load more on its way than were issued since (triton-lang/triton#9887)."""

from tests.reject.case import Case, Text
from tests.reject.edits import one_more_load

CASES = (
    Case("examples/gemm_waves.py", Text("vmcnt=8", "vmcnt=9"), "data-race", "races", "gfx942"),
    Case("examples/gemm.py", one_more_load, "data-race", "races", "gfx942"),
    Case("examples/split_k.py", one_more_load, "data-race", "races", "gfx942"),
)
