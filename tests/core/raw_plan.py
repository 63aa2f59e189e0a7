"""Plans assembled by hand, without the compiler and the hosts.

Used to test what the engine itself accepts and rejects.
"""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import dataclass, field

from edgewise.compiler.declare.kernel import KERNELS
from edgewise.compiler.ops.table import kernel_table

ARENA, CONST, SLOT0, NONE = 0, 1, 2, 0xFFFFFFFF
OK, FORMAT, PARAM, BOUNDS, ALIAS, UNBOUND, INDEX = 0, 2, 5, 6, 7, 9, 11
ARGUMENT, STOPPED = 12, 14


def step(kernel: str, params: dict, operands: list) -> bytes:
    """Encode a step.

    operands: (buffer, offset in bytes) or None each. Omitted parameters are 0.
    """
    k, packed = KERNELS[kernel], b""
    for name, kind in k.params.items():
        count = int(kind[4:-1]) if "[" in kind else 1
        value = params.get(name, [0] * count if count > 1 else 0)
        packed += struct.pack(
            f"<{count}{'f' if kind[0] == 'f' else 'i'}", *(value if count > 1 else [value])
        )
    size = len(packed)
    packed += bytes(-size % 8)
    packed += b"".join(
        struct.pack("<IIqq", *((NONE, 0, 0, 0) if o is None else (o[0], 0, o[1], 0)))
        for o in operands
    )
    return (
        struct.pack("<HHHHII", kernel_table() and k.id, len(operands), 0, 0, size, 16 + len(packed))
        + packed
    )


def plan(
    steps: list[bytes],
    slots: list[tuple[int, bool]],
    init: int = 0,
    arena: int = 0,
    const: bytes = b"",
) -> bytes:
    """Encode a plan. slots: (bytes, writable). The first `init` steps are init steps."""
    table, const = kernel_table(), const + bytes(-len(const) % 16)
    entries = b"".join(struct.pack("<QII", size, writable, 0) for size, writable in slots)
    at = 96
    const_at = at + len(entries)
    steps_at = const_at + len(const)
    body = b"".join(steps)
    header = struct.pack(
        "<8sIIIIIIQQQQQQQ",
        b"EDGEPLN3",
        table.hash,
        0,
        len(slots),
        init,
        len(steps) - init,
        0,
        arena,
        at,
        at,
        const_at,
        len(const),
        steps_at,
        steps_at + len(body),
    )
    return header + bytes(at - len(header)) + entries + const + body


class Error(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_int32),
        ("step", ctypes.c_int32),
        ("operand", ctypes.c_int32),
        ("kernel", ctypes.c_int32),
        ("detail", ctypes.c_int64),
    ]


@dataclass
class Raw:
    """One engine of the C library, called through ctypes."""

    threads: int = 1
    handles: list = field(default_factory=list)

    def __post_init__(self) -> None:
        from edgewise.engine.native import library_path

        self.library = ctypes.CDLL(os.environ.get("EDGEWISE_LIBRARY") or library_path())
        self.library.ew_open.restype = ctypes.c_void_p
        self.library.ew_last_error.restype = ctypes.POINTER(Error)
        self.engine = ctypes.c_void_p(self.library.ew_open(self.threads))

    def load(self, data: bytes) -> tuple[int, ctypes.c_void_p]:
        """Load a plan; return the error code and the handle of the plan."""
        handle = ctypes.c_void_p()
        code = self.library.ew_plan_load(
            self.engine, data, ctypes.c_size_t(len(data)), ctypes.byref(handle)
        )
        if not code:
            self.handles.append(handle)
        return code, handle

    def bind(self, handle: ctypes.c_void_p, slot: int, address: int, size: int) -> int:
        return self.library.ew_plan_bind(
            handle, slot, ctypes.c_void_p(address), ctypes.c_size_t(size)
        )

    def run(self, handle: ctypes.c_void_p) -> int:
        return self.library.ew_plan_run(handle)

    def init(self, handle: ctypes.c_void_p) -> int:
        return self.library.ew_plan_init(handle)

    def stop(self, value: int) -> None:
        self.library.ew_stop(self.engine, value)

    def error(self) -> Error:
        return self.library.ew_last_error(self.engine).contents

    def close(self) -> None:
        for handle in self.handles:
            self.library.ew_plan_free(handle)
        self.library.ew_close(self.engine)
