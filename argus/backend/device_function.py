"""One function of the device library (`device_api`), and the words that many of its declarations share."""

from __future__ import annotations

from dataclasses import dataclass

ALL = ("cpu", "cuda", "hip")
NVIDIA = ("cpu", "cuda")
AMD = ("cpu", "hip")


@dataclass(frozen=True, slots=True)
class Function:
    """One device function. `rows` are the rows of the instruction tables that it serves.

    `like` is the function with the same effect from which this one differs in speed alone, or "". The header for the
    CPU leaves such functions out: they become that function (`device_api.cpu_variants`).
    """

    name: str
    template: str
    result: str
    parameters: str
    meaning: str
    rows: tuple[str, ...] = ()
    targets: tuple[str, ...] = ALL
    warp: bool = False
    like: str = ""

    @property
    def signature(self) -> str:
        """The function's declaration in C++."""
        head = f"template <{self.template}> " if self.template else ""
        return f"{head}{self.result} {self.name}({self.parameters})"


GLOBAL = "const T* base, i64 offset"
SHARED = "shared_t smem, int offset"


def function(
    name: str,
    template: str,
    result: str,
    parameters: str,
    meaning: str,
    rows: str = "",
    targets: tuple[str, ...] = ALL,
    warp: bool = False,
    like: str = "",
) -> Function:
    """Return a device function that serves the instructions of `rows`, whose names are separated by spaces."""
    return Function(name, template, result, parameters, meaning, tuple(rows.split()), targets, warp, like)
