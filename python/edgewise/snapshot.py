"""A snapshot of Pyodide's memory in which Edgewise is imported already.

wasm/pyodide/snapshot.mjs calls `prepare` and writes the snapshot when the package is built; the
compiler's worker (web/src/compiler/start.ts) restores it and calls `resume`. Python starts from it
about ten times as fast as from its standard library and the wheel, neither of which is downloaded
unless a module is imported that the snapshot lacks.
"""

from __future__ import annotations

import gc
import importlib
import io
import linecache
import random
import sys
import zipfile
import zipimport
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from .page import CALLS

# What the compiler imports only in some of its calls. The rest of the package is left out, since a
# snapshot cannot be larger than the memory that Pyodide starts with.
_LATER = (
    "compile",
    "inspect",
    "onnx.sink",
    "onnx.writer",
    "passes.last_position",
    "passes.lora",
    "passes.recompute",
    "text.config",
    "training.artifact_models",
    "training.export",
    "training.odtc",
    "training.package",
    "training.warm",
)


def prepare() -> None:
    """Imports what the compiler needs, and drops what would be out of date after a restore."""
    for module, _ in CALLS.values():
        importlib.import_module(module)
    for name in _LATER:
        importlib.import_module(f"{__package__}.{name}")
    _forget_archives()
    linecache.clearcache()
    gc.collect()


def _forget_archives() -> None:
    """Drops what Python keeps of the archives in sys.path; invalidate_caches would read them."""
    sys.path_importer_cache.clear()
    vars(zipimport)["_zip_directory_cache"].clear()


def resume(standard_library: Callable[[], Any], wheel: Callable[[], Any]) -> None:
    """Makes a restored Python usable.

    Args:
        standard_library: JavaScript function that downloads Pyodide's python_stdlib.zip and gives
            a Uint8Array.
        wheel: likewise the wheel that the snapshot was made from.
    """
    random.seed()  # the snapshot has the state of the machine that made it
    sys.meta_path.append(_LateFinder(standard_library, wheel))


class _LateFinder:
    """Finds modules that are not in the snapshot: the first one downloads them all."""

    def __init__(self, standard_library: Callable[[], Any], wheel: Callable[[], Any]) -> None:
        self._standard_library = standard_library
        self._wheel = wheel
        self._installed = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As importlib.abc.MetaPathFinder.find_spec; the finders before it found nothing."""
        top = name.partition(".")[0]
        if self._installed or (top != "edgewise" and top not in sys.stdlib_module_names):
            return None
        self._installed = True
        archive = next(entry for entry in sys.path if entry.endswith(".zip"))
        packages = next(entry for entry in sys.path if entry.endswith("/site-packages"))
        with open(archive, "wb") as file:
            file.write(self._standard_library().to_bytes())
        zipfile.ZipFile(io.BytesIO(self._wheel().to_bytes())).extractall(packages)
        _forget_archives()
        return PathFinder.find_spec(name, path, target)
