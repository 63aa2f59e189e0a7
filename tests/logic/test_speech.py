"""Words, times and joining of transcripts against transformers, and words of streams."""

import random
import warnings

import pytest
from conformance.vectors import vectors
from generation.make_agreement import cases

from .forms import both, module

BEGIN, EOS = 300, 260


def decode(ids):
    """Text of bytes: an id is a byte of UTF-8."""
    return bytes(ids).decode("utf-8", errors="replace")


@both
def test_vectors(form):
    found = vectors("speech")
    dynamic_time_warping = module(form, "speech.alignment").dynamic_time_warping
    words_of, join = module(form, "speech.words").words_of, module(form, "speech.join")
    for case in found["warping"]:
        assert dynamic_time_warping(case["cost"]) == (case["rows"], case["columns"])
    for case in found["words"]:
        words, indices = words_of(case["ids"], decode, EOS, case["language"])
        assert (words, indices) == (case["words"], case["indices"]), case
    for case in found["joined"]:
        joiner = join.Joiner(decode, EOS, BEGIN, words=case["words"], times=case["times"])
        for window in case["windows"]:
            stride = window["stride"] and tuple(window["stride"])
            joiner.add(
                join.Window(window["tokens"], window["token_times"], stride, window["language"])
            )
        text, chunks = joiner.end()
        assert text == case["text"]
        assert [c["text"] for c in chunks] == [c["text"] for c in case["chunks"]]
        if case["times"]:
            assert [c["timestamp"] for c in chunks] == [c["timestamp"] for c in case["chunks"]]


@both
def test_times_of_tokens(form):
    weights = [[9, 1, 0, 0], [0, 8, 1, 0], [0, 0, 3, 9]]
    token_times = module(form, "speech.alignment").token_times
    assert token_times(weights) == pytest.approx([0.0, 0.02, 0.04])


@both
def test_merged_sequences(form):
    merge_sequences = module(form, "speech.join").merge_sequences
    assert merge_sequences([[1, 2, 3, 4], [3, 4, 5]])[0] == [1, 2, 3, 4, 5]
    assert merge_sequences([[1, 2], [7, 8]])[0] == [1, 2, 7, 8]


class Tokenizer:
    """What transformers' functions need of a tokenizer."""

    all_special_ids = list(range(EOS, BEGIN))
    eos_token_id, language = EOS, None

    def convert_tokens_to_ids(self, token):
        return BEGIN - 1 if token == "<|notimestamps|>" else EOS

    def decode(self, ids, decode_with_timestamps=False):
        return decode(list(ids))

    def _strip_prompt(self, ids, *_):
        return ids


def windows(window, generator, words, strides):
    text = b"Ah, so (well) it's 'done': a cafe - yes! Oh no. "
    out = []
    for i in range(strides):
        tokens, times, at = [], [], 0
        for _ in range(generator.randrange(1, 4)):
            start = at + generator.randrange(30)
            at = start + generator.randrange(1, 200)
            place = generator.randrange(len(text) - 12)
            part = list(text[place : place + generator.randrange(2, 12)])
            end = [BEGIN + at] if generator.random() < 0.9 else []
            tokens += [BEGIN + start, *part, *end]
            times += [round(start * 0.02 + j * 0.04, 2) for j in range(len(part) + 1 + len(end))]
        stride = None if strides == 1 else (30.0, 0.0 if not i else 5.0, 5.0)
        out.append(window(tokens, times if words else None, stride))
    return out


@both
@pytest.mark.parametrize("kind", [False, True, "word"])
@pytest.mark.parametrize("strides", [1, 3])
def test_joining_is_that_of_transformers(form, kind, strides):
    join = module(form, "speech.join")
    torch = pytest.importorskip("torch")
    whisper = pytest.importorskip("transformers.models.whisper.tokenization_whisper")
    generator = random.Random(3)
    for _ in range(60):
        given = windows(join.Window, generator, kind == "word", strides)
        outputs = []
        for w in given:
            output = {"tokens": torch.tensor([w.tokens])}
            if w.token_times is not None:
                output["token_timestamps"] = torch.tensor([w.token_times], dtype=torch.float64)
            if w.stride is not None:
                output["stride"] = w.stride
            outputs.append(output)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            text, extra = whisper._decode_asr(
                Tokenizer(),
                outputs,
                return_timestamps=kind,
                return_language=False,
                time_precision=0.02,
            )
        joiner = join.Joiner(decode, EOS, BEGIN, words=kind == "word", times=bool(kind))
        for w in given:
            joiner.add(w)
        found, chunks = joiner.end()
        assert found == text
        if kind:
            assert [(c["text"], tuple(c["timestamp"])) for c in chunks] == [
                (c["text"], c["timestamp"]) for c in extra["chunks"]
            ]


@both
def test_warping_is_that_of_transformers(form):
    dynamic_time_warping = module(form, "speech.alignment").dynamic_time_warping
    np = pytest.importorskip("numpy")
    whisper = pytest.importorskip("transformers.models.whisper.generation_whisper")
    for seed in range(20):
        generator = np.random.default_rng(seed)
        cost = generator.standard_normal((1 + seed, 2 + 3 * (seed % 7)))
        rows, columns = whisper._dynamic_time_warping(cost)
        assert dynamic_time_warping(cost.tolist()) == (rows.tolist(), columns.tolist())


def listed(words):
    """Words as lists. Attributes of objects in Node are not converted."""
    return [list(w.values() if isinstance(w, dict) else w) for w in words]


@both
@pytest.mark.parametrize("case", range(12))
def test_words_of_streams_are_committed_as_by_whisper_streaming(form, case):
    found = vectors("audio/agreement")[case]
    assert found == cases()[case]
    logic = module(form, "speech.agreement")
    agreement = logic.Agreement()
    for step in found["passes"]:
        committed = agreement.add([logic.Word(*w) for w in step["words"]])
        assert [list(w) for w in committed] == step["committed"]
        assert listed(agreement.partial) == step["partial"]
        if step["forget"] is not None:
            agreement.forget(step["forget"])
    rest = listed(agreement.partial)
    assert [list(w) for w in agreement.end()] == rest and agreement.partial == []
