"""Memory of the device, with the bounds of each tensor, and the LDS of a block, with who touched which byte."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tests.machine.gfx942.wave import Flight, Hazard, Wave

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]

BASE = 0x7F00_0000_0000
_GAP = 4096  # bytes between two tensors, which nobody may touch
_READ, _WRITE = 1, 2


class Memory:
    """Arrays at addresses of their own, apart from each other."""

    def __init__(self, arrays: Iterable[tuple[Bytes, bool]]) -> None:
        """Hold copies of `arrays`; True beside one: it may be written."""
        self.addresses: list[int] = []
        given = list(arrays)
        room = sum(_GAP + -(-array.size // 256) * 256 for array, _ in given) + _GAP
        self.bytes = np.full(room, 0xA5, np.uint8)
        self._allowed = np.zeros(room, np.uint8)
        at = _GAP
        for array, writable in given:
            self.addresses.append(BASE + at)
            self.bytes[at : at + array.size] = array
            self._allowed[at : at + array.size] = _READ | (_WRITE if writable else 0)
            at += -(-array.size // 256) * 256 + _GAP

    def places(self, addresses: NDArray[np.uint64], size: int, *, write: bool) -> Places:
        """Return the places of `size` bytes at each address; raise Hazard if one may not be touched."""
        first = addresses.astype(np.int64) - BASE
        inside = (first >= 0) & (first + size <= self.bytes.size)
        wrong = addresses[~inside]
        if not wrong.size:
            places = first[:, None] + np.arange(size)
            need = _WRITE if write else _READ
            wrong = addresses[((self._allowed[places] & need) == 0).any(1)]
        if wrong.size:
            verb = "written" if write else "read"
            raise Hazard(f"{size} bytes at {int(wrong[0]):#x} are {verb}, outside of what the launch allows")
        return places

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes, the same for all lanes."""
        return self.bytes[self.places(np.array([address], np.uint64), size, write=False)[0]].tobytes()

    def array(self, number: int, size: int) -> Bytes:
        """Return the bytes of an array as they are now."""
        start = self.addresses[number] - BASE
        return self.bytes[start : start + size]


class Lds:
    """The LDS of a block. What a wave touched since the last barrier is its own, except for reads beside reads."""

    def __init__(self, size: int) -> None:
        self.bytes = np.random.default_rng(size).integers(0, 256, size, np.uint8)
        self._writer = np.full(size, -1, np.int16)
        self._readers = np.zeros(size, np.uint32)
        self._landing = np.zeros(size, np.bool_)

    def places(self, addresses: NDArray[np.int64], size: int) -> Places:
        """Return the places of `size` bytes at each address."""
        wrong = addresses[(addresses < 0) | (addresses + size > self.bytes.size)]
        if wrong.size:
            raise Hazard(f"{size} bytes of LDS at {int(wrong[0])} are touched, and the block has {self.bytes.size}")
        return addresses[:, None] + np.arange(size)

    def read(self, wave: Wave, places: Places) -> Bytes:
        """Return the bytes at `places` and note that `wave` reads them."""
        self._insist_landed(places)
        self._insist_own(self._writer[places], places, wave, "written")
        self._readers[places] |= np.uint32(1 << wave.number)
        return self.bytes[places]

    def write(self, wave: Wave, places: Places, data: Bytes) -> None:
        """Write `data` and note that `wave` does."""
        self.claim(wave, places)
        self.bytes[places] = data

    def land(self, wave: Wave, places: Places, data: Bytes) -> None:
        """Write `data`, which a load from memory brings: nobody may touch it before the wait."""
        self.write(wave, places, data)
        self._landing[places] = True

    def claim(self, wave: Wave, places: Places) -> None:
        """Note that `wave` writes the bytes at `places`."""
        self._insist_landed(places)
        self._insist_own(self._writer[places], places, wave, "written")
        others = self._readers[places] & ~np.uint32(1 << wave.number)
        if others.any():
            raise Hazard(f"LDS byte {int(places[others != 0].min())} is written while another wave may still read it")
        self._writer[places] = wave.number

    def landed(self, flights: Iterable[Flight]) -> None:
        """Note that accesses are complete."""
        for flight in flights:
            if flight.landing is not None:
                self._landing[flight.landing] = False

    def barrier(self, waves: Iterable[Wave]) -> None:
        """All waves have met: what is complete is now everyone's, what is under way stays its wave's."""
        self._writer[:] = -1
        self._readers[:] = 0
        for wave in waves:
            for flight in wave.under_way():
                for places in (flight.written, flight.landing):
                    if places is not None:
                        self._writer[places] = wave.number
                if flight.read is not None:
                    self._readers[flight.read] |= np.uint32(1 << wave.number)

    def _insist_landed(self, places: Places) -> None:
        if (landing := self._landing[places]).any():
            first = int(places[landing].min())
            raise Hazard(f"LDS byte {first} is touched before the wait for the load from memory that brings it")

    @staticmethod
    def _insist_own(writer: NDArray[np.int16], places: Places, wave: Wave, verb: str) -> None:
        foreign = (writer >= 0) & (writer != wave.number)
        if foreign.any():
            first = int(places[foreign].min())
            other = int(writer[foreign][0])
            raise Hazard(f"LDS byte {first} is touched by wave {wave.number}, {verb} by wave {other}, not ordered")
