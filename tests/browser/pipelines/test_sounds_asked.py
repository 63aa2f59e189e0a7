"""audio-text-to-text in a page, beside transformers: from a package, and compiled in the page."""

import shutil

import pytest
from edgewise.cli import main

from tests.multimodal.sounds import SOUND_MODELS, answered, messages, sound

COUNTS = (7777, 40000)
ASK = """
    const p = await ew.pipeline("audio-text-to-text", arg.model, arg.options ?? {});
    const greedy = { max_new_tokens: 10, do_sample: false };
    const sounds = [];
    for (const i of [0, 1]) {
      const file = await fetch(`/files/told/${i}.f32`);
      sounds.push(new Float32Array(await file.arrayBuffer()));
    }
    const text = { type: "text", text: "what is in this" };
    const chat = (...of) => [
      { role: "user", content: [...of.map((audio) => ({ type: "audio", audio })), text] },
    ];
    const found = [];
    for (const of of [[], [sounds[0]], sounds]) {
      const [one] = await p(chat(...of), { ...greedy, return_tensors: true });
      found.push(one.generated_token_ids);
    }
    const open = [{ role: "user", content: [{ type: "audio" }, text] }];
    const streamed = [];
    const streamer = (piece) => streamed.push(piece);
    const [filled] = await p(open, {
      ...greedy, audio: { array: sounds[0], sampling_rate: 16000 }, streamer,
    });
    const errors = [];
    for (const [input, options] of [
      [open, {}],
      [open, { audio: [sounds[0], sounds[0]] }],
      [{ text: "what is this", audio: sounds[0] }, {}],
      [chat(new Float32Array(0)), {}],
      [[{ role: "user", content: [{ type: "image", image: sounds[0] }] }], {}],
    ])
      errors.push(await p(input, { ...greedy, ...options }).then(() => "", (e) => e.message));
    const { origin } = p.info;
    await p.dispose();
    const last = filled.generated_text.at(-1).content;
    return { found, origin, same: streamed.join("") === last, errors };
"""


@pytest.fixture(scope="module")
def models(files, tmp_path_factory):
    """Tiny models, with their folders and packages among the files, and sounds."""
    target, made = files / "told", {}
    for name, make in SOUND_MODELS.items():
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
        pytest.param("voxtral", True, marks=pytest.mark.family("Voxtral", exporter="torch")),
        ("voxtral", False),
        pytest.param(
            "qwen2_audio", True, marks=pytest.mark.family("Qwen2-Audio", exporter="torch")
        ),
    ],
)
def test_answers_are_those_of_transformers(visit, server, models, name, packaged):
    address = f"/files/told/{name}" + (".edge" if packaged else "/")
    given = {"model": address, "options": {} if packaged else {"dtype": "fp32"}}
    found = visit(server).run(ASK, given)
    assert "error" not in found, found
    sounds = [sound(count, i) for i, count in enumerate(COUNTS)]
    wanted = [answered(models[name], of, 10) for of in ([], sounds[:1], sounds)]
    assert found["found"] == wanted and found["same"]
    assert found["origin"] == ("package" if packaged else "compiled")
    for error, words in zip(
        found["errors"],
        [
            "a part of a message has no sound",
            "1 of the sounds have no place",
            "0 placeholders",
            "no samples",
            "the type 'image'",
        ],
        strict=True,
    ):
        assert words in error, error
    assert len(messages(2)[0]["content"]) == 3
