"""Rules for encoder-decoder models in core/sampling against transformers' classes: Whisper's times,
and repetitions of the encoder's input.
"""

import random

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from edgewise.errors import InputError, UnsupportedField
from edgewise.text.config import GenerationConfig
from transformers.generation.logits_process import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)

from .test_processors import run

VOCAB, EOS, NO_TIMES = 160, 90, 95
WHISPER = {"return_timestamps": True, "no_timestamps_token_id": NO_TIMES, "eos_token_id": EOS}


def _sequence(generator):
    """A prompt of 3, then text and times in any order, as rules may not rely on each other."""
    ids = [91, 92, 93]
    for _ in range(generator.randrange(8)):
        low, high = (NO_TIMES + 1, VOCAB) if generator.random() < 0.5 else (0, EOS)
        ids.append(generator.randrange(low, high))
    return ids


@pytest.mark.parametrize("index", [None, 0, 5, 500])
@pytest.mark.parametrize("beams", [1, 3])
def test_times(engine, index, beams):
    generator, seen = random.Random(5), set()
    for seed in range(120):
        ids = _sequence(generator)
        logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed))
        logits[NO_TIMES + 1 :] += generator.choice([-9.0, -2.0, 0.0, 2.0])
        config = GenerationConfig(**WHISPER, max_initial_timestamp_index=index, num_beams=beams)
        try:
            got = run(engine, config, ids, logits, prompt=3, functions=("process",))
        except Exception as error:
            raise AssertionError((seed, ids)) from error
        theirs = transformers.GenerationConfig(**WHISPER, max_initial_timestamp_index=index)
        scores = logits[None].log_softmax(-1) if beams > 1 else logits[None]
        wanted = WhisperTimeStampLogitsProcessor(theirs, begin_index=3)(
            torch.tensor([ids]), scores
        )[0]
        assert torch.equal(torch.isfinite(got), torch.isfinite(wanted)), (seed, ids)
        kept = torch.isfinite(wanted)
        assert torch.allclose(got[kept], wanted[kept], rtol=2e-6, atol=2e-5)
        seen.add(int(kept[: NO_TIMES + 1].sum() > 0) + 2 * int(kept[NO_TIMES + 1 :].sum() > 0))
    assert seen >= {1, 2, 3} - ({1} if index == 0 else set())


def test_times_need_their_tokens(engine):
    logits = torch.zeros(VOCAB)
    for fields in (
        {**WHISPER, "no_timestamps_token_id": None},
        {**WHISPER, "eos_token_id": None},
        {**WHISPER, "no_timestamps_token_id": VOCAB - 1},
    ):
        with pytest.raises(InputError):
            run(engine, GenerationConfig(**fields), [91], logits, prompt=1)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 12])
def test_ngrams_of_the_encoder(engine, size):
    encoder = [5, 9, 20, 5, 9, 21, 7, 5]
    for ids in ([5], [5, 9], [1, 2, 9, 20, 5], [5, 9, 20, 5, 9, 21]):
        got = _with_encoder(engine, {"encoder_no_repeat_ngram_size": size}, encoder, ids)
        theirs = EncoderNoRepeatNGramLogitsProcessor(size, torch.tensor([encoder]))
        wanted = theirs(torch.tensor([ids]), torch.zeros(1, VOCAB) + 1)[0]
        assert torch.equal(got, wanted), ids


@pytest.mark.parametrize("penalty", [0.7, 1.4])
def test_repetition_of_the_encoder(engine, penalty):
    encoder = [5, 9, 20, 5]
    logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(1))
    fields = {"encoder_repetition_penalty": penalty}
    got = _with_encoder(engine, fields, encoder, [1, 2], logits)
    theirs = EncoderRepetitionPenaltyLogitsProcessor(penalty, torch.tensor([encoder]))
    wanted = theirs(torch.tensor([[1, 2]]), logits[None].clone())[0]
    assert torch.allclose(got, wanted, rtol=1e-6)


def test_fields_of_the_encoder_need_one(engine):
    config = GenerationConfig(encoder_no_repeat_ngram_size=2)
    with pytest.raises(UnsupportedField, match="encoder"):
        config.pack(VOCAB, 1, 9)


def _with_encoder(engine, fields, encoder, ids, logits=None):
    config = GenerationConfig(**fields)
    pack = config.pack
    object.__setattr__(config, "pack", lambda *sizes: pack(*sizes, encoder))
    logits = torch.zeros(VOCAB) + 1 if logits is None else logits
    return run(engine, config, ids, logits, prompt=1, functions=("process",))
