"""Integer layout algebra: `shape:stride`, swizzles, register tiles, and their F2 and ISL forms.

Imports nothing else of argus.
"""

from argus.layout.algebra import (
    blocked_product,
    coalesce,
    complement,
    composition,
    filter_zeros,
    left_inverse,
    logical_divide,
    logical_product,
    raked_product,
    right_inverse,
    tile_to_shape,
    tiled_divide,
    zipped_divide,
    zipped_product,
)
from argus.layout.analysis import bank_conflicts, equal, f2_matrix, is_injective, to_isl, vector_width
from argus.layout.core import Layout, column_major, layout, row_major
from argus.layout.fragment import FragmentLayout, Mode, from_cute, parse_fragment
from argus.layout.inttuple import IntTuple, LayoutError
from argus.layout.notation import parse
from argus.layout.spreading import blocked, replicate, tile, tile_groups
from argus.layout.swizzle import AnyLayout, Swizzle, SwizzledLayout, extremes, table

__all__ = [
    "AnyLayout",
    "FragmentLayout",
    "IntTuple",
    "Layout",
    "LayoutError",
    "Mode",
    "Swizzle",
    "SwizzledLayout",
    "bank_conflicts",
    "blocked",
    "blocked_product",
    "coalesce",
    "column_major",
    "complement",
    "composition",
    "equal",
    "extremes",
    "f2_matrix",
    "filter_zeros",
    "from_cute",
    "is_injective",
    "layout",
    "left_inverse",
    "logical_divide",
    "logical_product",
    "parse",
    "parse_fragment",
    "raked_product",
    "replicate",
    "right_inverse",
    "row_major",
    "table",
    "tile",
    "tile_groups",
    "tile_to_shape",
    "tiled_divide",
    "to_isl",
    "vector_width",
    "zipped_divide",
    "zipped_product",
]
