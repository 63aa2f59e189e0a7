"""From a bound graph to a plan: lowering to kernel calls, memory planning, and the bytes the engine
loads.
"""

from .builder import Builder, lower
from .pipeline import compile_graph
from .plan import Plan, Slot

__all__ = ["Builder", "compile_graph", "lower", "Plan", "Slot"]
