"""audio-text-to-text in Python, from samples to tokens, beside transformers."""

from __future__ import annotations

import edgewise
import numpy as np
import pytest
from edgewise.compiler.task_package import compile_task
from edgewise.errors import Aborted, InputError
from edgewise.host.session.open import folder_files

from .sounds import QUESTION, SIZE, SOUND_MODELS, answered, messages, sound

TASK = "audio-text-to-text"
GREEDY = {"max_new_tokens": 10, "do_sample": False}
COUNTS = [[], [SIZE], [7777], [40000, 12345], [2 * SIZE, 3, 31999]]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in SOUND_MODELS.items()}


def given(counts):
    return [sound(count, seed) for seed, count in enumerate(counts)]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("voxtral", marks=pytest.mark.family("Voxtral", exporter="torch")),
        pytest.param("qwen2_audio", marks=pytest.mark.family("Qwen2-Audio", exporter="torch")),
    ],
)
def test_tokens_are_those_of_transformers(models, name):
    model, answers = models[name], set()
    with edgewise.pipeline(TASK, model.root) as made:
        for counts in COUNTS:
            sounds = given(counts)
            [got] = made(sounds, messages(len(sounds)), return_tensors=True, **GREEDY)
            wanted = answered(model, sounds, 10)
            assert got["generated_token_ids"] == wanted
            answers.add(tuple(wanted[-10:]))
    assert len(answers) > 1  # they depend on the sounds


def test_packages_forms_of_input_and_what_is_kept(models, tmp_path):
    model = models["voxtral"]
    package = compile_task(folder_files(model.root)[0], TASK)
    package.save(str(tmp_path / "model.edge"))
    [first] = given([40000])
    with edgewise.pipeline(TASK, tmp_path / "model.edge") as made:
        wanted = answered(model, [first], 10)
        parts = [{"type": "audio", "audio": {"raw": first, "sampling_rate": 16000}}, QUESTION]
        chat = [{"role": "user", "content": parts}]
        for _ in range(2):  # the second time its features are kept
            [got] = made(chat, return_tensors=True, **GREEDY)
            assert got["generated_token_ids"] == wanted
        text = "<s>user : [AUDIO] what is in this \n a :"
        [got] = made(first, text, **GREEDY)
        assert got["input_text"] == text and got["generated_text"]
        with pytest.raises(Aborted):
            made(chat, signal=lambda: True)


def test_bad_input(models):
    with edgewise.pipeline(TASK, models["qwen2_audio"].root) as made:
        [one] = given([9000])
        for sounds, text, message in (
            ([one, one], messages(1), "1 of the sounds have no place"),
            ([], messages(1), "a part of a message has no sound"),
            ([one], "what is this", "0 placeholders"),
            ([one], "<|AUDIO|> <|AUDIO|>", "2 placeholders"),
            ([np.zeros(0, np.float32)], messages(1), "no samples"),
            (["nowhere.wav"], messages(1), "nowhere.wav"),
            ([one], [{"role": "user", "content": [{"type": "image"}]}], "the type 'image'"),
            ([b"no sound"], messages(1), "^audio: "),
        ):
            with pytest.raises(InputError, match=message):
                made(sounds, text)
        [got] = made([one], messages(1), return_tensors=True, **GREEDY)  # it goes on
        assert got["generated_token_ids"] == answered(models["qwen2_audio"], [one], 10)
