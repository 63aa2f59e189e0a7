"""make_lock.py WHEEL OUT   A lock file with which Pyodide's `loadPackage("edgewise")` works:
Pyodide's own, and our wheel.

    loadPyodide({lockFileURL: "https://example.org/edgewise/pyodide-lock.json"})

The address has to be a whole one. Serve the wheel beside it. Pyodide's own packages stay where
Pyodide has them: --packages says where that is.

Needs pyodide-lock. It makes our entry; no release of it reads the lock files of Pyodide 314
(0.1.0a4 to 0.1.2 know neither info without `version` nor `tool`), so the rest is taken over as it
is.
"""

import argparse
import json
from pathlib import Path

from pyodide_lock import InfoSpec
from pyodide_lock.utils import package_spec_from_wheel

ROOT = Path(__file__).resolve().parents[2]


def entry(wheel, info, version):
    """The lock file's entry for a wheel that lies beside the lock file, as a dict."""
    spec = package_spec_from_wheel(
        Path(wheel),
        InfoSpec(
            arch=info["arch"], platform=info["platform"], version=version, python=info["python"]
        ),
    )
    found = spec.dict() if not hasattr(spec, "model_dump") else spec.model_dump()
    found.pop("shared_library", None)  # gone from Pyodide's lock files
    return {**found, "file_name": Path(wheel).name, "tool": {}}


def make_lock(wheel, pyodide=ROOT / "web/node_modules/pyodide", packages=None):
    """Pyodide's lock file with the wheel added, as a dict.

    Args:
        wheel: path of the py3-none-any wheel. pyodide: folder of the npm package.
        packages: where Pyodide's own packages are; by default the CDN's folder of this version.
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


def main():
    """Run the command line."""
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
        "--packages", help="address of the folder with Pyodide's own packages (default: its CDN)"
    )
    args = parser.parse_args()
    Path(args.out).write_text(
        json.dumps(make_lock(args.wheel, args.pyodide, args.packages), sort_keys=True) + "\n",
        "utf-8",
    )


if __name__ == "__main__":
    main()
