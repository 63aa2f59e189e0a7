"""MkDocs hooks: files of the repository outside docs/ that are pages, images or code of the site,
and its versions.

Pages link to them by their place in the repository, so the links work there as well. The site of a
version is in a folder of its name; beside it versions.json lists the folders that are there, for
the selector, and index.html leads to the newest one.
"""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]

# Path in the repository: path in the site's sources.
OUTSIDE = {
    "CONTRIBUTING.md": "contribute/contributing.md",
    "CHANGELOG.md": "contribute/changelog.md",
    "tests/onnx_suite/OPERATORS.md": "reference/operators.md",
    "tests/bench/results/results.md": "reference/benchmark-results.md",
    **{
        f"tests/bench/results/{path.name}": f"images/{path.name}"
        for path in (ROOT / "tests/bench/results").glob("*.svg")
    },
}
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
INCLUDE = re.compile(r"^<!-- include: (\S+) -->$", re.M)
LANGUAGES = {".html": "html", ".js": "js", ".mjs": "js", ".py": "python", ".ipynb": "python"}
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(\D\w*)?")
LEAD = """<!doctype html>
<meta charset="utf-8">
<title>Edgewise</title>
<meta http-equiv="refresh" content="0; url={0}/">
<a href="{0}/">Edgewise {0}</a>
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the site into a folder of its version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    config.site_dir = str(Path(config.site_dir) / project["version"])
    return config


def on_post_build(config: MkDocsConfig) -> None:
    """Lists the versions that are there, the newest first, and leads to it."""
    folder = Path(config.site_dir).parent

    def order(name: str) -> tuple[int, int, int, bool, str]:
        major, minor, patch, candidate = VERSION.fullmatch(name).groups()
        return int(major), int(minor), int(patch), candidate is None, candidate or ""

    names = [path.name for path in folder.iterdir() if VERSION.fullmatch(path.name)]
    names.sort(key=order, reverse=True)
    versions = [{"version": name, "title": name, "aliases": []} for name in names]
    (folder / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")
    newest = next((name for name in names if order(name)[3]), names[0])
    (folder / "index.html").write_text(LEAD.format(newest))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files of OUTSIDE to the site."""
    for path, target in OUTSIDE.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Includes code, and rewrites links between docs/ and OUTSIDE from the repository's layout to
    the site's. A link to a file of the repository that is not in the site becomes its text.
    """
    source = page.file.src_uri
    origin = next((path for path, target in OUTSIDE.items() if target == source), f"docs/{source}")

    def rewrite(match: re.Match[str]) -> str:
        text, link, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))
        if path in OUTSIDE:
            target = OUTSIDE[path]
        elif path.startswith("docs/"):
            target = path.removeprefix("docs/")
        elif (ROOT / path).exists():
            return text
        else:
            return match[0]
        return f"[{text}]({posixpath.relpath(target, str(PurePosixPath(source).parent))}{anchor})"

    return INCLUDE.sub(lambda match: included(match[1]), LINK.sub(rewrite, markdown))


def included(path: str) -> str:
    """A file of the repository as a block of code; of a notebook its cells of code."""
    text = (ROOT / path).read_text()
    if path.endswith(".ipynb"):
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    language = LANGUAGES[PurePosixPath(path).suffix]
    return f'```{language} title="{path}"\n{text.rstrip()}\n```'
