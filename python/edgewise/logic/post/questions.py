"""Answers from the scores of their ends. Mirrors transformers' QuestionAnsweringPipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from ..native import part
from .classification import softmax

MASKED = -10000.0
NO_SCORE = 1000000.0
"""The score of no answer before a part of the context was seen."""


class Answer(TypedDict):
    """An answer, with its characters in the context."""

    score: float
    start: int
    end: int
    answer: str


def spans_of(
    start: Sequence[float],
    end: Sequence[float],
    allowed: Sequence[bool],
    top_k: int,
    max_answer_len: int,
) -> tuple[list[tuple[int, int, float]], float]:
    """The likeliest spans of tokens.

    Args:
        start, end: logits of each token.
        allowed: whether an answer may begin and end there. The first token, which stands for no
            answer, may be among them; it is never part of a span.
        top_k: how many spans.
        max_answer_len: of a span in tokens.

    Returns:
        ([(first token, last token, score)], the highest first; the score of no answer)
    """
    begins = softmax([x if ok else MASKED for x, ok in zip(start, allowed)])
    ends = softmax([x if ok else MASKED for x, ok in zip(end, allowed)])
    null = begins[0] * ends[0]
    begins[0] = ends[0] = 0.0
    spans = [
        (i, j, begins[i] * ends[j])
        for i in range(len(begins))
        if allowed[i] and begins[i] > 0
        for j in range(i, min(i + max_answer_len, len(ends)))
        if allowed[j] and ends[j] > 0
    ]
    spans.sort(key=lambda s: -s[2])
    return spans[:top_k], null


def answer_chars(
    offsets: Sequence[tuple[int, int]],
    words: Sequence[int | None],
    sequences: Sequence[int | None],
    span: tuple[int, int],
    align_to_words: bool,
    context: int = 1,
) -> tuple[int, int]:
    """(start, end) of a span of tokens in characters of the context.

    Args:
        offsets, words, sequences: of the tokens; see edgewise.logic.text.encoding.Encoding.
        span: first and last token.
        align_to_words: extend it to whole words.
        context: which text of the pair the context is.
    """
    first, last = span
    if align_to_words and words[first] is not None and words[last] is not None:
        begin = [
            o for o, w, s in zip(offsets, words, sequences) if w == words[first] and s == context
        ]
        end = [o for o, w, s in zip(offsets, words, sequences) if w == words[last] and s == context]
        if begin and end:
            return begin[0][0], end[-1][1]
    return offsets[first][0], offsets[last][1]


def merge_answers(
    candidates: Sequence[tuple[int, int, float]],
    context: str,
    top_k: int,
    null_score: float | None = None,
) -> list[Answer]:
    """The answers with the highest scores, the highest first.

    Args:
        candidates: (start, end, score) in characters as of the host, in the order of the parts of
            the context; the scores of equal texts are added.
        context: the text.
        top_k: how many.
        null_score: the least score of no answer; None: there is always an answer.
    """
    answers: dict[str, Answer] = {}
    for start, end, score in candidates:
        text = part(context, start, end)
        known = answers.get(text.lower())
        if known is not None:
            known["score"] += score
        else:
            answers[text.lower()] = {"score": score, "start": start, "end": end, "answer": text}
    found = list(answers.values())
    if null_score is not None:
        found.append({"score": null_score, "start": 0, "end": 0, "answer": ""})
    return sorted(found, key=lambda a: -a["score"])[:top_k]
