"""`edgewise info`."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

from ... import __version__
from .options import add_command

if TYPE_CHECKING:
    from .options import Commands

# Packages that change what Edgewise can do, by the names of their distributions.
PACKAGES = ("numpy", "tokenizers", "jinja2", "huggingface_hub", "soundfile", "pillow", "wgpudawn")


def add_parser(commands: Commands) -> None:
    """Declares the arguments of `edgewise info`."""
    parser = add_command(commands, "info", run)
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def described() -> dict[str, Any]:
    """What an issue has to name: versions, platform, the engine's level and threads, packages."""
    from ...errors import EdgewiseError
    from ..engine import default_engine

    try:
        engine = default_engine()
        level, threads = engine.flavour, engine.threads
    except EdgewiseError as e:
        level, threads = f"none: {e}", 0
    found: dict[str, Any] = {
        "edgewise": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{platform.platform()} {platform.machine()}",
        "engine": level,
        "threads": threads,
    }
    if sys.platform == "emscripten":
        found["pyodide"] = metadata.version("pyodide-py") if _has("pyodide-py") else "unknown"
    found["packages"] = {name: metadata.version(name) for name in PACKAGES if _has(name)}
    return found


def _has(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def run(args: argparse.Namespace) -> None:
    """Prints what an issue has to name: versions, platform, instruction set, threads, packages."""
    found = described()
    if args.json:
        print(json.dumps(found, indent=1))
        return
    packages = found.pop("packages")
    for name, value in found.items():
        print(f"{name + ':':<10} {value}")
    print(f"{'packages:':<10} {', '.join(f'{n} {v}' for n, v in packages.items()) or 'none'}")
