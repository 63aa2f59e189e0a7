"""Processors of sound against transformers' feature extractors (numpy, float64)."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers
from conformance.vectors import vectors
from edgewise.errors import InputError
from edgewise.host.pipelines.audio_features import AudioFeatures
from edgewise.processors.audio import EXTRACTORS as EXTRACTORS_BY_NAME
from edgewise.processors.reader import audio_processor
from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

from processors.make_lengths import cases


def voice(count: int, rate: int = 16000) -> np.ndarray:
    """A sound whose pitch and loudness change, with noise 50 dB below and silence at its end."""
    t = np.arange(count) / rate
    pitch = 2 * np.pi * (120 * t + 40 * np.sin(3 * t))
    tones = sum(np.sin(k * pitch) / k for k in range(1, 30)) * (0.2 + 0.2 * np.sin(9 * t))
    x = tones + 3e-3 * np.random.default_rng(0).standard_normal(count)
    x[-count // 8 :] = 0
    return x.astype(np.float32)


EXTRACTORS = [
    ("WhisperFeatureExtractor", {}, {}),
    ("WhisperFeatureExtractor", {"feature_size": 128}, {}),
    ("WhisperFeatureExtractor", {"chunk_length": 5, "hop_length": 200, "n_fft": 512}, {}),
    ("WhisperFeatureExtractor", {"chunk_length": 3, "hop_length": 161}, {}),
    (
        "WhisperFeatureExtractor",
        {"return_attention_mask": True, "chunk_length": 4},
        {"return_attention_mask": True},
    ),
    ("ASTFeatureExtractor", {}, {}),
    ("ASTFeatureExtractor", {"num_mel_bins": 64, "max_length": 150, "mean": -1, "std": 2}, {}),
    ("ASTFeatureExtractor", {"do_normalize": False, "max_length": 400}, {}),
    ("SeamlessM4TFeatureExtractor", {}, {}),
    ("SeamlessM4TFeatureExtractor", {"num_mel_bins": 40, "padding_value": 1.0}, {}),
    ("ClapFeatureExtractor", {"truncation": "rand_trunc", "max_length_s": 4}, {}),
    ("ClapFeatureExtractor", {"padding": "repeat", "feature_size": 32, "max_length_s": 3}, {}),
    ("ClapFeatureExtractor", {"padding": "pad", "frequency_min": 50, "max_length_s": 3}, {}),
    ("Wav2Vec2FeatureExtractor", {}, {}),
    ("Wav2Vec2FeatureExtractor", {"return_attention_mask": True, "sampling_rate": 8000}, {}),
    ("Wav2Vec2FeatureExtractor", {"do_normalize": False}, {}),
    ("SpeechT5FeatureExtractor", {}, {}),
    ("SpeechT5FeatureExtractor", {"do_normalize": True, "return_attention_mask": False}, {}),
    ("EncodecFeatureExtractor", {}, {}),
    ("EncodecFeatureExtractor", {"chunk_length_s": 0.5, "overlap": 0.01}, {}),
    ("DacFeatureExtractor", {}, {}),
    ("DacFeatureExtractor", {"hop_length": 320, "sampling_rate": 24000}, {}),
]


@pytest.mark.parametrize("seconds", [2.0, 3.4])
@pytest.mark.parametrize("kind, config, call", EXTRACTORS)
@pytest.mark.filterwarnings("ignore")
def test_equals_transformers(kind, config, call, seconds):
    extractor = getattr(transformers, kind)(**config)
    rate = extractor.sampling_rate
    x = voice(int(seconds * min(rate, 16000)))
    if kind == "ClapFeatureExtractor":
        x = x[: rate * extractor.max_length_s]
    expected = extractor(x, sampling_rate=rate, return_tensors="np", **call)
    processor = audio_processor(extractor.to_dict())
    found = AudioFeatures(processor)({"array": x, "sampling_rate": rate})
    if kind == "ClapFeatureExtractor" and extractor.truncation != "fusion":
        expected.pop("is_longer")  # not an input of these models
    assert set(found) == set(expected)
    for name, value in expected.items():
        value = np.asarray(value).astype(np.float64)
        got = np.asarray(found[name])
        assert got.shape == value.shape
        assert np.abs(got - value).max() <= 3e-5 * max(1, np.ptp(value)), name


def test_whisper_in_windows_of_a_clip():
    """With truncation=False transformers normalizes over the whole clip."""
    extractor = transformers.WhisperFeatureExtractor(chunk_length=2)
    x = voice(16000 * 6)
    expected = extractor(x, sampling_rate=16000, truncation=False, return_tensors="np")
    processor = audio_processor(extractor.to_dict())
    window = AudioFeatures(processor, variant="clip").session
    whole = np.pad(x, 200, mode="reflect")
    parts = [whole[None, at : at + 32240] for at in range(0, len(x), 32000)]
    low = np.float32([-99])
    names = ["input_features", "maximum"]
    highest = max(window.run(names, {"audio": p, "floor": low})[1] for p in parts)
    runs = [window.run(names, {"audio": p, "floor": highest - 8})[0] for p in parts]
    found = np.concatenate(runs, 2)
    assert found.shape == expected["input_features"].shape
    assert np.abs(found - expected["input_features"]).max() < 6e-5


@pytest.mark.parametrize("mels, count", [(80, 32000), (40, 30123)])
def test_wespeaker(mels, count):
    """transformers.js: filter banks with Hamming's window, less their means over time."""
    x = voice(count)
    filters = mel_filter_bank(257, mels, 20, 8000, 16000, None, "kaldi", True)
    bank = spectrogram(
        x * 2**15,
        window_function(400, "hamming", periodic=False),
        400,
        160,
        512,
        power=2.0,
        center=False,
        preemphasis=0.97,
        mel_filters=filters,
        log_mel="log",
        mel_floor=1.192092955078125e-07,
        remove_dc_offset=True,
    ).T
    config = {"feature_extractor_type": "WeSpeakerFeatureExtractor", "num_mel_bins": mels}
    found = np.asarray(AudioFeatures(audio_processor(config))(x)["input_features"])[0]
    assert np.abs(found - (bank - bank.mean(0))).max() < 3e-5 * np.ptp(bank)


@pytest.mark.parametrize("emphasis, count", [(0.97, 32000), (None, 30123)])
def test_parakeet(emphasis, count):
    """The extractor itself needs librosa; these are its steps in float64."""
    x = voice(count)
    wave = torch.tensor(x)[None]
    if emphasis is not None:
        wave = torch.cat([wave[:, :1], wave[:, 1:] - emphasis * wave[:, :-1]], 1)
    spectrum = torch.stft(
        wave.double(),
        512,
        hop_length=160,
        win_length=400,
        window=torch.hann_window(400, periodic=False).double(),
        return_complex=True,
        pad_mode="constant",
    )
    filters = mel_filter_bank(257, 80, 0.0, 8000.0, 16000, "slaney", "slaney").T
    log = torch.log(torch.tensor(filters) @ spectrum.abs() ** 2 + 2**-24).permute(0, 2, 1)
    valid = count // 160
    mean, std = log[:, :valid].mean(1, keepdim=True), log[:, :valid].std(1, keepdim=True)
    expected = ((log - mean) / (std + 1e-5)).numpy()
    expected[:, valid:] = 0
    config = {"feature_extractor_type": "ParakeetFeatureExtractor", "preemphasis": emphasis}
    found = AudioFeatures(audio_processor(config))(x)
    assert np.abs(found["input_features"] - expected).max() < 3e-5 * np.ptp(expected)
    mask = np.asarray(found["attention_mask"])
    assert mask.shape == expected.shape[:2] and mask.sum() == valid


@pytest.mark.parametrize("kind", ["MoonshineFeatureExtractor", "PyAnnoteFeatureExtractor"])
def test_samples_as_they_are(kind):
    x = voice(4000)
    config = {"feature_extractor_type": kind, "sampling_rate": 16000}
    out = np.asarray(AudioFeatures(audio_processor(config))(x)["input_values"])
    assert np.array_equal(out.reshape(-1), x) and out.ndim == (2 if kind[0] == "M" else 3)


@pytest.mark.parametrize(
    "config, text",
    [
        ({"feature_extractor_type": "WhisperFeatureExtractor", "fmax": 1}, "'fmax' is unknown"),
        ({"feature_extractor_type": "WhisperFeatureExtractor", "dither": 1}, "'dither' is 1"),
        ({"feature_extractor_type": "WhisperFeatureExtractor", "n_fft": "4"}, "'n_fft' is '4'"),
        ({"feature_extractor_type": "ASTFeatureExtractor", "padding_side": "left"}, "padding_side"),
        ({"feature_extractor_type": "SeamlessM4TFeatureExtractor", "stride": 3}, "'stride' is 3"),
        ({"feature_extractor_type": "ClapFeatureExtractor", "padding": "x"}, "'padding' is 'x'"),
        ({"feature_extractor_type": "UnknownFeatureExtractor"}, "'UnknownFeatureExtractor' is not"),
        ({"feature_extractor_type": ["list"]}, "is not supported"),
        ({}, "no feature_extractor_type"),
    ],
)
def test_refused_configurations(config, text):
    with pytest.raises(InputError, match=text):
        audio_processor(config)


def test_lengths_that_a_model_does_not_take():
    ast = AudioFeatures(audio_processor({"feature_extractor_type": "ASTFeatureExtractor"}))
    with pytest.raises(InputError, match="399 samples, AST needs 400"):
        ast(np.zeros(399, "f"))
    assert np.asarray(ast(voice(400))["input_values"]).shape == (1, 1024, 128)
    config = {"feature_extractor_type": "ClapFeatureExtractor", "max_length_s": 1}
    with pytest.raises(InputError, match="takes 48000"):
        AudioFeatures(audio_processor(config))({"array": voice(48001), "sampling_rate": 48000})


@pytest.mark.parametrize("kind", EXTRACTORS_BY_NAME)
def test_random_configurations_are_accepted_or_refused(kind):
    """Values of all kinds in the fields that transformers writes."""
    values = [None, 0, -1, 1e9, 2.5, float("inf"), float("nan"), "x", [], {}, True, 2**70, 1, 16000]
    try:
        fields = [*getattr(transformers, kind)().to_dict(), "unknown"]
    except (AttributeError, ImportError):  # of transformers.js, or it needs librosa
        fields = ["sampling_rate", "unknown"]
    draw = np.random.default_rng(0)
    accepted = 0
    for _ in range(300):
        config = {f: values[draw.integers(len(values))] for f in draw.choice(fields, 1)}
        try:
            processor = audio_processor({**config, "feature_extractor_type": kind})
            json.dumps(processor.description(), allow_nan=False)
            accepted += 1
        except InputError as error:
            assert str(error)
    assert 0 < accepted < 300
    for config in (None, [], {"feature_extractor": 3}):
        with pytest.raises(InputError):
            audio_processor(config)


def test_description_has_what_a_page_needs():
    config = {"feature_extractor_type": "EncodecFeatureExtractor", "chunk_length_s": 1}
    found = audio_processor({**config, "overlap": 0.01}).description()
    assert found["sampling_rate"] == 24000 and found["channels"] == 1
    assert found["length"]["chunk"] == 24000 and found["length"]["stride"] == 23760
    assert found["mask"]["name"] == "padding_mask"


def test_inputs_of_graphs_are_those_of_pages():
    assert cases() == vectors("audio/inputs")
