"""Functions as prepared launches: the right addresses every time, and nothing kept of a call but what it prepared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from argus.runtime.recipe import Given, Launch, Made, Recipe, Told, room

torch = pytest.importorskip("torch")


class Recorder:
    """Stands in for a kernel and for its plans: keeps what each launch gets."""

    def __init__(self) -> None:
        self.prepared: list[tuple[Any, ...]] = []
        self.called = 0
        self.ran: list[tuple[Any, ...]] = []

    def prepare(self, *arguments: Any, **constants: Any) -> Any:
        shapes = tuple(tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in arguments)
        self.prepared.append((*shapes, constants))
        return self

    def run(self, values: Sequence[Any]) -> None:
        self.ran.append(tuple(values))

    def __call__(self, *arguments: Any, **constants: Any) -> None:
        self.called += 1
        self.ran.append(tuple(a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments))


def test_a_runner_passes_what_was_given_and_what_was_made() -> None:
    first, second = Recorder(), Recorder()
    recipe = Recipe(
        2,
        (room((2, 3), torch.float32, "cpu"), room((5,), torch.int32, "cpu")),
        (
            Launch(first, (Given(0), Given(1, 64), Made(1), 7, 1.5)),  # type: ignore[arg-type]
            Launch(second, (Made(1), Made(0), Given(0, 8), Told(0), 9)),  # type: ignore[arg-type]
        ),
        1,
        1,
    )
    run = recipe.runner()
    results = [run((1000, 2000, 0.25)) for _ in range(2)]
    for result, one, two in zip(results, first.ran, second.ran, strict=True):
        assert (result.shape, result.dtype) == ((2, 3), torch.float32)
        assert one == (1000, 2064, two[0], 7, 1.5)
        assert two[1:] == (result.data_ptr(), 1008, 0.25, 9)
    assert results[0].data_ptr() != results[1].data_ptr()


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (2, 3, 4)])
def test_rooms_are_contiguous(shape: tuple[int, ...]) -> None:
    made = [room(shape, torch.float16, torch.device("cpu"))() for _ in range(2)]
    assert all(t.shape == shape and t.dtype == torch.float16 and t.is_contiguous() for t in made)
    assert made[0] is not made[1]


@pytest.mark.parametrize(("devices", "direct"), [(1, True), (2, False)])
def test_rooms_without_a_device_are_for_the_only_device(
    devices: int, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(torch._C._dynamo.guards, "_empty_strided_cuda", only, raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    made: Any = room((2, 3), torch.float16, torch.device("cuda:0"))
    assert (made.func is only) == direct
    assert made.args == (((2, 3), (3, 1), torch.float16) if direct else ((2, 3), (3, 1)))
    assert made.keywords == ({} if direct else {"dtype": torch.float16, "device": torch.device("cuda:0")})
    assert room((2,), torch.float16, torch.device("cpu")).func is torch.empty_strided  # type: ignore[attr-defined]


@pytest.mark.parametrize("returned", [0, 1, 2])
def test_results_are_the_first_that_were_made(returned: int) -> None:
    rooms = tuple(room((n,), torch.float32, "cpu") for n in (1, 2, 3))
    result = Recipe(0, rooms, (), returned).runner()(())
    found = (result,) if returned == 1 else result or ()
    assert tuple(map(len, found)) == (1, 2, 3)[:returned]
