"""Codec against the codecs of transformers, and against a module with SNAC's layers."""

import numpy as np
import pytest
from edgewise import Codec
from edgewise.errors import InputError
from edgewise.logic.speech.codecs import windows_of

from . import tiny_codecs
from .packed import places
from .tiny_codecs import RATE

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")


def sound(seconds: float, channels: int = 1) -> np.ndarray:
    rng = np.random.default_rng(channels)
    t = np.arange(int(seconds * RATE)) / RATE
    waves = [np.sin(2 * np.pi * 40 * (c + 1) * t) * np.cos(3 * t) for c in range(channels)]
    return (0.4 * np.array(waves) + 0.05 * rng.standard_normal((channels, len(t)))).astype("f4")


@pytest.mark.parametrize("make", [tiny_codecs.make_mimi, tiny_codecs.make_encodec])
@pytest.mark.family("Mimi", exporter="torch")
@pytest.mark.family("EnCodec", exporter="torch")
def test_codecs_of_transformers(tmp_path, make):
    model, given = make(tmp_path / "it"), sound(1.3)
    for place in places(tmp_path / "it", "codec"):
        with Codec(place) as codec, torch.no_grad():
            assert codec.sampling_rate == RATE and codec.channels == 1 and codec.codebook_size == 32
            expected = model.encode(torch.tensor(given[None])).audio_codes.numpy()
            codes = codec.encode(given)
            assert codes.audio_codes.dtype == "int64" and len(np.unique(codes.audio_codes)) > 5
            assert np.array_equal(codes.audio_codes, expected)
            assert codec.num_codebooks == expected.shape[-2]
            theirs = model(torch.tensor(given[None])).audio_values.numpy()[0, :, : given.shape[1]]
            ours = codec.decode(codes)
            assert ours["sampling_rate"] == RATE and ours["audio"].shape == (1, given.shape[1])
            assert np.abs(ours["audio"] - theirs).max() < 2e-5 * max(1, np.abs(theirs).max())
            # codes alone, as a language model gives them
            alone = codec.decode(codes.audio_codes.reshape(expected.shape[-2:]))
            assert np.abs(alone["audio"][:, : given.shape[1]] - ours["audio"]).max() < 1e-6


@pytest.mark.family("DAC", exporter="torch")
def test_dac(tmp_path):
    model, given = tiny_codecs.make_dac(tmp_path / "it"), sound(0.913)
    hop = 8
    padded = np.pad(given, [(0, 0), (0, -given.shape[1] % hop)])
    for place in places(tmp_path / "it", "codec"):
        with Codec(place) as codec, torch.no_grad():
            codes = codec.encode(given)
            expected = model.encode(torch.tensor(padded[None])).audio_codes.numpy()
            assert np.array_equal(codes.audio_codes, expected)
            theirs = model.decode(audio_codes=torch.tensor(expected)).audio_values.numpy()
            ours = codec.decode(codes)["audio"]
            assert ours.shape == (1, given.shape[1])
            assert np.abs(ours - theirs.reshape(1, -1)[:, : given.shape[1]]).max() < 2e-5


def test_frames_and_scales_of_two_channels(tmp_path):
    model, given = tiny_codecs.make_encodec(tmp_path / "it", frames=True), sound(1.4, 2)
    for place in places(tmp_path / "it", "codec"):
        with Codec(place) as codec, torch.no_grad():
            assert codec.channels == 2
            codes = codec.encode(given)
            theirs = model.encode(torch.tensor(given[None]), bandwidth=2.0)
            frames = theirs.audio_codes.numpy()
            assert frames.shape[0] == 4  # 1.4 s in frames of 0.4 s, each 0.36 s after the last one
            size = frames.shape[-1] - codes.get("last_frame_pad_length", 0)
            assert np.array_equal(codes.audio_codes[:-1], frames[:-1])
            assert np.array_equal(codes.audio_codes[-1, ..., :size], frames[-1, ..., :size])
            scales = np.array([s.item() for s in theirs.audio_scales])
            assert np.abs(codes.audio_scales.reshape(-1) - scales).max() < 1e-5
            options = {}
            if hasattr(theirs, "last_frame_pad_length"):
                options["last_frame_pad_length"] = theirs.last_frame_pad_length
            again = model.decode(theirs.audio_codes, theirs.audio_scales, **options).audio_values
            ours = codec.decode(codes)["audio"]
            assert ours.shape == given.shape
            assert np.abs(ours - again.numpy()[0, :, : given.shape[1]]).max() < 2e-5
            mono = codec.encode(given[:1])  # one channel is both
            assert np.array_equal(
                mono.audio_codes, codec.encode(np.vstack([given[0]] * 2)).audio_codes
            )
            with pytest.raises(InputError, match="3 channels"):
                codec.encode(sound(0.5, 3))


@pytest.mark.family("SNAC", exporter="torch")
def test_codebooks_of_several_strides(tmp_path):
    model, given = tiny_codecs.make_snac(tmp_path / "it"), sound(0.77)
    padded = np.pad(given, [(0, 0), (0, -given.shape[1] % 16)])
    for place in places(tmp_path / "it", "codec"):
        with Codec(place) as codec, torch.no_grad():
            assert codec.num_codebooks == 3
            codes = codec.encode(given)
            expected = model.encode(torch.tensor(padded[None]))
            for ours, theirs in zip(codes.audio_codes, expected, strict=True):
                assert np.array_equal(ours, theirs.numpy())
            sounds = model.decode(*expected).numpy()[0]
            assert np.abs(codec.decode(codes)["audio"] - sounds[:, : given.shape[1]]).max() < 2e-5
            whole = codec.decode([c.tolist() for c in expected])["audio"]
            assert np.abs(whole - sounds).max() < 2e-5
            named = {f"audio_codes.{i}": c.numpy() for i, c in enumerate(expected)}
            assert np.array_equal(codec.decode(named)["audio"], whole)


def test_long_sound_is_that_of_the_whole(tmp_path):
    model, given = tiny_codecs.make_snac(tmp_path / "it"), sound(95)
    padded = np.pad(given, [(0, 0), (0, -given.shape[1] % 16)])
    for place in places(tmp_path / "it", "codec", max_length=7):
        with Codec(place) as codec, torch.no_grad():
            codes = codec.encode(given)
            expected = model.encode(torch.tensor(padded[None]))
            for ours, theirs in zip(codes.audio_codes, expected, strict=True):
                assert ours.shape == theirs.shape
                assert np.mean(ours != theirs.numpy()) < 1e-3  # of codes that are equally near
            sounds = model.decode(*expected).numpy()[0]
            ours = codec.decode([c.numpy() for c in expected])["audio"]
            assert ours.shape == sounds.shape and np.abs(ours - sounds).max() < 2e-5


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("total", [1, 9, 10, 11, 25, 26, 27, 100])
def test_windows_cover_all(total, fixed):
    windows = windows_of(total, 10, 2, fixed)
    covered = [i for w in windows for i in range(w.start + w.first, w.start + w.last)]
    assert covered == list(range(total))
    assert all(w.count <= 10 and 0 <= w.first < w.last <= w.count for w in windows)
    if fixed:
        assert {w.count for w in windows} == {10}


def test_what_is_refused(tmp_path):
    tiny_codecs.make_snac(tmp_path)
    codec = Codec(tmp_path)
    codes = [[[1] * 2], [[2] * 4], [[3] * 8]]
    for wrong, words in (
        ([[[32] * 2], *codes[1:]], "a code 32"),
        ([[[-1] * 2], *codes[1:]], "a code -1"),
        (codes[:2], "3 tensors of codes"),
        ([codes[0], [[1] * 3], codes[2]], "have 2, 3, 8 codes"),
        ([[[]], [[]], [[]]], "no codes"),
        ([[[0.5]], *codes[1:]], "no integers"),
        ({}, "no codes"),
    ):
        with pytest.raises(InputError, match=words):
            codec.decode(wrong)
    with pytest.raises(InputError, match="no samples"):
        codec.encode(np.zeros(0, "f4"))
    assert codec.decode(codes)["audio"].shape == (1, 32)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="sampling rate is not known"):
        Codec(tmp_path)
    decoder = Codec(tmp_path / "onnx/decoder_model.onnx", sampling_rate=RATE)
    assert decoder.decode(codes)["audio"].shape == (1, 32)
    with pytest.raises(InputError, match="it has no encoder"):
        decoder.encode(sound(1))
