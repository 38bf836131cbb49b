"""Options of the backend: `torch.compile(model, backend="argus", options={...}, mode=...)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MODES = {"default": False, "reduce-overhead": True, "max-autotune": True, "max-autotune-no-cudagraphs": False}


@dataclass(frozen=True)
class Options:
    """Options of the backend: `torch.compile(model, backend="argus", options={...})`.

    `fallback`: who runs the operators that no kernel takes, "inductor" or "eager". `workers`: number of processes that
    prove side by side, by default one for each core. `cudagraphs`: record the launches in CUDA graphs. `prefer`: "auto"
    leaves convolutions for which PyTorch is measured to be faster, "fast" also products of matrices, and "proved" runs
    every kernel that is proved. `differences`: a group whose specification differs from PyTorch is left ("leave"), or
    ends the compilation ("raise").
    """

    fallback: str = "inductor"
    workers: int | None = None
    cudagraphs: bool = False
    prefer: str = "auto"
    differences: str = "leave"

    @classmethod
    def of(cls, given: Mapping[str, Any] | None, mode: str | None = None) -> Options:
        """Return the options of `torch.compile(options=..., mode=...)`. Modes are those of Inductor, of which the
        backend uses one thing: whether they record CUDA graphs.

        Raises ValueError for an unknown option or mode, or for a value that the option does not have."""
        if mode is not None and mode not in _MODES:
            raise ValueError(f"backend argus has no mode {mode!r}; it has {', '.join(_MODES)}")
        given = {"cudagraphs": _MODES[mode or "default"]} | dict(given or {})
        known: dict[str, tuple[Any, ...] | None] = {
            "fallback": ("inductor", "eager"),
            "workers": None,
            "cudagraphs": (True, False),
        }
        known |= {"prefer": ("auto", "proved", "fast"), "differences": ("leave", "raise")}
        for name, value in given.items():
            if name not in known:
                raise ValueError(f"backend argus has no option {name!r}; it has {', '.join(known)}")
            allowed = known[name]
            if allowed is not None and value not in allowed:
                raise ValueError(f"option {name!r} is {' or '.join(map(repr, allowed))}, and not {value!r}")
        return cls(**given)
