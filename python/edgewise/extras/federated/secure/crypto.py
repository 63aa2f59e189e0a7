"""The building blocks of secure aggregation, over the package cryptography.

All of it exists in TypeScript, too: web/src/extras/federated/secure/crypto.ts.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

DOMAIN = b"edgewise.secure.1 "
"""What every hashed or signed text begins with: nothing made for another purpose is valid here."""
SEED = 32  # bytes of secrets, keys and digests
SIGNATURE = 64
_FIELD = 0x87  # x^128 = x^7 + x^2 + x + 1
_ZEROS = bytes(1 << 20)


def digest(purpose: str, *parts: bytes) -> bytes:
    """SHA-256 of a purpose and parts of fixed lengths (or one last part of any)."""
    return hashlib.sha256(DOMAIN + purpose.encode() + b"\0" + b"".join(parts)).digest()


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


_PRIME = (1 << 255) - 19


def is_usable(public: bytes) -> bool:
    """Whether an X25519 public key is the only text of its point, and gives other secrets with
    other keys: those of low order give zeros with every key, and `agree` raises. X25519 ignores
    bit 255 and reduces modulo 2^255 - 19, so that other texts are keys that are there twice.
    """
    if int.from_bytes(public, "little") >= _PRIME:
        return False
    try:
        agree(bytes(SEED), public)
    except ValueError:
        return False
    return True


def seal(key: bytes, plain: bytes) -> bytes:
    """Encrypts with AES-256-GCM. A key must be used once: the nonce is 0."""
    return AESGCM(key).encrypt(bytes(12), plain, None)


def unseal(key: bytes, sealed: bytes) -> bytes | None:
    """What `seal` encrypted; None if it was changed, or made with another key."""
    from cryptography.exceptions import InvalidTag

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
