"""Workers and threads that do not start, or that end unexpectedly."""

import pytest

from .conftest import WEB
from .loading import COMPILED, LOAD, error, load, stalling


@pytest.mark.parametrize(
    "setting, words",
    [
        ("workerUrl", "the worker did not start within"),
        ("compilerUrl", "the compiler's worker did not start: no message for"),
    ],
)
def test_a_worker_that_never_starts(visit, server, setting, words):
    v = visit(server)
    v.run("ew.env[arg] += '?fault=mute';", setting)
    stalling(
        v, lambda seconds: error(v.run(LOAD, COMPILED), "EngineError", f"{words} {4 * seconds} s")
    )


@pytest.mark.parametrize("setting", ["workerUrl", "compilerUrl"])
@pytest.mark.parametrize("script", ["missing.js", "broken.js"])
def test_a_worker_that_cannot_start(visit, server, files, setting, script):
    (files / "broken.js").write_text("this is not a program")
    v = visit(server)
    v.run("ew.env[arg[0]] = arg[1];", [setting, f"/files/{script}"])
    error(v.run(LOAD, COMPILED), "EngineError", "worker failed", script)


def test_threads_that_never_start(visit, server):
    """The engine continues with one thread and reports the reason."""
    v = visit(server)
    v.run("ew.env.threadUrl += '?fault=mute';")

    def alone(seconds):
        got = load(v, "/files/model.edge", threads=2)
        assert "error" not in got, got
        assert got["info"]["threads"] == 1, got
        assert f"did not start within {seconds} s" in got["info"]["whyNotThreads"], got

    stalling(v, alone)


def worker_of(page, part):
    [one] = [w for w in page.workers if part in w.url]
    return one


def test_a_worker_is_terminated(visit, server):
    """A worker terminated without an event, as browsers do when memory is short: open calls reject,
    and so do later ones.
    """
    v = visit(server)
    v.run("window.p = await ew.pipeline('text-generation', '/files/model.edge', {threads: 1});")
    v.page.evaluate(
        """
            () => {
              const until = async (times, options) => {
                for (let i = 0; i < times; i++) await p("Once", options);
                return Error("no call was rejected");
              };
              window.said = Promise.all([
                until(200, { max_new_tokens: 400, min_new_tokens: 400 }).catch((e) => e),
                until(5000, { max_new_tokens: 5 }).catch((e) => e),
              ]).then(async (all) =>
                [...all, await p("x").catch((e) => e)].map((e) => [e.name, e.message]),
              );
            }
        """
    )
    worker_of(v.page, "worker.js").evaluate("() => { setTimeout(() => self.close(), 20); }")
    for name, message in v.page.evaluate("() => window.said"):
        assert name == "EngineError" and "ended unexpectedly" in message


def test_the_python_worker_is_terminated(visit, server, files):
    """While it waits for Pyodide, which never comes."""
    v = visit(server)
    (files / "pyodide.mjs").write_text("await new Promise(() => undefined);")
    with v.page.expect_event("worker", lambda w: "compiler.js" in w.url) as started:
        v.page.evaluate(
            """
                () => {
                  ew.env.pyodideUrl = "/files/";
                  window.said = ew.InferenceSession.create("/demo/model/onnx/model_q4.onnx", {
                    cache: false,
                  }).then(
                    () => ["none"],
                    (e) => [e.name, e.message],
                  );
                }
            """
        )
    started.value.evaluate("() => { setTimeout(() => self.close(), 20); }")
    name, message = v.page.evaluate("() => window.said")
    # Only the watchdog notices a worker that ends before its first message.
    words = ("Python's worker ended unexpectedly", "the compiler's worker did not start")
    assert name == "EngineError" and any(w in message for w in words), (name, message)


def test_a_thread_fails(visit, server, files):
    """The worker blocks in WebAssembly and receives no message, so the page detects the failure."""
    text = (WEB / "dist" / "worker.js").read_text()
    assert text.count(".ew_worker(") == 1
    (files / "thread-bad.js").write_text(
        text.replace(".ew_worker(", ".ew_worker_that_is_not_there(")
    )
    v = visit(server)
    v.run("ew.env.threadUrl = '/files/thread-bad.js';")
    got = v.run("""
        const p = await ew.pipeline("text-generation", "/files/model.edge", { threads: 2 });
        for (let i = 0; i < 200; i++) await p("Once upon a time", { max_new_tokens: 100 });
        return {};
    """)
    error(got, "EngineError", "one of its threads")
