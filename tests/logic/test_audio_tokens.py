"""Speech by language models on both forms: tokens, frames and parts of them."""

import pytest
from edgewise.errors import InputError

from .forms import both, module

SNAC = {"tokens": "<custom_token_{}>", "first": 10, "size": 4096, "streams": [0, 1, 2, 2, 1, 2, 2]}


def redistributed(codes):
    """Orpheus' own rule for a list of codes without their offset of 10."""
    streams = [[], [], []]
    for i in range(len(codes) // 7):
        for at, stream in enumerate([0, 1, 2, 2, 1, 2, 2]):
            streams[stream].append(codes[7 * i + at] - at * 4096)
    return streams


@both
def test_frames(form):
    rules = module(form, "speech.audio_tokens")
    rule = rules.rule_of(None, [True, False])
    assert rule.name == "orpheus" and rules.rule_of(SNAC, []).columns == rule.columns
    codes = [4096 * (i % 7) + (37 * i) % 4096 for i in range(7 * 9)]
    frames = rules.Frames(rule)
    whole = [frames.feed(f"<custom_token_{c + 10}>") for c in codes]
    assert sum(whole) == frames.count == 9 and whole[6] and not whole[5]
    assert frames.streams == redistributed(codes)
    assert frames.codes(2, 3) == redistributed(codes[14:35])
    assert rules.token_of(rule, 6, 4095) == "<custom_token_28681>"
    # others between them, and a frame that lacks a token
    frames = rules.Frames(rule)
    some = [f"<custom_token_{c + 10}>" for c in codes[:21]]
    for text in ["hello", *some[:3], "<custom_token_3>", *some[3:7], *some[7:10], *some[14:]]:
        frames.feed(text)
    assert frames.streams == redistributed(codes[:7] + codes[14:21]) and frames.dropped == 3
    for text in (
        "<custom_token_>",
        "<custom_token_-1>",
        "<custom_token_99999999999>",
        "<",
        "",
        ">",
    ):
        assert not frames.feed(text) and frames.count == 2


@both
def test_parts_of_frames(form):
    rules = module(form, "speech.audio_tokens")
    for total in (1, 5, 6, 7, 11, 40):
        pieces, given, sizes = rules.Pieces(), [], set()
        for count in range(total + 1):
            over = count == total
            while (piece := pieces.next(count, over)) is not None:
                assert 0 <= piece.first < piece.last <= piece.count
                assert piece.start + piece.count <= count
                given += range(piece.start + piece.first, piece.start + piece.last)
                sizes.add(piece.count)
        assert given == list(range(total)) and len(sizes) <= 4


@both
def test_prompts_and_fields(form):
    rules = module(form, "speech.audio_tokens")
    orpheus, outetts = (rules.rule_of(name, []) for name in ("orpheus", "outetts"))
    parts = rules.prompt_parts(orpheus, "Hi.", "tara")
    assert [(p.text, p.special) for p in parts] == [
        ("<custom_token_3>", False),
        ("tara: Hi.", True),
        ("<|eot_id|><custom_token_4><custom_token_5><custom_token_1>", False),
    ]
    [part] = rules.prompt_parts(outetts, "Hi  there.", None)
    assert part.text == "<|im_start|>\n<|text_start|>Hi there.<|text_end|>\n<|audio_start|>\n"
    word = {"word": "\u3042", "duration": 1, "c1": [1], "c2": [2], "features": {}}
    [part] = rules.prompt_parts(outetts, "\u3044", {"text": "\u3042 ", "words": [word]})
    assert "<|text_start|>\u3042\u3002\u3044<|text_end|>" in part.text
    assert "<|word_start|>\u3042\u3002<|features|><|t_1.00|><|energy_0|>" in part.text
    assert rules.fields_of(orpheus, {"do_sample": False}) == {
        "max_new_tokens": 1200, "repetition_penalty": 1.3, "do_sample": False,
    }  # fmt: skip
    assert rules.fields_of(orpheus, {"top_p": 0.5})["top_p"] == 0.5
    rules.check_fit(orpheus, 3, 3, 4096)
    rules.check_fit(outetts, 1, 2, 1024)
    for given in ((1, 8, 4096), (3, 3, 1024)):
        with pytest.raises(InputError, match="codec"):
            rules.check_fit(orpheus, *given)
    with pytest.raises(InputError, match="no tokens of sound"):
        rules.rule_of(None, [False, False])
