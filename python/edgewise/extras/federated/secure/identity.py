"""Who a member is: an Ed25519 key, and a certificate for it.

The hub must not be able to invent members: it could surround one client with its own and subtract
what they sent. So an authority that is not the hub (the app's login) signs the key of each user,
and clients that require secure aggregation know the authority's key and accept no other members.

    authority = Authority.load("authority.key")            # where the app's login runs
    certificate = authority.certify(public_key, "user 17") # {identity, subject, expires, signature}
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ....errors import InputError
from ....logic.federated.crypto import SEED, decoded
from ....logic.federated.members import (
    MAX_SUBJECT,
    Certified,
    certificate_of,
    certificate_statement,
    check_certificate,
)
from ....logic.native import base64url as encoded
from ..protocol import NAME
from .crypto import made

__all__ = [
    "DAY",
    "MAX_DAYS",
    "MAX_SUBJECT",
    "Authority",
    "Certificate",
    "Identity",
    "decoded",
    "encoded",
]

DAY = 24 * 3600
MAX_DAYS = 36_500


@dataclass(frozen=True)
class Certificate(Certified):
    """An authority's word for a key.

    Attributes:
        identity: the Ed25519 public key of a member.
        subject: who it is: one name for each user, at most 64 letters, digits and ._:/-.
        expires: seconds since 1970.
        signature: the authority's.
    """

    @classmethod
    def of(cls, fields: Mapping[str, Any], where: str = "certificate") -> Certificate:
        """Reads the object of a message or file.

        Raises:
            InputError: a field is wrong.
        """
        found = certificate_of(fields, where)
        return cls(found.identity, found.subject, found.expires, found.signature)

    @property
    def fields(self) -> dict[str, Any]:
        """The object of a message or file."""
        return {
            "identity": encoded(self.identity),
            "subject": self.subject,
            "expires": self.expires,
            "signature": encoded(self.signature),
        }

    def check(self, authority: bytes, now: float | None = None) -> None:
        """Raises InputError unless the authority has signed it and it is not expired."""
        made(check_certificate(self, authority, time.time() if now is None else now))


def _key_file(path: str | os.PathLike[str], create: bool) -> bytes:
    if create and not os.path.exists(path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL  # for its owner alone from the beginning
        with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(encoded(secrets.token_bytes(SEED)) + "\n")
    try:
        with open(path, encoding="utf-8") as file:
            return decoded(file.read(100).strip(), SEED, os.fspath(path))
    except OSError as e:
        raise InputError(e.strerror or str(e), os.fspath(path)) from None


class Identity:
    """The private key of a member, with its certificate if it has one.

    Args:
        private: 32 bytes.
        certificate: of an authority, or None.

    Raises:
        InputError: the certificate is for another key.
    """

    def __init__(self, private: bytes, certificate: Certificate | None = None) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(private)
        self.public = self._key.public_key().public_bytes_raw()
        if certificate is not None and certificate.identity != self.public:
            raise InputError("it is for another key", "certificate", "Have this key certified.")
        self.certificate = certificate

    @classmethod
    def new(cls) -> Identity:
        """A new key without a certificate."""
        return cls(secrets.token_bytes(SEED))

    @classmethod
    def load(cls, path: str | os.PathLike[str], certificate: Certificate | None = None) -> Identity:
        """The key of a file, which is made if it does not exist."""
        return cls(_key_file(path, True), certificate)

    def sign(self, text: bytes) -> bytes:
        """An Ed25519 signature."""
        return self._key.sign(text)


class Authority(Identity):
    """A key that certifies members. It belongs where users log in, not to the hub."""

    def certify(self, identity: bytes, subject: str, seconds: float = 30 * DAY) -> Certificate:
        """A certificate.

        Args:
            identity: a member's public key.
            subject: see Certificate; the authority must give each user one.
            seconds: for which it is valid.

        Raises:
            InputError: the name or the time cannot be used.
        """
        if not NAME.fullmatch(subject) or len(subject) > MAX_SUBJECT:
            raise InputError(f"{subject!r} cannot be used", "subject", "Use letters and digits.")
        if not 0 < seconds <= MAX_DAYS * DAY:
            what = f"it would be valid for {seconds / DAY:g} days"
            raise InputError(what, "certificate", f"Give more than 0 and at most {MAX_DAYS}.")
        expires = int(time.time() + seconds)
        text = made(certificate_statement(identity, subject, expires))
        return Certificate(identity, subject, expires, self.sign(text))
