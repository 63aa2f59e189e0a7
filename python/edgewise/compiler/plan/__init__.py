"""From a bound graph to a plan: lowering to kernel calls, memory planning, and the bytes that the
engine loads. `compile_graph` runs all stages, binding and passes included.
"""

from .builder import Builder, lower
from .pipeline import Change, compile_graph, recognised
from .plan import Plan, Slot

__all__ = ["Builder", "Change", "compile_graph", "lower", "Plan", "recognised", "Slot"]
