"""`fineTune` on pairs in a page: the run is that of Python (tests/training/test_pairs.py), which is
PyTorch's.
"""

import base64
import shutil

import edgewise
import numpy as np
import pytest
from edgewise.cli import main

from tests.seq2seq.words import tokenizer, whisper_texts
from tests.training.test_pairs import MODELS, SOURCES, SPEECH, TEXT, TEXTS, clips

RATE, STEPS = 1e-2, 6
SAME = {"max_steps": STEPS, "learning_rate": RATE, "batch_size": 4, "sequence_length": 32}
SAME["adapters"] = {"r": 4, "lora_alpha": 8}


@pytest.fixture(scope="module")
def folder(files):
    """Folders and packages that train, and sounds."""
    target = files / "pairs"
    for name, task in (("whisper", "asr"), ("t5", "text2text-generation")):
        shutil.copytree(MODELS / name, target / name)
        whisper_texts(target / name) if name == "whisper" else tokenizer(target / name, 120)
        options = ["--train", "lora", "--lora-r", "4", "--lora-alpha", "8"]
        options += ["--sequence-length", "32", "-o", f"{target / name}.edge"]
        main(["build", "--task", task, str(target / name), *options])
    for i, clip in enumerate(clips()):
        (target / f"{i}.f32").write_bytes(clip.tobytes())
    return target


@pytest.fixture
def page(visit, server, folder):
    return visit(server)


SPEAK = """
    const asr = await ew.pipeline("asr", "/files/pairs/whisper.edge");
    const sounds = [];
    for (let i = 0; i < 3; i++)
      sounds.push(new Float32Array(await (await fetch(`/files/pairs/${i}.f32`)).arrayBuffer()));
    const pairs = arg.texts.map((text, i) => ({ audio: sounds[i].slice(), text }));
    const call_options = { language: "en" };
    const options = { max_steps: arg.steps, learning_rate: arg.rate, call_options };
    const heard = async () => (await asr(sounds, call_options)).map((one) => one.text);
    const before = await heard();
    const result = await ew.fineTune(asr, pairs, { ...options, evaluation: pairs.slice(0, 1) });
    const after = await heard();
    const files = await Promise.all(
      (await asr.saveAdapter("adapter")).map(async (file) => {
        const bytes = new Uint8Array(await file.arrayBuffer());
        return [file.name, btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""))];
      }),
    );
    await asr.setAdapter(null);
    const without = await heard();
    await asr.loadAdapter("again", await asr.saveAdapter("adapter"));
    await asr.setAdapter("again");
    const again = await heard();
    const errors = [];
    const bad = [
      [[], {}],
      ["one", {}],
      [[{ audio: sounds[0] }], {}],
      [[pairs[0], { audio: new Blob(["no sound"]), text: "w5" }], {}],
      [[{ audio: new Float32Array(16800), text: "w5" }], {}],
      [[{ audio: sounds[0], text: " " }], {}],
      [pairs, { call_options: { language: "xx" } }],
      [pairs, { loss: "dpo" }],
      [pairs, { evaluation: [{ text: "w5" }] }],
    ];
    for (const [given, more] of bad)
      errors.push(await ew.fineTune(asr, given, { ...options, ...more }).then(() => "", String));
    const list = asr.adapters.map(({ name, active }) => [name, active]);
    const run = { ...options, name: "resumed", checkpoint: "pairs", max_steps: 40 };
    const whole = await ew.fineTune(asr, pairs, { ...run, checkpoint: undefined });
    const stop = new AbortController();
    const onStep = ({ step }) => step === 2 && stop.abort();
    const aborted = await ew
      .fineTune(asr, pairs, { ...run, onStep, signal: stop.signal })
      .then(() => "", (e) => e.name);
    const rest = await ew.fineTune(asr, pairs, { ...run, resume: true });
    const estimate = await ew.Trainer.estimate(asr, pairs, options);
    await asr.dispose();
    return {
      before, after, without, again, result, files, errors, list, aborted,
      whole: whole.losses, rest: rest.losses, fits: estimate.fits,
    };
"""


@pytest.mark.family("Whisper", exporter="optimum")
def test_whisper_learns_words_as_in_python(page, folder, tmp_path):
    found = page.run(SPEAK, {"texts": TEXTS, "rate": RATE, "steps": STEPS})
    assert "error" not in found, found
    with edgewise.pipeline("asr", folder / "whisper") as asr:
        options = {"call_options": {"language": "en"}, "evaluation": SPEECH[:1]}
        mine = edgewise.fine_tune(asr, SPEECH, **SAME, **options)
        np.testing.assert_allclose(found["result"]["losses"], mine.losses, atol=1e-3)
        assert found["result"]["evaluations"][-1][1] == pytest.approx(
            mine.evaluations[-1][1], abs=1e-3
        )
        for name, data in found["files"]:
            (tmp_path / name).write_bytes(base64.b64decode(data))
        asr.load_adapter(tmp_path, "page")
        asr.set_adapter("page")
        assert found["after"] == [asr(clip, language="en")["text"] for clip in clips()]
    assert found["before"] == found["without"] != found["after"] == found["again"]
    parts = (
        "pairs: there are no pairs",
        'pairs, record 1: "one" is not a pair',
        "pairs, record 1: it has no text",
        "pairs, record 2: ",
        "pairs, record 1: the recording has 1.1 s",
        "pairs, record 1: text is empty",
        "the language",
        "options.loss: pairs have no preferences",
        "options.evaluation, record 1: it has no audio",
    )
    for error, part in zip(found["errors"], parts, strict=True):
        assert error.startswith("InputError") and part in error
    assert found["list"] == [["adapter", False], ["again", True]]
    assert found["aborted"] == "Aborted" and found["rest"] == found["whole"] and found["fits"]


COMPILE = """
    const training = { r: 4, lora_alpha: 8, batch_size: 4, sequence_length: 32 };
    const asr = await ew.pipeline("asr", "/files/pairs/whisper/", { training });
    const pairs = [];
    for (const [i, text] of arg.texts.entries()) {
      const sound = await (await fetch(`/files/pairs/${i}.f32`)).arrayBuffer();
      pairs.push({ audio: new Float32Array(sound), text });
    }
    const call_options = { language: "en" };
    const options = { max_steps: arg.steps, learning_rate: arg.rate, call_options };
    const { losses } = await ew.fineTune(asr, pairs, options);
    return { losses, origin: asr.info.origin, adapters: asr.adapters.length };
"""


def test_a_folder_is_compiled_in_the_page_to_learn(page, folder):
    """Without a package: Python in the page compiles the model with its training."""
    found = page.run(COMPILE, {"texts": TEXTS, "rate": RATE, "steps": STEPS})
    assert found.get("origin") == "compiled" and found["adapters"] == 1, found
    with edgewise.pipeline("asr", folder / "whisper") as asr:
        mine = edgewise.fine_tune(asr, SPEECH, **SAME, call_options={"language": "en"})
    np.testing.assert_allclose(found["losses"], mine.losses, atol=1e-3)


WRITE = """
    const pipe = await ew.pipeline("text2text-generation", "/files/pairs/t5.edge");
    const pairs = arg.texts.map((target, i) => ({ source: arg.sources[i], target }));
    const options = { max_steps: arg.steps, learning_rate: arg.rate };
    const before = await pipe(arg.sources);
    const { losses } = await ew.fineTune(pipe, pairs, options);
    const after = await pipe(arg.sources);
    const long = [{ source: "w5 ".repeat(40), target: "w6" }];
    const error = await ew.fineTune(pipe, long, options).then(() => "", String);
    return { losses, error, changed: JSON.stringify(before) !== JSON.stringify(after) };
"""


def test_texts_are_learned_as_in_python(page, folder):
    given = {"texts": TEXTS, "sources": SOURCES, "rate": RATE, "steps": STEPS}
    found = page.run(WRITE, given)
    assert found.get("changed"), found
    with edgewise.pipeline("text2text-generation", folder / "t5") as pipe:
        mine = edgewise.fine_tune(pipe, TEXT, **SAME)
    np.testing.assert_allclose(found["losses"], mine.losses, atol=1e-3)
    assert "record 1: its source has 40 tokens, training takes 32" in found["error"]
