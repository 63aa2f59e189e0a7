"""Tasks that generate text with an encoder in a page: tiny models whose tokens transformers made
(tests/seq2seq/make.py), and Whisper as in Python.
"""

import json
import shutil
import wave
from pathlib import Path

import numpy as np
import onnx
import pytest
from edgewise.cli import main
from edgewise.pipelines import pipeline

from tests.seq2seq.sounds import SOUNDS, samples
from tests.seq2seq.words import tokenizer, whisper_texts

MODELS = Path(__file__).parents[2] / "seq2seq" / "models"
INPUTS = [[5, 9, 17, 33, 2, 90, 1], [4, 4, 8], list(range(3, 37))]
FILES = {"text2text-generation": "t5", "summarization": "bart", "translation": "marian_separate"}
SPEECH = [
    {},
    {"return_timestamps": True, "return_language": True},
    {"return_timestamps": "word", "language": "fr", "task": "translate"},
    {"num_beams": 3, "logprob_threshold": -1.0, "temperature": [0.0]},
    {"prompt_ids": [106, 11, 12, 13], "condition_on_prev_tokens": True, "temperature": 0.0},
    {"chunk_length_s": 0.8, "return_timestamps": True},
    {
        "temperature": [0.0],
        "compression_ratio_threshold": 1.35,
        "logprob_threshold": -1.2,
        "no_speech_threshold": 0.0002,
    },
]


def voice_activity():
    """A model in Silero's form to which all that is loud is speech."""
    info = onnx.helper.make_tensor_value_info
    op = onnx.helper.make_node
    graph = onnx.helper.make_graph(
        [
            op("ReduceL2", ["input"], ["loud"], axes=[1], keepdims=1),
            op("Sub", ["loud", "one"], ["above"]),
            op("Sigmoid", ["above"], ["output"]),
            op("Identity", ["state"], ["stateN"]),
        ],
        "vad",
        [info("input", 1, [1, "samples"]), info("state", 1, [2, 1, 128])],
        [info("output", 1, [1, 1]), info("stateN", 1, [2, 1, 128])],
        [onnx.numpy_helper.from_array(np.float32([1]), "one")],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])


@pytest.fixture(scope="module")
def folder(files):
    """Folders and packages of the models, and two sounds: of 0.9 and 2.6 s."""
    target = files / "generation"
    for name in [*FILES.values(), "whisper"]:
        shutil.copytree(MODELS / name, target / name)
    for task, name in FILES.items():
        tokenizer(target / name, 120)
        if task != "translation":
            main(["build", "--task", task, str(target / name), "-o", str(target / f"{name}.edge")])
    whisper_texts(target / "whisper")
    main(["build", "--task", "asr", str(target / "whisper"), "-o", str(target / "whisper.edge")])
    shutil.copytree(MODELS / "moonshine", target / "moonshine")
    tokenizer(target / "moonshine", 120)
    config = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": False}
    (target / "moonshine" / "preprocessor_config.json").write_text(json.dumps(config))
    moonshine = ["--task", "asr", str(target / "moonshine")]
    main(["build", *moonshine, "-o", str(target / "moonshine.edge")])
    streaming = target / "moonshine_streaming"
    shutil.copytree(MODELS / "moonshine_streaming", streaming)
    tokenizer(streaming, 120)
    (streaming / "preprocessor_config.json").write_text(json.dumps(config))
    main(["build", "--task", "asr", str(streaming), "-o", f"{streaming}.edge"])
    for i, count in enumerate(SOUNDS):
        (target / f"{i}.f32").write_bytes(samples(count, i).tobytes())
    onnx.save(voice_activity(), str(target / "loud.onnx"))
    vad = ["--task", "voice-activity-detection", str(target / "loud.onnx")]
    main(["build", *vad, "-o", str(target / "loud.edge")])
    for name, seconds, seed in (("short", 0.9, 1), ("long", 2.6, 2)):
        generator = np.random.default_rng(seed)
        n = int(seconds * 16000)
        noise = np.repeat(generator.standard_normal(n // 1600 + 1), 1600)[:n]
        sound = (noise * generator.standard_normal(n) * 4000).clip(-32768, 32767)
        with wave.open(str(target / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes(sound.astype("<i2").tobytes())
    return target


@pytest.fixture
def page(visit, server, folder):
    return visit(server)


@pytest.mark.parametrize("task", FILES)
def test_tokens_are_those_of_transformers(page, task):
    """Packages, and for translation a folder with two files of the decoder."""
    name = FILES[task]
    cases = json.loads((MODELS / f"{name.split('_')[0]}.json").read_text())
    texts = [" ".join(f"w{i}" for i in ids) for ids in INPUTS]
    model = f"/files/generation/{name}" + ("/" if task == "translation" else ".edge")
    found = page.run(
        """
            const p = await ew.pipeline(arg.task, arg.model, { dtype: "fp32" });
            const results = [];
            for (const options of arg.options)
              results.push(await p(arg.texts, { ...options, return_tensors: true }));
            let text = "";
            const streamer = (piece) => { text += piece; };
            const [one] = await p(arg.texts[0], { max_new_tokens: 9, streamer });
            const several = await p(arg.texts[1], { num_beams: 3, num_return_sequences: 2 });
            const errors = [];
            for (const [input, options] of [
              [arg.texts[0], { nonsense: 1 }],
              [arg.texts[0], { num_beams: 2, streamer }],
              [arg.texts[0], { max_new_tokens: 5000 }],
              [Array(600).fill("w5").join(" "), { truncation: false }],
              [7, {}],
              ["", {}],
            ])
              errors.push(await p(input, options).then(() => "", (e) => `${e.name}: ${e.message}`));
            const signal = AbortSignal.abort();
            errors.push(await p(arg.texts[0], { signal }).then(() => "", (e) => e.name));
            const again = await p(arg.texts[0], { max_new_tokens: 9 });
            await p.dispose();
            return { results, one, text, several, errors, again, info: p.info };
        """,
        {
            "task": task,
            "model": model,
            "texts": texts,
            "options": [case["options"] for case in cases.values()],
        },
    )
    assert "error" not in found, found
    key = {"text2text-generation": "generated", "summarization": "summary"}.get(task, task)
    for case, got in zip(cases.values(), found["results"]):
        assert [record[f"{key}_token_ids"] for record in got] == case["sequences"]
    text = found["one"][f"{key}_text"]  # with the start token, which is not special here
    assert text.split(" ", 1)[1] == found["text"] and found["again"] == [found["one"]]
    assert len(found["several"]) == 2
    unknown, beams, long, large, number, empty, aborted = found["errors"]
    assert unknown.startswith("InputError") and "nonsense" in unknown
    assert "streamer" in beams and aborted == "Aborted"
    assert long == "" or "5000" in long  # the decoder's length is the limit, with a warning
    assert large.startswith("InputError") and "600 tokens" in large
    assert number.startswith("InputError") and empty.startswith("InputError")
    assert found["info"]["origin"] == ("compiled" if task == "translation" else "package")


def test_beams_of_the_generation_config(page, folder):
    """Thresholds take the model's own num_beams as one that is given."""
    own = folder / "whisper-beams"
    shutil.copytree(folder / "whisper", own)
    config = json.loads((own / "generation_config.json").read_text())
    (own / "generation_config.json").write_text(json.dumps({**config, "num_beams": 3}))
    main(["build", "--task", "asr", str(own), "-o", str(folder / "whisper-beams.edge")])
    found = page.run(
        """
            const results = [];
            for (const [name, more] of [["whisper", { num_beams: 3 }], ["whisper-beams", {}]]) {
              const p = await ew.pipeline("asr", `/files/generation/${name}.edge`);
              // any log probability is low enough, so the window counts as silence
              const quiet = { logprob_threshold: -0.01, no_speech_threshold: 0 };
              const options = { temperature: [0], ...quiet, ...more };
              results.push(await p("/files/generation/short.wav", options));
              const streamer = () => undefined;
              const failing = p("/files/generation/short.wav", { ...more, streamer });
              results.push((await failing.catch((e) => e)).message);
              await p.dispose();
            }
            return results;
        """
    )
    assert "error" not in found, found
    assert found[0] == found[2] == {"text": ""}
    assert found[1] == found[3] and "beams" in found[1]


@pytest.mark.parametrize(
    "task, name, given",
    [
        ("translation", "marian_separate", "w4 w4 w8"),
        ("asr", "whisper", "/files/generation/short.wav"),
    ],
)
def test_a_folder_is_compiled_and_kept(visit, server, folder, task, name, given):
    """The second visit takes the stored package. A dtype may be given for each file."""
    first, second = (
        visit(server).run(
            """
                const p = await ew.pipeline(arg.task, `/files/generation/${arg.name}/`, {
                  dtype: { encoder_model: "fp32", [arg.decoder]: "fp32" },
                  capacity: 40,
                });
                const result = await p(arg.given, { max_new_tokens: 6 });
                await p.dispose();
                return [result, p.info.origin, p.info.dtype];
            """,
            {
                "task": task,
                "name": name,
                "given": given,
                "decoder": "decoder_model_merged" if name == "whisper" else "decoder_model",
            },
        )
        for _ in range(2)
    )
    assert first[1] == "compiled" and second[1] == "cache", (first, second)
    assert first[0] == second[0]


TRANSCRIBE = """
    const p = await ew.pipeline("asr", "/files/generation/whisper.edge");
    const results = [];
    for (const options of arg)
      for (const name of ["short", "long"])
        results.push(await p(`/files/generation/${name}.wav`, options));
    const memory = p.info.memory.engine;
    const segments = [];
    const progress = [];
    const whole = await p("/files/generation/long.wav", {
      onSegment: (segment) => segments.push(segment.text),
      onProgress: (fraction) => progress.push(fraction),
    });
    const errors = [];
    for (const [input, options] of [
      ["/files/generation/none.wav", {}],
      [new Float32Array(0), {}],
      [new Blob(["no sound"]), {}],
      ["/files/generation/short.wav", { language: "klingon" }],
      ["/files/generation/short.wav", { return_timestamps: "char" }],
      ["/files/generation/short.wav", { chunk_length_s: 1, stride_length_s: 0.5 }],
      ["/files/generation/short.wav", { no_speech_threshold: 0.5 }],
      ["/files/generation/short.wav", { num_return_sequences: 2 }],
      ["/files/generation/short.wav", { chunk_length: 1 }],
    ])
      errors.push(await p(input, options).then(() => "", (e) => `${e.name}: ${e.message}`));
    const again = await p("/files/generation/long.wav");
    await p.dispose();
    return { results, whole, segments, progress, errors, again, memory, info: p.info };
"""


def test_speech_is_transcribed_as_in_python(page, folder):
    found = page.run(TRANSCRIBE, SPEECH)
    assert "error" not in found, found
    with pipeline("asr", str(folder / "whisper")) as pipe:
        wanted = [
            pipe(str(folder / f"{name}.wav"), **options)
            for options in SPEECH
            for name in ("short", "long")
        ]
    for got, want in zip(found["results"], wanted, strict=True):
        assert got["text"] == want["text"]
        assert (
            got.get("chunks")
            == [
                {
                    **chunk,
                    **({"timestamp": list(chunk["timestamp"])} if "timestamp" in chunk else {}),
                }
                for chunk in want["chunks"]
            ]
            if "chunks" in want
            else "chunks" not in got
        )
    assert found["again"] == found["whole"] and len(found["segments"]) > 2
    words = "".join(found["segments"]).replace(" ", "")  # this tokenizer has no spaces of its own
    assert words == found["whole"]["text"].replace(" ", "")
    assert found["progress"] == sorted(found["progress"]) and found["progress"][-1] == 1
    assert all(e.startswith("InputError") for e in found["errors"]), found["errors"]
    assert found["info"]["memory"]["engine"] == found["memory"]  # windows leave nothing behind


def test_moonshine(page, folder):
    """Tokens are those of transformers; chunks and errors those of Python."""
    cases = [*json.loads((MODELS / "moonshine.json").read_text()).values()]
    found = page.run(
        """
            const p = await ew.pipeline("asr", "/files/generation/moonshine.edge");
            const sounds = [];
            for (let i = 0; i < 3; i++) {
              const file = await fetch(`/files/generation/${i}.f32`);
              sounds.push(new Float32Array(await file.arrayBuffer()));
            }
            const texts = [];
            for (const options of arg) texts.push((await p(sounds, options)).map((r) => r.text));
            let streamed = "";
            const streamer = (piece) => { streamed += piece; };
            const whole = await p(sounds[2], { streamer });
            const seen = [];
            const options = { chunk_length_s: 1, onProgress: (x) => seen.push(x) };
            const chunks = await p(sounds[2], options);
            const errors = [];
            for (const given of [
              [sounds[0], { return_timestamps: true }],
              [new Float32Array(800_000), {}],
            ])
              errors.push(await p(...given).then((x) => x.text, (e) => e.message));
            errors.push(await p.stream().feed(sounds[0]).then(() => "", (e) => e.message));
            await p.dispose();
            return { texts, streamed, whole, chunks, seen, errors };
        """,
        [case["options"] for case in cases],
    )
    assert "error" not in found, found
    for texts, case in zip(found["texts"], cases, strict=True):
        for text, ids in zip(texts, case["sequences"], strict=True):
            assert text == " ".join(f"w{i}" for i in ids if i not in (0, 1, 2))
    with pipeline("asr", str(folder / "moonshine")) as listen:
        sound = samples(SOUNDS[2], 2)
        assert found["whole"] == listen(sound)
        assert found["streamed"] == found["whole"]["text"]
        assert found["chunks"] == listen(sound, chunk_length_s=1)
    assert found["seen"] == sorted(found["seen"]) and found["seen"][-1] == 1
    times, long, stream = found["errors"]
    assert "no option 'return_timestamps'" in times and "this package takes 39.99" in long
    assert "no streams" in stream


@pytest.mark.family("Moonshine streaming", exporter="torch")
@pytest.mark.parametrize("model", ["moonshine_streaming.edge", "moonshine_streaming/"])
def test_moonshine_streaming(page, folder, model):
    """Tokens are those of transformers, of a package and of graphs compiled in the page."""
    cases = [*json.loads((MODELS / "moonshine_streaming.json").read_text()).values()]
    found = page.run(
        """
            const options = arg.model.endsWith("/") ? { dtype: "fp32" } : {};
            const p = await ew.pipeline("asr", `/files/generation/${arg.model}`, options);
            const sounds = [];
            for (let i = 0; i < 3; i++) {
              const file = await fetch(`/files/generation/${i}.f32`);
              sounds.push(new Float32Array(await file.arrayBuffer()));
            }
            const texts = [];
            for (const given of arg.cases)
              texts.push((await p(sounds, given)).map((r) => r.text));
            await p.dispose();
            return texts;
        """,
        {"model": model, "cases": [case["options"] for case in cases]},
    )
    assert "error" not in found, found
    for texts, case in zip(found, cases, strict=True):
        for text, ids in zip(texts, case["sequences"], strict=True):
            assert text == " ".join(f"w{i}" for i in ids if i not in (0, 1, 2))


def test_streams_of_speech_are_those_of_python(page, folder):
    found = page.run(
        """
            const p = await ew.pipeline("asr", "/files/generation/whisper.edge");
            const bytes = await (await fetch("/files/generation/long.wav")).arrayBuffer();
            const array = Float32Array.from(new Int16Array(bytes, 44), (x) => x / 32768);
            const stream = p.stream({ interval: 0.4, max_new_tokens: 20 });
            const events = [];
            for (let at = 0; at < array.length; at += 1500)
              events.push(...(await stream.feed(array.subarray(at, at + 1500))));
            events.push(...(await stream.end()));
            const refused = await p.stream({ interval: 60 })
              .feed(array)
              .then(() => "", (e) => e.message);
            // a talk between silences, found by another pipeline; one whose pieces do not wait
            const loud = "/files/generation/loud.edge";
            const vad = await ew.pipeline("voice-activity-detection", loud);
            const quiet = new Float32Array(24000);
            const parts = [quiet, array.subarray(0, 17600), quiet, array.subarray(17600), quiet];
            const talk = await new Blob(parts).arrayBuffer().then((b) => new Float32Array(b));
            async function* pieces() {
              for (let at = 0; at < talk.length; at += 1500)
                yield { array: talk.subarray(at, at + 1500), sampling_rate: 16000 };
            }
            const heard = { vad: [], live: [] };
            const options = { interval: 0.4, max_new_tokens: 20, vad };
            for await (const event of p.stream(pieces(), options)) heard.vad.push(event);
            const live = { ...options, live: true };
            for await (const event of p.stream(pieces(), live)) heard.live.push(event);
            await vad.dispose();
            const gone = await p.stream({ vad }).feed(talk).then(() => "", (e) => e.message);
            let none = "";
            try { p.stream({ vad: p }) } catch (e) { none = e.message; }
            await p.dispose();
            return { events, refused, heard, errors: [gone, none] };
        """
    )
    assert "error" not in found, found
    detect = pipeline("voice-activity-detection", str(folder / "loud.onnx"))
    with pipeline("asr", str(folder / "whisper")) as pipe, wave.open(str(folder / "long.wav")) as f:
        samples = np.frombuffer(f.readframes(f.getnframes()), "<i2").astype("f") / 32768
        stream = pipe.stream(interval=0.4, max_new_tokens=20)
        wanted = stream.feed(samples) + stream.end()
        quiet = np.zeros(24000, "f")
        talk = np.concatenate([quiet, samples[:17600], quiet, samples[17600:], quiet])
        stream = pipe.stream(interval=0.4, max_new_tokens=20, vad=detect)
        spoken = stream.feed(talk) + stream.end()
    assert len(wanted) > 2 and len(spoken) > 4
    for events, expected in ((found["events"], wanted), (found["heard"]["vad"], spoken)):
        for got, want in zip(events, expected, strict=True):
            assert (got["committed"], got["partial"]) == (want["committed"], want["partial"])
            times = want["timestamp"]
            assert got["timestamp"] == (times and pytest.approx(list(times), abs=0.001))
    live = found["heard"]["live"]
    assert 1 <= len(live) <= len(spoken) and live[-1]["partial"] == ""
    assert "interval" in found["refused"]
    assert "vad" in found["errors"][0] and "does not find speech" in found["errors"][1]
