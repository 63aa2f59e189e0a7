"""The ops: each declared in one place, with its shape rule, its gradient, its lowering and the
kernels under it.
"""

import importlib
import pkgutil

from .op import OPS, Op

for _module in pkgutil.iter_modules(
    __path__
):  # each file of the package declares its ops when it is imported
    if _module.name != "generate":
        importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["OPS", "Op"]
