"""Arrays in and out.

NumPy arrays where NumPy is present (the only file that imports it), else `Array`: a buffer with
shape and dtype.
"""

from __future__ import annotations

import sys

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
    bytes_for,
    pack,
    unpack,
)
from .declare.symbolic import product
from .errors import InputError, ModelError, OutOfMemory


def _numpy(load=False):
    """The NumPy module, if it is (or, with load, can be) there."""
    if "numpy" in sys.modules:
        return sys.modules["numpy"]
    if (
        load or sys.platform != "emscripten"
    ):  # in a page NumPy is used when the page loaded it, never loaded by us
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
_OWN = {BFLOAT16, *MINIFLOATS, *BITS}  # NumPy has them where the package ml_dtypes is
_TAKEN = ", ".join(NAME[c] for c in sorted({*_FORMATS, *_OWN}))


class Array:
    """A tensor without NumPy: `shape` (tuple), `dtype` (NumPy's name, or ml_dtypes'), `data`
    (little-endian bytes, row-major; elements of less than a byte packed, the low bits first).

        Array.from_list([[1, 2], [3, 4]], "int64")      Array((2, 2), "int64", data) of bytes that
        are there already a.tolist()   a.item()   a.flat()   len(a)
        memoryview(a)                                   shaped and typed, from Python 3.12 on;
        before it memoryview(a.data) numpy.asarray(a)                                where NumPy is

    Raises InputError when the bytes are not those of the shape.
    """

    __slots__ = ("shape", "dtype", "data")

    def __init__(self, shape, dtype, data):
        self.shape, self.dtype, self.data = tuple(shape), dtype, data
        code = CODE.get(dtype)
        if code not in _FORMATS and code not in _OWN:
            raise InputError(
                f"element type {dtype!r} is not one Edgewise takes",
                "Array",
                f"Take one of {_TAKEN}.",
            )
        have, want = memoryview(data).nbytes, bytes_for(code, self.size)
        if have != want:
            raise InputError(
                f"{have} bytes for shape {self.shape} of {dtype}, which takes {want}",
                "Array",
                "Give as many bytes as the shape needs.",
            )

    @classmethod
    def from_list(cls, values, dtype=None):
        """Of a number or nested lists of numbers. dtype: NumPy's name; by default bool, int64 or
        float32, whatever holds them all.
        """
        if dtype is not None and dtype not in CODE:
            raise InputError(
                f"element type {dtype!r} is not one Edgewise takes",
                "Array",
                f"Take one of {_TAKEN}.",
            )
        code, shape, data = as_input(values, "", None if dtype is None else CODE[dtype])
        return cls(shape, NAME[code], data)

    @property
    def size(self):
        """Number of elements, as NumPy's."""
        return product(self.shape)

    @property
    def ndim(self):
        """Number of dimensions, as NumPy's."""
        return len(self.shape)

    @property
    def nbytes(self):
        """Bytes of `data`; elements of less than a byte are packed."""
        return len(self.data)

    def flat(self):
        """Flat list of Python numbers."""
        return unpack(CODE[self.dtype], self.data, self.size)

    def tolist(self):
        """Nested lists, as NumPy's tolist."""

        def nest(values, shape):
            if not shape:
                return values[0]
            if len(shape) == 1:
                return list(values)
            step = len(values) // shape[0] if shape[0] else 0
            return [nest(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]

        return nest(self.flat(), self.shape)

    def item(self):
        """The only number of an array with one."""
        if self.size != 1:
            raise ValueError(f"an array of {self.size} numbers is not one number")
        return self.flat()[0]

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __eq__(self, other):
        """Whether shape, type and every byte are the same."""
        if not isinstance(other, Array):
            return NotImplemented
        return (
            self.shape == other.shape
            and self.dtype == other.dtype
            and bytes(self.data) == bytes(other.data)
        )

    __hash__ = None  # type: ignore[assignment]

    def __buffer__(self, flags):
        view = memoryview(self.data).cast("B")
        kind = _FORMATS.get(CODE[self.dtype])
        if kind is None or not self.size:
            return view
        return view.cast(kind, self.shape) if self.shape else view.cast(kind)

    def __array__(self, dtype=None, copy=None):
        np = _numpy(True)
        own = CODE[self.dtype] in _OWN
        a = (
            _of_ml_dtypes(np, CODE[self.dtype], self.shape, self.data)
            if own
            else np.frombuffer(self.data, self.dtype).reshape(self.shape)
        )
        if a is None:
            a = np.frombuffer(self.data, "uint8")
        if copy is False and dtype is not None and a.dtype != dtype:
            raise ValueError("a change of type needs a copy")
        return np.array(a, dtype=dtype) if copy or dtype is not None else a

    def __repr__(self):
        values = str(self.tolist()) if self.size <= 64 else f"<{self.size} numbers>"
        return f"Array({values}, shape={self.shape}, dtype={self.dtype!r})"


def _nested(x):
    """(shape, flat numbers) of nested sequences."""
    if not isinstance(x, (list, tuple)):
        return [], [x]
    shape, flat = None, []
    for item in x:
        s, f = _nested(item)
        if shape is not None and s != shape:
            raise ValueError("ragged")
        shape = s
        flat += f
    return [len(x)] + (shape or []), flat


def as_input(x, name, expected=None):
    """(dtype code, shape, bytes-like) of a NumPy array, an Array, a buffer with format and shape,
    or nested lists of numbers.

    expected: dtype code the model declares; lists take it. Raises InputError, OutOfMemory.
    """
    where = f"input '{name}'" if name else "Array"
    try:
        return _as_input(x, name, where, expected)
    except MemoryError:
        raise _too_large(x, where) from None


def _too_large(x, where: str) -> OutOfMemory:
    shape = getattr(x, "shape", None)
    size = (
        f"{x.nbytes} bytes" if type(getattr(x, "nbytes", None)) is int else f"a {type(x).__name__}"
    )
    return OutOfMemory(
        f"{size}{f' of shape {list(shape)}' if isinstance(shape, tuple) else ''} do not fit into"
        " memory",
        where,
        "Feed less at a time.",
    )


def _as_input(x, name, where, expected):
    np = _numpy()
    if np is not None and isinstance(x, (np.ndarray, np.generic)):
        a = np.asarray(x, order="C")
        kind = a.dtype.name
        code = CODE.get(kind)
        if code not in _FORMATS and code not in _OWN:
            raise InputError(
                f"element type {a.dtype} is not one Edgewise takes",
                where,
                "Convert it with .astype().",
            )
        if a.dtype.byteorder == ">":
            a = a.astype(a.dtype.newbyteorder("<"))
        data = a.reshape(-1).view("uint8") if a.size else b""
        return (
            code,
            list(a.shape),
            _packed(np, BITS[code], data) if code in BITS and a.size else data,
        )
    if isinstance(x, Array):
        return CODE[x.dtype], list(x.shape), x.data
    if isinstance(x, (list, tuple, int, float, bool)):
        try:
            shape, flat = _nested(x)
            if expected in RANGE:  # 2.0 is a whole number, 2.5 is a mistake
                flat = [int(v) if isinstance(v, float) and v.is_integer() else v for v in flat]
            dtype = expected or (
                BOOL
                if flat and isinstance(flat[0], bool)
                else INT64
                if all(isinstance(v, int) for v in flat)
                else FLOAT
            )
            return dtype, shape, pack(dtype, flat)
        except MemoryError:
            raise
        except Exception as e:
            raise InputError(
                f"it is not a rectangular list of numbers of type {NAME.get(expected, 'number')}"
                f" ({e})",
                where,
                "Pass an array.",
            ) from None
    if hasattr(x, "numpy") or hasattr(x, "__array__"):
        np = _numpy(True)
        if np is not None:
            try:
                a = np.asarray(x)
            except MemoryError:
                raise
            # code of another library; a tensor of torch may be on another device, or need a
            # gradient
            except Exception as e:
                raise InputError(
                    f"a {type(x).__name__} that gives no NumPy array ({e})",
                    where,
                    "Convert it to one.",
                ) from None
            return as_input(a, name, expected)
    try:
        m = memoryview(
            x.to_memoryview() if hasattr(x, "to_memoryview") else x
        )  # in Pyodide, a JavaScript typed array has that method
        kind = (
            {"l": "q", "L": "Q"}.get(m.format, m.format)
            if m.itemsize == 8
            else {"l": "i", "L": "I"}.get(m.format, m.format)
        )
        return _CODES[kind], list(m.shape), m.tobytes()
    except (TypeError, KeyError):
        raise InputError(
            f"a {type(x).__name__} is no tensor",
            where,
            "Pass a NumPy array, an edgewise.Array, a buffer, or nested lists.",
        ) from None


def _packed(np, bits, codes):
    """NumPy holds elements of less than a byte in a byte each; files and the engine, one behind the
    other.
    """
    bit = np.unpackbits(codes[:, None], axis=1, count=bits, bitorder="little")
    return np.packbits(bit.reshape(-1), bitorder="little")


def _of_ml_dtypes(np, dtype, shape, data):
    """A NumPy array of a type of ml_dtypes; None where that package is not."""
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
    if NAME[dtype][:3] == "int":  # ml_dtypes has the sign in all bits of the byte
        bit = np.concatenate([bit, np.repeat(bit[:, -1:], 8 - bits, 1)], 1)
    return np.packbits(bit, axis=1, bitorder="little").reshape(-1).view(kind).reshape(shape)


def as_strings(x, name):
    """(shape, flat list of str) of a NumPy array of strings, or nested lists of str. bytes are
    UTF-8. Raises InputError.
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
            f"it is no rectangular list of strings ({e})",
            f"input '{name}'",
            "Pass an array of strings.",
        ) from None
    wrong = next((v for v in flat if not isinstance(v, str)), "")
    if wrong != "":
        raise InputError(
            f"a {type(wrong).__name__} among its strings",
            f"input '{name}'",
            "Pass an array of strings.",
        )
    return shape, flat


def holds_strings(x):
    """Whether it is an array or nested list of strings."""
    np = _numpy()
    if np is not None and isinstance(x, (np.ndarray, np.generic)):
        return x.dtype.kind in "OUST"
    while isinstance(x, (list, tuple)) and x:
        x = x[0]
    return isinstance(x, (str, bytes))


def strings_as_output(shape, strings):
    """A NumPy array of objects, or nested lists."""
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


def view_of(buffer, dtype, shape):
    """A NumPy array over a memoryview of bytes; None where NumPy is not there or has no such
    type.
    """
    np = _numpy()
    if np is None or dtype in _OWN or dtype not in _FORMATS:
        return None
    return np.frombuffer(buffer, dtype=NAME[dtype] if dtype != BOOL else np.bool_).reshape(shape)


def as_output(dtype, shape, data):
    """A NumPy array where NumPy is present (and, for bfloat16 and all floats and integers of 8 bits
    and fewer that NumPy does not know, the package ml_dtypes), else an Array.
    """
    np = _numpy()
    if np is None or dtype in _OWN:
        a = None if np is None else _of_ml_dtypes(np, dtype, shape, bytearray(data))
        return Array(shape, NAME[dtype], bytes(data)) if a is None else a
    flat = np.frombuffer(bytearray(data), dtype=NAME[dtype] if dtype != BOOL else np.bool_)
    try:
        return flat.reshape(shape)
    except ValueError as e:  # without elements, and with other sizes that make too many
        raise ModelError(
            f"NumPy takes no array of the shape {list(shape)} ({e})",
            "output",
            "Check what is fed; if it is right, export the model again.",
        ) from None
