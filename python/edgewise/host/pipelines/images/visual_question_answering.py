"""visual-question-answering with a classifier of answers (ViLT). Mirrors
transformers/pipelines/visual_question_answering.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....errors import InputError
from ....logic.tasks.answers import TOP, answering, question_of, scored_answers
from ..post.plane import Plane
from .base import ImagePipeline
from .written_answers import WrittenAnswersPipeline, pairs_of, writes_answers

__all__ = ["VisualQuestionAnsweringPipeline"]


class VisualQuestionAnsweringPipeline(ImagePipeline):
    """Answers questions about pictures: `pipe("cats.jpg", "How many cats are there?")` gives
    [{"score", "answer"}], the likeliest first.

    Args:
        model: folder of a model whose graph takes a picture and a text and gives logits of answers
            (ViLT). Of a model of image-text-to-text `pipeline` makes a WrittenAnswersPipeline.
        tokenizer, options: as of Pipeline.

    A call takes a picture and a question, or {"image", "question"}, or a list of these.

    Options:
        top_k: how many answers. Default: 5.
    """

    task = "visual-question-answering"
    TOKENIZER = True
    PACKAGED = False
    CALL = {"top_k": TOP}

    @classmethod
    def of(cls, model: Any, options: Mapping[str, Any]) -> Any:
        return WrittenAnswersPipeline if writes_answers(model, options.get("revision")) else cls

    def check(self, options: Mapping[str, Any]) -> None:
        answering(options)

    def __call__(  # type: ignore[override]  # the names of transformers
        self, image: Any, question: Any = None, **options: Any
    ) -> Any:
        """Runs the task.

        Args:
            image: a picture, or {"image", "question"}; or a list of these.
            question: a text, or a list of them: each is asked about each picture.
            options: of a call.
        """
        if question is None:
            return super().__call__(image, **options)
        pairs, several = pairs_of(image, question)
        return super().__call__(pairs if several else pairs[0], **options)

    def one(self, given: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        if not isinstance(given, Mapping) or "image" not in given:
            raise InputError("there is no question", self.task, "Give a picture and a question.")
        found = self.tokenizer.encode(question_of(given.get("question"), self.task))
        ids = [int(i) for i in getattr(found, "ids", found)]
        feeds = {
            "input_ids": [ids],
            "attention_mask": [[1] * len(ids)],
            "token_type_ids": [[0] * len(ids)],
        }
        outputs = self.need_output(self.STEM, "logits")
        (logits,) = self.forward(self.picture(given["image"]), outputs, feeds=feeds)
        numbers = list(Plane(logits).numbers)
        return [{**one} for one in scored_answers(numbers, self.config, answering(options))]
