"""The update format edgewise.delta.1.

A safetensors file with the metadata {format, kind, schema, base, run, round, codec}. For each
parameter NAME it holds, by codec:

    float32, float16: NAME in that type, with its shape
    int8: NAME as I8 with its shape, and NAME.scale as F16
    int4: NAME as U8, two values a byte, the low half first, in row-major order; and NAME.scale

A value times its scale is the number, in float32. Scales of LoRA's matrices belong to the rank: one
for each row of lora_A and each column of lora_B. Other parameters have one for each 64 values in
row-major order. `kind` is "delta", or "weights" (float32 only).

web/src/federated/codec.ts is the same in TypeScript; tests/conformance/federated.json holds the
vectors of both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..declare.dtypes import FLOAT, FLOAT16, INT8, UINT8
from ..declare.symbolic import product
from ..errors import EdgewiseError, InputError
from ..training.safetensors import load_safetensors, save_safetensors
from .protocol import CODECS, Refusal

Floats: TypeAlias = "NDArray[np.float32]"
Values: TypeAlias = Mapping[str, Floats]

FORMAT = "edgewise.delta.1"
BLOCK = 64
MOST_PARAMETERS = 100_000
LEVELS = {"int8": 127, "int4": 7}
SMALLEST = np.float32(2.0**-24)  # the smallest float16
LARGEST = 65504.0  # the largest float16
SCALE = ".scale"


@dataclass(frozen=True)
class Schema:
    """Names and shapes of what is trained; all of it is float32.

    Attributes:
        shapes: {name: shape}, sorted by name.
        sha256: its identity: of the lines "NAME<tab>F32<tab>8,64<newline>".
    """

    shapes: dict[str, tuple[int, ...]]
    sha256: str

    @classmethod
    def of(cls, shapes: Mapping[str, Sequence[int]]) -> Schema:
        """Args:
            shapes: {name: shape}.

        Raises:
            InputError: there is nothing to train, or a name cannot be used.
        """
        if not 0 < len(shapes) <= MOST_PARAMETERS:
            raise InputError(
                f"{len(shapes)} parameters are trained",
                "schema",
                f"Give 1 to {MOST_PARAMETERS} of them.",
            )
        out = {name: tuple(map(int, shapes[name])) for name in sorted(shapes)}
        for name in out:
            if not name or not name.isascii() or not name.isprintable() or name.endswith(SCALE):
                raise InputError(
                    f"{name!r} is not a valid name of a parameter",
                    "schema",
                    f"Use printable ASCII that does not end with {SCALE}.",
                )
        text = "".join(f"{n}\tF32\t{','.join(map(str, s))}\n" for n, s in out.items())
        return cls(out, hashlib.sha256(text.encode()).hexdigest())

    @property
    def count(self) -> int:
        """Numbers in all parameters."""
        return sum(product(s) for s in self.shapes.values())

    def most_bytes(self, codec: str) -> int:
        """Maximum size of a file of this schema."""
        body = sum(
            product(shape) * 4 + 2 * _groups(name, shape) for name, shape in self.shapes.items()
        )
        if codec in LEVELS:
            body = sum(
                -(-product(shape) * (8 if codec == "int8" else 4) // 8) + 2 * _groups(name, shape)
                for name, shape in self.shapes.items()
            )
        elif codec == "float16":
            body //= 2
        # header entries with indices of up to 12 digits, names escaped at worst
        header = sum(2 * (2 * len(n) + 16 * len(s) + 120) for n, s in self.shapes.items())
        return body + header + 4096


def _rank_axis(name: str) -> int | None:
    """The axis of the rank in a matrix of LoRA; None for other parameters."""
    base = name.removesuffix(".weight")
    if base.endswith((".lora_A", ".lora_embedding_A")):
        return 0
    return 1 if base.endswith((".lora_B", ".lora_embedding_B")) else None


def _groups(name: str, shape: Sequence[int]) -> int:
    """Scales of a parameter."""
    axis = _rank_axis(name)
    if axis is not None and axis < len(shape):
        return shape[axis]
    return -(-product(shape) // BLOCK)


def _grouped(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """A parameter as [groups, values of a group]; the last block is followed by zeros."""
    axis = _rank_axis(name)
    if axis is not None and axis < values.ndim:
        return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    flat = values.reshape(-1)
    return np.pad(flat, (0, -len(flat) % BLOCK)).reshape(-1, BLOCK)


def _ungrouped(name: str, grouped: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The inverse of _grouped."""
    axis = _rank_axis(name)
    if axis is not None and axis < len(shape):
        moved = (shape[axis], *shape[:axis], *shape[axis + 1 :])
        return np.ascontiguousarray(np.moveaxis(grouped.reshape(moved), 0, axis))
    return grouped.reshape(-1)[: product(shape)].reshape(shape)


def base_of(values: Values, schema: Schema) -> str:
    """The identity of weights: SHA-256 of the schema's identity and of all numbers, by name."""
    digest = hashlib.sha256(schema.sha256.encode())
    for name in schema.shapes:
        digest.update(np.ascontiguousarray(values[name], "<f4").data)
    return digest.hexdigest()


def norm_of(values: Values) -> float:
    """The L2 norm of all numbers, in float64."""
    total = 0.0
    for x in values.values():
        flat = x.reshape(-1).astype(np.float64)
        total += float(flat @ flat)
    return float(np.sqrt(total))


def _quantize(name: str, x: Floats, codec: str) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Values in [-levels, levels] in groups, and the scale of each group."""
    levels = LEVELS[codec]
    grouped = _grouped(name, x)
    if not grouped.size:
        return grouped.astype(np.int8), np.zeros(len(grouped), np.float16)
    most = np.abs(grouped).max(1) / np.float32(levels)
    with np.errstate(over="ignore"):
        scales = most.astype(np.float16)
    scales[(scales == 0) & (most > 0)] = np.float16(SMALLEST)
    wide = scales.astype(np.float32)[:, None]
    quotient = np.divide(grouped, wide, out=np.zeros_like(grouped), where=wide > 0)
    return np.clip(np.rint(quotient), -levels, levels).astype(np.int8), scales


def _check_finite(name: str, stored: NDArray[Any]) -> None:
    if not np.isfinite(stored).all():
        raise InputError(
            "its change is not finite, or too large for float16",
            name,
            "Train with a smaller learning rate.",
        )


def _encode(name: str, x: Floats, codec: str) -> tuple[dict[str, Any], Floats]:
    """The tensors of a parameter, and the numbers that a reader gets."""
    shape = x.shape
    if codec == "float32":
        _check_finite(name, x)
        return {name: (FLOAT, shape, x.astype("<f4").tobytes())}, x
    if codec == "float16":
        with np.errstate(over="ignore"):
            half = x.astype(np.float16)
        _check_finite(name, half)
        return {name: (FLOAT16, shape, half.astype("<f2").tobytes())}, half.astype(np.float32)
    _check_finite(name, x)
    grouped, scales = _quantize(name, x, codec)
    _check_finite(name, scales)
    decoded = grouped.astype(np.float32) * scales.astype(np.float32)[:, None]
    stored = _ungrouped(name, grouped, shape)
    tensors: dict[str, Any] = {
        name + SCALE: (FLOAT16, scales.shape, scales.astype("<f2").tobytes())
    }
    if codec == "int8":
        tensors[name] = (INT8, shape, stored.tobytes())
    else:
        flat = stored.reshape(-1)
        flat = np.pad(flat, (0, len(flat) % 2)) & 15
        packed = (flat[::2] | flat[1::2] << 4).astype(np.uint8)
        tensors[name] = (UINT8, packed.shape, packed.tobytes())
    return tensors, _ungrouped(name, decoded, shape)


def pack(
    values: Values,
    schema: Schema,
    codec: str,
    metadata: Mapping[str, str],
    left: Values | None = None,
    kind: str = "delta",
) -> tuple[bytes, dict[str, Floats], dict[str, Floats]]:
    """Writes an update.

    Args:
        values: the difference of each parameter of the schema.
        schema: of the parameters.
        codec: one of CODECS.
        metadata: base, run and round.
        left: what earlier updates have rounded away; it is added first.
        kind: "delta", or "weights" with the codec float32.

    Returns:
        (the file; the numbers that its reader gets; what this update has rounded away)

    Raises:
        InputError: a number is not finite, or too large for the codec.
    """
    if codec not in CODECS or kind == "weights" and codec != "float32":
        raise InputError(f"there is no codec {codec!r}", "codec", f"Use {', '.join(CODECS)}.")
    tensors: dict[str, Any] = {}
    decoded, remaining = {}, {}
    for name, shape in schema.shapes.items():
        x = np.ascontiguousarray(values[name], np.float32).reshape(shape)
        if left is not None and name in left:
            x = x + left[name]
        stored, decoded[name] = _encode(name, x, codec)
        tensors.update(stored)
        remaining[name] = x - decoded[name]
    fields = {"format": FORMAT, "kind": kind, "schema": schema.sha256, "codec": codec, **metadata}
    data = save_safetensors(tensors, None, dict(sorted(fields.items())))
    assert data is not None
    return data, decoded, remaining


def unpack(
    data: bytes, schema: Schema, codec: str, metadata: Mapping[str, str], kind: str = "delta"
) -> dict[str, Floats]:
    """Reads an update from elsewhere.

    Args:
        data: the file.
        schema: of the parameters; the file must have exactly these.
        codec, kind: what the file must be.
        metadata: fields that its metadata must have with these values.

    Raises:
        Refusal: it is damaged, or not what is expected.
    """
    try:
        tensors, found = load_safetensors(data)
    except EdgewiseError as e:
        raise Refusal("file", e.what, "update") from None
    fields = {"format": FORMAT, "kind": kind, "schema": schema.sha256, "codec": codec, **metadata}
    for name, expected in fields.items():
        if found.get(name) != expected:
            raise Refusal(
                "metadata",
                f"it is {str(found.get(name))[:80]!r}, {expected[:80]!r} is expected",
                f"update, metadata '{name}'",
            )
    _check_tensors(tensors, schema, codec)
    out = {}
    for name, shape in schema.shapes.items():
        raw = tensors[name].bytes()
        scales = tensors[name + SCALE].bytes() if codec in LEVELS else b""
        out[name] = _decode(name, shape, codec, raw, scales)
    return out


def _check_tensors(tensors: Mapping[str, Any], schema: Schema, codec: str) -> None:
    """Checks names, types and shapes of a file against the schema."""
    expected: dict[str, tuple[int, tuple[int, ...]]] = {}
    for name, shape in schema.shapes.items():
        if codec == "int4":
            expected[name] = UINT8, (-(-product(shape) // 2),)
        else:
            expected[name] = {"float32": FLOAT, "float16": FLOAT16, "int8": INT8}[codec], shape
        if codec in LEVELS:
            expected[name + SCALE] = FLOAT16, (_groups(name, shape),)
    _check_names(tensors, expected)
    for name, (dtype, shape) in expected.items():
        found = tensors[name]
        if found.dtype != dtype or tuple(found.shape) != shape:
            raise Refusal(
                "shape",
                f"it has the shape {list(found.shape)[:8]} or type of another parameter,"
                f" {list(shape)} is expected",
                f"update, '{name}'",
            )


def _check_names(found: Iterable[str], expected: Iterable[str]) -> None:
    missing, unknown = set(expected) - set(found), set(found) - set(expected)
    if missing or unknown:
        which = f"'{min(missing)[:80]}' is missing" if missing else f"'{min(unknown)[:80]}' is new"
        raise Refusal("names", f"its parameters are not those of the model: {which}", "update")


def _decode(name: str, shape: tuple[int, ...], codec: str, raw: bytes, scales: bytes) -> Floats:
    """The numbers of a parameter, checked to be finite and in range."""
    where = f"update, '{name}'"
    if codec in ("float32", "float16"):
        x = np.frombuffer(raw, "<f4" if codec == "float32" else "<f2").reshape(shape)
        if not np.isfinite(x).all():
            raise Refusal("finite", "it contains NaN or infinity", where)
        return x.astype(np.float32)
    count = product(shape)
    if codec == "int8":
        stored = np.frombuffer(raw, np.int8)
    else:
        packed = np.frombuffer(raw, np.uint8)
        halves = np.stack([packed & 15, packed >> 4], 1).reshape(-1)
        stored = (halves.astype(np.int8) ^ 8) - np.int8(8)
        if stored[count:].any():
            raise Refusal("value-range", "the half byte behind its last value is not zero", where)
        stored = stored[:count]
    if (np.abs(stored.astype(np.int16)) > LEVELS[codec]).any():
        raise Refusal("value-range", f"a value is below -{LEVELS[codec]}", where)
    scale = np.frombuffer(scales, "<f2").astype(np.float32)
    if not np.isfinite(scale).all() or (scale < 0).any() or np.signbit(scale).any():
        raise Refusal("finite", "a scale is negative, NaN or infinity", where)
    grouped = _grouped(name, stored.reshape(shape)).astype(np.float32)
    return _ungrouped(name, grouped * scale[:, None], shape)
