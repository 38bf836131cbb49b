"""What tells that a prepared launch serves a call: PyTorch's check of the tensors, and the key behind it."""

from collections.abc import Callable
from typing import Any

import pytest

from argus.runtime import reader as module
from argus.runtime.executable import CONSTEXPR, SCALAR, TENSOR
from argus.runtime.reader import Memory, Prepared, Site, check_of

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


def test_a_site_finds_the_plan_of_the_last_calls() -> None:
    """Two plans take turns; after the first call of each, none is looked up by its key."""
    plans: dict[Any, Prepared] = {}
    site = Site((TENSOR, SCALAR, TENSOR), "name", {}, plans)
    narrow, wide = tensors(), [torch.zeros(4, 16), torch.zeros(4, 16)]
    names: Any = {8: "narrow", 16: "wide"}
    for number in range(3):
        for first, second in (narrow, wide):
            plan, values, key = site.read(first, 2.5, second)
            assert values == (first.data_ptr(), second.data_ptr(), 2.5)
            if number == 0:
                assert plan is None
                plans[key] = Prepared(names[first.shape[1]])
                site.settle(plans[key], (first, 2.5, second), values)
            else:
                assert (plan, key) == (names[first.shape[1]], None)


def test_addresses_of_another_alignment_have_another_plan() -> None:
    site, room = Site((TENSOR,), "name", {}, {}), torch.zeros(12)
    aligned = next(i for i in range(4) if room[i:].data_ptr() % 16 == 0)
    _, values, key = site.read(room[aligned : aligned + 4])
    site.settle(Prepared("plan"), (room[aligned : aligned + 4],), values)  # type: ignore[arg-type]
    assert site.read(room[aligned : aligned + 4])[0] == "plan"
    plan, _, other = site.read(room[aligned + 1 : aligned + 5])
    assert plan is None and other != key


def test_a_gradient_that_comes_and_goes_changes_no_plan() -> None:
    plans: dict[Any, Prepared] = {}
    site, plain, leaf = Site((TENSOR,), "name", {}, plans), torch.zeros(4), torch.zeros(4, requires_grad=True)
    for number in range(40):
        for tensor in (plain, leaf):
            found, values, key = site.read(tensor)
            if key is not None:
                assert found is plans.get(key)
                site.settle(plans.setdefault(key, Prepared("plan")), (tensor,), values)  # type: ignore[arg-type]
            assert number == 0 or found is not None
    assert len(plans) == 1


def test_positional_constants_are_part_of_the_key() -> None:
    site, x = Site((TENSOR, CONSTEXPR), "name", {}, {}), torch.zeros(4)
    keys = [site.read(x, constant)[2] for constant in (1, True, 1.0)]
    assert len(set(keys)) == 3
    site.settle(Prepared("plan"), (x, 1), site.read(x, 1)[1])  # type: ignore[arg-type]
    assert site.read(x, True)[0] is None


def test_a_memory_prepares_once_for_tensors_of_a_kind() -> None:
    made: list[Any] = []
    memory: Memory[int] = Memory()

    def find(way: Any, *found: Any) -> int:
        thing, addresses = memory.find(way, found, lambda: made.append(way) or len(made))
        assert addresses == tuple(t.data_ptr() for t in found)
        return thing

    pair, wide = tensors(), [torch.zeros(4, 16), torch.zeros(4, 16)]
    for _ in range(3):
        assert [find("add", *pair), find("add", *wide), find("multiply", *pair), find("one", pair[0])] == [1, 2, 3, 4]
    assert [find("same", pair[0], pair[0]) for _ in range(20)] == [5] * 20


def test_a_memory_keeps_nothing_of_what_failed() -> None:
    memory: Memory[int] = Memory()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            memory.find("way", tensors(), lambda: 1 // 0)
    assert memory.find("way", tensors(), lambda: 7)[0] == 7


def test_a_full_memory_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    memory: Memory[int] = Memory()
    for _ in range(2):
        for size in range(1, 9):
            for way in range(5):
                assert memory.find(way, (torch.zeros(size),), lambda: size * 10 + way)[0] == size * 10 + way
