"""version.py [NEW]   The version of a release stands in pyproject.toml; files that tools read
without it repeat it, npm's in the form of Semantic Versioning: 0.2.0rc1 is 0.2.0-rc.1 there.
Without arguments: lists the files that differ. With NEW: writes it to all.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# file: what stands before the version, and how many times (the lock file names the package twice)
PLACES = {
    "pyproject.toml": (r'^version = "', 1),
    "python/edgewise/__init__.py": (r'^__version__ = "', 1),
    "web/package.json": (r'^  "version": "', 1),
    "web/compiler/package.json": (r'^  "version": "|^    "edgewise": "', 2),
    "web/create/package.json": (r'^  "version": "', 1),
    "web/package-lock.json": (r'"name": "edgewise",\n +"version": "', 2),
    "wasm/pyodide/meta.yaml": (r"^  name: edgewise\n  version: ", 1),
}
NUMBERS = r"\d+\.\d+\.\d+"
VERSION = rf"{NUMBERS}(?:(?:a|b|rc)\d+)?"
NPM_VERSION = rf"{NUMBERS}(?:-(?:a|b|rc)\.\d+)?"


def npm_form(version: str) -> str:
    """The version as npm accepts it.

    Args:
        version: as in pyproject.toml, such as 0.2.0rc1.

    Returns:
        It in the form of Semantic Versioning, such as 0.2.0-rc.1.
    """
    return re.sub(r"(a|b|rc)(\d+)$", r"-\1.\2", version)


def _of_npm(file: str) -> bool:
    return file.endswith(".json")


def versions() -> dict[str, list[str]]:
    """The versions that each file states."""
    return {
        file: re.findall(
            rf"(?:{before})({NPM_VERSION if _of_npm(file) else VERSION})(?=[\"\s])",
            (ROOT / file).read_text("utf-8"),
            re.M,
        )
        for file, (before, _) in PLACES.items()
    }


def different() -> dict[str, list[str]]:
    """Files that do not state the version of pyproject.toml as often as they should."""
    found = versions()
    [version] = found["pyproject.toml"]
    return {
        file: stated
        for file, stated in found.items()
        if stated != [npm_form(version) if _of_npm(file) else version] * PLACES[file][1]
    }


def write(version: str) -> None:
    """Writes a version to all files."""
    for file, (before, _) in PLACES.items():
        path = ROOT / file
        text = path.read_text("utf-8")
        old, new = (NPM_VERSION, npm_form(version)) if _of_npm(file) else (VERSION, version)
        path.write_text(re.sub(f"({before}){old}", rf"\g<1>{new}", text, flags=re.M), "utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        if not re.fullmatch(VERSION, sys.argv[1]):
            sys.exit(f"{sys.argv[1]} is not a version such as 0.2.0 or 0.2.0rc1")
        write(sys.argv[1])
    for name, stated in different().items():
        print(f"{name}: {', '.join(stated) or 'no version'}")
    sys.exit(bool(different()))
