"""The layout of an `.edge` file, and what readers of it check before anything is allocated.

    "EDGEWISE", u64 length of the manifest, the manifest in JSON, zeros up to a multiple of 64, data

The first field of the manifest is its SHA-256, computed with zeros in place of the digits.
Whether a package fits into a host's memory is not checked here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from ...errors import PackageError
from ..native import read_json, sha256
from .checker import TOO_DEEP, Checker, too_deep
from .inference import check_inference
from .limits import (
    FORMAT,
    MAX_MANIFEST,
    MAX_PROGRAMS,
    PIECE,
    PROGRAM_TASKS,
    TASKS,
    TRAINING_PLANS,
    WRITABLE_KINDS,
)
from .rules import (
    Contents,
    check_decoder,
    check_files,
    check_processor,
    check_seq2seq,
    check_training,
    check_weights,
)
from .schema import Manifest, ManifestSlot, Pipeline, PlanFile, Seq2SeqPipeline, records

MAGIC = b"EDGEWISE"
HEADER = 16
"""Bytes before the manifest."""
ALIGN = 64
SUM = b'{"manifest_sha256":"'
"""Beginning of every manifest."""
DIGITS = 64

DAMAGED = "The package is damaged: fetch or build it again."
TRUNCATED = "The package is truncated or damaged: fetch or build it again."


class Opened(NamedTuple):
    """A package whose manifest is checked. data_at: where its data begin."""

    manifest: Manifest
    data_at: int


def manifest_bytes(where: str, start: bytes, size: int | None = None) -> int:
    """The length of a package's manifest, which is between HEADER and the data.

    Args:
        where: the package's name, for errors.
        start: the first HEADER bytes of the file, or all of a shorter one.
        size: of the file; None: unknown.

    Raises:
        PackageError: it is no package, or too short.
    """
    if not start.startswith(MAGIC):
        raise PackageError(
            "it is not an Edgewise package",
            where,
            "A package is made by `edgewise build model-dir -o model.edge`; check that the address"
            " is the file's own and not that of a web page.",
        )
    if len(start) < HEADER:
        raise ends_early(where)
    low = int.from_bytes(start[len(MAGIC) : len(MAGIC) + 4], "little")
    high = int.from_bytes(start[len(MAGIC) + 4 : HEADER], "little")
    if high or low > MAX_MANIFEST or (size is not None and HEADER + low > size):
        much = f"more than {MAX_MANIFEST}" if high else str(low)
        what = f"its manifest has an invalid length of {much} bytes"
        raise PackageError(what, where, TRUNCATED)
    return low


def open_manifest(where: str, text: bytes, size: int | None = None, own: bool = False) -> Opened:
    """Reads and checks the manifest of a package.

    Args:
        where: the package's name, for errors.
        text: the manifest.
        size: of the file; None: unknown.
        own: whether it is of a page's own storage, where weights may lie in files outside of the
            package.

    Raises:
        PackageError: a rule does not hold; says which, and where in the manifest.
    """
    c = Checker(where, records())
    value = read_root(c, text)
    if not text.startswith(SUM + digest_of(text).encode()):
        raise PackageError("its manifest does not match its checksum", where, DAMAGED)
    data_at = aligned(HEADER + len(text))
    data_bytes = None if size is None else max(0, size - data_at)
    return Opened(check_manifest(c, value, data_bytes, own), data_at)


def ends_early(where: str) -> PackageError:
    """The error for a file that is shorter than it says."""
    return PackageError("the file ends too early", where, TRUNCATED)


def read_root(c: Checker, text: bytes) -> object:
    """Parses a manifest, and checks that it is one of this version."""
    value, fault = read_json(text, TOO_DEEP)
    if not fault and too_deep(value):
        fault = TOO_DEEP
    if fault:
        c.fail("the manifest", fault)
    found = c.read_object(value, "the manifest").get("format")
    if type(found) is not int or found != FORMAT:
        what = str(found) if type(found) is int else "not an integer"
        c.fail(
            "its format",
            f"is {what}, this version of Edgewise reads {FORMAT}",
            "Build the package again with this version: `edgewise build`.",
        )
    return value


def check_manifest(
    c: Checker, value: object, data_bytes: int | None = None, own: bool = False
) -> Manifest:
    """Checks a manifest of this version, and returns it.

    Args:
        c: the checker, with the schema.
        value: that `read_root` returned.
        data_bytes: number of bytes after the manifest and its padding; None: unknown.
        own: as for `open_manifest`.

    Raises:
        PackageError: a rule does not hold.
    """
    fields = c.read_object(value, "the manifest")
    task = c.read_choice(fields.get("task"), "task", TASKS)
    decodes = task in PROGRAM_TASKS and "decoder" in fields
    seq2seq = decodes and "encoder" in fields
    c.check_record(value, _record_of(task, seq2seq, decodes), "")
    checked = cast(Manifest, value)
    check_files(c, checked, data_bytes)
    contents = Contents(files=checked["files"], own=own)
    check_weights(c, checked["weights"], contents)
    language = checked["decoder"] if decodes and not seq2seq else None
    check_training(c, checked.get("training", []), language, contents)
    if task == "inference":
        check_inference(c, checked["inference"], "inference", contents)
    elif task in PROGRAM_TASKS:
        if seq2seq:
            of = cast(Seq2SeqPipeline, value)
            check_seq2seq(c, of["encoder"], of["decoder"], contents)
        elif decodes:
            check_decoder(c, checked["decoder"], contents)
        _check_programs(c, cast(Pipeline, value), seq2seq, contents)
    else:
        check_decoder(c, checked["decoder"], contents)
    return checked


def _record_of(task: str, seq2seq: bool, decodes: bool) -> str:
    if task == "text-generation":
        return "TextGeneration"
    if task == "inference":
        return "AnyModel"
    if seq2seq:
        return "Seq2SeqPipeline"
    return "MultimodalPipeline" if decodes else "Pipeline"


def _check_programs(c: Checker, manifest: Pipeline, seq2seq: bool, contents: Contents) -> None:
    """Checks the graphs of a pipeline, and its processor."""
    programs = manifest["programs"]
    if len(programs) > MAX_PROGRAMS or not (len(programs) or seq2seq):
        c.fail("programs", f"has {len(programs)} entries")
    for name, program in programs.items():
        at = f"programs['{name}']"
        check_inference(c, program, at, contents)
        if not program["outputs"]:
            c.fail(f"{at}.outputs", "has 0 entries")
    if "processor" in manifest:
        check_processor(c, manifest["processor"])


class PlanSlots(NamedTuple):
    """The file of a plan, and the manifest's description of its slots."""

    file: str
    slots: Sequence[ManifestSlot]


def plans_of(manifest: Manifest) -> list[PlanSlots]:
    """The plans of a checked manifest."""
    plans: list[PlanFile] = []
    if manifest["task"] == "text-generation":
        plans += manifest["decoder"]["plans"]
    elif manifest["task"] == "inference":
        plans += cast(list[PlanFile], manifest["inference"]["plans"])
    else:
        for program in manifest["programs"].values():
            plans += cast(list[PlanFile], program["plans"])
        if "decoder" in manifest:
            plans += manifest["decoder"]["plans"]
            if "encoder" in manifest:
                for entry in manifest["encoder"]["plans"]:
                    plans += entry["plans"]
    for training in manifest.get("training", []):
        for kind in TRAINING_PLANS:
            plan = training["plans"].get(kind)
            if plan is not None:
                plans.append(plan)
    return [PlanSlots(plan["file"], plan["slots"]) for plan in plans if "file" in plan]


class Slot(NamedTuple):
    """A slot in the plan itself."""

    bytes: int
    writable: bool


def check_slot_table(
    c: Checker, plan: PlanSlots, is_plan: bool, table: Sequence[Slot] | None
) -> None:
    """Compares the slots of a checked manifest with the slot table of the plan.

    There must be as many, of the same sizes, and only those may be writable whose memory belongs
    to one sequence and one plan.

    Args:
        c: the checker.
        plan: the manifest's description.
        is_plan: whether the file begins as a plan.
        table: of the plan; None: it reaches beyond the file.

    Raises:
        PackageError: they differ.
    """
    if not is_plan:
        c.fail(f"file '{plan.file}'", "is not a plan")
    if table is None or len(table) != len(plan.slots):
        count = "too many" if table is None else str(len(table))
        described = f"the manifest describes {len(plan.slots)}"
        c.fail(f"file '{plan.file}'", f"has {count} slots, {described}")
    for i, slot in enumerate(plan.slots):
        path = f"slot '{slot['name'][:100]}' of '{plan.file}'"
        found = table[i]
        if found.bytes != slot["bytes"]:
            c.fail(path, f"has {found.bytes} bytes, the manifest says {slot['bytes']}")
        if found.writable and slot["kind"] not in WRITABLE_KINDS:
            c.fail(path, f"can be written, though it is of the kind '{slot['kind']}'")


# ---- checksums
def check_part(data: bytes, digest: str, where: str) -> None:
    """Checks a part that is read whole. where: the package and the part.

    Raises:
        PackageError: it has another SHA-256.
    """
    if sha256(data) != digest:
        raise PackageError("it does not match its checksum", where, DAMAGED)


def digest_of(text: bytes) -> str:
    """The checksum of a manifest, whatever it has in its place."""
    return sha256(SUM + ("0" * DIGITS).encode() + text[len(SUM) + DIGITS :])


def damaged_weight(name: str, piece: int, nbytes: int, where: str) -> PackageError:
    """The error for a piece of a weight that has another checksum.

    Args:
        name: of the weight.
        piece: its index.
        nbytes: of the weight.
        where: the file.
    """
    begin, end = piece * PIECE, min(nbytes, (piece + 1) * PIECE)
    return PackageError(
        f"bytes {begin} to {end} of the weight '{name}' do not match their checksum",
        where,
        "The file was damaged or replaced while it was fetched. Fetch it again; if it stays, build"
        " the package again.",
    )


# ---- writing
def aligned(nbytes: int) -> int:
    """The next multiple of ALIGN."""
    return -(-nbytes // ALIGN) * ALIGN


def unsigned(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields of a manifest with zeros as its checksum, which is the first one."""
    made: dict[str, object] = {"manifest_sha256": "0" * DIGITS}
    for name, value in fields.items():
        if name != "manifest_sha256":
            made[name] = value
    return made


def signed(text: bytes) -> bytes:
    """A manifest with its checksum."""
    return SUM + digest_of(text).encode() + text[len(SUM) + DIGITS :]


def places(sizes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """(offset, bytes) of parts in the data, one after the other. sizes: their bytes."""
    made: dict[str, tuple[int, int]] = {}
    at = 0
    for name, nbytes in sizes.items():
        made[name] = (at, nbytes)
        at += aligned(nbytes)
    return made
