"""Whisper's transcription against transformers', on a tiny random model (make.py)."""

import inspect
import json
import re
from pathlib import Path

import numpy as np
import pytest
from edgewise.compiler.schema.speech import SPEECH_FIELDS
from edgewise.errors import InputError, OutOfMemory
from edgewise.host.session.seq2seq import Seq2SeqModel
from edgewise.host.session.weights import WeightStore, checks_of
from edgewise.host.text.speech.whisper import Features, WhisperRunner, whisper_model
from edgewise.logic.speech.prompts import WhisperOptions
from edgewise.logic.speech.whisper import Transcriber
from edgewise.pipelines import pipeline

HERE = Path(__file__).parent / "models"
CASES = json.loads((HERE / "whisper.json").read_text())
FIELDS = ("num_beams", "no_repeat_ngram_size", "repetition_penalty")

# Names that transformers passes to `generate`, or sets in the object while it runs.
ARGUMENTS = {"force_unique_generate_call", "num_frames", "return_token_timestamps"}


@pytest.fixture(scope="module")
def model():
    opened = Seq2SeqModel(str(HERE / "whisper"))
    yield opened
    opened.free()


def features(frames, seed):
    found = np.random.default_rng(seed).standard_normal((1, 8, frames)).astype(np.float32)[0]
    padded = np.zeros((8, max(100, frames)), np.float32)
    padded[:, :frames] = found
    return Features(memoryview(padded), 8, padded.shape[1], frames)


def transcribe(model, case):
    given = dict(case["options"])
    fields = {name: given.pop(name) for name in FIELDS if name in given}
    times, words = given.pop("return_timestamps", False), given.pop("return_token_timestamps", 0)
    if not isinstance(given.get("temperature", []), list):
        given["temperature"] = [given["temperature"]]
    options = WhisperOptions(times=times, word_times=bool(words), fields=fields, **given)
    return transcribed(WhisperRunner(model, features(case["frames"], case["seed"])), options)


def transcribed(runner, options):
    given = runner._part
    logic = Transcriber(whisper_model(runner.model), options)
    return runner.run(logic.transcribe(given.frames, given.spoken))


def test_fields_are_those_that_transformers_reads():
    """Of generation_config.json, but not of its GenerationConfig."""
    from transformers import GenerationConfig
    from transformers.models.whisper import generation_whisper

    source = inspect.getsource(generation_whisper)
    read = set(re.findall(r"generation_config\.(?!json)([a-z_]+)\b(?!\()", source))
    read |= set(re.findall(r'attr\(\w*\.?generation_config, "([a-z_]+)"', source))
    read -= vars(GenerationConfig()).keys() | ARGUMENTS
    read.remove("no_timestamps_token_id")  # `generate` reads it, too
    read.add("median_filter_width")  # which transformers reads from config.json
    assert set(SPEECH_FIELDS) == read


@pytest.mark.family("Whisper", exporter="optimum")
@pytest.mark.parametrize("name", CASES)
def test_tokens_and_times_are_those_of_transformers(model, name):
    case = CASES[name]
    found, wanted = transcribe(model, case), case["segments"]
    assert [s.tokens for s in found] == [s["tokens"] for s in wanted]
    assert [s.start for s in found] == pytest.approx([s["start"] for s in wanted])
    assert [s.end for s in found] == pytest.approx([s["end"] for s in wanted])
    for got, expected in zip(found, wanted):
        if expected["times"]:
            assert got.token_times == pytest.approx(expected["times"], abs=0.02)


def test_times_of_words_after_memory_ran_out(monkeypatch):
    """Their plan is loaded with the first of them. What it did not compute is not read later."""
    case = next(c for c in CASES.values() if c["options"].get("return_token_timestamps"))
    opened = Seq2SeqModel(str(HERE / "whisper"))
    want = [s.token_times for s in transcribe(opened, case)]
    for plan in opened.aligners.values():
        plan.loaded.free()
    opened.aligners.clear()
    first, buffer = opened.store, Seq2SeqModel.buffer
    opened.store = WeightStore(opened.device, None, checks_of(opened.package))

    def full(self, name, nbytes):
        if name.startswith("align/"):
            raise OutOfMemory("there is no room", name, "Free something.")
        return buffer(self, name, nbytes)

    with monkeypatch.context() as patched:
        patched.setattr(Seq2SeqModel, "buffer", full)
        with pytest.raises(OutOfMemory):
            transcribe(opened, case)
    assert not opened.store.computed
    assert [s.token_times for s in transcribe(opened, case)] == want
    assert opened.store.computed
    opened.free()
    first.free()


def test_progress_and_streamer(model):
    seen, put = [], []

    class Streamer:
        def put(self, ids):
            put.append(list(ids))

        def end(self):
            put.append(None)

    options = WhisperOptions(times=True, fields={"max_new_tokens": 5})
    progress = lambda done, total: seen.append((done, total))  # noqa: E731
    runner = WhisperRunner(model, features(220, 3), Streamer(), on_progress=progress)
    segments = transcribed(runner, options)
    assert segments and seen[0] == (0, 220) and seen[-1] == (220, 220)
    assert [d for d, _ in seen] == sorted(d for d, _ in seen) and put.count(None) == len(seen) - 1


def test_fallback_tries_higher_temperatures(model):
    tried = []
    options = WhisperOptions(temperature=(0.0, 0.4, 0.8), logprob_threshold=-0.0001)
    runner = WhisperRunner(model, features(100, 1))
    generate = runner._generate
    runner._generate = lambda r, s: tried.append(r.fields.get("temperature")) or generate(r, s)
    transcribed(runner, options)
    assert tried[:3] == [None, 0.4, 0.8]


def test_beams_of_the_generation_config(model, monkeypatch):
    """Thresholds take the model's own num_beams as one that is given."""
    given = WhisperOptions(temperature=(0.0,), logprob_threshold=-9.0, fields={"num_beams": 3})
    own = WhisperOptions(temperature=(0.0,), logprob_threshold=-9.0)
    found = []
    for options in (given, own):
        runner = WhisperRunner(model, features(100, 1))
        generate = runner._generate
        runner._generate = lambda *args, generate=generate: (
            found.append(generate(*args)) or found[-1]
        )
        transcribed(runner, options)
        monkeypatch.setitem(model.generation_config, "num_beams", 3)
    assert len(found) == 2 and found[0] == found[1]


class Extractor:
    """In place of a feature extractor: as many frames as there are samples / 160."""

    def __call__(self, samples, sampling_rate, **length):
        assert sampling_rate == 16000
        frames = -(-len(samples) // 160)
        found = features(frames, 5)
        if length.get("padding") == "longest":
            assert frames > 100
        return {"input_features": np.array(found.data).reshape(1, 8, -1)}


class Words:
    """In place of a tokenizer."""

    def decode(self, ids, **_):
        return "".join(f" w{i}" for i in ids)


@pytest.fixture(scope="module")
def pipe(model):
    return pipeline("asr", model, Words(), processor=Extractor())


def sound(seconds):
    return np.zeros(int(16000 * seconds), np.float32)


def test_pipeline_outputs(pipe):
    plain = pipe(sound(1))
    assert set(plain) == {"text"} and plain["text"].startswith(" w")
    timed = pipe(sound(1), return_timestamps=True)
    assert set(timed) == {"text", "chunks"} and timed["chunks"][0]["timestamp"][0] is not None
    words = pipe(sound(1), return_timestamps="word", return_language=True)
    assert {len(c["timestamp"]) for c in words["chunks"]} == {2}
    assert {c["language"] for c in words["chunks"]} <= {"english", "french"}
    assert "".join(c["text"] for c in words["chunks"]) == words["text"]
    assert [type(r) for r in pipe([sound(1), sound(0.5)])] == [dict, dict]
    long, chunked = pipe(sound(2.4)), pipe(sound(2.4), chunk_length_s=1)
    assert len(long["text"]) > len(plain["text"]) and chunked["text"]
    both = pipe({"array": sound(1), "sampling_rate": 16000, "name": "clip"})
    assert both == {**plain, "name": "clip"}


def test_pipeline_refuses(pipe):
    for options in (
        {"return_timestamps": "char"},
        {"language": "klingon"},
        {"task": "sing"},
        {"num_return_sequences": 2},
        {"do_sample": True},
        {"no_speech_threshold": 0.5},
        {"prompt_condition_type": "all-segments"},
        {"decoder_kwargs": {}},
        {"unknown": 1},
        {"chunk_length_s": 1, "stride_length_s": 0.5},
        {"max_new_tokens": 47},
    ):
        with pytest.raises(InputError):
            pipe(sound(1), **options)
    for wrong in (sound(0), {"array": sound(1)}, np.zeros((1, 2, 3), np.float32)):
        with pytest.raises(InputError):
            pipe(wrong)
    assert pipe(sound(1))["text"]


def test_sequences_of_a_source_share_cross_keys(model):
    source = model.encode(features(100, 0).data.cast("B").cast("f"))
    first, second = source.open(), source.open()
    shared = [c["name"] for c in model.cross_caches]
    a, b = model.memory_of(first), model.memory_of(second)
    assert all(a[name] is b[name] for name in shared)
    assert not any(a[c["name"]] is b[c["name"]] for c in model.caches)
    source.close(first)
    source.close(second)
    source.close()
    with pytest.raises(InputError, match="closed"):
        source.open()
