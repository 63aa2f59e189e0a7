"""TensorProto and SparseTensorProto -> Tensor."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...element_types import DTYPES
from ...errors import InputError, ModelError, UnsupportedOp
from ..declare.dtypes import (
    BFLOAT16,
    BITS,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT64,
    MINIFLOATS,
    NAME,
    STRING,
    UINT64,
    bytes_for,
    pack,
    pack_codes,
)
from ..declare.symbolic import strides_of
from ..ir import Tensor
from .protobuf import DELIMITED, MAX_TEXT, FieldValue, Message
from .source import Source

INLINE = 1 << 12  # bytes from which a tensor's data is left in the source
MAX_SPARSE = 1 << 24  # elements of a sparse tensor, which is stored as a dense one
MAX_ELEMENTS = 1 << 40
MAX_RANK = 64

# Fields of TensorProto.
DIMS, DATA_TYPE, STRINGS, TENSOR_NAME, RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = (
    1,
    2,
    6,
    8,
    9,
    13,
    14,
)
FLOATS, INT32S, INT64S, DOUBLES, UINT64S = 4, 5, 7, 10, 11
TYPED_DATA = (FLOATS, INT32S, INT64S, DOUBLES, UINT64S)
# Field of the elements of types whose packed list has the layout of raw data.
PACKED_AS_RAW = {FLOAT: FLOATS, DOUBLE: DOUBLES}
EXTERNAL = 1  # TensorProto.DataLocation

EXPORT_AGAIN = "Export the model again."


@dataclass
class _Fields:
    """The fields of a TensorProto, not decoded."""

    dims: list[int] = field(default_factory=list)
    dtype: int = 0
    name: str = ""
    raw: FieldValue | None = None
    external: dict[str, str] = field(default_factory=dict)
    location: int = 0
    typed: list[tuple[int, int, FieldValue]] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)


class TensorReader:
    """Reads the tensors of one model. Weights stay in the source: a Tensor refers to them.

    Args:
        source: the file.
        given: {name: Tensor} that take the place of tensors with external data.
    """

    def __init__(self, source: Source, given: Mapping[str, Tensor] | None = None) -> None:
        self.source, self.given = source, given or {}
        self._siblings: dict[str, Source] = {}  # files of external data

    def read(self, m: Message) -> Tensor:
        """The Tensor of a TensorProto; ModelError if its data does not match its type and shape."""
        fields = self._read_fields(m)
        count = self._check_shape(fields)
        t = Tensor(fields.name, fields.dtype, tuple(fields.dims))
        if fields.dtype == STRING:
            if len(fields.strings) != count:
                raise self._broken(
                    f"tensor '{t.name}' has {len(fields.strings)} strings, its shape"
                    f" {fields.dims} needs {count}",
                    "The file is damaged; export it again.",
                )
            t.data, t.strings = b"", fields.strings
            return t
        raw = fields.raw if fields.raw is not None else self._packed_as_raw(fields)
        if fields.location == EXTERNAL and t.name in self.given:
            return replacement(self.given[t.name], t)
        if fields.location == EXTERNAL:
            expected = bytes_for(fields.dtype, count)
            t.source, t.offset, t.nbytes = self._find_external(t.name, fields.external, expected)
        elif raw is not None:
            if not isinstance(raw, tuple):
                raise m.broken(m.start)
            t.source, (t.offset, t.nbytes) = self.source, raw
            if t.nbytes <= INLINE:
                t.data = m.raw(raw)
        elif fields.typed or count == 0:
            t.data = self._decode_typed(m, t, fields.typed)
            t.nbytes = len(t.data)
        else:
            raise self._broken(f"tensor '{t.name}' has no data")
        _check_bytes(t, self.source.name)
        return t

    def _read_fields(self, m: Message) -> _Fields:
        out = _Fields()
        for number, wire, value in m:
            if number == DIMS:
                out.dims += m.integers(wire, value)
            elif number == STRINGS:
                out.strings.append(m.limited(value).decode("utf-8", "surrogateescape"))
            elif number == DATA_TYPE:
                out.dtype = m.integer(value)
            elif number == TENSOR_NAME:
                out.name = m.text(value)
            elif number == RAW_DATA:
                out.raw = value
            elif number == EXTERNAL_DATA:
                key, text = read_string_pair(m.sub(value))
                out.external[key] = text
            elif number == DATA_LOCATION:
                out.location = m.integer(value)
            elif number in TYPED_DATA:
                out.typed.append((number, wire, value))
        return out

    def _check_shape(self, fields: _Fields) -> int:
        """The number of elements; ModelError if the type or the shape is not valid."""
        if fields.dtype not in NAME:
            raise self._broken(
                f"tensor '{fields.name}' has the element type {fields.dtype}, which is unknown"
                " here",
                "Convert it to a standard ONNX type.",
            )
        if len(fields.dims) > MAX_RANK:
            raise self._broken(
                f"tensor '{fields.name}' claims {len(fields.dims)} dimensions",
                "The file is damaged.",
            )
        count = 1
        for dim in fields.dims:
            if dim < 0:
                raise self._broken(f"tensor '{fields.name}' has the dimension {dim}")
            count *= dim
            if count > MAX_ELEMENTS:
                raise self._broken(
                    f"tensor '{fields.name}' claims {fields.dims} elements", "The file is damaged."
                )
        return count

    @staticmethod
    def _packed_as_raw(fields: _Fields) -> FieldValue | None:
        if len(fields.typed) != 1:
            return None
        number, wire, value = fields.typed[0]
        return value if wire == DELIMITED and number == PACKED_AS_RAW.get(fields.dtype) else None

    def _decode_typed(
        self, m: Message, t: Tensor, fields: Sequence[tuple[int, int, FieldValue]]
    ) -> bytes:
        """Bytes of elements that are stored as numbers of a wider type."""
        values: list[Any] = []
        for number, wire, value in fields:
            if number == FLOATS:
                values += m.numbers(wire, value, "f")
            elif number == DOUBLES:
                values += m.numbers(wire, value, "d")
            else:
                values += m.integers(wire, value)
        try:
            if t.dtype in (FLOAT16, BFLOAT16):  # as their bits
                return b"".join((v & 0xFFFF).to_bytes(2, "little") for v in values)
            if BITS.get(t.dtype) == 6:  # one code each
                return pack_codes(6, values)
            if t.dtype in MINIFLOATS or t.dtype in BITS:  # as their bytes
                return bytes(v & 255 for v in values)
            if t.dtype == UINT64:
                values = [v & 0xFFFFFFFFFFFFFFFF for v in values]
            return pack(t.dtype, values)
        except (struct.error, OverflowError, KeyError, TypeError):
            raise self._broken(f"tensor '{t.name}' holds numbers outside its type") from None

    def _find_external(
        self, name: str, entries: dict[str, str], expected: int
    ) -> tuple[Source, int, int]:
        """(file, offset, size) of external data. expected: size that the shape needs."""
        location = entries.get("location", "")
        if not location:
            raise self._broken(f"initializer '{name}' has external data without a file name")
        if location not in self._siblings:
            self._siblings[location] = self.source.sibling(location)
            self._siblings[location].location = location
        other = self._siblings[location]
        try:
            offset, length = int(entries.get("offset", 0)), int(entries.get("length", expected))
        except ValueError:
            raise self._broken(f"initializer '{name}' has a broken external data entry") from None
        if offset < 0 or length < 0 or offset + length > other.size:
            raise self._broken(
                f"initializer '{name}' lies at bytes {offset}..{offset + length} of {location},"
                f" which has {other.size}",
                "The data file is truncated or belongs to another model; fetch it again.",
            )
        return other, offset, length

    def read_sparse(self, m: Message) -> Tensor:
        """The dense Tensor of a SparseTensorProto."""
        values = indices = None
        dims: list[int] = []
        for number, wire, value in m:
            if number == 1:
                values = self.read(m.sub(value))
            elif number == 2:
                indices = self.read(m.sub(value))
            elif number == 3:
                dims += m.integers(wire, value)
        count = 1
        for dim in dims:
            count *= max(dim, 0)
            if count > MAX_SPARSE or len(dims) > MAX_RANK:
                raise UnsupportedOp(
                    f"it holds a sparse tensor of {str(dims)[:80]}, which would be stored densely",
                    self.source.name,
                    "Store the initializer densely.",
                )
        if values is None or not _indices_fit(values, indices, dims):
            name = values.name if values is not None else ""
            raise self._broken(
                f"the sparse tensor '{name}' has no values, or indices that do not fit them"
            )
        dense = self._scatter(values, indices, dims, count)
        return Tensor(values.name, values.dtype, tuple(dims), None, 0, len(dense), dense)

    def _scatter(
        self, values: Tensor, indices: Tensor | None, dims: list[int], count: int
    ) -> bytes:
        """Bytes of the dense tensor of `count` elements."""
        size = DTYPES[values.dtype][1]
        data, dense = values.bytes(), bytearray(count * size)
        numbers = indices.numbers() if indices is not None else []
        if values.count and len(numbers) < values.count or len(data) != values.count * size:
            raise self._broken(
                f"the sparse tensor '{values.name}' has fewer indices or bytes than values"
            )
        # Indices are coordinates of shape [values, rank], or flat positions of shape [values].
        coordinates = indices is not None and len(indices.shape) == 2
        strides = strides_of(dims) if coordinates else [1]
        rank = len(strides)
        for i in range(values.count):
            index = numbers[i * rank : (i + 1) * rank]
            to = sum(p * s for p, s in zip(index, strides))
            if not 0 <= to < count or (
                rank == len(dims) and any(not 0 <= p < d for p, d in zip(index, dims))
            ):
                raise self._broken(
                    f"the sparse tensor '{values.name}' has a value at {index}, outside of {dims}"
                )
            dense[to * size : (to + 1) * size] = data[i * size : (i + 1) * size]
        return bytes(dense)

    def _broken(self, what: str, remedy: str = EXPORT_AGAIN) -> ModelError:
        return ModelError(what, self.source.name, remedy)


def replacement(given: Tensor, of: Tensor) -> Tensor:
    """The tensor that a caller gives instead of an initializer. Raises InputError where its type or
    shape is another one.
    """
    if (given.dtype, given.shape) != (of.dtype, of.shape):
        raise InputError(
            f"it is {NAME[of.dtype]}{list(of.shape)}, the value given for it"
            f" {NAME[given.dtype]}{list(given.shape)}",
            f"initializer '{of.name}'",
            "Give a value of its type and shape.",
        )
    return given


def _indices_fit(values: Tensor, indices: Tensor | None, dims: list[int]) -> bool:
    """Whether a sparse tensor's values, indices and dimensions belong together."""
    if values.dtype not in DTYPES or min(dims, default=0) < 0:
        return False
    shapes = ((values.count,), (values.count, len(dims)))
    return indices is None or indices.dtype == INT64 and indices.shape in shapes


def read_string_pair(m: Message, most_value: int = MAX_TEXT) -> tuple[str, str]:
    """(key, value) of a StringStringEntryProto."""
    key = text = ""
    for number, _, value in m:
        if number == 1:
            key = m.text(value)
        elif number == 2:
            text = m.text(value, most_value)
    return key, text


def _check_bytes(t: Tensor, where: str) -> None:
    """Raises ModelError where a tensor has not as many bytes as its shape and dtype need."""
    expected = bytes_for(t.dtype, t.count)
    if t.nbytes != expected:
        raise ModelError(
            f"initializer '{t.name}' has {t.nbytes} bytes, its shape {list(t.shape)} of"
            f" {NAME[t.dtype]} needs {expected}",
            where,
            "The file is damaged; export it again.",
        )
