"""Engines that contain only the kernels of given models: `edgewise build MODEL... --engine OUT`."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence

from ..errors import EngineError, InputError
from ..logic.manifest.package import plans_of as manifest_plans
from .package import Package
from .plan.plan import step_kernels, step_values
from .shake import shake

FLAVOURS = ("simd128", "simd128-threads", "relaxed-threads")


MEDIA = {"image", "audio", "diffusion"}
"""Processors that resample pictures or sound in the engine: the same as in web/src/worker."""


def plans_of(package: Package) -> list[bytes]:
    """All plans of a package, whatever they are for."""
    return [bytes(package.file(plan.file) or b"") for plan in manifest_plans(package.manifest)]


def needs_media(package: Package) -> bool:
    """Whether the package's pipeline reads or makes pictures, or reads sounds."""
    return not MEDIA.isdisjoint(package.manifest.get("processor", {}))


def full_engines(folder: str | None = None) -> str:
    """The folder that contains edgewise-*-full.wasm: `folder`, or else the installed package's or
    the checkout's.

    Raises:
        EngineError: there are none.
    """
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    checkout = os.path.dirname(os.path.dirname(here))
    candidates = [
        os.path.join(here, "host", "engine"),
        os.path.join(checkout, "web", "dist", "engine"),
    ]
    for candidate in [folder] if folder else candidates:
        if any(os.path.exists(_full_engine(candidate, flavour)) for flavour in FLAVOURS):
            return candidate
    raise EngineError(
        "there is no edgewise-simd128-full.wasm to take kernels from",
        folder or here,
        "Pass the path of dist/engine of the npm package with --from, or run `make wasm` in a"
        " checkout of Edgewise.",
    )


def _full_engine(folder: str, flavour: str) -> str:
    return os.path.join(folder, f"edgewise-{flavour}-full.wasm")


# The import of the engine's memory, up to the flags of its limits; 2 of them means shared.
_MEMORY = b"\x03env\x06memory\x02"


def _read_full_engine(folder: str, flavour: str) -> bytes:
    """A full engine. The npm package has no simd128: that is simd128-threads but for a flag."""
    path = _full_engine(folder, flavour)
    unshared = flavour == "simd128" and not os.path.exists(path)
    with open(_full_engine(folder, "simd128-threads") if unshared else path, "rb") as f:
        engine = bytearray(f.read())
    if unshared:
        engine[engine.index(_MEMORY) + len(_MEMORY)] &= ~2
    return bytes(engine)


def build_engine(
    plans: Iterable[bytes],
    target: str,
    flavours: Sequence[str],
    folder: str | None = None,
    media: bool = False,
) -> tuple[list[str], list[tuple[str, int, int]]]:
    """Writes engines that contain only the kernels of these plans, and of those only the code for
    the values that their parameters have.

    Args:
        plans: that the engine must run.
        target: a .wasm file, for one flavour; or a folder, for files with the names that pages
            look for.
        flavours: of FLAVOURS.
        folder: of the full engines.
        media: include the functions that resample pictures and sound.

    Returns:
        (names of the kernels, [(path, bytes, bytes as deflate)] of the files).

    Raises:
        InputError: several flavours for one file.
        EngineError: there are no full engines.
    """
    is_file = target.endswith(".wasm")
    if is_file and len(flavours) > 1:
        raise InputError(
            "one file cannot be two engines", target, "Add --flavour, or pass a folder."
        )
    kernels: set[str] = set()
    values: dict[tuple[str, str], set[int] | None] = {}  # None: any value
    for plan in plans:
        kernels.update(step_kernels(plan)[0])
        for key, used in step_values(plan).items():
            known = values.setdefault(key, set())
            values[key] = None if used is None or known is None else known | used
    folder = full_engines(folder)
    made = {}
    for flavour in flavours:
        full = _full_engine(folder, flavour)
        path = target if is_file else os.path.join(target, f"edgewise-{flavour}.wasm")
        engine = _read_full_engine(folder, flavour)
        made[path] = shake(engine, sorted(kernels), full, values, media)
    if not is_file:
        os.makedirs(target, exist_ok=True)
    for path, data in made.items():
        with open(path, "wb") as f:
            f.write(data)
    sizes = [(path, len(data), len(zlib.compress(data, 9))) for path, data in made.items()]
    return sorted(kernels), sizes
