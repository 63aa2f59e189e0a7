"""Who spoke when, on both forms: clusters against scipy, classes, turns and words."""

import itertools

import pytest
from edgewise.errors import InputError, ModelError

from tests.conformance.vectors import vectors

from .forms import both, module


def partition(labels) -> set:
    return {frozenset(i for i, k in enumerate(labels) if k == c) for c in set(labels)}


@both
def test_clusters_of_scipy(form):
    rules = module(form, "speech.diarization")
    for case in vectors("audio/clusters"):
        merges = rules.linkage(case["vectors"])
        for ours, (left, right, distance, size) in zip(merges, case["merges"], strict=True):
            assert (ours.left, ours.right, ours.size) == (left, right, size)
            assert ours.distance == pytest.approx(distance, abs=1e-6)
        for threshold, expected in case["flat"].items():
            found = rules.flat(merges, [m.distance for m in merges], float(threshold))
            assert partition(found) == partition(expected)


@both
def test_number_of_speakers(form):
    rules = module(form, "speech.diarization")
    case = vectors("audio/clusters")[0]["vectors"]
    for many in (1, 2, 3, 4):
        assert len(set(rules.clustered(case, 0.7, many, many))) == many
    assert len(set(rules.clustered(case, 0.7, 1, 1 << 20))) == 3
    assert rules.clustered([], 0.7, 1, 9) == [] and rules.clustered([[1.0]], 0.7, 1, 9) == [0]
    assert rules.speakers_of({"min_speakers": 2, "max_speakers": 3}) == (2, 3)
    assert rules.speakers_of({"num_speakers": 4}) == (4, 4)
    for wrong in ({"num_speakers": 0}, {"num_speakers": 2, "max_speakers": 3},
                  {"min_speakers": 3, "max_speakers": 2}):  # fmt: skip
        with pytest.raises(InputError):
            rules.speakers_of(wrong)


@both
def test_classes_are_sets_of_speakers(form):
    rules = module(form, "speech.diarization")
    expected = [list(of) for n in range(3) for of in itertools.combinations(range(3), n)]
    assert rules.powerset(7) == expected and len(expected) == 7  # of pyannote's segmentation-3.0
    assert len(rules.powerset(11)) == 11 and rules.powerset(2) == [[], [0]]
    with pytest.raises(ModelError, match="10 classes"):
        rules.powerset(10)


def scores(*classes) -> list:
    return [float(c == best) for best in classes for c in range(7)]


@both
def test_turns(form):
    """Windows of 4 frames of 10 samples, a new one each 20 samples; 2 speakers of other numbers."""
    rules = module(form, "speech.diarization")
    windows = rules.windows_of({"sampling_rate": 100, "step": 10}, 40, 4, {"step": 0.2})
    assert (windows.size, windows.step, windows.frame) == (40, 20, 10)
    assert rules.starts_of(windows, 80) == [0, 20, 40] and rules.starts_of(windows, 30) == [0]
    made = rules.Diarization(windows, 80)
    made.feed(0, scores(1, 1, 4, 2), 4, 7)  # A A AB B
    made.feed(20, scores(4, 1, 1, 0), 4, 7)  # BA B B -
    made.feed(40, scores(2, 0, 0, 1), 4, 7)  # B - - A
    voices = made.voices()
    assert [(v.window, v.speaker) for v in voices] == [
        (0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1),
    ]  # fmt: skip
    a, b = [1.0, 0.0], [0.0, 1.0]
    turns = made.turns([a, b, b, a, a, b], {})
    found = [(t.start, t.end, t.speaker) for t in turns]
    assert found == [
        (0, 0.3, "SPEAKER_00"), (0.2, 0.5, "SPEAKER_01"), (0.7, 0.8, "SPEAKER_00"),
    ]  # fmt: skip
    one = made.turns([a, b, b, a, a, b], {"num_speakers": 1})
    assert {t.speaker for t in one} == {"SPEAKER_00"}
    chunks = [{"text": "x", "timestamp": [0.0, 0.25]}, {"text": "y", "timestamp": [0.35, 0.6]}]
    chunks.append({"text": "z", "timestamp": [0.62, None]})
    named = rules.with_speakers(chunks, turns)
    assert [c["speaker"] for c in named] == ["SPEAKER_00", "SPEAKER_01", "SPEAKER_00"]
    assert named[0]["text"] == "x"
    assert rules.with_speakers(chunks[:1], [])[0]["speaker"] is None
    with pytest.raises(InputError, match="no timestamp"):
        rules.with_speakers([{"text": "x"}], turns)
