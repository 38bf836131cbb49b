"""A block of a cluster reaches for the shared memory of one that has not started, or has ended, or is still at it."""

from tests.reject.case import Case, Text

SOFTMAX, EXCHANGE = "examples/cluster_softmax.py", "tests/reject/kernels/exchange.py"
SMALL = {"PART": 512}
TAKE = "    theirs = al.load(al.peer(held, 1 - rank))\n"
MEET, OWN = '    al.barrier(scope="cluster")\n', "    al.barrier()\n"

CASES = (
    Case(SOFTMAX, Text(f"{MEET}    top", "    top"), "peer-not-started", "races", "sm_90a", constants=SMALL),
    Case(SOFTMAX, Text(f"found)\n{MEET}", f"found)\n{OWN}"), "data-race", "races", "sm_90a", constants=SMALL),
    Case(EXCHANGE, Text(f"{TAKE}{MEET}", TAKE), "peer-exited", "races", "sm_90a"),
    Case(EXCHANGE, Text(f"{TAKE}{MEET}", f"{TAKE}{OWN}"), "peer-exited", "races", "sm_90a"),
    Case(EXCHANGE, Text(f"{MEET}{TAKE}", TAKE), "data-race", "races", "sm_90a"),
    Case(EXCHANGE, Text(f"{MEET}{TAKE}", f"{OWN}{TAKE}"), "peer-not-started", "races", "sm_90a"),
    Case(EXCHANGE, Text("held, 1 - rank", "held, rank"), "spec-mismatch", "tags", "sm_90a"),
)
