"""Damages ONNX models: their graphs, and the bytes of their protobuf messages."""

import collections

INTS = (
    0,
    1,
    2,
    3,
    7,
    8,
    16,
    64,
    127,
    128,
    255,
    256,
    1000,
    65535,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    1 << 40,
    (1 << 62),
    (1 << 63) - 1,
    -1,
    -2,
    -3,
    -8,
    -128,
    -(1 << 31),
    -(1 << 63),
)


class Damage:
    """One mutated model; the mutation depends on the random numbers of the case only."""

    def __init__(self, rng, seeds):
        self.rng = rng
        self.name = rng.choice(list(seeds))
        self.data, self.siblings = seeds[self.name]
        self.siblings = dict(self.siblings)
        self.notes = []

    def make(self):
        from wire import Message

        rng = self.rng
        if self.siblings and rng.random() < 0.2:
            self.damage_siblings()
        if rng.random() < 0.25:
            for _ in range(rng.choice((1, 1, 2, 8))):
                self.data = self.damage_bytes(self.data)
            return
        root = Message.parse(self.data)
        for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
            self.damage_tree(root)
        self.data = root.bytes()

    def note(self, text):
        self.notes.append(text)

    def damage_siblings(self):
        name = self.rng.choice(list(self.siblings))
        how = self.rng.choice(("gone", "short", "empty"))
        self.note(f"{name} {how}")
        if how == "gone":
            del self.siblings[name]
        else:
            self.siblings[name] = self.siblings[name][
                : self.rng.randrange(len(self.siblings[name])) if how == "short" else 0
            ]

    def damage_bytes(self, data):
        rng, data = self.rng, bytearray(data)
        # the graph is before the weights or after them: hit both ends as often as the middle
        at = rng.choice(
            (
                rng.randrange(len(data)),
                rng.randrange(min(len(data), 6000)),
                len(data) - 1 - rng.randrange(min(len(data), 6000)),
            )
        )
        how = rng.choice(("flip", "set", "cut", "delete", "insert", "repeat", "varint"))
        self.note(f"{how} at {at}")
        if how == "flip":
            data[at] ^= 1 << rng.randrange(8)
        elif how == "set":
            data[at] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        elif how == "cut":
            del data[at:]
        elif how == "delete":
            del data[at : at + rng.choice((1, 2, 8, 100))]
        elif how == "insert":
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 2, 8))))
        elif how == "repeat":
            data[at:at] = data[at : at + rng.choice((4, 40, 400))]
        else:
            data[at : at + 1] = b"\xff" * rng.choice((4, 9, 10)) + b"\x01"
        return bytes(data) or b"\0"

    # long: one branch for each kind of damage
    def damage_tree(self, root):
        from wire import Message

        rng = self.rng
        messages = collections.defaultdict(list)
        for m in root.walk():
            messages[m.kind].append(m)
        kinds = [
            k
            for k in (
                "Node",
                "Node",
                "Node",
                "Attribute",
                "Attribute",
                "Attribute",
                "Tensor",
                "Tensor",
                "Value",
                "Dim",
                "Dim",
                "Graph",
                "Pair",
                "OpsetId",
                "Function",
                "Model",
                "Type",
                "TensorType",
                "Shape",
            )
            if messages[k]
        ]
        if not kinds:
            return self.note("nothing left to damage")
        kind = rng.choice(kinds)
        m = rng.choice(messages[kind])
        if not m.fields:
            m.fields.append([rng.choice((1, 2)), 0, rng.choice(INTS)])
            return self.note(f"{kind}: a field into nothing")
        how = rng.choice(
            (
                "value",
                "value",
                "value",
                "value",
                "delete",
                "double",
                "other",
                "swap",
                "number",
                "wire",
            )
        )
        field = rng.choice(m.fields)
        self.note(f"{kind} {how} {field[0]}={str(field[2])[:40]}")
        if how == "delete":
            m.fields.remove(field)
        elif how == "double":
            m.fields.insert(
                rng.randrange(len(m.fields) + 1),
                [
                    field[0],
                    field[1],
                    field[2].copy() if isinstance(field[2], Message) else field[2],
                ],
            )
        elif how == "swap":
            other = rng.choice(m.fields)
            i, j = m.fields.index(field), m.fields.index(other)
            m.fields[i], m.fields[j] = m.fields[j], m.fields[i]
        elif how == "number":
            field[0] = rng.choice(
                (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 20, 21, 25, 1 << 28)
            )
        elif how == "wire" or how == "other":
            donor = rng.choice(messages[kind])
            same = [f for f in donor.fields if f[0] == field[0]]
            if how == "other" and same:
                value = rng.choice(same)[2]
                field[2] = value.copy() if isinstance(value, Message) else value
            else:
                field[1], field[2] = rng.choice(
                    (
                        (0, rng.choice(INTS)),
                        (2, b""),
                        (5, bytes(4)),
                        (1, b"\xff" * 8),
                        (2, b"\xff\xff\xff\xff\x0f"),
                    )
                )
        elif isinstance(field[2], Message):
            if field[2].fields and rng.random() < 0.5:
                field[2].fields = field[2].fields[: rng.randrange(len(field[2].fields))]
            else:
                other = rng.choice(messages[field[2].kind])
                if other is not m and m not in list(other.walk()):
                    field[2] = other.copy()
        elif field[1] == 0:
            field[2] = rng.choice(INTS) if rng.random() < 0.7 else field[2] + rng.choice((-1, 1))
        elif field[1] in (1, 5):
            import struct

            field[2] = struct.pack(
                "<f" if field[1] == 5 else "<d",
                rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf"), 1e-30, 0.5)),
            )
        else:
            field[2] = self.damage_string(kind, field, root)

    # long: one branch for each kind of damage
    def damage_string(self, kind, field, root):
        from edgewise.compiler.ops import OPS
        from wire import varint

        rng, data = self.rng, field[2]
        if kind == "Node" and field[0] == 4 and rng.random() < 0.7:
            return rng.choice([n for _, n in OPS if rng.random() < 0.5] or ["If"]).encode()
        if kind == "Node" and field[0] == 7:
            return rng.choice((b"", b"com.microsoft", b"ai.onnx", b"edgewise", b"local"))
        if (
            kind == "Node"
            and field[0] in (1, 2)
            or kind == "Graph"
            or kind == "Value"
            and field[0] == 1
        ):
            names = sorted(
                {
                    f[2]
                    for n in root.walk()
                    if n.kind == "Node"
                    for f in n.fields
                    if f[0] in (1, 2) and isinstance(f[2], bytes)
                }
            )
            return rng.choice(names + [b"", b"nowhere"]) if names else b""
        if kind == "Attribute" and field[0] == 1:
            names = sorted(
                {
                    f[2]
                    for n in root.walk()
                    if n.kind == "Attribute"
                    for f in n.fields
                    if f[0] == 1 and isinstance(f[2], bytes)
                }
            )
            return rng.choice(names) if names else b"axis"
        if kind == "Pair":
            return rng.choice(
                (
                    b"0",
                    b"-1",
                    b"4096",
                    b"99999999999999999999",
                    b"x",
                    b"../../etc/passwd",
                    b"/etc/passwd",
                    b"location",
                    b"offset",
                    b"length",
                    b"",
                    b"weights.bin",
                    b"\xff\xfe",
                )
            )
        if (
            kind == "Tensor" and field[0] == 9 and data and rng.random() < 0.7
        ):  # the values of an initializer: shapes, axes, indices, weights
            width = rng.choice((1, 4, 8))
            at = rng.randrange(max(1, len(data) // width)) * width
            new = rng.choice(
                (
                    (
                        rng.choice(INTS).to_bytes(8, "little", signed=True)[:width]
                        if width < 8
                        else rng.choice(INTS).to_bytes(8, "little", signed=True)
                    ),
                    b"\xff" * width,
                    b"\0\0\xc0\x7f"[:width],
                )
            )
            return data[:at] + new + data[at + len(new) :]
        how = rng.randrange(6)
        if how == 0:
            return b""
        if how == 1:
            return data[: len(data) // 2]
        if how == 2:
            return data + data
        if how == 3:
            return bytes(rng.randrange(256) for _ in range(rng.choice((1, 4, 8, 16))))
        if how == 4:
            return b"".join(varint(rng.choice(INTS)) for _ in range(rng.choice((1, 2, 3, 4))))
        at = rng.randrange(max(1, len(data)))
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
