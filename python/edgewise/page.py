"""The one entry for pages: the functions that the compiler's worker calls.

web/src/worker/compiler/index.ts calls `run` with the files of a model and a question; nothing else
in the package is called from JavaScript. Modules are imported when they are first asked for, since
each of them makes Python's start longer.
"""

from __future__ import annotations

import json
import traceback
from importlib import import_module
from typing import Any

from .compiler.onnx.source import MissingEmbedding, MissingFile, Source
from .errors import EdgewiseError, ModelError, UnsupportedOp

# Questions by their kind, `options["of"]`: the module and the function that answer them. Each takes
# ({name: Source}, options) and returns (JSON text, {file name: bytes}).
CALLS = {
    "package": ("edgewise.page", "compile_package"),
    "task": ("edgewise.compiler.task_package", "page_task"),
    "head": ("edgewise.host.heads.exports", "call"),
    "formats": ("edgewise.host.training.format_calls", "call"),
    "inference": ("edgewise.host.session.inference_calls", "call"),
    "artifacts": ("edgewise.extras.onnxruntime_training.artifact_files.calls", "call"),
}


def run(files: Any, options: str) -> list[Any]:
    """Answers one question of a page.

    Args:
        files: JavaScript Map of the model's files: name to an object with `size` and a synchronous
            `read(offset, size)`.
        options: JSON object. `of` is a key of CALLS, the others are that function's.

    Returns:
        [manifest JSON, {file name: bytes}], or for an error [class name, what, where, remedy, names
        of a missing file, of which one is enough, or None].
    """
    try:
        fields = json.loads(options)
        module, function = CALLS[fields["of"]]
        answer = getattr(import_module(module), function)(page_sources(files), fields)
        return list(answer)
    except MissingFile as e:
        return [ModelError.__name__, e.what, e.where, e.remedy, [e.file]]
    except MissingEmbedding as e:
        return [UnsupportedOp.__name__, e.what, e.where, e.remedy, list(e.files)]
    except EdgewiseError as e:
        return [type(e).__name__, e.what, e.where, e.remedy, None]
    except MemoryError:
        return [
            "OutOfMemory",
            "out of memory for the compiler",
            "",
            "Compile the model ahead of time with `edgewise build`.",
            None,
        ]
    except Exception as e:
        last = traceback.format_exc(limit=-2).strip()
        return [
            "EngineError",
            f"the compiler failed: {type(e).__name__}: {e}",
            "",
            f"This is a bug in Edgewise; please report it with the model. {last}",
            None,
        ]


def compile_package(
    files: dict[str, Source], options: dict[str, Any]
) -> tuple[str, dict[str, bytes]]:
    """Compiles a language model, with options["programs"] so that it can also be trained.

    Args:
        files: {name: Source}.
        options: `dtype`, `dtypes`, `capacity`, `chunks`, `cache_dtype` and `model_file` as
            compile.compile_package's, `target` the name of one, `programs` as
            training.package.compile_training_package's.

    Returns:
        (manifest JSON, {file name: bytes}). Weights stay in the page's files; the manifest says
        where.
    """
    from .compiler.compile import CHUNKS
    from .compiler.targets import target_named

    shared: dict[str, Any] = {
        "dtype": options.get("dtype"),
        "dtypes": options.get("dtypes"),
        "capacity": options.get("capacity"),
        "chunks": tuple(options.get("chunks") or CHUNKS),
        "model_file": options.get("model_file"),
        "cache_dtype": options.get("cache_dtype"),
        "target": target_named(options.get("target", "cpu")),
    }
    if options.get("programs"):
        from .compiler.training.package import compile_training_package

        package = compile_training_package(files, options["programs"], **shared)
    else:
        from .compiler.compile import compile_package as compile_generation

        package = compile_generation(files, **shared)
    return json.dumps(package.manifest), package.blobs


class JsSource(Source):
    """A Source over a JavaScript object with `size` and a synchronous `read(offset, size)` that
    returns a Uint8Array (web/src/worker/compiler-client.ts).

    Args:
        js: the object.
        name: of the file, with folders.
        siblings: {name: JsSource} of the page's other files.
    """

    def __init__(self, js: Any, name: str, siblings: dict[str, JsSource]) -> None:
        self.js, self.name, self.size, self.siblings = js, name, int(js.size), siblings

    def read(self, offset: int, size: int) -> bytes:
        """As Source.read: copied into Python."""
        self._check(offset, size)
        part = self.js.read(offset, size)
        return part.to_bytes() if hasattr(part, "to_bytes") else bytes(part)

    def read_js(self, offset: int, size: int) -> Any:
        """The same as a Uint8Array, which engine/browser.py copies into engine memory directly."""
        self._check(offset, size)
        return self.js.read(offset, size)

    def exponents(self, offset: int, size: int) -> tuple[int, int] | None:
        """As Source.exponents, computed in JavaScript, which does not note that they were read."""
        self._check(offset, size)
        found = self.js.exponents(offset, size)
        return (int(found[0]), int(found[1])) if len(found) else None

    def sibling(self, name: str) -> Source:
        """As Source.sibling, among the page's files: in this folder, else by the name alone."""
        folder = self.name.rsplit("/", 1)[0] + "/" if "/" in self.name else ""
        for path in (folder + name, name):
            if path in self.siblings:
                return self.siblings[path]
        return super().sibling(folder + name)


def page_sources(files: Any) -> dict[str, JsSource]:
    """{name: JsSource} of a JavaScript Map of sources."""
    sources: dict[str, JsSource] = {}
    for name in files:
        sources[name] = JsSource(files[name], name, sources)
    return sources
