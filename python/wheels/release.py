"""release.py [--sdist-only]   Gathers a release in dist/release: npm's packages in npm/, the sdist
and the wheels in wheels/, an inventory of what they contain (CycloneDX) in sbom.cdx.json, and the
hashes of all files in SHA256SUMS. The same commit gives the same bytes.

`make release` builds the parts first and runs this in the environment of `make wheels`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path

from build import build_sdist
from version import different

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "dist/release"
SUMS, SBOM = "SHA256SUMS", "sbom.cdx.json"
NPM = ("web", "web/compiler", "web/create")
"""Folders of npm's packages."""

NAMED = re.compile(r"(?m)^((?:@[\w.-]+/)?[\w.-]+) (\d[\w.-]*) \(([^()]+)\)$")
"""A package in THIRD-PARTY-LICENSES.txt, which web/licenses.mjs writes: name, version, licence."""

# Parts without a package and a version of their own: name, licence, where they are from.
LIBRARIES = [
    ("musl", "MIT", "https://musl.libc.org"),
    ("compiler-rt", "Apache-2.0 WITH LLVM-exception", "https://compiler-rt.llvm.org"),
    ("emscripten", "MIT", "https://emscripten.org"),
    ("cpython", "PSF-2.0", "https://www.python.org"),
]
# Of wheels that zig has compiled; the second in those for Windows alone.
ZIG = [
    ("zig compiler_rt", "MIT", "https://ziglang.org"),
    ("mingw-w64", "ZPL-2.1", "https://www.mingw-w64.org"),
]


def version() -> str:
    """The version of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


def epoch() -> int:
    """Seconds of the date in archives: SOURCE_DATE_EPOCH, or that of the commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    shown = ["git", "log", "-1", "--format=%ct"]
    return int(given or subprocess.check_output(shown, cwd=ROOT, text=True))


def third_parties() -> list[tuple[str, str, str]]:
    """The packages that the scripts and Python's files contain: (name, version, licence)."""
    package = json.loads((ROOT / "web/package.json").read_text("utf-8"))
    found = {("pyodide", package["devDependencies"]["pyodide"], "MPL-2.0")}
    for folder in ("web", "web/compiler"):
        texts = (ROOT / folder / "THIRD-PARTY-LICENSES.txt").read_text("utf-8")
        found |= {match.groups() for match in NAMED.finditer(texts)}
    return sorted(found)


def files_of(folder: Path) -> list[str]:
    """Paths of a release's files, but for SHA256SUMS."""
    paths = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    return sorted(path for path in paths if path != SUMS)


def digest(path: Path) -> str:
    """SHA-256 of a file in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_sbom(folder: Path) -> None:
    """Writes sbom.cdx.json: the release's files with their hashes, and what they contain."""
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model import (
        ExternalReference,
        ExternalReferenceType,
        HashAlgorithm,
        HashType,
        XsUri,
    )
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    licence = LicenseFactory().make_from_string

    def library(name: str, licence_id: str, url: str) -> Component:
        site = ExternalReference(type=ExternalReferenceType.WEBSITE, url=XsUri(url))
        return Component(
            name=name, bom_ref=name, licenses=[licence(licence_id)], external_references=[site]
        )

    files = files_of(folder)
    digests = {path: digest(folder / path) for path in files}
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, "".join(digests.values())))
    bom.metadata.timestamp = datetime.fromtimestamp(epoch(), UTC)
    bom.metadata.component = own = Component(
        name="edgewise",
        version=version(),
        bom_ref="edgewise",
        type=ComponentType.LIBRARY,
        licenses=[licence("Apache-2.0")],
    )
    windows = any("win_" in path for path in files)
    zig = ZIG[: 2 if windows else 1] if any(path.endswith(".whl") for path in files) else []
    contained = [library(*each) for each in LIBRARIES + zig]
    contained += [
        Component(
            name=name,
            version=number,
            bom_ref=f"{name}@{number}",
            purl=PackageURL("npm", *split_name(name), number),
            licenses=[licence(licence_id)],
        )
        for name, number, licence_id in third_parties()
    ]
    for path in files:
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digests[path])]
        file = Component(name=path, bom_ref=path, type=ComponentType.FILE, hashes=hashes)
        bom.components.add(file)
        bom.register_dependency(own, [file])
    bom.components.update(contained)
    bom.register_dependency(own, contained)
    (folder / SBOM).write_text(JsonV1Dot6(bom).output_as_string(indent=2) + "\n", "utf-8")


def split_name(name: str) -> tuple[str | None, str]:
    """An npm name as (scope, name)."""
    scope, _, rest = name.rpartition("/")
    return scope or None, rest


def write_sums(folder: Path) -> None:
    """Writes SHA256SUMS, as sha256sum does."""
    lines = [f"{digest(folder / path)}  {path}\n" for path in files_of(folder)]
    (folder / SUMS).write_text("".join(lines), "utf-8")


def pack_npm(folder: Path) -> None:
    """Packs npm's packages: `npm pack` sorts the files and gives them one date."""
    folder.mkdir(parents=True)
    for package in NPM:
        command = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", folder]
        subprocess.run(command, cwd=ROOT / package, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--sdist-only", action="store_true", help="without dist/wheels/*.whl")
    sdist_only = parser.parse_args().sdist_only
    if different():
        sys.exit(f"these files state another version: {', '.join(different())}")
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch())
    shutil.rmtree(RELEASE, ignore_errors=True)
    pack_npm(RELEASE / "npm")
    wheels = RELEASE / "wheels"
    if sdist_only:
        wheels.mkdir()
        build_sdist(wheels)
    else:
        shutil.copytree(ROOT / "dist/wheels", wheels)
    write_sbom(RELEASE)
    write_sums(RELEASE)
    print((RELEASE / SUMS).read_text("utf-8"), end="")


if __name__ == "__main__":
    main()
