"""A group: operators that become one kernel, the dimensions of their values, and what they read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from argus.graph.capture import Value, inputs, meta_of
from argus.graph.indexed import INSIDE
from argus.graph.space import Dim, Space

if TYPE_CHECKING:
    from torch.fx import Node


Use = tuple[Value, str]
"""A value of another group, as the operators of a group read it: "a" and "b" are the factors of a product."""


@dataclass
class Group:
    """Operators that become one kernel. `space` has the dimensions of each value that they compute, and of each use of
    a value from elsewhere. `reduced` are the atoms over which they reduce, `product` is the node of a matrix product,
    and `window` that of a convolution or of pooling. `places` are read at computed indices; `fixed` atoms are axes of
    their own. `widened`: the product reads the 16-bit floats from which its float32 factors were converted. `scatter`:
    the node of a sum at places that an index tensor holds."""

    nodes: list[Node]
    space: Space
    reduced: Dim = ()
    product: Any = None
    outputs: tuple[Value, ...] = ()
    contracted: Dim = ()
    reads: dict[Use, Value] = field(default_factory=dict)
    window: Any = None
    places: Dim = ()
    fixed: Dim = ()
    widened: bool = False
    scatter: Any = None

    @property
    def head(self) -> Any:
        """The product or window that the group begins with, if any."""
        return self.product or self.window

    def multiplied(self) -> str:
        """Return the dtype of the value that is read as the last factor of a product, or as the image of a convolution.
        """
        wanted = "b" if self.product is not None else "x"
        meta = next(meta_of(value) for (_, use), value in self.reads.items() if use == wanted)
        assert meta is not None
        return meta.dtype

    def over(self) -> Dim:
        """Return the atoms over which the group currently reduces."""
        return tuple(dict.fromkeys(self.space.atoms(self.reduced)))

    def copy(self) -> Group:
        return Group(
            list(self.nodes), self.space.copy(), self.reduced, self.product, (), self.contracted, dict(self.reads),
            self.window, self.places, self.fixed, self.widened, self.scatter,
        )  # fmt: skip

    def use(self, node: Any, value: Value) -> str:
        """Return how an operator of the group uses a value."""
        read = inputs(node)
        if (value, f"{INSIDE}{node.name}") in self.reads:
            return f"{INSIDE}{node.name}"
        if node is self.product and value in read[-2:]:
            return "ab"[read[-2:].index(value)]
        return "xw"[read.index(value)] if node is self.window and value in read[:2] else ""
