"""Runs single kernels: each as a plan of one step, compared with NumPy."""

import ctypes
import os
import struct

import numpy as np
from edgewise.compiler.declare.kernel import KERNELS
from edgewise.compiler.ops.table import kernel_table

TYPES = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    4: np.uint16,
    5: np.int16,
    6: np.int32,
    7: np.int64,
    9: np.bool_,
    10: np.float16,
    11: np.float64,
    12: np.uint32,
    13: np.uint64,
}


def library():
    if os.environ.get("EDGEWISE_LIBRARY"):
        return os.environ["EDGEWISE_LIBRARY"]
    from edgewise.engine.native import library_path

    return library_path()


LIB = ctypes.CDLL(library())


for name in ("ew_open", "ew_last_error"):
    getattr(LIB, name).restype = ctypes.c_void_p


OK, PARAM, BOUNDS, ALIAS, INDEX = 0, 5, 6, 7, 11


# long: the sections of a plan in their order
def run(engine, kernel, params, operands, offsets=(), alias=()):
    """Run one step and return the error code.

    operands: arrays (written in place), or None if absent. offsets: in bytes. alias: (output,
    input) pairs that share a slot.
    """
    k, table = KERNELS[kernel], kernel_table()
    packed = b""
    for name, kind in k.params.items():
        v = params.get(name, 0)
        if kind == "f32":
            packed += struct.pack("<f", v)
        elif kind == "i32":
            packed += struct.pack("<i", v)
        else:
            packed += struct.pack("<6i", *v)
    size = len(packed)
    packed += bytes(-size % 8)
    slots = [a for a in operands if a is not None]
    number = {id(a): i for i, a in enumerate(slots)}
    ops = b""
    for i, a in enumerate(operands):
        target = next((operands[j] for o, j in alias if o == i), a)
        ops += struct.pack(
            "<IIqq",
            0xFFFFFFFF if a is None else 2 + number[id(target)],
            0,
            offsets[i] if i < len(offsets) else 0,
            0,
        )
    step = (
        struct.pack("<HHHHII", k.id, len(operands), 0, 0, size, 16 + len(packed) + len(ops))
        + packed
        + ops
    )
    slot_bytes = b"".join(struct.pack("<QII", a.nbytes, 1, 0) for a in slots)
    at = 96 + len(slot_bytes)
    plan = (
        struct.pack(
            "<8sIIIIIIQQQQQQQ",
            b"EDGEPLN3",
            table.hash,
            0,
            len(slots),
            0,
            1,
            0,
            0,
            96,
            96,
            at,
            0,
            at,
            at + len(step),
        ).ljust(96, b"\0")
        + slot_bytes
        + step
    )
    p = ctypes.c_void_p()
    code = LIB.ew_plan_load(engine, plan, ctypes.c_size_t(len(plan)), ctypes.byref(p))
    if code:
        return code
    for i, a in enumerate(slots):
        assert (
            LIB.ew_plan_bind(p, i, ctypes.c_void_p(a.ctypes.data), ctypes.c_size_t(a.nbytes)) == 0
        )
    code = LIB.ew_plan_run(p)
    LIB.ew_plan_free(p)
    return code


def strided(rng, shape, dtype, how, values=None):
    """A view of `shape` (padded to 6 dimensions) into a larger array.

    Returns the array, the byte offset of the view, and its strides in elements.
    """
    shape = tuple(shape)
    if how == "broadcast":
        inner = tuple(n if rng.random() < 0.5 else 1 for n in shape)
        base = make(rng, inner, dtype, values)
        view = np.broadcast_to(base, shape)
    elif how == "transposed":
        order = rng.permutation(len(shape))
        base = make(rng, tuple(shape[i] for i in order), dtype, values)
        view = base.transpose(np.argsort(order))
    elif how == "negative":
        base = make(rng, tuple(2 * n for n in shape), dtype, values)
        view = base[tuple(slice(None, None, -2) for _ in shape)]
    else:
        base = make(rng, shape, dtype, values)
        view = base
    offset = view.__array_interface__["data"][0] - base.ctypes.data
    strides = [s // view.itemsize if n > 1 else 0 for s, n in zip(view.strides, shape)]
    return base, view, offset, [0] * (6 - len(shape)) + strides


def make(rng, shape, dtype, values=None):
    dtype = np.dtype(dtype)
    if values is not None:
        return rng.choice(np.asarray(values, dtype), shape)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        small = rng.integers(max(info.min, -9), 10, shape).astype(dtype)
        return np.where(
            rng.random(shape) < 0.2,
            rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True),
            small,
        ).astype(dtype)
    return (rng.standard_normal(shape) * 3).astype(dtype)


def pad(shape):
    return [1] * (6 - len(shape)) + list(shape)


def check(got, want, tolerance=0.0, absolute=0.0):
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            np.asarray(got, np.float64) if got.dtype.kind == "f" else got,
            np.asarray(want, np.float64) if got.dtype.kind == "f" else want,
            rtol=tolerance,
            atol=absolute,
            equal_nan=True,
        )


def strides_of(shape):
    return [0] * (6 - len(shape)) + [
        int(np.prod(shape[i + 1 :], dtype=int)) for i in range(len(shape))
    ]
