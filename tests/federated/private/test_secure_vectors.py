"""Vectors of secure aggregation that TypeScript shares: messages by another implementation, and
updates as integers by NumPy, checked with SciPy's Hadamard matrix.
"""

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("Crypto")

import base64
import json
import os

import numpy as np
from edgewise.extras.federated.codec import Schema
from edgewise.extras.federated.secure.crypto import digest, stream
from edgewise.extras.federated.secure.plan import Plan
from edgewise.extras.federated.secure.quantize import quantize
from edgewise.federated.secure.identity import Authority, Certificate, Identity, decoded
from edgewise.logic.federated.budget import epsilon_of

from tests.conformance.vectors import vectors
from tests.logic.forms import both

from . import reference
from .secure_toys import Member

AUTHORITY = bytes(range(40, 72))
SHAPES = {"m.lora_A.weight": (4, 40), "m.lora_B.weight": (30, 4), "dense": (7, 13)}


def group_of(codec, size, bits):
    rng = np.random.default_rng(size)
    plan = {
        "run": "letters",
        "round": 3,
        "base": "b" * 64,
        "codec": codec,
        "group": f"{size:032x}",
        "size": size + 1,
        "clip": 1.5,
        "noise": 0.0,
        "config": {"local-steps": 3, "learning-rate": 0.002, "learning": 1e-9},
        "seed": 5,
        "part": "B",
    }
    levels = {"int8": 127, "int4": 7}[codec]
    parties = [
        {
            "seed": rng.bytes(32),
            "identity": rng.bytes(32),
            "numbers": rng.integers(-levels, levels + 1, 50).astype(np.int16),
            "subject": f"user-{k}",
        }
        for k in range(size)
    ]
    played = reference.play(plan, parties, AUTHORITY, 1, bits)
    given = [
        {"seed": p["seed"].hex(), "identity": p["identity"].hex(), "numbers": p["numbers"].tolist()}
        for p in (parties[k] for k in played.pop("order"))
    ]
    return {"plan": plan, "bits": bits, "members": given, **played}


def values_of(seed, scale):
    rng = np.random.default_rng(seed)
    return {n: (scale * rng.standard_normal(s)).astype(np.float32) for n, s in SHAPES.items()}


def text(x):
    return base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()


def quantized(codec, scale, noise):
    schema = Schema.of(SHAPES)
    plan = Plan("letters", 3, "b" * 64, codec, "0" * 32, 9, 1.5, noise)
    values, left = values_of(1, scale), values_of(2, 0.001)
    lattice = plan.lattice(schema)
    numbers, away, norm = quantize(values, left, schema, lattice)
    return {
        "codec": codec,
        "noise": noise,
        "values": {n: text(x) for n, x in values.items()},
        "left": {n: text(x) for n, x in left.items()},
        "bound": lattice.bound,
        "numbers": numbers.tolist(),
        "away": {n: text(x) for n, x in away.items()},
        "norm": norm,
    }


def make():
    spent = ([1.0], [0.8, 3.0, 5.0], [2.0] * 30, [0.1], [50.0])
    return {
        "groups": [group_of("int8", 5, 16), group_of("int4", 4, 8)],
        "shapes": {n: list(s) for n, s in SHAPES.items()},
        "quantized": [
            quantized("int8", 0.01, 0.0),
            quantized("int8", 1.0, 0.0),
            quantized("int4", 1.0, 0.0),
            quantized("int8", 1.0, 2.0),
        ],
        "epsilons": [[list(noises), epsilon_of(noises)] for noises in spent],
    }


def test_vectors_are_current():
    if os.environ.get("EDGEWISE_MAKE_VECTORS"):
        with open("tests/conformance/federated/secure.json", "w") as file:
            file.write(json.dumps(make(), indent=None, separators=(",", ":")) + "\n")
    found, made = vectors("federated/secure"), make()
    for q, expected in zip(made.pop("quantized"), found.pop("quantized"), strict=True):
        assert q == expected
    assert made == found


@both
@pytest.mark.parametrize("number", range(2))
def test_members_say_what_another_implementation_does(number, form):
    group = vectors("federated/secure")["groups"][number]
    task = {**group["plan"], "secure": {"version": 1, "stage": 30, **group["plan"]}}
    plan = Plan.of(task)
    assert plan.context.hex() == group["context"]
    authority = decoded(group["authority"], 32, "")
    assert Authority(AUTHORITY).public == authority
    n = len(group["members"])
    for i, given in enumerate(group["members"]):
        entry = group["roster"]["members"][i]
        certificate = Certificate.of({**entry["certificate"], "identity": entry["identity"]})
        member = Member(
            plan,
            Identity(bytes.fromhex(given["identity"]), certificate),
            bytes.fromhex(given["seed"]),
            np.array(given["numbers"], np.int16),
            1.0,
            authority,
            least=n - 1,
            form=form,
        )
        assert member.keys() == entry
        assert member.shares(group["roster"])["sealed"] == group["shares"][i]
        sealed = [group["shares"][j][i] for j in range(n)]
        data = member.masked({"senders": list(range(n)), "sealed": sealed})
        assert base64.b64encode(data).decode() == group["masked"][i]
        if i in group["survivors"]:
            signature = member.consent({"survivors": group["survivors"]})["signature"]
            assert signature == group["consents"][str(i)]
            assert member.unmask({"consents": group["consents"]})["shares"] == group["unmask"][i]


def test_rotations_are_hadamards_matrix_and_the_signs_of_the_round():
    hadamard = pytest.importorskip("scipy.linalg").hadamard
    plan = Plan("letters", 3, "b" * 64, "int8", "0" * 32, 9, 1.5)
    lattice = plan.lattice(Schema.of(SHAPES))
    raw = np.frombuffer(stream(digest("signs", plan.context), lattice.size // 8 + 1), np.uint8)
    signs = [1 - 2 * int(raw[i // 8] >> (i % 8) & 1) for i in range(lattice.size)]
    x = np.random.default_rng(0).standard_normal(lattice.count)
    padded = np.array(signs) * np.concatenate([x, np.zeros(lattice.size - lattice.count)])
    expected = hadamard(lattice.block) @ padded.reshape(lattice.block, -1) / lattice.block**0.5
    assert np.allclose(lattice.rotate(x), expected.reshape(-1))
