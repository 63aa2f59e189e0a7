"""The manifest of an `.edge` package: its schema, and its checks before anything is allocated.

web/src/worker/package/ interprets the same schema: both readers accept the same packages
(tests/hostile/test_readers.py runs both). Whether a package fits into a host's memory is not
checked here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NoReturn, cast

from ..logic.manifest.checker import TOO_DEEP, Checker, JsonObject, too_deep
from ..logic.manifest.inference import check_inference
from ..logic.manifest.limits import (
    FORMAT,
    MAX_PROGRAMS,
    PROGRAM_TASKS,
    TASKS,
    TRAINING_PLANS,
    WRITABLE_KINDS,
)
from ..logic.manifest.nodes import Node, Records, add_record
from ..logic.manifest.rules import (
    Contents,
    check_decoder,
    check_files,
    check_processor,
    check_seq2seq,
    check_training,
    check_weights,
)
from ..logic.manifest.schema import (
    AnyModel,
    Manifest,
    ManifestSlot,
    Pipeline,
    PlanFile,
    Seq2SeqPipeline,
    TextGeneration,
)
from .schema.plan_format import HEADER, MAGIC, SLOT, WRITABLE

__all__ = [
    "Manifest",
    "check_format",
    "check_manifest",
    "check_slot_table",
    "plans_of",
    "read_json",
    "records",
]


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


@cache
def records() -> Records:
    """The schema: fields of each record."""
    found: dict[str, dict[str, Node]] = {}
    for record in (TextGeneration, AnyModel, Pipeline, Seq2SeqPipeline):
        add_record(record, found)
    return found


def check_manifest(
    manifest: JsonObject, where: str, data_bytes: int | None = None, own: bool = False
) -> Manifest:
    """Checks a manifest, and returns it.

    Args:
        manifest: value that `read_json` returned.
        where: the package's name, for errors.
        data_bytes: number of bytes after the manifest and its padding; None: unknown.
        own: whether it is of a page's own storage, where weights may lie in files outside of the
            package.

    Raises:
        PackageError: a rule does not hold; says which, and where in the manifest.
    """
    check_format(manifest, where)
    c = Checker(where, records())
    task = c.read_choice(manifest.get("task"), "task", TASKS)
    c.check_record(manifest, _record_of(task, "decoder" in manifest), "")
    checked = cast(Manifest, manifest)
    check_files(c, checked, data_bytes)
    files = {name: (offset, nbytes) for name, (offset, nbytes) in checked["files"].items()}
    contents = Contents(files, own=own)
    check_weights(c, checked["weights"], contents)
    check_training(c, checked.get("training", []), contents)
    if task == "inference":
        check_inference(c, checked["inference"], "inference", contents)
    elif task in PROGRAM_TASKS:
        _check_pipeline(c, cast(Pipeline, manifest), contents)
    else:
        check_decoder(c, checked["decoder"], contents)
    return checked


def _record_of(task: str, has_decoder: bool) -> str:
    if task == "text-generation":
        return "TextGeneration"
    if task == "inference":
        return "AnyModel"
    return "Seq2SeqPipeline" if has_decoder else "Pipeline"


def _check_pipeline(c: Checker, manifest: Pipeline, contents: Contents) -> None:
    programs = manifest["programs"]
    seq2seq = "decoder" in manifest
    if seq2seq:
        of = cast(Seq2SeqPipeline, manifest)
        check_seq2seq(c, of["encoder"], of["decoder"], contents)
    if len(programs) > MAX_PROGRAMS or not (programs or seq2seq):
        c.fail("programs", f"has {len(programs)} entries")
    for name, program in programs.items():
        at = f"programs['{name}']"
        check_inference(c, program, at, contents)
        if not program["outputs"]:
            c.fail(f"{at}.outputs", "has 0 entries")
    if "processor" in manifest:
        check_processor(c, manifest["processor"])


def plans_of(manifest: Manifest) -> Iterator[tuple[str, list[ManifestSlot]]]:
    """File and slots of every plan of a checked manifest."""
    plans: list[PlanFile] = []
    if manifest["task"] == "text-generation":
        plans += manifest["decoder"]["plans"]
    elif manifest["task"] == "inference":
        plans += cast(list[PlanFile], manifest["inference"]["plans"])
    else:
        for program in manifest["programs"].values():
            plans += cast(list[PlanFile], program["plans"])
        if "encoder" in manifest:
            plans += manifest["decoder"]["plans"]
            plans += [plan for entry in manifest["encoder"]["plans"] for plan in entry["plans"]]
    for training in manifest.get("training", ()):
        plans += [training["plans"][kind] for kind in TRAINING_PLANS]
    for plan in plans:
        yield plan["file"], plan["slots"]


def check_slot_table(data: bytes, slots: Sequence[ManifestSlot], where: str, file: str) -> None:
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


def read_json(text: bytes) -> Any:
    """Parses JSON with the numbers of JavaScript: 1.0 is 1, and 2^53 is not an integer.

    Raises:
        ValueError: it is not valid JSON, or nests lists and objects too deeply. Its text completes
            a sentence that begins with "the manifest".
    """

    def parse_int(digits: str) -> float:
        x = int(digits) if len(digits) <= 17 else float(digits)
        return x if abs(x) < 1 << 53 else float(x)

    def parse_float(digits: str) -> float:
        x = float(digits)
        return int(x) if abs(x) < 1 << 53 and x.is_integer() else x

    def parse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(
            text.decode(),
            parse_int=parse_int,
            parse_float=parse_float,
            parse_constant=parse_constant,
        )
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except ValueError:
        raise ValueError("is not JSON") from None
    if too_deep(value):
        raise ValueError(TOO_DEEP)
    return value
