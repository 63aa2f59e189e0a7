"""text-to-speech by models of several graphs: SpeechT5 against transformers, Supertonic against the
loop of transformers.js.
"""

import copy
import math

import numpy as np
import pytest
from edgewise import Codec, pipeline
from edgewise.errors import Aborted, EdgewiseError, InputError
from edgewise.logic.speech.flow import normal_numbers
from hostile.packages import joined, split

from . import tiny_graph_speech
from .packed import packed, places

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")
VOICE = np.float32([0.3, -0.5, 0.2, 0.7])


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.family("SpeechT5", exporter="torch")
def test_speecht5(tmp_path, merged):
    model, vocoder = tiny_graph_speech.make_speecht5(tmp_path, merged)
    package = pipeline("text-to-speech", packed(tmp_path, "text-to-speech"))
    speak = pipeline("text-to-speech", tmp_path)
    for text, options in (
        ("hello there", {"threshold": 0.9}),
        ("hello there", {"threshold": 1.0, "maxlenratio": 6.0}),
        ("one two three", {"minlenratio": 3}),
        ("a", {"threshold": 1.0, "maxlenratio": 12.0}),
    ):
        ids = torch.tensor([speak.tokenizer.encode(text)])
        with torch.no_grad():
            expected = model.generate_speech(
                ids, torch.tensor(VOICE[None]), vocoder=vocoder, **options
            ).numpy()
        for pipe in (speak, package):
            found = pipe(text, speaker_embeddings=VOICE, **options)
            assert found["sampling_rate"] == 800 and len(expected) >= 8
            assert found["audio"].shape == (1, len(expected))
            assert np.abs(found["audio"][0] - expected).max() < 3e-5
    text = "hello there"
    given = {"speaker_embeddings": VOICE[None], "maxlenratio": 6.0, "threshold": 1.0}
    again = speak([text], forward_params=given)[0]
    assert np.array_equal(again["audio"], speak(text, **given)["audio"])
    (tmp_path / "voice.bin").write_bytes(VOICE.tobytes())
    np.save(tmp_path / "voice.npy", VOICE)
    for name in ("voice.bin", "voice.npy"):
        own = {**given, "speaker_embeddings": tmp_path / name}
        assert np.array_equal(speak(text, **own)["audio"], again["audio"])
    parts = [*speak.stream("one. two.", **given)]
    assert [p["text"] for p in parts] == ["one.", "two."]


def test_dropout_of_speecht5_is_that_of_a_seed(tmp_path):
    tiny_graph_speech.make_speecht5(tmp_path, False, dropout=0.5)
    speak = pipeline("text-to-speech", tmp_path, speaker_embeddings=VOICE, maxlenratio=4.0)
    first, again, other = (speak("abc", seed=s)["audio"] for s in (1, 1, 2))
    assert np.array_equal(first, again)
    assert first.shape != other.shape or not np.array_equal(first, other)


def test_a_vocoder_of_its_own(tmp_path):
    tiny_graph_speech.make_speecht5(tmp_path, True)
    given = {"speaker_embeddings": VOICE, "threshold": 1.0, "maxlenratio": 3.0}
    expected = pipeline("text-to-speech", tmp_path)("abc", **given)["audio"]
    (tmp_path / "hifigan").mkdir()
    file = tmp_path / "onnx" / "decoder_postnet_and_vocoder.onnx"
    file.rename(tmp_path / "hifigan" / "model.onnx")
    with pytest.raises(InputError, match="Give vocoder="):
        pipeline("text-to-speech", tmp_path)("abc", **given)
    speak = pipeline("text-to-speech", tmp_path, vocoder=tmp_path / "hifigan")
    assert np.array_equal(speak("abc", **given)["audio"], expected)


@pytest.mark.family("Supertonic", exporter="torch")
def test_supertonic(tmp_path):
    encoder, denoiser, decoder = tiny_graph_speech.make_supertonic(tmp_path)
    style = np.random.default_rng(2).standard_normal(20).astype("f4")
    speak, package = (
        pipeline("text-to-speech", place, speaker_embeddings=style)
        for place in places(tmp_path, "text-to-speech")
    )
    ids = torch.tensor([speak.tokenizer.encode("hello there")])
    ones, voice = torch.ones_like(ids), torch.tensor(style.reshape(1, 5, 4))
    for steps, speed in ((5, 1.05), (2, 0.5)):
        with torch.no_grad():
            hidden, durations = encoder(ids, ones, voice)
            samples = durations.item() / speed * 800
            frames = math.ceil(samples / 16)
            normal = normal_numbers(9)
            noise = [normal() for _ in range(6 * frames)]
            latents = torch.tensor(noise).reshape(1, 6, frames)
            mask = torch.ones(1, frames, dtype=torch.int64)
            for step in range(steps):
                at, many = torch.tensor([float(step)]), torch.tensor([float(steps)])
                latents = denoiser(voice, latents, mask, hidden, ones, at, many)
            expected = decoder(latents).numpy()[:, : math.ceil(samples)]
        for pipe in (speak, package):
            found = pipe("hello there", num_inference_steps=steps, speed=speed, seed=9)
            assert found["sampling_rate"] == 800 and found["audio"].shape == expected.shape
            assert np.abs(found["audio"] - expected).max() < 2e-5
    assert abs(np.mean(noise)) < 0.3 and 0.7 < np.std(noise) < 1.3
    assert not np.array_equal(speak("ab")["audio"], speak("ab")["audio"])


def test_what_is_refused(tmp_path):
    tiny_graph_speech.make_supertonic(tmp_path)
    speak = pipeline("text-to-speech", tmp_path)
    style = np.zeros(20, "f4")
    for options, words in (
        ({}, "needs a voice"),
        ({"speaker_embeddings": style[:3]}, "no rows of 4"),
        ({"speaker_embeddings": "/nowhere.bin"}, "cannot be read"),
        ({"speaker_embeddings": style, "speed": 0}, "from 0.01 to 100"),
        ({"speaker_embeddings": style, "speed": 0.011, "num_inference_steps": 0}, "of 1 or more"),
        ({"speaker_embeddings": style, "threshold": 0.5}, "does not have this option"),
        ({"speaker_embeddings": style, "voice": "x"}, "no option 'voice'"),
        ({"speaker_embeddings": style, "seed": -1}, "seed"),
    ):
        with pytest.raises(InputError, match=words):
            speak("a", **options)
    with pytest.raises(Aborted):
        speak("a", speaker_embeddings=style, signal=lambda: True)
    with pytest.raises(InputError, match="is no text"):
        speak(7, speaker_embeddings=style)


def test_damaged_packages(tmp_path):
    """What a package of several graphs lacks, or has wrong, is said before it speaks."""
    tiny_graph_speech.make_supertonic(tmp_path)
    path = packed(tmp_path, "text-to-speech")
    manifest, data = split(path.read_bytes())
    first = manifest["programs"]["text_encoder"]
    wrong = []
    for name in manifest["programs"]:
        rest = {n: p for n, p in manifest["programs"].items() if n != name}
        wrong += [rest, {**rest, name: first}]
    for scale, add in ((2, 0), (1, 1), (1 << 24, 0)):
        changed = copy.deepcopy(manifest["programs"])
        for plan in changed["latent_denoiser"]["plans"]:
            for _, dims in plan["inputs"].values():
                dims[:] = [[scale, add, *d[2:]] if isinstance(d, list) else d for d in dims]
        wrong.append(changed)
    style = np.zeros(20, "f4")
    for programs in wrong:
        path.write_bytes(joined({**manifest, "programs": programs}, data))
        if programs == manifest["programs"]:
            continue
        with pytest.raises(EdgewiseError):
            pipeline("text-to-speech", path)("hello", speaker_embeddings=style, seed=1)
    path.write_bytes(joined({**manifest, "task": "codec"}, data))
    with pytest.raises(EdgewiseError):
        pipeline("text-to-speech", path)
    with pytest.raises(EdgewiseError):
        Codec(path).decode([[1]])
