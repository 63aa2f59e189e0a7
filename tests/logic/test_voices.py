"""Segments of speech, voices and measures of heads, on both forms."""

import pytest
from edgewise.errors import InputError

from tests.conformance.vectors import vectors

from .forms import both, module


@both
def test_speech_of_silero_vad(form):
    activity = module(form, "post.voice_activity")
    for case in vectors("audio/voice_activity"):
        rules = activity.VoiceRules(**case["rules"])
        found = activity.segments_of(case["probabilities"], rules, case["length"])
        assert found == case["segments"]
        stream = activity.VoiceEvents(rules)
        events = [stream.next(p) for p in case["probabilities"]]
        assert [e for e in events if e is not None] == case["events"]


@both
def test_vectors_of_voices(form):
    speakers = module(form, "post.speakers")
    assert speakers.unit([3.0, 4.0]) == [0.6, 0.8]
    assert speakers.unit([0.0, 0.0]) == [0, 0]
    assert speakers.mean_voice([[2.0, 0.0], [0.0, 5.0]]) == pytest.approx([0.5**0.5] * 2)
    assert speakers.cosine([1.0, 0.0], [5.0, 5.0]) == pytest.approx(0.5**0.5)


@both
def test_equal_error_rate(form):
    speakers = module(form, "post.speakers")
    assert speakers.equal_error_rate([0.9, 0.8], [0.1, 0.2]) == (0.0, 0.8)
    rate, threshold = speakers.equal_error_rate([0.9, 0.8, 0.3, 0.7], [0.1, 0.2, 0.75, 0.4])
    assert rate == 0.25 and threshold == 0.7
    with pytest.raises(InputError):
        speakers.equal_error_rate([], [0.5])


def sound_of(**fields):
    """What a package says of its sound."""
    length = {"exact": None, "multiple": 1, "least": 1, "chunk": 0, "stride": 0}
    return {
        "type": "Wav2Vec2",
        "sampling_rate": 16000,
        "channels": 1,
        "length": {**length, "truncate": True, "repeat": ""},
        **fields,
    }


@both
def test_parts_of_voices(form):
    samples = module(form, "speech.samples")
    for case in vectors("audio/windows"):
        windows = case["windows"]
        assert samples.window_starts(windows, case["count"]) == case["starts"]
        parts = samples.voice_parts(sound_of(windows=windows), case["count"])
        assert parts == [(at - windows["before"], windows["size"]) for at in case["starts"]]
    assert samples.voice_parts(sound_of(), 70000) == [(0, 70000)]
    lengths = sound_of(lengths=[16000, 32000])
    assert samples.voice_parts(lengths, 900) == [(0, 16000)]
    assert samples.voice_parts(lengths, 31999) == [(0, 16000), (15999, 16000)]
    # overlapping parts begin and end with the recording
    assert samples.voice_parts(lengths, 70001) == [(0, 32000), (19001, 32000), (38001, 32000)]
    span = sound_of(any_length=[400, 32000])
    assert samples.voice_parts(span, 31999) == [(0, 31999)]
    assert samples.voice_parts(span, 40000) == [(0, 32000), (8000, 32000)]


@both
def test_lengths_of_sounds(form):
    samples = module(form, "speech.samples")
    lengths, span = sound_of(lengths=[16000, 32000]), sound_of(any_length=[400, 32000])
    for sound in (lengths, span):
        assert samples.longest(sound) == 32000
        samples.check_longest(sound, 32000, "x")
        with pytest.raises(InputError, match=r"2\.0 s, this package takes 2 s"):
            samples.check_longest(sound, 32001, "x")
    assert [samples.plan_length(lengths, n) for n in (1, 16000, 16001)] == [16000, 16000, 32000]
    assert [samples.plan_length(span, n) for n in (1, 16001)] == [400, 16001]
    assert samples.longest(sound_of()) is None and samples.plan_length(sound_of(), 5) is None
    exact = sound_of()
    exact["length"].update(exact=1000, least=100, truncate=False)
    for count, text in ((99, "Wav2Vec2 needs 100"), (1001, r"Cut it to 0\.0625 s")):
        with pytest.raises(InputError, match=text):
            samples.input_of(exact, count)


@both
def test_samples_before_graphs(form):
    samples = module(form, "speech.samples")
    for case in vectors("audio/inputs"):
        found = samples.input_of(case["description"], case["count"])
        assert found.total == case["total"]
        assert (None if found.mask is None else list(found.mask)) == case.get("mask")
        assert found.valid == case.get("valid")


@both
def test_options_of_voice_activity(form):
    activity = module(form, "post.voice_activity")
    assert activity.rules_of({}) == activity.VoiceRules()
    rules = activity.rules_of({"sampling_rate": 8000, "threshold": 0.1, "speech_pad_ms": 0})
    assert (rules.sampling_rate, rules.window, rules.pad_ms) == (8000, 256, 0)
    assert (rules.threshold, rules.neg_threshold) == (0.1, 0.01)
    for options in (
        {"sampling_rate": 44100},
        {"threshold": 1.1},
        {"neg_threshold": -0.1},
        {"speech_pad_ms": "30"},
        {"max_speech_duration_s": float("nan")},
    ):
        with pytest.raises(InputError, match=next(iter(options))):
            activity.rules_of(options)
    for options in ({"return_seconds": 1}, {"time_resolution": -1}, {"time_resolution": 10}):
        with pytest.raises(InputError, match=next(iter(options))):
            activity.digits_of(options)


@both
def test_times_of_speech(form):
    """As silero_vad's get_speech_timestamps rounds them."""
    activity = module(form, "post.voice_activity")
    segments = [{"start": 800, "end": 20000}, {"start": 36000, "end": 39900}]
    assert activity.digits_of({"return_seconds": True}) == 1
    assert activity.digits_of({"return_seconds": True, "time_resolution": 3}) == 3
    assert activity.digits_of({"time_resolution": 3}) is None
    assert activity.times_of(segments, 16000, 39900, None) == segments
    assert activity.times_of(segments, 16000, 39900, 1) == [
        {"start": 0.1, "end": 1.2},
        {"start": 2.2, "end": 2.49375},  # not after the end
    ]
    assert activity.times_of(segments, 16000, 39900, 3)[0] == {"start": 0.05, "end": 1.25}


@both
def test_matches_of_voices(form):
    speakers = module(form, "post.speakers")
    voices = {"a": [1.0, 0.0], "b": [0.0, 1.0], "toString": [-1.0, 0.0]}
    assert speakers.threshold_of({}) == 0.75 and speakers.threshold_of({"threshold": 0}) == 0
    known = speakers.enrolled(voices, {})
    found = speakers.matches([0.6, 0.8], known, 0.75)
    assert [m["label"] for m in found] == ["b", "a", "toString"]
    assert [m["score"] for m in found] == pytest.approx([0.8, 0.6, -0.6])
    assert [m["accepted"] for m in found] == [True, False, False]
    assert [label for label, _ in speakers.enrolled(voices, {"name": "a"})] == ["a"]
    for given, options, text in (
        ({}, {}, "no voice is enrolled"),
        (voices, {"name": "constructor"}, "'constructor' is not enrolled"),
        (voices, {"name": 3}, "name: it is 3"),
    ):
        with pytest.raises(InputError, match=text):
            speakers.enrolled(given, options)
    with pytest.raises(InputError, match="from -1 to 1"):
        speakers.threshold_of({"threshold": "high"})


@both
def test_measures(form):
    """Labels may be names of members of objects."""
    labels = ["constructor", "__proto__"]
    scores = [{"constructor": p, "__proto__": 1 - p} for p in (0.9, 0.2, 0.4)]
    found = module(form, "personal.measures").measured(labels, [*labels, "constructor"], scores)
    assert found["accuracy"] == 2 / 3 and found["count"] == 3
    assert found["confusion"] == {
        "constructor": {"constructor": 1, "__proto__": 1},
        "__proto__": {"__proto__": 1},
    }
    assert set(found["equal_error_rates"]) == set(labels)
