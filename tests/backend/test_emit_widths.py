"""Places in tensors, computed as a machine of 32 and 64 bits does, wherever all that the author wrote fits its type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from argus.backend.emit.address import global_address
from argus.backend.emit.registers import counters, digits
from argus.backend.emit.scope import Domain
from argus.ir.expr import Const, Coord, Expr, LoopVar, Op, Param
from argus.ir.types import int32, int64
from argus.layout import blocked
from argus.source import NO_SPAN
from tests.backend.test_emit_addresses import THREADS, tensor, writer_of

SHAPE = (8, 32)
STRIDE = 2**20 + 3


@dataclass(frozen=True)
class Word:
    """An integer of so many bits, which wraps around."""

    value: int
    bits: int

    def _with(self, other: Word | int, compute: Callable[[int, int], int], swapped: bool = False) -> Word:
        mine = other if isinstance(other, Word) else Word(other, 32 if -(2**31) <= other < 2**31 else 64)
        bits = max(self.bits, mine.bits)
        pair = (mine.value, self.value) if swapped else (self.value, mine.value)
        return Word((compute(*pair) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1), bits)

    def __add__(self, other: Word | int) -> Word:
        return self._with(other, lambda a, b: a + b)

    def __radd__(self, other: int) -> Word:
        return self._with(other, lambda a, b: a + b, True)

    def __sub__(self, other: Word | int) -> Word:
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other: int) -> Word:
        return self._with(other, lambda a, b: a - b, True)

    def __mul__(self, other: Word | int) -> Word:
        return self._with(other, lambda a, b: a * b)

    def __rmul__(self, other: int) -> Word:
        return self._with(other, lambda a, b: a * b, True)

    def __floordiv__(self, other: int) -> Word:
        return self._with(other, lambda a, b: a // b)

    def __mod__(self, other: int) -> Word:
        return self._with(other, lambda a, b: a % b)

    def __neg__(self) -> Word:
        return 0 - self


def wide(word: Word | int) -> Word:
    return Word(word.value if isinstance(word, Word) else word, 64)


def computed(text: str, known: dict[str, object]) -> int:
    """C++ as Python: the coordinates that it divides are not negative."""
    text = text.replace("argus::cast<argus::i64>", "wide").replace("argus::i64", "wide").replace("/", "//")
    result = eval(text, {"__builtins__": {}}, {"wide": wide, **known})
    return result.value if isinstance(result, Word) else int(result)


def value(expr: Expr, known: dict[Expr, int]) -> int:
    """The number of an expression; `OverflowError` where its type, or that of a part, does not hold it."""
    match expr:
        case Const(value=number):
            return int(number)
        case Op(op=name, args=args):
            a = [value(e, known) for e in args]
            binary = {"add": lambda: a[0] + a[1], "sub": lambda: a[0] - a[1], "mul": lambda: a[0] * a[1]}
            result = a[0] if name == "cast" else -a[0] if name == "neg" else binary[name]()
            least, most = expr.dtype.integers
            if not least <= result <= most:
                raise OverflowError
            return result
        case _:
            return known[expr]


def sums(wider: bool) -> st.SearchStrategy[Expr]:
    """Sums and products with constants, of 32 bits, or of 64."""
    dtype = int64 if wider else int32
    factors = st.integers(0, 28).map(lambda n: 2**n)
    numbers = st.one_of(st.integers(-64, 64), factors, factors.map(lambda n: -n))
    constants: st.SearchStrategy[Expr] = st.builds(Const, numbers, st.just(dtype))
    parts: list[Expr] = [Coord(0), Coord(1), LoopVar("s"), Param("M")]
    leaves: list[Expr] = [Op("cast", (e,), int64) if wider else e for e in parts]

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        names, any_ = st.sampled_from(["add", "sub"]), st.one_of(inner, constants)
        both: st.SearchStrategy[Expr] = st.builds(Op, names, st.tuples(inner, any_), st.just(dtype))
        operands = st.one_of(st.tuples(inner, constants), st.tuples(constants, inner))
        scaled: st.SearchStrategy[Expr] = st.builds(Op, st.just("mul"), operands, st.just(dtype))
        one: st.SearchStrategy[Expr] = st.builds(Op, st.just("neg"), st.tuples(inner), st.just(dtype))
        return st.one_of(both, both, scaled, one)

    return st.recursive(st.sampled_from(leaves), grow, max_leaves=6)


@given(st.booleans().flatmap(sums), st.sampled_from([0, 1, 63, 2**20, 2**31 - 1]), st.sampled_from([0, 5, 64, 2**30]))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_what_fits_is_where_it_should_be(index: Expr, size: int, step: int) -> None:
    fragment = blocked(SHAPE, THREADS, vector=1)
    writer, loops = writer_of(fragment), digits(fragment)
    known: dict[Expr, int] = {Param("M"): size, LoopVar("s"): step}
    exact = {}
    try:
        for row in range(SHAPE[0]):
            for column in range(SHAPE[1]):
                exact[row, column] = value(index, {**known, Coord(0): row, Coord(1): column})
    except OverflowError:
        assume(False)
    domain = Domain(writer, fragment, loops, NO_SPAN)
    base, offset = global_address(tensor(), (Coord(0), index), domain)
    at, names = domain.coordinates(), counters(loops)
    for thread in (0, 17, 63):
        here: dict[str, object] = {"x": 0, "x_stride0": Word(STRIDE, 64), "M": Word(size, 32), "s": Word(step, 32)}
        here["thread"] = Word(thread, 32)
        for (ctype, definition), name in writer.prologue.items():
            here[name] = Word(computed(definition, here), 32 if ctype == "int" else 64)
        for i in range(len(next(iter(names.values())))):
            row, column = (int(c[thread, i]) for c in at)
            each = {**here, **{n: Word(int(v[i]), 32) for n, v in names.items()}}
            assert computed(base, each) + computed(offset, each) == row * STRIDE + exact[row, column], (base, offset)
