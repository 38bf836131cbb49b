"""The state of a wave: registers of 64 lanes, scalar registers, and what it has in flight."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tests.machine.gfx942.memory import Lds, Memory

LANES = 64
VECTORS = 512
"""Vector registers: `v` from 0, and accumulation registers `a` from 256."""
VCC, M0, EXEC = 106, 124, 126
SCALAR = 1000
"""Added to the number of a scalar register where both files are meant."""

Words = NDArray[np.uint32]
Mask = NDArray[np.bool_]


class Hazard(Exception):
    """An access that the machine does not order, or that is out of bounds."""


@dataclass(eq=False, slots=True)
class Flight:
    """An access under way: what it will fill, and what of LDS it still touches.

    `counters` are those that must be waited for; `ordered`: accesses that were begun later are complete later.
    """

    text: str
    counters: set[str]
    registers: tuple[int, ...] = ()
    ordered: bool = True
    read: NDArray[np.int64] | None = None
    written: NDArray[np.int64] | None = None
    landing: NDArray[np.int64] | None = None


def lanes_of(bits: int) -> Mask:
    """Return the lanes whose bits are set."""
    return np.unpackbits(np.frombuffer(bits.to_bytes(8, "little"), np.uint8), bitorder="little").astype(np.bool_)


def bits_of(lanes: Mask) -> int:
    """Return the bits of the lanes that are True."""
    return int.from_bytes(np.packbits(lanes, bitorder="little").tobytes(), "little")


@dataclass(eq=False, slots=True)
class Wave:
    """A wave of a block. `place` is the address of the next instruction; `base` that of the image in memory."""

    number: int
    place: int
    base: int
    memory: Memory
    lds: Lds
    v: Words
    s: list[int]
    private: NDArray[np.uint8]
    scc: bool = False
    mask: Mask = field(default_factory=lambda: np.ones(LANES, np.bool_))
    full: bool = True
    ended: bool = False
    flights: dict[str, list[Flight]] = field(default_factory=lambda: {"vmcnt": [], "lgkmcnt": []})
    busy: dict[int, Flight] = field(default_factory=dict)

    def scalar(self, n: int) -> int:
        """Return the 32 bits of a scalar register."""
        if self.busy:
            self.insist((SCALAR + n,))
        return self.s[n]

    def pair(self, n: int) -> int:
        """Return the 64 bits of two scalar registers."""
        return self.scalar(n) | self.scalar(n + 1) << 32

    def set_scalar(self, n: int, value: int) -> None:
        if self.busy:
            self.insist((SCALAR + n,))
        self.s[n] = value & 0xFFFFFFFF
        if n >= EXEC:
            self.mask = lanes_of(self.s[EXEC] | self.s[EXEC + 1] << 32)
            self.full = bool(self.mask.all())

    def set_pair(self, n: int, value: int) -> None:
        self.set_scalar(n, value)
        self.set_scalar(n + 1, value >> 32)

    def vector(self, n: int) -> Words:
        """Return the lanes of a vector register."""
        if self.busy:
            self.insist((n,))
        return self.v[n]

    def set_vector(self, n: int, value: Words, also: Mask | None = None) -> None:
        """Write the lanes of a vector register that are active, and of those only the ones of `also`, if given."""
        if self.busy:
            self.insist((n,))
        if also is not None:
            np.copyto(self.v[n], value, where=self.mask & also)
        elif self.full:
            self.v[n] = value
        else:
            np.copyto(self.v[n], value, where=self.mask)

    def insist(self, registers: Iterable[int], allowed: str = "") -> None:
        """Raise Hazard if an access under way will fill one of `registers`, except for ordered ones of `allowed`."""
        for n in registers:
            flight = self.busy.get(n)
            if flight is not None and not (flight.ordered and flight.counters == {allowed}):
                name = f"s{n - SCALAR}" if n >= SCALAR else f"v{n}" if n < 256 else f"a{n - 256}"
                raise Hazard(f"{name} is used before the wait for `{flight.text}`")

    def begin(self, flight: Flight) -> None:
        """Note an access that is under way from now on."""
        for counter in flight.counters:
            self.flights[counter].append(flight)
        for n in flight.registers:
            self.busy[n] = flight

    def wait(self, counter: str, left: int) -> list[Flight]:
        """Wait until at most `left` accesses of a counter are under way; return those that are then complete for sure.

        Ordered accesses are complete in their order. Others may be complete in any order, so of them nothing is sure
        while one may be left.
        """
        queue, after, kept, done = self.flights[counter], 0, [], []
        for flight in reversed(queue):
            after += flight.ordered
            (done if (after > left if flight.ordered else left == 0) else kept).append(flight)
        self.flights[counter] = kept[::-1]
        for flight in done:
            flight.counters.discard(counter)
        return [flight for flight in done[::-1] if not flight.counters and self._ended(flight)]

    def _ended(self, flight: Flight) -> bool:
        for n in flight.registers:
            if self.busy.get(n) is flight:
                del self.busy[n]
        return True

    def under_way(self) -> list[Flight]:
        """Return every access that is not complete."""
        return list({id(f): f for queue in self.flights.values() for f in queue}.values())
