"""visual-question-answering and document-question-answering with models that write their answers:
those of image-text-to-text.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ....compiler.onnx import FileSource
from ....compiler.package import Package
from ....errors import InputError
from ....logic.multimodal.asking import PICTURES
from ....logic.multimodal.questions import answers_of, asked_options, chat_of
from ....logic.tasks.names import ALSO
from ..files import stems_of
from ..image_text_to_text import ImageTextToTextPipeline

__all__ = ["WrittenAnswersPipeline", "WrittenDocumentAnswersPipeline", "pairs_of", "writes_answers"]


def writes_answers(model: Any, revision: str | None = None) -> bool:
    """Whether a model is one of image-text-to-text, by its package or the names of its graphs."""
    if isinstance(model, (str, os.PathLike)) and os.fsdecode(model).endswith(".edge"):
        path = os.fsdecode(model)
        if not os.path.isfile(path):
            return False
        manifest = Package.read(FileSource(path)).manifest
        return manifest.get("task") == PICTURES.task or "pictures" in manifest.get("processor", {})
    stems = stems_of(model, revision)
    sees = [any(name in stems for name in of) for of in ImageTextToTextPipeline.STEMS[:2]]
    return all(sees) and "encoder_model" not in stems


def pairs_of(image: Any, question: Any) -> tuple[list[Any], bool]:
    """The inputs of a call, and whether several were given.

    Args:
        image: a picture, or {"image", "question"}; or a list of these.
        question: a text, or a list of them: each is asked about each picture. None: `image` has it.
    """
    several = isinstance(image, (list, tuple)) or isinstance(question, (list, tuple))
    images = list(image) if isinstance(image, (list, tuple)) else [image]
    if question is None:
        return images, several
    questions = list(question) if isinstance(question, (list, tuple)) else [question]
    return [{"image": one, "question": q} for q in questions for one in images], several


class WrittenAnswersPipeline(ImageTextToTextPipeline):
    """Answers questions about pictures: `pipe("cats.jpg", "How many cats are there?")` gives
    [{"answer": ...}].

    Args:
        model: folder, package or id of a model of image-text-to-text.
        tokenizer, options: as of ImageTextToTextPipeline.

    A call takes a picture and a question, or {"image", "question"}, or a list of these. Its options
    are those of ImageTextToTextPipeline without return_full_text, return_tensors and
    continue_final_message; with num_return_sequences there are several answers.
    """

    task = "visual-question-answering"
    PACKAGES = ALSO[task]

    def __call__(  # type: ignore[override]  # the names of transformers
        self, image: Any = None, question: Any = None, **options: Any
    ) -> Any:
        """Runs the task.

        Args:
            image, question: as of `pairs_of`.
            options: of a call.

        Raises:
            InputError: an input or an option is not valid. Aborted: by the signal.
        """
        options = asked_options(options)
        pairs, several = pairs_of(image, question)
        chats = []
        for one in pairs:
            if not isinstance(one, Mapping) or "image" not in one:
                raise InputError(
                    "there is no question", self.task, "Give a picture and a question."
                )
            chats.append(chat_of(one["image"], one.get("question"), self.task))
        answers = []
        for chat in chats:
            answers.append(answers_of(super().__call__(chat, **options)))
        return answers if several else answers[0]


class WrittenDocumentAnswersPipeline(WrittenAnswersPipeline):
    """Answers questions about pictures of documents, as WrittenAnswersPipeline."""

    task = "document-question-answering"
    PACKAGES = ALSO[task]
