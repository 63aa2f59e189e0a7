"""The npm package: its fields, declarations, files and sizes."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from .conftest import BIN, BUNDLERS, DIST, HTML, MODEL, PAGE, ROOT

# Bytes after gzip until the text model of a package can run, and of one file, which has what most
# pages use; docs/guide/install.md has the sizes, and what is beside the one file.
# Of the first files, 1 kB is for calls by shared memory, whose ends are in both, 1 kB for memory
# beyond 4 GB, 2 kB for the division of processors by priority, and 2 kB for the engine's products
# with 4-bit weights in blocks of bytes.
# The one file has 514 kB: it holds whatever is not beside it, and grows with the tasks' rules:
# training alone with DoRA, pairs of sounds, texts and pictures, packing, averages, teachers,
# estimates and cards by 20 kB.
FILES_LIMIT, ONE_FILE_LIMIT = 305_000, 530_000
# 3 MB was the goal; mixtures beyond memory, `auto` for everything, faster kernels, priorities, and
# tests and variants of shaders took 82 kB more
INSTALL_LIMIT = 3_100_000
ENGINE_LIMIT = 150_000  # after brotli, as a site serves it; the largest of all builds
WIDE_LIMIT = 156_000  # of the one with 64-bit addresses, which models beyond 4 GB alone load
# The same of the part for GPUs that language models need, and of those with more shaders. The first
# one has all variants of products and attention, between which each GPU chooses.
GPU_LIMITS = {"webgpu": 42_000, "webgpu-images": 10_000}
GPU_LIMITS |= {"webgpu-bytes": 7_000, "webgpu-training": 7_000, "webgpu-serial": 5_000}
GPU_LIMITS |= {"webgpu-probe": 3_000, "webgpu-choice": 2_000, "webgpu-test": 5_000}
GPU_LIMITS |= {"webgpu-tests": 10_000}  # plans for kernels, and for steps that share a dispatch
GPU_LIMITS |= {"webgpu-tuning": 4_500}  # two plans for each tunable

NAMES = ("edgewise", "edgewise-compiler")

# Scripts of the worker that a task needs beside worker.js and worker-inference.js, which runs any
# graph, and their bytes after brotli at most; docs/guide/pipelines.md has the sizes. The goal is
# 35,000 with the page's part, which is 5 kB; models that hear are above it, since the part for
# prompts also has that of pictures. The parts "generation" and "multimodal" also read pairs, for
# training.
# fmt: off
TASKS = {
    "texts": (["pipelines", "texts"], 17_500),
    "pictures": (["pipelines", "images"], 20_250),
    "pictures, any labels": (["pipelines", "images", "candidates"], 20_750),
    "pictures, objects": (["pipelines", "images", "candidates", "objects"], 22_250),
    "pictures, masks": (["pipelines", "images", "masks"], 25_000),
    "pictures, their texts": (["pipelines", "images", "ocr"], 23_500),
    "pictures, questions": (["pipelines", "images", "generation", "multimodal"], 40_200),
    "sounds, questions": (["pipelines", "images", "sounds", "generation", "multimodal"], 47_100),
    "sounds": (["pipelines", "sounds"], 15_000),
    "sounds, any labels": (["pipelines", "sounds", "candidates"], 15_500),
    "translation": (["pipelines", "generation"], 12_500),
    "speech": (["pipelines", "sounds", "generation", "speech"], 31_500),
    "moonshine": (["pipelines", "sounds", "generation", "moonshine"], 21_500),
    "transducers": (["pipelines", "sounds", "hearing"], 20_000),
    "pictures to text": (["pipelines", "images", "generation", "writing"], 28_000),
    "text-to-speech": (["pipelines", "voices"], 11_000),
    "codecs": (["pipelines", "sounds", "onnx", "graphs", "codecs"], 30_500),
    "speech of graphs": (["onnx", "graphs", "speakers"], 15_000),
    "speech of a voice": (["sounds", "onnx", "graphs", "speakers", "cloning"], 29_500),
    "who spoke when": (["sounds", "onnx", "graphs", "diarization"], 24_000),
    "sound for sound": (["sounds", "onnx", "graphs", "enhancement"], 22_000),
    "text-to-image": (["pipelines", "images", "diffusion"], 32_000),
    "personal": (["heads"], 9_500),
    "personal, with adapters": (["heads", "adapters"], 13_500),
}
# fmt: on


def run(*command: str | Path) -> str:
    done = subprocess.run(
        command, cwd=BUNDLERS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def compressed(path: Path) -> int:
    return len(gzip.compress(path.read_bytes(), 9))


@pytest.mark.parametrize("name", NAMES)
def test_fields(name) -> None:
    """publint reports no problem."""
    run(BIN / "publint", BUNDLERS / "node_modules" / name, "--strict")


def test_size_of_an_install() -> None:
    """The package of an app without a compiler, as npm shows it: compressed."""
    [archive] = BUNDLERS.glob("edgewise-[0-9]*.tgz")
    assert archive.stat().st_size <= INSTALL_LIMIT


def test_what_needs_no_compiler_has_no_file_of_it() -> None:
    files = [p.name for p in (BUNDLERS / "node_modules" / "edgewise").rglob("*") if p.is_file()]
    assert not [n for n in files if n.endswith((".map", ".whl", ".snapshot")) or "pyodide" in n]


@pytest.mark.slow("test_declarations_are_one_file")
def test_declarations_of_entries() -> None:
    """Are The Types Wrong reports no problems. sw.js is not imported, but served."""
    [archive] = BUNDLERS.glob("edgewise-[0-9]*.tgz")
    attw = [BIN / "attw", archive, "--profile", "esm-only", "--no-emoji"]
    run(*attw, "--exclude-entrypoints", "sw.js")


def test_licences() -> None:
    """The package has its licence, and that of each package whose code its scripts contain."""
    package, compiler = (BUNDLERS / "node_modules" / name for name in NAMES)
    for folder in (package, compiler):
        assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    scripts = [path.name for path in (package / "dist").glob("*.js")]
    maps = [json.loads((DIST / f"{name}.map").read_text()) for name in scripts]
    sources = "\n".join(source for found in maps for source in found["sources"])
    contained = set(re.findall(r"node_modules/((?:@[^/\n]+/)?[^/\n]+)", sources))
    assert {"@huggingface/jinja", "@huggingface/tokenizers"} <= contained
    texts = (package / "THIRD-PARTY-LICENSES.txt").read_text()
    for name in contained:
        assert (ROOT / "web" / "node_modules" / name / "LICENSE").read_text() in texts, name
    assert "Emscripten" in texts
    texts = (compiler / "THIRD-PARTY-LICENSES.txt").read_text()
    for part in ("CPython", "Pyodide", "Emscripten", "@huggingface/tokenizers"):
        assert part in texts


def test_declarations_are_one_file() -> None:
    """The declarations are valid, import nothing, and export what the module exports."""
    package = BUNDLERS / "node_modules" / "edgewise"
    declared = (package / "dist" / "edgewise.d.ts").read_text()
    assert "import " not in "\n".join(
        line for line in declared.splitlines() if not line.lstrip().startswith("*")
    )
    assert not (package / "dist" / "types").exists()
    tsc = ROOT / "web" / "node_modules" / ".bin" / "tsc"
    options = ["--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,dom", "--types", ""]
    run(tsc, *options, package / "dist" / "edgewise.d.ts")  # without skipLibCheck
    script = 'console.log(JSON.stringify(Object.keys(await import("edgewise"))))'
    names = json.loads(run("node", "--input-type=module", "-e", script))
    listed = declared[declared.rindex("\nexport { ") :].split("}")[0]
    exported = listed.removeprefix("\nexport { ").rstrip().split(", ")
    assert sorted(names) == sorted(name.split(" as ")[-1] for name in exported)


@pytest.mark.parametrize("name", ["edgewise", "edgewise/files"])
def test_import_outside_of_a_page(name) -> None:
    """A server that renders pages can import the module."""
    for condition in ("node", "browser"):
        run("node", f"--conditions={condition}", "--input-type=module", "-e", f"import {name!r}")


def test_files(browser, serve, tmp_path) -> None:
    """A page from another origin requests what it needs and nothing else: a text model, then one
    that can be trained, then another kind of model.
    """
    from edgewise.host.session.decoder import open_package

    library = serve(DIST)
    # fmt: off
    main = PAGE.replace("PACKAGE", f"{library}/edgewise.js").replace(
        "pipeline }", "fineTune, InferenceSession, pipeline }"
    ).replace("document.title = `wrote", """window.more = [
        () => pipeline("text-generation", "/trained.edge").then((p) => void (window.trained = p)),
        () => fineTune(trained, "The king of the hill said hello. ".repeat(60), { max_steps: 1 }),
        () => InferenceSession.create("/missing.edge").catch((e) => e.name),
      ].map((run) => async () => String(await run()));
      document.title = `wrote""")
    # fmt: on
    (tmp_path / "index.html").write_text(HTML + f'<script type="module">{main}</script>')
    with open(tmp_path / "model.edge", "wb") as out:
        open_package(ROOT / "web" / "demo" / "model").write(out)
    shutil.copy(MODEL, tmp_path / "trained.edge")
    page = browser.new_page()
    requested: list[str] = []
    page.context.on("request", lambda request: requested.append(request.url))
    page.goto(serve(tmp_path) + "/index.html")
    page.wait_for_function("document.title !== 'waits'")
    assert page.title().startswith("wrote"), page.title()

    def new() -> set[str]:
        seen = {urlsplit(url).path[1:] for url in requested if url.startswith(library)}
        requested.clear()
        return seen

    first = new()
    [engine] = {name for name in first if name.endswith(".wasm")}
    assert first == {"edgewise.js", "worker.js", engine}
    assert sum(compressed(DIST / name) for name in first) <= FILES_LIMIT
    page.evaluate("more[0]()")
    page.evaluate("more[1]()")
    again = {"worker.js", engine}  # of another worker
    assert {"worker-training.js"} <= new() <= {"worker-training.js", *again}
    assert page.evaluate("more[2]()") == "ModelError"
    assert {"worker-inference.js"} <= new() <= {"worker-inference.js", *again}
    page.close()


@pytest.mark.parametrize("name", ["edgewise.inline.js", "edgewise.global.js"])
def test_size_of_one_file(name) -> None:
    assert compressed(DIST / name) <= ONE_FILE_LIMIT


def test_size_of_webgpu() -> None:
    for name, limit in GPU_LIMITS.items():
        assert compressed(DIST / f"worker-{name}.js") <= limit, name
        assert compressed(DIST / f"part-{name}.js") <= limit, name


def test_size_of_transformers() -> None:
    """transformers.js' names, and the tokenizers that the first one loads. The library itself has
    none of this.
    """
    for kind in ("", ".inline", ".node"):
        assert compressed(DIST / f"transformers{kind}.js") <= 8_500
        assert compressed(DIST / f"transformers-text{kind}.js") <= 41_000


def test_size_of_engines() -> None:
    engines = sorted((DIST / "engine").glob("*.wasm"))
    assert engines
    for path in engines:
        limit = WIDE_LIMIT if path.stem.endswith("-64") else ENGINE_LIMIT
        assert brotli([path]) <= limit, path.name


def test_pages_of_engines(tmp_path) -> None:
    """A build that begins with more memory than hosts give it is refused, whatever Node can run."""
    for name in ("edgewise-relaxed-threads.wasm", "edgewise-relaxed-threads-64.wasm"):
        built, limits = DIST / "engine" / name, ["9999999", "9999999", "31"]
        check = ["node", ROOT / "wasm" / "check.mjs", built, *limits, tmp_path / name]
        done = subprocess.run(check, capture_output=True, text=True)
        assert done.returncode == 1 and "begins with 32 pages" in done.stderr, done


def test_size_beside_the_one_file() -> None:
    """docs/guide/install.md says the sum of the files that bundlers copy."""
    named = set(re.findall(r'new URL\("\./([^"]+)"', (DIST / "edgewise.inline.js").read_text()))
    files = [name for name in named if name.startswith(("part-", "engine/"))]
    size = sum((DIST / name).stat().st_size for name in files)
    guide = (ROOT / "docs" / "guide" / "install.md").read_text()
    assert f"They are {size / 1e6:.1f} MB on the server" in " ".join(guide.split())


def test_size_of_federated() -> None:
    """A page's part in federated rounds, and what it loads for secure sums."""
    assert compressed(DIST / "federated.js") <= 17_000
    assert compressed(DIST / "federated-secure.js") <= 11_500


def test_size_of_releases(tmp_path) -> None:
    """What installs releases, its storage in browsers without private files, and what it loads
    for deltas. What verifies signatures, alone, has at most 8 kB.
    """
    verifier = ROOT / "web" / "src" / "extras" / "release" / "tuf.ts"
    out = tmp_path / "verifier.js"
    esbuild = ROOT / "web" / "node_modules" / ".bin" / "esbuild"
    run(esbuild, verifier, "--bundle", "--minify", "--format=esm", f"--outfile={out}")
    assert 1000 < compressed(out) <= 8_000
    assert compressed(DIST / "release.js") <= 13_500
    assert compressed(DIST / "release-deltas.js") <= 2_300
    assert compressed(DIST / "release-indexed.js") <= 2_300


def brotli(paths: list[Path]) -> int:
    script = """
      const { brotliCompressSync } = require("node:zlib");
      const { readFileSync } = require("node:fs");
      const sizes = process.argv.slice(1).map((p) => brotliCompressSync(readFileSync(p)).length);
      console.log(sizes.reduce((a, b) => a + b));
    """
    return int(run("node", "-e", script, *paths))


@pytest.mark.parametrize("kind", TASKS)
def test_size_of_tasks(kind) -> None:
    """The scripts of a task are within the limit, and need no others."""
    names, limit = TASKS[kind]
    paths = [DIST / f"worker-{name}.js" for name in names]
    for path in paths:
        needs = re.search(r'edgewiseDefine\("[\w-]+",\[([^\]]*)\]', path.read_text())
        assert needs is not None, path
        others = set(re.findall(r"\./worker-(\w+)", needs[1]))
        assert others <= {"inference", "pipelines", *names}, path
    assert brotli(paths) <= limit
