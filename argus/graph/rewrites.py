"""The passes over a decomposed graph, before it is partitioned, in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from argus.graph.attention import narrow_attention
from argus.graph.borders import join_borders
from argus.graph.folded import fold_constants
from argus.graph.grouped import multiply_groups
from argus.graph.numbers import fold_numbers
from argus.graph.phases import store_in_turns
from argus.graph.picked import pick_before_softmax
from argus.graph.pooled import pool_by_rows
from argus.graph.scans import scan_from_the_end, scan_whole_rows
from argus.graph.softplus import shorten_softplus


def rewrite(gm: torch.fx.GraphModule, is_read_by_boxes: Callable[[Any], bool]) -> None:
    """Rewrite a graph in place. `is_read_by_boxes(node)` tells if the kernel of a convolution reads its image by boxes.
    """
    fold_numbers(gm)
    fold_constants(gm)
    multiply_groups(gm)
    narrow_attention(gm)
    scan_whole_rows(gm)
    scan_from_the_end(gm)
    pool_by_rows(gm)
    pick_before_softmax(gm)
    shorten_softplus(gm)
    join_borders(gm)
    store_in_turns(gm, is_read_by_boxes)
