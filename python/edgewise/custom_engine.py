"""Engines of their own for given models: `edgewise build MODEL... --engine OUT`."""

from __future__ import annotations

import os
import zlib

from .errors import EngineError, InputError
from .plan.plan import step_kernels, step_values
from .shake import shake

FLAVOURS = ("simd128", "relaxed-threads")


def plans_of(package):
    """Bytes of all plans of a Package: those that write, train or answer."""
    m = package.manifest
    files = [
        p["file"]
        for p in (
            *m.get("decoder", {}).get("plans", ()),
            *m.get("inference", {}).get("plans", ()),
            *(p for t in m.get("training", ()) for p in t["plans"].values()),
        )
    ]
    return [bytes(package.file(f)) for f in files]


def full_engines(folder=None):
    """The folder that has edgewise-*-full.wasm: the one given, the installed package's, or the
    checkout's web/dist/engine.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    for place in (
        [folder]
        if folder
        else [
            os.path.join(here, "engine"),
            os.path.join(os.path.dirname(os.path.dirname(here)), "web", "dist", "engine"),
        ]
    ):
        if any(os.path.exists(os.path.join(place, f"edgewise-{f}-full.wasm")) for f in FLAVOURS):
            return place
    raise EngineError(
        "there is no edgewise-simd128-full.wasm to take kernels from",
        folder or here,
        "Run `make wasm` in a checkout of Edgewise, or say with --from where its"
        " web/dist/engine is.",
    )


def build_engine(plans, target, flavours, folder=None):
    """Writes engines with the kernels alone that these plans call, and of those only the code for
    the values that their parameters have.

    Args:
        plans: bytes of each. target: a .wasm file, for one flavour, or a folder: files called as
        pages look for them. flavours: of FLAVOURS. folder: where the full engines are.
    Returns:
        (names of the kernels, [(path, bytes, bytes as deflate)])
    """
    kernels, values = sorted({k for plan in plans for k in step_kernels(plan)[0]}), {}
    for plan in plans:
        for key, mine in step_values(plan).items():
            values[key] = (
                None
                if mine is None or values.get(key, ()) is None
                else values.get(key, set()) | mine
            )
    folder, made, written = full_engines(folder), {}, []
    if target.endswith(".wasm") and len(flavours) > 1:
        raise InputError(
            "one file cannot be two engines", target, "Add --flavour, or give a folder."
        )
    for flavour in flavours:
        name = os.path.join(folder, f"edgewise-{flavour}-full.wasm")
        with open(name, "rb") as f:
            made[
                (
                    target
                    if target.endswith(".wasm")
                    else os.path.join(target, f"edgewise-{flavour}.wasm")
                )
            ] = shake(f.read(), kernels, name, values)
    if not target.endswith(".wasm"):
        os.makedirs(target, exist_ok=True)
    for path, data in made.items():
        with open(path, "wb") as f:
            f.write(data)
        written.append((path, len(data), len(zlib.compress(data, 9))))
    return kernels, written
