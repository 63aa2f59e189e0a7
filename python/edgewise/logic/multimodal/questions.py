"""Questions about pictures to models that write their answers: chats of image-text-to-text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError
from ..native import option
from ..tasks.answers import question_of


def chat_of(image: object, question: object, task: str) -> list[dict[str, Any]]:
    """A chat with a picture and a question about it.

    Args:
        image: the picture, as the caller gave it.
        question: a text.
        task: its name, for errors.

    Raises:
        InputError: the question is no text.
    """
    return asked_about([image], question_of(question, task))


def asked_about(pictures: Sequence[Any], question: str) -> list[dict[str, Any]]:
    """A chat with pictures and a question about them."""
    parts: list[dict[str, Any]] = [{"type": "image", "image": one} for one in pictures]
    parts.append({"type": "text", "text": question})
    return [{"role": "user", "content": parts}]


def answered_by(answer: str) -> dict[str, Any]:
    """The message of an answer."""
    part: dict[str, Any] = {"type": "text", "text": answer}
    return {"role": "assistant", "content": [part]}


def answers_of(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of a question.

    Args:
        records: of image-text-to-text, without the input.
    """
    answers: list[dict[str, Any]] = []
    for record in records:
        text: str = record["generated_text"]
        answer: dict[str, Any] = {"answer": text.strip()}
        answers.append(answer)
    return answers


NOT_ASKED = ("return_full_text", "return_tensors", "continue_final_message")
"""Options of image-text-to-text that questions do not have."""


def asked_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the chat.

    Args:
        given: of a question.

    Raises:
        InputError: questions have no such option.
    """
    for name in NOT_ASKED:
        if name in given:
            raise InputError("questions have no such option", option(name), "Leave it out.")
    options: dict[str, Any] = {**given, "return_full_text": False}
    return options
