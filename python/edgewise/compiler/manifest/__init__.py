"""Checks of the manifest of an `.edge` package, before anything is allocated.

web/src/worker/package/parse.ts and web/src/worker/inference/manifest.ts implement the same rules:
both readers accept the same packages (tests/hostile/test_readers.py runs both), with the limits of
manifest_limits.py. Whether a package fits into a host's memory is not checked here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..manifest_limits import FORMAT, LIMITS, PROGRAM_TASKS, TARGETS, TASKS, TRAINING_PLANS
from .checker import Checker, JsonObject, read_json
from .decoder import check_decoder
from .files import Contents, check_files, check_weights
from .inference import check_inference
from .slots import check_slot_table
from .task import check_programs
from .training import check_training

__all__ = ["check_format", "check_manifest", "check_slot_table", "plans_of", "read_json"]


def check_format(manifest: object, where: str) -> None:
    """Checks that a JSON value is a manifest of this version.

    Args:
        manifest: value that `read_json` returned.
        where: the package's name, for errors.

    Raises:
        PackageError: it is not.
    """
    c = Checker(where)
    found = c.read_object(manifest, "the manifest").get("format")
    if type(found) is not int or found != FORMAT:
        c.fail(
            "its format",
            f"is {json.dumps(found)[:40]}, this version of Edgewise reads {FORMAT}",
            "Build it again with this version: `edgewise build`.",
        )


def check_manifest(
    manifest: JsonObject, where: str, data_bytes: int | None = None, beside: bool = False
) -> None:
    """Checks a manifest.

    Args:
        manifest: value that `read_json` returned.
        where: the package's name, for errors.
        data_bytes: number of bytes after the manifest and its padding; None: unknown.
        beside: whether weights may lie in files outside of the package, as in packages that a page
            compiled for itself.

    Raises:
        PackageError: a rule does not hold; says which, and where in the manifest.
    """
    check_format(manifest, where)
    c = Checker(where)
    c.read_integer(manifest.get("table_hash"), "table_hash", 0, 0xFFFFFFFF)
    task = c.read_one_of(manifest.get("task"), "task", TASKS)
    c.read_one_of(manifest.get("target", "cpu"), "target", TARGETS)
    for name in c.read_list(manifest.get("kernels", []), "kernels", LIMITS["MAX_KERNELS"]):
        c.read_text(name, "kernels")
    files = check_files(c, manifest, data_bytes)
    contents = Contents(files, check_weights(c, manifest, files, beside))
    if "training" in manifest:
        check_training(c, manifest["training"], contents)
    if task == "inference":
        check_inference(c, manifest.get("inference"), contents)
    elif task in PROGRAM_TASKS:
        check_programs(c, manifest, contents)
    else:
        check_decoder(c, manifest.get("decoder"), contents)


def plans_of(manifest: JsonObject) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """File and slots of every plan of a checked manifest."""
    if manifest["task"] in PROGRAM_TASKS:
        parts = list(manifest["programs"].values())
        if "decoder" in manifest:
            parts += [manifest["decoder"], *manifest["encoder"]["plans"]]
    else:
        parts = [manifest["inference" if manifest["task"] == "inference" else "decoder"]]
    for part in parts:
        for plan in part["plans"]:
            yield plan["file"], plan["slots"]
    for program in manifest.get("training", ()):
        for kind in TRAINING_PLANS:
            yield program["plans"][kind]["file"], program["plans"][kind]["slots"]
