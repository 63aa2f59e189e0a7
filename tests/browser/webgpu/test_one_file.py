"""The library in one file, whose part for GPUs is a file beside it."""

import shutil

import numpy as np
import pytest

from ..conftest import WEB, greedy
from ..loading import error, load
from .test_sessions import RUN, SHAPES, check, sessions  # noqa: F401

FILES = ("edgewise.inline.js", "edgewise.global.js")


def open_library(visit, url):
    visit.page.evaluate(
        """
            async (url) => {
              if (url.endsWith("inline.js")) return void (window.ew = await import(url));
              const script = document.createElement("script");
              script.src = url;
              const done = new Promise((resolve) => (script.onload = resolve));
              document.head.append(script);
              await done;
              window.ew = edgewise;
            }
        """,
        url,
    )


def test_the_part_beside_it_is_loaded(gpu_visit, sessions):  # noqa: F811
    """The other file computes the same address: see below."""
    open_library(gpu_visit, f"/{FILES[0]}")
    x = np.random.default_rng(2).standard_normal(SHAPES["x"]).astype(np.float32)
    arg = {"x": x.ravel().tolist(), "options": {"device": "webgpu", "threads": 1}}
    end = "await s.release(); return {first, wrong, second, device};"
    got = gpu_visit.run(RUN + end, {**arg, "model": "/files/plain-gpu.edge"})
    check(got, x, False)
    assert got["device"]["name"] == "webgpu"
    [part] = gpu_visit.asked("part-webgpu.js")
    assert part.endswith("/part-webgpu.js") and not gpu_visit.asked("worker-")


@pytest.mark.slow("test_the_part_beside_it_is_loaded")
def test_the_part_generates(gpu_visit):
    open_library(gpu_visit, f"/{FILES[0]}")
    on_gpu = greedy(gpu_visit, "/files/gpu.edge", {"device": "webgpu"})
    assert "error" not in on_gpu, on_gpu
    assert on_gpu["info"]["device"]["name"] == "webgpu"
    on_wasm = greedy(gpu_visit, "/files/gpu.edge", {"device": "wasm"})
    assert on_gpu["ids"] == on_wasm["ids"]


@pytest.mark.parametrize("name", FILES)
def test_without_the_part(gpu_visit, gpu_files, name):
    alone = gpu_files / "alone"
    alone.mkdir(exist_ok=True)
    shutil.copy(WEB / "dist" / name, alone)
    open_library(gpu_visit, f"/files/alone/{name}")
    e = error(load(gpu_visit, "/files/gpu.edge", device="webgpu"), "EngineError")
    assert "could not be loaded" in e["what"] and "part-webgpu.js" in e["remedy"]
    assert e["where"].endswith("/files/alone/part-webgpu.js")
    got = load(gpu_visit, "/files/gpu.edge", executionProviders=["webgpu", "wasm"])
    device = got["info"]["device"]
    assert device["name"] == "wasm" and "could not be loaded" in device["why"]
    assert len(greedy(gpu_visit, "/files/model.edge")["ids"]) > 12
