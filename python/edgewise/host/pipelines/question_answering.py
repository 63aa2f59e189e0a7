"""question-answering. Mirrors transformers' QuestionAnsweringPipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import InputError
from ...logic.post.questions import NO_SCORE, answer_chars, merge_answers, spans_of
from .text import PADDINGS, TextPipeline, check_choice, check_flag

_COUNTS = ("top_k", "topk", "max_answer_len", "max_seq_len", "max_question_len")


class QuestionAnsweringPipeline(TextPipeline):
    """Finds the answer to a question in a text: pipe(question, context),
    pipe({"question": ..., "context": ...}), or a list of these.

    Options:
        top_k (formerly topk): how many answers. Default: 1.
        doc_stride: a context that is too long is divided into parts that share as many tokens.
            Default: 128, at most half of max_seq_len.
        max_answer_len: of an answer in tokens. Default: 15.
        max_seq_len: of question and part of the context together. Default: 384, or what the model
            takes.
        max_question_len: a longer question is cut. Default: no limit. (transformers documents 64,
            but applies it to slow tokenizers alone.)
        handle_impossible_answer: whether "" may be the answer.
        align_to_words: extend answers to whole words. Default: True.
        padding: has no effect, since nothing is padded.

    Returns:
        {"score", "start", "end", "answer"}, or a list of these if there are several
    """

    task = "question-answering"
    CALL = {
        "top_k": None,
        "topk": None,
        "doc_stride": None,
        "max_answer_len": 15,
        "max_seq_len": None,
        "max_question_len": None,
        "handle_impossible_answer": False,
        "align_to_words": True,
        "padding": "do_not_pad",
    }

    def check(self, options: Mapping[str, Any]) -> None:
        for name in _COUNTS:
            value = options[name]
            if value is not None and (type(value) is not int or value < 1):
                raise InputError(f"{value!r} is not a positive integer", name)
        stride = options["doc_stride"]
        if stride is not None and (type(stride) is not int or stride < 0):
            raise InputError(f"{stride!r} is not an integer of 0 or more", "doc_stride")
        for name in ("handle_impossible_answer", "align_to_words"):
            check_flag(options[name], name)
        check_choice(options["padding"], "padding", PADDINGS)

    def __call__(  # type: ignore[override]  # the names of transformers
        self,
        question: Any = None,
        context: Any = None,
        *,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        """See the class and Pipeline.__call__.

        Args:
            question: a question, {"question", "context"}, or a list or iterator of these.
            context: of the question; for a list of questions one, or a list of the same length.
            batch_size: as of Pipeline.__call__.
            options: see the class.
        """
        inputs = question
        if context is not None:
            questions = list(question) if isinstance(question, (list, tuple)) else [question]
            contexts = [context] * len(questions) if isinstance(context, str) else list(context)
            if len(questions) != len(contexts):
                raise InputError(
                    f"there are {len(questions)} questions and {len(contexts)} contexts",
                    self.task,
                    "Give one context, or one for each question.",
                )
            inputs = [{"question": q, "context": c} for q, c in zip(questions, contexts)]
        every = self.options(options)
        if isinstance(inputs, Iterator):
            return self.run(inputs, every, batch_size)
        inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        results = self.run(inputs, every, batch_size)
        return results[0] if len(results) == 1 else results  # as transformers, also for a list

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        question, context = _question(given)
        most = options["max_seq_len"] or min(self.longest or 384, 384)
        stride = options["doc_stride"]
        stride = min(most // 2, 128) if stride is None else stride
        if stride > most:
            raise InputError(f"{stride} is more than max_seq_len ({most})", "doc_stride")
        if options["max_question_len"] is not None:
            cut = self.encodings(
                question, truncation=True, max_length=options["max_question_len"],
                add_special_tokens=False,
            )[0]  # fmt: skip
            question = question[: cut.offsets[-1][1]] if cut.offsets else question
        first = self.tokenizer.config.get("padding_side") != "left"  # whether the question is
        encodings = self.encodings(
            question if first else context,
            context if first else question,
            truncation="only_second" if first else "only_first",
            max_length=most,
            stride=stride,
        )
        names = [self.need_output("model", n) for n in ("start_logits", "end_logits")]
        top_k = options["top_k"] or options["topk"] or 1
        align, place = options["align_to_words"], 1 if first else 0
        candidates, null = [], NO_SCORE
        for e in encodings:
            start, end = (n.row(0) for n in self.forward(e, outputs=names))
            allowed = [
                s == place or number == self.tokenizer.cls_token_id
                for s, number in zip(e.sequences, e.ids)
            ]
            spans, score = spans_of(
                start, end, allowed, top_k * 2 + 10 if align else top_k, options["max_answer_len"]
            )
            if options["handle_impossible_answer"]:
                null = min(null, score)
            for i, j, s in spans:
                begin, stop = answer_chars(e.offsets, e.words, e.sequences, (i, j), align, place)
                candidates.append((begin, stop, s))
        answers = merge_answers(
            candidates, context, top_k, null if options["handle_impossible_answer"] else None
        )
        return answers[0] if len(answers) == 1 else answers


def _question(given: Any) -> tuple[str, str]:
    """(question, context) of an input. Raises InputError."""
    if not isinstance(given, dict) or not {"question", "context"} <= set(given):
        raise InputError(
            "the input is no question with a context",
            "question-answering",
            'Give pipe(question, context) or {"question": ..., "context": ...}.',
        )
    for name in ("question", "context"):
        if not isinstance(given[name], str) or not given[name]:
            raise InputError("it is empty or no text", name, "Give a text.")
    return given["question"], given["context"]
