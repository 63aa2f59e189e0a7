"""Pipelines of pictures, and of an encoder with a decoder, on a page's GPU."""

import runpy
import shutil

import numpy as np
import pytest
from edgewise.cli import main
from edgewise.compiler.targets import target_named
from edgewise.task_package import compile_task

from ..conftest import ROOT
from ..loading import error
from ..pipelines.test_generation import MODELS, tokenizer
from .conftest import lose

WEBGPU = target_named("webgpu")


@pytest.fixture(scope="module")
def packages(gpu_files, tmp_path_factory):
    """/files/see-gpu.edge, the model of the demo's room, and /files/t5-gpu.edge."""
    folder = shutil.copytree(MODELS / "t5", tmp_path_factory.mktemp("models") / "t5")
    tokenizer(folder, 120)
    out = str(gpu_files / "t5-gpu.edge")
    command = ["build", "--task", "text2text-generation", str(folder), "--max-length", "16"]
    main([*command, "--target", "webgpu", "-o", out])
    room = runpy.run_path(str(ROOT / "web/demo/rooms/models/see.py"))
    compiled = []

    def for_gpu(files, task, **options):
        compiled.append(compile_task(files, task, target=WEBGPU, **options))
        return compiled[-1]

    room["main"].__globals__["compile_task"] = for_gpu
    room["main"](str(gpu_files / "see-gpu.edge"))
    return gpu_files


LOOK = """
    const options = { device: arg, personalize: true, threads: 1 };
    window.p = await ew.pipeline("image-classification", "/files/see-gpu.edge", options);
"""
SEE = """
    const picture = (red, size) => {
      const data = new Uint8Array(3 * 32 * 32);
      for (let i = 0; i < data.length; i++)
        data[i] = i % 3 ? 30 : (i / 3) % size < size / 2 ? red : 10;
      return new ew.RawImage(data, 32, 32, 3);
    };
    const examples = { cup: [picture(250, 8), picture(240, 8)], keys: [picture(90, 4)] };
    const mine = await ew.personalize(p, examples, { steps: 10 });
    const found = await mine(picture(245, 8));
    return { device: p.info.device, found };
"""
OPEN = """
    const options = { device: arg, threads: 1 }; // the scripts of other threads cannot be watched
    window.p = await ew.pipeline("text2text-generation", "/files/t5-gpu.edge", options);
"""
READS = """() => {
    const of = globalThis.GPUBuffer?.prototype;
    if (!of || globalThis.reads) return;
    const reads = (globalThis.reads = []);
    const original = of.mapAsync;
    of.mapAsync = function (mode, offset, bytes) {
      reads.push(bytes);
      return original.call(this, mode, offset, bytes);
    };
}"""
WRITE = """
    const made = await p("w5 w9 w17 w33 w2 w90 w1", { return_tensors: true, max_new_tokens: 6 });
    return { device: p.info.device, made };
"""


def test_pictures_with_labels_of_a_user(gpu_visit, packages):
    """The GPU is lost between two pictures."""
    results = []
    for name in ("webgpu", "wasm"):
        assert gpu_visit.run(LOOK, name) is None
        left = lose(gpu_visit, 3) if name == "webgpu" else None
        results.append(gpu_visit.run(SEE))
        assert left is None or left() < 0
        gpu_visit.run("await p.dispose()")
    gpu, wasm = results
    assert "error" not in gpu, gpu["error"]["message"]
    assert gpu["device"]["name"] == "webgpu" and gpu["device"]["gpu"]["onWasm"] == {}
    assert wasm["device"]["name"] == "wasm"
    assert [x["label"] for x in gpu["found"]] == [x["label"] for x in wasm["found"]]
    scores = [[x["score"] for x in side["found"]] for side in (gpu, wasm)]
    np.testing.assert_allclose(*scores, atol=1e-4)


@pytest.mark.slow("browser/webgpu/test_speech_and_drawing.py::test_whisper")
def test_an_encoder_with_a_decoder(gpu_visit, packages):
    gpu_visit.run(OPEN, "webgpu")
    workers = list(gpu_visit.page.workers)
    for worker in workers:
        worker.evaluate(READS)
    gpu = gpu_visit.run(WRITE)
    reads = [n for worker in workers for n in worker.evaluate("() => globalThis.reads ?? []")]
    gpu_visit.run("await p.dispose()")
    gpu_visit.run(OPEN, "wasm")
    wasm = gpu_visit.run(WRITE)
    gpu_visit.run("await p.dispose()")
    assert "error" not in gpu, gpu["error"]["message"]
    assert gpu["device"]["name"] == "webgpu"
    assert gpu["made"] == wasm["made"]
    assert reads and max(reads) < 4 * 120, "tokens and errors alone, no logits"


def test_packages_for_the_processor(gpu_visit, packages):
    e = error(
        gpu_visit.run(
            "await ew.pipeline('image-classification', '/files/model.edge', {device: 'webgpu'})"
        ),
        "PackageError",
    )
    assert "--target webgpu" in e["remedy"]
