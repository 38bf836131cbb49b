"""The machines on which candidates are timed."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec

from argus.diagnostic import ArgusError, Diagnostic
from argus.tuning.model import MODELS


def place_of_timing(target: str) -> str:
    """Return where candidates are timed: "gpu", "cpu" or "model". Raises `ArgusError` if none of these is possible."""
    if find_spec("torch") is not None:
        if target == "cpu":
            return "cpu"
        import torch

        from argus.runtime.device import target_of

        if torch.cuda.is_available():
            with suppress(ArgusError):
                if target_of("cuda:0") == target:
                    return "gpu"
    if target in MODELS:
        return "model"
    message = f"nothing here can tell how long a kernel takes on {target}"
    help = "run on a machine with that GPU and PyTorch, or choose another target"
    raise ArgusError(Diagnostic("bad-option", message, property="input", help=help))
