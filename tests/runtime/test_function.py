"""Functions as prepared launches: the right addresses every time, and nothing kept of a call but what it prepared."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any, cast

import pytest

from argus.diagnostic import Diagnostic, LaunchError
from argus.runtime import function as module
from argus.runtime.function import Function
from argus.runtime.work import Call, Work

torch = pytest.importorskip("torch")


class Recorder:
    """Stands in for a kernel and for its plans: keeps what each launch gets."""

    def __init__(self, read: tuple[int, ...] = (0, 1), written: tuple[int, ...] = (2, 3)) -> None:
        self.read, self.written = read, written
        self.prepared: list[tuple[Any, ...]] = []
        self.called = 0
        self.fails: Exception | None = None
        self.ran: list[tuple[Any, ...]] = []

    def prepare(self, *arguments: Any, **constants: Any) -> Any:
        shapes = tuple(tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in arguments)
        self.prepared.append((*shapes, constants))
        return self

    def run(self, values: Sequence[Any]) -> None:
        self.ran.append(tuple(values))
        if self.fails is not None:
            raise self.fails

    def __call__(self, *arguments: Any, **constants: Any) -> None:
        self.called += 1
        self.ran.append(tuple(a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments))


def scaled(recorder: Recorder) -> Function:
    """Of rows x and a weight: two results, of which the first has the shape of x, and a number."""

    def work(tensors: tuple[Any, ...], numbers: tuple[Any, ...], mode: str = "plain") -> Work:
        x, weight = tensors
        if x.dtype != torch.float32:
            raise LaunchError(Diagnostic("dtype-mismatch", "float32 is needed"))
        if not x.numel():
            return Work((), (torch.zeros(x.shape), torch.zeros(len(x))))
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        made = torch.empty(rows.shape), torch.empty(len(rows))
        kernel: Any = recorder
        results = made[0].view(x.shape), made[1]
        arguments = (rows, weight.contiguous(), *made, *(numbers or (0.5,)))
        return Work((Call(kernel, arguments, {"MODE": mode}),), results)

    return Function(work)


def addresses(*tensors: Any) -> tuple[int, ...]:
    return tuple(t.data_ptr() for t in tensors)


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
    recorder, joining = Recorder(written=(2,)), Recorder(read=(0,), written=(1,))

    def work(tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> Work:
        x, y = tensors
        parts, result = torch.empty(3, 4), torch.empty(4)
        kernel, last = cast(Any, recorder), cast(Any, joining)
        first = Call(kernel, (x, y[:6], parts[:2].t(), *numbers))
        beside = Call(kernel, (x, y[6:], parts[2:], *numbers), {"MODE": "last"})
        return Work((first, beside, Call(last, (parts.t(), result))), (result,))

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
    first, second = Recorder((0,), (1,)), Recorder((0,), (1,))

    def work(tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> Work:
        (x,) = tensors
        read, parts, out = (x if x.is_contiguous() else x.contiguous(),), torch.empty(2, len(x)), torch.empty(len(x))
        kernels: tuple[Any, Any] = first, second
        join = Call(kernels[1], (parts.view(-1), out), {"PARTS": 2})
        return Work((Call(kernels[0], (*read, parts, 0.5)), join), (out,))

    function, x = Function(work), torch.ones(3)
    for _ in range(2):
        out = function((x,))
        (given, parts, number), joined = first.ran[-1], second.ran[-1]
        assert (given, number) == (x.data_ptr(), 0.5) and joined == (parts, out.data_ptr()) and out.shape == (3,)
    assert (first.called, second.called) == (0, 0)
    assert second.prepared == [((6,), (3,), {"PARTS": 2})]
    function((torch.ones(6)[::2],))  # copied first, so launched anew
    assert (first.called, second.called) == (1, 1) and second.ran[-1][0] == first.ran[-1][1]


def sums(recorder: Recorder, allocate: Any) -> Function:
    """A function of x, whose second launch reads what `allocate(x)` gives and the first launch may have written."""

    def work(tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> Work:
        (x,) = tensors
        out, room = torch.empty(4), allocate(x)
        return Work((Call(cast(Any, recorder), (x, room, out)),), (out,))

    return Function(work)


@pytest.mark.parametrize(
    ("allocate", "read", "again"),
    [
        (lambda x: torch.empty(4), (0,), False),
        (lambda x: torch.empty(4), (0, 1), True),
        (lambda x: torch.zeros(4), (0,), True),
        (lambda x: torch.empty(4).fill_(1.0), (0,), True),
        (lambda x: x * 2, (0, 1), True),
        (lambda x: x[2:], (0, 1), False),
        (lambda x: x.view(2, 2).t(), (0, 1), False),
    ],
    ids=["scratch", "scratch that is read", "zeros", "filled", "computed", "a part", "a view"],
)
def test_work_that_computes_tensors_is_done_anew(allocate: Any, read: tuple[int, ...], again: bool) -> None:
    recorder = Recorder(read, (1, 2))
    function = sums(recorder, allocate)
    for _ in range(3):
        function((torch.ones(4),))
    assert recorder.called == (3 if again else 0)
    assert len(recorder.ran) == 3


def test_tensors_from_elsewhere_stay_where_they_are() -> None:
    recorder, table = Recorder((0, 1), (2,)), torch.ones(4)
    function = sums(recorder, lambda _: table)
    for _ in range(3):
        function((torch.ones(4),))
    assert [ran[1] for ran in recorder.ran] == [table.data_ptr()] * 3 and not recorder.called


def test_numbers_that_work_changes_are_not_kept() -> None:
    recorder = Recorder((0,), (1,))

    def work(tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> Work:
        out = torch.empty(4)
        return Work((Call(cast(Any, recorder), (*tensors, out, numbers[0] * 2)),), (out,))

    function = Function(work)
    for number in (1.0, 2.0, 3.0):
        function((torch.ones(4),), (number,))
    assert [ran[-1] for ran in recorder.ran] == [2.0, 4.0, 6.0]


def test_writes_to_arguments_are_counted() -> None:
    recorder = Recorder((0,), (1,))

    def work(tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> Work:
        return Work((Call(cast(Any, recorder), tensors),), ())

    function, x, out = Function(work), torch.ones(4), torch.ones(4)
    for count in range(1, 4):
        function((x, out))
        assert (x._version, out._version) == (0, count)
    with torch.inference_mode():
        free = torch.ones(4)
        function((x, free))
    for _ in range(2):
        function((x, free))
    assert len(recorder.ran) == 6


def test_a_function_that_is_no_operator_says_so() -> None:
    recorder = Recorder()
    function, x, weight = scaled(recorder), torch.zeros(2, 8, requires_grad=True), torch.zeros(8)
    with pytest.raises(LaunchError, match="no-operator"):
        function((x, weight))
    with torch.no_grad():
        function((x, weight))
    assert len(recorder.ran) == 1


def test_nothing_is_kept_of_what_failed() -> None:
    recorder, wrong = Recorder((0,), (1,)), [True, True, False, False]

    def work(tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> Work:
        if wrong.pop(0):
            raise ZeroDivisionError
        out = torch.empty(4)
        return Work((Call(cast(Any, recorder), (*tensors, out)),), (out,))

    function = Function(work)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            function((torch.ones(4),))
    for _ in range(3):
        assert function((torch.ones(4),)).shape == (4,)
    assert len(recorder.prepared) == 1 and len(wrong) == 1


def test_what_raises_where_it_runs_is_raised_once() -> None:
    """Out of memory, say: torch.OutOfMemoryError is a RuntimeError."""
    recorder = Recorder()
    function, x, weight = scaled(recorder), torch.zeros(2, 8), torch.zeros(8)
    function((x, weight))
    recorder.fails = RuntimeError("no room")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no room"):
            function((x, weight))
    assert len(recorder.ran) == 3


def test_a_full_memory_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    recorder = Recorder()
    function = scaled(recorder)
    for _ in range(2):
        for size in range(1, 6):
            for mode in "abcd":
                y, _sums = function((torch.zeros(size, 8), torch.zeros(8)), (), (mode,))
                assert y.shape == (size, 8) and recorder.prepared[-1][-1] == {"MODE": mode}
