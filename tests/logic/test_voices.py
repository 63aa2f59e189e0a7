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
