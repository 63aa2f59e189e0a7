"""The update format: vectors that TypeScript shares, and properties."""

import base64
import hashlib
import json
import math
import os
import struct

import numpy as np
import pytest
from edgewise.extras.federated.codec import Schema, base_of, pack, unpack
from edgewise.extras.federated.local_training import drawn
from edgewise.extras.federated.protocol import Refusal
from edgewise.logic.federated.layout import CODECS, LEVELS
from safetensors import deserialize

from tests.conformance.vectors import vectors

from .toys import random_values

SHAPES = {
    "block.lora_A.weight": (3, 7),
    "block.lora_B.weight": (5, 3),
    "conv.lora_B.weight": (4, 2, 1, 1),
    "table.lora_embedding_A": (2, 5),
    "dense.weight": (9, 15),
    "bias": (1,),
    "empty": (0, 3),
}
FIELDS = {"base": "b" * 64, "run": "run", "round": "3"}
RATE, MU = 0.012, 37.5  # of FedProx
HARD = [0.0, -0.0, 6e-8, 2e-8, -65504.0, 1e-5, 3.0517578e-5, 0.1, -0.5, 1.5, 2.5, 1 / 3]


def inputs():
    schema = Schema.of(SHAPES)
    values = random_values(5, schema)
    values["dense.weight"].reshape(-1)[: len(HARD)] = HARD
    values["block.lora_A.weight"][1] = 0
    values["block.lora_B.weight"][:, 2] = 1e-9
    return schema, values, {n: x * np.float32(0.01) for n, x in random_values(6, schema).items()}


def text(x):
    return base64.b64encode(x if isinstance(x, bytes) else x.tobytes()).decode()


def make():
    schema, values, left = inputs()
    files = {}
    for codec in CODECS:
        data, decoded, remaining = pack(values, schema, codec, FIELDS, left)
        files[codec] = {
            "file": text(data),
            "decoded": {n: text(x) for n, x in decoded.items()},
            "left": {n: text(x) for n, x in remaining.items()},
        }
    halves = struct.pack(f"<{len(HARD)}f", *HARD)
    return {
        "shapes": {n: list(s) for n, s in SHAPES.items()},
        "schema": schema.sha256,
        "base": base_of(values, schema),
        "metadata": FIELDS,
        "values": {n: text(x) for n, x in values.items()},
        "left": {n: text(x) for n, x in left.items()},
        "files": files,
        "part": schema.part("B").sha256,
        "drawn": {
            "rate": RATE,
            "mu": MU,
            "values": {n: text(drawn(x, left[n], RATE, MU)) for n, x in values.items()},
        },
        "halves": [text(halves), text(np.frombuffer(halves, "<f4").astype("<f2"))],
    }


def test_vectors_are_current():
    if os.environ.get("EDGEWISE_MAKE_VECTORS"):
        with open("tests/conformance/federated.json", "w") as file:
            file.write(json.dumps(make(), indent=1) + "\n")
    assert make() == vectors("federated")


def test_identities_are_those_of_the_documentation():
    schema, values, _ = inputs()
    lines = "".join(f"{n}\tF32\t{','.join(map(str, SHAPES[n]))}\n" for n in sorted(SHAPES))
    assert schema.sha256 == hashlib.sha256(lines.encode()).hexdigest()
    numbers = b"".join(values[n].tobytes() for n in sorted(SHAPES))
    assert base_of(values, schema) == hashlib.sha256(schema.sha256.encode() + numbers).hexdigest()


@pytest.mark.parametrize("codec", CODECS)
def test_files_are_safetensors_of_the_documented_numbers(codec):
    """The reference reader finds the tensors; scales are computed again, group by group."""
    schema, values, left = inputs()
    data, decoded, remaining = pack(values, schema, codec, FIELDS, left)
    tensors = dict(deserialize(data))
    assert len(data) <= schema.most_bytes(codec)
    if codec in LEVELS:
        scales = np.frombuffer(tensors["scales"]["data"], "<f2").astype(np.float32)
        stored = np.frombuffer(tensors["values"]["data"], np.uint8 if codec == "int4" else np.int8)
        if codec == "int4":
            halves = [h - 16 * (h > 7) for b in stored.tolist() for h in (b & 15, b >> 4)]
            stored = np.array(halves, np.int8)
    for n, shape in schema.shapes.items():
        x = values[n] + left[n]
        if codec in LEVELS:
            axis = 0 if n.endswith(("lora_A.weight", "lora_embedding_A")) else 1
            groups = shape[axis] if ".lora_" in n else -(-x.size // 64)
            expected = quantized(n, x, scales[:groups], LEVELS[codec])
            assert np.array_equal(stored[: x.size].reshape(shape), expected[0])
            assert np.array_equal(decoded[n], expected[1])
            scales, stored = scales[groups:], stored[x.size :]
        else:
            kind = {"float32": "<f4", "float16": "<f2"}[codec]
            assert np.array_equal(np.frombuffer(tensors[n]["data"], kind), x.astype(kind).ravel())
        assert np.array_equal(remaining[n], x - decoded[n])
    read = unpack(data, schema, codec, FIELDS)
    assert all(np.array_equal(read[n], decoded[n]) for n in read)


def quantized(name, x, scales, levels):
    """Integers and numbers of a parameter, value by value."""
    integers, numbers = np.zeros(x.shape, np.int8), np.zeros(x.shape, np.float32)
    most = [0.0] * len(scales)
    for flat, index in enumerate(np.ndindex(x.shape)):
        axis = 0 if name.endswith(("lora_A.weight", "lora_embedding_A")) else 1
        group = index[axis] if ".lora_" in name else flat // 64
        most[group] = max(most[group], abs(float(x[index])))
        if scales[group]:
            q = np.rint(np.float32(x[index]) / scales[group])
            integers[index] = min(levels, max(-levels, q))
            numbers[index] = np.float32(integers[index]) * scales[group]
    for scale, m in zip(scales, most):
        assert abs(scale - m / levels) <= max(2**-24, m / levels * 2**-10)
    return integers, numbers


def test_rounding_is_carried_over():
    """The sum of many updates of 4 bits is the sum of the differences."""
    schema = Schema.of({"w": (200,)})
    left, sent, given = {}, np.zeros(200), np.zeros(200)
    for k in range(50):
        change = random_values(k, schema)
        _, decoded, left = pack(change, schema, "int4", FIELDS, left)
        sent, given = sent + decoded["w"], given + change["w"]
    assert np.abs(sent - given).max() < 0.5


@pytest.mark.parametrize(
    "code, change",
    [
        ("value-range", lambda t: {**t, "values": (2, (2,), b"\x08\x00")}),
        ("value-range", lambda t: {**t, "values": (2, (2,), b"\x00\x10")}),
        ("finite", lambda t: {**t, "scales": (10, (1,), b"\x00\x7c")}),
        ("finite", lambda t: {**t, "scales": (10, (1,), b"\x00\x80")}),
        ("shape", lambda t: {**t, "scales": (10, (2,), bytes(4))}),
        ("names", lambda t: {"values": t["values"]}),
    ],
)
def test_wrong_integers_are_refused(code, change):
    from edgewise.training.safetensors import save_safetensors

    schema = Schema.of({"w": (3,)})
    metadata = {"format": "edgewise.delta.1", "kind": "delta", "schema": schema.sha256}
    good = {"values": (2, (2,), b"\x21\x07"), "scales": (10, (1,), b"\x00\x3c")}
    fields = {**metadata, "codec": "int4"}
    assert unpack(save_safetensors(good, None, fields), schema, "int4", {})["w"].tolist() == [
        1,
        2,
        7,
    ]
    with pytest.raises(Refusal) as caught:
        unpack(save_safetensors(change(good), None, fields), schema, "int4", {})
    assert caught.value.code == code


def test_bytes_of_a_model_of_135_million():
    """LoRA r = 8 of all linear layers of SmolLM2-135M: at most 1.3 MB in 4 bits."""
    hidden, keys, inner = 576, 192, 1536
    sizes = {"q": (hidden, hidden), "k": (hidden, keys), "v": (hidden, keys), "o": (hidden, hidden)}
    sizes |= {"gate": (hidden, inner), "up": (hidden, inner), "down": (inner, hidden)}
    schema = Schema.of(
        {f"{n}.{which}": s for n, (a, b) in sizes.items() for k in range(30)
         for which, s in ((f"{k}.lora_A.weight", (8, a)), (f"{k}.lora_B.weight", (b, 8)))}
    )  # fmt: skip
    assert sum(math.prod(s) for s in schema.shapes.values()) == 2_442_240
    data, _, _ = pack(random_values(1, schema, 0.01), schema, "int4", {})
    assert 2_442_240 / 2 < len(data) <= min(1_300_000, schema.most_bytes("int4"))
