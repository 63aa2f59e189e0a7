"""Whisper and text-to-image on a page's GPU: what WebAssembly makes of the same packages."""

import json
import shutil

import numpy as np
import pytest
from edgewise.cli import main
from edgewise.onnx import BytesSource
from edgewise.package import Package
from edgewise.webgpu.steps import steps_of
from playwright.sync_api import Error

from tests.pipelines.diffusion import tiny_diffusion
from tests.seq2seq.sounds import samples

from ..pipelines.test_generation import MODELS, SPECIAL, tokenizer


@pytest.fixture(scope="module")
def packages(gpu_files, tmp_path_factory):
    """/files/whisper-gpu.edge and /files/draw-gpu.edge, of the smallest models."""
    folder = tmp_path_factory.mktemp("models")
    whisper = shutil.copytree(MODELS / "whisper", folder / "whisper")
    tokenizer(whisper, 181, SPECIAL)
    config = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 8}
    config |= {"chunk_length": 1, "hop_length": 160, "n_fft": 400, "sampling_rate": 16000}
    (whisper / "preprocessor_config.json").write_text(json.dumps(config))
    tiny_diffusion.make(folder / "draw")
    for task, name in (("asr", "whisper"), ("text-to-image", "draw")):
        out = str(gpu_files / f"{name}-gpu.edge")
        main(["build", "--task", task, str(folder / name), "--target", "webgpu", "-o", out])
    return gpu_files


HEAR = """
    const options = { device: arg.device };
    const p = await ew.pipeline("asr", "/files/whisper-gpu.edge", options);
    const sound = { raw: Float32Array.from(arg.sound), sampling_rate: 16000 };
    const found = [];
    for (const more of arg.calls) found.push(await p(sound, { max_new_tokens: 4, ...more }));
    const { device } = p.info;
    await p.dispose();
    return { found, device };
"""
COUNT = """() => {
    const of = globalThis.GPUComputePassEncoder?.prototype;
    if (!of || globalThis.dispatches) return;
    globalThis.dispatches = 1;
    const original = of.dispatchWorkgroups;
    of.dispatchWorkgroups = function (...all) {
      globalThis.dispatches++;
      return original.apply(this, all);
    };
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
    sound = samples(14400, 1)
    calls = [{}, {"return_timestamps": "word"}]
    gpu, wasm = (
        gpu_visit.run(HEAR, {"device": d, "sound": sound.tolist(), "calls": calls})
        for d in ("webgpu", "wasm")
    )
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


# How often a picture in two steps runs each program of the package: both texts, of which each has
# its noise in each step.
RUNS = {"text_encoder": 2, "unet": 4, "noise": 2, "vae_decoder": 1, "picture": 1, "pixels": 1}


def steps_of_a_picture(path):
    package = Package.read(BytesSource(path.read_bytes()))
    files = {name: of["plans"][0]["file"] for name, of in package.manifest["programs"].items()}
    return sum(n * len(steps_of(package.file(files[name]))) for name, n in RUNS.items())


def test_drawing(gpu_visit, packages):
    pictures, dispatches = [], []
    for device in ("webgpu", "wasm"):
        gpu_visit.run(OPEN, device)
        in_workers(gpu_visit.page, COUNT)
        pictures.append(gpu_visit.run(DRAW))
        # before the workers end: a worker that ends never answers
        dispatches.append(max(in_workers(gpu_visit.page, "() => globalThis.dispatches ?? 0")))
        gpu_visit.run("await p.dispose()")
    gpu, wasm = pictures
    assert "error" not in gpu, gpu["error"]["message"]
    # the steps run on the GPU, and few of this small model's share a dispatch
    steps = steps_of_a_picture(packages / "draw-gpu.edge")
    assert 0.9 * steps < dispatches[0] - 1 <= steps and dispatches[1] == 1  # COUNT begins at 1
    assert gpu["device"]["name"] == "webgpu" and wasm["device"]["name"] == "wasm"
    assert (gpu["width"], gpu["height"]) == (wasm["width"], wasm["height"])
    assert np.abs(np.subtract(gpu["data"], wasm["data"])).max() <= 1
