"""Functions as prepared launches: the right addresses every time, and nothing kept of a call but what it prepared."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import pytest

from argus.diagnostic import Diagnostic, LaunchError
from argus.runtime.recipe import (
    Beside,
    Function,
    Given,
    Join,
    Launch,
    Made,
    Recipe,
    Results,
    Told,
    Work,
    room,
    room_like,
)

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


def scaled(recorder: Recorder) -> Function:
    """Of rows x and a weight: two results, of which the first has the shape of x, and a number."""

    def work(tensors: tuple[Any, ...], numbers: tuple[Any, ...], mode: str = "plain") -> Work | Results:
        x, weight = tensors
        if x.dtype != torch.float32:
            raise LaunchError(Diagnostic("dtype-mismatch", "float32 is needed"))
        if not x.numel():
            return torch.zeros(x.shape), torch.zeros(len(x))
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        made = torch.empty(rows.shape), torch.empty(len(rows))
        kernel: Any = recorder
        results = made[0].view(x.shape), made[1]
        return Work(kernel, (rows, weight.contiguous()), made, results, numbers or (0.5,), {"MODE": mode})

    return Function(work)


def addresses(*tensors: Any) -> tuple[int, ...]:
    return tuple(t.data_ptr() for t in tensors)


def test_a_runner_passes_what_was_given_and_what_was_made() -> None:
    first, second = Recorder(), Recorder()
    recipe = Recipe(
        2,
        (room_like(torch.zeros(2, 3)), room_like(torch.zeros(5, dtype=torch.int32))),
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
    rooms = tuple(room_like(torch.zeros(n)) for n in (1, 2, 3))
    result = Recipe(0, rooms, (), returned).runner()(())
    assert result.shape == (1,) if returned == 1 else tuple(map(len, result)) == (1, 2, 3)[:returned]


def test_a_function_prepares_once_and_makes_its_results_anew() -> None:
    recorder = Recorder()
    function = scaled(recorder)
    kept = []
    for number in (2.0, 3.0, 2.0):
        x, weight = torch.zeros(2, 3, 8), torch.zeros(8)
        kept.append(function((x, weight), (number,)))
        y, sums = kept[-1]
        assert (y.shape, sums.shape) == ((2, 3, 8), (6,))
        assert recorder.ran[-1] == (*addresses(x, weight, y, sums), number)
    assert len(recorder.prepared) == 1 and not recorder.called
    assert len({t.data_ptr() for results in kept for t in results}) == 6


@pytest.mark.parametrize(
    "other",
    [
        lambda: (torch.zeros(2, 4, 8), torch.zeros(8)),
        lambda: (torch.zeros(6, 8), torch.zeros(8)),
        lambda: (torch.zeros(2, 3, 16)[..., :8], torch.zeros(8)),
        lambda: (torch.zeros(49)[1:].view(2, 3, 8), torch.zeros(8)),
    ],
    ids=["shape", "rank", "strides", "alignment"],
)
def test_what_is_prepared_serves_its_own_kind_only(other: Any) -> None:
    recorder = Recorder()
    function = scaled(recorder)
    for turn in range(3):
        for make in (lambda: (torch.zeros(2, 3, 8), torch.zeros(8)), other):
            x, weight = make()
            y, sums = function((x, weight))
            assert y.shape == x.shape and len(sums) == x.numel() // 8
            if not recorder.called:  # of strided rows a copy is taken
                assert recorder.ran[-1] == (*addresses(x, weight, y, sums), 0.5)
        assert len(recorder.prepared) + recorder.called == 2 + (recorder.called and turn)


def test_ways_of_a_call_are_prepared_apart() -> None:
    recorder = Recorder()
    function, x, weight = scaled(recorder), torch.zeros(2, 8), torch.zeros(8)
    for _ in range(2):
        function((x, weight), (), ("fast",))
        function((x, weight), (1.0,), ("slow",))
    assert [constants["MODE"] for *_, constants in recorder.prepared] == ["fast", "slow"]
    assert [values[-1] for values in recorder.ran] == [0.5, 1.0, 0.5, 1.0]


def test_numbers_may_be_left_out_and_given() -> None:
    recorder = Recorder()
    function, x, weight = scaled(recorder), torch.zeros(2, 8), torch.zeros(8)
    for numbers in ((), (2.0,), (), (3.0,)):
        function((x, weight), numbers)
    assert [values[-1] for values in recorder.ran] == [0.5, 2.0, 0.5, 3.0]


def test_one_tensor_in_two_places_does_not_tie_them() -> None:
    recorder = Recorder()
    function, x, y = scaled(recorder), torch.zeros(1, 8), torch.ones(1, 8)
    for first, second in ((x, x), (x, y), (y, x), (y, y)):
        function((first, second))
        assert recorder.ran[-1][:2] == addresses(first, second)


def test_copies_are_made_in_every_call() -> None:
    recorder = Recorder()
    function, x, weight = scaled(recorder), torch.zeros(8, 6).t(), torch.zeros(8)
    for _ in range(3):
        y, _ = function((x, weight))
        assert y.shape == x.shape and recorder.ran[-1][0] != x.data_ptr()
    assert recorder.called == 3 and not recorder.prepared


def test_finished_results_are_no_launch() -> None:
    recorder = Recorder()
    function = scaled(recorder)
    for _ in range(3):
        y, sums = function((torch.zeros(3, 0), torch.zeros(0)))
        assert (y.shape, sums.shape) == ((3, 0), (3,))
    assert not recorder.ran


def test_a_launch_beside_the_first_gets_the_ends_of_tensors() -> None:
    recorder, joining = Recorder(), Recorder()

    def work(tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> Work:
        x, y = tensors
        rooms, result = (torch.empty(3, 4),), torch.empty(4)
        beside = Beside((x, y[6:]), (rooms[0][2:],), {"MODE": "last"})
        kernel, last = recorder, Join(joining, (rooms[0].t(), result), {})  # type: ignore[arg-type]
        first: Any = kernel
        return Work(first, (x, y[:6]), (rooms[0][:2].t(),), (result,), numbers, {}, last, rooms, beside)

    function = Function(work)
    for number in (2.0, 3.0):
        x, y = torch.zeros(5), torch.zeros(9)
        result = function((x, y), (number,))
        (one, two), (three,) = recorder.ran[-2:], joining.ran[-1:]
        assert one == (*addresses(x, y), three[0], number)
        assert two == (x.data_ptr(), y.data_ptr() + 24, three[0] + 32, number)
        assert three[1] == result.data_ptr() and result.shape == (4,)
    assert [shapes[:3] for shapes in recorder.prepared] == [((5,), (6,), (4, 2)), ((5,), (3,), (1, 4))]
    assert not recorder.called and len(recorder.ran) == 4


def test_no_tensor_of_a_call_is_kept_alive() -> None:
    recorder = Recorder()
    function = scaled(recorder)
    x, weight = torch.zeros(2, 8), torch.zeros(8)
    results = function((x, weight))
    seen = [weakref.ref(t) for t in (x, weight, *results)]
    del x, weight, results
    gc.collect()
    assert not any(ref() is not None for ref in seen)


def test_what_is_wrong_is_said_by_the_function() -> None:
    recorder = Recorder()
    function, weight = scaled(recorder), torch.zeros(8)
    for _ in range(2):
        function((torch.zeros(2, 8), weight))
        for wrong in (torch.zeros(2, 8, dtype=torch.int32), torch.zeros(2, 8, dtype=torch.int32).to_sparse()):
            with pytest.raises(LaunchError, match="float32 is needed"):
                function((wrong, weight))
    assert len(recorder.prepared) == 1


def test_a_second_launch_joins_what_the_first_wrote() -> None:
    first, second = Recorder(), Recorder()

    def work(tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> Work:
        (x,) = tensors
        read, parts, out = (x if x.is_contiguous() else x.contiguous(),), torch.empty(2, len(x)), torch.empty(len(x))
        kernels: tuple[Any, Any] = first, second
        join = Join(kernels[1], (parts.view(-1), out), {"PARTS": 2})
        return Work(kernels[0], read, (parts,), (out,), (0.5,), {}, join)

    function, x = Function(work), torch.ones(3)
    for _ in range(2):
        out = function((x,))
        (given, parts, number), joined = first.ran[-1], second.ran[-1]
        assert (given, number) == (x.data_ptr(), 0.5) and joined == (parts, out.data_ptr()) and out.shape == (3,)
    assert (first.called, second.called) == (0, 0)
    assert second.prepared == [((6,), (3,), {"PARTS": 2})]
    function((torch.ones(6)[::2],))  # copied first, so launched anew
    assert (first.called, second.called) == (1, 1) and second.ran[-1][0] == first.ran[-1][1]
