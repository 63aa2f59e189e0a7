"""Protobuf messages as trees that tests can damage.

A message is a list of [field number, wire type, value]; values are ints, bytes, or messages.
"""

import struct

# message type -> field number -> type of the message in it (onnx.proto3)
SCHEMA = {
    "Model": {7: "Graph", 8: "OpsetId", 14: "Pair", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor", 11: "Value", 12: "Value", 13: "Value"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph"},
    "Tensor": {13: "Pair"},
    "Value": {2: "Type"},
    "Type": {1: "TensorType"},
    "TensorType": {2: "Shape"},
    "Shape": {1: "Dim"},
    "Function": {7: "Node", 9: "OpsetId", 11: "Attribute"},
    "Pair": {},
    "OpsetId": {},
    "Dim": {},
}


def varint(n):
    n = n & (1 << 64) - 1 if isinstance(n, int) else 0
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def _read(data, i):
    n = shift = 0
    while True:
        b = data[i]
        n |= (b & 127) << shift
        i, shift = i + 1, shift + 7
        if b < 128:
            return n, i


class Message:
    def __init__(self, kind, fields):
        self.kind, self.fields = kind, fields

    @staticmethod
    def parse(data, kind="Model"):
        fields, i = [], 0
        while i < len(data):
            key, i = _read(data, i)
            number, wire = key >> 3, key & 7
            if wire == 0:
                value, i = _read(data, i)
            elif wire == 2:
                n, i = _read(data, i)
                value, i = data[i : i + n], i + n
                if number in SCHEMA[kind]:
                    value = Message.parse(value, SCHEMA[kind][number])
            else:
                n = 8 if wire == 1 else 4
                value, i = data[i : i + n], i + n
            fields.append([number, wire, value])
        return Message(kind, fields)

    def bytes(self):
        out = []
        for number, wire, value in self.fields:
            out.append(varint(number << 3 | wire))
            if wire == 0:
                out.append(varint(value))
            elif wire == 2:
                value = (
                    value.bytes()
                    if isinstance(value, Message)
                    else value
                    if isinstance(value, bytes)
                    else varint(value)
                )
                out += [varint(len(value)), value]
            else:
                out.append(value if isinstance(value, bytes) else bytes(8 if wire == 1 else 4))
        return b"".join(out)

    def walk(self):
        yield self
        for _, _, value in self.fields:
            if isinstance(value, Message):
                yield from value.walk()

    def copy(self):
        return Message(
            self.kind,
            [[n, w, v.copy() if isinstance(v, Message) else v] for n, w, v in self.fields],
        )

    def get(self, number):
        return next((v for n, _, v in self.fields if n == number), None)


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)
