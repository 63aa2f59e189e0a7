"""Writes a checkpoint: all tables first and the tensors' bytes after them, so that they can be
streamed. From 2 GB on, large parameters go to a second file, NAME.data, as in ONNX Runtime.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .....compiler.ir import Tensor
from .....compiler.onnx.sink import Stored, as_stored, pieces, write_parts
from .....errors import InputError
from .checkpoint import IDENTIFIER, MAX, VERSION, Checkpoint, OptimizerGroup

INLINE = 1024  # bytes up to which a tensor stays in the first file when there is a second
ALIGN = 16  # of tensors' bytes; FlatBuffers ask for 1 only

Part = bytes | bytearray | memoryview


class Writable(Protocol):
    """A file that is open for writing."""

    def write(self, data: Part) -> object:
        """Appends bytes."""
        ...


class _FlatBufferBuilder:
    """A FlatBuffer that is written front to back. Offsets point forward; each is filled in once its
    target is written.
    """

    def __init__(self) -> None:
        self.data = bytearray()

    def align(self, to: int, ahead: int = 0) -> None:
        """Pads, so that the position after `ahead` more bytes is a multiple of `to`."""
        self.data += bytes(-(len(self.data) + ahead) % to)

    def point(self, at: int, target: int) -> None:
        """Fills in the offset at a position."""
        struct.pack_into("<I", self.data, at, target - at)

    def table(self, *fields: tuple[int, str, Any]) -> tuple[int, dict[int, int]]:
        """Writes a table.

        Args:
            fields: (field id, struct code or "offset", value).

        Returns:
            (its position, {field id: position} of the offsets, to be filled in)
        """
        sized = sorted(
            ((struct.calcsize("<" + (c if c != "offset" else "I")), i, c, v) for i, c, v in fields),
            key=lambda f: (-f[0], f[1]),
        )
        place: dict[int, int] = {}
        offsets: dict[int, int] = {}
        at = 8 if sized and sized[0][0] == 8 else 4
        for width, i, _, _ in sized:  # the widest first, so that each is aligned to its width
            place[i] = at
            at += width
        vtable = struct.pack("<HH", 4 + 2 * (max(place, default=-1) + 1), at) + b"".join(
            struct.pack("<H", place.get(i, 0)) for i in range(max(place, default=-1) + 1)
        )
        self.align(8, len(vtable))
        self.data += vtable
        start = len(self.data)
        self.data += struct.pack("<i", len(vtable)) + bytes(at - 4)
        for _, i, code, value in sized:
            if code == "offset":
                offsets[i] = start + place[i]
            else:
                struct.pack_into("<" + code, self.data, start + place[i], value)
        return start, offsets

    def text(self, at: int, text: str) -> None:
        """Writes a string that the offset at a position points to."""
        data = text.encode()
        self.align(4)
        self.point(at, len(self.data))
        self.data += struct.pack("<I", len(data)) + data + b"\0"

    def offsets(self, at: int, count: int) -> range:
        """Writes a vector of offsets that the offset at a position points to. Returns their
        positions, to be filled in.
        """
        self.align(4)
        self.point(at, len(self.data))
        start = len(self.data) + 4
        self.data += struct.pack("<I", count) + bytes(4 * count)
        return range(start, start + 4 * count, 4)

    def sizes(self, at: int, values: Sequence[int]) -> None:
        """Writes a vector of int64 that the offset at a position points to."""
        self.align(8, 4)
        self.point(at, len(self.data))
        self.data += struct.pack("<I", len(values)) + struct.pack(f"<{len(values)}q", *values)


@dataclass
class _Later:
    """Bytes of a tensor that are written after all tables.

    Attributes:
        at: position of the offset that points to them; in the second file, their position.
        stored: (dtype, shape, bytes, data) of as_stored.
        name: for messages.
    """

    at: int
    stored: Stored
    name: str


class _Writer:
    """Writes the tables of a checkpoint.

    Args:
        checkpoint: to be written.
        stored: {(field of the module, name): as_stored of the parameter}.
        external: whether large parameters go to the second file.
    """

    def __init__(
        self, checkpoint: Checkpoint, stored: Mapping[tuple[int, str], Stored], external: bool
    ):
        self.checkpoint, self.stored, self.external = checkpoint, stored, external
        self.out = _FlatBufferBuilder()
        self.inside: list[_Later] = []
        self.outside: list[_Later] = []
        self.at_outside = 0  # end of the second file

    def write(self) -> None:
        """Writes all tables."""
        out, checkpoint = self.out, self.checkpoint
        out.data += bytes(4) + IDENTIFIER
        root, at = out.table(
            (0, "i", VERSION),
            (1, "offset", None),
            *([(2, "offset", None)] if checkpoint.groups else []),
            *([(3, "offset", None)] if checkpoint.properties else []),
        )
        out.point(0, root)
        self._module(at[1])
        if checkpoint.groups:
            slots = out.offsets(at[2], len(checkpoint.groups))
            for slot, (name, group) in zip(slots, checkpoint.groups.items()):
                self._group(slot, name, group)
        if checkpoint.properties:
            self._properties(at[3])

    def _module(self, slot: int) -> None:
        out, checkpoint = self.out, self.checkpoint
        module, lists = out.table(
            (0, "offset", None),
            (1, "offset", None),
            *([(2, "?", True)] if checkpoint.nominal else []),
            *([(3, "?", True)] if self.external else []),
        )
        out.point(slot, module)
        for i, parameters in ((0, checkpoint.requires_grad), (1, checkpoint.frozen)):
            for entry, (name, x) in zip(out.offsets(lists[i], len(parameters)), parameters.items()):
                if checkpoint.nominal:
                    dtype = x.dtype if isinstance(x, Tensor) else as_stored(x, name)[0]
                    self._nominal(entry, name, dtype)
                else:
                    self._tensor(entry, name, self.stored[i, name], self.external)

    def _nominal(self, slot: int, name: str, dtype: int) -> None:
        """A parameter without values."""
        start, at = self.out.table(
            (0, "offset", None), (2, "offset", None), (3, "i", dtype), (4, "offset", None)
        )
        self.out.point(slot, start)
        self.out.text(at[0], name)
        self.out.offsets(at[2], 0)
        self.out.offsets(at[4], 0)

    def _tensor(self, slot: int, name: str, stored: Stored, movable: bool) -> None:
        """A tensor. movable: whether its bytes go to the second file if there are many."""
        dtype, shape, nbytes, _ = stored
        moved = movable and nbytes > INLINE
        self.at_outside += -self.at_outside % ALIGN
        start, at = self.out.table(
            (0, "offset", None),
            (2, "offset", None),
            (3, "i", dtype),
            (6, "q", self.at_outside) if moved else (4, "offset", None),
        )
        self.out.point(slot, start)
        self.out.text(at[0], name)
        self.out.sizes(at[2], shape)
        if moved:
            self.outside.append(_Later(self.at_outside, stored, name))
            self.at_outside += nbytes
        else:
            self.inside.append(_Later(at[4], stored, name))

    def _group(self, slot: int, name: str, group: OptimizerGroup) -> None:
        out = self.out
        start, at = out.table(
            (0, "offset", None),
            (1, "q", _int64(group.step, "step")),
            (2, "f", _float32(group.initial_learning_rate, "initial_learning_rate")),
            (3, "offset", None),
        )
        out.point(slot, start)
        out.text(at[0], name)
        entries = out.offsets(at[3], len(group.momentums))
        for entry, (parameter, states) in zip(entries, group.momentums.items()):
            start, at = out.table((0, "offset", None), (1, "offset", None))
            out.point(entry, start)
            out.text(at[0], parameter)
            for tensor, (state, x) in zip(out.offsets(at[1], len(states)), states.items()):
                self._tensor(tensor, state, as_stored(x, f"{parameter}'s {state}"), False)

    def _properties(self, slot: int) -> None:
        out = self.out
        ints: dict[str, Any] = {}
        floats: dict[str, Any] = {}
        texts: dict[str, Any] = {}
        for name, value in self.checkpoint.properties.items():
            if (
                not isinstance(name, str)
                or isinstance(value, bool)
                or not isinstance(value, (int, float, str))
            ):
                raise InputError(
                    f"property {name!r} is {value!r}",
                    "checkpoint",
                    "Properties are ints, floats and strings.",
                )
            kind = ints if isinstance(value, int) else floats if isinstance(value, float) else texts
            kind[name] = value
        kinds = (ints, floats, texts)
        start, lists = out.table(*((i, "offset", None) for i, k in enumerate(kinds) if k))
        out.point(slot, start)
        for i, position in lists.items():
            for entry, (name, value) in zip(out.offsets(position, len(kinds[i])), kinds[i].items()):
                field = (
                    (1, "q", _int64(value, name))
                    if kinds[i] is ints
                    else (1, "f", _float32(value, name))
                    if kinds[i] is floats
                    else (1, "offset", None)
                )
                start, at = out.table((0, "offset", None), field)
                out.point(entry, start)
                out.text(at[0], name)
                if kinds[i] is texts:
                    out.text(at[1], value)

    def parts(self) -> Iterator[bytes | bytearray | memoryview]:
        """The file: the tables, then the tensors' bytes, each a vector that is aligned to ALIGN."""
        end, gaps = len(self.out.data), []
        for later in self.inside:
            start = end + 4 + -(end + 4) % ALIGN
            gaps.append(start - 4 - end)
            nbytes = later.stored[2]
            if start + nbytes > MAX:
                raise InputError(
                    f"the checkpoint has more than {MAX >> 20} MB without its parameters",
                    "checkpoint",
                    "Save it without the optimizer's state.",
                )
            self.out.point(later.at, start - 4)
            end = start + nbytes
        return _inside(self.out.data, zip(gaps, self.inside), bytes(-end % 4))


def checkpoint_parts(
    checkpoint: Checkpoint, external: bool | None = None
) -> tuple[Iterator[Part], Iterator[Part] | None]:
    """The files as iterators over their parts.

    Args:
        checkpoint: to be written.
        external: whether parameters go to a second file. None: if one file would have more than
            2 GB.

    Returns:
        (parts of the checkpoint, parts of the second file or None)

    Raises:
        InputError: a tensor's bytes do not match its shape, or a property is not an int64,
            float32 or text.
    """
    stored = {}
    if not checkpoint.nominal:
        for i, parameters in enumerate((checkpoint.requires_grad, checkpoint.frozen)):
            stored.update({(i, name): as_stored(x, name) for name, x in parameters.items()})
    if external is None:
        states = sum(
            as_stored(x, name)[2]
            for g in checkpoint.groups.values()
            for s in g.momentums.values()
            for name, x in s.items()
        )
        external = sum(s[2] for s in stored.values()) + states > MAX - (1 << 24)
    both = set(checkpoint.requires_grad) & set(checkpoint.frozen)
    if both:
        raise InputError(
            f"'{min(both)}' is trained and frozen", "checkpoint", "It can be one of them."
        )
    writer = _Writer(checkpoint, stored, external)
    writer.write()
    return writer.parts(), _outside(writer.outside) if external else None


def _inside(
    tables: bytearray, tensors: Iterable[tuple[int, _Later]], tail: bytes
) -> Iterator[Part]:
    yield tables
    for gap, later in tensors:
        yield bytes(gap) + struct.pack("<I", later.stored[2])
        yield from pieces(later.stored, later.name)
    if tail:
        yield tail


def _outside(tensors: Iterable[_Later]) -> Iterator[Part]:
    at = 0
    for later in tensors:
        if later.at > at:
            yield bytes(later.at - at)
        yield from pieces(later.stored, later.name)
        at = later.at + later.stored[2]


def _int64(x: object, name: str) -> int:
    if type(x) is not int or not -(1 << 63) <= x < 1 << 63:
        raise InputError(f"'{name}' is {x!r}", "checkpoint", "It is a 64-bit integer.")
    return x


def _float32(x: Any, name: str) -> float:
    try:
        struct.pack("<f", x)
        return x
    except (OverflowError, struct.error):
        raise InputError(f"'{name}' is {x!r}", "checkpoint", "It is a float32.") from None


def write_checkpoint(
    checkpoint: Checkpoint, target: str | os.PathLike[str] | Writable | None = None
) -> bytes | None:
    """Writes a checkpoint.

    Args:
        checkpoint: to be written.
        target: a path (the file is complete or not written at all), an object with `write`, or
            None: returns the bytes. From 2 GB on the parameters go to TARGET.data, which needs a
            path.

    Raises:
        InputError: as checkpoint_parts, or it has more than 2 GB and `target` is not a path.
    """
    main, data = checkpoint_parts(checkpoint)
    if data is not None:
        if target is None or hasattr(target, "write"):
            raise InputError(
                "the checkpoint has more than 2 GB", "checkpoint", "Write it to a path."
            )
        write_parts(os.fspath(target) + ".data", data)
    return write_parts(target, main)
