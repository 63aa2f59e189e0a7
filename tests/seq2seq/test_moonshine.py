"""automatic-speech-recognition with Moonshine against transformers, on a tiny random model
(make.py).
"""

import json
from pathlib import Path

import numpy as np
import pytest
from edgewise.errors import Aborted, InputError
from edgewise.host.session.seq2seq import Seq2SeqModel
from edgewise.logic.speech.chunks import joined_tokens
from edgewise.pipelines import pipeline

from .sounds import SOUNDS, samples

HERE = Path(__file__).parent / "models"
EXTRACTOR = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": False}


class Ids:
    """In place of a tokenizer."""

    def decode(self, ids, **_):
        return " ".join(map(str, ids))


@pytest.fixture(scope="module")
def listen():
    pipe = pipeline("asr", HERE / "moonshine", Ids(), feature_extractor=EXTRACTOR)
    yield pipe
    pipe.close()


def plain(ids):
    return " ".join(str(i) for i in ids if i not in (0, 1, 2))


@pytest.mark.family("Moonshine", exporter="optimum")
def test_tokens_are_those_of_transformers(listen):
    for case in json.loads((HERE / "moonshine.json").read_text()).values():
        for i, (count, ids) in enumerate(zip(SOUNDS, case["sequences"], strict=True)):
            assert listen(samples(count, i), **case["options"]) == {"text": plain(ids)}


def test_streams_are_refused(listen):
    with pytest.raises(InputError, match="Moonshine gives no times of words"):
        listen.stream()


def test_options(listen):
    # six tokens a second, unless they are limited otherwise
    assert len(listen(samples(9001, 1))["text"].split()) == 4
    assert len(listen(samples(9001, 1), max_new_tokens=9)["text"].split()) == 9
    seen = []
    sound = samples(40000, 2)
    text = listen(sound, chunk_length_s=1, on_progress=lambda *a: seen.append(a))["text"]
    assert seen[-1] == (40000, 40000) and len(seen) == 4 and text
    given = [{"raw": sound, "sampling_rate": 16000, "name": "x"}]
    assert listen(given) == [{**listen(sound), "name": ["x"]}]
    for options, message in (
        ({"return_timestamps": True}, "Moonshine has no such option"),
        ({"language": "en"}, "Moonshine has no such option"),
        ({"chunk_length_s": 1, "stride_length_s": 0.6}, "do not advance"),
    ):
        with pytest.raises(InputError, match=message):
            listen(sound, **options)
    with pytest.raises(Aborted):
        listen(sound, signal=lambda: True)
    with pytest.raises(InputError, match="2082 positions.*at most 1664"):
        listen(np.zeros(800_000, "f"))
    assert listen(sound)  # it goes on working


def test_the_decoder_alone():
    """Seq2SeqModel takes what the encoder returns."""
    model = Seq2SeqModel(str(HERE / "moonshine"))
    with pytest.raises(InputError, match="bytes of float64"):
        model.encode(np.zeros((1, 5, 16)))
    source = model.encode(np.zeros((1, 5, 16), "f"))
    assert source.positions == 5
    source.close()
    model.free()


@pytest.mark.parametrize("seed", range(8))
def test_chunks_are_joined_as_by_transformers(seed):
    transformers = pytest.importorskip("transformers.pipelines.automatic_speech_recognition")
    rng = np.random.default_rng(seed)
    whole = rng.integers(3, 9, 40)
    parts = [whole[:20].copy(), whole[14:33].copy(), whole[rng.integers(20, 30) :].copy()]
    for part in parts:
        part[rng.integers(0, len(part))] = 9  # an error

    class NoSpecial:
        all_special_ids = ()

    expected = transformers._find_longest_common_sequence([[p] for p in parts], NoSpecial)
    ids = parts[0].tolist()
    for part in parts[1:]:
        ids = joined_tokens(ids, part.tolist())
    assert ids == expected.tolist()
