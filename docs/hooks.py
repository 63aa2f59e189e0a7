"""MkDocs hooks: files of the repository outside docs/ that are pages or images of the site.

Pages link to them by their place in the repository, so the links work there as well.
"""

from __future__ import annotations

import posixpath
import re
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


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files of OUTSIDE to the site."""
    for path, target in OUTSIDE.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites links between docs/ and OUTSIDE from the repository's layout to the site's.

    A link to a file of the repository that is not in the site becomes its text.
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

    return LINK.sub(rewrite, markdown)
