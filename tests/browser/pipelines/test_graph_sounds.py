"""speaker-diarization and audio-to-audio in a page, as in Python."""

import json

import numpy as np
import pytest
from edgewise import pipeline
from pipelines.sounds import tiny_enhancers, tiny_speakers_apart
from pipelines.sounds.packed import packed

# (start, end, side) in seconds
SPOKEN = [(0.5, 2.5, 1), (3.0, 5.5, -1), (6.0, 7.0, 1), (8.0, 11.0, -1), (11.5, 13.0, 1)]


def recording() -> np.ndarray:
    made = np.zeros(14000, "f4")
    for start, end, side in SPOKEN:
        made[int(1000 * start) : int(1000 * end)] = 0.5 * side
    return made


@pytest.fixture(scope="module")
def folder(files):
    made = files / "listening"
    tiny_speakers_apart.make_segmentation(made / "segmentation")
    tiny_speakers_apart.make_embedding(made / "embedding")
    tiny_enhancers.make(made)
    packed(made / "segmentation", "speaker-diarization")
    for name in ("whole", "steps"):
        packed(made / f"{name}.onnx", "audio-to-audio", max_length=7)
    return made


def test_who_spoke_when(visit, server, folder):
    """Equal to Python, and to the sounds: by windows, of another rate, with words, two at once."""
    words = [{"text": str(i), "timestamp": [s, e]} for i, (s, e, _) in enumerate(SPOKEN)]
    found = visit(server).run(
        f"""
            const embedding = "/files/listening/embedding/";
            const who = await ew.pipeline("speaker-diarization", "/files/listening/segmentation/",
              {{ embedding }});
            const sound = Float32Array.from({json.dumps(recording().tolist())});
            const [turns, short, joined, one] = await Promise.all([
              who(sound, {{ step: 1 }}),
              who(sound.slice(0, 4000)),
              who({{ array: sound, sampling_rate: 1000 }}, {{ chunks: {json.dumps(words)} }}),
              who([sound, sound], {{ num_speakers: 1 }}),
            ]);
            const messages = [];
            for (const wrong of [
              {{ num_speakers: 0 }}, {{ threshold: 3 }}, {{ step: 11 }}, {{ speakers: 2 }},
              {{ chunks: [{{ text: "a" }}] }}, {{ signal: AbortSignal.abort() }},
            ]) await who(sound, wrong).catch((e) => messages.push(e.message));
            await who(new Float32Array()).catch((e) => messages.push(e.message));
            await who.dispose();
            const packed = await ew.pipeline("speaker-diarization",
              "/files/listening/segmentation.edge", {{ embedding }});
            const again = await packed(sound, {{ step: 1 }});
            await packed.dispose();
            const alone = await ew.pipeline("speaker-diarization",
              "/files/listening/segmentation/");
            const apart = await alone(sound.slice(0, 4000));
            await alone(sound).catch((e) => messages.push(e.message));
            await alone.dispose();
            for (const [task, model, options] of [
              ["speaker-diarization", "/files/listening/embedding/", {{}}],
              ["speaker-diarization", "/files/listening/segmentation/", {{ max_length: 3 }}],
              ["speaker-diarization", "/files/listening/nowhere/", {{}}],
            ]) await ew.pipeline(task, model, options)
              .then((pipe) => pipe(sound)).catch((e) => messages.push(e.message));
            return {{ turns, short, joined, one, again, apart, messages }};
        """
    )
    assert "error" not in found, found
    who = pipeline("speaker-diarization", folder / "segmentation", embedding=folder / "embedding")
    sound = recording()
    assert found["turns"] == who(sound, step=1) == found["again"]
    sides = {1: "SPEAKER_00", -1: "SPEAKER_01"}
    assert [t["speaker"] for t in found["turns"]] == [sides[side] for *_, side in SPOKEN]
    assert found["short"] == who(sound[:4000])
    assert found["joined"] == who(sound, chunks=words)
    assert found["one"] == who([sound, sound], num_speakers=1)
    alone = pipeline("speaker-diarization", folder / "segmentation")
    assert found["apart"] == alone(sound[:4000])
    parts = (
        *("num_speakers", "threshold", "step", "no option 'speakers'", "no timestamp", "aborted"),
        *("no samples", "longer than a window", "longer than a window", "max_length", "none of"),
    )
    assert len(parts) == len(found["messages"])
    for part, message in zip(parts, found["messages"], strict=True):
        assert part in message, found["messages"]


OPEN = f"""
    const sampling_rate = {tiny_enhancers.RATE};
    const open = (name, end = "onnx") =>
      ew.pipeline("audio-to-audio", `/files/listening/${{name}}.${{end}}`, {{ sampling_rate }});
    const [sound, long] = arg.map((list) => Float32Array.from(list));
"""
SOUND, LONG = (
    np.random.default_rng(4).standard_normal(n).astype("f4")
    for n in (5 * tiny_enhancers.SIZE + 7, 40 * tiny_enhancers.RATE)
)
ARG = [SOUND.tolist(), LONG.tolist()]


def python(folder, name):
    return pipeline("audio-to-audio", folder / f"{name}.onnx", sampling_rate=tiny_enhancers.RATE)


def test_sound_for_sound(visit, server, folder):
    """Whole recordings, of another rate, and wrong calls among them."""
    found = visit(server).run(
        OPEN
        + """
            const whole = await open("whole");
            const made = { messages: [] };
            const note = (e) => made.messages.push(e.message);
            made.whole = (await whole([long, sound])).map((one) => [...one.audio]);
            made.slow = [...(await whole({ array: sound, sampling_rate: 1600 })).audio];
            await whole.stream().feed(sound).catch(note);
            await whole(sound, { loud: 1 }).catch(note);
            await whole(7).catch(note);
            await ew.pipeline("audio-to-audio", "/files/listening/whole.onnx").catch(note);
            const other = "/files/listening/segmentation/onnx/model.onnx";
            await ew.pipeline("audio-to-audio", other, { sampling_rate })
              .then((pipe) => pipe(sound)).catch(note);
            await whole.dispose();
            const packed = await open("whole", "edge");
            made.again = [...(await packed(sound)).audio];
            made.parts = [...(await packed(long)).audio];
            await packed.dispose();
            return made;
        """,
        ARG,
    )
    assert "error" not in found, found
    whole = python(folder, "whole")
    for given, audio in zip((LONG, SOUND), found["whole"], strict=True):
        np.testing.assert_allclose(audio, whole(given)["audio"][0], atol=1e-5)
    np.testing.assert_allclose(found["again"], found["whole"][1], atol=1e-6)
    np.testing.assert_allclose(found["parts"], found["whole"][0], atol=1e-5)
    expected = whole({"array": SOUND, "sampling_rate": 1600})["audio"][0]
    np.testing.assert_allclose(found["slow"], expected, atol=1e-5)
    words = ("no states", "no option 'loud'", "no sound", "rate is not known", "another rate")
    for part, message in zip(words, found["messages"], strict=True):
        assert part in message, found["messages"]


def test_states_and_streams(visit, server, folder):
    """Two calls at once, and two streams whose pieces come in turns."""
    found = visit(server).run(
        OPEN
        + """
            const steps = await open("steps");
            const kept = await Promise.all([steps(sound), steps(sound.slice(0, 50))]);
            const made = { steps: kept.map((one) => [...one.audio]), a: [], b: [] };
            made.rate = kept[0].sampling_rate;
            const streams = Object.entries({ a: steps.stream(), b: steps.stream() });
            for (const [at, end] of [[0, 10], [10, 100], [100, sound.length]])
              for (const [name, stream] of streams)
                for (const part of await stream.feed(sound.slice(at, end)))
                  made[name].push(...part);
            made.before = made.a.length;
            for (const [name, stream] of streams)
              for (const part of await stream.end()) made[name].push(...part);
            await steps.dispose();
            return made;
        """,
        ARG,
    )
    assert "error" not in found, found
    assert found["rate"] == tiny_enhancers.RATE and found["before"] == 5 * tiny_enhancers.SIZE
    steps = python(folder, "steps")
    expected = steps(SOUND)["audio"][0]
    for audio in (found["steps"][0], found["a"], found["b"]):
        np.testing.assert_allclose(audio, expected, atol=1e-5)
    np.testing.assert_allclose(found["steps"][1], steps(SOUND[:50])["audio"][0], atol=1e-5)
