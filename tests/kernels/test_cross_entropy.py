"""Cross entropy: results against float64, ignored and wrong targets, special values, long rows, proofs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from argus.compile import prove  # noqa: E402
from argus.diagnostic import LaunchError, Verdict  # noqa: E402
from argus.frontend import Options  # noqa: E402
from argus.kernels import cross_entropy  # noqa: E402
from argus.kernels.cross_entropy import losses_and_levels  # noqa: E402
from argus.source import SourceFile  # noqa: E402
from tests.kernels.common import DTYPE_NAMES, TARGETS, assert_proved, random, source_of  # noqa: E402

pytestmark = pytest.mark.slow


def close(got: torch.Tensor, wanted: torch.Tensor) -> None:
    assert got.dtype is torch.float32
    torch.testing.assert_close(got.double(), wanted, rtol=2e-6, atol=4e-6, equal_nan=True)


def targets(rows: int, columns: int, device: str, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return (torch.arange(rows, device=device) * 7919 % max(columns, 1)).to(dtype)


@pytest.mark.product
@pytest.mark.parametrize("dtype", DTYPE_NAMES)
@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (3, 7), (5, 264), (2, 1030), (2, 33000), (2, 33001)])
def test_results(device: str, shape: tuple[int, int], dtype: str) -> None:
    logits = 4 * random(*shape, dtype=dtype, device=device)
    for index in (torch.int64, torch.int32):
        target = targets(*shape, device, index)
        loss, level = losses_and_levels(logits, target)
        close(level, torch.logsumexp(logits.double(), -1))
        close(loss, torch.nn.functional.cross_entropy(logits.double(), target.long(), reduction="none"))


@pytest.mark.product
@pytest.mark.parametrize("columns", [40, 40000])
def test_ignored_and_wrong_targets(device: str, columns: int) -> None:
    logits = random(5, columns, device=device)
    target = torch.tensor([-100, -1, columns, columns - 1, 0], device=device)
    loss = cross_entropy(logits, target)
    assert float(loss[0]) == 0 and bool(loss[1:3].isnan().all())
    close(loss[3:], torch.nn.functional.cross_entropy(logits[3:].double(), target[3:], reduction="none"))
    assert float(cross_entropy(logits, target, ignore_index=-1)[1]) == 0


@pytest.mark.parametrize("columns", [3, 33000])
def test_special_values(device: str, columns: int) -> None:
    inf, nan = float("inf"), float("nan")
    logits = torch.full((6, columns), -inf, device=device)
    logits[:, :3] = torch.tensor(
        [[0, nan, 1], [inf, 0, 1], [-inf, -inf, -inf], [-inf, 0, 1], [0, -inf, 3e38], [-3e38, -3e38, -3e38]],
        device=device,
    )
    target = torch.tensor([0, 0, 0, 1, 1, 0], device=device)
    close(cross_entropy(logits, target), torch.nn.functional.cross_entropy(logits.double(), target, reduction="none"))


def test_no_columns(device: str) -> None:
    loss = cross_entropy(torch.zeros(2, 0, device=device), torch.tensor([0, -100], device=device))
    assert bool(loss[0].isnan()) and float(loss[1]) == 0


@pytest.mark.product
@pytest.mark.parametrize("columns", [24, 33008])
def test_rows_any_distance_apart_and_misaligned(device: str, columns: int) -> None:
    wide = random(4, columns, dtype="bfloat16", device=device)
    for logits in (wide[:, 3:], wide[::2], wide[:, :-7], wide[1:, 8:]):
        target = targets(*logits.shape, device)
        wanted = torch.nn.functional.cross_entropy(logits.double(), target, reduction="none")
        close(cross_entropy(logits, target), wanted)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(LaunchError, match="`target` has the shape"):
        cross_entropy(torch.zeros(3, 4), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(LaunchError, match="`target` is a tensor of float32"):
        cross_entropy(torch.zeros(3, 4), torch.zeros(3))
    with pytest.raises(LaunchError, match="`logits` has 1 dimensions"):
        cross_entropy(torch.zeros(3), torch.zeros(3, dtype=torch.int64))


@pytest.mark.parametrize("target", TARGETS)
def test_proved(target: str) -> None:
    assert_proved("cross_entropy", "cross_entropy_rows", target)
    assert_proved("cross_entropy", "cross_entropy_rows", target, DTYPE="float32", INDEX="int32", ROWS=1, BLOCK=5120)
    assert_proved("cross_entropy", "cross_entropy_long_rows", target, num_warps=8)
    assert_proved("cross_entropy", "cross_entropy_long_rows", target, num_warps=8, EACH=32, WIDTH=1, alignment=2)
    assert_proved("cross_entropy", "cross_entropy_long_rows", target, num_warps=4, EACH=4, STEP=3, alignment=2)


LOSS = "part + (highest - chosen)"


@pytest.mark.parametrize("loss", ["(part + highest) - chosen", "highest - (chosen - part)", "-chosen + part + highest"])
def test_losses_in_any_order_of_terms_are_proved(loss: str) -> None:
    assert verdict(loss) is Verdict.PROVED


@pytest.mark.parametrize(
    "loss",
    [
        "part + highest",
        "part + (highest + chosen)",
        "part + (highest - 2.0 * chosen)",
        "part + (highest - chosen) + 1.0",
        "part * 2.0 + (highest - chosen)",
        "part + (highest - al.load(logits[t, V.to(INDEX) - 1 - place], mask=known).to(al.float32))",
    ],
)
def test_other_losses_are_refuted(loss: str) -> None:
    assert verdict(loss) is Verdict.REFUTED


def test_the_loss_of_another_target_is_refuted() -> None:
    """The condition and the place are those of another row."""
    assert verdict(LOSS, ("al.load(target[t])", "al.load(target[T - 1 - t])")) is Verdict.REFUTED


def verdict(loss: str, *edits: tuple[str, str]) -> Verdict:
    """Of long rows whose known losses are `loss`, with these edits of the text."""
    whole = source_of("cross_entropy")
    text = whole.text
    for old, new in ((LOSS, loss), *edits):
        before, kernel = text.split("def cross_entropy_long_rows")
        assert kernel.count(old) == 1
        text = before + "def cross_entropy_long_rows" + kernel.replace(old, new)
    constants = {"EACH": 1, "WIDTH": 1}
    return prove(SourceFile(whole.path, text), "cross_entropy_long_rows", Options("sm_80", 1, constants)).verdict
