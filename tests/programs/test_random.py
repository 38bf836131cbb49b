"""Random programs on three streams: what is proved shows no failure when it is executed, and the reverse."""

from random import Random

import pytest

from argus.diagnostic import Verdict
from argus.frontend import Options
from argus.programs.execute import execute
from argus.programs.inputs import trials
from argus.programs.pipeline import lower
from argus.programs.prove.prove import prove
from argus.source import SourceFile
from tests.programs.texts import TEXT

HEAD = TEXT[: TEXT.index("@argus.program")]
STREAMS = ("main", "left", "right")
ROWS = ("0", "1", "i % 2", "(i + 1) % 2", "i % 3")


def text(seed: int) -> str:
    """A program that begins and ends with all streams joined, with a loop in which little is certain."""
    random = Random(seed)
    lines = [
        "main, left, right = al.current_stream(), al.stream(), al.stream()",
        "a, b = al.empty((3, N), al.float32), al.empty((3, N), al.float32)",
        *(f"for k in al.static_range(3):\n        scale(x[k, :], {buffer}[k, :], 1.0)" for buffer in "ab"),
        "e = main.record()",
        "left.wait(e)",
        "right.wait(e)",
        "f = left.record()",
        "g = right.record()",
        "for i in range(T):",
        *(f"    {line}" for line in inner(random)),
    ]
    if random.random() < 0.3:
        lines += ["for i in range(T):", *(f"    {line}" for line in inner(random))]
    lines += ["f = left.record()", "g = right.record()", "main.wait(f)", "main.wait(g)"]
    if random.random() < 0.15:
        lines.pop()
    lines += [f"for k in al.static_range(3):\n        scale({random.choice('ab')}[k, :], y[k, :], 1.0)"]
    body = "".join(f"    {line}\n" for line in lines)
    given = ", ".join(f'{n}: al.Tensor[al.float32, "3 N"]' for n in "xy")
    return f"{HEAD}@argus.program\ndef p({given}, T: al.int32):\n    al.requires(T >= 0)\n{body}"


def inner(random: Random) -> list[str]:
    """The statements of a loop: launches, mostly with a handshake between two streams."""
    lines: list[str] = []
    for _ in range(random.randint(1, 3)):
        stream = random.choice(STREAMS)
        if random.random() < 0.75:
            other = random.choice([s for s in STREAMS if s != stream])
            event = random.choice("efg")
            pair = [f"{event} = {other}.record()", f"{stream}.wait({event})"]
            lines += pair if random.random() < 0.85 else pair[::-1]
        source, target = random.sample("ab", 2)
        lines.append(
            f"scale({source}[{random.choice(ROWS)}, :], {target}[{random.choice(ROWS)}, :], 1.0, stream={stream})"
        )
        if random.random() < 0.25:
            lines += [f"{random.choice('efg')} = {random.choice(STREAMS)}.record()"]
    if random.random() < 0.3:
        lines = [*lines[:-1], f"if i > {random.randint(0, 2)}:", f"    {lines[-1]}"]
    return lines


def judged(seed: int) -> tuple[Verdict, bool]:
    """The verdict, and whether an execution shows a failure."""
    program = lower(SourceFile("p.py", text(seed)), "p", Options("cpu"))
    wrong = any(execute(program, *given).violations for given in trials(program))
    return prove(program).verdict, wrong


@pytest.mark.parametrize("seed", range(24))
def test_what_is_proved_shows_no_failure(seed):
    verdict, wrong = judged(seed)
    assert not (verdict is Verdict.PROVED and wrong)
    assert not (verdict is Verdict.REFUTED and not wrong)


def test_some_are_proved_and_some_are_refuted():
    verdicts = {judged(seed)[0] for seed in range(24, 44)}
    assert {Verdict.PROVED, Verdict.REFUTED} <= verdicts
