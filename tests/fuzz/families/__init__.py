"""Families of operators: {name: (weight, function(graph) -> a Value, or None if it has no place)}.

A function picks values of the graph and adds one or several nodes as exporters write them.
"""

from . import attention, control, elementwise, norm, product, quantized, recurrent, shape, tables

FLOATS = {}
for _module in (elementwise, tables, product, norm, shape, attention, recurrent, control):
    FLOATS |= _module.FAMILIES
BYTES = quantized.FAMILIES
