"""What README and the documentation show is real: it parses, names exist, and what is cheap is
run.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path

import pytest

from .snippets import PAGES, ROOT, Snippet, snippets, write_encoder, write_files

WEB = ROOT / "web"
PYTHON = snippets("python")


def missing_names(code: str) -> list[str]:
    """Names of edgewise that Python code imports, or asks a module for, and that do not exist."""
    tree = ast.parse(code)
    modules: dict[str, object] = {}
    missing = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "edgewise":
                    module = importlib.import_module(alias.name)
                    modules[alias.asname or "edgewise"] = (
                        module if alias.asname else importlib.import_module("edgewise")
                    )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "edgewise":
            module = importlib.import_module(node.module)
            for alias in node.names:
                try:
                    value = getattr(module, alias.name)
                except AttributeError:
                    try:
                        value = importlib.import_module(f"{node.module}.{alias.name}")
                    except ImportError:
                        missing.append(f"{node.module}.{alias.name}")
                        continue
                modules[alias.asname or alias.name] = value
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in modules
        ):
            if not hasattr(modules[node.value.id], node.attr) and not isinstance(
                modules[node.value.id], type
            ):
                missing.append(f"{node.value.id}.{node.attr}")
    return missing


@pytest.mark.parametrize("snippet", PYTHON, ids=str)
def test_python_names_exist(snippet: Snippet) -> None:
    assert not missing_names(snippet.code)


def test_missing_names_are_found() -> None:
    code = (
        "import edgewise\n"
        "from edgewise.training import Trainer, Teacher\n"
        "edgewise.InferenceSession\n"
        "edgewise.Nothing"
    )
    assert missing_names(code) == ["edgewise.training.Teacher", "edgewise.Nothing"]


RUNS = {
    str(page.relative_to(ROOT)): list(of)
    for page, of in groupby((s for s in PYTHON if s.runs), key=lambda s: s.page)
}


@pytest.mark.parametrize("page", RUNS)
def test_python_runs(page: str, tmp_path: Path) -> None:
    """The marked blocks of a page, one after the other in one process."""
    write_files(tmp_path)
    if any("all-MiniLM-L6-v2" in snippet.code for snippet in RUNS[page]):
        write_encoder(tmp_path)
    lines = ["import warnings", "names = {'__name__': '__main__'}"]
    for snippet in RUNS[page]:
        source = "\n" * (snippet.line - 1) + snippet.code
        lines.append(f"exec(compile({source!r}, {str(snippet.page)!r}, 'exec'), names)")
    (tmp_path / "page.py").write_text("\n".join(lines))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr[-3000:]


class ScriptParser(HTMLParser):
    """Collects the inline scripts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes that a script begins."""
        if tag == "script" and "src" not in dict(attrs):
            self.inside = True
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        """Notes that a script ends."""
        if tag == "script":
            self.inside = False

    def handle_data(self, data: str) -> None:
        """Adds to the script."""
        if self.inside:
            self.scripts[-1] += data


def scripts(html: str) -> list[str]:
    """The inline scripts of a page."""
    parser = ScriptParser()
    parser.feed(html)
    return parser.scripts


def type_errors(modules: dict[str, str], folder: Path) -> str:
    """Output of tsc for modules ({file name: code}) that import edgewise by name or by URL."""
    assert (WEB / "node_modules" / ".bin" / "tsc").exists(), (
        "web/node_modules is not there: run `make web`"
    )
    folder.mkdir(exist_ok=True)
    for name, code in modules.items():
        code = re.sub(r'"(\.{0,2}/)+edgewise(\.inline)?\.js"', '"edgewise"', code)
        code = re.sub(r'"(\.{0,2}/)+transformers\.js"', '"edgewise/transformers"', code)
        (folder / name).write_text(code + "\nexport {};\n")
    (folder / "ambient.d.ts").write_text((Path(__file__).parent / "ambient.d.ts").read_text())
    settings = {
        "extends": str(WEB / "tsconfig.json"),
        "compilerOptions": {
            "paths": {
                name: [str(WEB / "src" / folder / "index.ts")]
                for name, folder in (
                    ("edgewise", "page"),
                    ("edgewise/files", "page"),
                    ("edgewise/*", "extras/*"),
                )
            }
            | {"edgewise-compiler": [str(WEB / "compiler" / "dist" / "index.d.ts")]},
            "noUncheckedIndexedAccess": False,
            "typeRoots": [],
        },
        "include": [str(folder / "*.ts"), str(WEB / "src" / "**" / "*.ts")],
    }
    (folder / "tsconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [WEB / "node_modules" / ".bin" / "tsc", "--noEmit", "-p", folder / "tsconfig.json"],
        capture_output=True,
        text=True,
        timeout=550,
    )
    return done.stdout + done.stderr


def test_javascript_types(tmp_path: Path) -> None:
    """All JavaScript and TypeScript blocks, and the scripts of HTML blocks, pass tsc against the
    page's API.
    """
    modules = {}

    def add(where: str, code: str) -> None:
        modules[re.sub(r"\W+", "_", where) + ".ts"] = code

    for snippet in snippets("js", "ts"):
        add(str(snippet), snippet.code)
    for snippet in snippets("html"):
        for i, code in enumerate(scripts(snippet.code)):
            add(f"{snippet} {i}", code)
    assert len(modules) > 20
    assert not type_errors(modules, tmp_path / "modules")


def test_wrong_types_are_found(tmp_path: Path) -> None:
    errors = type_errors(
        {"wrong.ts": 'import { pipe } from "./edgewise.js";\nawait write(1);\n'}, tmp_path / "wrong"
    )
    assert "'pipe'" in errors and "number" in errors


COMMANDS = [
    (snippet, line) for snippet in snippets("sh", "console") for line in snippet.code.splitlines()
]


INLINE = re.compile(r"`((?:make|python|node|npm|edgewise) [^`\n]+)`")
STARTS = (*(p.name for p in ROOT.iterdir() if p.is_dir()), ".ci")


def wrong_command(line: str) -> str:
    """What a command names that does not exist: a target of make, an option of `edgewise`, a script
    of a package, a file of the repository; "" if nothing.
    """
    words = shlex.split(line, comments=True)
    if not words:
        return ""
    if words[0] == "edgewise":
        actions = words[2:3] if words[1] in ("federate", "release") else []
        unknown = set(re.findall(r"--[a-z-]+", line)) - options(words[1], *actions)
        return " ".join(sorted(unknown))
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text()
        targets = {
            *re.findall(r"^([a-z-]+):", makefile, re.M),
            *re.findall(r"\$\(([A-Z_]+)\)", makefile),
        }
        given = {w.partition("=")[0] for w in words[1:] if not w.startswith("-")}
        return " ".join(sorted(given - targets))
    if words[:2] == ["npm", "--prefix"]:
        scripts = json.loads((ROOT / words[2] / "package.json").read_text())["scripts"]
        name = [w for w in words[3:] if w != "run" and not w.startswith("-")][0]
        return "" if name in (*scripts, "ci", "install") else name
    if words[0] in ("python", "node"):
        paths = [w.split("::")[0] for w in words[1:] if w.split("/")[0] in STARTS and "/" in w]
        return " ".join(p for p in paths if not BUILT.match(p) and not (ROOT / p).exists())
    return ""


def test_commands_exist() -> None:
    """In blocks and in the text."""
    wrong = [f"{snippet}: {line}" for snippet, line in COMMANDS if wrong_command(line)]
    for page in PAGES:
        wrong += [f"{page}: {c}" for c in INLINE.findall(page.read_text()) if wrong_command(c)]
    assert not wrong


@pytest.mark.parametrize(
    "command",
    [
        "make tests",
        "make test TEST=tests/ops",
        "npm --prefix web run tests",
        "python tests/docs/pictures.py",
        "python -m pytest tests/nowhere -q",
        "node web/demo/server.mjs",
        "edgewise build --traine lora",
        "edgewise federate serve --tabs 3",
    ],
)
def test_wrong_commands_are_found(command: str) -> None:
    assert wrong_command(command)


@cache
def options(*command: str) -> set[str]:
    """The options of a subcommand, as its help names them."""
    done = subprocess.run(
        [sys.executable, "-m", "edgewise.cli", *command, "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    assert done.returncode == 0, f"there is no command edgewise {' '.join(command)}"
    return set(re.findall(r"--[a-z-]+", done.stdout))


PATHS = re.compile(r"`((?:python|core|web|tests|wasm|docs|examples|\.ci)/[\w./*-]+)`")
BUILT = re.compile(r"^(web/dist|web/node_modules)(/|$)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_exist(page: Path) -> None:
    """Files and folders of the repository that a page names, and those that it links to."""
    text = page.read_text()
    gone = [
        path
        for path in PATHS.findall(text)
        if not BUILT.match(path) and not any(ROOT.glob(path.rstrip("/")))
    ]
    outside_fences = re.sub(r"```.*?^```$", "", text, flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s#]+)[^)]*\)", outside_fences):
        generated = "typescript/index.html" in link
        if not generated and not re.match(r"[a-z]+:", link) and not (page.parent / link).exists():
            gone.append(link)
    assert not gone


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_fit(page: Path) -> None:
    """No line of prose or code above 100 columns; tables, links and generated parts are what they
    are.
    """
    text = re.sub(r"<!-- written by.*?until here -->", "", page.read_text(), flags=re.S)
    long = [
        line
        for line in text.splitlines()
        if len(line) > 100 and "|" not in line and "](" not in line
    ]
    assert not long
