"""A snapshot of Pyodide's memory, taken after Edgewise was imported.

When the package is built, wasm/pyodide/snapshot.mjs calls `prepare` and writes the snapshot. The
compiler's worker (web/src/worker/compiler/start.ts) restores it and calls `resume`. This takes
about a tenth of the time of starting Python with its standard library and the wheel. They are
downloaded only if a module is imported that is not in the snapshot.
"""

from __future__ import annotations

import ast
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
from pathlib import Path
from types import ModuleType
from typing import Any

from .page import CALLS

# Modules that the compiler imports only in some calls. Other modules would make the snapshot, which
# a first visit downloads, larger.
_LATER = (
    "compiler.compile",
    "compiler.inspect",
    "compiler.onnx.sink",
    "compiler.onnx.writer",
    "compiler.passes.last_position",
    "compiler.passes.lora",
    "compiler.passes.recompute",
    "host.text.config",
    "extras.onnxruntime_training.artifact_files.models",
    "extras.onnxruntime_training.artifact_files.odtc",
    "compiler.training.export",
    "compiler.training.package",
    "compiler.training.warm",
)


def prepare(warm: Callable[[], None]) -> None:
    """Imports the compiler's modules, and clears caches that would be stale after a restore.

    Args:
        warm: uses them, so that what they keep of a first compilation is in the snapshot.
    """
    for module, _ in CALLS.values():
        importlib.import_module(module)
    for name in _LATER:
        importlib.import_module(f"{__package__}.{name}")
    ast.unparse(ast.parse("0"))  # formulas are unparsed; Python 3.14 imports that part when called
    warm()
    _forget_archives()
    linecache.clearcache()
    gc.collect()


def _forget_archives() -> None:
    """Clears Python's caches of archives in sys.path. importlib.invalidate_caches would read the
    archives.
    """
    sys.path_importer_cache.clear()
    vars(zipimport)["_zip_directory_cache"].clear()


def resume(standard_library: Callable[[], Any], wheel: Callable[[], Any]) -> None:
    """Completes a restored interpreter.

    Args:
        standard_library: JavaScript function that downloads Pyodide's python_stdlib.zip and returns
            a Uint8Array.
        wheel: the same for the wheel that the snapshot was made from.
    """
    random.seed()  # the snapshot contains the generator's state at the time of the build
    sys.meta_path.append(_LateFinder(standard_library, wheel))


class _LateFinder:
    """Finds modules that are not in the snapshot. The first one makes it download all of them."""

    def __init__(self, standard_library: Callable[[], Any], wheel: Callable[[], Any]) -> None:
        self._standard_library = standard_library
        self._wheel = wheel
        self._installed = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder.find_spec. Called after all other finders failed."""
        top = name.partition(".")[0]
        if self._installed or (top != "edgewise" and top not in sys.stdlib_module_names):
            return None
        archive = next(entry for entry in sys.path if entry.endswith(".zip"))
        packages = Path(__file__).parents[1]  # where the wheel lay when the snapshot was made
        library, wheel = self._standard_library().to_bytes(), self._wheel().to_bytes()
        with open(archive, "wb") as file:
            file.write(library)
        zipfile.ZipFile(io.BytesIO(wheel)).extractall(packages)
        self._installed = True
        _forget_archives()
        return PathFinder.find_spec(name, path, target)
