"""The sdist: what it contains, and that a C compiler is all it takes to install it."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("scikit_build_core")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "python/wheels"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    from build import build_sdist

    return build_sdist(tmp_path_factory.mktemp("sdist"))


def test_contents(sdist):
    with tarfile.open(sdist) as archive:
        names = [m.name.split("/", 1)[1] for m in archive.getmembers() if m.isfile()]
    top = {name.split("/")[0] for name in names}
    assert top == {"core", "python", "pyproject.toml", "README.md", "LICENSE", "PKG-INFO"}
    assert {"core/CMakeLists.txt", "core/gen/kernels.c", "python/edgewise/__init__.py"} <= set(
        names
    )
    assert not [n for n in names if re.search(r"core/generate|/cases/|\.(so|dll|dylib|wasm)$", n)]


def build(sdist, target, environment, *settings):
    """`pip wheel` of the sdist with the build tools that are installed here."""
    options = [o for setting in settings for o in ("-C", setting)]
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    return subprocess.run(
        [*command, "--disable-pip-version-check", *options, "--wheel-dir", target, sdist],
        capture_output=True,
        text=True,
        env=environment,
    )


@pytest.mark.slow("test_without_a_compiler")
def test_install_with_a_compiler(sdist, tmp_path):
    """It is built, installed in an empty environment, and generates. Unoptimized and for the lowest
    instruction set alone, which takes a tenth of the time.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    settings = ("cmake.build-type=Debug", "cmake.define.EDGEWISE_X86_64=OFF")
    done = build(sdist, tmp_path, environment, *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = tmp_path.glob("*.whl")
    assert re.fullmatch(r"edgewise-[\d.]+-py3-none-(?!any).*", wheel.stem)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index"]
    subprocess.run([*install, wheel], check=True, env=environment)
    code = """if 1:
        import sys, edgewise
        lm = edgewise.CausalLM(sys.argv[1], capacity=16)
        print(edgewise.__file__, edgewise.generate(lm, [5, 6, 7], max_new_tokens=2))
    """
    done = subprocess.run(
        [python, "-I", "-c", code, ROOT / "web/demo/model"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "venv"))


def test_without_a_compiler(sdist, tmp_path):
    """The error says what to install."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("cmake", "make", "uname"):
        (tools / name).symlink_to(shutil.which(name))
    environment = {k: v for k, v in os.environ.items() if k not in ("CC", "CFLAGS")}
    done = build(sdist, tmp_path, {**environment, "PATH": str(tools)})
    assert done.returncode != 0
    said = " ".join((done.stdout + done.stderr).split())
    assert "There is no C compiler (" in said and "apt-get install gcc" in said, said
