"""Whisper tiny.en in a page: what Python's pipeline gives, where EDGEWISE_REAL names the folder of
real models.
"""

import array
import os
import wave

import pytest
from edgewise.cli import main
from edgewise.pipelines import pipeline

REAL = os.environ.get("EDGEWISE_REAL", "")
FOLDER = os.path.join(REAL, "whisper-tiny.en")
pytestmark = pytest.mark.skipif(not os.path.isdir(FOLDER), reason="needs EDGEWISE_REAL")
CASES = [
    ("jfk", {}),
    ("jfk", {"return_timestamps": True}),
    ("jfk", {"return_timestamps": "word"}),
    ("jfk", {"return_timestamps": "word", "min_new_tokens": 200}),  # another plan of `align`
    ("jfk", {"num_beams": 3, "return_timestamps": True}),
    (
        "jfk",
        {
            "temperature": [0.0, 0.4],
            "logprob_threshold": -1.0,
            "no_speech_threshold": 0.6,
            "compression_ratio_threshold": 1.35,
        },
    ),
    ("long", {"return_timestamps": "word"}),
    ("long", {"chunk_length_s": 30, "return_timestamps": True}),
    ("long", {"condition_on_prev_tokens": True}),
]


@pytest.fixture(scope="module")
def sounds(files):
    """A package, the given clip, and the clip three times with pauses: 40 s."""
    folder = files / "speech"
    folder.mkdir()
    main(["build", "--task", "asr", FOLDER, "-o", str(folder / "tiny.edge")])
    with wave.open(os.path.join(REAL, "audio", "jfk16k.wav")) as f:
        samples = array.array("h", f.readframes(f.getnframes()))
    pause = array.array("h", [0] * 24000)
    for name, data in (("jfk", samples), ("long", (samples + pause) * 3 + samples[:16000])):
        with wave.open(str(folder / f"{name}.wav"), "wb") as f:
            f.setparams((1, 2, 16000, 0, "NONE", ""))
            f.writeframes(data.tobytes())
    return folder


@pytest.fixture
def page(visit, server, sounds):
    return visit(server)


def test_transcripts_are_those_of_python(page, sounds):
    found = page.run(
        """
            const p = await ew.pipeline("asr", "/files/speech/tiny.edge");
            const results = [];
            const memory = [];
            for (const [name, options] of arg) {
              results.push(await p(`/files/speech/${name}.wav`, options));
              memory.push(p.info.memory.engine);
            }
            const segments = [];
            const progress = [];
            let text = "";
            const streamed = await p("/files/speech/long.wav", {
              streamer: (piece) => { text += piece; },
              onSegment: (segment) => segments.push(segment),
              onProgress: (fraction) => progress.push(fraction),
            });
            await p.dispose();
            return { results, memory, segments, progress, text, streamed };
        """,
        CASES,
    )
    assert "error" not in found, found
    with pipeline("asr", FOLDER) as pipe:
        for (name, options), got in zip(CASES, found["results"]):
            want = pipe(str(sounds / f"{name}.wav"), **options)
            assert got["text"] == want["text"], options
            assert [c["text"] for c in got.get("chunks", [])] == [
                c["text"] for c in want.get("chunks", [])
            ]
            for a, b in zip(got.get("chunks", []), want.get("chunks", [])):
                assert a["timestamp"] == pytest.approx(list(b["timestamp"]), abs=0.001)
    assert len(set(found["memory"][3:])) == 1, found["memory"]  # constant over windows
    assert "".join(s["text"] for s in found["segments"]) == found["streamed"]["text"]
    assert found["text"].strip() == found["streamed"]["text"].strip()
    assert found["progress"] == sorted(found["progress"]) and found["progress"][-1] == 1


def test_streams_are_those_of_python(page, sounds):
    """20 s of speech: sound is forgotten meanwhile, and its text becomes a prompt."""
    found = page.run(
        """
            const p = await ew.pipeline("asr", "/files/speech/tiny.edge");
            const bytes = await (await fetch("/files/speech/long.wav")).arrayBuffer();
            const pcm = new Int16Array(bytes, 44, 20 * 16000);
            const array = Float32Array.from(pcm, (x) => x / 32768);
            async function* pieces() {
              for (let at = 0; at < array.length; at += 8000)
                yield { array: array.subarray(at, at + 8000), sampling_rate: 16000 };
            }
            const events = [];
            for await (const event of p.stream(pieces(), { interval: 6 })) events.push(event);
            const refused = await p.stream({ return_timestamps: true })
              .feed(array.subarray(0, 16000))
              .then(() => "", (e) => e.message);
            await p.dispose();
            return { events, refused };
        """
    )
    assert "error" not in found, found
    with wave.open(str(sounds / "long.wav")) as file:
        samples = array.array("h", file.readframes(20 * 16000))
    floats = array.array("f", (x / 32768 for x in samples))
    with pipeline("asr", FOLDER) as pipe:
        stream = pipe.stream(interval=6.0)
        wanted = stream.feed(floats) + stream.end()
    for got, want in zip(found["events"], wanted, strict=True):
        assert (got["committed"], got["partial"]) == (want["committed"], want["partial"])
        times = want["timestamp"]
        assert got["timestamp"] == (times and pytest.approx(list(times), abs=0.001))
    text = "".join(e["committed"] for e in found["events"])
    assert text.count("fellow Americans") == 2
    assert "no option 'return_timestamps'" in found["refused"]
