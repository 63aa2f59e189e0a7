"""Families of operators: {name: (weight, function(graph) -> a Value, or None if it has no place)}.

A function picks values of the graph and adds one or several nodes as exporters write them.
"""

from . import (
    attention,
    contrib,
    control,
    elementwise,
    norm,
    product,
    quantized,
    rearranged,
    recurrent,
    shape,
    tables,
)

FLOATS = {}
for _module in (
    elementwise, tables, product, norm, shape, attention, recurrent, control, contrib, rearranged
):  # fmt: skip
    FLOATS |= _module.FAMILIES
BYTES = quantized.FAMILIES
