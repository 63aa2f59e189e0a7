"""The update format edgewise.delta.1.

A safetensors file with the metadata {format, kind, schema, base, run, round, codec}. It holds, by
codec:

    float32, float16: each parameter in that type, with its name and shape
    int8: the values of all parameters, by name and in row-major order, as one tensor `values` (I8);
        all scales in the same order as `scales` (F16)
    int4: the same, but two values a byte, the low half first (U8)

A value times its scale is the number, in float32. Scales of LoRA's matrices belong to the rank: one
for each row of lora_A and each column of lora_B. Other parameters have one for each 64 values in
row-major order. `kind` is "delta", or "weights" (float32 only).

Where numbers are is in edgewise.logic.federated.layout; web/src/extras/federated/codec.ts computes
the same numbers in TypeScript; tests/conformance/federated.json holds
the vectors of both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...compiler.declare.dtypes import FLOAT, FLOAT16, INT8, UINT8
from ...compiler.declare.symbolic import product
from ...compiler.training.safetensors import load_safetensors, save_safetensors
from ...errors import EdgewiseError, InputError
from ...logic.federated.layout import (
    BLOCK,
    CODECS,
    FORMAT,
    LEVELS,
    SCALES,
    VALUES,
    checked,
    fault_of,
    fields_of,
    groups_of,
    max_bytes,
    part_of,
    rank_axis,
    tensors_of,
    text_of,
)
from .protocol import Refusal

Floats: TypeAlias = "NDArray[np.float32]"
Values: TypeAlias = Mapping[str, Floats]

SMALLEST = np.float32(2.0**-24)  # the smallest float16
LARGEST = 65504.0  # the largest float16
_TYPES = {"float32": FLOAT, "float16": FLOAT16, "int8": INT8, "uint8": UINT8}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
HALVES = np.array([[(h ^ 8) - 8 for h in (b & 15, b >> 4)] for b in range(256)], np.int8)
"""The two values of a byte in 4 bits."""


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
        out = {name: tuple(map(int, shape)) for name, shape in checked(list(shapes.items()))}
        text = text_of(list(out.items()))
        return cls(out, hashlib.sha256(text.encode()).hexdigest())

    def part(self, part: str | None) -> Schema:
        """The parameters that a round changes.

        Args:
            part: None: all. "B": the matrices B of LoRA; the others stay as they are.

        Raises:
            InputError: there is no such part.
        """
        if part is None:
            return self
        return Schema.of(dict(part_of(list(self.shapes.items()), part)))

    @property
    def count(self) -> int:
        """Numbers in all parameters."""
        return sum(product(s) for s in self.shapes.values())

    def most_bytes(self, codec: str) -> int:
        """Maximum size of a file of this schema."""
        return max_bytes(list(self.shapes.items()), codec)


def _grouped(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """A parameter as [groups, values of a group]; the last block is followed by zeros."""
    axis = rank_axis(name)
    if axis is not None and axis < values.ndim:
        return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    flat = values.reshape(-1)
    return np.pad(flat, (0, -len(flat) % BLOCK)).reshape(-1, BLOCK)


def _ungrouped(name: str, grouped: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The inverse of _grouped."""
    axis = rank_axis(name)
    if axis is not None and axis < len(shape):
        moved = (shape[axis], *shape[:axis], *shape[axis + 1 :])
        return np.ascontiguousarray(np.moveaxis(grouped.reshape(moved), 0, axis))
    return grouped.reshape(-1)[: product(shape)].reshape(shape)


def _scaled(name: str, values: NDArray[np.int8], scales: Floats) -> Floats:
    """Values times the scales of their groups."""
    axis = rank_axis(name)
    if axis is not None and axis < values.ndim:
        along = [1] * values.ndim
        along[axis] = -1
        return np.multiply(values, scales.reshape(along), dtype=np.float32)
    grouped = _grouped(name, values).astype(np.float32)
    return _ungrouped(name, grouped * scales[:, None], values.shape)


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


def _halves(values: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Two values a byte."""
    flat = np.pad(values, (0, len(values) % 2)) & 15
    return (flat[::2] | flat[1::2] << 4).astype(np.uint8)


class _Writer:
    """Collects the tensors of a file."""

    def __init__(self, codec: str) -> None:
        self.codec = codec
        self.floats: dict[str, Any] = {}
        self.values: list[NDArray[np.int8]] = []
        self.scales: list[NDArray[np.float16]] = []

    def add(self, name: str, x: Floats) -> Floats:
        """Adds a parameter. Returns the numbers that a reader gets."""
        _check_finite(name, x)
        if self.codec == "float32":
            self.floats[name] = FLOAT, x.shape, x.astype("<f4").tobytes()
            return x
        if self.codec == "float16":
            with np.errstate(over="ignore"):
                half = x.astype(np.float16)
            _check_finite(name, half)
            self.floats[name] = FLOAT16, x.shape, half.astype("<f2").tobytes()
            return half.astype(np.float32)
        grouped, scales = _quantize(name, x, self.codec)
        _check_finite(name, scales)
        self.values.append(_ungrouped(name, grouped, x.shape).reshape(-1))
        self.scales.append(scales)
        decoded = grouped.astype(np.float32) * scales.astype(np.float32)[:, None]
        return _ungrouped(name, decoded, x.shape)

    def tensors(self) -> dict[str, Any]:
        """The tensors of the file."""
        if self.codec not in LEVELS:
            return self.floats
        values, scales = np.concatenate(self.values), np.concatenate(self.scales)
        stored: NDArray[Any] = values if self.codec == "int8" else _halves(values)
        return {
            VALUES: (INT8 if self.codec == "int8" else UINT8, stored.shape, stored.tobytes()),
            SCALES: (FLOAT16, scales.shape, scales.astype("<f2").tobytes()),
        }


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
        left: rounding errors of earlier updates; they are added first.
        kind: "delta", or "weights" with the codec float32.

    Returns:
        (the file; the numbers that its reader gets; what this update has rounded away)

    Raises:
        InputError: a number is not finite, or too large for the codec.
    """
    if codec not in CODECS or kind == "weights" and codec != "float32":
        raise InputError(f"there is no codec {codec!r}", "codec", f"Use {', '.join(CODECS)}.")
    writer = _Writer(codec)
    decoded, remaining = {}, {}
    for name, shape in schema.shapes.items():
        x = np.ascontiguousarray(values[name], np.float32).reshape(shape)
        if left is not None and name in left:
            x = x + left[name]
        decoded[name] = writer.add(name, x)
        remaining[name] = x - decoded[name]
    fields = fields_of(schema.sha256, codec, kind, metadata)
    data = save_safetensors(writer.tensors(), None, dict(fields))
    assert data is not None
    return data, decoded, remaining


def unpack(
    data: bytes, schema: Schema, codec: str, metadata: Mapping[str, str], kind: str = "delta"
) -> dict[str, Floats]:
    """Reads an update from elsewhere.

    Args:
        data: the file.
        schema: of the parameters; the file must have exactly these.
        codec, kind: required of the file.
        metadata: fields that its metadata must have with these values.

    Raises:
        Refusal: it is damaged, or not what is expected.
    """
    try:
        tensors, found = load_safetensors(data)
    except EdgewiseError as e:
        raise Refusal("file", e.what, "update") from None
    fields = {"format": FORMAT, "kind": kind, "schema": schema.sha256, "codec": codec, **metadata}
    given = [(n, _NAMES.get(t.dtype, ""), list(t.shape)) for n, t in tensors.items()]
    fault = fault_of(found, given, fields, tensors_of(list(schema.shapes.items()), codec))
    if fault is not None:
        code, what, where = fault
        raise Refusal(code, what, f"update, {where}" if where else "update")
    if codec in LEVELS:
        return _integers(tensors[VALUES].bytes(), tensors[SCALES].bytes(), schema, codec)
    return {n: _floats(n, s, codec, tensors[n].bytes()) for n, s in schema.shapes.items()}


def _floats(name: str, shape: tuple[int, ...], codec: str, raw: bytes) -> Floats:
    """The numbers of a parameter, checked to be finite."""
    x = np.frombuffer(raw, "<f4" if codec == "float32" else "<f2").reshape(shape)
    if not np.isfinite(x).all():
        raise Refusal("finite", "it contains NaN or infinity", f"update, '{name}'")
    return x.astype(np.float32)


def _integers(raw: bytes, scales: bytes, schema: Schema, codec: str) -> dict[str, Floats]:
    """The numbers of all parameters, checked to be in range."""
    if codec == "int8":
        stored = np.frombuffer(raw, np.int8)
    else:
        packed = np.frombuffer(raw, np.uint8)
        stored = np.take(HALVES, packed, axis=0).reshape(-1)
        if stored[schema.count :].any():
            raise Refusal("value-range", "the half byte behind the last value is not 0", "update")
    if (stored == -LEVELS[codec] - 1).any():
        raise Refusal("value-range", f"a value is below -{LEVELS[codec]}", "update")
    scale = np.frombuffer(scales, "<f2").astype(np.float32)
    if not np.isfinite(scale).all() or np.signbit(scale).any():
        raise Refusal("finite", "a scale is negative, NaN or infinity", "update")
    out, at, group = {}, 0, 0
    for name, shape in schema.shapes.items():
        count, groups = product(shape), groups_of(name, shape)
        out[name] = _scaled(
            name, stored[at : at + count].reshape(shape), scale[group : group + groups]
        )
        at, group = at + count, group + groups
    return out
