"""Smaller engines: takes kernels out of an engine's .wasm, and every function that only they
reached.

- `shake(wasm, keep) -> bytes`: an engine with only the kernels named in `keep`; of kernels with
  `values`, only the code for these values of their parameters.
- `kernels_of(wasm) -> [name]`: the kernels of an engine.
- `python -m edgewise.compiler.shake full.wasm base.wasm`: without the kernels declared `rare` and
  without core/media, as wasm/Makefile does.

Kernels are reached through one block of data, `ew_code` in core/table.h: a mark, the table's hash,
then two function pointers per kernel. Zeros there remove a kernel; the engine then refuses plans
that call it. What stays is found as a garbage collector finds it, from exports and the kernels that
stay: by calls, and by function pointers. A pointer is a number of the table's range. The linker
begins the table at 513 (wasm/Makefile), so few other constants look like one; those that do only
keep a function that is not needed. Code for values of parameters that no plan has is marked in C
(EW_CHOICE and EW_USES in core/kernel.h) by calls of two functions. Functions that nothing reaches
are removed, and calls get new numbers. Plain Python: no toolchain is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ...errors import EngineError
from ..ops.table import kernel_table
from .encoding import Broken
from .module import WasmModule

T = TypeVar("T")


def shake(
    wasm: bytes,
    keep: Iterable[str],
    name: str = "engine",
    values: Mapping[tuple[str, str], set[int] | None] | None = None,
    media: bool = True,
) -> bytes:
    """An engine with only some kernels, and what they need.

    Args:
        wasm: an engine, of either flavour.
        keep: names of kernels, all of which the engine must have.
        name: of the file, for errors.
        values: {(kernel, parameter): the values that plans have, or None for any} of the parameters
            that CImplementation's `variants` name; None: all values stay.
        media: the functions that resample pictures and sound stay.

    Raises:
        EngineError: it is not an engine of this version, or lacks one of the kernels.
    """
    keep = set(keep)

    def without(module: WasmModule) -> bytes:
        for k in sorted(keep - module.kernels.keys()):
            raise EngineError(
                f"it has no kernel '{k}'",
                name,
                "Take it from a full engine: edgewise-simd128-full.wasm or"
                " edgewise-relaxed-threads-full.wasm.",
            )
        if values is not None:
            module.narrow(keep, values)
        return module.without(keep, media)

    return _guarded(without, wasm, name)


def kernels_of(wasm: bytes, name: str = "engine") -> list[str]:
    """Names of the kernels of an engine.

    Raises:
        EngineError: it is not an engine of this version.
    """
    return _guarded(lambda m: list(m.kernels), wasm, name)


def _guarded(f: Callable[[WasmModule], T], wasm: bytes, name: str) -> T:
    try:
        return f(WasmModule(bytes(wasm)))
    except (Broken, IndexError, KeyError) as e:
        raise EngineError(
            str(e) if isinstance(e, Broken) else "its parts are incompatible",
            name,
            "Give a .wasm of `make wasm` of this version of Edgewise, as it was built.",
        ) from None


def main(arguments: Sequence[str]) -> None:
    """Writes the base engine: the full one without the kernels declared `rare` and core/media.

    Args:
        arguments: paths of the full engine and of the base engine.
    """
    source, target = arguments
    with open(source, "rb") as f:
        wasm = f.read()
    with open(target, "wb") as f:
        common = [k.name for k in kernel_table().kernels if not k.c.rare]
        f.write(shake(wasm, common, source, media=False))
