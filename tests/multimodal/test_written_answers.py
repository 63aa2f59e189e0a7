"""Questions about pictures to models that write their answers, beside transformers."""

from __future__ import annotations

import re
import shutil

import edgewise
import pytest
from edgewise.compiler.task_package import compile_task
from edgewise.errors import InputError
from edgewise.host.session.open import folder_files

from .asking import answered, messages, pictures, with_bytes

TASKS = ["visual-question-answering", "document-question-answering"]
QUESTION = "what is in this picture ?"
GREEDY = {"max_new_tokens": 10, "do_sample": False}


def expected(model, image, question):
    """transformers' answer to a chat with the picture and the question."""
    parts = [{"type": "image"}, {"type": "text", "text": question}]
    chat = [{"role": "user", "content": parts}]
    ids = answered(model, chat, [image], 10)
    words = model.processor.tokenizer
    new = words.decode(ids[-10:], skip_special_tokens=True)
    assert words.decode(ids, skip_special_tokens=True).endswith(new)
    return [{"answer": new.strip()}]


@pytest.mark.parametrize("task", TASKS)
def test_answers_are_those_of_transformers(tiny, task):
    model, images = tiny("idefics3"), pictures(2)
    with edgewise.pipeline(task, model.root) as ask:
        wanted = [expected(model, one, QUESTION) for one in images]
        assert ask(images[0], QUESTION, **GREEDY) == wanted[0]
        assert ask(images, QUESTION, **GREEDY) == wanted
        assert ask({"image": images[1], "question": QUESTION}, **GREEDY) == wanted[1]
        both = ask(image=images[0], question=[QUESTION, "a dog ?"], **GREEDY)
        assert both == [wanted[0], expected(model, images[0], "a dog ?")]
        assert wanted[0] != wanted[1]
        for given, options, words in (
            ((images[0], ""), {}, "the question is no text"),
            ((images[0],), {}, "there is no question"),
            ((b"no picture", QUESTION), {}, "not a picture"),
            ((images[0], QUESTION), {"return_full_text": True}, "no such option"),
        ):
            with pytest.raises(InputError, match=words):
                ask(*given, **options)
        assert ask(images[0], QUESTION, **GREEDY) == wanted[0]  # it goes on


def test_packages(tiny, tmp_path):
    model, [image] = tiny("idefics3"), pictures(1)
    path = str(tmp_path / "model.edge")
    compile_task(folder_files(model.root)[0], "image-text-to-text").save(path)
    own = str(tmp_path / "own.edge")
    compile_task(folder_files(model.root)[0], TASKS[1]).save(own)
    for task, package in ((TASKS[0], path), (TASKS[1], path), (TASKS[1], own)):
        with edgewise.pipeline(task, package) as ask:
            assert ask(image, QUESTION, **GREEDY) == expected(model, image, QUESTION)


def test_answers_of_a_form(tiny, tmp_path):
    """response_format of image-text-to-text; its tables are kept with the model."""
    shutil.copytree(tiny("idefics3").root, tmp_path / "model")
    with_bytes(tmp_path / "model")
    chat, [image] = messages(1), pictures(1)
    shape = {"type": "regex", "regex": "[1-9]{3}"}
    with edgewise.pipeline("image-text-to-text", tmp_path / "model") as ask:
        options = {"return_full_text": False, "response_format": shape, **GREEDY}
        [found] = ask(image, chat, return_dict_in_generate=True, **options)
        assert re.fullmatch("[1-9]{3}", found["generated_text"])
        assert found["finish_reasons"] == "eos"
        [cut] = ask(image, chat, return_dict_in_generate=True, **{**options, "max_new_tokens": 1})
        assert cut["finish_reasons"] == "length"
        [plain] = ask(image, chat, **options)
        assert plain == {n: v for n, v in found.items() if n != "finish_reasons"}
        with pytest.raises(InputError, match="response_format"):
            ask(image, chat, response_format={"type": "none"})
