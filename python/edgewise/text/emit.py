"""Writes what C and TypeScript need from fields.py, limits.py, schema/speech.py and
schema/training.py.

The files are committed; a test compares them with what this makes.

`make gen` runs it: `python -m edgewise.text.emit`.
"""

import json
from dataclasses import asdict
from pathlib import Path

from ..schema.speech import SPEECH_FIELDS
from ..schema.training import LANGUAGE_MODEL
from .fields import (
    BEAMS_ONLY,
    ERRORS,
    FLOATS,
    GENERATION_FIELDS,
    INTEGERS,
    NOT_NONE,
    OFF_VALUES,
    REASONS,
    SAMPLING_ONLY,
    STRUCTS,
)
from .limits import COMPONENT_LISTS, INSERTED_TEXTS, LIMITS

_C = {"u32": "uint32_t", "i32": "int32_t", "f32": "float"}


def _header() -> str:
    lines = [
        (
            "/* Made by python/edgewise/text/emit.py from fields.py, where each member is"
            " explained. Do not edit. */"
        ),
        "#ifndef EDGEWISE_SAMPLING_FIELDS_H",
        "#define EDGEWISE_SAMPLING_FIELDS_H",
        "#include <stdint.h>",
        "",
    ]
    for struct, members in STRUCTS.items():
        lines += [
            "typedef struct {",
            *(f"  {_C[kind]} {name};" for name, kind in members),
            f"}} {struct};",
            "",
        ]
    lines += [
        "enum {",
        *(
            f"  EW_FIELD_{name.upper()} = {i},"
            for i, (name, _) in enumerate(STRUCTS["ew_sampling"])
        ),
        "};",
    ]
    lines += ["enum {", *(f"  EW_S_{name} = {value}," for name, value in ERRORS.items()), "};"]
    lines += [
        "enum {",
        *(f"  EW_ENDED_{name.upper()} = {value}," for name, value in REASONS.items()),
        "};",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _typescript() -> str:
    lines = [
        (
            "// Made by python/edgewise/text/emit.py from fields.py, where each member is"
            " explained. Do not edit."
        ),
        "",
    ]
    for struct, members in STRUCTS.items():
        name = "".join(part.capitalize() for part in struct.removeprefix("ew_").split("_"))
        lines += [
            "/** Members of 4 bytes, and a letter for each one's type: u32, i32 or f32. */",
            f"export const {name} = {{",
            f"  members: {json.dumps([member for member, _ in members])},",
            f"  kinds: {json.dumps(''.join(kind[0] for _, kind in members))},",
            "} as const;",
            "",
        ]
    lines += ["export const SAMPLING_ERRORS = " + json.dumps(ERRORS) + " as const;"]
    lines += ["export const FINISH_REASONS = " + json.dumps(list(REASONS)) + " as const;"]
    lines += ["export const SAMPLING_ONLY: readonly string[] = " + json.dumps(SAMPLING_ONLY) + ";"]
    lines += ["export const BEAMS_ONLY: readonly string[] = " + json.dumps(BEAMS_ONLY) + ";", ""]
    lines += [
        'export type FieldUse = "used" | "accepted" | "refused";',
        "/** name: [default, what Edgewise does with it, what to do when it is refused] */",
        (
            "export const GENERATION_FIELDS: Readonly<Record<string, readonly [unknown, FieldUse,"
            " string]>> = {"
        ),
    ]
    lines += [f"  {name}: {json.dumps(list(entry))}," for name, entry in GENERATION_FIELDS.items()]
    lines += [
        "};",
        '/** values besides the default that mean "off" */',
        "export const OFF_VALUES: Readonly<Record<string, readonly unknown[]>> = "
        + json.dumps(OFF_VALUES)
        + ";",
        "/** fields that are integers, with their smallest values */",
        f"export const INTEGERS: Readonly<Record<string, number>> = {json.dumps(INTEGERS)};",
        "/** fields that are numbers */",
        f"export const FLOATS: readonly string[] = {json.dumps(FLOATS)};",
        "/** fields whose default stands in the place of null */",
        f"export const NOT_NULL: readonly string[] = {json.dumps(NOT_NONE)};",
        "",
    ]
    return "\n".join(lines)


def _text_limits() -> str:
    lines = [
        (
            "// Made by python/edgewise/text/emit.py from limits.py, where each limit is explained."
            " Do not edit."
        ),
        "",
        "export const TEXT_LIMITS = {",
        *(f"  {name}: {value}," for name, value in LIMITS.items()),
        "} as const;",
        "/** members of a component of tokenizer.json that hold components */",
        f"export const COMPONENT_LISTS: readonly string[] = {json.dumps(COMPONENT_LISTS)};",
        "/** members that are texts which a component may insert */",
        f"export const INSERTED_TEXTS: readonly string[] = {json.dumps(INSERTED_TEXTS)};",
        "",
    ]
    return "\n".join(lines)


def _training_defaults() -> str:
    return "\n".join(
        [
            "// Made by python/edgewise/text/emit.py from schema/training.py. Do not edit.",
            "",
            "/** Defaults of fine-tuning a language model. */",
            "export const TRAINING_DEFAULTS = {",
            *(f"  {name}: {json.dumps(value)}," for name, value in asdict(LANGUAGE_MODEL).items()),
            "} as const;",
            "",
        ]
    )


def _speech_fields() -> str:
    return "\n".join(
        [
            "// Made by python/edgewise/text/emit.py from schema/speech.py. Do not edit.",
            "",
            "/** Fields of Whisper's generation_config.json that transcription reads itself. */",
            f"export const SPEECH_FIELDS: readonly string[] = {json.dumps(SPEECH_FIELDS)};",
            "",
        ]
    )


def outputs() -> dict[str, str]:
    """{path from the repository's root: text} of every generated file."""
    return {
        "core/gen/sampling_fields.h": _header(),
        "web/src/gen/sampling.ts": _typescript(),
        "web/src/gen/text_limits.ts": _text_limits(),
        "web/src/gen/speech_fields.ts": _speech_fields(),
        "web/src/gen/training_defaults.ts": _training_defaults(),
    }


def write(root: str | Path, check: bool = False) -> list[str]:
    """Writes the files under `root`; with `check`, writes nothing and returns the paths that
    differ.
    """
    stale = []
    for path, text in outputs().items():
        file = Path(root) / path
        if file.exists() and file.read_text("utf-8") == text:
            continue
        stale.append(path)
        if not check:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
    return stale


if __name__ == "__main__":
    print("\n".join(write(Path(__file__).parents[3])) or "nothing to change")
