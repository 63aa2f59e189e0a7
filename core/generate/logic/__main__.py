"""Prints python/edgewise/logic as TypeScript, web/src/logic, with source maps.

    .build/venv-check/bin/python core/generate/logic            write what changed
    .build/venv-check/bin/python core/generate/logic --check    only say what cannot be printed
    .build/venv-check/bin/python core/generate/logic FROM TO    print another folder, for tests

docs/architecture/logic.md has the rules of the subset of Python. Requires mypy.
"""

from __future__ import annotations

import ast
import base64
import json
import os
import pathlib
import re
import sys
from typing import NamedTuple

from mypy.build import BuildResult
from printed import Unsupported
from statements import Line, Module
from types_of import Types, Writer, check

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = "edgewise.logic"
# Modules whose counterparts in TypeScript are written by hand, or by core/generate.
SHARED = ROOT / "web" / "src" / "shared"
GEN = ROOT / "web" / "src" / "gen"
BY_HAND = {
    "edgewise.element_types": GEN / "session.ts",
    "edgewise.errors": SHARED / "errors.ts",
    "edgewise.logic.manifest.limits": GEN / "manifest.ts",
    "edgewise.logic.manifest.nodes": GEN / "schema.ts",
    "edgewise.logic.manifest.processor": GEN / "schema.ts",
    "edgewise.logic.manifest.schema": GEN / "schema.ts",
    "edgewise.logic.native": SHARED / "native.ts",
}


class Folders(NamedTuple):
    """What is printed, and where to."""

    source: pathlib.Path = ROOT / "python" / "edgewise" / "logic"
    output: pathlib.Path = ROOT / "web" / "src" / "logic"

    def modules(self) -> dict[str, pathlib.Path]:
        """{module: file} of all that is printed."""
        found = {}
        for path in sorted(self.source.rglob("*.py")):
            parts = path.relative_to(self.source).with_suffix("").parts
            name = ".".join([PACKAGE, *parts])
            if path.name != "__init__.py" and name not in BY_HAND:
                found[name] = path
        return found

    def printed(self, module: str) -> pathlib.Path:
        """The printed file of a module, or the one by hand."""
        return BY_HAND.get(module) or self.output.joinpath(*module.split(".")[2:]).with_suffix(
            ".ts"
        )


def relative(start: pathlib.Path, end: pathlib.Path) -> str:
    """The path by which a file names another."""
    text = os.path.relpath(end, start.parent).replace(os.sep, "/")
    return text if text.startswith(".") else f"./{text}"


class Imports:
    """The imports of a printed file.

    Args:
        module: the module that is printed.
        folders: where it is printed to.
    """

    def __init__(self, module: str, folders: Folders) -> None:
        self.module, self.folders = module, folders
        self.names: dict[str, dict[str, bool]] = {}  # module: {name: whether for types alone}

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
            path = relative(self.folders.printed(self.module), self.folders.printed(module))
            texts.append(f'import {{ {", ".join(parts)} }} from "{path}";')
        return texts


def printed(
    module: str, folders: Folders, trees: dict[str, ast.Module], result: BuildResult
) -> str:
    """The text of a module, with its map."""
    path, file = folders.modules()[module], folders.printed(module)
    imports = Imports(module, folders)
    writer = Writer(module, PACKAGE, imports.name)
    text = path.read_text(encoding="utf-8")
    check_escaped(text, trees[module])
    lines = Module(text, Types(result, module), writer, trees).module()
    name = relative(ROOT / "x", path).removeprefix("./")
    head = [f"// generated from {name} by core/generate/logic; do not edit"]
    if any("py." in line.text for line in lines):
        head.append(f'import * as py from "{relative(file, SHARED / "python.ts")}";')
    head += imports.lines()
    everything = [Line(x, 0) for x in head] + lines
    return "\n".join([*(x.text for x in everything), source_map(everything, path, file), ""])


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
    only_check = arguments == ["--check"]
    folders = Folders() if len(arguments) < 2 else Folders(*map(pathlib.Path, arguments))
    found = folders.modules()
    faults, made, texts = [], {}, {}
    for module, path in found.items():
        texts[module] = escaped(path.read_text(encoding="utf-8"))
    try:
        result = check(ROOT / "python", PACKAGE, found, texts)
    except Unsupported as e:
        print(e.what, file=sys.stderr)
        return 1
    trees = {m: ast.parse(text) for m, text in texts.items()}
    for module, path in found.items():
        try:
            made[folders.printed(module)] = printed(module, folders, trees, result)
        except Unsupported as e:
            faults.append(f"{os.path.relpath(path)}:{e.line or 1}: {e.what}")
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    if not only_check:
        write(made, folders.output)
    return 1 if faults else 0


def escaped(text: str) -> str:
    """A source with letters beyond ASCII as escapes: ast counts columns in bytes, mypy does not."""
    return re.sub(r"[^\x00-\x7f]", lambda m: f"\\U{ord(m[0]):08x}", text)


def check_escaped(text: str, tree: ast.Module) -> None:
    """Raises Unsupported if escapes have changed a text of a source."""
    for one, other in zip(ast.walk(ast.parse(text)), ast.walk(tree)):
        if isinstance(one, ast.Constant) and one.value != getattr(other, "value", None):
            raise Unsupported("a letter beyond ASCII in a raw text: write it as an escape", one)


def write(made: dict[pathlib.Path, str], output: pathlib.Path) -> None:
    """Writes what changed, and removes files whose modules are gone."""
    for file in output.rglob("*.ts"):
        if file not in made:
            file.unlink()
    for file, text in made.items():
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
