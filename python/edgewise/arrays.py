"""Arrays in and out. NumPy arrays where NumPy is present (the only file that imports it), else `Array`: a buffer with shape and dtype."""
from __future__ import annotations

import sys

from .errors import InputError
from .ops.dtypes import BFLOAT16, BOOL, CODE, FLOAT, INT64, NAME, bytes_for, pack, size_of, unpack


def _numpy(load=False):
    """The NumPy module, if it is (or, with load, can be) there."""
    if "numpy" in sys.modules:
        return sys.modules["numpy"]
    if load or sys.platform != "emscripten":  # in a page NumPy is used when the page loaded it, never loaded by us
        try:
            import numpy
            return numpy
        except ImportError:
            return None
    return None


class Array:
    """A tensor without NumPy: `shape` (tuple), `dtype` (NumPy's name), `data` (little-endian bytes, row-major). Supports the buffer protocol through memoryview(a.data)."""

    def __init__(self, shape, dtype, data):
        self.shape, self.dtype, self.data = tuple(shape), dtype, data

    @property
    def size(self):
        n = 1
        for d in self.shape:
            n *= d
        return n

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
            return [nest(values[i * step:(i + 1) * step], shape[1:]) for i in range(shape[0])]
        return nest(self.flat(), self.shape)

    def __repr__(self):
        return f"Array(shape={self.shape}, dtype={self.dtype})"


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
    """(dtype code, shape, bytes-like) of a NumPy array, an Array, a buffer with format and shape, or nested lists of numbers.

    expected: dtype code the model declares; lists take it. Raises InputError."""
    np = _numpy()
    where = f"input '{name}'"
    if np is not None and isinstance(x, (np.ndarray, np.generic)):
        a = np.asarray(x, order="C")
        kind = a.dtype.name
        if kind not in CODE or a.dtype.byteorder == ">":
            raise InputError(f"element type {a.dtype} is not one Edgewise takes", where, "Convert it with .astype().")
        return CODE[kind], list(a.shape), a.reshape(-1).view("uint8") if a.size else b""
    if isinstance(x, Array):
        if len(x.data) != bytes_for(CODE[x.dtype], x.size):
            raise InputError(f"{len(x.data)} bytes for shape {x.shape} of {x.dtype}", where, "Give as many bytes as the shape needs.")
        return CODE[x.dtype], list(x.shape), x.data
    if isinstance(x, (list, tuple, int, float, bool)):
        try:
            shape, flat = _nested(x)
            dtype = expected or (BOOL if flat and isinstance(flat[0], bool) else INT64 if all(isinstance(v, int) for v in flat) else FLOAT)
            return dtype, shape, pack(dtype, flat)
        except Exception as e:
            raise InputError(f"it is not a rectangular list of numbers of type {NAME.get(expected, 'number')} ({e})", where, "Pass an array.") from None
    if hasattr(x, "numpy") or hasattr(x, "__array__"):
        np = _numpy(True)
        if np is not None:
            return as_input(np.asarray(x), name, expected)
    try:
        m = memoryview(x)
        codes = {"f": 1, "B": 2, "b": 3, "H": 4, "h": 5, "i": 6, "q": 7, "l": 7 if m.itemsize == 8 else 6, "?": 9, "e": 10, "d": 11, "I": 12, "Q": 13, "L": 13 if m.itemsize == 8 else 12}
        return codes[m.format], list(m.shape), m.tobytes()
    except (TypeError, KeyError):
        raise InputError(f"a {type(x).__name__} is no tensor", where, "Pass a NumPy array, an edgewise.Array, a buffer, or nested lists.") from None


def as_output(dtype, shape, data):
    """A NumPy array where NumPy is present, else an Array."""
    np = _numpy()
    if np is None or dtype == BFLOAT16:
        return Array(shape, NAME[dtype], bytes(data))
    return np.frombuffer(bytearray(data), dtype=NAME[dtype] if dtype != BOOL else np.bool_).reshape(shape)
