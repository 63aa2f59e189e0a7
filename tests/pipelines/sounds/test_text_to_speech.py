"""text-to-speech: VITS against transformers, what Piper and Kokoro are fed, and real voices that
Whisper reads back.
"""

import io
import json
import os
import wave
from pathlib import Path

import numpy as np
import pytest
from conformance.vectors import vectors
from edgewise import pipeline
from edgewise.compiler.tokenizers.vits import VitsTokenizer
from edgewise.errors import Aborted, InputError, ModelError
from edgewise.host.pipelines.speech.text_to_speech import sentences

from . import tiny_voices
from .spoken import SPOKEN

pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

REAL = Path(os.environ.get("EDGEWISE_REAL", "/nowhere"))


def scaled(speech) -> list[float]:
    return (np.asarray(speech["audio"])[0] * 100).round(3).tolist()


# ---- VITS
@pytest.fixture(scope="module")
def vits(tmp_path_factory):
    return tiny_voices.make_vits(tmp_path_factory.mktemp("vits"))


@pytest.mark.family("VITS", exporter="torch")
def test_vits_equals_transformers(vits):
    from transformers import pipeline as reference

    ours, theirs = pipeline("text-to-speech", vits), reference("text-to-speech", str(vits))
    texts = ["It is a quiet day.", "Hello! Two sentences, of one sound. No 3."]
    for found, expected in zip(ours(texts), [theirs(t) for t in texts], strict=True):
        assert found["sampling_rate"] == expected["sampling_rate"] == 8000
        assert found["audio"].shape == expected["audio"].shape
        assert found["audio"].shape[1] > 500
        assert np.abs(found["audio"] - expected["audio"]).max() < 2e-5
    parts = [*ours.stream(texts[1])]
    assert [p["text"] for p in parts] == ["Hello!", "Two sentences, of one sound.", "No 3."]
    assert np.array_equal(parts[0]["audio"], ours("Hello!")["audio"])
    whole = ours(texts[1], split=True)["audio"]
    assert np.array_equal(whole, np.concatenate([p["audio"] for p in parts], axis=1))


def test_speakers_equal_transformers(tmp_path):
    from transformers import pipeline as reference

    folder = tiny_voices.make_vits(tmp_path, speakers=3)
    ours, theirs = pipeline("text-to-audio", folder), reference("text-to-audio", str(folder))
    for speaker in (0, 2):
        expected = theirs("one of three", forward_params={"speaker_id": speaker})["audio"]
        for options in ({"speaker": speaker}, {"forward_params": {"speaker_id": speaker}}):
            found = ours("one of three", **options)["audio"]
            assert found.shape == expected.shape and np.abs(found - expected).max() < 2e-5
    with pytest.raises(InputError, match="no speaker 3"):
        ours("a", speaker=3)


@pytest.mark.parametrize(
    "options", [{}, {"add_blank": False}, {"normalize": False}, {"language": "ron"}]
)
def test_vits_tokens_equal_transformers(tmp_path, options):
    import transformers

    letters = [*"<pad>|k|'|z|y|u|d|h|e|s|w|–|3|c|p|-|1|j|m|i|X| |f|ţ|q".split("|"), "<unk>"]
    (tmp_path / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(letters)}))
    settings = {"phonemize": False, "is_uroman": False, **options}
    theirs = transformers.VitsTokenizer(tmp_path / "vocab.json", **settings)
    theirs.save_pretrained(tmp_path)
    ours = VitsTokenizer.from_files(lambda name: (tmp_path / name).read_bytes())
    for text in ("Mummy's  KITE,\nX hid – 31", "ț Țz qqq", " x ", "ü", ""):
        assert ours.encode(text) == theirs(text)["input_ids"]
    ours.phonemize, given = True, []
    ours.encode("KITE X hid <pad>", lambda text: given.append(text) or "k")
    expected = theirs.normalize_text("KITE X hid <pad>") if ours.normalize else "KITE X hid <pad>"
    assert given == [expected]  # phonemizers get what transformers' gets


def test_vits_that_reads_phonemes():
    tokens = {c: i for i, c in enumerate("_abc ")}
    ours = VitsTokenizer(tokens, {"add_blank": False})
    with pytest.raises(InputError, match="reads phonemes"):
        ours.encode("abc")
    assert ours.encode("X", lambda text: "ab  c") == [1, 2, 4, 3]
    with pytest.raises(InputError, match="does not know the character 'x'"):
        ours.encode("X", str)
    romanized = VitsTokenizer(tokens, {"phonemize": False, "is_uroman": True, "add_blank": False})
    assert romanized.encode("abc") == [1, 2, 3]
    assert romanized.encode("ä", lambda text: "a") == [1]
    with pytest.raises(InputError, match="Latin letters"):
        romanized.encode("ä")


# ---- Piper and Kokoro
def test_what_piper_is_fed(tmp_path):
    speak = pipeline("text-to-speech", tiny_voices.make_piper(tmp_path))
    with pytest.raises(InputError, match="reads phonemes"):
        speak("a")
    # ^ _ a _ b _ . _ $, how many, and the scales
    ids = [1, 0, 7, 0, 8, 0, 4, 0, 2, 9]
    assert scaled(speak("ab.", phonemizer=str)) == [*ids, 0.5, 1.5, 0.25, 0]
    options = {"speaker": "bob", "speed": 2, "noise_scale": 0, "noise_w": 1.0}
    assert scaled(speak("axb.", phonemizer=str, **options)) == [*ids, 0, 0.75, 1, 2]
    one = speak("x", phonemizer=lambda text: [["aɪ"]], length_scale=3, speaker=1)
    assert scaled(one) == [1, 0, 30, 0, 2, 5, 0.5, 3, 0.25, 1]
    both = speak("a. b.", phonemizer=str)
    assert len(scaled(both)) == 2 * 12 and both["sampling_rate"] == 16000
    parts = [*speak.stream(iter(["a", ". ", "b", "."]), phonemizer=str)]
    assert [p["text"] for p in parts] == ["a.", "b."]
    assert [x for p in parts for x in scaled(p)] == scaled(both)
    two = speak("x", phonemizer=lambda text: ["a.", "b."])  # the phonemizer's sentences
    assert scaled(two) == scaled(both)


def test_what_kokoro_is_fed(tmp_path):
    folder = tiny_voices.make_kokoro(tmp_path)
    speak = pipeline("text-to-speech", folder, phonemizer=str)
    tiny = tiny_voices.styles(1)
    assert scaled(speak("ab.")) == pytest.approx([0, 10, 11, 4, 0, 0.375, 0.624, 1])
    expected = [0, 10, 0, *tiny[1, 0, [0, 255]].round(3).tolist(), 0.5]
    assert scaled(speak("xa", voice="bm_tiny", speed=0.5)) == pytest.approx(expected, abs=2e-3)
    for voice in (tiny, tiny[:, 0], folder / "voices" / "bm_tiny.bin"):
        assert scaled(speak("a", voice=voice, speed=0.5)) == pytest.approx(expected, abs=2e-3)
    np.save(tmp_path / "one.npy", tiny)
    np.savez(tmp_path / "more.npz", two=tiny, three=tiny)
    again = pipeline("text-to-speech", folder, phonemizer=str)
    for voice in ("one", "two"):
        assert scaled(again("a", voice=voice, speed=0.5)) == pytest.approx(expected, abs=2e-3)
    with pytest.raises(InputError, match="no voice 'x'.*af_heart, bm_tiny, one, three, two"):
        again("a", voice="x")
    long = scaled(again("a" * 300 + ", " + "b" * 300))  # 510 tokens at most, cut after the comma
    assert long.count(11) == 300 and long[:305].count(10) == 300
    assert long[301:304] == [3, 0, pytest.approx(301 / 8)]
    (tmp_path / "voices" / "bad.bin").write_bytes(b"1234")
    with pytest.raises(ModelError, match=r"voices/bad\.bin.*4 bytes are not styles"):
        pipeline("text-to-speech", folder, phonemizer=str)("a", voice="bad")


# ---- what is common
def test_options(vits, tmp_path):
    speak = pipeline("text-to-speech", vits)
    for options, text in (
        ({"speed": 2.0}, "does not have this option"),
        ({"voice": "x"}, "does not have this option"),
        ({"speaker": 1}, "does not have this option"),
        ({"speed": 0}, "from 0.01 to 100"),
        ({"phonemizer": 3}, "cannot be called"),
        ({"forward_params": {"tempo": 2}}, "no option 'tempo'"),
        ({"speaker_embeddings": "x.bin"}, "no option 'speaker_embeddings'"),
        ({"seed": -1}, "seed"),
    ):
        with pytest.raises(InputError, match=text):
            speak("a day", **options)
    with pytest.raises(InputError, match="always split"):
        next(speak.stream("a day", split=False))
    with pytest.raises(Aborted):
        speak("a day", signal=lambda: True)
    for given, text in ((3, "int is no text"), ("", "no characters"), ("123", "no characters")):
        with pytest.raises(InputError, match=text):
            speak(given)
    assert speak("a day", seed=3)["audio"].shape == speak("a day")["audio"].shape
    with pytest.raises(InputError, match="Models are VITS, Piper and Kokoro"):
        pipeline("text-to-speech", of_another_task(tmp_path))("a")


def of_another_task(folder):
    """A model of another task."""
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, ir_version=9), folder / "model.onnx")
    return folder


def test_wav_files(vits, tmp_path):
    speech = pipeline("text-to-speech", vits)("some words")
    speech["audio"][0, :2] = 3, -3  # is cut
    speech.save(tmp_path / "a.wav")
    with wave.open(io.BytesIO((tmp_path / "a.wav").read_bytes())) as file:
        assert file.getparams()[:4] == (1, 2, 8000, speech["audio"].size)
        found = np.frombuffer(file.readframes(10**6), "<i2") / 32767
    assert np.abs(found - np.clip(speech["audio"][0], -1, 1)).max() <= 0.5 / 32767 + 1e-6
    assert found[:2].tolist() == [1, -1]


@pytest.mark.parametrize(
    "pieces, expected",
    [
        (["A cat. A dog? Yes!"], ["A cat.", "A dog?", "Yes!"]),
        (['He said "No." Then', " he left... Why"], ['He said "No."', "Then he left...", "Why"]),
        (["Dr. Who met J. Smith, e.g. here.  It cost 3.50 €."],
         ["Dr. Who met J. Smith, e.g. here.", "It cost 3.50 €."]),
        (["Title\n\nText", " on.\nMore"], ["Title", "Text on.", "More"]),
        (["你好。再见！"], ["你好。", "再见！"]),
        (["", "  "], []),
        (list("One. Two."), ["One.", "Two."]),
    ],
)  # fmt: skip
def test_sentences(pieces, expected):
    assert [*sentences(pieces)] == expected


def test_texts_are_divided_as_in_pages():
    texts = vectors("audio/spoken_texts")
    for text, expected in texts["sentences"]:
        assert [*sentences([text])] == expected


# ---- real voices
@pytest.fixture(scope="module")
def listen():
    if not (REAL / "whisper-tiny.en").exists():
        pytest.skip("EDGEWISE_REAL has no models")
    return pipeline("automatic-speech-recognition", REAL / "whisper-tiny.en")


def words(text: str) -> list[str]:
    return "".join(c for c in text.lower() if c.isalpha() or c == " ").split()


@pytest.mark.family("Piper", exporter="real")
def test_piper_is_read_back(listen):
    speak = pipeline("text-to-speech", REAL / "piper-en-joe", phonemizer=SPOKEN.__getitem__)
    for sentence in SPOKEN:
        speech = speak(sentence, noise_scale=0, noise_w=0)
        assert words(listen(speech.to_wav())["text"]) == words(sentence)


@pytest.mark.family("Kokoro", exporter="real")
def test_kokoro_is_read_back(listen):
    speak = pipeline("text-to-speech", REAL / "kokoro-82m", phonemizer=str, voice="jf_alpha")
    text = "ðə kwˈɪk bɹˈaʊn fˈɑks ʤˈʌmps ˌOvəɹ ðə lˈAzi dˈɔɡ."
    assert words(listen(speak(text).to_wav())["text"]) == words(
        "The quick brown fox jumps over the lazy dog."
    )
