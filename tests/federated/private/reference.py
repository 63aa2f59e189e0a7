"""Secure aggregation once more, from docs/architecture/secure-aggregation.md, over PyCryptodome:
what tests/conformance/federated/secure.json is made with.
"""

import base64
import hashlib
import struct

import numpy as np
from Crypto.Cipher import AES
from Crypto.Hash import SHA256
from Crypto.Protocol.DH import import_x25519_public_key, key_agreement
from Crypto.Protocol.KDF import HKDF
from Crypto.Protocol.SecretSharing import _Element
from Crypto.PublicKey import ECC
from Crypto.Signature import eddsa


def text(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def sha(purpose, *parts):
    return hashlib.sha256(f"edgewise.secure.1 {purpose}\0".encode() + b"".join(parts)).digest()


def hkdf(secret, salt, info):
    return HKDF(secret, 32, salt, SHA256, context=info)


def stream(key, size):
    return AES.new(key, AES.MODE_CTR, nonce=b"", initial_value=0).encrypt(bytes(size))


def x25519(seed):
    return ECC.construct(curve="Curve25519", seed=seed)


def raw(key):
    return key.public_key().export_key(format="raw")


def agreed(seed, public):
    other = import_x25519_public_key(public)
    return key_agreement(static_priv=x25519(seed), static_pub=other, kdf=lambda x: x)


def signed(seed, statement):
    return eddsa.new(ECC.construct(curve="Ed25519", seed=seed), "rfc8032").sign(statement)


def ed25519(seed):
    return raw(ECC.construct(curve="Ed25519", seed=seed))


def certificate(authority, identity, subject, expires):
    statement = sha("certificate", identity, expires.to_bytes(8, "big"), subject.encode())
    return {"subject": subject, "expires": expires, "signature": text(signed(authority, statement))}


def shares_of(secret, random, threshold, count):
    """As PyCryptodome's Shamir.split, with given coefficients."""
    out = [b""] * count
    for h in range(2):
        half = random[h * 16 * (threshold - 1) :][: 16 * (threshold - 1)]
        coefficients = [_Element(half[i : i + 16]) for i in range(0, len(half), 16)]
        coefficients.append(_Element(secret[16 * h : 16 * h + 16]))
        for x in range(count):
            value = _Element(0)
            for c in coefficients:
                value = _Element(x + 1) * value + c
            out[x] += value.encode()
    return out


class Party:
    def __init__(self, context, seed, identity, numbers, certified):
        self.identity, self.numbers, self.certified = identity, numbers, certified
        names = (b"channel", b"mask", b"self", b"shares")
        self.channel, self.mask, self.own, self.shamir = (hkdf(seed, context, n) for n in names)
        self.keys = (raw(x25519(self.channel)), raw(x25519(self.mask)), sha("commitment", self.own))
        self.public = ed25519(identity)
        self.entry = {
            "identity": text(self.public),
            **dict(zip(("channel", "mask", "commitment"), map(text, self.keys), strict=True)),
            "signature": text(signed(identity, sha("keys", context, *self.keys))),
            "certificate": certified,
        }


def context_of(plan):
    words = [plan[n] for n in ("run", "round", "base", "codec", "group", "size")]
    words += [f"config {n} {struct.pack('>d', x).hex()}" for n, x in sorted(plan["config"].items())]
    words += [f"seed {plan['seed']}", f"part {plan['part']}"]
    lines = "".join(f"{w}\n" for w in words).encode()
    return sha("context", struct.pack(">dd", plan["clip"], plan["noise"]), lines)


def play(plan, parties, authority, gone, bits):
    """The messages of a group of which `gone` vanishes before its update, and its sum.

    Args:
        plan: {run, round, base, codec, group, size, clip, noise, config, seed, part}.
        parties: [{seed, identity, numbers, subject}].
    """
    context = context_of(plan)
    made = []
    for p in parties:
        known = certificate(authority, ed25519(p["identity"]), p["subject"], 2**33)
        made.append(Party(context, p["seed"], p["identity"], p["numbers"], known))
    made.sort(key=lambda p: p.public)
    n, t = len(made), 2 * len(made) // 3 + 1
    roster = sha("roster", context, *(x for p in made for x in (p.public, *p.keys)))
    sealed = [[""] * n for _ in made]
    plain = [[b""] * n for _ in made]
    for i, p in enumerate(made):
        random = stream(p.shamir, 2 * 32 * (t - 1))
        mask = shares_of(p.mask, random[: 32 * (t - 1)], t, n)
        own = shares_of(p.own, random[32 * (t - 1) :], t, n)
        for j in range(n):
            plain[i][j] = mask[j] + own[j]
            if i != j:
                key = hkdf(agreed(p.channel, made[j].keys[0]), roster, b"share" + bytes([i, j]))
                cipher = AES.new(key, AES.MODE_GCM, nonce=bytes(12))
                sealed[i][j] = text(b"".join(cipher.encrypt_and_digest(plain[i][j])))
    dtype = "<u2" if bits == 16 else "u1"
    masked = []
    for i, p in enumerate(made):
        total = p.numbers.astype(np.int64)
        pads = [(1, hkdf(p.own, roster, b"self"))]
        for j, other in enumerate(made):
            if j != i:
                key = hkdf(agreed(p.mask, other.keys[1]), roster, b"mask")
                pads.append((1 if i < j else -1, key))
        for sign, key in pads:
            pad = np.frombuffer(stream(key, len(total) * bits // 8), dtype)
            total = total + sign * pad.astype(np.int64)
        masked.append((total % (1 << bits)).astype(dtype).tobytes())
    alive = [i for i in range(n) if i != gone]
    lists = bytes(range(n)) + b"\xff" + bytes(alive)
    consents = {
        str(i): text(signed(made[i].identity, sha("survivors", roster, lists))) for i in alive
    }
    opened = [
        {str(i): text(plain[i][j][32:] if i in alive else plain[i][j][:32]) for i in range(n)}
        for j in range(n)
    ]
    return {
        "context": context.hex(),
        "authority": text(ed25519(authority)),
        "roster": {"members": [p.entry for p in made]},
        "digest": roster.hex(),
        "shares": sealed,
        "masked": [base64.b64encode(m).decode() for m in masked],
        "survivors": alive,
        "consents": consents,
        "unmask": opened,
        "order": [
            next(k for k, q in enumerate(parties) if q["identity"] == p.identity) for p in made
        ],
        "total": sum(made[i].numbers.astype(int) for i in alive).tolist(),
    }
