"""The signed metadata of a repository: python-tuf's objects, with consistent snapshots.

metadata/1.root.json, N.targets.json, N.snapshot.json, timestamp.json
targets/SHA256.NAME.json    manifests
chunks/ab/cdef...           objects (manifest.py)
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, MetaFile, Root, Snapshot, TargetFile, Targets, Timestamp
from tuf.api.serialization.json import JSONSerializer

from ...errors import InputError
from .errors import ReleaseError
from .keys import ROLES, Keys, Signers, generate
from .store import write_file

DAYS = {"root": 365, "targets": 180, "snapshot": 30, "timestamp": 7}


MAX_DAYS = 36_500
# roles whose metadata is signed again, with their own keys, once another one has new keys
SIGNED_AFTER = {
    "root": (),
    "targets": ("snapshot", "timestamp"),
    "snapshot": ("timestamp",),
    "timestamp": ("snapshot",),
}


def _expiry(days: dict[str, float]) -> dict[str, datetime]:
    now = datetime.now(UTC).replace(microsecond=0)
    for role, count in days.items():
        if not 0 < count <= MAX_DAYS:
            raise InputError(
                f"a signature cannot be valid for {count} days",
                f"--{role}-days",
                f"Give a number above 0, at most {MAX_DAYS}.",
            )
    return {role: now + timedelta(days=count) for role, count in days.items()}


class MetadataFolder:
    """The metadata of a repository.

    Args:
        folder: of the repository.
    """

    def __init__(self, folder: str) -> None:
        self.folder = os.path.join(folder, "metadata")

    @property
    def exists(self) -> bool:
        """Whether there is a repository."""
        return os.path.exists(os.path.join(self.folder, "1.root.json"))

    def create(
        self, keys: Keys, scheme: str, roots: int, threshold: int, days: dict[str, float]
    ) -> None:
        """Makes keys, and the first version of each role.

        Args:
            keys: where the keys are written.
            scheme: of the keys, one of SCHEMES.
            roots: number of the keys of root.
            threshold: how many of them must sign.
            days: until each role expires.

        Raises:
            InputError: there is a repository already, the threshold cannot be reached, or a number
                of days is none.
        """
        expires = _expiry(days)
        if self.exists:
            raise InputError("there is a repository already", self.folder)
        if not 1 <= threshold <= roots:
            raise InputError(f"{threshold} of {roots} keys cannot sign", "--threshold")
        if any(keys.of(role) for role in ROLES):
            raise InputError("there are keys already", keys.folder, "Choose another folder.")
        root = Root(version=1, expires=expires["root"], consistent_snapshot=True)
        for role in ROLES:
            for _ in range(roots if role == "root" else 1):
                signer = generate(scheme)
                keys.save(role, signer)
                root.add_key(signer.public_key, role)
        root.roles["root"].threshold = threshold
        self._write("1.root.json", Metadata(root), keys, "root")
        first = Metadata(Targets(version=1, expires=expires["targets"]))
        self._write("1.targets.json", first, keys, "targets")
        meta = {"targets.json": MetaFile(1)}
        snapshot = Metadata(Snapshot(version=1, expires=expires["snapshot"], meta=meta))
        data = self._write("1.snapshot.json", snapshot, keys, "snapshot")
        stamp = Timestamp(
            version=1,
            expires=expires["timestamp"],
            snapshot_meta=MetaFile.from_data(1, data, ["sha256"]),
        )
        self._write("timestamp.json", Metadata(stamp), keys, "timestamp")

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _write(self, name: str, metadata: Metadata[Any], keys: Keys, role: str) -> bytes:
        """Signs with the keys that are here; enough of them must be.

        Raises:
            InputError: too few are.
        """
        root = metadata.signed if role == "root" else self.root().signed
        for signer in self._signers(root, role, keys, name):
            metadata.sign(signer, append=True)
        data = metadata.to_bytes(JSONSerializer(compact=False))
        write_file(self._path(name), data)
        return data

    @staticmethod
    def _signers(root: Root, role: str, keys: Keys, name: str) -> Signers:
        wanted = root.roles[role]
        signers = [s for s in keys.of(role) if s.public_key.keyid in wanted.keyids]
        if len(signers) < wanted.threshold:
            raise InputError(
                f"{name} needs {wanted.threshold} keys of the role {role}, {len(signers)} are here",
                keys.folder,
                "Give the folder with these keys.",
            )
        return signers

    def _read(self, name: str) -> Metadata[Any]:
        try:
            with open(self._path(name), "rb") as file:
                return Metadata.from_bytes(file.read())
        except (RepositoryError, OSError) as e:
            raise ReleaseError(
                f"it cannot be read ({e})", self._path(name), "Is this the repository's folder?"
            ) from None

    def root_versions(self) -> list[int]:
        """Numbers of the versions of root, ascending."""
        names = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        numbers = [n.removesuffix(".root.json") for n in names if n.endswith(".root.json")]
        return sorted(int(n) for n in numbers if n.isdigit())

    def root(self) -> Metadata[Root]:
        """The latest root.

        Raises:
            ReleaseError: there is none.
        """
        versions = self.root_versions()
        return self._read(f"{versions[-1] if versions else 1}.root.json")

    def targets(self) -> Metadata[Targets]:
        """The latest targets."""
        snapshot = self._snapshot().signed
        return self._read(f"{snapshot.meta['targets.json'].version}.targets.json")

    def _snapshot(self) -> Metadata[Snapshot]:
        stamp: Timestamp = self._read("timestamp.json").signed
        return self._read(f"{stamp.snapshot_meta.version}.snapshot.json")

    def publish(self, files: dict[str, bytes] | None, keys: Keys, days: dict[str, float]) -> int:
        """Signs new targets, and then what leads to them; the last file is timestamp.json, so that
        clients see all of it or nothing.

        Args:
            files: {path of a target: its bytes}; None: only snapshot and timestamp are signed
                again.
            keys: of targets, snapshot and timestamp.
            days: until each role expires.

        Returns:
            the version of timestamp.
        """
        expires = _expiry(days)
        stamp: Timestamp = self._read("timestamp.json").signed
        snapshot: Snapshot = self._snapshot().signed
        if files is not None:
            targets = self.targets().signed
            for path, data in files.items():
                target = TargetFile.from_data(path, data, ["sha256"])
                targets.targets[path] = target
                hashed = f"{target.hashes['sha256']}.{path}"
                write_file(os.path.join(os.path.dirname(self.folder), "targets", hashed), data)
            targets.version += 1
            targets.expires = expires["targets"]
            name = f"{targets.version}.targets.json"
            data = self._write(name, Metadata(targets), keys, "targets")
            snapshot.meta["targets.json"] = MetaFile.from_data(targets.version, data, ["sha256"])
        snapshot.version += 1
        snapshot.expires = expires["snapshot"]
        name = f"{snapshot.version}.snapshot.json"
        data = self._write(name, Metadata(snapshot), keys, "snapshot")
        stamp.version += 1
        stamp.expires = expires["timestamp"]
        stamp.snapshot_meta = MetaFile.from_data(snapshot.version, data, ["sha256"])
        self._write("timestamp.json", Metadata(stamp), keys, "timestamp")
        return stamp.version

    def rotate(self, role: str, scheme: str | None, keys: Keys, days: dict[str, float]) -> int:
        """Replaces the keys of a role by new ones, in a new version of root, which the old and the
        new keys of root sign, and signs again what the role has signed.

        Args:
            role: one of ROLES.
            scheme: of the new keys; None: that of the old ones.
            keys: of root, and of the roles that sign after this one (SIGNED_AFTER).
            days: until each role expires.

        Returns:
            the version of root.

        Raises:
            InputError: keys are missing. Nothing has changed.
        """
        expires, old = _expiry(days), self.root()
        root: Root = Metadata.from_bytes(old.to_bytes()).signed
        # clients refuse what is signed by old keys only: all others must be here before root is new
        signed_by = self._signers(old.signed, "root", keys, f"{root.version + 1}.root.json")
        for other in SIGNED_AFTER[role]:
            self._signers(old.signed, other, keys, f"the next {other}.json")
        before = list(root.roles[role].keyids)
        if scheme is None:
            scheme = "ecdsa" if root.keys[before[0]].scheme.startswith("ecdsa") else "ed25519"
        for keyid in before:
            signer = generate(scheme)
            keys.save(role, signer)
            root.add_key(signer.public_key, role)
            root.revoke_key(keyid, role)
        root.version += 1
        root.expires = expires["root"]
        metadata: Metadata[Root] = Metadata(root)
        if role == "root":
            for signer in signed_by:
                metadata.sign(signer, append=True)
        self._write(f"{root.version}.root.json", metadata, keys, "root")
        if role != "root":
            self.publish({} if role == "targets" else None, keys, days)
        return root.version
