"""Prints python/edgewise/logic as TypeScript, web/src/logic, with source maps.

    .build/venv-check/bin/python core/generate/logic            write what changed
    .build/venv-check/bin/python core/generate/logic --check    only say what cannot be printed

docs/architecture/logic.md has the rules of the subset of Python. Requires mypy.
"""

from __future__ import annotations

import ast
import base64
import json
import os
import pathlib
import sys

from printed import Unsupported
from statements import Line, Module
from types_of import Types, Writer, check

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = "edgewise.logic"
SOURCE = ROOT / "python" / "edgewise" / "logic"
OUTPUT = ROOT / "web" / "src" / "logic"
# Modules whose counterparts in TypeScript are written by hand, as paths below web/src.
BY_HAND = {"edgewise.errors": "shared/errors", "edgewise.logic.native": "shared/native"}


class Imports:
    """The imports of a printed file.

    Args:
        module: the module that is printed.
    """

    def __init__(self, module: str) -> None:
        self.module = module
        self.names: dict[str, dict[str, bool]] = {}  # file: {name: whether for types alone}

    def name(self, module: str, name: str, for_type: bool) -> str:
        """The name in this file of a name of another module."""
        if module == self.module:
            return name
        if module not in BY_HAND and not (module + ".").startswith(PACKAGE + "."):
            raise Unsupported(f"{module}.{name} is not printed: move it to logic/")
        names = self.names.setdefault(module, {})
        names[name] = names.get(name, True) and for_type
        return name

    def lines(self) -> list[str]:
        """The statements."""
        texts = []
        for module in sorted(self.names):
            names = self.names[module]
            parts = [f"type {n}" if names[n] else n for n in sorted(names)]
            texts.append(
                f'import {{ {", ".join(parts)} }} from "{path_between(self.module, module)}";'
            )
        return texts


def path_between(importer: str, module: str) -> str:
    """The path by which one printed file imports another."""
    start = file_of(importer).parent
    target = BY_HAND.get(module)
    end = ROOT / "web" / "src" / f"{target}.ts" if target else file_of(module)
    text = os.path.relpath(end, start).replace(os.sep, "/")
    return text if text.startswith(".") else f"./{text}"


def file_of(module: str) -> pathlib.Path:
    """The printed file of a module."""
    return OUTPUT.joinpath(*module.split(".")[2:]).with_suffix(".ts")


def modules() -> dict[str, pathlib.Path]:
    """{module: file} of all that is printed."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join([PACKAGE, *parts])
        if path.name != "__init__.py" and name not in BY_HAND:
            found[name] = path
    return found


def printed(module: str, path: pathlib.Path, trees: dict[str, ast.Module], result: object) -> str:
    """The text of a module, with its map."""
    imports = Imports(module)
    writer = Writer(module, PACKAGE, imports.name)
    text = path.read_text(encoding="utf-8")
    lines = Module(text, Types(result, module), writer, trees).module()  # type: ignore[arg-type]
    relative = path.relative_to(ROOT).as_posix()
    head = [f"// generated from {relative} by core/generate/logic; do not edit"]
    helpers = os.path.relpath(ROOT / "web/src/shared/python.ts", file_of(module).parent)
    body = "\n".join(line.text for line in lines)
    if "py." in body:
        head.append(f'import * as py from "{helpers.replace(os.sep, "/")}";')
    head += imports.lines()
    everything = [Line(x, 0) for x in head] + lines
    return (
        "\n".join(x.text for x in everything)
        + "\n"
        + source_map(everything, path, file_of(module))
        + "\n"
    )


def source_map(lines: list[Line], source: pathlib.Path, file: pathlib.Path) -> str:
    """The comment with a map of the lines."""
    parts, before = [], 0
    for line in lines:
        if not line.source:
            parts.append("")
            continue
        column = len(line.text) - len(line.text.lstrip())
        parts.append("".join(map(_vlq, (column, 0, line.source - 1 - before, 0))))
        before = line.source - 1
        # the source's own index is relative as well: it is 0 in each segment
    table = {
        "version": 3,
        "sources": [os.path.relpath(source, file.parent).replace(os.sep, "/")],
        "names": [],
        "mappings": ";".join(parts),
    }
    data = base64.b64encode(json.dumps(table).encode()).decode()
    return f"//# sourceMappingURL=data:application/json;base64,{data}"


def _vlq(value: int) -> str:
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    value = value << 1 if value >= 0 else (-value << 1) | 1
    text = ""
    while True:
        digit, value = value & 31, value >> 5
        text += digits[digit | (32 if value else 0)]
        if not value:
            return text


def main(arguments: list[str]) -> int:
    """Prints all modules. Returns 1 and says which lines are at fault if some cannot be."""
    found = modules()
    trees = {m: ast.parse(p.read_text(encoding="utf-8")) for m, p in found.items()}
    try:
        result = check(ROOT / "python", PACKAGE, found)
    except Unsupported as e:
        print(e.what, file=sys.stderr)
        return 1
    faults, made = [], {}
    for module, path in found.items():
        try:
            made[file_of(module)] = printed(module, path, trees, result)
        except Unsupported as e:
            faults.append(f"{path.relative_to(ROOT)}:{e.line or 1}: {e.what}")
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    if "--check" not in arguments:
        write(made)
    return 1 if faults else 0


def write(made: dict[pathlib.Path, str]) -> None:
    """Writes what changed, and removes files whose modules are gone."""
    for file in OUTPUT.rglob("*.ts"):
        if file not in made:
            file.unlink()
    for file, text in made.items():
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
