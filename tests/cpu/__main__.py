"""Runs Python as on an x86-64 processor without VNNI: what onnxruntime and the engine ask for.

    python -m tests.cpu avx2 -m pytest tests/ops -q -k Integer

avx2: without AVX-512, too, as half of all processors; avx512: without VNNI alone. In copies of both
libraries CPUID is replaced by an instruction that does not exist, of the same length; cpuid.c
handles the signal and answers it. Needs Linux, gcc and binutils.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".build/cpu"
LEVELS = {"avx2": 3, "avx512": 4}  # the engine's library
CPUID, MISSING = b"\x0f\xa2", b"\x0f\x0b"  # ud2


def replace_cpuid(path: Path) -> None:
    """Replaces CPUID in a library."""
    find = f"objdump -d --no-show-raw-insn '{path}' | grep -w cpuid"
    lines = subprocess.run(find, shell=True, capture_output=True, text=True).stdout.splitlines()
    table = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True).stdout
    rows = [row.split() for row in table.splitlines() if row.split()[:1] == ["LOAD"]]
    parts = [(int(row[1], 16), int(row[2], 16), int(row[4], 16)) for row in rows]
    data = bytearray(path.read_bytes())
    for address in (int(line.partition(":")[0], 16) for line in lines):
        at = next(o + address - v for o, v, size in parts if v <= address < v + size)
        assert data[at : at + 2] == CPUID, f"{path}, {address:#x}: no CPUID"
        data[at : at + 2] = MISSING
    path.write_bytes(data)


def copy_of(source: Path, target: Path, mark: str) -> None:
    """A copy of a file or folder whose libraries ask the handler, made again if `mark` changes."""
    done = target.parent / f"{target.name}.made"
    if done.exists() and done.read_text() == mark:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    for path in target.rglob("*pybind11_state*.so") if source.is_dir() else [target]:
        replace_cpuid(path)
    done.write_text(mark)


def environment(processor: str) -> dict[str, str]:
    """Variables with which Python runs as on a processor of LEVELS."""
    found = find_spec("onnxruntime")
    assert found is not None and found.origin is not None
    copy_of(Path(found.origin).parent, FOLDER / "site/onnxruntime", version("onnxruntime"))
    name = f"libedgewise-v{LEVELS[processor]}.so"
    engine = ROOT / "python/edgewise/host/engine" / name
    copy_of(engine, FOLDER / name, str(engine.stat().st_mtime_ns))
    handler, source = FOLDER / "cpuid.so", Path(__file__).with_name("cpuid.c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", handler, source, "-ldl"], check=True)
    paths = [str(FOLDER / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    more = {"PYTHONPATH": os.pathsep.join(paths), "EDGEWISE_LIBRARY": str(FOLDER / name)}
    return {**os.environ, **more, "LD_PRELOAD": str(handler), "CPUID_AS": processor}


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in LEVELS:
        sys.exit(__doc__)
    os.execve(sys.executable, [sys.executable, *sys.argv[2:]], environment(sys.argv[1]))
