"""The main functions in Chromium, Firefox and WebKitGTK: generating text, compiling a model,
training, storing and resuming. The results equal those of Chromium.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from browser.conftest import greedy
from browser.inference.test_inference_session import F, save
from browser.training.harness import TEXT
from onnx import helper
from tiers import slow_unless

from .conftest import BROWSERS, Page

TRAIN = """
    const p = await ew.pipeline("text-generation", "/files/trainable.edge", {
      flavour: "simd128-threads",
      threads: 2,
      ...arg.load,
    });
    const steps = [];
    const run = await ew.fineTune(p, arg.text, {
      max_steps: arg.steps,
      seed: 3,
      learning_rate: 2e-3,
      ...arg.options,
      onStep: (e) => steps.push([e.step, e.checkpoint ?? null]),
    });
    const [{ generated_text }] = await p("Once upon a time", {
      max_new_tokens: 8,
      do_sample: false,
    });
    await p.dispose();
    return { losses: run.losses, text: generated_text, steps, threads: p.info.threads };
"""
expected: dict[str, object] = {}  # the results of Chromium


def train(page: Page, steps: int = 5, **options: object) -> dict:
    """Trains an adapter for some steps; returns {losses, text, steps}."""
    got = page.run(TRAIN, {"text": TEXT, "steps": steps, "options": options, "load": {}})
    assert "error" not in got and got["threads"] == 2, got
    return got


def same_as_chromium(what: str, page: Page, give) -> tuple:
    """Returns (result of `give` in this browser, its result in Chromium)."""
    got = give(page)
    if page.name == "chromium":
        expected[what] = got
    if what not in expected:
        pytest.skip("Chromium has not run before it")
    return got, expected[what]


def test_generate(page: Page, files: Path) -> None:
    """A package gives the same tokens, with as many threads as the browser allows."""
    got, want = same_as_chromium("ids", page, lambda p: greedy(p, "/files/model.edge"))
    assert "error" not in got and len(got["ids"]) > 12, got
    assert got["ids"] == want["ids"] and got["text"] == want["text"]
    firefox = re.search(r"Firefox/(\d+)", page.run("return navigator.userAgent"))
    relaxed = page.name != "webkit" and (not firefox or int(firefox[1]) >= 145)
    flavour = "relaxed-threads" if relaxed else "simd128-threads"
    info = got["info"]
    assert info["flavour"] == flavour and info["threads"] > 1 and not info["whyNotThreads"], info


def test_threads_give_the_same_text(page: Page, files: Path) -> None:
    """The flavours with and without threads give the same tokens as Chromium's fastest one."""
    choices = [("simd128", 1), ("simd128-threads", 1), ("simd128-threads", 2)]
    for flavour, threads in choices:
        got = greedy(page, "/files/model.edge", {"flavour": flavour, "threads": threads})
        assert "error" not in got, got
        assert got["ids"] == expected["ids"]["ids"], (flavour, threads)
        assert (got["info"]["flavour"], got["info"]["threads"]) == (flavour, threads)


def test_compile(page: Page, files: Path) -> None:
    """An .onnx file is compiled in the page and run; the next visit uses the stored plan, without
    Python.
    """
    r = np.random.default_rng(0)
    w = r.standard_normal((6, 3, 3, 3)).astype("f4")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("ReduceMean", ["r"], ["y"]),
    ]
    save(files / "small.onnx", nodes, [("x", F, [1, 3, 8, 8])], [("y", F, None)], [("w", w)])
    body = """
        if (arg) ew.env.pyodideUrl = arg;
        const s = await ew.InferenceSession.create("/files/small.onnx");
        const x = Float32Array.from({ length: 192 }, (_, i) => Math.sin(i));
        const { y } = await s.run({ x: new ew.Tensor("float32", x, [1, 3, 8, 8]) });
        await s.release();
        return { y: [...y.data], kept: (await ew.cacheBytes()).plans };
    """
    got, want = same_as_chromium("compiled", page, lambda p: p.run(body))
    assert "error" not in got and np.allclose(got["y"], want["y"], rtol=1e-5), (got, want)
    assert got["kept"] > 0
    page.visit()
    again = page.run(body, "/no-python/")
    assert again == got, again


def test_train(page: Page, trainable: object) -> None:
    """The losses of five steps equal Chromium's to 1e-5."""
    got, want = same_as_chromium("losses", page, train)
    assert len(got["losses"]) == 5
    assert np.allclose(got["losses"], want["losses"], rtol=1e-5, atol=0), (got, want)
    assert got["text"] == want["text"]


# tests/browser/training has Chromium killed, which is harder
@pytest.mark.parametrize(
    "profile", slow_unless(lambda name: name != "chromium", BROWSERS), indirect=True
)
def test_store_and_resume(page: Page, trainable: object) -> None:
    """A run that is aborted within its steps is resumed on the next visit from its last checkpoint,
    with the losses of an uninterrupted run, in IndexedDB where there is no OPFS.
    """
    steps = 12  # the worker goes on until it hears of the end: a loaded page says it late
    whole = train(page, steps)
    options = {"checkpoint": {"name": "run", "every": 2}}
    stopped = page.run(
        """
            const p = await ew.pipeline("text-generation", "/files/trainable.edge", {
              flavour: "simd128-threads",
              threads: 2,
            });
            const c = new AbortController();
            const failed = [];
            const name = await ew
              .fineTune(p, arg.text, {
                max_steps: arg.steps,
                seed: 3,
                learning_rate: 2e-3,
                ...arg.options,
                signal: c.signal,
                onStep: (e) => {
                  if (e.checkpoint) failed.push(e.checkpoint);
                  if (e.step === 2) c.abort();
                },
              })
              .then(
                () => "none",
                (e) => e.name,
              );
            await p.dispose();
            const kept = (await ew.checkpoints()).map((c) => c.name);
            return { name, failed, kept };
        """,
        {"text": TEXT, "options": options, "steps": steps},
    )
    assert stopped["name"] == "Aborted" and stopped["kept"] == ["run"], stopped
    page.visit()
    again = train(page, steps, resume=True, **options)
    assert np.allclose(again["losses"], whole["losses"], rtol=1e-6), (again, whole)
    assert again["text"] == whole["text"]
    assert len(again["steps"]) < steps, (stopped, again)
