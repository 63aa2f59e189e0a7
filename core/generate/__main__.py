"""Generates C and TypeScript from the declarations in python/edgewise.

    python3 core/generate            write core/gen, web/src/gen, python/edgewise/compiler/gpu/gen
    python3 core/generate --built    write those that are not committed: the shaders
    python3 core/generate --check    exit with 1 if one of these files is out of date

Requires only Python.
"""

from __future__ import annotations

import importlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python")]

from edgewise.compiler.ops.table import kernel_table  # noqa: E402  (the path is set above)

# Modules with FILES: {path: function that returns its text}. The first ones write what others
# import, and is not committed.
BUILT = ("shaders", "shaders_typescript")
COMMITTED = (
    "formulas",
    "kernels",
    "limits",
    "manifest",
    "plan_format",
    "plans",
    "sampling",
    "worker_parts",
)


def main(arguments: list[str]) -> int:
    """Writes the files that are out of date, or with --check lists them."""
    table, stale = kernel_table(), []
    for part in BUILT if "--built" in arguments else (*BUILT, *COMMITTED):
        for path, write in importlib.import_module(part).FILES.items():
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
