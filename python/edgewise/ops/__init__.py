"""The ops, by family: each declared in one place, with its shape rule, its gradient, its lowering
and the kernels under it.
"""

import importlib
import pkgutil

from ..declare.op import OPS, Op

for _family in pkgutil.iter_modules(__path__):
    if not _family.ispkg:
        continue
    _package = importlib.import_module(f"{__name__}.{_family.name}")
    for _module in pkgutil.iter_modules(_package.__path__):  # a module declares its ops on import
        importlib.import_module(f"{_package.__name__}.{_module.name}")

__all__ = ["OPS", "Op"]
