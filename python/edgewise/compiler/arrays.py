"""Conversion of inputs and outputs: NumPy arrays if NumPy is installed, else `Array`, a buffer with
shape and dtype.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..errors import InputError, ModelError, OutOfMemory, list_of, wrong_type
from .declare.dtypes import (
    BFLOAT16,
    BITS,
    BOOL,
    CODE,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT8,
    INT16,
    INT32,
    INT64,
    MINIFLOATS,
    NAME,
    RANGE,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    BytesLike,
    bytes_for,
    pack,
    unpack,
)
from .declare.symbolic import product

Input = tuple[int, list[int], Any]
"""dtype code, shape and bytes-like data of an input."""


def _numpy(load: bool = False) -> Any:
    """The NumPy module, or None.

    In a page NumPy is used only if the page has imported it, unless `load`: importing it takes
    seconds there.
    """
    if "numpy" in sys.modules:
        return sys.modules["numpy"]
    if load or sys.platform != "emscripten":
        try:
            import numpy

            return numpy
        except ImportError:
            return None
    return None


_FORMATS = {
    FLOAT: "f",
    UINT8: "B",
    INT8: "b",
    UINT16: "H",
    INT16: "h",
    INT32: "i",
    INT64: "q",
    BOOL: "?",
    FLOAT16: "e",
    DOUBLE: "d",
    UINT32: "I",
    UINT64: "Q",
}
_CODES = {kind: code for code, kind in _FORMATS.items()}
_OWN = {BFLOAT16, *MINIFLOATS, *BITS}  # types that NumPy has only with the package ml_dtypes
_SUPPORTED = ", ".join(NAME[c] for c in sorted({*_FORMATS, *_OWN}))


def _check_dtype(dtype: object) -> int:
    """The code of a type's name; InputError if arrays cannot have it."""
    code = CODE.get(dtype) if isinstance(dtype, str) else None
    if code is None or code not in _FORMATS and code not in _OWN:
        raise InputError(
            f"element type {dtype!r} is not supported", "Array", f"Use one of {_SUPPORTED}."
        )
    return code


class Array:
    """A tensor without NumPy.

        Array.from_list([[1, 2], [3, 4]], "int64")
        Array((2, 2), "int64", data)
        a.tolist(), a.item(), a.flat(), len(a)
        memoryview(a)  # with shape and type from Python 3.12 on; before, memoryview(a.data)
        numpy.asarray(a)

    Args:
        shape: dimensions.
        dtype: name of the element type in NumPy or ml_dtypes.
        data: little-endian bytes in row-major order; elements of less than a byte are packed, the
            low bits first.

    Raises:
        InputError: the type is not supported, or the number of bytes does not match the shape.
    """

    __slots__ = ("shape", "dtype", "data")

    def __init__(self, shape: Sequence[int], dtype: str, data: BytesLike) -> None:
        sizes = list_of(shape, "shape", "a list of integers")
        self.shape, self.dtype, self.data = tuple(sizes), dtype, data
        try:
            have = memoryview(data).nbytes
        except TypeError:
            raise wrong_type(data, "data", "bytes") from None
        expected = bytes_for(_check_dtype(dtype), self.size)
        if have != expected:
            raise InputError(
                f"{have} bytes for shape {self.shape} of {dtype}, which takes {expected}",
                "Array",
                "Pass as many bytes as the shape needs.",
            )

    @classmethod
    def from_list(cls, values: object, dtype: str | None = None) -> Array:
        """An array of a number or of nested lists of numbers.

        Args:
            values: the numbers.
            dtype: NumPy's name; default: bool, int64 or float32, depending on the numbers.
        """
        expected = None if dtype is None else _check_dtype(dtype)
        code, shape, data = as_input(values, "", expected)
        return cls(shape, NAME[code], data)

    @property
    def size(self) -> int:
        """Number of elements, as in NumPy."""
        return product(self.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions, as in NumPy."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes of `data`."""
        return len(self.data)

    def flat(self) -> list[Any]:
        """The elements as a flat list of Python numbers."""
        return unpack(CODE[self.dtype], self.data, self.size)

    def tolist(self) -> Any:
        """The elements as nested lists, as in NumPy."""

        def nest(values: list[Any], shape: tuple[int, ...]) -> Any:
            if not shape:
                return values[0]
            if len(shape) == 1:
                return list(values)
            step = len(values) // shape[0] if shape[0] else 0
            return [nest(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]

        return nest(self.flat(), self.shape)

    def item(self) -> Any:
        """The number of an array with one element; ValueError for other sizes."""
        if self.size != 1:
            raise ValueError(f"an array of {self.size} elements is not a number")
        return self.flat()[0]

    def __float__(self) -> float:
        return float(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        """Whether shape, type and bytes are equal."""
        if not isinstance(other, Array):
            return NotImplemented
        return (
            self.shape == other.shape
            and self.dtype == other.dtype
            and bytes(self.data) == bytes(other.data)
        )

    __hash__ = None  # type: ignore[assignment]

    def __buffer__(self, flags: int) -> memoryview:
        view = memoryview(self.data).cast("B")
        kind: Any = _FORMATS.get(CODE[self.dtype])
        if kind is None or not self.size:
            return view
        return view.cast(kind, self.shape) if self.shape else view.cast(kind)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        np = _numpy(load=True)
        own = CODE[self.dtype] in _OWN
        a = (
            _of_ml_dtypes(np, CODE[self.dtype], self.shape, self.data)
            if own
            else np.frombuffer(self.data, self.dtype).reshape(self.shape)
        )
        if a is None:
            a = np.frombuffer(self.data, "uint8")
        if copy is False and dtype is not None and a.dtype != dtype:
            raise ValueError("a conversion of the type needs a copy")
        return np.array(a, dtype=dtype) if copy or dtype is not None else a

    def __repr__(self) -> str:
        values = str(self.tolist()) if self.size <= 64 else f"<{self.size} numbers>"
        return f"Array({values}, shape={self.shape}, dtype={self.dtype!r})"


def _nested(x: object) -> tuple[list[int], list[Any]]:
    """(shape, flat items) of nested sequences."""
    if not isinstance(x, (list, tuple)):
        return [], [x]
    shape: list[int] | None = None
    flat: list[Any] = []
    for item in x:
        item_shape, item_flat = _nested(item)
        if shape is not None and item_shape != shape:
            raise ValueError("ragged")
        shape = item_shape
        flat += item_flat
    return [len(x)] + (shape or []), flat


def as_input(x: Any, name: str, expected: int | None = None) -> Input:
    """Converts what a caller feeds to (dtype code, shape, bytes-like).

    Args:
        x: a NumPy array, an Array, an object with `__array__`, a buffer with format and shape, or
            nested lists of numbers.
        name: of the input, for errors.
        expected: dtype code that the model declares, which lists are converted to.

    Raises:
        InputError: it is none of these, or has an element type that Edgewise does not have.
        OutOfMemory: it does not fit into memory.
    """
    where = f"input '{name}'" if name else "Array"
    try:
        np = _numpy()
        if np is not None and isinstance(x, (np.ndarray, np.generic)):
            return _from_numpy(np, x, where)
        if isinstance(x, Array):
            return CODE[x.dtype], list(x.shape), x.data
        if isinstance(x, (list, tuple, int, float, bool)):
            return _from_list(x, where, expected)
        if hasattr(x, "numpy") or hasattr(x, "__array__"):
            np = _numpy(load=True)
            if np is not None:
                return _from_numpy(np, _to_numpy(np, x, where), where)
        return _from_buffer(x, where)
    except MemoryError:
        raise _too_large(x, where) from None


def _too_large(x: object, where: str) -> OutOfMemory:
    nbytes, shape = getattr(x, "nbytes", None), getattr(x, "shape", None)
    size = f"{nbytes} bytes" if type(nbytes) is int else f"a {type(x).__name__}"
    if isinstance(shape, tuple):
        size += f" of shape {list(shape)}"
    return OutOfMemory(f"{size} do not fit into memory", where, "Feed less at a time.")


def _from_numpy(np: Any, x: Any, where: str) -> Input:
    """An input that is a NumPy array or scalar."""
    a = np.asarray(x, order="C")
    code = CODE.get(a.dtype.name)
    if code is None or code not in _FORMATS and code not in _OWN:
        raise InputError(
            f"element type {a.dtype} is not supported", where, "Convert it with .astype()."
        )
    if a.dtype.byteorder == ">":
        a = a.astype(a.dtype.newbyteorder("<"))
    data = a.reshape(-1).view("uint8") if a.size else b""
    if code in BITS and a.size:
        data = _packed(np, BITS[code], data)
    return code, list(a.shape), data


def _from_list(x: object, where: str, expected: int | None) -> Input:
    """An input that is a number, or nested lists of numbers."""
    try:
        shape, flat = _nested(x)
        if expected in RANGE:  # 2.0 is an integer, 2.5 is a mistake
            flat = [int(v) if isinstance(v, float) and v.is_integer() else v for v in flat]
        dtype = expected or _type_of(flat)
        return dtype, shape, pack(dtype, flat)
    except MemoryError:
        raise
    except Exception as e:
        kind = "number" if expected is None else NAME.get(expected, "number")
        raise InputError(
            f"it is not a rectangular list of numbers of type {kind} ({e})", where, "Pass an array."
        ) from None


def _type_of(flat: list[Any]) -> int:
    """The type of a list of Python numbers."""
    if flat and isinstance(flat[0], bool):
        return BOOL
    return INT64 if all(isinstance(v, int) for v in flat) else FLOAT


def _to_numpy(np: Any, x: object, where: str) -> Any:
    """The NumPy array of an array of another library."""
    try:
        return np.asarray(x)
    except MemoryError:
        raise
    except Exception as e:  # such as of a torch.Tensor on another device or with a gradient
        raise InputError(
            f"a {type(x).__name__} cannot be converted to a NumPy array ({e})",
            where,
            "Convert it to a NumPy array.",
        ) from None


def _from_buffer(x: Any, where: str) -> Input:
    """An input with the buffer protocol, or a JavaScript typed array in Pyodide."""
    try:
        m = memoryview(x.to_memoryview() if hasattr(x, "to_memoryview") else x)
        # The size of a C long depends on the platform.
        fixed = {"l": "q", "L": "Q"} if m.itemsize == 8 else {"l": "i", "L": "I"}
        return _CODES[fixed.get(m.format, m.format)], list(m.shape or ()), m.tobytes()
    except (TypeError, KeyError):
        raise InputError(
            f"a {type(x).__name__} is not a tensor",
            where,
            "Pass a NumPy array, an edgewise.Array, a buffer, or nested lists.",
        ) from None


def _packed(np: Any, bits: int, codes: Any) -> Any:
    """Packs elements of less than a byte, which NumPy stores in a byte each."""
    bit = np.unpackbits(codes[:, None], axis=1, count=bits, bitorder="little")
    return np.packbits(bit.reshape(-1), bitorder="little")


def _of_ml_dtypes(np: Any, dtype: int, shape: Sequence[int], data: BytesLike) -> Any:
    """A NumPy array of a type of ml_dtypes; None if that package is not installed."""
    try:
        import ml_dtypes

        kind = np.dtype(getattr(ml_dtypes, NAME[dtype]))
    except (ImportError, AttributeError):
        return None
    if dtype not in BITS:
        return np.frombuffer(data, kind).reshape(shape)
    bits, count = BITS[dtype], product(shape)
    bit = np.unpackbits(
        np.frombuffer(data, "uint8"), count=count * bits, bitorder="little"
    ).reshape(count, bits)
    if NAME[dtype][:3] == "int":  # ml_dtypes extends the sign to the whole byte
        bit = np.concatenate([bit, np.repeat(bit[:, -1:], 8 - bits, 1)], 1)
    return np.packbits(bit, axis=1, bitorder="little").reshape(-1).view(kind).reshape(shape)


def as_strings(x: Any, name: str) -> tuple[list[int], list[str]]:
    """(shape, flat list) of an array or nested lists of strings.

    Args:
        x: str or bytes, which are decoded as UTF-8.
        name: of the input, for errors.

    Raises:
        InputError: it contains other values, or lists of different lengths.
        OutOfMemory: it does not fit into memory.
    """
    np = _numpy()
    try:
        if np is not None and isinstance(x, (np.ndarray, np.generic)):
            shape, flat = list(np.shape(x)), np.asarray(x).reshape(-1).tolist()
        else:
            shape, flat = _nested(x)
        flat = [v.decode() if isinstance(v, bytes) else v for v in flat]
    except MemoryError:
        raise _too_large(x, f"input '{name}'") from None
    except ValueError as e:
        raise InputError(
            f"it is not a rectangular list of strings ({e})",
            f"input '{name}'",
            "Pass an array of strings.",
        ) from None
    wrong = next((v for v in flat if not isinstance(v, str)), "")
    if wrong != "":
        raise InputError(
            f"it contains a {type(wrong).__name__}", f"input '{name}'", "Pass an array of strings."
        )
    return shape, flat


def holds_strings(x: Any) -> bool:
    """Whether x is an array or nested list of strings."""
    np = _numpy()
    if np is not None and isinstance(x, (np.ndarray, np.generic)):
        return x.dtype.kind in "OUST"
    while isinstance(x, (list, tuple)) and x:
        x = x[0]
    return isinstance(x, (str, bytes))


def strings_as_output(shape: Sequence[int], strings: list[Any]) -> Any:
    """A NumPy array of objects, or nested lists without NumPy."""
    np = _numpy()
    if np is not None:
        a = np.empty(len(strings), dtype=object)
        a[:] = strings
        return a.reshape(shape)
    for d in reversed(shape[1:]):
        strings = [
            strings[i * d : (i + 1) * d]
            for i in range(len(strings) // d if d else product(shape[:-1]))
        ]
    return list(strings) if shape else strings[0]


def view_of(buffer: memoryview, dtype: int, shape: Sequence[int]) -> Any:
    """A NumPy array that shares a buffer; None without NumPy or for types that it does not have."""
    np = _numpy()
    if np is None or dtype in _OWN or dtype not in _FORMATS:
        return None
    return np.frombuffer(buffer, dtype=NAME[dtype] if dtype != BOOL else np.bool_).reshape(shape)


def as_output(dtype: int, shape: Sequence[int], data: BytesLike) -> Any:
    """A NumPy array, or an Array without NumPy; for types that NumPy does not have, an array of
    ml_dtypes, or an Array without that package.
    """
    np = _numpy()
    if np is None or dtype in _OWN:
        a = None if np is None else _of_ml_dtypes(np, dtype, shape, bytearray(data))
        return Array(shape, NAME[dtype], bytes(data)) if a is None else a
    flat = np.frombuffer(bytearray(data), dtype=NAME[dtype] if dtype != BOOL else np.bool_)
    try:
        return flat.reshape(shape)
    except ValueError as e:  # an empty array whose other dimensions are too large for NumPy
        raise ModelError(
            f"NumPy has no arrays of the shape {list(shape)} ({e})",
            "output",
            "Check the inputs; if they are right, export the model again.",
        ) from None


def dtype_code(kind: Any, where: str) -> int:
    """The code of an element type: the code, a name or a type of NumPy. Raises InputError."""
    if isinstance(kind, (int, str)):
        code = CODE.get(kind) if isinstance(kind, str) else kind
    else:
        np = _numpy(load=True)
        try:
            code = None if np is None else CODE.get(np.dtype(kind).name)
        except TypeError:
            code = None
    if code not in _FORMATS and code not in _OWN:
        raise InputError(f"{kind!r} is no element type", where, f"Use one of {_SUPPORTED}.")
    return code


def empty(dtype: int, shape: Sequence[int], address: int | None = None) -> Any:
    """An array that can be written: of zeros, or of the memory at an address (needs NumPy)."""
    np = _numpy(load=address is not None)
    if address is None:
        data = bytearray(bytes_for(dtype, product(shape)))
        return Array(shape, NAME[dtype], data) if np is None else as_output(dtype, shape, data)
    if np is None or type(address) is not int or address <= 0:
        raise InputError(f"{address!r} cannot be used", "buffer_ptr", "Pass an array.")
    size = bytes_for(dtype, product(shape))
    interface = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}
    data = np.asarray(type("Memory", (), {"__array_interface__": interface})())
    if dtype in _OWN:
        return Array(shape, NAME[dtype], memoryview(data))
    return data.view(NAME[dtype]).reshape(shape)


def copy_into(target: Any, x: Any, where: str) -> None:
    """Copies an array into another one of the same type and shape. Raises InputError."""
    (code, shape, data), (want, dims, _) = as_input(x, where), as_input(target, where)
    if (code, shape) != (want, dims):
        raise InputError(
            f"{NAME[code]}{shape} does not fit into {NAME[want]}{dims}", where, "Bind another one."
        )
    if isinstance(target, Array):
        memoryview(target.data).cast("B")[:] = memoryview(data).cast("B")
    else:
        target[...] = x
