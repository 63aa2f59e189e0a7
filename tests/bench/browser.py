"""The environment of the cases: installed npm packages, bundled pages, a server, and one Chromium
with contenders that answer calls.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np

from ..browser.chromium import CHROMIUM
from ..browser.chromium import QUIET as FLAGS
from .real_models import FOLDER as REAL_MODELS

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
WORK = ROOT / ".build" / "bench"
BLANK = "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'><title>bench</title>"

PEERS = (  # (path on the server, folder below node_modules)
    ("ort", "onnxruntime-web/dist"),
    ("ort-training", "onnxruntime-web-training/dist"),
    ("transformers", "@huggingface/transformers/dist"),
    ("transformers-ort", "@huggingface/transformers/node_modules/onnxruntime-web/dist"),
    ("jax", "@jax-js/jax/dist"),
    ("tf", "@tensorflow"),
    ("wllama", "@wllama/wllama/esm"),
)
PATIENCE = 90  # seconds after which a call fails

# Runs in each contender's page: starts a worker, and defines call() to call its methods.
CALLS = """
    ([url, seconds]) => {
      window.worker?.terminate();
      const worker = (window.worker = new Worker(url, { type: "module" })),
        open = new Map();
      let last = 0;
      worker.onmessage = ({ data: { id, value, error } }) => {
        const [resolve, reject, timer] = open.get(id);
        clearTimeout(timer);
        open.delete(id);
        error ? reject(new Error(error)) : resolve(value);
      };
      worker.onerror = (e) => {
        for (const [, reject] of open.values())
          reject(new Error(e.message || "the worker could not be loaded"));
      };
      window.call = ([method, args]) =>
        new Promise((resolve, reject) => {
          const late = () => {
            worker.terminate();
            reject(new Error(`${method} took longer than ${seconds} s`));
          };
          open.set(++last, [resolve, reject, setTimeout(late, seconds * 1000)]);
          worker.postMessage({ id: last, method, args });
        });
    }
"""


def say(text):
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def _sh(*command, cwd=ROOT):
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()[-800:]}"
        )


def _newer(target, *sources):
    return target.exists() and all(target.stat().st_mtime >= s.stat().st_mtime for s in sources)


def peers():
    """Installs the npm packages of package.json under .build/bench, outside the repository's
    sources.
    """
    node = WORK / "node"
    if not _newer(node / "installed", HERE / "package-lock.json"):
        say("installing what is compared with (npm ci)")
        node.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(HERE / name, node / name)
        _sh("npm", "ci", "--silent", cwd=node)
        (node / "installed").touch()
    return node / "node_modules"


def bundle():
    """Bundles each of page/*.js, and the engine host of web/src, into one file."""
    out = WORK / "page"
    _sh(
        ROOT / "web/node_modules/.bin/esbuild",
        *sorted(HERE.glob("page/**/*.js")),
        "--bundle",
        "--format=esm",
        "--target=es2022",
        "--log-level=error",
        "--define:__VERSION__='bench'",
        "--define:__COMPILER__='bench'",
        "--define:__WHEEL__='bench'",
        f"--outdir={out}",
    )
    (out / "blank.html").write_text(BLANK)
    return out


def limits():
    """Compiles page/limits.c in both flavours."""
    emcc = ROOT / ".build/bin/emcc"
    for flavour, flags in (("simd128", []), ("relaxed", ["-mrelaxed-simd"])):
        out = WORK / "page" / f"limits-{flavour}.wasm"
        sources = HERE / "page/limits.c", ROOT / "core/constants.c"
        if not _newer(out, *sources, ROOT / "core/simd.h", ROOT / "core/vector_math.h"):
            _sh(
                emcc,
                "-O3",
                "-msimd128",
                f"-I{ROOT}/core",
                "-ffp-contract=off",
                "-fno-math-errno",
                *flags,
                "-sSTANDALONE_WASM",
                "--no-entry",
                "-sALLOW_MEMORY_GROWTH",
                *sources,
                "-o",
                out,
            )


class Bench:
    """A server and Chromium, as a context manager."""

    def __enter__(self):
        WORK.mkdir(parents=True, exist_ok=True)
        for name in (
            "edgewise.js",
            "engine/edgewise-simd128.wasm",
            "engine/edgewise-relaxed-threads.wasm",
        ):
            if not (ROOT / "web/dist" / name).exists():
                raise SystemExit(f"web/dist/{name} is not there: run `make bench`, which builds it")
        bundle()
        self.trouble = []
        dist = WORK / "dist"  # a copy, so that a build during the benchmark changes nothing
        shutil.rmtree(dist, ignore_errors=True)
        shutil.copytree(ROOT / "web/dist", dist, ignore=shutil.ignore_patterns("*.map", "types"))
        mounts = [
            f"/={dist}",
            f"/pyodide={ROOT / 'web/node_modules/pyodide'}",
            f"/bench={WORK}",
            f"/made={WORK / 'pipelines'}",
        ]
        if REAL_MODELS.is_dir():
            mounts.append(f"/real={REAL_MODELS}")
        try:
            found = peers()
            mounts += [f"/{path}={found / folder}" for path, folder in PEERS]
        except RuntimeError as e:
            self.failed("the npm packages", e)
        self.servers = []
        self.url, self.open_page_url = self.serve(mounts), self.serve(mounts, "--no-isolation")
        from playwright.sync_api import sync_playwright

        self.playwright = sync_playwright().start()
        self.launch()
        self.version = self.chromium.version
        return self

    def serve(self, mounts, *more):
        """Starts a server, and returns its address. more: further options of serve.mjs."""
        mounted = [a for m in mounts for a in ("--mount", m)]
        server = subprocess.Popen(
            ["node", ROOT / "web/demo/serve.mjs", "--port", "0", *more, *mounted],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.servers.append(server)
        return next(
            re.search(r"http://localhost:\d+", line)[0]
            for line in server.stdout
            if "http://" in line
        )

    def launch(self, *more):
        """Starts Chromium, also again where it has crashed. more: further flags."""
        self.chromium = self.playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*FLAGS, *more]
        )

    def __exit__(self, *_):
        self.chromium.close()
        self.playwright.stop()
        for server in self.servers:
            server.terminate()
            server.wait()

    def failed(self, who, error):
        """Reports a contender that failed; the others continue."""
        text = " ".join(
            re.split(r"\n\s+at ", str(error))[0].removeprefix("Page.evaluate: ").split()
        )[:300]  # without the stack trace
        say(f"  {who} failed: {text}")
        self.trouble.append(f"{who}: {text}")

    def contend(self, name, script, method="open", *args):
        """Opens a contender with `method` in its own page and worker; returns None if that
        fails.
        """
        contender = None
        try:
            contender = Contender(self, name, script)
            contender.opened = contender.call(method, *args)
            contender.settle()
            return contender
        except Exception as e:
            self.failed(name, e)
            if contender:
                contender.close()

    def limit(self, flavour):
        try:
            limits()
        except (RuntimeError, OSError) as e:
            return self.failed(f"limit {flavour}", e)
        return self.contend(
            f"limit {flavour}", "limits.js", "open", f"/bench/page/limits-{flavour}.wasm"
        )


class Contender:
    """One page with one worker.

    Pages of different browser contexts never share a renderer process, so its memory belongs to
    this page alone.
    """

    def __init__(self, bench, name, script):
        self.bench, self.name, self.opened = bench, name, None
        self.before = renderers()
        self.context = bench.chromium.new_context()
        self.context.set_default_timeout(300_000)
        self.page = self.context.new_page()
        self.page.goto(bench.url + "/bench/page/blank.html")
        self.script = f"/bench/page/{script}"
        self.renew()
        self.process, self.peak = None, 0

    def renew(self):
        """Replaces the worker with a new one."""
        self.page.evaluate(CALLS, [self.script, PATIENCE])

    def call(self, method, *args):
        try:
            return self.page.evaluate("x => window.call(x)", [method, list(args)])
        finally:
            self.peak_mb()

    def settle(self):
        """Finds the renderer process: the one with the largest growth since this contender was
        opened.
        """
        grown = {
            pid: m["rss"] - self.before.get(pid, {"rss": 0})["rss"]
            for pid, m in renderers().items()
        }
        self.process = max(grown, key=grown.get, default=None)

    def call_and_find(self, method, *args):
        """Calls a method as `call` does; the renderer process is then the one that used most
        processor time.

        For small pages this is more reliable than `settle`. `worked` is that processor time in
        milliseconds.
        """
        before = {pid: cpu_ms(pid) for pid in renderers()}
        result = self.call(method, *args)
        worked = {pid: cpu_ms(pid) - before.get(pid, 0) for pid in renderers()}
        found = max(worked, key=worked.get, default=None)
        self.worked = worked.get(found, 0)
        if found != self.process:
            self.process, self.peak = found, 0
        return result

    def peak_mb(self):
        """Peak resident memory of the renderer process in MiB.

        Read after every call, because Chromium sometimes resets the counter of the system.
        """
        found = renderers().get(self.process)
        self.peak = max(self.peak, found["peak"] if found else 0)
        return round(self.peak / 1024) or None

    def cpu_ms(self):
        """Processor time of the renderer process in milliseconds.

        For work of one thread this excludes the time that other programs on the machine took.
        """
        return cpu_ms(self.process)

    def floats(self, method):
        return np.frombuffer(base64.b64decode(self.call(method)), np.float32)

    def close(self):
        self.context.close()


def cpu_ms(pid):
    """Processor time of all threads of a process in milliseconds, or 0 if it has none."""
    total = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(task.read_text().split()[0])
        except OSError:
            pass  # the thread has just ended
    return total / 1e6


def renderers():
    """Returns {pid: {rss, peak, files}} in kB of the renderer processes that descend from this
    process. files: of the resident pages, those of Chromium's program and libraries, which its
    processes share.
    """
    parent, memory = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            status = Path(f"/proc/{entry}/status").read_text()
            line = Path(f"/proc/{entry}/cmdline").read_bytes()
        except OSError:
            continue
        field = dict(re.findall(r"^(PPid|VmRSS|VmHWM|RssFile):\s+(\d+)", status, re.M))
        parent[int(entry)] = int(field.get("PPid", 0))
        if b"--type=renderer" in line and "VmHWM" in field:
            rss, peak, files = (int(field.get(k, 0)) for k in ("VmRSS", "VmHWM", "RssFile"))
            memory[int(entry)] = {"rss": rss, "peak": peak, "files": files}

    def ours(pid):
        while pid > 1:
            if pid == os.getpid():
                return True
            pid = parent.get(pid, 0)
        return False

    return {pid: m for pid, m in memory.items() if ours(pid)}
