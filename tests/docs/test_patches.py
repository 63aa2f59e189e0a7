"""The patches that the pages on contributing show: applied to a copy of the source tree, generated,
compiled and run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import slow_unless

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "contribute").glob("add-*.md"))
BLOCK = re.compile(r"^<!-- test: (patch|patched) -->\n```\w+\n(.*?)^```$", re.M | re.S)
# Families of kernels whose C files are compiled; the others are replaced by functions that fail.
FAMILIES = ("elementwise", "reduce", "shape")
# The command of a page that runs the tests of what it adds.
COMMAND = re.compile(r"^python (-m pytest .*)$", re.M)


def blocks(page: Path, kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(page.read_text()) if found == kind]


def copy_tree(folder: Path) -> None:
    """What the generator and the compilers read."""
    leave_out = shutil.ignore_patterns("__pycache__", "*.so", "*.wasm")
    for part in ("core", "python", "web/src/gen"):
        shutil.copytree(ROOT / part, folder / part, ignore=leave_out)
    shutil.copy(ROOT / "web" / "worker-parts.json", folder / "web")


def run(*command: object, **options: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compile_library(folder: Path) -> Path:
    """The engine with the kernels of FAMILIES, without optimization."""
    core, library = folder / "core", folder / "library.so"
    sources = [*core.glob("*.c"), core / "gen" / "kernels.c", *core.glob("sampling/*.c")]
    for family in FAMILIES:
        sources += (core / "kernels" / family).glob("*.c")
    compiler = [shutil.which("cc") or "gcc", "-std=c11", "-O0", "-fPIC", f"-I{core}"]
    run(*compiler, "-c", *sources, cwd=folder)
    objects = sorted(folder.glob("*.o"))
    missing = set(re.findall(r"\bU (ew_k_\w+)", run("nm", *objects)))
    missing -= set(re.findall(r"\bT (ew_k_\w+)", run("nm", *objects)))
    absent = "".join(f"int {name}(void) {{ return 13; /* EW_E_ABSENT */ }}\n" for name in missing)
    (folder / "absent.c").write_text(absent)
    run(*compiler, "-shared", *objects, "absent.c", "-lm", "-lpthread", "-o", library, cwd=folder)
    return library


@pytest.mark.skipif(sys.platform != "linux", reason="builds a shared library by hand")
@pytest.mark.parametrize(
    "name", slow_unless(lambda name: name == "add-an-op", [page.stem for page in PAGES])
)
def test_patch(name, tmp_path):
    [page] = [page for page in PAGES if page.stem == name]
    patches, programs = blocks(page, "patch"), blocks(page, "patched")
    assert patches and len(programs) == 1
    copy_tree(tmp_path)
    for i, patch in enumerate(patches):
        (tmp_path / f"{i}.diff").write_text(patch)
        run("git", "apply", "--whitespace=nowarn", "-p0", f"{i}.diff", cwd=tmp_path)
    changed = [line[4:] for patch in patches for line in patch.splitlines() if line[:4] == "+++ "]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'python'}:{ROOT / 'tests'}"}
    if name == "add-an-op":
        assert all(name.startswith("python/edgewise/compiler/ops/") for name in changed)
        assert len(changed) == len(patches), "an op is one file, and one with its cases"
    run(sys.executable, "core/generate", cwd=tmp_path)
    environment["EDGEWISE_LIBRARY"] = str(compile_library(tmp_path))
    run(sys.executable, "-c", programs[0], cwd=tmp_path, env=environment)
    if any("/cases/" in name for name in changed):
        [command] = COMMAND.findall(page.read_text())
        (tmp_path / "tests").symlink_to(ROOT / "tests")
        shutil.copy(ROOT / "pyproject.toml", tmp_path)
        environment["EDGEWISE_ENGINES"] = "native"  # the only one that is built
        said = run(sys.executable, *shlex.split(command), cwd=tmp_path, env=environment)
        assert re.search(r"^\d+ passed", said, re.M), said
