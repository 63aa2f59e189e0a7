"""Checks of the parts of a package: its files, and the weights in them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..manifest_limits import LIMITS, PIECE, WEIGHT_FILES
from .checker import Checker, JsonObject


@dataclass
class Contents:
    """What plans of the package may refer to.

    Attributes:
        files: (offset, bytes) of each part.
        weights: bytes of each weight.
        adapters: bytes of the adapters' states, which the decoder's plans read.
        computed: bytes of each computed slot; plans share their memory.
    """

    files: dict[str, tuple[int, int]]
    weights: dict[str, int]
    adapters: dict[str, int] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)


def check_files(
    c: Checker, manifest: JsonObject, data_bytes: int | None
) -> dict[str, tuple[int, int]]:
    """Checks `files` and `sha256`; returns (offset, bytes) of each file."""
    files: dict[str, tuple[int, int]] = {}
    end = 0
    for name, pair in c.read_object(manifest.get("files"), "files").items():
        c.read_text(name, "the name of a file")
        offset, nbytes = c.read_tuple(pair, f"files['{name}']", 2)
        most = LIMITS["MAX_SIZE" if name == "weights" else "MAX_FILE"]
        c.read_integer(offset, f"the offset of file '{name}'")
        c.read_integer(nbytes, f"the size of file '{name}'", 0, most)
        if data_bytes is not None and offset + nbytes > data_bytes:
            c.fail(
                f"file '{name}'",
                f"has {nbytes} bytes at {offset} in the data, which has {data_bytes}",
                "The package is truncated or damaged: fetch it again.",
            )
        files[name], end = (offset, nbytes), max(end, offset + nbytes)
    if data_bytes is not None and data_bytes > -(-end // 64) * 64:
        c.fail("the data", f"ends at byte {end}, and {data_bytes - end} bytes follow it")
    # Files that overlap would let a short package request any amount of memory.
    reached = 0
    for offset, nbytes, name in sorted(
        (offset, nbytes, name) for name, (offset, nbytes) in files.items() if nbytes
    ):
        if offset < reached:
            c.fail(f"file '{name}'", "overlaps another one")
        reached = offset + nbytes
    _check_digests(c, manifest, files)
    return files


def _check_digests(c: Checker, manifest: JsonObject, files: dict[str, tuple[int, int]]) -> None:
    digests = c.read_object(manifest.get("sha256"), "sha256")
    for name, digest in digests.items():
        if name not in files or name == "weights":
            c.fail(f"sha256['{name}']", "refers to a missing file")
        if not re.fullmatch("[0-9a-f]{64}", c.read_text(digest, f"sha256['{name}']")):
            c.fail(f"sha256['{name}']", "is not a SHA-256")
    missing = next((name for name in files if name != "weights" and name not in digests), None)
    if missing is not None:
        c.fail("sha256", f"lacks the file '{missing}'")


def check_weights(
    c: Checker, manifest: JsonObject, files: dict[str, tuple[int, int]], beside: bool
) -> dict[str, int]:
    """Checks `weights`; returns the bytes of each.

    Args:
        c: reader of the manifest.
        manifest: the manifest.
        files: (offset, bytes) of each file.
        beside: whether weights may lie in files outside of the package.
    """
    weights: dict[str, int] = {}
    spans: dict[str, list[tuple[int, int, int]]] = {}
    for i, entry in enumerate(c.read_list(manifest.get("weights"), "weights")):
        at = f"weights[{i}]"
        weight = c.read_object(entry, at)
        name = c.read_text(weight.get("name"), f"{at}.name")
        file = c.read_text(weight.get("file"), f"{at}.file")
        offset = c.read_integer(weight.get("offset"), f"{at}.offset")
        nbytes = c.read_integer(weight.get("bytes"), f"{at}.bytes")
        if file not in files and (not beside or file in WEIGHT_FILES):
            c.fail(at, f"lies in the file '{file}', which is not in the package")
        if file in files:
            if file not in WEIGHT_FILES:
                c.fail(at, f"lies in the file '{file}', which does not contain weights")
            size = files[file][1]
            if offset + nbytes > size:
                c.fail(at, f"has {nbytes} bytes at {offset} in the file '{file}', which has {size}")
            if nbytes:
                spans.setdefault(file, []).append((offset, nbytes, i))
        if "power" in weight:
            c.read_integer(weight["power"], f"{at}.power", -112, 112)
            if file in files:
                c.fail(at, "has a power, which only those outside of the package have")
        if name in weights:
            c.fail(at, f"has the duplicate name '{name}'")
        weights[name] = nbytes
        if file == "weights" or "sums" in weight:
            for digits in c.read_tuple(weight.get("sums"), f"{at}.sums", -(-nbytes // PIECE)):
                if not re.fullmatch("[0-9a-f]{16}", c.read_text(digits, f"{at}.sums")):
                    c.fail(f"{at}.sums", "is not a list of sums")
    for file_spans in spans.values():
        reached = 0
        for offset, nbytes, i in sorted(file_spans):
            if offset < reached:
                c.fail(f"weights[{i}]", "overlaps another one")
            reached = offset + nbytes
    return weights
