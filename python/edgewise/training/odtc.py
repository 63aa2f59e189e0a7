"""Checkpoints of ONNX Runtime's on-device training: FlatBuffers with the identifier ODTC, read and
written without the FlatBuffers library.

The schema is onnxruntime/core/flatbuffers/schema/ort_training_checkpoint.fbs, and of ort.fbs the
table Tensor (release 1.19.2, checkpoint version 2). Reading leaves tensors where they lie. Writing
puts all tables first and the tensors' bytes behind them, so that they can be streamed; from 2 GB on
they go to a second file, NAME.data, as ONNX Runtime has it.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field

from ..declare.dtypes import NAME, bytes_for
from ..errors import InputError, ModelError
from ..ir import Tensor
from ..onnx.protobuf import Window
from ..onnx.sink import as_stored, pieces, write_parts
from ..onnx.source import as_source

IDENTIFIER, VERSION = b"ODTC", 2
MOST = (1 << 31) - 1  # bytes of a FlatBuffer
INLINE = 1024  # bytes up to which a tensor stays in the first file when there is a second
ALIGN = 16  # of tensors' bytes; FlatBuffers alone ask for 1
MAX_RANK, MAX_TEXT, MAX_ELEMENTS = 64, 1 << 20, 1 << 40


@dataclass
class OptimizerGroup:
    """step: optimizer steps done. momentums: {parameter name: {"momentum0": Tensor, ...}}; AdamW
    has momentum0 (first) and momentum1 (second), SGD an unused momentum0.
    """

    step: int = 0
    initial_learning_rate: float = 1e-3
    momentums: dict = field(default_factory=dict)


@dataclass
class Checkpoint:
    """requires_grad: {name: Tensor} of the parameters that are trained; frozen: of those that are
    not, but were named. groups: {"group0": OptimizerGroup}, empty before an optimizer ran.
    properties: {name: int, float (float32 in the file) or str}. nominal: the parameters have names
    and types only.
    """

    requires_grad: dict = field(default_factory=dict)
    frozen: dict = field(default_factory=dict)
    groups: dict = field(default_factory=dict)
    properties: dict = field(default_factory=dict)
    nominal: bool = False

    @property
    def parameters(self):
        """{name: Tensor} of all, those that are trained first."""
        return self.requires_grad | self.frozen


# reading
class _Buffer:
    """Checked access to a FlatBuffer in a Source."""

    def __init__(self, source):
        self.source, self.window = source, Window(source)
        self.text_left = 16 * source.size + (
            1 << 16
        )  # strings may be shared, so a small file could claim any amount of text

    def broken(self, what):
        return ModelError(
            what,
            self.source.name,
            "The file is damaged or not a checkpoint; fetch or save it again.",
        )

    def number(self, code, at):
        width = struct.calcsize("<" + code)
        if at < 0 or at + width > self.source.size:
            raise self.broken(f"it points to byte {at}, which it does not have")
        return struct.unpack("<" + code, self.window.at(at, width))[0]

    def follow(self, at):
        """Where an offset points to."""
        return at + self.number("I", at)

    def vector(self, at, width):
        """(position of the first element, count) of the vector that an offset points to."""
        start = self.follow(at)
        count = self.number("I", start)
        if start + 4 + count * width > self.source.size:
            raise self.broken(f"the list at byte {start} claims {count} elements")
        return start + 4, count


class _Table:
    def __init__(self, buffer, at):
        self.buffer, self.at = buffer, at
        self.vtable = at - buffer.number("i", at)
        size, self.size = buffer.number("H", self.vtable), buffer.number("H", self.vtable + 2)
        if (
            size < 4
            or self.size < 4
            or self.vtable + size > buffer.source.size
            or at + self.size > buffer.source.size
        ):
            raise buffer.broken(f"the table at byte {at} has no place")
        self.fields = (size - 4) // 2

    def position(self, i, width):
        """Of field i, or None where it has its default."""
        offset = self.buffer.number("H", self.vtable + 4 + 2 * i) if i < self.fields else 0
        if offset and (offset < 4 or offset + width > self.size):
            raise self.buffer.broken(f"the table at byte {self.at} has field {i} outside of itself")
        return self.at + offset if offset else None

    def number(self, i, code, default=0):
        at = self.position(i, struct.calcsize("<" + code))
        return default if at is None else self.buffer.number(code, at)

    def table(self, i):
        at = self.position(i, 4)
        return None if at is None else _Table(self.buffer, self.buffer.follow(at))

    def tables(self, i):
        at = self.position(i, 4)
        if at is not None:
            start, count = self.buffer.vector(at, 4)
            for k in range(count):
                yield _Table(self.buffer, self.buffer.follow(start + 4 * k))

    def text(self, i, what):
        at = self.position(i, 4)
        if at is None:
            raise self.buffer.broken(f"{what} is missing")
        start, count = self.buffer.vector(at, 1)
        self.buffer.text_left -= count
        if count > MAX_TEXT or self.buffer.text_left < 0:
            raise self.buffer.broken(f"{what} is {count} bytes long")
        try:
            return (self.buffer.window.at(start, count) if count else b"").decode()
        except UnicodeDecodeError:
            raise self.buffer.broken(f"{what} is not UTF-8") from None


def read_checkpoint(source):
    """Reads a checkpoint.

    Args:
        source: path, bytes or Source of the file. One whose parameters lie in NAME.data needs that
        file beside it.
    Returns:
        Checkpoint; its tensors lie in the source.
    Raises:
        ModelError: it is damaged, truncated, of another version, or not a checkpoint.
    """
    source = as_source(source, "checkpoint")
    b = _Buffer(source)
    if source.size < 8 or source.read(4, 4) != IDENTIFIER:
        raise b.broken("it is not a checkpoint of ONNX Runtime's training")
    root = _Table(b, b.follow(0))
    if root.number(0, "i") != VERSION:
        raise ModelError(
            f"its version is {root.number(0, 'i')}",
            source.name,
            "Edgewise reads version 2, which ONNX Runtime 1.17 to 1.19 wrote; load it there and"
            " save it again.",
        )
    out = Checkpoint()
    module = root.table(1)
    if module is not None:
        out.nominal = module.number(2, "?", False)
        data = (
            source.sibling(os.path.basename(source.name) + ".data")
            if module.number(3, "?", False)
            else None
        )
        for i, kind in ((0, out.requires_grad), (1, out.frozen)):
            for t in module.tables(i):
                t = _tensor(t, data, out.nominal)
                if t.name in out.requires_grad or t.name in out.frozen:
                    raise b.broken(f"two parameters are called '{t.name}'")
                kind[t.name] = t
    for g in root.tables(2):
        name = g.text(0, "a parameter group's name")
        if name in out.groups:
            raise b.broken(f"two parameter groups are called '{name}'")
        out.groups[name] = group = OptimizerGroup(g.number(1, "q"), g.number(2, "f"))
        for state in g.tables(3):
            parameter = state.text(0, "a parameter's name")
            if parameter in group.momentums:
                raise b.broken(f"'{parameter}' has optimizer states twice")
            group.momentums[parameter] = states = {}
            for t in state.tables(1):
                t = _tensor(t, None, False)
                if t.name in states:
                    raise b.broken(f"'{parameter}' has two states called '{t.name}'")
                states[t.name] = t
    bag = root.table(3)
    if bag is not None:
        for i, read in (
            (0, lambda p: p.number(1, "q")),
            (1, lambda p: p.number(1, "f")),
            (2, lambda p: p.text(1, "a property")),
        ):
            for p in bag.tables(i):
                name = p.text(0, "a property's name")
                if name in out.properties:
                    raise b.broken(f"two properties are called '{name}'")
                out.properties[name] = read(p)
    return out


def _tensor(t, data, nominal):
    b, name = t.buffer, t.text(0, "a tensor's name")
    dtype = t.number(3, "i")
    if dtype not in NAME or NAME[dtype] == "string":
        raise b.broken(
            f"tensor '{name}' has the element type {dtype}, which checkpoints do not hold"
        )
    if nominal:  # the file gives names and types only
        return Tensor(name, dtype, (), None, 0, 0, b"")
    dims = t.position(2, 4)
    start, rank = b.vector(dims, 8) if dims is not None else (0, 0)
    if rank > MAX_RANK:
        raise b.broken(f"tensor '{name}' claims {rank} dimensions")
    shape = tuple(b.number("q", start + 8 * i) for i in range(rank))
    count = 1
    for d in shape:
        if d < 0 or (count := count * d) > MAX_ELEMENTS:
            raise b.broken(f"tensor '{name}' has the shape {list(shape)}")
    raw, offset, nbytes = t.position(4, 4), t.number(6, "q", -1), bytes_for(dtype, count)
    if raw is not None:
        start, size = b.vector(raw, 1)
        if size != nbytes:
            raise b.broken(
                f"tensor '{name}' has {size} bytes, its shape {list(shape)} of {NAME[dtype]} needs"
                f" {nbytes}"
            )
        return Tensor(name, dtype, shape, b.source, start, nbytes)
    if offset < 0 or data is None:
        raise b.broken(f"tensor '{name}' has no data")
    if offset + nbytes > data.size:
        raise ModelError(
            f"tensor '{name}' lies at bytes {offset}..{offset + nbytes}, the file has {data.size}",
            data.name,
            "It is truncated or belongs to another checkpoint.",
        )
    return Tensor(name, dtype, shape, data, offset, nbytes)


# writing
class _Builder:
    """A FlatBuffer written front to back: every offset points forward, and is filled in when what
    it points to is placed.
    """

    def __init__(self):
        self.data = bytearray()

    def align(self, to, ahead=0):
        self.data += bytes(-(len(self.data) + ahead) % to)

    def point(self, at, target):
        struct.pack_into("<I", self.data, at, target - at)

    def table(self, *fields):
        """fields: (field id, struct code or "offset", value).

        Returns {field id: position} of the offsets, to be pointed.
        """
        sized = sorted(
            ((struct.calcsize("<" + (c if c != "offset" else "I")), i, c, v) for i, c, v in fields),
            key=lambda f: (-f[0], f[1]),
        )
        place, at, offsets = {}, 8 if sized and sized[0][0] == 8 else 4, {}
        for width, i, _, _ in sized:  # widest first: each lies at a multiple of its width
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

    def text(self, at, text):
        data = text.encode()
        self.align(4)
        self.point(at, len(self.data))
        self.data += struct.pack("<I", len(data)) + data + b"\0"

    def offsets(self, at, count):
        """A list of offsets: positions to be pointed."""
        self.align(4)
        self.point(at, len(self.data))
        start = len(self.data) + 4
        self.data += struct.pack("<I", count) + bytes(4 * count)
        return range(start, start + 4 * count, 4)

    def sizes(self, at, values):
        self.align(8, 4)
        self.point(at, len(self.data))
        self.data += struct.pack("<I", len(values)) + struct.pack(f"<{len(values)}q", *values)


def checkpoint_parts(checkpoint, external=None):
    """The files as iterators over bytes-like parts: (checkpoint, data or None).

    Args:
        checkpoint: a Checkpoint whose tensors are Tensors, arrays, or (dtype, shape, data), see
        `edgewise.onnx.sink.as_stored`. external: whether parameters go to a second file; None: when
        the first would have more than 2 GB.
    Raises:
        InputError: a tensor's bytes are not those of its shape, a property is no int64, float32 or
        text.
    """
    stored = (
        {
            (kind, name): as_stored(x, name)
            for kind, things in (("p", checkpoint.requires_grad), ("f", checkpoint.frozen))
            for name, x in things.items()
        }
        if not checkpoint.nominal
        else {}
    )
    if external is None:
        states = sum(
            as_stored(x, name)[2]
            for g in checkpoint.groups.values()
            for s in g.momentums.values()
            for name, x in s.items()
        )
        external = sum(s[2] for s in stored.values()) + states > MOST - (1 << 24)
    both = set(checkpoint.requires_grad) & set(checkpoint.frozen)
    if both:
        raise InputError(
            f"'{min(both)}' is trained and frozen", "checkpoint", "It can be one of them."
        )
    b, inside, outside, at_outside = _Builder(), [], [], 0
    b.data += bytes(4) + IDENTIFIER
    bag = checkpoint.properties
    root, at = b.table(
        (0, "i", VERSION),
        (1, "offset", None),
        *([(2, "offset", None)] if checkpoint.groups else []),
        *([(3, "offset", None)] if bag else []),
    )
    b.point(0, root)
    module, lists = b.table(
        (0, "offset", None),
        (1, "offset", None),
        *([(2, "?", True)] if checkpoint.nominal else []),
        *([(3, "?", True)] if external else []),
    )
    b.point(at[1], module)

    def tensor(slot, name, given, movable):
        nonlocal at_outside
        dtype, shape, nbytes, _ = given
        moved = movable and external and nbytes > INLINE
        at_outside += -at_outside % ALIGN
        start, at = b.table(
            (0, "offset", None),
            (2, "offset", None),
            (3, "i", dtype),
            (6, "q", at_outside) if moved else (4, "offset", None),
        )
        b.point(slot, start)
        b.text(at[0], name)
        b.sizes(at[2], shape)
        if moved:
            outside.append((at_outside, given, name))
            at_outside += nbytes
        else:
            inside.append((at[4], given, name))

    for i, kind, things in ((0, "p", checkpoint.requires_grad), (1, "f", checkpoint.frozen)):
        for slot, (name, x) in zip(b.offsets(lists[i], len(things)), things.items()):
            if checkpoint.nominal:
                start, at_t = b.table(
                    (0, "offset", None),
                    (2, "offset", None),
                    (3, "i", x.dtype if isinstance(x, Tensor) else as_stored(x, name)[0]),
                    (4, "offset", None),
                )
                b.point(slot, start)
                b.text(at_t[0], name)
                b.offsets(at_t[2], 0)
                b.offsets(at_t[4], 0)
            else:
                tensor(slot, name, stored[kind, name], True)
    if checkpoint.groups:
        for slot, (name, g) in zip(
            b.offsets(at[2], len(checkpoint.groups)), checkpoint.groups.items()
        ):
            start, at_g = b.table(
                (0, "offset", None),
                (1, "q", _int64(g.step, "step")),
                (2, "f", _float32(g.initial_learning_rate, "initial_learning_rate")),
                (3, "offset", None),
            )
            b.point(slot, start)
            b.text(at_g[0], name)
            for slot_p, (parameter, states) in zip(
                b.offsets(at_g[3], len(g.momentums)), g.momentums.items()
            ):
                start, at_p = b.table((0, "offset", None), (1, "offset", None))
                b.point(slot_p, start)
                b.text(at_p[0], parameter)
                for slot_t, (state, x) in zip(b.offsets(at_p[1], len(states)), states.items()):
                    tensor(slot_t, state, as_stored(x, f"{parameter}'s {state}"), False)
    if bag:
        kinds = {0: {}, 1: {}, 2: {}}
        for name, value in bag.items():
            if (
                not isinstance(name, str)
                or isinstance(value, bool)
                or not isinstance(value, (int, float, str))
            ):
                raise InputError(
                    f"property {name!r} is {value!r}",
                    "checkpoint",
                    "Properties are ints, floats and text by name.",
                )
            kinds[0 if isinstance(value, int) else 1 if isinstance(value, float) else 2][name] = (
                value
            )
        start, at_b = b.table(*((i, "offset", None) for i in kinds if kinds[i]))
        b.point(at[3], start)
        for i, position in at_b.items():
            for slot, (name, value) in zip(b.offsets(position, len(kinds[i])), kinds[i].items()):
                start, at_p = b.table(
                    (0, "offset", None),
                    (
                        (1, "q", _int64(value, name))
                        if i == 0
                        else (1, "f", _float32(value, name))
                        if i == 1
                        else (1, "offset", None)
                    ),
                )
                b.point(slot, start)
                b.text(at_p[0], name)
                if i == 2:
                    b.text(at_p[1], value)
    # the tensors' bytes, each a vector: its length, then the bytes, on a multiple of ALIGN
    end, places = len(b.data), []
    for slot, given, name in inside:
        start = end + 4 + -(end + 4) % ALIGN
        places.append((start - 4 - end, given, name))
        if start + given[2] > MOST:
            raise InputError(
                f"the checkpoint has more than {MOST >> 20} MB without its parameters",
                "checkpoint",
                "Save it without the optimizer's state.",
            )
        b.point(slot, start - 4)
        end = start + given[2]
    b_end = bytes(-end % 4)
    return _inside(b.data, places, b_end), _outside(outside) if external else None


def _inside(tables, places, tail):
    yield tables
    for gap, given, name in places:
        yield bytes(gap) + struct.pack("<I", given[2])
        yield from pieces(given, name)
    if tail:
        yield tail


def _outside(places):
    at = 0
    for start, given, name in places:
        if start > at:
            yield bytes(start - at)
        yield from pieces(given, name)
        at = start + given[2]


def _int64(x, name):
    if type(x) is not int or not -(1 << 63) <= x < 1 << 63:
        raise InputError(f"'{name}' is {x!r}", "checkpoint", "It is a 64-bit integer.")
    return x


def _float32(x, name):
    try:
        struct.pack("<f", x)
        return x
    except (OverflowError, struct.error):
        raise InputError(f"'{name}' is {x!r}", "checkpoint", "It is a float32.") from None


def write_checkpoint(checkpoint, target=None):
    """Writes a checkpoint to a path (complete or not at all), or an object with `write`; with
    target None returns its bytes.

    Above 2 GB the parameters' bytes go to TARGET.data, which only a path has. Raises InputError.
    """
    main, data = checkpoint_parts(checkpoint)
    if data is not None:
        if target is None or hasattr(target, "write"):
            raise InputError(
                "the checkpoint has more than 2 GB", "checkpoint", "Write it to a path."
            )
        write_parts(os.fspath(target) + ".data", data)
    return write_parts(target, main)
