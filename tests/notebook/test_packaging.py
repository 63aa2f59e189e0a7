"""The wheel for Pyodide, its recipe and its lock file."""

import base64
import hashlib
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_wheel(wheel):
    assert wheel.name == f"edgewise-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        assert (
            "edgewise/host/engine/edgewise-simd128-full.wasm" in names
            and z.read("edgewise/host/engine/edgewise-simd128-full.wasm")[:4] == b"\0asm"
        )
        assert not [n for n in names if n.endswith((".so", ".dylib", ".dll", ".c"))]
        # the library of texts in JavaScript instead of jinja2's sandbox
        licenses = z.read("edgewise/host/text/text-library.LICENSES.txt").decode()
        for package in ("@huggingface/tokenizers", "@huggingface/jinja"):
            text = (ROOT / "web/node_modules" / package / "LICENSE").read_text()
            assert package in licenses and text in licenses
        assert "edgewise/host/text/text-library.js" in names
        assert not [n for n in names if n.startswith("edgewise/host/text/templates/")]
        sources = [n for n in names if n.endswith(".py")]
        assert {"edgewise/__init__.py", "edgewise/host/engine/browser.py"} <= set(sources)
        for source in sources:
            folder, _, file = source.rpartition("/")
            compiled = z.read(f"{folder}/__pycache__/{file[:-3]}.cpython-314.pyc")
            assert compiled[4:8] == b"\1\0\0\0"  # checked by hash: Python never validates it
        record = next(n for n in names if n.endswith("/RECORD"))
        rows = dict(line.split(",", 1) for line in z.read(record).decode().splitlines())
        assert set(rows) == set(names)
        for name in names:
            if name != record:
                data = z.read(name)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
                assert rows[name] == f"sha256={digest.decode()},{len(data)}", name
        metadata = next(n for n in names if n.endswith("/METADATA"))
        wanted = [
            line
            for line in z.read(metadata).decode().splitlines()
            if line.startswith("Requires-Dist:") and "extra ==" not in line
        ]
        assert not wanted  # no other package is required


def test_wheel_in_cpython(wheel, tmp_path):
    """The wheel can be imported in CPython, which ignores its bytecode; running a model raises an
    error that names the missing engine.
    """
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--target",
            tmp_path,
            wheel,
        ],
        check=True,
    )
    code = """if 1:
        import sys; sys.path.insert(0, sys.argv[1])
        import edgewise
        from edgewise.engine import open_engine
        assert edgewise.__file__.startswith(sys.argv[1])
        try:
            open_engine()
        except edgewise.EdgewiseError as e:
            print(e)"""
    said = subprocess.run(
        [sys.executable, "-I", "-c", code, tmp_path],
        check=True,
        capture_output=True,
        text=True,
        env={},
    ).stdout
    assert (
        "native engine library is not there" in said and "Install a wheel for this platform" in said
    )


def test_recipe():
    """meta.yaml is valid under pyodide-build's schema."""
    io = pytest.importorskip("pyodide_build.io")
    recipe = io.MetaConfig.from_yaml(ROOT / "wasm/pyodide/meta.yaml")
    assert (recipe.package.name, recipe.package.version) == ("edgewise", VERSION)
    assert recipe.source.path.resolve() == ROOT and recipe.package.top_level == ["edgewise"]
    assert recipe.about.license == "Apache-2.0" and not recipe.requirements.run
    assert "make wasm" in recipe.build.script and "EDGEWISE_PURE" in recipe.build.script


def test_lock(wheel, pyodide_folder, tmp_path):
    """The lock file is Pyodide's with one further entry, made and accepted by pyodide-lock."""
    lock_module = pytest.importorskip("pyodide_lock")
    out = tmp_path / "pyodide-lock.json"
    subprocess.run(
        [
            sys.executable,
            ROOT / "wasm/pyodide/make_lock.py",
            wheel,
            out,
            "--pyodide",
            pyodide_folder,
        ],
        check=True,
    )
    lock, theirs = (
        json.loads(out.read_text()),
        json.loads((pyodide_folder / "pyodide-lock.json").read_text()),
    )
    entry = lock["packages"]["edgewise"]
    assert entry == {
        "name": "edgewise",
        "version": VERSION,
        "file_name": wheel.name,
        "install_dir": "site",
        "imports": ["edgewise"],
        "depends": [],
        "package_type": "package",
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "unvendored_tests": False,
        "tool": {},
    }
    lock_module.PackageSpec(**{k: v for k, v in entry.items() if k != "tool"})
    assert entry.keys() == theirs["packages"]["numpy"].keys()  # the format that this Pyodide reads
    assert lock["info"] == theirs["info"] and set(lock["packages"]) - set(theirs["packages"]) == {
        "edgewise"
    }
    numpy = lock["packages"]["numpy"]
    assert (
        numpy["file_name"]
        == "https://cdn.jsdelivr.net/pyodide/v314.0.7/full/"
        + theirs["packages"]["numpy"]["file_name"]
    )
    assert {**numpy, "file_name": ""} == {**theirs["packages"]["numpy"], "file_name": ""}
