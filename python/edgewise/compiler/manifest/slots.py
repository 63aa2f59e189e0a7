"""Checks of the slots of plans."""

from __future__ import annotations

import struct
from math import prod
from typing import Any, NamedTuple

from ..manifest_limits import KINDS, LIMITS, STATE_SIZES, WEIGHT_FILES, WRITABLE_KINDS
from ..schema.plan_format import HEADER, MAGIC, SLOT, WRITABLE
from .checker import Checker, JsonObject
from .files import Contents


class ManifestSlot(NamedTuple):
    """A slot as the manifest describes it. path: its position in the manifest, for errors."""

    path: str
    name: str
    kind: str
    dtype: str
    shape: list[int]
    nbytes: int


def check_slots(c: Checker, slots: object, at: str, contents: Contents) -> list[ManifestSlot]:
    """Checks the rules that hold for the slots of all plans; adds computed slots to `contents`."""
    found = []
    names = set()
    for i, entry in enumerate(c.read_list(slots, at)):
        slot = _read_slot(c, entry, f"{at}[{i}]")
        if (slot.kind, slot.name) in names:
            c.fail(slot.path, f"has the duplicate name '{slot.name}'")
        names.add((slot.kind, slot.name))
        _check_slot(c, slot, contents)
        found.append(slot)
    temps = sum(slot.kind == "temp" for slot in found)
    if temps > LIMITS["MAX_TEMPS"]:
        c.fail(at, f"has {temps} slots of kind 'temp'")
    return found


def _read_slot(c: Checker, entry: object, path: str) -> ManifestSlot:
    s = c.read_object(entry, path)
    return ManifestSlot(
        path,
        c.read_text(s.get("name"), f"{path}.name"),
        c.read_one_of(s.get("kind"), f"{path}.kind", KINDS),
        c.read_text(s.get("dtype"), f"{path}.dtype"),
        c.read_shape(s.get("shape"), f"{path}.shape"),
        c.read_integer(s.get("bytes"), f"{path}.bytes"),
    )


def _check_slot(c: Checker, slot: ManifestSlot, contents: Contents) -> None:
    path, name, kind, dtype, shape, nbytes = slot
    weights = contents.weights
    if kind == "weight":
        if name not in weights:
            c.fail(path, f"is the weight '{name}', which is not in the package")
        if weights[name] != nbytes:
            c.fail(path, f"has {nbytes} bytes, the weight '{name}' has {weights[name]}")
    if kind == "state" and STATE_SIZES.get(dtype, -1) * prod(shape) != nbytes:
        c.fail(path, f"has {nbytes} bytes, which do not match {dtype[:40]} {shape}")
    if kind == "computed":
        if name in weights:
            c.fail(path, f"has the same name as the weight '{name}'")
        if contents.computed.setdefault(name, nbytes) != nbytes:
            c.fail(path, f"has {nbytes} bytes, but {contents.computed[name]} in another plan")


def check_plan_file(c: Checker, plan: JsonObject, at: str, contents: Contents) -> None:
    """Checks that the file of a plan is in the package."""
    file = c.read_text(plan.get("file"), f"{at}.file")
    if file not in contents.files or file in WEIGHT_FILES:
        c.fail(f"{at}.file", f"is '{file}', which is not a plan in the package")


def check_slot_table(data: bytes, slots: list[dict[str, Any]], where: str, file: str) -> None:
    """Compares the slots of a checked manifest with the slot table of the plan.

    There must be as many, of the same sizes, and only those may be writable whose memory belongs
    to one sequence and one plan.

    Args:
        data: the plan.
        slots: the manifest's description.
        where: the package's name, for errors.
        file: the plan's name, for errors.

    Raises:
        PackageError: they differ.
    """
    c = Checker(where)
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        c.fail(f"file '{file}'", "is not a plan")
    (count,) = struct.unpack_from("<I", data, HEADER.at["n_slots"])
    (at,) = struct.unpack_from("<Q", data, HEADER.at["slots_at"])
    if count != len(slots) or at + SLOT.size * count > len(data):
        c.fail(f"file '{file}'", f"has {count} slots, the manifest describes {len(slots)}")
    for i, slot in enumerate(slots):
        nbytes, flags, _ = SLOT.unpack_from(data, at + SLOT.size * i)
        path = f"slot '{slot['name'][:100]}' of '{file}'"
        if nbytes != slot["bytes"]:
            c.fail(path, f"has {nbytes} bytes, the manifest says {slot['bytes']}")
        if flags & WRITABLE and slot["kind"] not in WRITABLE_KINDS:
            c.fail(path, f"can be written, though it is of the kind '{slot['kind']}'")
