"""audio-text-to-text with encoders of any length, from samples to tokens, beside transformers."""

from __future__ import annotations

import edgewise
import numpy as np
import pytest
from edgewise.compiler.task_package import compile_task
from edgewise.errors import InputError
from edgewise.host.session.open import folder_files

from .any_sounds import TOLD_MODELS
from .sounds import QUESTION, messages, sound

TASK = "audio-text-to-text"
GREEDY = {"max_new_tokens": 10, "do_sample": False}
COUNTS = [[], [32000], [7777], [40000, 12345], [9000], [16160, 31999, 48001], [161 * 320]]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in TOLD_MODELS.items()}


def text_of(model, count):
    """The prompt of a chat with so many sounds."""
    chat = messages(count)
    if model.token == "<|audio|>":
        chat[0]["content"] = "<|audio|>" * count + QUESTION["text"]
    return model.words.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)


def checked(model, made):
    answers = set()
    for counts in COUNTS:
        sounds = [sound(count, seed) for seed, count in enumerate(counts)]
        if model.token == "<|audio_pad|>" and not sounds:
            continue
        [got] = made(sounds, messages(len(sounds)), return_tensors=True, **GREEDY)
        wanted = model.answered(text_of(model, len(sounds)), sounds, 10)
        assert got["generated_token_ids"] == wanted, counts
        answers.add(tuple(wanted[-10:]))
    assert len(answers) > 1  # they depend on the sounds


@pytest.mark.parametrize("packaged", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("ultravox", marks=pytest.mark.family("Ultravox", exporter="torch")),
        pytest.param(
            "granite_speech", marks=pytest.mark.family("Granite Speech", exporter="torch")
        ),
        pytest.param("qwen3_asr", marks=pytest.mark.family("Qwen3-ASR", exporter="torch")),
    ],
)
def test_tokens_are_those_of_transformers(models, tmp_path, name, packaged):
    model = models[name]
    place = model.root
    if packaged:
        place = tmp_path / "model.edge"
        compile_task(folder_files(model.root)[0], TASK).save(str(place))
    with edgewise.pipeline(TASK, place) as made:
        checked(model, made)


def test_bad_input(models, tmp_path):
    compile_task(folder_files(models["granite_speech"].root)[0], TASK).save(
        str(tmp_path / "model.edge")
    )
    with edgewise.pipeline(TASK, tmp_path / "model.edge") as made:
        one = sound(9000, 0)
        for sounds, text, message in (
            ([np.zeros(0, np.float32)], messages(1), "no samples"),
            ([np.zeros((2, 2, 100), np.float32)], messages(1), "audio"),
            ([{"raw": one}], messages(1), "sampling_rate"),
            ([b"\x89PNG\r\n\x1a\n" + bytes(200)], messages(1), "audio"),
            ([np.zeros(61 * 16000, np.float32)], messages(1), "at most 960000 are heard"),
            ([one], "what is this", "0 placeholders"),
        ):
            with pytest.raises(InputError, match=message):
                made(sounds, text)
        [got] = made([one], messages(1), return_tensors=True, **GREEDY)  # it goes on
        model = models["granite_speech"]
        assert got["generated_token_ids"] == model.answered(text_of(model, 1), [one], 10)


def test_transcripts(models):
    """The prompt is that of Qwen3ASRProcessor.apply_transcription_request."""
    model, one = models["qwen3_asr"], sound(20000, 3)
    asked = text_of(model, 1)
    with edgewise.pipeline("automatic-speech-recognition", model.root) as listen:
        for language, more in ((None, ""), ("en", "language English<asr_text>")):
            ids = model.answered(asked + more, [one], 10)
            wanted = model.words.decode(ids[-10:], skip_special_tokens=True).strip()
            assert listen(one, language=language, **GREEDY) == {"text": wanted}
        with pytest.raises(InputError, match="the language 'xx' is unknown"):
            listen(one, language="xx")
    with edgewise.pipeline("asr", models["ultravox"].root) as listen:
        with pytest.raises(InputError, match="no prompt for transcripts"):
            listen(one)
