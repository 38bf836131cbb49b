"""Which model a compiled graph belongs to, and why a model has no graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

import torch


def owns(model: Any, owner: Any) -> bool:
    """Return True if a graph that was traced from `owner` is part of a compiled model or function."""
    original, code = getattr(model, "_orig_mod", model), getattr(_unwrapped(model), "__code__", None)
    if isinstance(original, torch.nn.Module) and any(owner is module for module in original.modules()):
        return True
    return code is not None and owner is code


def why_nothing(model: Any) -> str:
    """Return why nothing of a model was compiled, and what to do."""
    wrapped = hasattr(model, "_orig_mod") or hasattr(model, "_torchdynamo_orig_callable")
    if not wrapped and getattr(model, "_compiled_call_impl", None) is None:
        return 'this is no compiled model: compile it with torch.compile(model, backend="argus"), and pass the result'
    breaks = [str(reason).strip().splitlines()[0] for reason in torch._dynamo.utils.counters["graph_break"]]
    said = f" PyTorch stopped tracing in this process because of: {'; '.join(breaks[:3])}." if breaks else ""
    return (
        "no graph of this model reached the backend. Either the model has not been called since it was compiled, or "
        f"PyTorch traced none of its operators, and all of them run as in eager mode.{said} Recurrent layers (nn.LSTM, "
        "nn.GRU, nn.RNN) are not traced unless torch._dynamo.config.allow_rnn is True"
    )


def owner_of_trace() -> Callable[[], Any]:
    """Return a reference to the module whose method Dynamo traces, or else to the code of the function."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        frame = InstructionTranslator.current_tx().output.root_tx
    except (AttributeError, RuntimeError):
        return lambda: None
    for name in ("self", "fn"):  # the method's module, or the function that PyTorch wraps
        found = frame.f_locals.get(name)
        if isinstance(found, torch.nn.Module):
            return ref(found)
    code = frame.f_code
    return lambda: code


def _unwrapped(model: Any) -> Any:
    """Return the function from which a compiled function was made."""
    while hasattr(model, "_torchdynamo_orig_callable"):
        model = model._torchdynamo_orig_callable
    return model
