"""What secure aggregation asks its host's cryptography for, and how it writes keys.

extras/federated/secure/crypto.py and web/src/extras/federated/secure/crypto.ts answer.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import InputError
from ..native import base64url, from_base64

DOMAIN = "edgewise.secure.1 "
"""The begin of every hashed or signed text: nothing made for another purpose is valid here."""
SEED = 32  # bytes of secrets, keys and digests
SIGNATURE = 64
_ENCODED = re.compile("[A-Za-z0-9_-]{0,400}")


@dataclass(frozen=True)
class Digest:
    """Answer: the SHA-256 of parts, one after the other."""

    parts: list[bytes]
    kind: Literal["digest"] = "digest"


@dataclass(frozen=True)
class Derive:
    """Answer: 32 bytes by HKDF-SHA256."""

    secret: bytes
    salt: bytes
    info: bytes
    kind: Literal["derive"] = "derive"


@dataclass(frozen=True)
class Stream:
    """Answer: the first bytes of AES-256 in counter mode, from counter 0 on."""

    secret: bytes
    size: int
    kind: Literal["stream"] = "stream"


@dataclass(frozen=True)
class PublicKey:
    """Answer: the X25519 public key of a private one."""

    secret: bytes
    kind: Literal["public_key"] = "public_key"


@dataclass(frozen=True)
class Agree:
    """Answer: the common secret of two X25519 keys; None: the public one gives none."""

    secret: bytes
    public: bytes
    kind: Literal["agree"] = "agree"


@dataclass(frozen=True)
class Seal:
    """Answer: bytes under AES-256-GCM. A key is used once: the nonce is 0."""

    secret: bytes
    plain: bytes
    kind: Literal["seal"] = "seal"


@dataclass(frozen=True)
class Unseal:
    """Answer: what Seal encrypted; None if it was changed, or made with another key."""

    secret: bytes
    sealed: bytes
    kind: Literal["unseal"] = "unseal"


@dataclass(frozen=True)
class Sign:
    """Answer: the Ed25519 signature of a text by the client's own key."""

    text: bytes
    kind: Literal["sign"] = "sign"


@dataclass(frozen=True)
class IsSigned:
    """Answer: whether an Ed25519 signature is that of a text."""

    public: bytes
    signature: bytes
    text: bytes
    kind: Literal["is_signed"] = "is_signed"


@dataclass(frozen=True)
class Split:
    """Answer: Shamir's shares of a secret of 32 bytes, over GF(2^128).

    Attributes:
        secret: shared as two halves.
        randomness: 32 * (threshold - 1) bytes: the coefficients of the first half, then of the
            second one, from the highest power to the first.
        threshold: shares that give the secret.
        count: shares; number i belongs to x = i + 1.
    """

    secret: bytes
    randomness: bytes
    threshold: int
    count: int
    kind: Literal["split"] = "split"


@dataclass(frozen=True)
class Clock:
    """Answer: seconds since 1970."""

    kind: Literal["clock"] = "clock"


@dataclass(frozen=True)
class Sum:
    """Answer: the bytes of the numbers of an update with its noise and all masks, modulo 2^bits.

    Attributes:
        data: the numbers, int16.
        bits: 8 or 16.
        sigma: standard deviation of the noise; 0: none.
        noise: the key of the noise.
        masks: (key of a stream, 1: it is added; -1: it is subtracted).
    """

    data: bytes
    bits: int
    sigma: float
    noise: bytes
    masks: list[tuple[bytes, int]]
    kind: Literal["sum"] = "sum"


Request = (
    Digest
    | Derive
    | Stream
    | PublicKey
    | Agree
    | Seal
    | Unseal
    | Sign
    | IsSigned
    | Split
    | Clock
    | Sum
)


def digest(purpose: str, parts: Sequence[bytes]) -> Generator[Any, Any, bytes]:
    """SHA-256 of a purpose and parts of fixed lengths (or one last part of any)."""
    found: bytes = yield Digest([(DOMAIN + purpose + "\0").encode(), *parts])
    return found


def decoded(text: object, size: int, where: str) -> bytes:
    """The bytes of base64url without padding, the form of all keys and signatures in messages.

    Raises:
        InputError: it is not that of so many bytes.
    """
    if isinstance(text, str) and _ENCODED.fullmatch(text) is not None:
        padding = "=" * (-len(text) % 4)
        found = from_base64(text.replace("-", "+").replace("_", "/") + padding)
        if found is not None and len(found) == size and base64url(found) == text:
            return found
    raise InputError(f"it is not the base64url of {size} bytes", where)


def is_canonical(public: bytes) -> bool:
    """Whether an X25519 public key is below 2^255 - 19. X25519 ignores bit 255 and reduces the
    rest: other texts are keys that are there twice.
    """
    last = public[31]
    if last != 0x7F:
        return last < 0x7F
    return public[0] < 0xED or any(public[i] != 0xFF for i in range(1, 31))


def is_usable(public: bytes) -> Generator[Any, Any, bool]:
    """Whether an X25519 public key is the only text of its point, and gives other secrets with
    other keys: those of low order give zeros with every key.
    """
    if not is_canonical(public):
        return False
    secret: bytes | None = yield Agree(bytes(SEED), public)
    return secret is not None and any(secret[i] != 0 for i in range(len(secret)))


def big_endian(value: int) -> bytes:
    """An integer as 64 bits, the highest first."""
    out = bytearray(8)
    rest = value
    for i in range(7, -1, -1):
        out[i] = rest % 256
        rest //= 256
    return bytes(out)
