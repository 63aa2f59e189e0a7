"""audio-text-to-text with encoders of any length in a page, beside transformers."""

import shutil

import pytest
from edgewise.cli import main

from tests.multimodal.any_sounds import TOLD_MODELS
from tests.multimodal.sounds import sound
from tests.multimodal.test_any_sounds import text_of

COUNTS = (7777, 48001, 9000)
ASK = """
    const p = await ew.pipeline("audio-text-to-text", arg.model, arg.options);
    const greedy = { max_new_tokens: 10, do_sample: false, return_tensors: true };
    const sounds = [];
    for (const i of [0, 1, 2]) {
      const file = await fetch(`/files/any/${i}.f32`);
      sounds.push(new Float32Array(await file.arrayBuffer()));
    }
    const text = { type: "text", text: "what is in this" };
    const chat = (...of) => [
      { role: "user", content: [...of.map((audio) => ({ type: "audio", audio })), text] },
    ];
    const found = [];
    for (const of of [[sounds[0]], [sounds[1], sounds[2]]])
      found.push((await p(chat(...of), greedy))[0].generated_token_ids);
    const errors = [];
    for (const bad of [new Float32Array(0), new Float32Array(61 * 16000), new Blob(["no sound"])])
      errors.push(await p(chat(bad), greedy).then(() => "", (e) => e.message));
    found.push((await p(chat(sounds[2]), greedy))[0].generated_token_ids); // it goes on
    await p.dispose();
    return { found, errors };
"""


@pytest.fixture(scope="module")
def models(files, tmp_path_factory):
    """Tiny models, with their folders and packages among the files, and sounds."""
    target, made = files / "any", {}
    for name, make in TOLD_MODELS.items():
        made[name] = make(tmp_path_factory.mktemp(name))
        shutil.copytree(made[name].root, target / name)
        package = str(target / f"{name}.edge")
        main(["build", "--task", "audio-text-to-text", str(made[name].root), "-o", package])
    for i, count in enumerate(COUNTS):
        (target / f"{i}.f32").write_bytes(sound(count, i).tobytes())
    return made


@pytest.mark.parametrize(
    "name, packaged",
    [
        pytest.param("ultravox", False, marks=pytest.mark.family("Ultravox", exporter="torch")),
        pytest.param(
            "granite_speech", True, marks=pytest.mark.family("Granite Speech", exporter="torch")
        ),
        pytest.param("qwen3_asr", True, marks=pytest.mark.family("Qwen3-ASR", exporter="torch")),
    ],
)
def test_answers_are_those_of_transformers(visit, server, models, name, packaged):
    address = f"/files/any/{name}" + (".edge" if packaged else "/")
    given = {"model": address, "options": {} if packaged else {"dtype": "fp32"}}
    found = visit(server).run(ASK, given)
    assert "error" not in found, found
    sounds, model = [sound(count, i) for i, count in enumerate(COUNTS)], models[name]
    wanted = [
        model.answered(text_of(model, len(of)), of, 10)
        for of in (sounds[:1], sounds[1:], sounds[2:])
    ]
    assert found["found"] == wanted
    long = "" if name == "ultravox" else "heard at once"  # which has windows
    for error, words in zip(found["errors"], ("no samples", long, ""), strict=True):
        assert words in error, error
    assert found["errors"][0] and found["errors"][2]
