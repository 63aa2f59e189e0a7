"""Streams of speech, tokens of CTC models, parts of sentences and their ids, on both forms."""

import pytest
from conformance.vectors import vectors
from edgewise.errors import InputError
from pipelines.sounds.make_streams import words_of

from .forms import both, module


class Host:
    """Sound is its own index; its words are those of make_streams.py."""

    def __init__(self, case):
        self.case, self.heard, self.first, self.windows = case, 0, 0, []
        self.script, self.listened, self.speaking = [*(case["voice"] or [])], 0, False

    def answer(self, request):
        if request.kind == "hear":
            self.heard += request.stop - request.start
        elif request.kind == "forget":
            assert 0 < request.count <= self.heard
            self.heard -= request.count
            self.first += request.count
        elif request.kind == "listen":
            self.listened += request.stop - request.start
            found = []
            while self.script and self.script[0][0] <= self.listened:
                found.append(self.script.pop(0)[1])
                self.speaking = "start" in found[-1]
            return found, self.speaking
        else:
            assert request.count <= self.heard
            self.windows.append([self.first, request.count, request.before])
            return words_of(self.first, request.count, self.case["speech"])
        return None

    def drive(self, steps):
        answer = None
        while True:
            try:
                answer = self.answer(steps.send(answer))
            except StopIteration as over:
                return over.value


@both
@pytest.mark.parametrize("number", range(10))
def test_windows_and_events(form, number):
    case = vectors("audio/streams")[number]
    host = Host(case)
    stream = module(form, "speech.stream").Recognition(
        case["interval"], case["voice"] is not None, case["live"]
    )
    events = []
    for count in case["feeds"]:
        events += host.drive(stream.feed(count))
    events += host.drive(stream.end())
    assert host.windows == case["windows"]
    plain = [{n: list(x) if isinstance(x, tuple) else x for n, x in e.items()} for e in events]
    assert plain == case["events"]


@both
def test_silence_is_forgotten(form):
    host = Host({"voice": None, "speech": []})
    stream = module(form, "speech.stream").Recognition(1.0, False, False)
    for _ in range(60):
        assert host.drive(stream.feed(16000)) == []
        assert host.heard <= 29 * 16000


@both
def test_tokens_of_frames(form):
    """Expected values: transformers (tests/pipelines/sounds/test_ctc.py computes them again)."""
    ctc = module(form, "speech.ctc")
    for given in vectors("audio/ctc"):
        vocabulary = ctc.Vocabulary(**given["tokenizer"])
        for case in given["cases"]:
            found = ctc.characters_of(vocabulary, case["ids"])
            assert [list(s) for s in found] == case["chars"]
            assert [list(s) for s in ctc.words_of(vocabulary, found)] == case["words"]
            assert ctc.text_of(vocabulary, found) == case["text"]


@both
def test_chunks_overlap_and_their_frames_join(form):
    chunks, ctc = module(form, "speech.chunks"), module(form, "speech.ctc")
    found = chunks.chunks_of(16000 * 5 + 333, 32000, 5120, 5120)
    assert [list(c) for c in found] == [
        [0, 32000, 0, 5120],
        [21760, 32000, 5120, 5120],
        [43520, 32000, 5120, 5120],
        [65280, 15053, 5120, 0],
    ]
    assert [ctc.frames_of(c, 320) for c in found] == [(0, 84), (16, 84), (16, 84), (16, 47)]
    windows = [[10, 5], *[[3, 2]] * 4, [2, 2], [2, 2]]
    # 1 s has 49 frames, and not 50
    assert [ctc.frames_in(windows, n) for n in (16000, 15053, 9)] == [49, 46, 0]


@both
def test_parts_of_long_sentences(form):
    parts_of = module(form, "speech.parts").parts_of
    for text, most, expected in vectors("audio/spoken_texts")["parts"]:
        assert ["".join(p) for p in parts_of([*text], most)] == expected


@both
def test_ids_of_units(form):
    """tests/pipelines/sounds/test_text_to_speech.py compares the Python form with transformers."""
    units = module(form, "speech.units")
    words = {"a": 1, "b": 2, " ": 3, "<Pad>": 4, "B": 5}
    assert units.vits_text("AbB <Pad>X<pad>", words, True, "eng") == "abB <Pad>x<pad>"
    assert units.vits_text("țX", words, False, "ron") == "ţX"
    assert units.known_text(" xaz b\U0001f600 ", words) == "a b"
    assert units.vits_ids(["a", "b"], words, "<unk>", True) == [0, 1, 0, 2, 0]
    assert units.vits_ids(["a", "?"], words, "b", False) == [1, 2]
    assert units.vits_ids([], words, "b", True) == []
    with pytest.raises(InputError, match="know the character '\\?'"):
        units.vits_ids(["?"], words, "<unk>", True)
    phonemes = {"^": [1], "_": [0], "$": [2], "h": [20], "oʊ": [27, 100]}
    assert units.piper_ids(["h", "oʊ"], phonemes) == [1, 0, 20, 0, 27, 100, 0, 2]
    assert units.piper_room(27, phonemes) == 8
