"""The building blocks of secure aggregation, over the package cryptography: the answers to the
requests of edgewise.logic.federated.crypto. web/src/extras/federated/secure/crypto.ts has those of
WebCrypto.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ....host.drive import drive
from ....logic.federated import crypto as logic
from ....logic.federated.crypto import SEED, SIGNATURE

__all__ = ["SEED", "SIGNATURE"]

_FIELD = 0x87  # x^128 = x^7 + x^2 + x + 1
_ZEROS = bytes(1 << 20)


def digest(purpose: str, *parts: bytes) -> bytes:
    """SHA-256 of a purpose and parts of fixed lengths (or one last part of any)."""
    return made(logic.digest(purpose, parts))


def derive(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """32 bytes by HKDF-SHA256."""
    return HKDF(SHA256(), SEED, salt, info).derive(secret)


def stream(key: bytes, size: int) -> bytes:
    """The first bytes of AES-256 in counter mode, from counter 0 on."""
    encryptor = Cipher(AES(key), CTR(bytes(16))).encryptor()
    parts = [
        encryptor.update(_ZEROS[: min(len(_ZEROS), size - at)])
        for at in range(0, size, len(_ZEROS))
    ]
    return b"".join(parts)


def public_key(private: bytes) -> bytes:
    """The X25519 public key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, public: bytes) -> bytes:
    """The common secret of two X25519 keys.

    Raises:
        ValueError: the public key is one of those that give the same secret with every key.
    """
    return X25519PrivateKey.from_private_bytes(private).exchange(
        X25519PublicKey.from_public_bytes(public)
    )


def seal(key: bytes, plain: bytes) -> bytes:
    """Encrypts with AES-256-GCM. A key must be used once: the nonce is 0."""
    return AESGCM(key).encrypt(bytes(12), plain, None)


def unseal(key: bytes, sealed: bytes) -> bytes | None:
    """What `seal` encrypted; None if it was changed, or made with another key."""
    try:
        return AESGCM(key).decrypt(bytes(12), sealed, None)
    except InvalidTag:
        return None


def is_signed(public: bytes, signature: bytes, text: bytes) -> bool:
    """Whether an Ed25519 signature is that of a text."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def _agreed(private: bytes, public: bytes) -> bytes | None:
    try:
        return agree(private, public)
    except ValueError:
        return None


ANSWERS: dict[str, Callable[[Any], Any]] = {
    "digest": lambda r: hashlib.sha256(b"".join(r.parts)).digest(),
    "derive": lambda r: derive(r.secret, r.salt, r.info),
    "stream": lambda r: stream(r.secret, r.size),
    "public_key": lambda r: public_key(r.secret),
    "agree": lambda r: _agreed(r.secret, r.public),
    "seal": lambda r: seal(r.secret, r.plain),
    "unseal": lambda r: unseal(r.secret, r.sealed),
    "is_signed": lambda r: is_signed(r.public, r.signature, r.text),
    "split": lambda r: split(r.secret, r.randomness, r.threshold, r.count),
    "clock": lambda r: time.time(),
}
"""Answers to the requests that need no key of the client's own."""
Result = TypeVar("Result")


def made(steps: Generator[Any, Any, Result]) -> Result:
    """The result of logic that asks for nothing else."""
    return drive(steps, lambda request: ANSWERS[request.kind](request))


# ---- Shamir's shares over GF(2^128), as `ssss` and PyCryptodome have them ----
def _multiply(a: int, b: int) -> int:
    out = 0
    while b:
        if b & 1:
            out ^= a
        b >>= 1
        a <<= 1
        if a >> 128:
            a ^= 1 << 128 | _FIELD
    return out


def _inverse(a: int) -> int:
    out, power = 1, a
    for _ in range(127):  # a^(2^128 - 2)
        power = _multiply(power, power)
        out = _multiply(out, power)
    return out


def _halves(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 16], "big") for at in range(0, len(data), 16)]


def split(secret: bytes, randomness: bytes, threshold: int, count: int) -> list[bytes]:
    """Shares of a secret of 32 bytes, of which `threshold` give it back.

    Args:
        secret: 32 bytes, shared as two halves.
        randomness: 32 * (threshold - 1) bytes: the coefficients of the first half, then of the
            second one, from the highest power to the first.
        threshold: shares that give the secret.
        count: shares; number i belongs to x = i + 1.
    """
    random = _halves(randomness)
    per = threshold - 1
    polynomials = [
        [*random[h * per : (h + 1) * per], half] for h, half in enumerate(_halves(secret))
    ]
    out = []
    for x in range(1, count + 1):
        share = b""
        for coefficients in polynomials:
            value = 0
            for c in coefficients:
                value = _multiply(value, x) ^ c
            share += value.to_bytes(16, "big")
        out.append(share)
    return out


@functools.lru_cache(64)
def weights_at_zero(indices: tuple[int, ...]) -> list[int]:
    """Lagrange's coefficients of shares `indices` for the secret."""
    out = []
    for i in indices:
        numerator = denominator = 1
        for j in indices:
            if j != i:
                numerator = _multiply(numerator, j + 1)
                denominator = _multiply(denominator, (i + 1) ^ (j + 1))
        out.append(_multiply(numerator, _inverse(denominator)))
    return out


def join(shares: Mapping[int, bytes]) -> bytes:
    """The secret of shares {index: share}; as many as the threshold."""
    values = [0, 0]
    for share, weight in zip(shares.values(), weights_at_zero(tuple(shares)), strict=True):
        for h, half in enumerate(_halves(share)):
            values[h] ^= _multiply(half, weight)
    return b"".join(value.to_bytes(16, "big") for value in values)
