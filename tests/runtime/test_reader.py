"""What tells that a prepared launch serves a call: PyTorch's check of the tensors, and the key behind it."""

from collections.abc import Callable
from typing import Any

import pytest

from argus.runtime.executable import CONSTEXPR, SCALAR, TENSOR
from argus.runtime.reader import Cold, Prepared, Site, check_of

torch = pytest.importorskip("torch")

CHANGES: dict[str, Callable[[Any], Any]] = {
    "rows": lambda t: t[:2],
    "columns": lambda t: t[:, :4],
    "strides": lambda t: t.new_zeros(8, 4).t(),
    "dtype": lambda t: t.to(torch.float16),
    "sign": torch._neg_view,
    "class": torch.nn.Parameter,
    "layout": lambda t: t.to_sparse(),
    "memory": lambda t: t.to("meta"),
    "dimensions": lambda t: t.unsqueeze(0),
}


def tensors() -> list[Any]:
    return [torch.zeros(4, 8), torch.zeros(4, 8)]


def test_tensors_of_one_kind_pass() -> None:
    check = check_of(tensors())
    for _ in range(2):
        assert check(*tensors())


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_a_plan_depends_on_is_seen(change: str) -> None:
    check = check_of(tensors())
    first, second = tensors()
    assert not check(first, CHANGES[change](second))
    assert not check(CHANGES[change](first), second)
    assert check(first, second)


def test_what_is_no_tensor_does_not_pass() -> None:
    assert not check_of(tensors())(tensors()[0], [1.0])


def test_without_the_checks_of_pytorch_nothing_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C._dynamo.guards, "TensorGuards")
    assert not check_of(tensors())(*tensors())


def prepared(name: str) -> Prepared:
    """What runs gives its name, and what it got."""
    return Prepared(lambda values: (name, values))


def test_a_site_runs_what_ran_for_the_last_calls() -> None:
    """Two plans take turns; after the first call of each, none is looked up by its key."""
    site = Site((TENSOR, SCALAR, TENSOR), "name", {})
    narrow, wide = tensors(), [torch.zeros(4, 16), torch.zeros(4, 16)]
    for number in range(3):
        for name, (first, second) in (("narrow", narrow), ("wide", wide)):
            found, values = site.read(first, 2.5, second), (first.data_ptr(), second.data_ptr(), 2.5)
            if number == 0:
                assert isinstance(found, Cold) and found.values == values
                site.settle(prepared(name), (first, 2.5, second), values)
            else:
                assert found == (name, values)


def test_addresses_of_another_alignment_have_another_plan() -> None:
    site, room = Site((TENSOR,), "name", {}), torch.zeros(12)
    aligned = next(i for i in range(4) if room[i:].data_ptr() % 16 == 0)
    whole, other = room[aligned : aligned + 4], room[aligned + 1 : aligned + 5]
    first = site.read(whole)
    site.settle(prepared("plan"), (whole,), first.values)
    assert site.read(whole) == ("plan", (whole.data_ptr(),))
    second = site.read(other)
    assert second.key != first.key and second.values == (other.data_ptr(),)
    site.settle(prepared("other"), (other,), second.values)
    assert site.read(other) == second


def test_a_gradient_that_comes_and_goes_changes_no_plan() -> None:
    keys, one = set(), prepared("plan")
    site, plain, leaf = Site((TENSOR,), "name", {}), torch.zeros(4), torch.zeros(4, requires_grad=True)
    for _ in range(40):
        for tensor in (plain, leaf):
            found = site.read(tensor)
            if isinstance(found, Cold):
                keys.add(found.key)
                site.settle(one, (tensor,), found.values)
            else:
                assert found == ("plan", (tensor.data_ptr(),))
    assert len(keys) == 1


def test_positional_constants_are_part_of_the_key() -> None:
    site, x = Site((TENSOR, CONSTEXPR), "name", {}), torch.zeros(4)
    keys = [site.read(x, constant).key for constant in (1, True, 1.0)]
    assert len(set(keys)) == 3
    site.settle(prepared("plan"), (x, 1), site.read(x, 1).values)
    assert isinstance(site.read(x, True), Cold)
