"""A repository of releases in a folder, which any web server can serve."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace

from ...errors import InputError
from ...json_text import parse_json_object
from ...locks import locked
from .build import Base, build
from .content import open_content
from .errors import ReleaseError
from .keys import Keys
from .manifest import MAX_EARLIER, Earlier, Manifest, Stored, check_name, parse
from .metadata import DAYS, MetadataFolder
from .store import Store, sha256, write_file

STAGED = "staged.json"  # what `add` has prepared and `publish` has not signed yet


class Repository:
    """A repository.

    Args:
        folder: with `metadata`, `targets` and `chunks`, to be served; `staged.json` need not be.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.metadata, self.store = MetadataFolder(folder), Store(folder)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        if not self.metadata.exists:
            raise InputError(
                "there is no repository", self.folder, "Make it by `edgewise release init`."
            )
        with locked(os.path.join(self.folder, "lock")):
            yield

    def _file(self, manifest: Stored, name: str) -> str:
        return os.path.join(self.folder, "targets", f"{manifest.sha256}.{name}.json")

    def _manifest(self, name: str, stored: Stored) -> Manifest:
        return parse(self._text(name, stored), self._file(stored, name))

    def _text(self, name: str, stored: Stored) -> bytes:
        path = self._file(stored, name)
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            raise ReleaseError("a manifest of the repository is missing", path) from None
        if sha256(data) != stored.sha256:
            raise ReleaseError("it does not match its SHA-256", path)
        return data

    def released(self) -> dict[str, tuple[Manifest, Stored]]:
        """{name: (manifest, where it is)} of what is published."""
        found = {}
        for path, target in self.metadata.targets().signed.targets.items():
            name = path.removesuffix(".json")
            stored = Stored(target.length, target.hashes["sha256"])
            found[name] = (self._manifest(name, stored), stored)
        return found

    def staged(self) -> dict[str, str]:
        """{name: SHA-256 of its manifest} of what waits to be published."""
        path = os.path.join(self.folder, STAGED)
        if not os.path.exists(path):
            return {}
        with open(path, "rb") as file:
            found = parse_json_object(file.read(), path, ReleaseError, "Add the versions again.")
        return {check_name(name): str(digest) for name, digest in found.items()}

    def _staged_version(self, name: str) -> int:
        digest = self.staged().get(name)
        return self._manifest(name, Stored(1, digest)).version if digest else 0

    def _stage(self, manifest: Manifest) -> Stored:
        data = manifest.text()
        stored = Stored(len(data), sha256(data))
        parse(data, "the new manifest")  # its limits
        write_file(self._file(stored, manifest.name), data)
        staged = {**self.staged(), manifest.name: stored.sha256}
        write_file(os.path.join(self.folder, STAGED), json.dumps(staged).encode())
        return stored

    def add(
        self, path: str, name: str, fraction: float = 1.0, rounding: str = "none", keep: int = 2
    ) -> Manifest:
        """Adds a version. `publish` makes it visible.

        Args:
            path: a package, an adapter's folder, or the folder of federated rounds.
            name: of the release.
            fraction: of the devices that get it.
            rounding: of float32 weights, one of ROUNDINGS.
            keep: number of earlier versions from which deltas are made.

        Raises:
            InputError: what is given cannot be released under this name.
            ReleaseError: the repository is damaged.
        """
        check_name(name)
        _check_fraction(fraction)
        if not 1 <= keep < MAX_EARLIER:
            raise InputError(
                f"deltas cannot lead from {keep} versions", "--keep", f"1 to {MAX_EARLIER - 1} can."
            )
        with self._changing():
            return self._add(path, name, fraction, rounding, keep)

    def _add(self, path: str, name: str, fraction: float, rounding: str, keep: int) -> Manifest:
        content = open_content(path)
        known = self.released().get(name)
        bases: list[Base] = []
        if known is not None:
            last, stored = known
            if self._staged_version(name) == last.version:
                raise InputError(
                    f"the rollout of '{name}' is not published yet",
                    self.folder,
                    "Publish it first.",
                )
            if last.kind != content.kind:
                raise InputError(f"'{name}' has been a release of another kind: {last.kind}", path)
            earlier = [Earlier(last.version, last.sha256, stored), *last.earlier][:keep]
            bases = [
                Base.open(self.store, self._manifest(name, e.manifest), e.manifest) for e in earlier
            ]
        version = 1 if known is None else known[0].version + 1
        manifest = build(self.store, content, name, version, bases, rounding)
        if known is not None:
            last = known[0]
            manifest.fallback = last.version if last.fraction == 1 else last.fallback
            fallback = [e for e in last.earlier if e.version == manifest.fallback]
            if all(e.version != manifest.fallback for e in manifest.earlier):
                manifest.earlier += fallback
        manifest.fraction = fraction
        self._stage(manifest)
        return manifest

    def roll_out(self, name: str, fraction: float) -> Manifest:
        """Changes the fraction of the devices that get the latest version. `publish` makes it
        visible.

        Raises:
            InputError: there is no such release.
        """
        _check_fraction(fraction)
        with self._changing():
            known = self.released().get(name)
            if known is None:
                raise InputError(f"there is no release '{name}'", self.folder)
            waiting = self._staged_version(name)
            if waiting > known[0].version:
                raise InputError(
                    f"version {waiting} of '{name}' is not published yet",
                    self.folder,
                    "Publish it first, or add it again with --fraction.",
                )
            manifest = replace(known[0], fraction=fraction)
            self._stage(manifest)
            return manifest

    def publish(
        self, keys: Keys, days: dict[str, float] | None = None, everything: bool = False
    ) -> list[str]:
        """Signs what is staged; without anything staged, the repository is fresh for another
        week: clients refuse a timestamp that has expired.

        Args:
            keys: of the roles that sign.
            days: until each role expires, where it is not DAYS.
            everything: sign targets even if nothing is staged.

        Returns:
            names that were staged.
        """
        with self._changing():
            staged = self.staged()
            files = {f"{n}.json": self._text(n, Stored(1, d)) for n, d in staged.items()}
            targets = files if files or everything else None
            self.metadata.publish(targets, keys, {**DAYS, **(days or {})})
            if staged:
                os.unlink(os.path.join(self.folder, STAGED))
            return list(staged)

    def rotate(
        self, role: str, keys: Keys, scheme: str | None = None, days: dict[str, float] | None = None
    ) -> int:
        """As MetadataFolder.rotate. What is staged stays so."""
        with self._changing():
            return self.metadata.rotate(role, scheme, keys, {**DAYS, **(days or {})})

    def prune(self) -> tuple[int, int]:
        """Removes the objects and manifests that no version needs which is published or waits for
        it, nor those from which deltas lead to it, nor the one that devices outside of its rollout
        get. Clients that are in the middle of an older update begin anew with the latest version.

        Returns:
            (files, bytes) that were removed.

        Raises:
            ReleaseError: the repository is damaged. Nothing was removed.
        """
        with self._changing():
            latest = {n: {stored.sha256} for n, (_, stored) in self.released().items()}
            for name, digest in self.staged().items():
                latest.setdefault(name, set()).add(digest)
            keep: set[str] = set()
            manifests: set[str] = set()
            for name, digests in latest.items():
                found = [self._manifest(name, Stored(1, digest)) for digest in digests]
                manifests |= digests | {e.manifest.sha256 for m in found for e in m.earlier}
                for manifest in found:
                    earlier = [self._manifest(name, e.manifest) for e in manifest.earlier]
                    for chunk in (c for m in (manifest, *earlier) for c in m.chunks):
                        keep |= {o.sha256 for o in (chunk.file, *chunk.deltas)}
            return self.store.remove_others(keep, manifests)

    def check(self) -> tuple[int, int]:
        """Reads all objects of all published versions.

        Returns:
            (releases, chunks)

        Raises:
            ReleaseError: one is missing or damaged.
        """
        from .store import ChunkSource

        count, seen, released = 0, set(), self.released()
        for name, (latest, _) in released.items():
            manifests = [latest, *(self._manifest(name, e.manifest) for e in latest.earlier)]
            for manifest in manifests:
                source = ChunkSource(self.store, manifest)
                at = 0
                for chunk in manifest.chunks:
                    objects = [chunk.file, *chunk.deltas]
                    for stored in objects:
                        if stored.sha256 not in seen:
                            seen.add(stored.sha256)
                            self.store.get(stored)
                    source.read(at, chunk.bytes)
                    at, count = at + chunk.bytes, count + 1
        return len(released), count


def _check_fraction(fraction: float) -> None:
    if not 0 <= fraction <= 1:
        raise InputError(f"{fraction} is no fraction", "--fraction", "Give a number from 0 to 1.")
