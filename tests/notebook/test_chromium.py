"""The package in a notebook: Chromium, Pyodide from a server with our lock file,
loadPackage("edgewise"), then Python on the page's own thread and in a worker.

NumPy's wheel for Pyodide is available on a CDN only, and tests use no network: NumPy arrays as
inputs and outputs are tested in CPython with the same code (arrays.py).
"""

import json
import shutil
import sys
import textwrap
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser.chromium import CHROMIUM, FLAGS
from tiers import slow_unless

ROOT = Path(__file__).parents[2]
PAGE = "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'><title>notebook</title>"

# A single start for the page and the worker: code that a notebook's kernel runs.
START = """
import { loadPyodide } from "/pyodide/pyodide.mjs";
export async function start() {
  const t0 = performance.now();
  const lockFileURL = new URL("/site/pyodide-lock.json", location.href).href;
  const pyodide = await loadPyodide({ indexURL: "/pyodide/", lockFileURL });
  const t1 = performance.now();
  const words = [], tell = (w) => words.push(w);
  await pyodide.loadPackage("edgewise", { messageCallback: tell, errorCallback: tell });
  // it does not throw
  if (!pyodide.loadedPackages.edgewise) throw new Error("loadPackage: " + words.join("; "));
  const t2 = performance.now();
  pyodide.runPython("import edgewise");
  const ms = { pyodide: t1 - t0, loadPackage: t2 - t1, import: performance.now() - t2 };
  return { pyodide, ms };
}
export async function run(pyodide, code) {
  try {
    const globals = pyodide.toPy({ __name__: "__main__" });
    const whole = code + "\\nimport json\\njson.dumps(result)";
    const result = await pyodide.runPythonAsync(whole, { globals });
    return { result: JSON.parse(result) };
  } catch (e) {
    return { error: String(e.message) };
  }
}
"""
WORKER = """
import { start, run } from "/site/start.mjs";
const started = start();
onmessage = async ({ data }) => {
  try {
    const { pyodide, ms } = await started;
    postMessage({ ms, ...(await run(pyodide, data)) });
  } catch (e) { postMessage({ error: String(e?.stack ?? e) }); }
};
"""


class Handler(SimpleHTTPRequestHandler):
    extensions_map = {
        **SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".whl": "application/zip",
    }
    requested = []

    def translate_path(self, path):
        path = path.split("?")[0]
        for prefix, folder in self.folders.items():
            if path.startswith(prefix):
                return str(folder / path[len(prefix) :])
        return "/nowhere"

    def send_error(self, code, *rest, **more):
        self.requested.append((code, self.path))
        super().send_error(code, *rest, **more)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def site(pyodide_folder, wheel, mlp, tmp_path_factory):
    """Address of a server with Pyodide, our lock file and wheel, a model, and the demo's model."""
    sys.path.insert(0, str(ROOT / "wasm/pyodide"))
    from make_lock import make_lock

    sys.path.pop(0)
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(wheel, folder)
    (folder / "pyodide-lock.json").write_text(json.dumps(make_lock(wheel, pyodide_folder)))
    (folder / "start.mjs").write_text(START)
    (folder / "worker.mjs").write_text(WORKER)
    (folder / "index.html").write_text(PAGE)
    (folder / "mlp.onnx").write_bytes(mlp[0])
    handler = type(
        "H",
        (Handler,),
        {
            "folders": {
                "/pyodide/": pyodide_folder,
                "/site/": folder,
                "/model/": ROOT / "web/demo/model",
            },
            "requested": [],
        },
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    assert not handler.requested, handler.requested  # every requested file exists


@pytest.fixture(scope="module")
def browser(playwright):
    chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
    yield chromium
    chromium.close()


@pytest.fixture(
    scope="module", params=slow_unless(lambda where: where == "worker", ["page", "worker"])
)
def notebook(request, browser, site):
    """run(code) runs Python in the page's thread or in a worker; returns its variable `result`."""
    page = browser.new_page()
    outside, troubles = [], []
    page.on(
        "request",
        lambda r: outside.append(r.url) if not r.url.startswith((site, "data:", "blob:")) else None,
    )
    page.on("pageerror", lambda e: troubles.append(str(e)))
    page.goto(site + "/site/index.html")
    if request.param == "page":
        page.evaluate(
            "async () => { const m = await import('/site/start.mjs'); window.m = m; window.started"
            " = await m.start(); }"
        )
        send = "async (code) => ({ ms: started.ms, ...(await m.run(started.pyodide, code)) })"
    else:
        page.evaluate(
            "() => { window.worker = new Worker('/site/worker.mjs', { type: 'module' }); }"
        )
        send = (
            "(code) => new Promise((ok, no) => { worker.onmessage = (e) => ok(e.data);"
            " worker.onerror = (e) => no(new Error(e.message)); worker.postMessage(code); })"
        )

    def run(code, **names):
        given = "".join(
            f"{k} = __import__('json').loads({json.dumps(v)!r})\n" for k, v in names.items()
        )
        answer = page.evaluate(send, given + textwrap.dedent(code))
        if "error" in answer:
            pytest.fail(answer["error"], pytrace=False)
        run.ms = answer["ms"]
        return answer["result"]

    run.site, run.thread = site, request.param
    yield run
    page.close()
    assert not outside and not troubles


def test_session(notebook, mlp):
    import numpy as np

    _, x, y = mlp
    got = notebook(
        """
            import edgewise
            from edgewise.engine import default_engine
            from pyodide.http import pyfetch

            response = await pyfetch(site + "/site/mlp.onnx")
            session = edgewise.InferenceSession(
                await response.buffer()
            )  # the JavaScript buffer itself
            first = session.run(["y"], {"x": x})[0]
            response = await pyfetch(site + "/site/mlp.onnx")
            second = edgewise.InferenceSession(await response.bytes()).run(
                None, {"x": edgewise.Array.from_list(x, "float32")}
            )[0]
            words = []
            for f in (
                lambda: session.run(None, {"x": [[1.0]]}),
                lambda: edgewise.InferenceSession(b"no model at all"),
                lambda: default_engine().alloc(1 << 40),
            ):
                try:
                    f()
                except edgewise.EdgewiseError as e:
                    words.append(type(e).__name__)
            result = dict(
                y=first.tolist(),
                same=first == second,
                dtype=first.dtype,
                again=session.run(None, {"x": x})[0] == first,
                words=words,
                file=edgewise.__file__,
            )
        """,
        x=x.tolist(),
        site=notebook.site,
    )
    assert np.abs(np.array(got["y"]) - y).max() < 1e-4 * max(1, np.abs(y).max())
    assert (
        got["same"]
        and got["again"]
        and got["dtype"] == "float32"
        and "site-packages" in got["file"]
    )
    assert got["words"] == ["InputError", "ModelError", "OutOfMemory"]
    print({k: round(v) for k, v in notebook.ms.items()}, notebook.thread)


PIPELINE = textwrap.dedent("""
    pipe = edgewise.pipeline("text-generation", folder)
    greedy = pipe("One day", max_new_tokens=24, do_sample=False)[0]["generated_text"]
    sampled = pipe("One day", max_new_tokens=24, do_sample=True, temperature=0.9, seed=11)[0][
        "generated_text"
    ]
    result = [greedy, sampled]
""")


def test_pipeline(notebook):
    """The demo's model generates the same text in Pyodide, with the tokenizer of the wheel, as in
    CPython, with the `tokenizers` library.
    """
    got = notebook(
        textwrap.dedent("""
            import edgewise, os, sys
            from pyodide.http import pyfetch

            assert "tokenizers" not in sys.modules
            folder = "/models/demo"
            os.makedirs(folder + "/onnx", exist_ok=True)
            for name in (
                "config.json",
                "generation_config.json",
                "tokenizer.json",
                "tokenizer_config.json",
                "onnx/model_q4.onnx",
            ):
                with open(f"{folder}/{name}", "wb") as f:
                    f.write(await (await pyfetch(f"{site}/model/{name}")).bytes())
        """)
        + PIPELINE,
        site=notebook.site,
    )
    names = {"edgewise": __import__("edgewise"), "folder": str(ROOT / "web/demo/model")}
    exec(PIPELINE, names)
    assert got == names["result"]
    assert got[0].startswith("One day") and len(got[0]) > 40
