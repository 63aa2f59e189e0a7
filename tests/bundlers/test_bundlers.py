"""Pages built with each bundler from the npm package, on a plain static server.

The package is the output of `npm pack`; nothing is configured. `edgewise` contains its worker and
engine; `edgewise/files` has them as files, which a bundler must copy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading

import pytest
from tiers import slow_unless

from .conftest import BIN, BUNDLERS, CLASSIC, DIST, HTML, MODEL, MODULE, PAGE, title

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


CASES = [(bundler, package) for bundler in COMMANDS for package in ("edgewise", "edgewise/files")]


@pytest.mark.parametrize("bundler, package", slow_unless(quick, CASES))
def test_bundler(browser, serve, text, bundler, package) -> None:
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


@pytest.mark.parametrize(
    "package", slow_unless(lambda package: package == "edgewise", ["edgewise", "edgewise/files"])
)
def test_development_server_of_vite(browser, text, package) -> None:
    """Vite's own server, which bundles each package before the page. Without `--force` it would
    keep that of an older build.
    """
    source = BUNDLERS / "source" / f"vite-serve-{package.replace('/', '-')}"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    (source / "main.js").write_text(PAGE.replace("PACKAGE", package))
    (source / "index.html").write_text(HTML + MODULE.replace("main.js", "./main.js") + "</script>")
    (source / "public").mkdir()
    shutil.copy(MODEL, source / "public" / "model.edge")
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
        assert title(browser, address[0]) == f"wrote {text}"
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
