"""question-answering. Mirrors transformers' QuestionAnsweringPipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import InputError
from ...logic.tasks.texts import asking, encode_options, find_answers
from .text import TextPipeline


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
        asking(options, self.longest)
        encode_options({"padding": options["padding"]})

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
        how = asking(options, self.longest)
        answers = self.done(find_answers(self.model, question, context, how))
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
