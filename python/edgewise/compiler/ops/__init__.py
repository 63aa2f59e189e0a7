"""The ops, by family: each declared in one place, with its shape rule, its gradient, its lowering
and the kernels under it.
"""

import importlib
import pkgutil
from typing import Any

from ..declare.op import OPS, Op

for _family in pkgutil.iter_modules(__path__):
    if not _family.ispkg:
        continue
    _package = importlib.import_module(f"{__name__}.{_family.name}")
    for _module in pkgutil.iter_modules(_package.__path__):
        if _module.ispkg:  # test cases
            continue
        importlib.import_module(f"{_package.__name__}.{_module.name}")


def declared(attribute: str) -> dict[str, Any]:
    """{name: value} of an attribute of Op (epilogue, weight, ...), of the ops that have one."""
    return {op.name: value for op in OPS.values() if (value := getattr(op, attribute))}


__all__ = ["OPS", "Op", "declared"]
