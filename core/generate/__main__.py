"""Generates C and TypeScript from the declarations in python/edgewise.

    python3 core/generate            write core/gen, web/src/gen, python/edgewise/webgpu/gen
    python3 core/generate --check    exit with 1 if one of these files is out of date

Requires only Python.
"""

from __future__ import annotations

import importlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python")]

from edgewise.ops.table import kernel_table  # noqa: E402  (the path is set above)
from kernels import FILES  # noqa: E402
from shaders import GENERATED as SHADERS  # noqa: E402

MORE = (
    "edgewise.session_limits",
    "edgewise.profile.limits",
    "edgewise.training.warm",
    "edgewise.webgpu.packing",
    "edgewise.webgpu.probe",
    "edgewise.manifest_limits",
    "edgewise.processors.resampling",
    "edgewise.schema.plan_format",
    "edgewise.schema.processor",
)  # modules with a table GENERATED of files that they write


def main(arguments: list[str]) -> int:
    """Writes the files that are out of date, or with --check lists them."""
    table, stale = kernel_table(), []
    files = {**FILES, **SHADERS}
    for part in MORE:
        files.update(importlib.import_module(part).GENERATED)
    for path, write in files.items():
        text, file = write(table), ROOT / path
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(path)
        if "--check" not in arguments:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="\n")
    if "--check" in arguments and stale:
        print("out of date:", *stale, "\nRun `make gen`.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
