"""Pages built with each bundler from the npm package, on a plain static server.

The package is the output of `npm pack`; nothing is configured. `edgewise` contains its worker and
engine; `edgewise/files` has them as files, which a bundler must copy.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route
from tiers import slow_unless

from .conftest import (
    BIN,
    BUNDLERS,
    CLASSIC,
    DIST,
    EVERYTHING,
    HTML,
    MAIN,
    MODEL,
    MODULE,
    PAGE,
    title,
)
from .test_cdn import BODY, answer, check
from .test_cdn import MODEL as ONNX

JSDELIVR = "https://cdn.jsdelivr.net/npm/"

# Command-line arguments, and the HTML tag if the bundler does not write one. {source} is the folder
# of the page, {out} the output folder.
COMMANDS: dict[str, tuple[list[str], str | None]] = {
    "vite": (["build", "{source}", "--outDir", "{out}", "--emptyOutDir"], None),
    "parcel": (
        ["build", "{source}/index.html", "--dist-dir", "{out}", "--no-cache", "--public-url", "./"],
        None,
    ),
    "webpack": (["--mode", "production", "--entry", "{source}/main.js", "-o", "{out}"], CLASSIC),
    "rspack": (
        ["build", "--mode", "production", "--entry", "{source}/main.js", "-o", "{out}"],
        CLASSIC,
    ),
    "rollup": (
        ["{source}/main.js", "-p", "@rollup/plugin-node-resolve", "-f", "es", "-d", "{out}"],
        MODULE,
    ),
    "esbuild": (["{source}/main.js", "--bundle", "--format=esm", "--outdir={out}"], MODULE),
}


def quick(bundler: str, package: str) -> bool:
    """The package of one file with each bundler, that of files with the most used one."""
    return package == "edgewise" or bundler == "vite"


# Of the CDN, in the order of their names: an engine, and parts for sounds.
CDN_FILES = ["edgewise-relaxed-threads-full.wasm", "part-enhancement.js", "part-graphs.js"]


def write_page(source: Path, package: str) -> None:
    (source / "main.js").write_text(MAIN)
    (source / "everything.js").write_text(EVERYTHING.replace('"edgewise"', f'"{package}"'))
    (source / "index.html").write_text(HTML + MODULE.replace("main.js", "./main.js") + "</script>")


def from_cdn(page: Page, asked: list[str]) -> None:
    """Answers as the CDN does that the library falls back on."""
    page.route(re.compile(re.escape(JSDELIVR)), functools.partial(answer, asked, [], JSDELIVR))


def bundle(bundler: str, source: Path, out: Path) -> None:
    arguments, tag = COMMANDS[bundler]
    done = subprocess.run(
        [BIN / bundler, *(a.format(source=source, out=out) for a in arguments)],
        cwd=BUNDLERS,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "Critical dependency" not in done.stdout
    if tag:
        (out / "index.html").write_text(HTML + tag + "</script>")


CASES = [(bundler, package) for bundler in COMMANDS for package in ("edgewise", "edgewise/files")]


@pytest.mark.parametrize("bundler, package", slow_unless(quick, CASES))
def test_bundler(browser, serve, everything, bundler, package) -> None:
    """The page writes, sees and hears. Bundlers that copy no files do not support the package of
    files, and with the other one take what is beside it from the CDN; Parcel reads `exports` only
    if it is configured to.
    """
    if package == "edgewise/files" and bundler in ("rollup", "esbuild"):
        pytest.skip(f"{bundler} copies no files")
    if package == "edgewise/files" and bundler == "parcel":
        package = "edgewise/dist/edgewise.js"
    name = f"{bundler}-{package.replace('/', '-')}"
    source, out = BUNDLERS / "source" / name, BUNDLERS / "out" / name
    for folder in (source, out):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    write_page(source, package)
    bundle(bundler, source, out)
    said, packages = everything
    for path in packages:
        shutil.copy(path, out)
    asked: list[str] = []
    found = title(browser, serve(out) + "/index.html", lambda page: from_cdn(page, asked))
    assert found == f"did {said}"
    names = {url.rsplit("/", 1)[1] for url in asked}  # two workers may ask for one file
    assert sorted(names) == (CDN_FILES if bundler in ("rollup", "esbuild") else [])


@pytest.mark.parametrize("bundler", slow_unless(lambda name: name in ("vite", "esbuild"), COMMANDS))
def test_compiler(browser, serve, bundler) -> None:
    """With edgewise-compiler, which is imported once, a page compiles an .onnx file. Where a
    bundler copies no files they come from the CDN, by their hashes.
    """
    source, out = BUNDLERS / "source" / f"{bundler}-onnx", BUNDLERS / "out" / f"{bundler}-onnx"
    for folder in (source, out):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    imports = 'import "edgewise-compiler";\nimport { InferenceSession, Tensor } from "edgewise";\n'
    (source / "main.js").write_text(imports + BODY)
    (source / "index.html").write_text(HTML + MODULE.replace("main.js", "./main.js") + "</script>")
    bundle(bundler, source, out)
    (out / "model.onnx").write_bytes(ONNX.SerializeToString())
    asked: list[str] = []
    check(title(browser, serve(out) + "/index.html", lambda page: from_cdn(page, asked)))
    python = {url.rsplit("/", 1)[1] for url in asked if "/edgewise-compiler@" in url}
    copied = bundler not in ("rollup", "esbuild")
    assert not asked if copied else {"pyodide.mjs", "pyodide.asm.wasm"} <= python


def test_a_changed_compiler_is_refused(browser, serve, tmp_path) -> None:
    """A file of Python on the CDN that is not the package's; the error names what to install."""
    source = BUNDLERS / "source" / "changed"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    (source / "main.js").write_text('import { InferenceSession, Tensor } from "edgewise";' + BODY)
    bundle("esbuild", source, tmp_path)
    (tmp_path / "model.onnx").write_bytes(ONNX.SerializeToString())

    def altered(page: Page) -> None:
        from_cdn(page, [])
        headers = {"Access-Control-Allow-Origin": "*", "Content-Type": "text/javascript"}
        script = "export const loadPyodide = () => { throw new Error('altered'); };"
        page.route("**/pyodide.mjs", lambda route: route.fulfill(body=script, headers=headers))

    said = title(browser, serve(tmp_path) + "/index.html", altered)
    assert "SHA-256" in said and "altered" not in said, said
    assert 'add `import "edgewise-compiler"`' in said


def test_files_that_are_left_behind(browser, serve, everything, tmp_path) -> None:
    """Of a bundle without them: a file of the CDN that is not the package's is refused, with words
    that name the file, its place and the line to add. With that line no CDN is asked, nor where the
    page's own server fails.
    """
    source, said, packages = BUNDLERS / "source" / "left", *everything
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    write_page(source, "edgewise")
    build = [BIN / "esbuild", "--bundle", "--format=esm", "--log-level=error"]
    subprocess.run([*build, source / "main.js", f"--outdir={tmp_path}"], cwd=BUNDLERS, check=True)
    with open(source / "main.js", "a") as main:
        main.write('import { env } from "edgewise";\nenv.filesUrl = "/edgewise/";\n')
    with_line = tmp_path / "line"
    subprocess.run([*build, source / "main.js", f"--outdir={with_line}"], cwd=BUNDLERS, check=True)
    for folder in (tmp_path, with_line):
        (folder / "index.html").write_text(HTML + MODULE + "</script>")
    for path in packages:
        shutil.copy(path, tmp_path)
    (tmp_path / "edgewise").symlink_to(BUNDLERS / "node_modules" / "edgewise" / "dist")
    asked: list[str] = []

    def altered(route: Route) -> None:
        asked.append(route.request.url)
        headers = {"Access-Control-Allow-Origin": "*", "Content-Type": "application/wasm"}
        route.fulfill(body=b"\0asm\1\0\0\0", headers=headers)

    def from_another(page: Page) -> None:
        page.route(re.compile(re.escape(JSDELIVR)), altered)

    def while_own_fails(page: Page) -> None:
        from_another(page)
        page.route(f"{site}/**/*-full.wasm", lambda route: route.fulfill(status=503))

    site = serve(tmp_path)
    refused = title(browser, site + "/index.html", from_another)
    assert re.search(r"needs 'media', .*could not be loaded.*HTTP 404", refused), refused
    assert "node_modules/edgewise/dist/engine/edgewise-simd128-threads-full.wasm" in refused
    assert 'env.filesUrl = "/edgewise/"' in refused and asked
    asked.clear()
    assert title(browser, site + "/line/index.html", from_another) == f"did {said}"
    failed = title(browser, site + "/index.html", while_own_fails)
    assert re.search(r"could not be loaded.*HTTP 503", failed), failed
    assert not asked


@pytest.mark.parametrize(
    "package", slow_unless(lambda package: package == "edgewise", ["edgewise", "edgewise/files"])
)
def test_development_server_of_vite(browser, everything, package) -> None:
    """Vite's own server, which bundles each package before the page. Without `--force` it would
    keep that of an older build.
    """
    source = BUNDLERS / "source" / f"vite-serve-{package.replace('/', '-')}"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    write_page(source, package)
    (source / "public").mkdir()
    said, packages = everything
    for path in packages:
        shutil.copy(path, source / "public")
    server = subprocess.Popen(
        [BIN / "vite", source, "--port", "0", "--host", "localhost", "--force"],
        cwd=BUNDLERS,
        env=os.environ | {"NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    patience = threading.Timer(240, server.kill)
    patience.start()
    try:
        printed = []
        for line in server.stdout:
            printed.append(line)
            if address := re.search(r"http://localhost:\d+/", line):
                break
        else:
            pytest.fail("".join(printed))
        patience.cancel()
        asked: list[str] = []
        found = title(browser, address[0], lambda page: from_cdn(page, asked))
        assert (found, asked) == (f"did {said}", [])
    finally:
        patience.cancel()
        server.terminate()
        server.wait()


@pytest.mark.parametrize("file", ["edgewise.js", "edgewise.inline.js", "edgewise.global.js"])
def test_script_of_another_origin(browser, serve, tmp_path, text, file) -> None:
    """Loaded from another origin, as from a CDN: a module, and a classic script that defines
    `edgewise`.
    """
    library = serve(DIST) + "/" + file
    main = PAGE.replace("PACKAGE", library)
    if "global" in file:
        main = main.replace(
            f'import {{ pipeline }} from "{library}";', "const { pipeline } = edgewise;"
        )
        script = f'<script src="{library}"></script><script>{main}</script>'
    else:
        script = f'<script type="module">{main}</script>'
    (tmp_path / "index.html").write_text(HTML + script)
    shutil.copy(MODEL, tmp_path / "model.edge")
    assert title(browser, serve(tmp_path) + "/index.html") == f"wrote {text}"
