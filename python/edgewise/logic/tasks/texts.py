"""Tasks of texts: options, what is run, and results. Mirrors the pipelines of transformers.

A function of a task yields Run for each run of the model, and returns the result of a text.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict

from ...errors import InputError
from ..native import option, part
from ..options import read_choice, read_count, read_flag, read_texts, refused
from ..post.classification import entailment_of, fill_mask, id2label_of, softmax, zero_shot
from ..post.questions import NO_SCORE, Answer, answer_chars, merge_answers, spans_of
from ..post.tokens import AGGREGATIONS, Entity, Scored, entities_of, is_subword, without_overlaps
from ..text.encoding import STRATEGIES, EncodeOptions, Encoding
from .candidates import Candidates
from .inputs import Values, row

PADDINGS = ("longest", "max_length", "do_not_pad")
"""Values of `padding` beside True and False. It has no effect: each text runs alone."""
ROOM = 384
"""Most tokens of a question with a part of its context, where the model takes as many."""
STRIDE = 128
"""Tokens that neighboring parts of a context share."""


class Words(Protocol):
    """A tokenizer of a host."""

    def special(self, name: str) -> str | None:
        """The special token of a name, such as "mask_token"."""

    def id_of(self, token: str) -> int | None:
        """The id of a token."""

    def token_of(self, number: int) -> str:
        """The token of an id; "" if there is none."""

    def ids(self, text: str) -> list[int]:
        """The ids of a text without special tokens."""

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        """The text of ids."""

    def join(self, tokens: list[str]) -> str:
        """The text of tokens."""

    def encodings(self, text: str, pair: str | None, options: EncodeOptions) -> list[Encoding]:
        """The encodings of a text or a pair."""


@dataclass(frozen=True)
class TextModel:
    """A model with its tokenizer.

    Attributes:
        task: of the pipeline.
        config: contents of config.json.
        words: the tokenizer.
        marks: whether it marks tokens that continue a word, as by "##".
        padding_side: of its configuration. Where it is "left", a question follows its context.
        longest: most tokens that the model takes; None: not known.
    """

    task: str
    config: Mapping[str, Any]
    words: Words
    marks: bool = False
    padding_side: str = "right"
    longest: int | None = None


@dataclass(frozen=True)
class Run:
    """A run of the model on a text. The answer: Values of each output, which have a row for each
    token where `outputs` are those of tokens.

    Attributes:
        read: the text.
        outputs: names.
        per_token: whether each output has a row for each token.
    """

    read: Encoding
    outputs: list[str]
    per_token: bool = True
    kind: Literal["run"] = "run"


Runs = list[Values]


def id_of(words: Words, name: str) -> int | None:
    """The id of a special token by its name, such as "mask_token"."""
    token = words.special(name)
    return None if token is None else words.id_of(token)


def encode_options(
    options: Mapping[str, Any], own: int | None = None, longest: int | None = None
) -> EncodeOptions:
    """The options `truncation`, `max_length`, `padding` and `add_special_tokens`.

    Args:
        options: of a call.
        own: default of max_length.
        longest: most tokens that the model takes.

    Raises:
        InputError: one is not valid.
    """
    padding: object = options.get("padding")
    if padding is not None and not isinstance(padding, bool) and padding not in PADDINGS:
        raise refused("padding", padding, f"Give one of: {', '.join(PADDINGS)}.")
    how = "longest_first"
    truncation: object = options.get("truncation")
    if isinstance(truncation, bool):
        how = how if truncation else "do_not_truncate"
    else:
        how = read_choice(options, "truncation", how, STRATEGIES)
    most = read_count(options, "max_length")
    if most is None and own is not None:
        most = own if longest is None else min(own, longest)
    return EncodeOptions(how, most, 0, read_flag(options, "add_special_tokens", True))


# zero-shot-classification


class ZeroShot(TypedDict):
    """The labels of a text, the likeliest first."""

    sequence: str
    labels: list[str]
    scores: list[float]


def is_multi_label(options: Mapping[str, Any]) -> bool:
    """The option `multi_label`, formerly `multi_class`: whether several labels may be true."""
    return read_flag(options, "multi_class", read_flag(options, "multi_label", False))


def classify_freely(
    model: TextModel, text: str, candidates: Candidates, multi_label: bool
) -> Generator[Run, Runs, ZeroShot]:
    """Scores of any labels by a model of natural language inference. Of each pair of texts, the
    first is cut. (transformers leaves a pair uncut whose hypothesis alone is too long, and fails in
    the model.)
    """
    rows: list[Sequence[float]] = []
    for hypothesis in candidates.texts:
        read = model.words.encodings(text, hypothesis, EncodeOptions("only_first"))[0]
        found = yield Run(read, ["logits"], False)
        rows.append(row(found[0], 0))
    entailment = entailment_of(label2id_of(model.config))
    labels, scores = zero_shot(rows, candidates.labels, entailment, multi_label)
    return {"sequence": text, "labels": labels, "scores": scores}


def label2id_of(config: Mapping[str, Any]) -> Mapping[str, int]:
    """label2id of config.json, or the reverse of its id2label."""
    given: object = config.get("label2id")
    if isinstance(given, dict) and len(given) > 0:
        return {str(label): int(i) for label, i in given.items()}
    return {label: int(i) for i, label in id2label_of(config).items()}


# token-classification


@dataclass(frozen=True)
class Grouping:
    """How tokens become entities.

    Attributes:
        strategy: one of post.tokens.AGGREGATIONS.
        ignored: labels that are left out.
        stride: tokens that the parts of a long text share; None: it is cut.
    """

    strategy: str
    ignored: list[str]
    stride: int | None


def grouping(options: Mapping[str, Any]) -> Grouping:
    """The options of token-classification: `aggregation_strategy`, `ignore_labels`, `stride`, and
    `grouped_entities` and `ignore_subwords`, the former names of the strategies "simple" and
    "first". Raises InputError.
    """
    strategy = read_choice(options, "aggregation_strategy", "none", AGGREGATIONS)
    ignores = read_flag(options, "ignore_subwords", False)
    if options.get("grouped_entities") is not None or options.get("ignore_subwords") is not None:
        grouped = read_flag(options, "grouped_entities", False)
        strategy = ("first" if ignores else "simple") if grouped else "none"
    ignored = read_texts(options, "ignore_labels")
    stride = read_count(options, "stride", 0)
    if stride is not None and strategy == "none":
        raise InputError(
            'overlapping parts need another strategy than "none"',
            option("stride"),
            "Set aggregation_strategy.",
        )
    return Grouping(strategy, ["O"] if ignored is None else ignored, stride)


def find_entities(
    model: TextModel,
    text: str,
    parts: Sequence[Encoding],
    offsets: Sequence[Sequence[tuple[int, int]]],
    how: Grouping,
) -> Generator[Run, Runs, list[Entity]]:
    """The entities of a text.

    Args:
        model: finds them.
        text: the text.
        parts: of it.
        offsets: of the tokens of each part in the text.
        how: they are grouped.
    """
    found: list[Entity] = []
    for read, places in zip(parts, offsets):
        values = yield Run(read, ["logits"])
        logits = values[0]
        scored = scored_tokens(model, text, read, places, logits)
        labels = id2label_of(model.config)
        found += entities_of(scored, labels, how.strategy, how.ignored, model.words.join)
    return without_overlaps(found) if len(parts) > 1 else found


def scored_tokens(
    model: TextModel, text: str, read: Encoding, offsets: Sequence[tuple[int, int]], logits: Values
) -> list[Scored]:
    """The tokens that are not special, with their probabilities."""
    unknown = id_of(model.words, "unk_token")
    scored: list[Scored] = []
    for i, number in enumerate(read.ids):
        if read.special[i]:
            continue
        start, end = offsets[i]
        word = model.words.token_of(number)
        continues = False
        if number == unknown:
            word = part(text, start, end)
        else:
            continues = is_subword(text, word, start, end, model.marks)
        scored.append(Scored(word, softmax(row(logits, i)), start, end, i, continues))
    return scored


# fill-mask


class Filled(TypedDict):
    """A text with a token in the place of a mask."""

    score: float
    token: int
    token_str: str
    sequence: str


@dataclass(frozen=True)
class Filling:
    """How masks are filled.

    Attributes:
        top_k: how many tokens.
        targets: ids to choose from; None: all.
        encode: the text.
    """

    top_k: int
    targets: list[int] | None
    encode: EncodeOptions


def filling(model: TextModel, options: Mapping[str, Any], encode: EncodeOptions) -> Filling:
    """The options of fill-mask: `top_k` and `targets`. Raises InputError."""
    if id_of(model.words, "mask_token") is None:
        raise InputError(
            "the tokenizer has no mask token", model.task, "Give a masked language model."
        )
    top_k = read_count(options, "top_k")
    return Filling(5 if top_k is None else top_k, _targets(model.words, options), encode)


def _targets(words: Words, options: Mapping[str, Any]) -> list[int] | None:
    given = read_texts(options, "targets")
    if given is None:
        return None
    found: list[int] = []
    for target in given:
        number = words.id_of(target)
        if number is None:
            ids = words.ids(target)
            number = ids[0] if ids else None
        if number is not None and number not in found:
            found.append(number)
    if not found:
        raise InputError("none of them is a token", option("targets"), "Give at least one.")
    return found


def fill_masks(
    model: TextModel, text: str, how: Filling
) -> Generator[Run, Runs, list[list[Filled]]]:
    """The likeliest tokens of each mask of a text. Raises InputError if it has none."""
    words = model.words
    read = words.encodings(text, None, how.encode)[0]
    ids, mask = read.ids, id_of(words, "mask_token")
    masked = [i for i, number in enumerate(ids) if number == mask]
    if not masked:
        raise InputError(
            f"there is no {words.special('mask_token')} in the text", model.task, "Put one in it."
        )
    found = yield Run(read, ["logits"])
    pad = id_of(words, "pad_token")
    results: list[list[Filled]] = []
    for at in masked:
        rows: list[Filled] = []
        for number, score in fill_mask(row(found[0], at), how.top_k, how.targets):
            sequence = [*ids[:at], number, *ids[at + 1 :]]
            kept = [i for i in sequence if i != pad]
            rows.append(
                {
                    "score": score,
                    "token": number,
                    "token_str": words.decode([number], False),
                    "sequence": words.decode(kept, len(masked) == 1),
                }
            )
        results.append(rows)
    return results


# question-answering


@dataclass(frozen=True)
class Asking:
    """How questions are answered.

    Attributes:
        top_k: how many answers.
        most: tokens of question and part of the context together.
        stride: tokens that the parts of a context share.
        longest: tokens of an answer.
        question: most tokens of a question; None: no limit.
        impossible: whether "" may be the answer.
        align: whether answers are extended to whole words.
    """

    top_k: int
    most: int
    stride: int
    longest: int
    question: int | None
    impossible: bool
    align: bool


def asking(options: Mapping[str, Any], longest: int | None) -> Asking:
    """The options of question-answering: `top_k` (formerly `topk`), `doc_stride`, `max_answer_len`,
    `max_seq_len`, `max_question_len`, `handle_impossible_answer` and `align_to_words`.

    Args:
        options: of a call.
        longest: most tokens that the model takes; None: not known.

    Raises:
        InputError: one is not valid.
    """
    top_k = read_count(options, "top_k")
    former = read_count(options, "topk")
    if top_k is None:
        top_k = 1 if former is None else former
    most = read_count(options, "max_seq_len")
    if most is None:
        most = ROOM if longest is None else min(longest, ROOM)
    stride = read_count(options, "doc_stride", 0)
    if stride is None:
        stride = min(most // 2, STRIDE)
    if stride > most:
        raise InputError(
            f"{stride} is more than max_seq_len ({most})",
            option("doc_stride"),
            "Lower it, or raise max_seq_len.",
        )
    answer = read_count(options, "max_answer_len")
    return Asking(
        top_k,
        most,
        stride,
        15 if answer is None else answer,
        read_count(options, "max_question_len"),
        read_flag(options, "handle_impossible_answer", False),
        read_flag(options, "align_to_words", True),
    )


def find_answers(
    model: TextModel, question: str, context: str, how: Asking
) -> Generator[Run, Runs, list[Answer]]:
    """The likeliest answers to a question in a text, the best first."""
    words = model.words
    if how.question is not None:
        limit = EncodeOptions("longest_first", how.question, 0, False)
        ends = words.encodings(question, None, limit)[0].offsets
        question = part(question, 0, ends[-1][1]) if ends else question
    first = model.padding_side != "left"
    cut = EncodeOptions("only_second" if first else "only_first", how.most, how.stride)
    pair = (question, context) if first else (context, question)
    place, cls = 1 if first else 0, id_of(words, "cls_token")
    candidates: list[tuple[int, int, float]] = []
    null = NO_SCORE
    for read in words.encodings(pair[0], pair[1], cut):
        found = yield Run(read, ["start_logits", "end_logits"])
        allowed = [s == place or i == cls for s, i in zip(read.sequences, read.ids)]
        spans, score = spans_of(
            row(found[0], 0),
            row(found[1], 0),
            allowed,
            how.top_k * 2 + 10 if how.align else how.top_k,
            how.longest,
        )
        null = min(null, score)
        for i, j, s in spans:
            begin, end = answer_chars(
                read.offsets, read.words, read.sequences, (i, j), how.align, place
            )
            candidates.append((begin, end, s))
    return merge_answers(candidates, context, how.top_k, null if how.impossible else None)
