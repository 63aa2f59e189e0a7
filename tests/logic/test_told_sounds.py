"""Sounds in prompts on both forms: tokens as processors of transformers count them."""

import random

import pytest
from edgewise.errors import InputError

from .forms import both, module

VOXTRAL = {
    "placeholder": "[AUDIO]",
    "token": "[AUDIO]",
    "first": "[BEGIN_AUDIO]",
    "last": "",
    "size": 480000,
    "several": True,
    "count": 375,
    "steps": [],
}
QWEN2 = {
    **VOXTRAL,
    "placeholder": "<|AUDIO|>",
    "token": "<|AUDIO|>",
    "first": "",
    "several": False,
    "count": 750,
    "steps": [(160, 159, 0), (2, -1, 1), (2, -2, 1)],
}


@both
def test_tokens_of_a_sound(form):
    """Qwen2-Audio's are those of Qwen2AudioProcessor, of the sum of its mask of features; Voxtral's
    those of transformers.js: 375 for each 30 s that have begun.
    """
    sounds, generator = module(form, "multimodal.families.sounds"), random.Random(4)
    for count in [
        1,
        160,
        161,
        480000,
        480001,
        *(generator.randrange(1, 3000000) for _ in range(60)),
    ]:
        shown = sounds.heard(VOXTRAL, sounds.tokens_of(VOXTRAL, count))
        windows = -(-count // 480000)
        assert shown.count == 375 * windows
        assert shown.text == "[BEGIN_AUDIO]" + "[AUDIO]" * shown.count
        assert sum(size for _, size in sounds.windows_of(VOXTRAL, count)) == count
        mask = len(range(0, min(count, 480000), 160))  # of samples, each 160th
        expected = ((mask - 1) // 2 + 1 - 2) // 2 + 1
        assert sounds.heard(QWEN2, sounds.tokens_of(QWEN2, count)).count == expected
        assert len(sounds.windows_of(QWEN2, count)) == 1


@both
def test_prompts_and_errors(form):
    sounds = module(form, "multimodal.families.sounds")
    one = sounds.heard(QWEN2, 3)
    text = sounds.prompt_text(QWEN2, "a <|AUDIO|> b", [one])
    assert text == "a <|AUDIO|><|AUDIO|><|AUDIO|> b"
    for text, given in (("a", [one]), ("<|AUDIO|> <|AUDIO|>", [one]), ("<|AUDIO|>", [])):
        with pytest.raises(InputError, match="placeholders"):
            sounds.prompt_text(QWEN2, text, given)
    with pytest.raises(InputError, match="no samples"):
        sounds.tokens_of(VOXTRAL, 0)
    with pytest.raises(InputError, match="241 windows, and at most 240"):
        sounds.tokens_of(VOXTRAL, 240 * 480000 + 1)
