"""text-to-speech in the voice of a reference, against loops of torch and transformers."""

import numpy as np
import pytest
from edgewise import pipeline
from edgewise.errors import Aborted, InputError
from edgewise.logic.speech.flow import normal_numbers

from . import tiny_cloning
from .packed import places

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")


def recording(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal(count).astype("f4") / 3


@pytest.fixture(scope="module")
def chatterbox(tmp_path_factory):
    model = tiny_cloning.Chatterbox()
    return model, model.save(tmp_path_factory.mktemp("chatterbox"))


@pytest.fixture(scope="module")
def pocket(tmp_path_factory):
    model = tiny_cloning.Pocket()
    return model, model.save(tmp_path_factory.mktemp("pocket"))


@pytest.mark.family("Chatterbox", exporter="torch")
def test_chatterbox(chatterbox):
    """Texts and references of several lengths, moods, ends, and a voice that is kept."""
    model, folder = chatterbox
    package, speak = (
        pipeline("text-to-speech", place) for place in reversed(places(folder, "text-to-speech"))
    )
    for text, count, mood in (("hello there", 700, 0.5), ("hi", 400, 1.5), ("a b c d e", 1100, 0)):
        ids = speak.tokenizer.encode(text)
        expected, tokens = model.speak(ids, recording(count), mood)
        fields = {"max_new_tokens": 12}
        for pipe in (speak, package):
            found = pipe(
                text, audio_values=recording(count), exaggeration=mood, generate_kwargs=fields
            )
            assert found["sampling_rate"] == tiny_cloning.RATE and len(set(tokens)) > 4
            assert found["audio"].shape == expected.shape
            assert np.abs(found["audio"] - expected).max() < 2e-5
    ends = {**fields, "eos_token_id": tokens[5]}
    short, _ = model.speak(ids, recording(count), 0, ends=(tokens[5],))
    voice = speak.encode_speech(recording(count))
    assert voice["audio_features"].shape[2] == tiny_cloning.HIDDEN
    options = {"speaker_embeddings": voice, "exaggeration": 0, "generate_kwargs": ends}
    both = speak([text, "hi"], **options)
    assert np.abs(both[0]["audio"] - short).max() < 2e-5
    parts = [*speak.stream("hi. hi.", **options)]
    assert [p["text"] for p in parts] == ["hi.", "hi."]
    drawn = {"do_sample": True, "max_new_tokens": 12, "temperature": 3.0}
    own = {"speaker_embeddings": voice, "generate_kwargs": drawn}
    first, again, other = (speak("hi", seed=s, **own)["audio"] for s in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


@pytest.mark.family("Chatterbox", exporter="torch")
def test_chatterbox_turbo(tmp_path):
    """Tokens of texts have no logits, nor moods; the language model is told positions."""
    model = tiny_cloning.Chatterbox(turbo=True)
    speak = pipeline("text-to-speech", model.save(tmp_path))
    for text, count in (("hello there", 700), ("hi", 400)):
        ids = speak.tokenizer.encode(text)
        assert min(ids) >= model.vocabulary
        with pytest.raises(InputError, match="does not have this option"):
            speak(text, audio_values=recording(count), exaggeration=0.5)
        expected, tokens = model.speak(ids, recording(count))
        found = speak(text, audio_values=recording(count), generate_kwargs={"max_new_tokens": 12})
        assert len(set(tokens)) > 4 and found["audio"].shape == expected.shape
        assert np.abs(found["audio"] - expected).max() < 2e-5


@pytest.mark.family("Pocket TTS", exporter="torch")
def test_pocket(pocket):
    model, folder = pocket
    package, speak = (
        pipeline("text-to-speech", place) for place in reversed(places(folder, "text-to-speech"))
    )
    for text, count, options in (
        ("hello there", 700, {}),
        ("hi", 400, {"num_inference_steps": 4, "temperature": 0.2, "frames_after_eos": 1}),
        ("a b c d e", 1100, {"max_frames": 5, "temperature": 0}),
    ):
        expected, frames = model.speak(
            speak.tokenizer.encode(text),
            recording(count),
            normal_numbers(9),
            options.get("temperature", 0.7),
            options.get("num_inference_steps", 1),
            options.get("frames_after_eos", 3),
            options.get("max_frames", 500),
        )
        for pipe in (speak, package):
            found = pipe(text, audio_values=recording(count), seed=9, **options)
            assert 5 <= frames < 40 and found["audio"].shape == expected.shape
            assert np.abs(found["audio"] - expected).max() < 2e-5
    voice = speak.encode_speech({"array": recording(count), "sampling_rate": tiny_cloning.RATE})
    again = speak(text, speaker_embeddings=voice, seed=9, **options)["audio"]
    assert np.array_equal(again, found["audio"])


def test_what_is_refused(chatterbox, pocket):
    speak, flows = (pipeline("text-to-speech", folder) for _, folder in (chatterbox, pocket))
    sound = recording(400)
    for pipe, options, words in (
        (speak, {}, "needs a voice"),
        (speak, {"audio_values": sound, "speaker_embeddings": {}}, "two voices"),
        (speak, {"speaker_embeddings": sound}, "none of a voice"),
        (speak, {"audio_values": sound, "exaggeration": 11}, "exaggeration"),
        (speak, {"audio_values": sound, "temperature": 1}, "does not have this option"),
        (speak, {"audio_values": sound, "generate_kwargs": {"num_beams": 2}}, "one sequence"),
        (speak, {"audio_values": sound[:0]}, "no samples"),
        (speak, {"audio_values": "/nowhere.wav"}, "nowhere"),
        (flows, {"audio_values": sound, "exaggeration": 1}, "does not have this option"),
        (flows, {"audio_values": sound, "num_inference_steps": 0}, "of 1 or more"),
        (flows, {"speaker_embeddings": speak.encode_speech(sound)}, "features"),
    ):
        with pytest.raises(InputError, match=words):
            pipe("hi", **options)
    with pytest.raises(Aborted):
        speak("hi", audio_values=sound, signal=lambda: True)
    assert flows("hi", audio_values=sound)["audio"].size
