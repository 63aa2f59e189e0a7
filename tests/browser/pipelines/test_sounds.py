"""Pipelines of sound in a page: classes as transformers, voices as in Python, speech as silero-vad
finds it, streams and the microphone.
"""

import io
import json
import os
import shutil
import wave
from pathlib import Path

import numpy as np
import onnx
import pytest
import transformers
from edgewise import pipeline
from edgewise.cli import main
from edgewise.processors.media import resample_audio
from pipelines import tiny_audio

from ..conftest import CHROMIUM, FLAGS
from .test_rooms_talk import loudness
from .test_text import close

REAL = Path(os.environ.get("EDGEWISE_REAL", "/nowhere"))
SILERO = REAL / "silero-vad" / "silero_vad.onnx"
JFK = REAL / "audio" / "jfk16k.wav"
RESEMBLYZER = {"feature_extractor_type": "ResemblyzerFeatureExtractor"}
CLAP = ("clap", "clap-fused")
needs_real = pytest.mark.skipif(not SILERO.exists(), reason="EDGEWISE_REAL has no models")


def sound(seed, count=20000, rate=16000):
    t = np.arange(count) / rate
    noise = np.random.default_rng(seed).standard_normal(count)
    x = 0.3 * np.sin(2 * np.pi * (200 + 90 * seed) * t) + 0.02 * noise
    return (x * 32767).astype(np.int16)


def wav(samples, rate=16000):
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return out.getvalue()


@pytest.fixture(scope="module")
def folder(files):
    """Tiny models, their packages and recordings."""
    made = files / "sounds"
    made.mkdir()
    for kind in ("AST", "Wav2Vec2"):
        model = tiny_audio.make(made / kind, kind)
        for task in ("audio-classification", "speaker-verification"):
            main(["build", "--task", task, str(model), "-o", str(made / f"{kind}-{task}.edge")])
    for kind in CLAP:
        fused = kind == "clap-fused"
        model = tiny_audio.make_clap(made / kind, separate=not fused, fused=fused)
        path = made / f"{kind}.edge"
        main(["build", "--task", "zero-shot-audio-classification", str(model), "-o", str(path)])
    for i in range(4):
        (made / f"{i}.wav").write_bytes(wav(sound(i)))
    (made / "slow.wav").write_bytes(wav(sound(1, 10000, 8000), 8000))
    (made / "broken.wav").write_bytes(wav(sound(1))[:30])
    if SILERO.exists():
        arguments = ["--task", "voice-activity-detection", str(SILERO), "-o"]
        main(["build", *arguments, str(made / "vad.edge")])
        shutil.copy(JFK, made / "jfk.wav")
    return made


@pytest.fixture
def page(visit, server, folder):
    return visit(server)


@pytest.mark.parametrize("kind", CLAP)
def test_any_labels(page, folder, kind):
    """CLAP's scores are transformers'."""
    task, labels = "zero-shot-audio-classification", ["a dog", "rain", "two very large trees"]
    script = """
        const p = await ew.pipeline(arg.task, `/files/sounds/${arg.kind}.edge`);
        const noise = (_, i) => ((i * i) % 1013) / 1013 - 0.5;
        const samples = (count) => Float32Array.from({ length: count }, noise);
        const several = await p([samples(9000), new Float32Array(500)], arg.labels);
        const one = await p(samples(16000), arg.labels.join(), { hypothesis_template: "{}!" });
        const slow = await p({ array: samples(7000), sampling_rate: 8000 }, arg.labels);
        const long = await p(samples(20000), arg.labels).then((x) => x.length, (e) => e.what);
        const errors = [];
        for (const [count, labels] of [[1, []], [1, ["very ".repeat(60)]], [0, ["a"]]])
          errors.push(await p(samples(count), labels).then((x) => x.length, (e) => e.what));
        await p.dispose();
        return [...several, one, slow, long, errors];
    """
    given = {"task": task, "kind": kind, "labels": labels}
    found = page.run(script, given)
    assert "error" not in found, found
    assert found[4] == ("the sound has 20000 samples, Clap takes 16000" if "fused" in kind else 3)
    assert found[5][0] == "there are no labels" and "the model takes 40" in found[5][1]
    assert "samples" in found[5][2]
    page.page.evaluate("async () => void (window.ew = await import('/edgewise.inline.js'))")
    assert page.run(script, given) == found
    assert len(page.asked("part-candidates.js")) == 1
    theirs = transformers.pipeline(task, str(folder / kind), device="cpu")

    def samples(count):
        return (np.arange(count) ** 2 % 1013 / 1013 - 0.5).astype("f")

    wanted = [theirs(x, candidate_labels=labels) for x in (samples(9000), np.zeros(500, "f"))]
    template = {"hypothesis_template": "{}!"}
    wanted.append(theirs(samples(16000), candidate_labels=labels, **template))
    with pipeline(task, folder / f"{kind}.edge") as ours:
        wanted.append(ours({"array": samples(7000), "sampling_rate": 8000}, labels))
    for got, want in zip(found, wanted):
        scores = {one["label"]: one["score"] for one in want}
        assert {one["label"]: one["score"] for one in got} == pytest.approx(scores, abs=1e-4)
        assert [one["score"] for one in got] == sorted((o["score"] for o in got), reverse=True)


def test_classes_of_sounds(page, folder):
    """Of a length that the processor says, and of any length."""
    found = page.run(
        """
            const results = {};
            for (const kind of ["AST", "Wav2Vec2"]) {
              const model = `/files/sounds/${kind}-audio-classification.edge`;
              const p = await ew.pipeline("audio-classification", model);
              const file = await (await fetch("/files/sounds/1.wav")).blob();
              const bytes = await file.arrayBuffer();
              const values = Float32Array.from(new Int16Array(bytes.slice(44)), (x) => x / 32768);
              const context = new OfflineAudioContext(1, 1, 16000);
              results[kind] = [
                await p(values.subarray(0, 16000), { top_k: 3 }),
                await p([
                  "/files/sounds/1.wav",
                  file,
                  bytes,
                  values,
                  { array: values, sampling_rate: 16000 },
                  await context.decodeAudioData(bytes.slice(0)),
                ]),
                await p("/files/sounds/slow.wav", { top_k: null, function_to_apply: "sigmoid" }),
              ];
              await p.dispose();
            }
            return results;
        """
    )
    assert "error" not in found, found
    for kind, (second, kinds, slow) in found.items():
        reference = transformers.pipeline("audio-classification", str(folder / kind), device="cpu")
        samples = sound(1).astype("f") / 32768
        close(second, reference(samples[:16000], top_k=3))
        want = reference(samples, top_k=5)
        for got in kinds:
            close(got, want)
        if kind == "AST":  # resampled by the engine, in Python as in the page
            ours = pipeline("audio-classification", folder / kind)
            close(slow, ours(folder / "slow.wav", top_k=None, function_to_apply="sigmoid"))


def test_a_folder_is_compiled(page, folder):
    found = page.run(
        """
            const options = { dtype: "fp32" };
            const p = await ew.pipeline("audio-classification", "/files/sounds/AST/", options);
            const result = await p("/files/sounds/2.wav");
            await p.dispose();
            return [result, p.info.origin];
        """
    )
    assert "error" not in found, found
    close(found[0], pipeline("audio-classification", folder / "AST")(folder / "2.wav"))
    assert found[1] == "compiled"


def test_sounds_that_are_refused(page):
    found = page.run(
        """
            const model = "/files/sounds/Wav2Vec2-audio-classification.edge";
            const p = await ew.pipeline("audio-classification", model);
            const errors = [];
            for (const input of [
              "/files/sounds/broken.wav",
              "/files/sounds/none.wav",
              new File(["no sound"], "talk.mp3"),
              new Float32Array(0),
              new Float32Array(31 * 16000),
              { array: new Float32Array(9), sampling_rate: -1 },
              7,
              null,
            ])
              errors.push(await p(input).then(
                () => "nothing",
                (e) => `${e.name} ${e.where}: ${e.what}`,
              ));
            errors.push(await p(new Float32Array(9000), { loud: 1 }).then(
              () => "nothing",
              (e) => `${e.name} ${e.where}: ${e.what}`,
            ));
            const result = await p(new Float32Array(9000));
            await p.dispose();
            return [errors, result.length];
        """
    )
    assert "error" not in found, found
    errors, count = found
    assert all(e.startswith("InputError") for e in errors), errors
    for error, text in zip(
        errors,
        ("broken.wav: the WAV file", "none.wav", "talk.mp3: the sound cannot be decoded")
        + ("no samples", "31.0 s, this package takes 30 s", "no sound", "no sound", "no sound")
        + ("no option 'loud'",),
    ):
        assert text in error
    assert count == 5


def test_voices(page, folder):
    """The vectors are Python's, at any length."""
    one = folder / "one.wav"
    one.write_bytes(wav(sound(3, 16000)))
    other = folder / "other.wav"
    other.write_bytes(wav(sound(1, 32000)))
    found = page.run(
        """
            const model = "/files/sounds/Wav2Vec2-speaker-verification.edge";
            const p = await ew.pipeline("speaker-verification", model);
            const errors = [];
            const refused = async (work) =>
              errors.push(await work().then(() => "nothing", (e) => `${e.name} ${e.what}`));
            await refused(() => p("/files/sounds/one.wav"));
            const mean = await p.enrol("a", ["/files/sounds/one.wav", "/files/sounds/other.wav"]);
            await p.enrol("b", "/files/sounds/one.wav");
            await refused(() => p.verify("c", "/files/sounds/one.wav"));
            await refused(() => p.enrol("c", []));
            await refused(() => p("/files/sounds/one.wav", { threshold: 2 }));
            const all = await p(["/files/sounds/one.wav", "/files/sounds/other.wav"]);
            const one = await p.verify("a", "/files/sounds/other.wav", { threshold: 1 });
            const kept = structuredClone(p.voices);
            await p.dispose();
            const q = await ew.pipeline("speaker-verification", model);
            Object.assign(q.voices, kept);
            const again = await q("/files/sounds/one.wav", { name: "b" });
            const long = await q.enrol("long", new Float32Array(49600).map((_, i) => Math.sin(i)));
            await q.dispose();
            return [errors, mean, all, one, again, long];
        """
    )
    assert "error" not in found, found
    errors, mean, both, single, again, long = found
    assert ["no voice is enrolled" in errors[0], "'c' is not enrolled" in errors[1]] == [True] * 2
    assert "no recording" in errors[2] and all(e.startswith("InputError") for e in errors)
    ours = pipeline("speaker-verification", folder / "Wav2Vec2")
    assert mean == pytest.approx(ours.enrol("a", [one, other]), abs=2e-5)
    ours.enrol("b", one)
    close(both, ours([one, other]))
    close(single, ours.verify("a", other, threshold=1))
    close(again, ours(one, name="b"))
    x = np.sin(np.arange(49600)).astype("f")
    assert long == pytest.approx(ours.embed(x), abs=5e-5)


@needs_real
def test_resemblyzer(page, folder):
    model = folder / "resemblyzer"
    model.mkdir()
    shutil.copy(REAL / "resemblyzer" / "model.onnx", model)
    (model / "preprocessor_config.json").write_text(json.dumps(RESEMBLYZER))
    package = folder / "resemblyzer.edge"
    main(["build", "--task", "speaker-verification", str(model), "-o", str(package)])
    found = page.run(
        """
            const model = "/files/sounds/resemblyzer.edge";
            const p = await ew.pipeline("speaker-verification", model);
            const voice = await p.enrol("jfk", "/files/sounds/jfk.wav");
            await p.dispose();
            return voice;
        """
    )
    assert "error" not in found, found
    ours = pipeline("speaker-verification", model).embed(JFK)
    assert found == pytest.approx(ours, abs=1e-5)


def test_a_microphone_of_another_rate(page, folder):
    """A model without rare kernels hears it, too: the engine resamples. Expected is Python's."""
    onnx.save(loudness(), str(folder / "loud.onnx"))
    given = ["--task", "voice-activity-detection", str(folder / "loud.onnx")]
    main(["build", *given, "-o", str(folder / "loud.edge")])
    found = page.run(
        """
            const p = await ew.pipeline("voice-activity-detection", "/files/sounds/loud.edge");
            const tone = (_, i) => (i % 96000 < 48000 ? 0.5 * Math.sin(i / 20) : 0);
            const array = Float32Array.from({ length: 192000 }, tone);
            const stream = p.stream();
            const fed = [];
            for (let at = 0; at < array.length; at += 4800)
              fed.push(
                ...(await stream.feed({
                  array: array.subarray(at, at + 4800),
                  sampling_rate: 48000,
                })),
              );
            fed.push(...(await stream.end()));
            await p.dispose();
            return { fed };
        """
    )
    assert "error" not in found, found
    i = np.arange(192000)
    array = np.where(i % 96000 < 48000, 0.5 * np.sin(i / 20), 0).astype("f")
    with pipeline("voice-activity-detection", folder / "loud.onnx") as pipe:
        stream = pipe.stream()
        ours = stream.feed(resample_audio(array, 48000, 16000))
    assert found["fed"] == ours and len(ours) == 4


@needs_real
def test_speech(page):
    found = page.run(
        """
            const p = await ew.pipeline("voice-activity-detection", "/files/sounds/vad.edge");
            const seconds = { return_seconds: true, time_resolution: 2 };
            const samples = await p("/files/sounds/jfk.wav");
            const times = await p("/files/sounds/jfk.wav", seconds);
            const low = await p("/files/sounds/jfk.wav", { ...seconds, sampling_rate: 8000 });
            const bytes = await (await fetch("/files/sounds/jfk.wav")).arrayBuffer();
            const pcm = new Int16Array(bytes.slice(-2 * 176000)); // the header is longer than usual
            const array = Float32Array.from(pcm, (x) => x / 32768);
            const stream = p.stream({ threshold: 0.5 });
            const fed = [];
            for (let at = 0; at < array.length; at += 777)
              fed.push(...(await stream.feed(array.subarray(at, at + 777))));
            await stream.end();
            const ended = await stream.feed(array).then(() => "nothing", (e) => e.what);
            async function* pieces() {
              for (let at = 0; at < array.length; at += 4000)
                yield { array: array.subarray(at, at + 4000), sampling_rate: 16000 };
            }
            const heard = [];
            for await (const event of p.stream(pieces())) heard.push(event);
            const first = [];
            for await (const event of p.stream(pieces())) {
              first.push(event);
              break;
            }
            const errors = [];
            for (const options of [{ threshold: 2 }, { sampling_rate: 44100 }, { loud: 1 }])
              errors.push(await p(array, options).then(() => "nothing", (e) => e.message));
            const two = p.stream();
            await two.feed({ array: new Float32Array(480), sampling_rate: 48000 });
            errors.push(
              await two.feed({ array: new Float32Array(480), sampling_rate: 44100 }).then(
                () => "nothing",
                (e) => e.message,
              ),
            );
            await p.dispose();
            return { samples, times, low, fed, heard, first, ended, errors };
        """
    )
    assert "error" not in found, found
    ours = pipeline("voice-activity-detection", SILERO)
    assert found["samples"] == ours(JFK)
    seconds = {"return_seconds": True, "time_resolution": 2}
    assert found["times"] == ours(JFK, **seconds)
    assert found["low"] == ours(JFK, sampling_rate=8000, **seconds)
    events = [e for s in ours(JFK) for e in ({"start": s["start"]}, {"end": s["end"]})]
    assert found["fed"][:-1] == events and list(found["fed"][-1]) == ["start"]
    assert found["heard"] == found["fed"] and found["first"] == events[:1]
    assert found["ended"] == "it has ended"
    for error, text in zip(
        found["errors"], ("threshold", "44100", "no option 'loud'", "before was 48000")
    ):
        assert text in error


@needs_real
@pytest.mark.parametrize("strict", [False, True])
def test_microphone(playwright, server, strict_server, folder, strict):
    """Chromium plays a file as its microphone; with the policy of extensions no worklet is
    possible.
    """
    recording = folder / "microphone.wav"
    with wave.open(str(JFK)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    recording.write_bytes(wav(samples[:40000]))  # speech from 0.35 s to 2.24 s
    flags = [
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={recording}",
    ]
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags])
    try:
        page = browser.new_page()
        page.goto((strict_server if strict else server) + "/files/blank.html")
        found = page.evaluate(
            """
                async () => {
                  const ew = await import("/edgewise.js");
                  const p = await ew.pipeline("voice-activity-detection", "/files/sounds/vad.edge");
                  const nodes = [];
                  const original = BaseAudioContext.prototype.createScriptProcessor;
                  BaseAudioContext.prototype.createScriptProcessor = function (...args) {
                    nodes.push("script");
                    return original.apply(this, args);
                  };
                  const stop = new AbortController();
                  const timer = setTimeout(() => stop.abort(), 240_000);
                  const constraints = { noiseSuppression: false, echoCancellation: false };
                  const source = ew.microphone({ signal: stop.signal, constraints });
                  const events = [];
                  for await (const event of p.stream(source)) {
                    events.push(event);
                    if ("end" in event) break;
                  }
                  clearTimeout(timer);
                  await p.dispose();
                  return { events, nodes };
                }
            """
        )
    finally:
        browser.close()
    (start, end) = found["events"]
    assert 0.8 < (end["end"] - start["start"]) / 16000 < 4
    assert found["nodes"] == (["script"] if strict else [])


def test_features_of_any_length_have_no_package(tmp_path, capsys):
    model = tiny_audio.make(tmp_path / "model", "Wav2Vec2")
    config = {"feature_extractor_type": "SeamlessM4TFeatureExtractor"}
    (model / "preprocessor_config.json").write_text(json.dumps(config))
    arguments = ["--task", "audio-classification", str(model), "-o", str(tmp_path / "a.edge")]
    assert main(["build", *arguments]) != 0
    assert "as many frames as the sound" in capsys.readouterr().err
