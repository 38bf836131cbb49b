"""Images keep their channels last from one convolution to the next, as Inductor lays them out.

    conv → relu → conv     →     conv(channels last) → relu → conv → the layout that the result had

Kernels of convolutions read and write images with channels last. Without this pass, each convolution would be followed
by a copy back. PyTorch's own rules carry the layout through the operators in between; the pass only asks for it where a
convolution reads its image, and restores the layout of the graph's results.
"""

from __future__ import annotations

from typing import Any

import torch

from argus.graph.patches import multiply_patches

_CONVOLUTIONS = frozenset((torch.conv1d, torch.conv2d, torch.conv3d, torch.conv_transpose2d, torch.conv_transpose3d))
_LEAST = 2
"""Number of convolutions from which on a graph is laid out."""
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_FIXED = ("as_strided", "set_", "stride", "storage_offset", "data_ptr", "_enter_autocast", "unfold")
"""Calls that depend on strides, or leave a state behind if the graph is traced once more."""

_SOURCES, _SOURCE = "_param_name_to_source", "_dynamo_source"
"""What Dynamo notes of a graph, and of an input, beside their metadata."""


def keep_channels_last(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return a graph that Dynamo traced so that its convolutions have channels last, or the graph itself if that
    changes more than layouts."""
    if any(_name(n) in _FIXED for n in gm.graph.nodes):
        return gm
    laid = _noted(torch.fx.GraphModule(gm, _copied(gm.graph)), gm)
    convolutions = [n for n in laid.graph.nodes if n.op == "call_function" and n.target in _CONVOLUTIONS]
    others = [n for n in convolutions if not multiply_patches(laid.graph, n)]
    if len(convolutions) == len(others) < _LEAST:
        return gm
    if len(convolutions) >= _LEAST:
        known: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in others:
            _ask(laid.graph, node, known)
    try:
        found = _Traced(laid).results()
    except Exception:  # Some operator needs the layout that the graph had.
        return gm
    return laid if _restored(laid, gm, found) else gm


def _noted(laid: torch.fx.GraphModule, gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Note of a copy what Dynamo notes of a graph and its inputs. CUDA graphs know by it which inputs are parameters.
    """
    laid.meta |= gm.meta
    noted = [(gm, laid, _SOURCES), *((a, b, _SOURCE) for a, b in zip(_inputs(gm), _inputs(laid), strict=True))]
    for before, after, key in noted:
        if hasattr(before, key):
            setattr(after, key, getattr(before, key))
    return laid


def _inputs(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return list(gm.graph.find_nodes(op="placeholder"))


def _copied(graph: torch.fx.Graph) -> torch.fx.Graph:
    copy = torch.fx.Graph()
    known: dict[torch.fx.Node, torch.fx.Node] = {}
    copy.output(copy.graph_copy(graph, known))
    for node, own in known.items():
        own.meta = dict(node.meta)
    return copy


def _ask(graph: torch.fx.Graph, node: torch.fx.Node, known: dict[torch.fx.Node, torch.fx.Node]) -> None:
    """Give a convolution its image with channels last. Convolutions of one image share it (`known`)."""
    image = node.args[0] if node.args else node.kwargs.get("input")
    value = image.meta.get("example_value") if isinstance(image, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor) or value.ndim not in _FORMATS or not node.args:
        return
    assert isinstance(image, torch.fx.Node)
    if image not in known:
        with graph.inserting_before(node):
            known[image] = graph.call_method("contiguous", (image,), {"memory_format": _FORMATS[value.ndim]})
    node.args = (known[image], *node.args[1:])


class _Traced(torch.fx.Interpreter):
    """Runs a graph on tensors without contents."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        super().__init__(gm)
        self.inputs = [n.meta.get("example_value") for n in gm.graph.nodes if n.op == "placeholder"]

    def results(self) -> tuple[Any, ...]:
        """Return the graph's results."""
        modes = [x.fake_mode for x in self.inputs if isinstance(x, torch._subclasses.FakeTensor)]
        with torch.no_grad(), modes[0]:
            found: tuple[Any, ...] = self.run(*map(_anew, self.inputs))
        return found


def _anew(x: Any) -> Any:
    """Return a tensor of the same layout, so that operators that write do not write the one that Dynamo keeps."""
    if not isinstance(x, torch.Tensor):
        return x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def _restored(laid: torch.fx.GraphModule, gm: torch.fx.GraphModule, found: tuple[Any, ...]) -> bool:
    """Restore the layout of the results of `laid`. Return False if one had another layout than the usual one."""
    (output,) = laid.graph.find_nodes(op="output")
    (wanted,) = gm.graph.find_nodes(op="output")
    made = []
    for node, own, value in zip(wanted.args[0], output.args[0], found, strict=True):
        before = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
        if isinstance(before, torch.Tensor) and isinstance(value, torch.Tensor) and before.stride() != value.stride():
            if not before.is_contiguous():
                return False
            with laid.graph.inserting_before(output):
                own = laid.graph.call_method("contiguous", (own,))
        made.append(own)
    output.args = (tuple(made),)
    laid.recompile()
    return True


def _name(node: torch.fx.Node) -> str:
    return str(node.target) if node.op == "call_method" else str(getattr(node.target, "__name__", ""))
