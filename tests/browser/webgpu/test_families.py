"""Families of models on a page's GPU, with the results that WebAssembly is compared with. Nothing
of a language model runs beside the GPU.
"""

import os
import subprocess
import sys

import pytest

from tests.generation.test_families import EXPECTED, PROMPTS, SWITCHED
from tests.tiers import slow_unless

from ..conftest import ROOT, Visit
from ..test_families import packed

# States of convolutions; linear attention and a mixture that sorts tokens by experts; recurrence.
QUICK = ("GenAI_lfm2", "transformers_kimi_linear", "torch_rwkv7")
# Files of ..pipelines with tests of other families.
OTHERS = ("any_size", "any_sounds_asked", "cloning", "codecs", "families_asked", "generation")
OTHERS += (
    "hearing",
    "masks",
    "picture_texts",
    "sounds_asked",
    "speaking",
    "text",
    "vision",
    "zero_shot_objects",
)
RUN = """
    const p = await ew.pipeline("text-generation", arg.model, { device: "webgpu" });
    const write = async (prompt) => {
      const ids = [];
      const streamer = { put: (x) => ids.push(...x), end() {} };
      await p(prompt, { max_new_tokens: 24, do_sample: false, streamer });
      return ids.slice(-24);
    };
    const [one, other] = arg.prompts;
    const made = [await write(one), await write(other)];
    const together = await Promise.all([write(other), write(one)]);
    if (arg.beams) {
      const beams = { max_new_tokens: 10, num_beams: 3, do_sample: false };
      const [{ generated_text }] = await p(one, beams);
      made.push(generated_text.split(" ").slice(-10).map((w) => Number(w.slice(1))));
    }
    const { name, gpu } = p.info.device;
    await p.dispose();
    return { made, together, name, onWasm: gpu?.onWasm };
"""


@pytest.fixture(scope="module")
def page(gpu_browser, server, gpu_files):
    """One for all models."""
    context = gpu_browser.new_context()
    one = Visit(context, server + "/files/blank.html").start()
    yield one
    one.close()
    context.close()


@pytest.mark.families("tests/generation/test_families.py")
@pytest.mark.parametrize(
    "name", slow_unless(lambda name: name in QUICK, sorted(set(EXPECTED) - SWITCHED))
)
def test_tokens(page, gpu_files, tmp_path, name):
    """Of two prompts in turn, then at once in the other order, and of beams."""
    (gpu_files / f"{name}-gpu.edge").write_bytes(packed(tmp_path / name, name, "webgpu"))
    greedy, beams = EXPECTED[name]["greedy"], EXPECTED[name]["beams"]
    prompts = [" ".join(f"w{i}" for i in ids) for ids in PROMPTS]
    arg = {"model": f"/files/{name}-gpu.edge", "prompts": prompts, "beams": beams is not None}
    expected = {"made": [*greedy, beams] if beams else greedy, "together": greedy[::-1]}
    assert page.run(RUN, arg) == {**expected, "name": "webgpu", "onWasm": {}}


@pytest.mark.families("tests/browser/pipelines/test_any_size.py")
@pytest.mark.families("tests/browser/pipelines/test_any_sounds_asked.py")
@pytest.mark.families("tests/browser/pipelines/test_cloning.py")
@pytest.mark.families("tests/browser/pipelines/test_codecs.py")
@pytest.mark.families("tests/browser/pipelines/test_families_asked.py")
@pytest.mark.families("tests/browser/pipelines/test_generation.py")
@pytest.mark.families("tests/browser/pipelines/test_hearing.py")
@pytest.mark.families("tests/browser/pipelines/test_masks.py")
@pytest.mark.families("tests/browser/pipelines/test_picture_texts.py")
@pytest.mark.families("tests/browser/pipelines/test_sounds_asked.py")
@pytest.mark.families("tests/browser/pipelines/test_speaking.py")
@pytest.mark.families("tests/browser/pipelines/test_text.py")
@pytest.mark.families("tests/browser/pipelines/test_vision.py")
@pytest.mark.families("tests/browser/pipelines/test_zero_shot_objects.py")
@pytest.mark.slow("browser/webgpu/test_speech_and_drawing.py::test_whisper")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("file", OTHERS)
def test_others(file):
    """What a file of tests/browser/pipelines says of families, on a GPU (..on_gpu)."""
    rest = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "family"]
    run = subprocess.run(
        [*command, f"tests/browser/pipelines/test_{file}.py"],
        cwd=ROOT,
        env={**rest, "EDGEWISE_PAGE_DEVICE": "webgpu"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-8000:]
