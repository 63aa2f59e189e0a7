"""The models that come with the rooms of the demo, beside plain computations."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from edgewise import pipeline

ort = pytest.importorskip("onnxruntime")
MODELS = Path(__file__).parents[2] / "web" / "demo" / "rooms" / "models"


@pytest.fixture(scope="module", autouse=True)
def folder():
    sys.path.insert(0, str(MODELS))
    yield
    sys.path.remove(str(MODELS))


def run(source, **feeds):
    session = ort.InferenceSession(bytes(source.read_all(1 << 26)))
    return session.run(None, feeds)[0]


def test_the_denoiser_is_the_mean_of_all_pictures():
    """Of all 1620 pictures, weighted by the density of a normal distribution around each."""
    import draw

    distances, words = draw.items()
    shown, hidden = (np.array(x) for x in draw.basis())
    # what latents look like in a preview, and what they do not show
    assert np.abs(shown @ np.array(draw.PREVIEW) - np.eye(3)).max() < 1e-9
    assert np.abs(hidden @ np.array(draw.PREVIEW)).max() < 1e-9
    distances = np.array(distances)
    ink, paper = np.array([*draw.COLORS.values()]) * 2 - 1, np.array(draw.PAPER) * 2 - 1
    mask = np.clip(distances + 0.5, 0, 1)[:, None, None, :]
    relief = draw.RELIEF * np.clip(distances / draw.DEPTH, -1, 1)
    rgb = paper[:, None] + mask * (ink - paper)[None, :, :, None]  # [items, colors, 3, area]
    pictures = np.einsum("ck,ijca->ijka", shown, rgb)
    pictures += hidden[:, None] * relief[:, None, None, :]
    betas = np.linspace(1e-4, 2e-2, 1000)
    unet = draw.denoiser()
    rng = np.random.default_rng(0)
    for timestep, concepts, at in ((950, ["heart", "red"], (90, 0)), (600, [], (7, 4))):
        kept = np.cumprod(1 - betas)[timestep]
        noise = rng.normal(size=(4, draw.AREA))
        sample = np.sqrt(kept) * pictures[at] + np.sqrt(1 - kept) * noise
        named = np.array([float(c in concepts) for c in draw.CONCEPTS])
        prior = np.array([[sum(c in own or c == color for c in concepts)
                           for color in draw.COLORS] for own in words])  # fmt: skip
        away = ((sample - np.sqrt(kept) * pictures) ** 2).sum((2, 3)) / (2 * (1 - kept))
        weights = draw.SURE * prior - away
        weights = np.exp(weights - weights.max())
        mean = np.einsum("ij,ijka->ka", weights / weights.sum(), pictures)
        expected = (sample - np.sqrt(kept) * mean) / np.sqrt(1 - kept)
        made = run(
            unet,
            sample=sample.reshape(1, 4, draw.SIDE, draw.SIDE).astype("f"),
            timestep=np.array(timestep, "f"),
            encoder_hidden_states=np.stack([0 * named, named])[None].astype("f"),
        )
        assert np.abs(made.reshape(4, -1) - expected).max() < 2e-3


def test_words_are_single_tokens():
    import draw
    from edgewise.compiler.tokenizers.clip import clip_files
    from edgewise.text import Tokenizer

    encoder, files = draw.texts()
    texts = {name: source.read_all(1 << 20) for name, source in files.items()}
    tokenizer = Tokenizer.from_files(clip_files(texts.get, "test"), "test")
    ids = np.zeros((1, draw.TOKENS), np.int64)
    for word in (*draw.CONCEPTS, *draw.WORDS):
        found = tokenizer.encode(f"Some {word}, please!")
        ids[:] = found[-1]
        ids[0, : len(found)] = found
        marked = run(encoder, input_ids=ids)[0].max(0)
        concept = draw.CONCEPTS.index(draw.WORDS.get(word, word))
        assert marked.sum() == 1 and marked[concept] == 1, word


def test_statistics_of_a_voice():
    import voice

    rng = np.random.default_rng(1)
    samples = np.sin(np.cumsum(rng.uniform(0.02, 0.2, 6000))) * rng.uniform(0.1, 1)
    frames = np.lib.stride_tricks.sliding_window_view(samples.astype("f"), voice.FRAME)
    power = np.abs(np.fft.rfft(frames[:: voice.HOP] * np.hanning(voice.FRAME))) ** 2
    energy = power.sum(1)
    loud = (energy / (energy + 0.03 * energy.max())) ** 2
    loud /= loud.sum()
    bands = power @ np.array(voice.mel_bands()).reshape(-1, voice.BANDS)
    cepstra = np.log(bands + 1e-5 * bands.max()) @ np.array(voice.cosines()).reshape(
        voice.BANDS, -1
    )
    mean = loud @ cepstra
    root = power**0.25
    match = root / np.linalg.norm(root, axis=1, keepdims=True)
    match = 6 * match @ np.array(voice.combs()).reshape(-1, len(voice.PITCHES))
    chance = np.exp(match - match.max(1, keepdims=True))
    chance /= chance.sum(1, keepdims=True)
    parts = [mean, np.sqrt(loud @ (cepstra - mean) ** 2), np.sqrt(loud @ chance)]
    made = run(voice.model(None), input_values=samples[None].astype("f"))
    assert np.abs(made[0] - np.concatenate(parts)).max() < 2e-3


def test_the_synthesizer(tmp_path):
    """Beside onnxruntime, without noise, which is random."""
    import speak

    (tmp_path / "model.onnx").write_bytes(speak.model().read_all(1 << 26))
    (tmp_path / "model.onnx.json").write_text(json.dumps(speak.CONFIG))
    say = pipeline("text-to-speech", tmp_path, phonemizer=str, noise_scale=0.0)
    for text in ("hˈɛl oʊ?", "ɑːˌiː", "s"):
        made = np.asarray(say(text)["audio"])[0]
        ids = [speak.NAMES.index(c) for c in "^_" + "_".join(text) + "_$"]
        feeds = {"input": np.array([ids]), "input_lengths": np.array([len(ids)])}
        expected = run(speak.model(), scales=np.array([0, 1, 0], "f"), **feeds).ravel()
        assert made.shape == expected.shape
        assert np.abs(made - expected).max() < 2e-3 and np.abs(expected).max() < 1


CODE = {"E": ".", "D": "-..", "G": "--.", "W": ".--", "I": "..", "S": "...", "7": "--..."}


@pytest.mark.parametrize("rate, pitch, noise", [(12, 500, 0.01), (16, 800, 0.1), (22, 650, 0.03)])
def test_morse_code(tmp_path, rate, pitch, noise):
    """Words a minute are those of PARIS, which takes 50 short marks."""
    import morse

    unit = 60 / 50 / rate
    keyed = []
    for word in ("EDGE", "WISE", "7"):
        for letter in word:
            for sign in CODE[letter]:
                keyed += [(1, 3 if sign == "-" else 1), (0, 1)]
            keyed.append((0, 2))
        keyed.append((0, 4))
    down = np.repeat([k for k, _ in keyed], [round(16000 * unit * n) for _, n in keyed])
    down = np.pad(down, 8000).astype("f")
    sound = down * np.sin(2 * np.pi * pitch * np.arange(len(down)) / 16000)
    sound += noise * np.random.default_rng(rate).normal(size=len(sound))
    for name, config in morse.CONFIGS.items():
        (tmp_path / name).write_text(json.dumps(config))
    (tmp_path / "model.onnx").write_bytes(morse.model().read_all(1 << 26))
    listen = pipeline("automatic-speech-recognition", tmp_path)
    found = listen(sound.astype("f"), return_timestamps="word")
    assert found["text"] == "EDGE WISE 7"
    assert [c["text"] for c in found["chunks"]] == ["EDGE", "WISE", "7"]
    first = found["chunks"][0]["timestamp"]
    assert first[0] == pytest.approx(0.5, abs=0.12)
    assert first[1] == pytest.approx(0.5 + 28 * unit, abs=0.15)
