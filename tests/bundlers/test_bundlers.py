"""Pages built with each bundler from the npm package, on a plain static server.

The package is the output of `npm pack`; nothing is configured. `edgewise` contains its worker and
engine; `edgewise/files` has them as files, which a bundler must copy.
"""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser.conftest import browser, built  # noqa: F401  (fixtures)
from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
BUNDLERS = ROOT / ".build" / "bundlers"
BIN = BUNDLERS / "node_modules" / ".bin"
MODEL = ROOT / "web" / "dist" / "demo" / "model.edge"
PAGE = """
import { pipeline } from "PACKAGE";

async function main() {
  const write = await pipeline("text-generation", "/model.edge");
  const [{ generated_text: text }] = await write("Once", { max_new_tokens: 8, do_sample: false });
  document.title = `wrote ${text}`;
}

main().catch((e) => (document.title = `failed: ${e.message} ${e.where}`));
"""
HTML = '<!doctype html><meta charset="utf-8"><title>waits</title>'
MODULE, CLASSIC = '<script type="module" src="main.js">', "<script defer src='main.js'>"

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


class Handler(http.server.SimpleHTTPRequestHandler):
    """A minimal static server with the MIME types that browsers require."""

    protocol_version = "HTTP/1.1"
    extensions_map = {".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm"}

    def log_message(self, *_: object) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", "*")
        super().end_headers()


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    servers = []

    def start(folder: Path) -> str:
        handler = functools.partial(Handler, directory=str(folder))
        server = http.server.ThreadingHTTPServer(("localhost", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://localhost:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()


def title(browser: Browser, url: str) -> str:  # noqa: F811
    page = browser.new_page()
    try:
        page.goto(url)
        page.wait_for_function("document.title !== 'waits'", timeout=120_000)
        return page.title()
    finally:
        page.close()


@pytest.fixture(scope="session")
def text() -> str:
    import edgewise

    write = edgewise.pipeline("text-generation", str(MODEL))
    return write("Once", max_new_tokens=8, do_sample=False)[0]["generated_text"]


@pytest.mark.parametrize("package", ["edgewise", "edgewise/files"])
@pytest.mark.parametrize("bundler", COMMANDS)
def test_bundler(browser, serve, text, bundler, package) -> None:  # noqa: F811
    """The page generates text. Bundlers that copy no files do not support the package of files;
    Parcel reads `exports` only if it is configured to.
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
    (source / "main.js").write_text(PAGE.replace("PACKAGE", package))
    (source / "index.html").write_text(HTML + MODULE.replace("main.js", "./main.js") + "</script>")
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
    shutil.copy(MODEL, out / "model.edge")
    assert title(browser, serve(out) + "/index.html") == f"wrote {text}"


@pytest.mark.parametrize("file", ["edgewise.js", "edgewise.inline.js", "edgewise.global.js"])
def test_script_of_another_origin(browser, serve, tmp_path, text, file) -> None:  # noqa: F811
    """Loaded from another origin, as from a CDN: a module, and a classic script that defines
    `edgewise`.
    """
    library = serve(ROOT / "web" / "dist") + "/" + file
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


def test_package() -> None:
    """publint reports no problems, and the package can be imported outside of a page."""
    package = BUNDLERS / "node_modules" / "edgewise"
    lint = subprocess.run(
        [BIN / "publint", package, "--strict"], stdout=subprocess.PIPE, text=True, cwd=BUNDLERS
    )
    assert lint.returncode == 0, lint.stdout
    for name in ("edgewise", "edgewise/files"):
        subprocess.run(
            ["node", "--input-type=module", "-e", f"await import({name!r})"],
            cwd=BUNDLERS,
            check=True,
            stdout=subprocess.DEVNULL,
        )


def test_node(tmp_path, text) -> None:
    """Node takes its own build: a worker thread writes and trains, models are files."""
    shutil.copy(MODEL, tmp_path / "model.edge")
    (tmp_path / "ends.mjs").write_text("process.exit(0);")
    script = """
        import { env, fineTune, pipeline } from "edgewise";
        process.chdir(FOLDER);
        const write = await pipeline("text-generation", "model.edge");
        const [{ generated_text: text }] = await write("Once", {
          max_new_tokens: 8,
          do_sample: false,
        });
        const losses = [];
        await fineTune(write, "The king of the hill said hello. ".repeat(60), {
          max_steps: 3,
          onStep: ({ loss }) => losses.push(loss),
        });
        const missing = await pipeline("text-generation", "none.edge").catch((e) => e.name);
        await write.dispose();
        env.workerUrl = "ends.mjs"; // ends without an error
        const ended = await pipeline("text-generation", "model.edge").catch((e) => e.message);
        console.log(JSON.stringify({ text, losses, missing, ended }));
    """
    printed = subprocess.run(
        ["node", "--input-type=module", "-e", script.replace("FOLDER", json.dumps(str(tmp_path)))],
        cwd=BUNDLERS,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
    ).stdout
    answer = json.loads(printed)
    assert answer["text"] == text and answer["missing"] == "ModelError"
    assert "the worker failed (it ended with code 0)" in answer["ended"]
    assert len(answer["losses"]) == 3 and answer["losses"][2] < answer["losses"][0]
