"""Opens packages of language models, and compiles model folders to packages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...compiler.compile import compile_package
from ...compiler.compile.model_file import Dtype
from ...compiler.onnx import FileSource
from ...compiler.onnx.source import LazyFileSource
from ...compiler.package import Package
from ...compiler.targets import CPU, Target, target_of
from ...errors import InputError, NoSuchFile, PackageError, memory_in_words
from ...logic.manifest.limits import CACHE_DTYPES
from ..hub import local_path

if TYPE_CHECKING:
    from ...compiler.onnx.source import Source
    from ..engine import Device


def name_in(root: str, path: str) -> str:
    """The name of a file relative to a model folder, with slashes on every system."""
    return os.path.relpath(os.path.abspath(path), root).replace(os.sep, "/")


def folder_files(
    path: str | os.PathLike[str], folders: Iterable[str] = ("onnx", "1_Pooling")
) -> tuple[dict[str, Source], str]:
    """The files of a model folder (Hugging Face layout), or of the folder of an .onnx file.

    Args:
        path: of the folder or the file.
        folders: in the folder, whose files are read as well.

    Returns:
        ({name relative to the folder: Source}, the folder)
    """
    path = os.fspath(path)
    root = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
    files = {}
    for base in (root, *(os.path.join(root, folder) for folder in folders)):
        if os.path.isdir(base):
            for name in sorted(os.listdir(base)):
                full = os.path.join(base, name)
                if os.path.isfile(full):
                    files[name_in(os.path.abspath(root), full)] = full
    if os.path.basename(root) == "onnx":  # its configuration and tokenizer are one folder up
        for name in sorted(os.listdir(os.path.dirname(root))):
            full = os.path.join(os.path.dirname(root), name)
            if os.path.isfile(full) and name.endswith((".json", ".jinja")):
                files.setdefault(name, full)
    return {n: LazyFileSource(p) for n, p in files.items()}, root


@memory_in_words
def open_package(
    model: Any,
    dtype: Dtype = None,
    capacity: int | None = None,
    lora: Any = None,
    cache_dtype: str | None = None,
    target: Target = CPU,
    revision: str | None = None,
) -> Package:
    """Opens an .edge file, or compiles an .onnx file or a model folder.

    Args:
        model: path, or the id of a model of the hub.
        dtype: which .onnx file of a folder to use; or that of each by its name.
        capacity: maximum length of a sequence in tokens.
        lora: LoraConfig of adapters that can be added later; None: no adapters.
        cache_dtype: see DecoderModel.
        target: device that a model is compiled for.
        revision: branch, tag or commit of a model of the hub.

    Raises:
        InputError: the path does not exist, or the arguments do not fit a compiled package.
    """
    try:
        path = local_path(os.fsdecode(model), dtype, revision)
    except TypeError:
        raise InputError(
            f"a {type(model).__name__} is not a model",
            "model",
            "Give a model folder, an .onnx file or an .edge package.",
        ) from None
    if path.endswith(".edge"):
        if lora is not None:
            raise InputError(
                "a package is compiled already",
                "lora",
                "Build it with `edgewise build --train lora`, or pass the model's folder.",
            )
        return check_cache_dtype(Package.read(FileSource(path)), cache_dtype)
    if "\0" in path or not os.path.exists(path):
        raise NoSuchFile(
            "there is no such file or folder",
            path,
            "Give a model folder, an .onnx file or an .edge package.",
        )
    files, root = folder_files(path)
    chosen = name_in(root, path) if os.path.isfile(path) else None
    return compile_package(
        files, dtype, capacity, model_file=chosen, lora=lora, cache_dtype=cache_dtype, target=target
    )


def check_device(manifest: Mapping[str, Any], device: Device) -> None:
    """Checks that a device can run the plans of a package. The processor runs those for a GPU, too.

    Raises PackageError: they are for another version of the engine, or for the processor only.
    """
    if manifest.get("table_hash") != target_of(device).kernel_table().hash:
        raise PackageError(
            "it was made for another version of the engine",
            "package",
            "Build it again with this version.",
        )
    if device.target == "webgpu" and manifest.get("target", "cpu") != "webgpu":
        raise PackageError(
            "its plans are for the device 'cpu'",
            "package",
            "Build it with `edgewise build --target webgpu`, or use the device 'cpu'.",
        )


def check_cache_dtype(package: Package, cache_dtype: str | None) -> Package:
    """Checks that a package stores keys and values as `cache_dtype`, unless that is None.

    Returns:
        the package

    Raises:
        InputError: it stores them otherwise.
    """
    built = package.manifest.get("decoder", {}).get("cache_dtype", CACHE_DTYPES[0])
    if cache_dtype is not None and cache_dtype != built:
        raise InputError(
            f"the package was built to keep keys and values as {built}, not as {cache_dtype!r}",
            "cache_dtype",
            "Build it with `edgewise build --cache-dtype`, which takes"
            f" {' or '.join(CACHE_DTYPES)}, or pass the model's folder.",
        )
    return package
