"""Private keys of a repository's roles, in PEM files that only their owner can read."""

from __future__ import annotations

import os
from typing import TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from securesystemslib.signer import CryptoSigner

from ...errors import InputError

PASSPHRASE = "EDGEWISE_RELEASE_PASSPHRASE"
SCHEMES = ("ed25519", "ecdsa")
ROLES = ("root", "targets", "snapshot", "timestamp")

Signers: TypeAlias = list[CryptoSigner]


def _passphrase() -> bytes | None:
    text = os.environ.get(PASSPHRASE)
    return text.encode() if text else None


def generate(scheme: str) -> CryptoSigner:
    """A new key: "ed25519", or "ecdsa" with P-256."""
    return CryptoSigner.generate_ecdsa() if scheme == "ecdsa" else CryptoSigner.generate_ed25519()


class Keys:
    """A folder of keys, as ROLE-NUMBER.pem.

    Args:
        folder: which should not be that of the repository. Without the files of root, a machine
            can publish but not change who may.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def of(self, role: str) -> list[CryptoSigner]:
        """The keys of a role that are here.

        Raises:
            InputError: a file is damaged, or needs a passphrase.
        """
        if not os.path.isdir(self.folder):
            return []
        names = sorted(os.listdir(self.folder))
        return [
            self._load(os.path.join(self.folder, name))
            for name in names
            if name.startswith(f"{role}-") and name.endswith(".pem")
        ]

    def _load(self, path: str) -> CryptoSigner:
        with open(path, "rb") as file:
            data = file.read()
        try:
            return CryptoSigner(load_pem_private_key(data, _passphrase()))
        except (ValueError, TypeError, UnsupportedAlgorithm) as e:
            raise InputError(
                f"it is no private key ({e})", path, f"Set {PASSPHRASE} if it is encrypted."
            ) from None

    def save(self, role: str, signer: CryptoSigner) -> str:
        """Writes a key, encrypted if the environment has a passphrase; returns its path."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        number = 1
        while os.path.exists(path := os.path.join(self.folder, f"{role}-{number}.pem")):
            number += 1
        passphrase = _passphrase()
        how = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
        key = load_pem_private_key(signer.private_bytes, None)
        data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        return path
