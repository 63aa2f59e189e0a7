"""Answers about pictures, as a language model that sees learns them: the prompt is written as the
pipeline image-text-to-text writes it, and the answer is what the chat template puts after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import InputError
from ..generation.chunks import Span
from ..multimodal.prompt import Prepared
from .chat import Example, common


@dataclass
class Answered:
    """A pair's row.

    Attributes:
        example: its tokens.
        prompt: where the features of its pictures are, and what follows from it.
    """

    example: Example
    prompt: Prepared


def answered(asked: Prepared, whole: Prepared, ends: Sequence[int], where: str) -> Answered:
    """The row of a question and its answer. The answer begins where the tokens of the prompt end,
    as in TRL. Where the template writes no end of the answer, the first of `ends` follows it.

    Args:
        asked: the prompt, with which generation begins.
        whole: the prompt and the answer.
        ends: ids of tokens that end an answer.
        where: for errors.

    Raises:
        InputError: the template does not write the pictures, or the answer, after each other; or
            all tokens of a prompt see each other (PaliGemma).
    """
    if asked.reach and asked.reach[-1].end == len(asked.ids):
        raise InputError(
            "the tokens of a prompt see all others, and models of this family do not learn",
            where,
            "Take another model, such as SmolVLM.",
        )
    first = common(asked.ids, whole.ids)
    if whole.places and whole.places[-1] >= first or first == len(whole.ids):
        raise InputError(
            "the chat template does not write the answer after its pictures and the prompt",
            where,
            "Take the chat template of the model, and texts without special tokens.",
        )
    ids = list(whole.ids)
    if ends and not any(i in ends for i in ids[first:]):
        ids.append(ends[0])
    counts = [i >= first for i in range(len(ids))]
    reach = [Span(one.start, min(one.end, first)) for one in asked.reach]
    prompt = Prepared(ids, whole.places, whole.positions, reach, whole.together)
    return Answered(Example(ids, counts, first), prompt)


__all__ = ["Answered", "answered"]
