"""Where the numbers of parameters are in files of the format edgewise.delta.1.

extras/federated/codec.py describes the format. Numbers are computed by the host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ...errors import InputError
from ..native import part

FORMAT = "edgewise.delta.1"
CODECS = ("float32", "float16", "int8", "int4")
LEVELS = {"int8": 127, "int4": 7}
"""The largest integer of a codec of integers."""
BLOCK = 64
MAX_PARAMETERS = 100_000
VALUES = "values"
SCALES = "scales"
_MATRIX = re.compile(r"(?:.*)\.lora_(?:embedding_)?([AB])(?:\.weight)?")
_NAME = re.compile("[\x20-\x7e]+")


def is_name(name: str) -> bool:
    """Whether a parameter may have this name: it is printable ASCII."""
    return _NAME.fullmatch(name) is not None


def text_of(shapes: Sequence[tuple[str, Sequence[int]]]) -> str:
    """The text whose SHA-256 is the identity of a schema.

    Args:
        shapes: (name, shape), sorted by name.
    """
    return "".join(f"{n}\tF32\t{','.join([str(x) for x in s])}\n" for n, s in shapes)


def rank_axis(name: str) -> int | None:
    """The axis of the rank in a matrix of LoRA; None for other parameters."""
    found = _MATRIX.fullmatch(name)
    if found is None:
        return None
    return 0 if found.group(1) == "A" else 1


def part_of(
    shapes: Sequence[tuple[str, Sequence[int]]], wanted: str | None
) -> Sequence[tuple[str, Sequence[int]]]:
    """The parameters that a round changes.

    Args:
        shapes: (name, shape) of what is trained.
        wanted: None: all. "B": the matrices B of LoRA; the others stay as they are.

    Raises:
        InputError: there is no such part.
    """
    if wanted is None:
        return shapes
    found = [(name, shape) for name, shape in shapes if rank_axis(name) == 1]
    if wanted != "B" or len(found) == 0:
        what = f"'{part(wanted, 0, 20)}' is not a part of what is trained"
        raise InputError(what, "part", "LoRA's is B.")
    return found


def checked(shapes: Sequence[tuple[str, Sequence[int]]]) -> list[tuple[str, Sequence[int]]]:
    """Names and shapes of what is trained, sorted by name.

    Raises:
        InputError: there is nothing to train, or a name cannot be used.
    """
    if not 0 < len(shapes) <= MAX_PARAMETERS:
        raise InputError(
            f"{len(shapes)} parameters are trained",
            "schema",
            f"Give 1 to {MAX_PARAMETERS} of them.",
        )
    for name, _ in shapes:
        if not is_name(name):
            raise InputError(
                f"'{name}' is not a valid name of a parameter", "schema", "Use printable ASCII."
            )
    return sorted(shapes, key=lambda x: x[0])


def product(shape: Sequence[int]) -> int:
    """Numbers of a parameter."""
    made = 1
    for x in shape:
        made *= x
    return made


def groups_of(name: str, shape: Sequence[int]) -> int:
    """Scales of a parameter."""
    axis = rank_axis(name)
    if axis is not None and axis < len(shape):
        return shape[axis]
    return -(-product(shape) // BLOCK)


def values_bytes(codec: str, count: int) -> int:
    """Bytes of the tensor `values` of `count` numbers."""
    return count if codec == "int8" else -(-count // 2)


def tensors_of(
    shapes: Sequence[tuple[str, Sequence[int]]], codec: str
) -> list[tuple[str, str, list[int]]]:
    """The tensors of a file: (name, type, shape)."""
    if codec not in LEVELS:
        return [(name, codec, list(shape)) for name, shape in shapes]
    count = groups = 0
    for name, shape in shapes:
        count += product(shape)
        groups += groups_of(name, shape)
    values = "int8" if codec == "int8" else "uint8"
    return [(VALUES, values, [values_bytes(codec, count)]), (SCALES, "float16", [groups])]


def max_bytes(shapes: Sequence[tuple[str, Sequence[int]]], codec: str) -> int:
    """Maximum size of a file of this schema."""
    count = groups = header = 0
    for name, shape in shapes:
        count += product(shape)
        groups += groups_of(name, shape)
        # an entry of the header with indices of up to 12 digits, its name escaped at worst
        header += 2 * (2 * len(name) + 16 * len(shape) + 120)
    if codec in LEVELS:
        return values_bytes(codec, count) + 2 * groups + 4096
    return count * (4 if codec == "float32" else 2) + header + 4096


def fields_of(schema: str, codec: str, kind: str, metadata: Mapping[str, str]) -> Mapping[str, str]:
    """The metadata of a file, sorted by name.

    Args:
        schema: its identity.
        codec: of the file.
        kind: "delta" or "weights".
        metadata: base, run and round.
    """
    given: dict[str, str] = {"base": "", "codec": codec, "format": FORMAT, "kind": kind}
    for name, text in metadata.items():
        given[name] = text
    given["schema"] = schema
    return {name: given[name] for name in sorted(given)}


def fault_of(
    metadata: Mapping[str, str],
    found: Sequence[tuple[str, str, Sequence[int]]],
    expected: Mapping[str, str],
    tensors: Sequence[tuple[str, str, Sequence[int]]],
) -> tuple[str, str, str] | None:
    """What is wrong with a file; None: it is the one that is expected.

    Args:
        metadata, found: of the file; `found` are its tensors, (name, type, shape).
        expected: metadata that it must have.
        tensors: of tensors_of.

    Returns:
        (a word for programs, what is wrong, where in the file)
    """
    for name, text in expected.items():
        given = metadata.get(name)
        if given != text:
            said = "None" if given is None else part(given, 0, 80)
            what = f"it is '{said}', '{part(text, 0, 80)}' is expected"
            return "metadata", what, f"metadata '{name}'"
    known = {name: (dtype, shape) for name, dtype, shape in found}
    wanted = {name for name, _, _ in tensors}
    missing = sorted(wanted - set(known))
    new = sorted(set(known) - wanted)
    if missing or new:
        which = f"'{missing[0]}' is missing" if missing else f"'{part(new[0], 0, 80)}' is new"
        return "names", f"its parameters are not those of the model: {which}", ""
    for name, dtype, shape in tensors:
        other, size = known[name]
        if other != dtype or list(size) != list(shape):
            what = f"it has the shape {_written(size[:8])} or type of another parameter,"
            return "shape", f"{what} {_written(shape)} is expected", f"'{name}'"
    return None


def _written(shape: Sequence[int]) -> str:
    return f"[{', '.join([str(x) for x in shape])}]"
