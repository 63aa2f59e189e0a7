"""The memory of a plan that is being built: slots, the constant section, temporary buffers."""

from __future__ import annotations

from collections.abc import Sequence

from ..declare.dtypes import BITS, UINT8, bytes_for, pack, size_of
from ..declare.symbolic import most, product, strides_of
from ..targets import Target
from .plan import Slot
from .view import Dim, Storage, View


class Buffers:
    """Slots, constants and temporary buffers.

    Attributes:
        target: device that the plan is for.
        init: whether init steps are being written, which run once, when weights are there.
        slots: bound by the host, in order.
        slot_of: {name: buffer}; states have keys ("state", name), since a parameter has the name
            of the weight that it begins as.
        constants: bytes of the constant section.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.init = False
        self.slots: list[Slot] = []
        self.slot_of: dict[str | tuple[str, str], Storage] = {}
        self.constants = bytearray()
        self._constant_at: dict[tuple[bytes, int], int] = {}
        self._const_buffer = Storage("const", 0, "constants")

    def slot(self, name: str, kind: str, dtype: int, shape: Sequence[int], nbytes: int) -> Storage:
        """Returns the buffer of a slot, which is made on first use.

        Args:
            name: of the slot.
            kind: as Slot.kind.
            dtype: ONNX code.
            shape: of the tensor in it.
            nbytes: its size.
        """
        key = ("state", name) if kind == "state" else name
        if key not in self.slot_of:
            self.target.check_buffer(nbytes, f"{kind} '{name}'")
            buffer = Storage("slot", nbytes, name)
            buffer.index = len(self.slots)
            self.slots.append(Slot(name, kind, dtype, list(shape), nbytes))
            self.slot_of[key] = buffer
        return self.slot_of[key]

    def slot_kind(self, buffer: Storage) -> str:
        """The kind of the slot that a buffer is; "" where it is none."""
        if buffer.kind != "slot" or buffer.index < 0:
            return ""
        return self.slots[buffer.index].kind

    def move_to_slot(
        self, buffer: Storage, name: str, kind: str, dtype: int, shape: Sequence[int]
    ) -> None:
        """Makes a new slot of a buffer in the arena."""
        self.target.check_buffer(buffer.nbytes, f"{kind} '{name}'")
        buffer.kind, buffer.name, buffer.index = "slot", name, len(self.slots)
        self.slots.append(Slot(name, kind, dtype, list(shape), buffer.nbytes))
        self.slot_of[name] = buffer

    def const_bytes(self, data: bytes, dtype: int, shape: Sequence[Dim]) -> View:
        """View of bytes in the constant section, where equal bytes are stored once."""
        align = self.target.memory.constant_alignment
        # Offsets count elements: those of 6 bits begin a byte every 3 bytes.
        step = 3 * align if BITS.get(dtype) == 6 else align
        at = self._constant_at.get((data, step))
        if at is None:
            self.constants += bytes(-len(self.constants) % step)
            at = self._constant_at[data, step] = len(self.constants)
            self.constants += data + bytes(-len(data) % align)
        offset = at * 8 // BITS[dtype] if dtype in BITS else at // size_of(dtype)
        return View(self._const_buffer, offset, shape, strides_of(shape), dtype)

    def constant_parts(self) -> list[tuple[int, bytes]]:
        """[(offset, bytes)] of the tables in the constant section, by offset."""
        return sorted((at, data) for (data, _), at in self._constant_at.items())

    def scalar(self, dtype: int, number: float) -> View:
        """View of one number in the constant section."""
        return self.const_bytes(pack(dtype, [number]), dtype, [])

    def temp(self, dtype: int, shape: Sequence[Dim]) -> View:
        """View of a new contiguous tensor in the arena.

        It has room for the largest values of its Syms, and lives from the first step that uses it
        to the last.
        """
        nbytes = bytes_for(dtype, product([most(d) for d in shape]))
        return View(Storage("arena", nbytes, init=self.init), 0, shape, strides_of(shape), dtype)

    def scratch(self, nbytes: int) -> View:
        """View of bytes in the arena, for one step."""
        return View(Storage("arena", nbytes, init=self.init), 0, [nbytes], [1], UINT8)

    def is_constant(self, buffer: Storage) -> bool:
        """Whether the content of a buffer is the same in every run, and worth to be laid out anew:
        a weight, or what is computed from constants. Scalars and tables in the constant section
        are never laid out anew.
        """
        return self.slot_kind(buffer) == "weight" or buffer.init and buffer.kind == "arena"
