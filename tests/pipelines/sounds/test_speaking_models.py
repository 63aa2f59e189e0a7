"""text-to-speech by language models and codecs."""

import json

import numpy as np
import pytest
from edgewise import Codec, pipeline
from edgewise.errors import Aborted, InputError

from . import tiny_codecs, tiny_speakers

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("speakers")
    tokens, follows, codes = tiny_speakers.orpheus(17)
    tiny_speakers.make_bigrams(made / "orpheus", tokens, follows, "<|begin_of_text|>")
    (made / "orpheus" / "codes.json").write_text(json.dumps(codes))
    tokens, follows, codes = tiny_speakers.outetts(9)
    tiny_speakers.make_bigrams(made / "outetts", tokens, follows, "<|im_start|>")
    (made / "outetts" / "codes.json").write_text(json.dumps(codes))
    tiny_codecs.make_snac(made / "snac", 4096)
    tiny_codecs.make_snac(made / "small")
    return made


@pytest.mark.family("Orpheus", exporter="torch")
def test_orpheus(folder):
    """The codes of the language model are those that SNAC decodes, in whole and in pieces."""
    codec = Codec(folder / "snac")
    codes = json.loads((folder / "orpheus" / "codes.json").read_text())
    model = tiny_codecs.snac_module(4096)
    with torch.no_grad():
        expected = model.decode(*(torch.tensor([c]) for c in codes)).numpy()[0]
    speak = pipeline("text-to-speech", folder / "orpheus", codec=codec)
    options = {"voice": "tara", "generate_kwargs": {"do_sample": False}}
    made = speak("hello there", **options)
    assert made["sampling_rate"] == 800 and made["audio"].shape == expected.shape == (1, 17 * 16)
    assert np.abs(made["audio"] - expected).max() < 2e-5
    parts = [*speak.stream("hello there.", **options)]
    assert len(parts) > 3 and {p["text"] for p in parts} == {"hello there."}
    assert parts[0]["audio"].shape == (1, 4 * 16)
    whole = np.concatenate([p["audio"] for p in parts], axis=1)
    assert np.abs(whole - expected).max() < 2e-5
    # sampled from probabilities of nearly 1
    assert np.array_equal(speak("hi", seed=3)["audio"], made["audio"])


def test_prompt_of_orpheus(folder):
    """The ids that Orpheus' library gives its model."""
    speak = pipeline("text-to-speech", folder / "orpheus", codec=folder / "snac")
    ids = speak.tokenizer
    found = speak._prompt("hi.", "leo")
    named = lambda *tokens: [ids.token_to_id(t) for t in tokens]  # noqa: E731
    end = named("<|eot_id|>", *(f"<custom_token_{i}>" for i in (4, 5, 1)))
    start = named("<custom_token_3>", "<|begin_of_text|>")
    assert found == [*start, *named(*"leo: hi."), *end]


def test_rules_of_a_caller(folder):
    rule = {"tokens": "<custom_token_{}>", "first": 10, "size": 4096, "end": ["<custom_token_2>"]}
    rule["streams"] = [0, 1, 2, 2, 1, 2, 2]
    given = {"codec": folder / "snac", "generate_kwargs": {"do_sample": False}}
    theirs = pipeline("text-to-speech", folder / "orpheus", **given)("a", voice="b")["audio"]
    ours = pipeline("text-to-speech", folder / "orpheus", **given, audio_tokens=rule)
    prompt = "<custom_token_1>"
    assert np.array_equal(ours(prompt, generate_kwargs={"do_sample": False})["audio"], theirs)
    with pytest.raises(InputError, match="no whole frame of sound"):
        ours("a")  # no token follows a letter, so the first one is taken again and again
    for wrong, words in (
        ({**rule, "streams": []}, "'streams' is none"),
        ({**rule, "streams": [0, 2]}, "all streams from 0 to 2|'streams' is none"),
        ({**rule, "tokens": "<a>"}, "'tokens' is none"),
        ({**rule, "size": 0}, "'size' is none"),
        ({**rule, "first": -1}, "'first' is none"),
        ({**rule, "tokens": "<b_{}>"}, "no token <b_10>"),
        ("bark", "no rule 'bark'"),
        (7, "it is no rule"),
    ):
        with pytest.raises(InputError, match=words):
            pipeline(
                "text-to-speech", folder / "orpheus", codec=folder / "snac", audio_tokens=wrong
            )


def test_what_does_not_fit(folder):
    with pytest.raises(InputError, match="codebooks have 32 codes, the language model speaks in"):
        pipeline("text-to-speech", folder / "orpheus", codec=folder / "small")
    with pytest.raises(InputError, match="it has 3 codebooks, the language model speaks in 2"):
        pipeline("text-to-speech", folder / "outetts", codec=folder / "snac")
    speak = pipeline("text-to-speech", folder / "orpheus", codec=folder / "snac")
    for options, words in (
        ({"voice": 3}, "no name"),
        ({"speed": 2}, "no option 'speed'"),
        ({"seed": -1}, "seed"),
        ({"generate_kwargs": 1}, "generate_kwargs"),
    ):
        with pytest.raises(InputError, match=words):
            speak("a", **options)
    with pytest.raises(InputError, match="is no text"):
        speak(3)
    with pytest.raises(Aborted):
        speak("a", signal=lambda: True)


@pytest.mark.family("OuteTTS", exporter="torch")
def test_outetts(folder, tmp_path):
    """Two codebooks in one tensor; a speaker's words stand before those of the model."""
    tiny_codecs.make_books(tmp_path, 2, 1024)
    codes = json.loads((folder / "outetts" / "codes.json").read_text())
    speak = pipeline("text-to-speech", folder / "outetts", codec=tmp_path)
    options = {"generate_kwargs": {"do_sample": False}}
    with Codec(tmp_path) as codec:
        expected = codec.decode(codes)["audio"]
    assert np.array_equal(speak("hello", **options)["audio"], expected)
    word = {"word": "ab", "duration": 0.25, "c1": [3, 4], "c2": [5, 6]}
    word["features"] = {"energy": 9, "spectral_centroid": 8, "pitch": 7}
    speaker = {"text": "ab", "words": [word]}
    rules = speak.rule
    from edgewise.logic.speech.audio_tokens import prompt_parts

    [part] = prompt_parts(rules, "hello", speaker)
    head = "<|im_start|>\n<|text_start|>ab. hello<|text_end|>\n<|audio_start|>\n"
    said = "<|features|><|t_0.25|><|energy_9|><|spectral_centroid_8|><|pitch_7|><|code|>"
    codes = "<|c1_3|><|c2_5|><|c1_4|><|c2_6|><|word_end|>"
    assert part.text == f"{head}<|word_start|>ab.{said}{codes}\n<|word_start|>"
    (tmp_path / "speaker.json").write_text(json.dumps(speaker))
    assert speak._prompt("hello", tmp_path / "speaker.json") == speak._prompt("hello", speaker)
    for wrong in ({}, {"text": "a", "words": [{}]}, [1]):
        with pytest.raises(InputError, match="voice"):
            speak("a", voice=wrong)
