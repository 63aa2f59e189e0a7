"""Whisper and text-to-image on a page's GPU: what WebAssembly makes of the same packages."""

import shutil

import numpy as np
import pytest
from edgewise.cli import main
from edgewise.compiler.plan.plan import Plan, Slot, step_kernels
from edgewise.onnx import BytesSource
from edgewise.package import Package
from playwright.sync_api import Error

from tests.gpu.printed import Printed
from tests.gpu.test_arenas import ForeignEngine
from tests.pipelines.diffusion import tiny_diffusion
from tests.seq2seq.sounds import samples
from tests.seq2seq.words import whisper_texts

from ..pipelines.test_generation import MODELS
from .conftest import lose


@pytest.fixture(scope="module")
def packages(gpu_files, tmp_path_factory):
    """/files/whisper-gpu.edge and /files/draw-gpu.edge, of the smallest models."""
    folder = tmp_path_factory.mktemp("models")
    whisper = shutil.copytree(MODELS / "whisper", folder / "whisper")
    whisper_texts(whisper)
    tiny_diffusion.make(folder / "draw")
    for task, name in (("asr", "whisper"), ("text-to-image", "draw")):
        out = str(gpu_files / f"{name}-gpu.edge")
        main(["build", "--task", task, str(folder / name), "--target", "webgpu", "-o", out])
    return gpu_files


LISTEN = """
    const options = { device: arg, threads: 1 };
    window.p = await ew.pipeline("asr", "/files/whisper-gpu.edge", options);
"""
HEAR = """
    const sound = { raw: Float32Array.from(arg.sound), sampling_rate: 16000 };
    const found = [];
    for (const more of arg.calls) found.push(await p(sound, { max_new_tokens: 4, ...more }));
    return { found, device: p.info.device };
"""
# Counts dispatches when they are submitted: commands that were encoded ahead may never be.
COUNT = """() => {
    if (!globalThis.GPUQueue || globalThis.dispatches) return;
    globalThis.dispatches = 1;
    const of = new WeakMap(); // [dispatches] of a pass, of its encoder and of its commands
    const after = (type, name, note) => {
      const original = type.prototype[name];
      type.prototype[name] = function (...all) {
        const result = original.apply(this, all);
        note(this, result, all);
        return result;
      };
    };
    after(GPUDevice, "createCommandEncoder", (_, encoder) => of.set(encoder, [0]));
    after(GPUCommandEncoder, "beginComputePass", (it, pass) => of.set(pass, of.get(it)));
    after(GPUComputePassEncoder, "dispatchWorkgroups", (pass) => of.get(pass)[0]++);
    after(GPUCommandEncoder, "finish", (it, commands) => of.set(commands, of.get(it)));
    after(GPUQueue, "submit", (_, __, [all]) => {
      for (const commands of all) globalThis.dispatches += of.get(commands)[0];
    });
}"""
OPEN = """
    // a worker that waits for its threads answers no evaluate()
    const options = { device: arg, threads: 1 };
    window.p = await ew.pipeline("text-to-image", "/files/draw-gpu.edge", options);
"""
DRAW = """
    const r = await p("the cat", { num_inference_steps: 2, seed: 3 });
    const { device } = p.info;
    const [{ data, width, height }] = r.images;
    return { data: Array.from(data), width, height, device };
"""


def test_whisper(gpu_visit, packages):
    """The GPU is lost while a decoder runs: the call begins again."""
    arg = {"sound": samples(14400, 1).tolist(), "calls": [{}, {"return_timestamps": "word"}]}
    results = []
    for name in ("webgpu", "wasm"):
        assert gpu_visit.run(LISTEN, name) is None
        left = lose(gpu_visit, 6) if name == "webgpu" else None
        results.append(gpu_visit.run(HEAR, arg))
        assert left is None or left() < 0
        gpu_visit.run("await p.dispose()")
    gpu, wasm = results
    assert "error" not in gpu, gpu["error"]["message"]
    assert gpu["device"]["name"] == "webgpu" and wasm["device"]["name"] == "wasm"
    assert gpu["found"] == wasm["found"]


def in_workers(page, text):
    """What a function returns in each worker of a page, except those that end meanwhile."""
    found = []
    for worker in page.workers:
        try:
            found.append(worker.evaluate(text))
        except Error:
            assert worker not in page.workers
    return found


# How often a picture in two steps runs programs of the package: both texts, of which each has its
# noise predicted at three times (PNDM's second step takes two), and the noise that it begins with.
RUNS = {"text_encoder": 2, "unet": 6, "noise": 1, "vae_decoder": 1, "picture": 1}


def dispatches_of_a_picture(path):
    """Those that Python finds for a GPU in software, where all steps run on the GPU."""
    package = Package.read(BytesSource(path.read_bytes()))
    engine, total = ForeignEngine(threads=1), 0
    for name, runs in RUNS.items():
        described = package.manifest["programs"][name]["plans"][0]
        slots = [
            Slot(s["name"], s["kind"], 2, [s["bytes"]], s["bytes"]) for s in described["slots"]
        ]
        data = package.file(described["file"])
        kernels, init = step_kernels(data)
        loaded = engine.load(Plan(data, slots, [], [], kernels, 0, init))
        found = Printed(loaded, serial=True)
        assert not found.reasons
        total += runs * found.dispatches
        loaded.free()
    return total


def test_drawing(gpu_visit, packages):
    """Also where the GPU is lost between two steps: with the same bits."""
    pictures, dispatches = [], []
    for device in ("webgpu", "wasm"):
        gpu_visit.run(OPEN, device)
        gpu_visit.run(DRAW)  # plans test their kernels before the first run
        in_workers(gpu_visit.page, COUNT)
        pictures.append(gpu_visit.run(DRAW))
        # before the workers end: a worker that ends never answers
        dispatches.append(max(in_workers(gpu_visit.page, "() => globalThis.dispatches ?? 0")))
        if device == "webgpu":
            left = lose(gpu_visit, 9)
            again = gpu_visit.run(DRAW)
            assert left() < 0 and again["device"]["name"] == device
            assert again["data"] == pictures[0]["data"]
        gpu_visit.run("await p.dispose()")
    gpu, wasm = pictures
    assert "error" not in gpu, gpu["error"]["message"]
    expected = dispatches_of_a_picture(packages / "draw-gpu.edge")
    assert dispatches == [expected + 1, 1]  # COUNT begins at 1
    assert gpu["device"]["name"] == "webgpu" and wasm["device"]["name"] == "wasm"
    assert (gpu["width"], gpu["height"]) == (wasm["width"], wasm["height"])
    assert np.abs(np.subtract(gpu["data"], wasm["data"])).max() <= 1
