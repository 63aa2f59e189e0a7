"""Pipelines of sound: classification against transformers, voice activity against silero-vad's own
segments, speakers.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from conformance.vectors import vectors
from edgewise import InferenceSession, pipeline
from edgewise.errors import InputError
from edgewise.onnx import FileSource
from edgewise.processors.reader import audio_processor
from edgewise.task_package import compile_task

from .. import tiny_audio

REAL = Path(os.environ.get("EDGEWISE_REAL", "/nowhere"))
SILERO = REAL / "silero-vad" / "silero_vad.onnx"
JFK = REAL / "audio" / "jfk16k.wav"
needs_real = pytest.mark.skipif(not SILERO.exists(), reason="EDGEWISE_REAL has no models")


def sound(seed: int, count: int = 20000) -> np.ndarray:
    t = np.arange(count) / 16000
    noise = np.random.default_rng(seed).standard_normal(count)
    return (0.3 * np.sin(2 * np.pi * (200 + 90 * seed) * t) + 0.02 * noise).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    pytest.importorskip("transformers")
    made = {}

    def get(kind, **config):
        key = (kind, *config.items())
        if key not in made:
            made[key] = tiny_audio.make(tmp_path_factory.mktemp(kind), kind, **config)
        return made[key]

    return get


@pytest.mark.parametrize("kind", ["AST", "Wav2Vec2", "Hubert"])
@pytest.mark.parametrize("options", [{"top_k": 5}, {"top_k": None, "function_to_apply": "sigmoid"}])
@pytest.mark.filterwarnings("ignore")
def test_classification_equals_transformers(model, kind, options):
    from transformers import pipeline as reference

    folder = model(kind)
    ours = pipeline("audio-classification", folder)
    theirs = reference("audio-classification", str(folder), device="cpu")
    sounds = [sound(1), sound(2, 9000), {"raw": sound(3, 16000), "sampling_rate": 16000}]
    for found, expected in zip(
        ours(sounds, **options),
        theirs([dict(s) if isinstance(s, dict) else s for s in sounds], **options),
        strict=True,
    ):
        assert [f["label"] for f in found] == [e["label"] for e in expected]
        assert np.allclose(
            [f["score"] for f in found], [e["score"] for e in expected], rtol=1e-3, atol=1e-5
        )


def test_several_labels_of_a_sound(model):
    """problem_type decides; transformers needs function_to_apply="sigmoid" here."""
    pipe = pipeline("audio-classification", model("AST", problem_type="multi_label_classification"))
    assert pipe(sound(1)) == pipe(sound(1), function_to_apply="sigmoid")


@pytest.mark.parametrize(
    "given, options, text",
    [
        (np.zeros(0, "f"), {}, "no samples"),
        (b"no sound", {}, "soundfile|decoded"),
        (np.zeros(100, "f"), {}, "AST needs 400"),
        (np.zeros(900, "f"), {"top_k": 0}, "top_k"),
        (np.zeros(900, "f"), {"function_to_apply": "tanh"}, "function_to_apply"),
        (np.zeros(900, "f"), {"loud": True}, "no option 'loud'"),
    ],
)
def test_classification_refuses(model, given, options, text):
    pipe = pipeline("audio-classification", model("AST"))
    with pytest.raises(InputError, match=text):
        pipe(given, **options)
    assert len(pipe(sound(1))) == 5  # it goes on working


@needs_real
def test_silero_vad():
    """The research's crossings, and onnxruntime's probabilities with 64 samples of context."""
    import onnxruntime

    pipe = pipeline("voice-activity-detection", SILERO)
    found = pipe(JFK, return_seconds=True, time_resolution=2)
    assert [(s["start"], s["end"]) for s in found] == [
        (0.32, 2.27),
        (3.27, 4.45),
        (5.38, 7.68),
        (8.16, 10.62),
    ]
    from edgewise.processors.audio.decode import read_sound

    samples = read_sound(JFK, 16000).samples
    whole = np.concatenate([np.zeros(64, "f"), np.asarray(samples)])
    session, state = onnxruntime.InferenceSession(str(SILERO)), np.zeros((2, 1, 128), "f")
    ours = pipe.probabilities(samples)
    for i in range(100):
        window = whole[None, 512 * i : 512 * i + 576]
        feeds = {"input": window, "state": state, "sr": np.array(16000)}
        p, state = session.run(None, feeds)
        assert abs(ours[i] - p[0, 0]) < 1e-5


@needs_real
def test_speech_in_a_stream():
    from edgewise.processors.audio.decode import read_sound

    pipe = pipeline("voice-activity-detection", SILERO)
    samples = np.asarray(read_sound(JFK, 16000).samples)
    stream = pipe.stream()
    events = [e for at in range(0, len(samples), 777) for e in stream.feed(samples[at : at + 777])]
    *segments, last = [{**a, **b} for a, b in zip(events[::2], [*events[1::2], {}], strict=True)]
    assert segments == pipe(JFK)
    # The recording ends with 50 ms of speech, too short for a segment.
    assert last == {"start": 174112} and stream.speaking


@needs_real
@pytest.mark.parametrize(
    "options, text",
    [
        ({"threshold": 2}, "threshold"),
        ({"sampling_rate": 44100}, "sampling rate 44100"),
        ({"return_seconds": 1}, "return_seconds"),
        ({"time_resolution": -1}, "time_resolution"),
    ],
)
def test_voice_activity_refuses(options, text):
    with pytest.raises(InputError, match=text):
        pipeline("voice-activity-detection", SILERO)(JFK, **options)


def test_another_model_finds_no_speech(model):
    path = model("AST") / "onnx" / "model.onnx"
    with pytest.raises(InputError, match="Silero"):
        pipeline("voice-activity-detection", path)(sound(1))


def test_speakers(model):
    """Any model of vectors; here the logits of a tiny one."""
    pipe = pipeline("speaker-verification", model("Wav2Vec2"))
    with pytest.raises(InputError, match="no voice is enrolled"):
        pipe(sound(1))
    pipe.enrol("a", [sound(1), sound(2)])
    pipe.enrol("b", sound(3))
    (first,) = [r for r in pipe(sound(3)) if r["label"] == "b"]
    assert first["score"] == pytest.approx(1) and first["accepted"]
    a, b = (np.array(pipe.embed(sound(i))) for i in (1, 2))
    mean = (a + b) / np.linalg.norm(a + b)
    assert np.allclose(pipe.voices["a"], mean)
    score = float(mean @ np.array(pipe.embed(sound(4))))
    assert pipe.verify("a", sound(4), threshold=1.0) == {
        "label": "a",
        "score": pytest.approx(score),
        "accepted": False,
    }
    for call, text in (
        (lambda: pipe.verify("c", sound(1)), "'c' is not enrolled"),
        (lambda: pipe.enrol("c", []), "no recording"),
        (lambda: pipe(sound(1), threshold="high"), "from -1 to 1"),
    ):
        with pytest.raises(InputError, match=text):
            call()


def slices(count: int) -> list[int]:
    """First samples of the parts of compute_partial_slices of Resemblyzer 0.1.4, as its
    embed_utterance uses them.
    """
    frames, step = int(np.ceil((count + 1) / 160)), int(np.round((16000 / 1.3) / 160))
    starts = [160 * i for i in range(0, max(1, frames - 160 + step + 1), step)]
    if (count - starts[-1]) / 25600 < 0.75 and len(starts) > 1:
        starts.pop()
    return starts


def test_parts_of_voices_are_those_of_resemblyzer():
    """tests/logic/test_voices.py reads the same vectors."""
    windows = audio_processor({"feature_extractor_type": "ResemblyzerFeatureExtractor"}).windows
    for case in vectors("audio/windows"):
        assert vars(windows) == case["windows"]
        assert case["starts"] == slices(case["count"])


@pytest.mark.parametrize("frames", [160, "frames"])
def test_resemblyzer_is_known_by_its_input(tmp_path, frames):
    """Its encoder has no preprocessor_config.json; another one has to have it."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def write(path, bins):
        weight = np.random.default_rng(0).standard_normal((bins, 8)).astype("f4")
        nodes = [
            helper.make_node("MatMul", ["mels", "w"], ["x"]),
            helper.make_node("ReduceMax", ["x"], ["embeds"], axes=[1], keepdims=0),
        ]
        graph = helper.make_graph(
            nodes,
            "voice",
            [helper.make_tensor_value_info("mels", TensorProto.FLOAT, ["n", frames, bins])],
            [helper.make_tensor_value_info("embeds", TensorProto.FLOAT, ["n", 8])],
            [numpy_helper.from_array(weight, "w")],
        )
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
        return path

    path = write(tmp_path / "model.onnx", 40)
    config = {"feature_extractor_type": "ResemblyzerFeatureExtractor"}
    told = pipeline("speaker-verification", path, feature_extractor=config).embed(sound(1, 40000))
    assert pipeline("speaker-verification", path).embed(sound(1, 40000)) == told
    package = compile_task({"model.onnx": FileSource(path)}, "speaker-verification")
    package.save(str(tmp_path / "voice.edge"))
    packed = pipeline("speaker-verification", tmp_path / "voice.edge").embed(sound(1, 40000))
    assert packed == pytest.approx(told, abs=1e-5)
    with pytest.raises(InputError, match="preprocessor_config.json"):
        pipeline("speaker-verification", write(tmp_path / "model.onnx", 80)).embed(sound(1))


@needs_real
def test_resemblyzer():
    """The vector is that of embed_utterance: the mean over parts of 1.6 s, with onnxruntime on
    transformers' filter banks of the whole recording. Halves of one recording are closer than
    another sound.
    """
    import onnxruntime
    from edgewise.processors.audio.decode import read_sound
    from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

    path = REAL / "resemblyzer" / "model.onnx"
    config = {"feature_extractor_type": "ResemblyzerFeatureExtractor"}
    pipe = pipeline("speaker-verification", path, feature_extractor=config)
    samples = np.asarray(read_sound(JFK, 16000).samples)
    starts = slices(len(samples))
    end = starts[-1] + 25600
    mels = spectrogram(
        np.pad(samples, (0, max(0, end - len(samples)))),
        window_function(400, "hann"),
        400,
        160,
        power=2.0,
        pad_mode="constant",
        mel_filters=mel_filter_bank(201, 40, 0.0, 8000.0, 16000, "slaney", "slaney"),
        mel_floor=0.0,
    ).T.astype("f")
    parts = np.stack([mels[i // 160 : i // 160 + 160] for i in starts])
    session = onnxruntime.InferenceSession(str(path))
    expected = np.mean([session.run(None, {"mels": p[None]})[0][0] for p in parts], 0)
    assert np.abs(np.array(pipe.embed(samples)) - expected / np.linalg.norm(expected)).max() < 1e-4
    half = len(samples) // 2
    pipe.enrol("jfk", samples[:half])
    same = pipe.verify("jfk", samples[half:])["score"]
    assert same > 0.7 and same > pipe.verify("jfk", sound(1, 40000))["score"] + 0.1
    assert len(pipe.embed(samples[:4000])) == len(expected)  # shorter than a part
    assert isinstance(pipe.session("model"), InferenceSession)
