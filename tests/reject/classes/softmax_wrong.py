"""A softmax that is not the specified one: a mask off by one, padding that weighs, a sum with a term too many."""

from tests.reject.case import Case, Text

ATTENTION, SOFTMAX = "argus/kernels/attention.py", "argus/kernels/softmax.py"
CAUSAL = {"D": 64, "BLOCK_M": 64, "BLOCK_N": 32, "STAGES": 1, "CAUSAL": True}
ROWS = {"BLOCK": 128, "ROWS": 4}

CASES = (
    Case(ATTENTION, Text("al.arange(BLOCK_M) + (N - M) + 1", "al.arange(BLOCK_M) + (N - M)"), "spec-mismatch", "tags",
         kernel="attention_forward", constants=CAUSAL),
    Case(SOFTMAX, Text('mask=live, other=-float("inf")', "mask=live, other=0.0"), "spec-mismatch", "tags",
         kernel="softmax_rows", constants=ROWS),
    Case(SOFTMAX, Text("1.0 / al.sum(weights, axis=1, keep_dims=True)",
                       "1.0 / (1.0 + al.sum(weights, axis=1, keep_dims=True))"), "spec-mismatch", "tags",
         kernel="softmax_rows", constants=ROWS),
)  # fmt: skip
