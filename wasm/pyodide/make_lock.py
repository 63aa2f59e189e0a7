"""make_lock.py WHEEL OUT   Writes a lock file for Pyodide's `loadPackage("edgewise")`: Pyodide's
own lock file with the wheel added.

    loadPyodide({lockFileURL: "https://example.org/edgewise/pyodide-lock.json"})

The URL must be absolute, and the wheel must be in the same folder. Pyodide's own packages are
loaded from its CDN, or from --packages.

Needs pyodide-lock, which makes the entry of the wheel. No release of it (0.1.0a4 to 0.1.2) reads
the lock files of Pyodide 314, with info without `version` and with `tool`, so the rest is copied.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from pyodide_lock import InfoSpec
from pyodide_lock.utils import package_spec_from_wheel

ROOT = Path(__file__).resolve().parents[2]


def entry(wheel: str, info: dict[str, str], version: str) -> dict[str, Any]:
    """The entry of a wheel in the folder of the lock file."""
    spec = package_spec_from_wheel(
        Path(wheel),
        InfoSpec(
            arch=info["arch"], platform=info["platform"], version=version, python=info["python"]
        ),
    )
    found = spec.dict() if not hasattr(spec, "model_dump") else spec.model_dump()
    found.pop("shared_library", None)  # no longer in Pyodide's lock files
    return {**found, "file_name": Path(wheel).name, "tool": {}}


def make_lock(
    wheel: str, pyodide: str | Path = ROOT / "web/node_modules/pyodide", packages: str | None = None
) -> dict[str, Any]:
    """Pyodide's lock file with the wheel added.

    Args:
        wheel: path of the py3-none-any wheel.
        pyodide: folder of the npm package.
        packages: URL of the folder with Pyodide's own packages; default: the CDN's of this version.
    """
    pyodide = Path(pyodide)
    lock = json.loads((pyodide / "pyodide-lock.json").read_text("utf-8"))
    version = json.loads((pyodide / "package.json").read_text("utf-8"))["version"]
    base = f"https://cdn.jsdelivr.net/pyodide/v{version}/full/" if packages is None else packages
    for package in lock["packages"].values():
        if "://" not in package["file_name"]:
            package["file_name"] = base + package["file_name"]
    ours = entry(wheel, lock["info"], version)
    lock["packages"][ours["name"]] = ours
    lock["packages"] = dict(sorted(lock["packages"].items()))
    return lock


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", help="the py3-none-any wheel")
    parser.add_argument("out", help="the lock file to write")
    parser.add_argument(
        "--pyodide",
        default=ROOT / "web/node_modules/pyodide",
        help="folder of the npm package pyodide",
    )
    parser.add_argument(
        "--packages", help="URL of the folder with Pyodide's own packages (default: its CDN)"
    )
    args = parser.parse_args()
    Path(args.out).write_text(
        json.dumps(make_lock(args.wheel, args.pyodide, args.packages), sort_keys=True) + "\n",
        "utf-8",
    )


if __name__ == "__main__":
    main()
