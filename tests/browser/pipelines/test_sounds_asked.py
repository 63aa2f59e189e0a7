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


TRANSCRIBE = """
    const p = await ew.pipeline("automatic-speech-recognition", arg.model, arg.options ?? {});
    const greedy = { max_new_tokens: 10, do_sample: false };
    const sounds = [];
    for (const i of [1, 0]) {
      const file = await fetch(`/files/told/${i}.f32`);
      sounds.push(new Float32Array(await file.arrayBuffer()));
    }
    const failed = (input, options) => p(input, options).then(() => "", (e) => e.message);
    const plain = await p(sounds, greedy);
    const errors = [
      await failed(sounds[0], { language: "xx" }),
      await failed(sounds[0], { language: 3 }),
      await failed(sounds[0], { return_timestamps: true }),
      await failed(new Float32Array(0), {}),
      await failed({ array: sounds[0], sampling_rate: 0 }, {}),
    ];
    const streamed = [];
    const english = await p(sounds[0], {
      ...greedy, language: "English", return_timestamps: false,
      streamer: (piece) => streamed.push(piece),
    });
    const long = await p(sounds[0], { do_sample: false });
    await p.dispose();
    return { plain, english, long: long.text, streamed: streamed.join(""), errors };
"""


@pytest.mark.parametrize("name", ["voxtral.edge", "voxtral/", "written.edge"])
def test_transcripts(visit, server, models, files, name):
    """As test_transcripts of tests/multimodal/test_sounds.py. A package of either task is one."""
    model = models["voxtral"]
    if name == "written.edge":
        package = str(files / "told" / name)
        main(["build", "--task", "asr", str(model.root), "-o", package])
    options = {"dtype": "fp32"} if name.endswith("/") else {}
    given = {"model": f"/files/told/{name}", "options": options}
    found = visit(server).run(TRANSCRIBE, given)
    assert "error" not in found, found

    def expected(count, seed, language):
        text = f"<s>[INST][AUDIO][/INST]{language}[TRANSCRIBE]"
        new = answered(model, [sound(count, seed)], 10, text)[-10:]
        return model.processor.tokenizer.decode(new, skip_special_tokens=True)

    plain = [expected(COUNTS[i], i, "") for i in (1, 0)]
    assert [one["text"] for one in found["plain"]] == plain and plain[0] != plain[1]
    assert found["english"] == {"text": expected(COUNTS[1], 1, "lang:en")}
    assert found["streamed"] == found["english"]["text"]
    assert found["long"].startswith(plain[0]) and len(found["long"]) > len(plain[0])
    words = ['language "xx" is unknown', "no text", "no such option", "no samples", "rate"]
    for error, expected_words in zip(found["errors"], words, strict=True):
        assert expected_words in error, error


def test_the_prompt_api_takes_sounds(visit, server, models):
    """Sessions of edgewise/prompt-api on this pipeline: answers and tokens are transformers'."""
    found = visit(server).run(
        """
            const { createLanguageModel } = await import("/prompt-api.js");
            const p = await ew.pipeline("audio-text-to-text", "/files/told/qwen2_audio.edge");
            const greedy = { max_new_tokens: 10, do_sample: false };
            const LanguageModel = createLanguageModel(p, greedy);
            const sound = await fetch("/files/told/0.f32");
            const samples = new Float32Array(await sound.arrayBuffer());
            const buffer = new AudioBuffer({ length: samples.length, sampleRate: 16000 });
            buffer.copyToChannel(samples, 0);
            const create = () => LanguageModel.create({ expectedInputs: [{ type: "audio" }] });
            const chat = (value) => [{ role: "user", content: [
              { type: "audio", value }, { type: "text", value: "what is in this" }] }];
            const session = await create();
            const measured = await session.measureContextUsage(chat(buffer));
            const work = session.prompt(chat(buffer));
            buffer.getChannelData(0).fill(0); // the session has its own
            const answer = await work;
            const refused = [];
            for (const value of [new Blob(["no sound"]), new ArrayBuffer(9), samples, "a", {}])
              refused.push(await session.prompt(chat(value)).then(() => "", (e) => e.name));
            await p.dispose();
            return { measured, answer, refused };
        """
    )
    assert "error" not in found, found
    model, given = models["qwen2_audio"], sound(COUNTS[0], 0)
    ids = answered(model, [given], 10)
    decode = model.processor.tokenizer.decode
    text = decode(ids, skip_special_tokens=True)
    assert found["answer"] == text[len(decode(ids[:-10], skip_special_tokens=True)) :]
    of = model.processor.tokenizer.apply_chat_template
    size = [len(of(messages(1), add_generation_prompt=opened)) for opened in (True, False)]
    assert found["measured"] == len(ids) - 10 - (size[0] - size[1])
    assert found["refused"] == ["DataError"] * 3 + ["TypeError"] * 2
