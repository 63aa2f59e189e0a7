"""Repositories under attack, made with python-tuf: tests/conformance/releases/metadata.json.

A case is what one client is served, one step after the other. Signatures of ECDSA are random, so
the file is made once: `python -m tests.hub.release.attacks`.
"""

import copy
import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

from . import environment  # noqa: F401  isort: skip
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import (
    DelegatedRole,
    Delegations,
    Metadata,
    MetaFile,
    Root,
    Snapshot,
    TargetFile,
    Targets,
    Timestamp,
)
from tuf.api.serialization.json import JSONSerializer

FUTURE, PAST = datetime(2100, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC)
PATH = Path(__file__).parents[2] / "conformance" / "releases" / "metadata.json"
ROLES = ("root", "targets", "snapshot", "timestamp")


def signer(name, scheme="ed25519"):
    if scheme == "ecdsa":
        return CryptoSigner.generate_ecdsa()
    seed = hashlib.sha256(name.encode()).digest()
    return CryptoSigner(Ed25519PrivateKey.from_private_bytes(seed))


class Repository:
    """One state of a repository, of which `files` are what a server has."""

    def __init__(self, scheme="ed25519", roots=1):
        self.signers = {r: [signer(r, scheme)] for r in ROLES}
        self.signers["root"] = [signer(f"root{i}", scheme) for i in range(roots)]
        self.root = Root(version=1, expires=FUTURE, consistent_snapshot=True)
        for role, signers in self.signers.items():
            for one in signers:
                self.root.add_key(one.public_key, role)
            self.root.roles[role].threshold = len(signers)
        self.targets = Targets(version=1, expires=FUTURE)
        self.snapshot = Snapshot(version=1, expires=FUTURE, meta={"targets.json": MetaFile(1)})
        self.timestamp = Timestamp(version=1, expires=FUTURE, snapshot_meta=MetaFile(1))
        self.target(b"first")
        self.files = {}
        self.write_root()
        self.first_root = self.files["1.root.json"]
        self.write()

    def copy(self):
        other = copy.copy(self)
        for name in (*ROLES, "files"):
            setattr(other, name, copy.deepcopy(getattr(self, name)))
        other.signers = {r: list(s) for r, s in self.signers.items()}
        return other

    def target(self, data):
        self.targets.targets["model.json"] = TargetFile.from_data("model.json", data, ["sha256"])

    def sign(self, signed, signers):
        metadata = Metadata(copy.deepcopy(signed))
        for one in signers:
            metadata.sign(one, append=True)
        return metadata.to_bytes(JSONSerializer(compact=True)).decode()

    def write_root(self, extra=()):
        signers = {s.public_key.keyid: s for s in [*self.signers["root"], *extra]}
        self.files[f"{self.root.version}.root.json"] = self.sign(self.root, signers.values())

    def write(self):
        """Signs targets, snapshot and timestamp as they are, with right hashes."""
        data = self.sign(self.targets, self.signers["targets"])
        self.files[f"{self.targets.version}.targets.json"] = data
        meta = MetaFile.from_data(self.targets.version, data.encode(), ["sha256"])
        self.snapshot.meta["targets.json"] = meta
        self.write_snapshot()

    def write_snapshot(self):
        data = self.sign(self.snapshot, self.signers["snapshot"])
        self.files[f"{self.snapshot.version}.snapshot.json"] = data
        version = self.snapshot.version
        self.timestamp.snapshot_meta = MetaFile.from_data(version, data.encode(), ["sha256"])
        self.write_timestamp()

    def write_timestamp(self):
        self.files["timestamp.json"] = self.sign(self.timestamp, self.signers["timestamp"])

    def grow(self, *names):
        """Raises versions."""
        for name in names or ("targets", "snapshot", "timestamp"):
            getattr(self, name).version += 1
        return self

    def rotate(self, role, name):
        """New keys for a role in a new root, which the old and the new keys of root sign."""
        old = list(self.signers["root"])
        for one in self.signers[role]:
            self.root.revoke_key(one.public_key.keyid, role)
        self.signers[role] = [signer(f"{name}{i}") for i in range(len(self.signers[role]))]
        for one in self.signers[role]:
            self.root.add_key(one.public_key, role)
        self.root.version += 1
        self.write_root(old)
        return self


def second(**options):
    """A repository and its next state."""
    one = Repository(**options)
    two = one.copy().grow()
    two.target(b"second")
    two.write()
    return one, two


def sound_cases():
    one, two = second()
    yield "two versions", one, [(one, "ok"), (two, "ok"), (two, "ok")]
    one, two = second(scheme="ecdsa")
    yield "ECDSA", one, [(one, "ok"), (two, "ok")]
    one = Repository(roots=3)
    yield "a threshold of three", one, [(one, "ok")]
    one = Repository()
    one.targets.unrecognized_fields["note"] = {
        'ü"\\\n\u2028': ["\U0001f600", True, None, -7],
        "\uffee": 1,
        "\U0001f600": 2,
        "a": {},
    }
    one.write()
    yield "texts that canonical JSON escapes and orders", one, [(one, "ok")]
    one = Repository()
    three = one.copy().rotate("root", "b").copy().rotate("root", "c")
    three.grow().write()
    yield "root is rotated twice", one, [(one, "ok"), (three, "ok")]
    one = Repository()
    two = one.copy().rotate("timestamp", "t")
    two.write_timestamp()
    two.grow("timestamp").write_timestamp()
    yield "the key of timestamp is rotated", one, [(one, "ok"), (two, "ok")]
    one = Repository()
    far = one.copy()
    far.timestamp.version = 1_000_000
    far.write_timestamp()
    two = one.copy().rotate("timestamp", "t").grow()
    two.write()
    yield "recovery from a fast-forward attack", one, [(far, "ok"), (two, "ok")]
    one = Repository()
    other = signer("community")
    keyid = other.public_key.keyid
    role = DelegatedRole("community", [keyid], 1, terminating=False, paths=["letters*.json"])
    one.targets.delegations = Delegations({keyid: other.public_key}, {"community": role})
    targets = Targets(version=1, expires=FUTURE)
    targets.targets["letters.json"] = TargetFile.from_data("letters.json", b"third", ["sha256"])
    one.files["1.community.json"] = one.sign(targets, [other])
    one.snapshot.meta["community.json"] = MetaFile(1)
    one.write()
    yield "targets are delegated", one, [(one, "ok")]


def rollback_cases():
    one, two = second()
    yield "rollback of timestamp", one, [(two, "ok"), (one, "version"), (two, "ok")]
    three = one.copy()
    three.timestamp.version = 3
    three.write_timestamp()
    yield "rollback of snapshot", one, [(two, "ok"), (three, "version")]
    three = one.copy()
    three.snapshot.version = three.timestamp.version = 3
    three.write_snapshot()
    yield "rollback of targets", one, [(two, "ok"), (three, "version")]
    three = two.copy().grow("snapshot", "timestamp")
    three.snapshot.meta = {"other.json": MetaFile(9)}
    three.write_snapshot()
    yield "targets is removed from snapshot", one, [(two, "ok"), (three, "format")]
    three = one.copy().rotate("snapshot", "s")
    three.timestamp.version = 2
    three.write_timestamp()
    yield "snapshot keeps the signature of a revoked key", one, [(one, "ok"), (three, "signature")]
    skipped = one.copy()
    skipped.root.version = 3
    skipped.write_root()
    skipped.files["2.root.json"] = skipped.files["3.root.json"]
    yield "a version of root is left out", one, [(skipped, "version")]


def freeze_cases():
    for role in ROLES:
        one = Repository()
        two = one.copy().grow()
        getattr(two, role).expires = PAST
        if role == "root":
            two.root.version = 2
            two.write_root()
        two.write()
        yield f"{role} has expired", one, [(one, "ok"), (two, "expired")]


def mix_cases():
    one, two = second()
    mixed = two.copy()
    mixed.files["2.targets.json"] = one.files["1.targets.json"]
    yield "targets of another version", one, [(mixed, "mismatch")]
    mixed = two.copy()
    mixed.files["2.snapshot.json"] = one.files["1.snapshot.json"]
    yield "snapshot of another version", one, [(mixed, "mismatch")]
    mixed = two.copy().grow("timestamp")
    mixed.timestamp.snapshot_meta = MetaFile(2)
    mixed.write_timestamp()
    mixed.files["2.snapshot.json"] = one.files["1.snapshot.json"]
    yield "snapshot of another version, without hashes", one, [(mixed, "version")]
    mixed = two.copy().grow("snapshot", "timestamp")
    mixed.snapshot.meta["targets.json"] = MetaFile(2)
    mixed.write_snapshot()
    mixed.files["2.targets.json"] = one.files["1.targets.json"]
    yield "targets of another version, without hashes", one, [(mixed, "version")]
    mixed = one.copy()
    mixed.files["timestamp.json"] = mixed.files["1.snapshot.json"]
    yield "snapshot in the place of timestamp", one, [(mixed, "format")]


def signature_cases():
    one = Repository(roots=2)
    weak = one.copy()
    weak.root.version = 2
    weak.signers["root"].pop()
    weak.write_root()
    yield "too few keys have signed root", one, [(one, "ok"), (weak, "signature")]
    one = Repository()
    for name, signers in (("new", [signer("x")]), ("old", [signer("root0")])):
        other = one.copy()
        other.root.version = 2
        other.root.revoke_key(one.signers["root"][0].public_key.keyid, "root")
        other.root.add_key(signer("x").public_key, "root")
        other.files["2.root.json"] = other.sign(other.root, signers)
        yield f"only the {name} key has signed root", one, [(other, "signature")]
    for scheme in ("ed25519", "ecdsa"):
        one = Repository(scheme=scheme)
        forged = one.copy()
        forged.files["timestamp.json"] = forged.files["timestamp.json"].replace("2100", "2101")
        yield f"timestamp is changed ({scheme})", one, [(forged, "signature"), (one, "ok")]
    one = Repository()
    other = one.copy()
    other.signers["timestamp"] = [signer("stranger")]
    other.grow("timestamp").write_timestamp()
    yield "a stranger signs timestamp", one, [(other, "signature")]
    double = one.copy()
    stamp = json.loads(double.files["timestamp.json"])
    stamp["signatures"] *= 2
    double.files["timestamp.json"] = json.dumps(stamp)
    yield "a signature is there twice", one, [(double, "format")]
    for name, text in {"is no JSON": "{", "is no object": "[]"}.items():
        broken = one.copy()
        broken.files["timestamp.json"] = text
        yield f"timestamp {name}", one, [(broken, "format")]
    endless = one.copy()
    endless.files["timestamp.json"] += " " * 20_000
    yield "endless timestamp", one, [(endless, "mismatch")]
    gone = one.copy()
    del gone.files["timestamp.json"]
    yield "no timestamp", one, [(gone, "missing")]


def make():
    cases = []
    makers = (sound_cases, rollback_cases, freeze_cases, mix_cases, signature_cases)
    for name, first, steps in (case for m in makers for case in m()):
        served, before = [], {}
        for state, outcome in steps:
            # only what differs from the step before; null: it is gone
            files = {n: t for n, t in state.files.items() if before.get(n) != t}
            files |= {n: None for n in before if n not in state.files}
            served.append({"files": files, "outcome": outcome})
            before = state.files
        cases.append({"name": name, "root": first.first_root, "steps": served})
    return cases


if __name__ == "__main__":
    PATH.write_text(json.dumps(make(), indent=1, ensure_ascii=True) + "\n")
