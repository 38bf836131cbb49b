"""CUDA graphs: a compiled graph is recorded once, and later calls replay its launches.

PyTorch's CUDA graph trees record, check and replay; memory of the results belongs to them, and the next step may use it
again, as with `mode="reduce-overhead"` of Inductor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

BACKWARD = "backward"
"""The name of the graph that computes gradients."""

Boxed = Callable[[list[Any]], Any]
"""A compiled graph that takes a list of its inputs, and may empty it."""


def replayed(gm: torch.fx.GraphModule, call: Boxed, example: Sequence[Any], name: str, given: int) -> tuple[Boxed, str]:
    """Return the compiled graph `call` of `gm` so that CUDA graphs run it, or `call` itself and the reason against.

    `given` is the number of inputs that Dynamo passes. Parameters are read where they are; if one moves, the graph is
    recorded anew. Other inputs are copied to where they were when it was recorded.
    """
    from torch._dynamo.backends import cudagraphs as trees
    from torch._inductor.compile_fx import get_static_input_idxs
    from torch._inductor.cudagraph_trees import cudagraphify_impl
    from torch._inductor.cudagraph_utils import get_placeholder_info
    from torch._inductor.utils import count_tangents, num_fw_fixed_arguments

    if not any(d.type == "cuda" for d in trees.get_device_node_mapping(gm)):
        return call, "no CUDA graph: no tensor is on a GPU"
    backward = name == BACKWARD
    fixed = count_tangents(gm) if backward else num_fw_fixed_arguments(given, len(example))
    if why := trees.check_for_skip(gm, fixed):
        return (_passing(call) if backward else call), f"no CUDA graph: {why}"
    recorded = cudagraphify_impl(
        emptying(call),
        list(example),
        range(fixed) if backward else get_static_input_idxs(fixed),
        device_index=trees.get_device_index(gm),
        is_backward=backward,
        is_inference=name == "inference",
        stack_traces=trees.get_stack_traces(gm),
        placeholders=get_placeholder_info(gm.graph),
        mutated_input_idxs=trees.find_input_mutations(gm.graph),
    )
    recorded._boxed_call = True  # type: ignore[attr-defined]
    return recorded, ""


def emptying(call: Boxed) -> Boxed:
    """Return the same graph so that it empties the list of its inputs: a recording must be their only owner."""

    def run(inputs: list[Any]) -> Any:
        given = list(inputs)
        inputs.clear()
        return call(given)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _passing(call: Boxed) -> Boxed:
    """Return a backward graph that runs without a CUDA graph, and says so to the recorded forward graph."""
    from torch._inductor.cudagraph_trees import get_manager

    def run(inputs: list[Any]) -> Any:
        manager = get_manager(torch.cuda.current_device(), create_if_none_exists=False)
        if manager is not None:
            manager.set_to_running_backward()
        return call(inputs)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
