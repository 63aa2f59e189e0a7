"""Training on a page's GPU: losses are those of WebAssembly."""

import io
import shutil

import pytest
from bench.models import language_model
from edgewise.cli import main
from edgewise.compiler.targets import target_named
from edgewise.compiler.training.package import compile_training_package
from edgewise.host.session.open import folder_files
from edgewise.onnx import BytesSource

from tests.seq2seq.words import whisper_texts
from tests.training.test_pairs import MODELS, TEXTS, clips

from ..conftest import MODEL
from ..training.conftest import artifacts  # noqa: F401
from ..training.harness import TEXT
from ..training.session_scripts import CREATE
from .conftest import LOSE


def learner(lora):
    """The package of a small language model with LoRA, for a GPU: one in software is slow."""
    sizes = {"layers": 1, "width": 32, "heads": 2, "kv_heads": 1, "head_dim": 16, "inner": 32}
    model = language_model(**sizes, vocab=4096, theta=10000.0, epsilon=1e-5)
    files = {n: f for n, f in folder_files(MODEL)[0].items() if not n.endswith(".onnx")}
    files["model.onnx"] = BytesSource(model.SerializeToString(), "model.onnx")
    lora = {"r": 4, "lora_alpha": 8, "target_modules": ["v_proj"], **lora}
    program = {"name": "lora", "batch": 1, "sequence": 16, "lora": lora}
    return compile_training_package(
        files, [program], capacity=64, chunks=(1,), target=target_named("webgpu")
    )


@pytest.fixture(scope="module")
def trainable(gpu_files):
    package = learner({})
    out = io.BytesIO()
    package.write(out)
    (gpu_files / "trainable-gpu.edge").write_bytes(out.getvalue())
    return package


TUNE = """
    const { device } = arg;
    const p = await ew.pipeline("text-generation", "/files/trainable-gpu.edge", { device });
    const options = {
      max_steps: 2,
      seed: 3,
      schedule: "constant",
      learning_rate: 5e-3,
      gradient_accumulation_steps: 2,
      evaluation: arg.text.slice(0, 40),
      checkpoint: { name: device, every: 1 },
    };
    const first = await ew.Trainer.create(p, arg.text, options);
    await first.step();
    const { info } = first;
    await first.close();
    const r = await ew.fineTune(p, arg.text, { ...options, resume: true });
    const trained = await p("Once upon a time", { max_new_tokens: 4, do_sample: false });
    const files = await p.saveAdapter(r.adapter);
    await p.setAdapter(null);
    const base = await p("Once upon a time", { max_new_tokens: 4, do_sample: false });
    const texts = [trained, base].map(([{ generated_text }]) => generated_text);
    await p.dispose();
    const { losses, evaluations } = r;
    return { losses, evaluations, texts, sizes: files.map(({ size }) => size), info };
"""


def test_fine_tuning(gpu_visit, trainable):
    """With accumulated gradients, evaluations, and a checkpoint from which a run goes on."""
    gpu, wasm = (
        gpu_visit.run(TUNE, {"text": TEXT, "device": device}) for device in ("webgpu", "wasm")
    )
    assert "error" not in gpu, gpu["error"]["message"]
    device = gpu["info"]["device"]
    assert device["name"] == "webgpu" and device["gpu"]["onWasm"] == {}
    assert len(gpu["losses"]) == 2 and len(gpu["evaluations"]) == 2
    assert gpu["losses"] == pytest.approx(wasm["losses"], abs=1e-3)
    for (step, loss), (other, of_wasm) in zip(gpu["evaluations"], wasm["evaluations"], strict=True):
        assert step == other and loss == pytest.approx(of_wasm, abs=1e-3)
    assert gpu["texts"] == wasm["texts"] and gpu["sizes"] == wasm["sizes"]
    assert gpu_visit.asked("worker-webgpu-training.js")


FEW = """
    const { device, task, file } = arg;
    const p = await ew.pipeline(task, file, { device });
    const data = [];
    for (const [i, text] of arg.texts.entries()) {
      const sound = task === "asr" && (await (await fetch(arg.sounds[i])).arrayBuffer());
      data.push(sound ? { audio: new Float32Array(sound), text } : text);
    }
    const options = { max_steps: 3, seed: 3, learning_rate: 1e-2, ...arg.options };
    const trainer = await ew.Trainer.create(p, data, options);
    const { losses, adapter } = await trainer.run();
    const { info } = trainer;
    await trainer.close();
    const files = await p.saveAdapter(adapter);
    await p.dispose();
    return { losses, device: info.device?.name, sizes: files.map(({ size }) => size) };
"""


def on_both(visit, given):
    """Losses of a few steps are those of WebAssembly, and the GPU made them."""
    gpu, wasm = (visit.run(FEW, {**given, "device": device}) for device in ("webgpu", "wasm"))
    assert "error" not in gpu, gpu["error"]["message"]
    assert gpu["device"] == "webgpu" and wasm["device"] != "webgpu"
    assert gpu["losses"] == pytest.approx(wasm["losses"], abs=1e-3)
    assert gpu["sizes"] == wasm["sizes"] and gpu["losses"][2] < gpu["losses"][0]


def test_dora(gpu_visit, gpu_files):
    """With the magnitudes of its columns."""
    with open(gpu_files / "dora-gpu.edge", "wb") as file:
        learner({"use_dora": True}).write(file)
    text = {"task": "text-generation", "file": "/files/dora-gpu.edge", "texts": [TEXT[:70]]}
    on_both(gpu_visit, text)


def test_pairs(gpu_visit, gpu_files):
    """Whisper, from recordings with their texts."""
    folder = gpu_files / "gpu-pairs"
    shutil.copytree(MODELS / "whisper", folder / "whisper")
    whisper_texts(folder / "whisper")
    options = ["--train", "lora", "--lora-r", "4", "--batch-size", "1", "--sequence-length", "16"]
    options += ["--target", "webgpu", "-o", str(folder / "whisper.edge")]
    main(["build", "--task", "asr", str(folder / "whisper"), *options])
    for i, clip in enumerate(clips()[:2]):
        (folder / f"{i}.f32").write_bytes(clip.tobytes())
    speech = {"task": "asr", "file": "/files/gpu-pairs/whisper.edge", "texts": TEXTS[:2]}
    speech["sounds"] = [f"/files/gpu-pairs/{i}.f32" for i in range(2)]
    speech["options"] = {"call_options": {"language": "en"}, "epochs": 2}
    on_both(gpu_visit, speech)


LOAD = "window.p = await ew.pipeline('text-generation', '/files/trainable-gpu.edge', arg)"
BEGIN = """
    window.steps = [];
    const onStep = ({ step, device }) => steps.push([step, device?.name]);
    window.trainer = await ew.Trainer.create(p, arg, { max_steps: 4, seed: 3, onStep });
    for (let i = 0; i < 2; i++) await trainer.step();
"""
END = """
    const { adapter, losses } = await trainer.run();
    await trainer.close();
    const [tensors] = await p.saveAdapter(adapter);
    const bytes = Array.from(new Uint8Array(await tensors.arrayBuffer()));
    return { losses, steps, bytes };
"""


def test_a_lost_gpu(gpu_visit, trainable):
    """The bits of a run that went on in a new GPU are those of one that was not disturbed."""
    assert gpu_visit.run(LOAD, {"device": "webgpu", "threads": 1}) is None
    runs = []
    for last in (False, True):
        assert gpu_visit.run(BEGIN, TEXT) is None
        if last:
            [worker] = gpu_visit.page.workers
            worker.evaluate(LOSE, 1)
        runs.append(gpu_visit.run(END))
    whole, lost = runs
    assert "error" not in lost, lost["error"]["message"]
    assert lost["losses"] == whole["losses"] and lost["bytes"] == whole["bytes"]
    assert whole["steps"] == [[step, None] for step in (1, 2, 3, 4)]
    assert lost["steps"] == [[1, None], [2, None], [3, "webgpu"], [4, None]]


OPEN = "window.s = await open({ options: { device: arg.device, threads: 1 } });"
STEPS = """
    const { s } = window;
    const losses = await steps(s, 0, 3);
    const { data } = await s.getContiguousParameters();
    const evaluation = await s.runEvalStep(batch(1));
    const wrong = batch(0);
    wrong.labels.data[0] = 9n;
    const refused = await s.runTrainStep(wrong).catch((e) => [e.name, e.what]);
    losses.push(...(await steps(s, 3, 4)));
    const { device } = s;
    const loss = Object.values(evaluation)[0].data[0];
    return { losses, loss, parameters: Array.from(data), refused, device };
"""


def test_a_training_session(gpu_visit, artifacts):  # noqa: F811
    """The GPU is lost in its first steps."""
    results = []
    for device in ("webgpu", "wasm"):
        arg = {**artifacts, "device": device}
        assert gpu_visit.run(CREATE + OPEN, arg) is None
        if device == "webgpu":
            workers = list(gpu_visit.page.workers)
            for worker in workers:
                worker.evaluate(LOSE, 8)
        results.append(gpu_visit.run(CREATE + STEPS, arg))
        if device == "webgpu":
            assert min(worker.evaluate("() => left()") for worker in workers) < 0
    gpu, wasm = results
    assert "error" not in gpu, gpu["error"]["message"]
    assert gpu["device"]["name"] == "webgpu" and gpu["device"]["gpu"]["onWasm"] == {}
    assert gpu["refused"][0] == wasm["refused"][0] == "InputError"
    for what in ("losses", "loss", "parameters"):
        assert gpu[what] == pytest.approx(wasm[what], abs=1e-4), what
