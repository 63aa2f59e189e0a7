"""The wheels of `make wheels`: what they contain, and the one for this machine in an environment of
its own. lief reads the libraries, auditwheel the versions of glibc's symbols.
"""

import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

lief = pytest.importorskip("lief", reason="make wheels has it")

ROOT = Path(__file__).parents[2]
WHEELS = sorted((ROOT / "dist/wheels").glob("*.whl"))
X86_64 = {"libedgewise", "libedgewise-v3", "libedgewise-v4"}
# platform tag: (format, machine, suffix, libraries in the wheel, system libraries that they need)
EXPECTED = {
    "manylinux_2_17_x86_64": ("ELF", "X86_64", ".so", X86_64, r"lib(c|m|pthread)\.so\.\d"),
    "manylinux_2_17_aarch64": (
        "ELF",
        "AARCH64",
        ".so",
        {"libedgewise"},
        r"lib(c|m|pthread)\.so\.\d|ld-linux-aarch64\.so\.1",
    ),
    "macosx_11_0_x86_64": (
        "MACHO",
        "X86_64",
        ".dylib",
        X86_64 - {"libedgewise-v4"},
        r"/usr/lib/libSystem\.B\.dylib",
    ),
    "macosx_11_0_arm64": (
        "MACHO",
        "ARM64",
        ".dylib",
        {"libedgewise"},
        r"/usr/lib/libSystem\.B\.dylib",
    ),
    "win_amd64": ("PE", "AMD64", ".dll", X86_64, r"(?i)kernel32\.dll|api-ms-win-crt-.*\.dll"),
}
ABI = {"ew_open", "ew_close", "ew_alloc", "ew_plan_load", "ew_plan_run", "ew_stop", "ew_threads"}

each_wheel = pytest.mark.parametrize("wheel", WHEELS, ids=lambda p: p.stem.rsplit("-", 1)[1])


def platform_of(wheel):
    return wheel.stem.rsplit("-", 1)[1]


def test_all_platforms_are_there():
    if not WHEELS:
        pytest.skip("make wheels builds them")
    assert {platform_of(w) for w in WHEELS} == set(EXPECTED)


# Symbols that linkers add, without the first underscore.
LINKERS_OWN = {
    "PE": {"CRT_INIT", "_mingw_module_is_dll", "atexit"},
    "MACHO": {"__dso_handle", "_mh_dylib_header"},
}


@each_wheel
def test_contents(wheel):
    """The package and its libraries, and nothing else."""
    _, _, suffix, libraries, _ = EXPECTED[platform_of(wheel)]
    with zipfile.ZipFile(wheel) as z:
        names = [n for n in z.namelist() if not n.endswith("/")]
        info = next(n for n in names if n.endswith("/METADATA")).removesuffix("METADATA")
        tag = Parser().parsestr(z.read(info + "WHEEL").decode())
        described = Parser().parsestr(z.read(info + "METADATA").decode())
    assert tag.get_all("Tag") == [f"py3-none-{platform_of(wheel)}"]
    assert tag["Root-Is-Purelib"] == "false"
    assert described["Requires-Python"] == ">=3.11" and described["License-File"] == "LICENSE"
    extras = described.get_all("Provides-Extra")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extras == list(project["optional-dependencies"])
    needed = [r for r in described.get_all("Requires-Dist") if "extra ==" not in r]
    assert not needed
    others = {n for n in names if not n.endswith(".py") and not n.startswith(info)}
    flower = {f"edgewise/extras/federated/app/{name}" for name in ("LICENSE", "pyproject.toml")}
    assert others == {f"edgewise/host/engine/{library}{suffix}" for library in libraries} | flower
    tracked = {
        p.relative_to(ROOT / "python").as_posix()
        for p in (ROOT / "python/edgewise").rglob("*.py")
        if "cases" not in p.parts
    }
    assert {n for n in names if n.endswith(".py")} == tracked


@each_wheel
def test_libraries(wheel):
    """Each library is for the wheel's machine, exports the engine's functions alone, and needs only
    libraries that every such system has.
    """
    kind, machine, suffix, libraries, system = EXPECTED[platform_of(wheel)]
    with zipfile.ZipFile(wheel) as z:
        for library in libraries:
            binary = lief.parse(list(z.read(f"edgewise/host/engine/{library}{suffix}")))
            assert binary.format.name == kind
            header = binary.header
            found = {"ELF": "machine_type", "MACHO": "cpu_type", "PE": "machine"}[kind]
            assert getattr(header, found).name == machine
            exported = {f.name.removeprefix("_") for f in binary.exported_functions if f.name}
            assert exported >= ABI
            others = {name for name in exported if not name.startswith("ew_")}
            assert others <= LINKERS_OWN.get(kind, set())
            assert ("ew_cpu_level" in exported) == (len(EXPECTED[platform_of(wheel)][3]) > 1)
            needed = [getattr(each, "name", each) for each in binary.libraries]
            if kind == "MACHO":  # its own name is first
                assert needed.pop(0) == f"@rpath/{library}.dylib"
            assert needed and all(re.fullmatch(system, n) for n in needed), needed
            if kind == "MACHO":
                least = binary.build_version.minos if binary.has_build_version else None
                assert least is None or list(least)[:2] <= [11, 0]
                if machine == "ARM64":  # the system loads no library without a signature
                    assert binary.has_code_signature


@each_wheel
def test_versions_of_glibc(wheel):
    """auditwheel's judgement on the symbols that Linux wheels import."""
    if "manylinux" not in platform_of(wheel):
        pytest.skip("not a Linux wheel")
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True
    )
    said = " ".join(done.stdout.split())
    assert f'consistent with the following platform tag: "{platform_of(wheel)}"' in said, said


RUN = """
import sys, edgewise
from edgewise.engine import default_engine
print(edgewise.__file__)
lm = edgewise.CausalLM(sys.argv[1], capacity=32)
print(default_engine().flavour)
print(edgewise.generate(lm, [5, 6, 7], max_new_tokens=8, do_sample=False))
"""


def test_wheel_runs_in_a_new_environment(tmp_path):
    """pip chooses this machine's wheel from all of them, and the demo's model runs in it: the
    tokens are those of the engine in the checkout.
    """
    if not any(platform_of(w) == "manylinux_2_17_x86_64" for w in WHEELS):
        pytest.skip("make wheels builds it")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    install = ["-m", "pip", "install", "-q", "--no-index", "--find-links", ROOT / "dist/wheels"]
    subprocess.run([python, *install, "edgewise"], check=True)
    model = ROOT / "web/demo/model"
    done = subprocess.run(
        [python, "-I", "-c", RUN, model], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    file, flavour, ids = done.stdout.splitlines()
    assert file.startswith(str(tmp_path)) and flavour.startswith("x86-64")
    here = subprocess.run(
        [sys.executable, "-c", RUN, model],
        env={"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
    )
    assert here.stdout.splitlines()[2:] == [ids], here.stderr
