"""Builds a JupyterLite site with the notebooks of this folder and the page of examples/pyscript.
The site needs no other server.

    python build.py WHEEL OUT

Requires requirements.txt, and web/node_modules/pyodide. The packages that the kernel needs are
fetched from PyPI once, into the folder `wheels` beside OUT; pages fetch them from the site.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PYODIDE = ROOT / "web/node_modules/pyodide"
PYODIDE_FILES = (
    "pyodide.mjs",
    "pyodide.js",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
# What jupyterlite-pyodide-kernel loads when it starts. Dependencies and versions follow from
# Pyodide's lock file.
PACKAGES = ("micropip", "ipython", "jedi", "packaging")
COMM = "comm==0.2.3"  # the kernel installs it with %pip
PYSCRIPT = "0.7.31"  # @pyscript/core of npm, for examples/pyscript


def pip(*arguments: str) -> None:
    """Runs pip."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)


def needed(packages: dict[str, Any]) -> list[str]:
    """Names of the packages with their dependencies, as in the lock file."""
    found: set[str] = set()
    todo = list(PACKAGES)
    while todo:
        name = todo.pop().lower().replace("_", "-")
        if name not in found:
            found.add(name)
            todo += packages[name]["depends"]
    return sorted(found)


def add_pyodide(folder: Path, wheels: Path) -> None:
    """Copies Pyodide and the wheels of the kernel's packages.

    PyPI's wheels have other bytes than those of Pyodide's CDN, so their hashes replace those in the
    lock file.
    """
    folder.mkdir(parents=True)
    for name in PYODIDE_FILES:
        shutil.copy(PYODIDE / name, folder)
    lock = json.loads((folder / "pyodide-lock.json").read_text())
    for name in needed(lock["packages"]):
        package = lock["packages"][name]
        version = f"{name}=={package['version']}"
        file = wheels / package["file_name"]
        if not file.name.endswith("none-any.whl"):
            raise SystemExit(f"{name} is no pure Python package: {file.name}")
        if not file.exists():
            pip("download", "--no-deps", "--only-binary=:all:", "--python-version", "3.14",
                "--dest", str(wheels), version)  # fmt: skip
        package["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copy(file, folder)
    (folder / "pyodide-lock.json").write_text(json.dumps(lock))


def add_installable(folder: Path, wheels: Path, wheel: Path) -> None:
    """Copies the wheels that %pip finds on the site."""
    folder.mkdir(parents=True)
    shutil.copy(wheel, folder)
    comm = wheels / (COMM.replace("==", "-") + "-py3-none-any.whl")
    if not comm.exists():
        pip("download", "--no-deps", "--dest", str(wheels), COMM)
    shutil.copy(comm, folder)


def add_pyscript(folder: Path, wheels: Path) -> None:
    """Copies the page of examples/pyscript, and PyScript from npm."""
    shutil.copytree(HERE.parent / "pyscript", folder)
    package = wheels / f"pyscript-core-{PYSCRIPT}.tgz"
    if not package.exists():
        command = ["npm", "pack", "--silent", f"@pyscript/core@{PYSCRIPT}"]
        subprocess.run(command, check=True, cwd=wheels, stdout=subprocess.DEVNULL)
    (folder / "core").mkdir()
    with tarfile.open(package) as archive:
        for member in archive:
            path = Path(member.name)
            if path.parent == Path("package/dist") and path.suffix in (".js", ".css"):
                data = archive.extractfile(member)
                if data is not None:
                    (folder / "core" / path.name).write_bytes(data.read())


def main(wheel: Path, out: Path) -> None:
    """Builds the site."""
    wheels, source = out.parent / "wheels", out.parent / "source"
    wheels.mkdir(parents=True, exist_ok=True)
    for folder in (source, out):
        shutil.rmtree(folder, ignore_errors=True)
    add_pyodide(source / "static/pyodide", wheels)
    add_installable(source / "pypi", wheels, wheel)
    files = source / "files"
    shutil.copytree(ROOT / "web/demo/model", files / "model")
    for notebook in HERE.glob("*.ipynb"):
        shutil.copy(notebook, files)
    settings = {"@jupyterlite/pyodide-kernel-extension:kernel": {"disablePyPIFallback": True}}
    (source / "jupyter-lite.json").write_text(
        json.dumps(
            {
                "jupyter-lite-schema-version": 0,
                "jupyter-config-data": {"appName": "Edgewise", "litePluginSettings": settings},
            }
        )
    )
    command = [
        str(Path(sys.executable).parent / "jupyter-lite"),
        "build",
        "--lite-dir",
        str(source),
    ]
    apps = [x for app in ("lab", "notebooks", "repl") for x in ("--apps", app)]
    subprocess.run(
        [*command, "--output-dir", str(out), "--contents", str(files), *apps],
        check=True,
        cwd=source,
        stdout=subprocess.DEVNULL,
    )
    add_pyscript(out / "pyscript", wheels)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
