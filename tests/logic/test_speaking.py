"""Speech synthesis on both forms: sentences, what models are given, and parts of sentences."""

import re

import pytest
from conformance.vectors import vectors
from edgewise.errors import InputError, PackageError

from .forms import both, module
from .test_recognition import driven


def voice_of(kind, **fields):
    """What is known of a model."""
    return {
        "type": kind,
        "sampling_rate": 16000,
        "speakers": 0,
        "tokens": "input",
        "vocabulary": {},
        "least": 1,
        "most": 512,
        "output": "audio",
        **fields,
    }


PIPER = voice_of("piper", vocabulary={"^": [1], "_": [0], "$": [2], "a": [7], "ä": [8, 8]})
KOKORO = voice_of("kokoro", vocabulary={"a": 10, "b": 11, " ": 3})
VITS = voice_of("vits", vocabulary={"a": 1, "b": 2, " ": 3}, normalize=True)


def sentences(form, pieces):
    logic = module(form, "speech.sentences").Sentences()
    found = [s for piece in pieces for s in logic.feed(piece)]
    return [*found, *logic.end()]


@both
def test_sentences(form):
    """Of whole texts, and of their characters one by one."""
    for text, expected in vectors("audio/spoken_texts")["sentences"]:
        assert sentences(form, [text]) == expected
        if not re.search("[。！？][」』”’]", text):  # which end before what closes them arrives
            assert sentences(form, list(text)) == expected
    for pieces, expected in (
        (['He said "No." Then', " he left... Why"], ['He said "No."', "Then he left...", "Why"]),
        (["Dr. Who met J. Smith, e.g. (St. X).  It cost 3.50 €."],
         ["Dr. Who met J. Smith, e.g. (St. X).", "It cost 3.50 €."]),
        (["", "  "], []),
    ):  # fmt: skip
        assert sentences(form, pieces) == expected


@both
def test_sentences_come_as_soon_as_they_have_ended(form):
    logic = module(form, "speech.sentences").Sentences()
    assert logic.feed("One.") == [] and logic.feed(" Tw") == ["One."]
    assert logic.feed("o") == [] and logic.end() == ["Two"]


@both
@pytest.mark.parametrize(
    "voice, options, text",
    [
        (VITS, {"speed": 2}, "speed: the model does not have this option"),
        (VITS, {"voice": "x"}, "voice: the model does not have this option. It has phonemizer"),
        (VITS, {"speaker": 1}, "speaker: the model does not have this option"),
        (KOKORO, {"noise_w": 1}, "noise_w: the model does not have this option"),
        (KOKORO, {"speed": 0}, "speed: it is 0. Give a number from 0.01 to 100"),
        (PIPER, {"noise_scale": -1}, "noise_scale: it is -1. Give a number from 0 to 100"),
        (PIPER, {"length_scale": "1"}, "length_scale: it is"),
        (PIPER, {"speaker": 0}, "speaker: the model does not have this option"),
    ],
)
def test_options_that_are_refused(form, voice, options, text):
    with pytest.raises(InputError, match=text):
        module(form, "speech.voices").check_options(voice, options, ["phonemizer"])


@both
def test_options(form):
    voices = module(form, "speech.voices")
    voices.check_options(VITS, {"speed": 1.0}, [])
    voices.check_options({**PIPER, "speakers": 2}, {"speaker": 1, "speed": 2}, [])
    assert voices.scales_of(PIPER, {"speed": 2, "noise_w": 0}) == [0.667, 0.5, 0]
    assert voices.scales_of({**PIPER, "scales": (0.5, 1.5, 0.25)}, {}) == [0.5, 1.5, 0.25]
    several = {**PIPER, "speakers": 3, "speaker_names": {"ann": 0, "bob": 2}}
    for given, number in ((None, 0), (1, 1), ("bob", 2)):
        assert voices.speaker_number(several, {"speaker": given}) == number
    for given in (3, -1, "eve", "toString", True, 1.5):
        with pytest.raises(InputError, match="there is no speaker .* below 3 or one of ann, bob"):
            voices.speaker_number(several, {"speaker": given})
    assert voices.voice_name(["x"], None) == "x" and voices.voice_name(["x", "y"], "y") == "y"
    assert voices.voice_name(["af_heart", "y"], None) == "af_heart"
    for given, text in ((None, "several voices"), ("z", "no voice 'z'.*x, y")):
        with pytest.raises(InputError, match=text):
            voices.voice_name(["x", "y"], given)


@both
def test_units_of_piper_and_kokoro(form):
    voices = module(form, "speech.voices")
    decomposed = {**PIPER["vocabulary"], "\u0308": [9]}
    piper = {**PIPER, "vocabulary": decomposed}
    assert voices.units_of(piper, "xä", True) == ["a", "\u0308"]  # as Piper normalizes
    assert voices.units_of(PIPER, ["a", "ä", "x"], True) == ["a", "ä"]
    assert voices.ids_of(PIPER, ["a", "ä"]) == [1, 0, 7, 0, 8, 8, 0, 2]
    assert voices.units_of(KOKORO, ["ab", "x a"], True) == ["a", "b", " ", "a"]
    assert voices.ids_of(KOKORO, ["a", "b"]) == [0, 10, 11, 0]
    for voice in (PIPER, KOKORO):
        with pytest.raises(InputError, match="reads phonemes"):
            voices.units_of(voice, "a", False)
    assert voices.units_of({**PIPER, "is_text": True}, "a", False) == ["a"]


@both
def test_parts_that_are_spoken(form):
    voices = module(form, "speech.voices")
    ids_of = module("python", "speech.voices").ids_of

    def parts(voice, units, frames, masked=False):
        """[(units, ids, count)], and frames of the sounds."""
        steps = voices.spoken(voice, units, lambda u: ids_of(voice, u), masked)
        _, seen = driven(steps, lambda r: frames(r.units) if r.kind == "say" else None)
        said = [("".join(r.units), r.ids, r.count) for r in seen if r.kind == "say"]
        return said, [r.frames for r in seen if r.kind == "sound"]

    # all at once, followed by zeros where the plans need more
    assert parts(VITS, ["a", "b"], lambda u: None) == ([("ab", [1, 2], 2)], [])
    long = {**VITS, "least": 4}
    assert parts(long, ["a"], lambda u: None, True) == ([("a", [1, 0, 0, 0], 1)], [])
    with pytest.raises(InputError, match="too short for the model"):
        parts(long, ["a"], lambda u: None)
    # in two programs, halved where there are too many frames
    split = {**VITS, "length": "n", "frames": (2, 9)}
    said, sounds = parts(split, list("ab ab"), lambda u: 4 * len(u))
    assert [s[0] for s in said] == ["ab ab", "ab ", "ab", "ab"] and sounds == [8, 8]
    for frames in (1, 10):
        with pytest.raises(InputError, match=f"in {frames} frames.*2 to 9"):
            parts(split, ["a"], lambda u, frames=frames: frames)
    # no more units than there are plans for
    said, _ = parts({**KOKORO, "most": 6}, list("ab ab ab"), lambda u: None)
    assert max(count for *_, count in said) <= 6 and "".join(s[0] for s in said) == "ab ab ab"


@both
def test_plans_that_are_too_short(form):
    room_of = module(form, "speech.voices").room_of
    assert room_of(VITS) == 512 and room_of({**VITS, "add_blank": True}) == 255
    assert room_of(KOKORO) == 510 and room_of({**KOKORO, "most": 5000}) == 510
    # the longest phoneme of two ids, each followed by one, with four at the ends
    assert room_of({**PIPER, "most": 30}) == 9
    for voice in (
        {**VITS, "most": 2, "add_blank": True},
        {**KOKORO, "most": 2},
        {**PIPER, "most": 5},
    ):
        with pytest.raises(PackageError, match="fewer than a character of it takes"):
            room_of(voice)
