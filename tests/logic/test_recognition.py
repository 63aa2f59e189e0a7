"""Recognition of speech on both forms: options, parts of recordings and results. Expected values:
transformers' automatic-speech-recognition.
"""

import random

import numpy as np
import pytest
from edgewise.errors import InputError

from .forms import both, module

WINDOWS = [[10, 5], *[[3, 2]] * 4, [2, 2], [2, 2]]  # of wav2vec2
CONFIG = {
    "no_timestamps_token_id": 299,
    "eos_token_id": 260,
    "is_multilingual": True,
    "lang_to_id": {"<|en|>": 261, "<|fr|>": 262},
    "task_to_id": {"transcribe": 263, "translate": 264},
}


def driven(steps, answer):
    """(result, requests) of logic."""
    seen, value = [], None
    while True:
        try:
            seen.append(steps.send(value))
        except StopIteration as over:
            return over.value, seen
        value = answer(seen[-1])


def chunked(count, size, before, after):
    """[(start, length, left, right)] of transformers."""
    asr = pytest.importorskip("transformers.pipelines.automatic_speech_recognition")

    def extractor(samples, **_):
        return {"first": samples[0]}

    extractor.sampling_rate = 16000
    found = asr.chunk_iter(np.arange(count), extractor, size, before, after)
    return [(int(c["first"]), *c["stride"]) for c in found]


@both
def test_frames_of_chunks_are_those_of_transformers(form):
    asr = pytest.importorskip("transformers.pipelines.automatic_speech_recognition")
    ctc, generator = module(form, "speech.ctc"), random.Random(2)
    for _ in range(40):
        seconds, count = generator.choice([1, 1.5, 2.02]), generator.randrange(9000, 90000)
        stride = generator.choice([None, 0.2, [0.1, 0.3], 0])
        given = (0, 1 << 30, False) if generator.random() < 0.5 else (1, 32000, True)
        frames = ctc.Frames(16000, 320, WINDOWS * given[0], given[1], given[2])
        options = {"chunk_length_s": seconds, "stride_length_s": stride}

        def answer(request):
            first = round(request.start / 320)
            return [first + i for i in range(round(request.length / 320))]

        ids, seen = driven(
            ctc.recognized(frames, options, count), lambda r: answer(r) if r.kind == "hear" else 0
        )
        sides = [seconds / 6] * 2 if stride is None else stride if stride else [0, 0]
        sides = sides if isinstance(sides, list) else [sides, sides]
        lengths = [int(round(s * 16000 / 320) * 320) for s in (seconds, *sides)]
        chunks, expected = chunked(count, *lengths), []
        for start, *strides in chunks:
            (_, left, right) = asr.rescale_stride([strides], 1 / 320)[0]
            found = [round(start / 320) + i for i in range(round(strides[0] / 320))]
            if frames.padded:
                found = found[: sum_of(strides[0])]
            expected += found[left : round(strides[0] / 320) - right]
        assert ids == expected
        heard = [(r.start, r.length) for r in seen if r.kind == "hear"]
        assert heard == [(start, length) for start, length, *_ in chunks]
        assert [r.total for r in seen if r.kind == "done"] == [count] * len(chunks)


def sum_of(count):
    """Frames of wav2vec2: its _get_feat_extract_output_lengths."""
    for size, step in WINDOWS:
        count = (count - size) // step + 1
    return count


@both
def test_recordings_that_are_too_long_for_a_model_are_divided(form):
    ctc = module(form, "speech.ctc")
    frames = ctc.Frames(16000, 320, [], 16100, True)
    for count, parts in ((16100, 1), (16101, 2)):
        ids, seen = driven(
            ctc.recognized(frames, {}, count), lambda r: r.kind == "hear" and [1] * 60
        )
        assert len([r for r in seen if r.kind == "hear"]) == parts
        assert len(ids) == round(count / 320)


@both
def test_moonshine(form):
    moonshine = module(form, "speech.moonshine")
    words = {0: [1, 2, 3, 4], 1: [3, 4, 5, 6]}
    options = {"chunk_length_s": 1, "stride_length_s": 0.25}
    answers = iter(words.values())
    ids, seen = driven(
        moonshine.recognized(options, 16000, 24000),
        lambda r: next(answers) if r.kind == "hear" else None,
    )
    assert ids == [1, 2, 3, 4, 5, 6]
    assert [(r.start, r.length) for r in seen if r.kind == "hear"] == [(0, 16000), (8000, 16000)]
    assert [r.done for r in seen if r.kind == "done"] == [16000, 24000]
    assert moonshine.fields_of({}, 16001, 16000, 100) == {"max_new_tokens": 7}
    assert moonshine.fields_of({"num_beams": 2}, 16000 * 60, 16000, 100)["max_new_tokens"] == 100
    assert moonshine.fields_of({"max_length": 9}, 16000, 16000, 100) == {"max_length": 9}
    config = {"bos_token_id": 1, "eos_token_id": [2, 9], "pad_token_id": None}
    assert moonshine.without_marks([1, 5, 2, 1, 9, 0], config) == [5, 0]


@both
@pytest.mark.parametrize(
    "options, where, text",
    [
        ({"return_timestamps": "char"}, "return_timestamps", "Whisper has no times of kind"),
        ({"return_timestamps": 1}, "return_timestamps", "Whisper has no times of kind 1"),
        ({"return_language": "en"}, "return_language", "it is"),
        ({"language": 3}, "language", "it is 3"),
        ({"prompt_ids": [1, -2]}, "prompt_ids", "list of token ids"),
        ({"prompt_ids": "hello"}, "prompt_ids", "list of token ids"),
        ({"temperature": [0.0, "hot"]}, "temperature", "Give a number of 0 or more"),
        ({"temperature": []}, "temperature", "Give a number of 0 or more"),
        ({"temperature": -1}, "temperature", "it is -1"),
        ({"num_frames": 0}, "num_frames", "it is 0"),
        ({"logprob_threshold": "low"}, "logprob_threshold", "Give a number"),
        ({"no_speech_threshold": 0.5}, "no_speech_threshold", "only with logprob_threshold"),
        ({"prompt_condition_type": "all"}, "prompt_condition_type", "first-segment"),
        ({"prompt_condition_type": "all-segments"}, "prompt_condition_type", "needs condition"),
        ({"chunk_length_s": -1}, "chunk_length_s", "Give seconds"),
        ({"chunk_length_s": "1"}, "chunk_length_s", "Give seconds"),
        ({"chunk_length_s": 1, "stride_length_s": [1, 2, 3]}, "stride_length_s", "left, right"),
        ({"chunk_length_s": 1, "stride_length_s": 0.5}, "stride_length_s", "do not advance"),
        ({"fields": {"do_sample": True}}, "do_sample", "transcripts have one text"),
        ({"fields": {"num_return_sequences": 2}}, "num_return_sequences", "one text"),
    ],
)
def test_options_that_are_refused(form, options, where, text):
    given = dict(options)
    fields = given.pop("fields", {})
    with pytest.raises(InputError, match=text) as e:
        module(form, "speech.recognition").call_of(given, fields, {})
    assert e.value.where == ("options." if form == "page" else "") + where


@both
def test_fields_of_the_model_apply_unless_a_call_has_its_own(form):
    config = {"condition_on_prev_tokens": True, "logprob_threshold": -1.0, "temperature": 0.7}
    call_of = module(form, "speech.recognition").call_of
    whisper = call_of({"prompt_condition_type": "all-segments"}, {}, config).whisper
    assert whisper.condition_on_prev_tokens and whisper.logprob_threshold == -1
    assert list(whisper.temperature) == [None]  # those of a call alone, as in transformers
    whisper = call_of({"logprob_threshold": -2.0, "temperature": (0, 0.2)}, {}, config).whisper
    assert whisper.logprob_threshold == -2 and list(whisper.temperature) == [0, 0.2]


def whisper_answers(tokens):
    """Answers of a model of windows of 1 s, which hears the same in each."""

    def answer(request):
        if request.kind == "part":
            return 100, request.length // 160
        if request.kind == "logits":
            return [0.0] * 300
        return (list(tokens), 0.0) if request.kind == "generate" else None

    return answer


def transcript(form, options, count, tokens):
    recognition = module(form, "speech.recognition")
    model = module(form, "speech.prompts").WhisperModel(CONFIG, {}, 400, 448, 259, 100, 50)
    call = recognition.call_of(options, {}, CONFIG)
    decode = lambda ids: "".join(chr(i) for i in ids if i < 256)  # noqa: E731
    made = recognition.Transcript(call, model, count, decode)
    return driven(made.steps(), whisper_answers(tokens))


@both
def test_chunks_of_recordings_for_whisper(form):
    """The parts are those of transformers, and what they have in common is there once."""
    text = [*b" one two", 260]
    options = {"chunk_length_s": 1, "stride_length_s": 0.25, "language": "en"}
    result, seen = transcript(form, options, 40000, text)
    parts = [(r.start, r.length) for r in seen if r.kind == "part"]
    assert parts == [c[:2] for c in chunked(40000, 16000, 4000, 4000)]
    assert [r.whole for r in seen if r.kind == "part"] == [False] * len(parts)
    assert result == {"text": " one two"}
    progress = [(r.done, r.total) for r in seen if r.kind == "progress"]
    assert progress == sorted(progress) and progress[0] == (0, 250) and progress[-1] == (250, 250)


@both
def test_results_of_whisper(form):
    timed = [300, *b" one", 350, 260]  # from 0 to 1 s
    options = {"return_timestamps": True, "return_language": True, "language": "fr"}
    result, seen = transcript(form, options, 16000, timed)
    chunk = {"language": "french", "timestamp": (0.0, 1.0), "text": " one"}
    assert normal(result) == {"text": " one", "chunks": [chunk]}
    assert [r.whole for r in seen if r.kind == "part"] == [True]
    # a recording of more than a window has times for the model alone
    result, seen = transcript(form, {"language": "fr"}, 16001, timed)
    assert result == {"text": " one"}
    assert [r.fields["return_timestamps"] for r in seen if r.kind == "generate"] == [True]
    with pytest.raises(InputError, match="no end of the last chunk"):
        options = {**options, "force_full_sequences": True}
        transcript(form, options, 16000, [300, *b" one", 260])


def normal(result):
    """A result with tuples of times."""
    return {
        "text": result["text"],
        "chunks": [{**c, "timestamp": tuple(c["timestamp"])} for c in result["chunks"]],
    }


@both
def test_options_of_streams(form):
    check = module(form, "speech.stream").check_stream
    assert check({}) == (1.0, False) and check({"interval": 0.5, "live": True}) == (0.5, True)
    for options in ({"interval": 0}, {"interval": 11}, {"interval": "1"}, {"live": 1}):
        with pytest.raises(InputError, match=next(iter(options))):
            check(options)
