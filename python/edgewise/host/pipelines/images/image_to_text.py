"""image-to-text and document-question-answering: an encoder of pictures, and a decoder of text
(TrOCR, Donut, ViT-GPT2, Florence-2). Mirrors image_to_text.py and document_question_answering.py of
transformers/pipelines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ....compiler.arrays import as_input, as_output
from ....compiler.declare.dtypes import FLOAT
from ....compiler.processors.images import Description
from ....errors import InputError
from ....logic.generation.fields import GENERATION_FIELDS
from ....logic.tasks.documents import (
    Asked,
    donut_answer,
    florence_prompt,
    florence_result,
    question_prompt,
)
from ...media.pictures import Picture, read_picture
from ...text import generate
from ..seq2seq import Seq2SeqPipeline
from .document_words import WordsAnswersPipeline, reads_words
from .image_processor import ImageProcessor
from .written_answers import WrittenDocumentAnswersPipeline, writes_answers

__all__ = ["DocumentQuestionAnsweringPipeline", "ImageToTextPipeline"]

_HOST = ("streamer", "signal", "stopping_criteria", "logits_processor")
_PROGRAMS = {"vision_encoder": "vision", "embed_tokens": "embed", "encoder_model": "encoder"}
"""Graphs of a folder, and what they are called in a package."""
MAX_NEW_TOKENS = 256
"""As transformers' pipelines, where the model's files name no length."""


class PictureTextPipeline(Seq2SeqPipeline):
    """A pipeline of an encoder of pictures and a decoder.

    Attributes:
        processor: the ImageProcessor.
        places: whether the encoder hears a prompt, too, and the text has places (Florence-2).
    """

    STEMS = (("vision_encoder", "encoder_model"),)
    OPTIONAL: ClassVar[Sequence[str]] = (*Seq2SeqPipeline.OPTIONAL, "embed_tokens", "encoder_model")
    CALL: Mapping[str, Any] = {  # type: ignore[misc]
        "generate_kwargs": None,
        **dict.fromkeys(_HOST),
    }

    def __init__(self, model: Any, tokenizer: Any = None, **options: Any) -> None:
        super().__init__(model, tokenizer, **options)
        package = self.files.package if self.files is not None else None
        described: Mapping[str, Any] = {} if package is None else package.manifest["processor"]
        if not isinstance(self.processor, ImageProcessor):
            config = self.processor or self._json("preprocessor_config.json")
            if "image" in described and self.processor is None:
                config = Description.from_dict(described["image"])
            if not config:
                raise InputError(
                    "the model has no preprocessor_config.json",
                    self.task,
                    "Pass image_processor= with its contents.",
                )
            self.processor = ImageProcessor(config, engine=self.engine)
        names = self.sessions if self.files is None else self.files.graphs
        self.places = "vision_encoder" in names or bool(described.get("places"))
        self.graph_names = _PROGRAMS if package is not None else {name: name for name in _PROGRAMS}

    def options(self, given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """As Pipeline.options; fields of GenerationConfig are collected in `generate_kwargs`."""
        given = self.generation_fields(given)
        fields = {n: given.pop(n) for n in list(given) if n in GENERATION_FIELDS}
        found = super().options(given, where)
        found["generate_kwargs"] = {**(found["generate_kwargs"] or {}), **fields}
        return found

    def hidden(self, picture: Picture, text: str = "") -> Any:
        """The output of the encoder: float32 [1, positions, width]. text: of a prompt."""
        given = self.processor(picture)
        stem = self.graph_names["vision_encoder" if self.places else "encoder_model"]
        session = self.session(stem)
        names = ("image_features", "last_hidden_state", next(iter(session.outputs)))
        output = self.need_output(stem, *names)
        (found,) = session.run([output], {n: given[n] for n in session.inputs if n in given})
        return self._with_prompt(found, text) if self.places else found

    def _with_prompt(self, features: Any, text: str) -> Any:
        """What the encoder makes of a picture's features, and the words of a prompt."""
        found = self.tokenizer.encode(text)
        ids = [int(i) for i in getattr(found, "ids", found)]
        (words,) = self.session(self.graph_names["embed_tokens"]).run(None, {"input_ids": [ids]})
        parts = [as_input(part, "inputs_embeds", FLOAT) for part in (features, words)]
        width = parts[0][1][-1]
        length = sum(shape[-2] for _, shape, _ in parts)
        data = b"".join(bytes(memoryview(part).cast("B")) for _, _, part in parts)
        feeds = {
            "inputs_embeds": as_output(FLOAT, [1, length, width], data),
            "attention_mask": [[1] * length],
        }
        stem = self.graph_names["encoder_model"]
        session = self.session(stem)
        output = self.need_output(stem, "last_hidden_state")
        (hidden,) = session.run([output], {n: feeds[n] for n in session.inputs})
        return hidden

    def tokens(self, hidden: Any, first: list[int], options: dict[str, Any]) -> list[list[int]]:
        """The tokens of texts.

        Args:
            hidden: output of the encoder.
            first: tokens with which they begin; none: the model's own.
            options: of the call.
        """
        model = self.model
        start = first or model.start_ids()
        fields = dict(options["generate_kwargs"] or {})
        fields.pop("return_dict_in_generate", None)
        lengths = ("max_length", "max_new_tokens")
        known = any(name in fields or name in model.generation_config for name in lengths)
        if not known:
            fields["max_new_tokens"] = max(1, min(MAX_NEW_TOKENS, model.max_length - len(start)))
        source = model.encode(hidden)
        try:
            out: Any = generate(
                source,
                start,
                return_dict_in_generate=True,
                tokenizer=self.tokenizer,
                **{n: options[n] for n in _HOST},
                **fields,
            )
        finally:
            source.close()
        return [list(ids) for ids in out["sequences"]]

    def first_tokens(self, text: str) -> list[int]:
        """Tokens of a text that are those of the decoder's beginning."""
        found = self.tokenizer.encode(text, add_special_tokens=False)
        return [int(i) for i in getattr(found, "ids", found)]

    def close(self) -> None:
        super().close()
        if isinstance(self.processor, ImageProcessor):
            self.processor.close()


class ImageToTextPipeline(PictureTextPipeline):
    """Describes or reads pictures: `pipe("cat.png")` gives [{"generated_text": ...}].

    Args:
        model: folder of a vision-encoder-decoder model (encoder_model.onnx and
            decoder_model_merged.onnx) or of Florence-2 (vision_encoder.onnx, embed_tokens.onnx,
            encoder_model.onnx and decoder_model_merged.onnx), or the id of one of the hub.
        tokenizer, options: as of Pipeline.

    Options of a call:
        prompt: of Florence-2 a text or the token of a task, such as "<OD>"; of other models the
            text with which the decoder begins, such as Donut's "<s_cord-v2>".
        streamer, signal, stopping_criteria, logits_processor: as of edgewise.generate.
        fields of GenerationConfig.

    Returns:
        [{"generated_text": ...}, ...], one per returned sequence; for a task of Florence-2 also
        "result": {task: text}, or {task: {"bboxes": [[left, top, right, bottom], ...], "labels":
        [...]}} in pixels, as of transformers' post_process_generation
    """

    task = "image-to-text"
    CALL: Mapping[str, Any] = {  # type: ignore[misc]
        **PictureTextPipeline.CALL,
        "prompt": None,
    }

    def check(self, options: Mapping[str, Any]) -> None:
        if options["prompt"] is not None:
            florence_prompt(options["prompt"])

    def one(self, given: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        picture = read_picture(given)
        if self.places:
            asked = florence_prompt(options["prompt"])
            hidden = self.hidden(picture, asked.text)
            return [self._placed(i, asked, picture) for i in self.tokens(hidden, [], options)]
        first = [] if options["prompt"] is None else self.first_tokens(options["prompt"])
        found = self.tokens(self.hidden(picture), first, options)
        decode = self.tokenizer.decode
        return [{"generated_text": decode(i, skip_special_tokens=True)} for i in found]

    def _placed(self, ids: list[int], asked: Asked, picture: Picture) -> dict[str, Any]:
        """The text of Florence-2, and what it says."""
        text = self.tokenizer.decode(ids, skip_special_tokens=False)
        plain = florence_result(text.replace("<pad>", ""), "", (1, 1))[""]
        if not asked.task:
            return {"generated_text": plain}
        config = self._json("processor_config.json").get("post_processor_config")
        size = (picture.height, picture.width)
        result = florence_result(
            text, asked.task, size, config if isinstance(config, dict) else None
        )
        return {"generated_text": plain, "result": result}


class DocumentQuestionAnsweringPipeline(PictureTextPipeline):
    """Answers questions about pictures of documents with Donut:
    `pipe("invoice.png", "What is the number?")` gives [{"answer": ...}].

    Args:
        model: folder of a Donut model that answers questions, or the id of one of the hub. Of a
            model of image-text-to-text `pipeline` makes a WrittenDocumentAnswersPipeline, of a
            LayoutLM a WordsAnswersPipeline.
        tokenizer, options: as of Pipeline.

    A call takes a picture and a question, or {"image", "question"}, or a list of these. Its options
    are those of ImageToTextPipeline without `prompt`.

    Returns:
        [{"answer": ...}]; None where the model wrote no answer
    """

    task = "document-question-answering"

    @classmethod
    def of(cls, model: Any, options: Mapping[str, Any]) -> Any:
        if reads_words(model, options.get("revision")):
            return WordsAnswersPipeline
        written = writes_answers(model, options.get("revision"))
        return WrittenDocumentAnswersPipeline if written else cls

    def __call__(  # type: ignore[override]  # the names of transformers
        self, image: Any, question: Any = None, **options: Any
    ) -> Any:
        """Runs the task.

        Args:
            image: a picture, or {"image", "question"}; or a list of these.
            question: a text.
            options: of a call.
        """
        if question is not None and not isinstance(image, (list, tuple)):
            image = {"image": image, "question": question}
        elif question is not None:
            image = [{"image": one, "question": question} for one in image]
        return super().__call__(image, **options)

    def one(self, given: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        if not isinstance(given, Mapping) or "image" not in given:
            raise InputError("there is no question", self.task, "Give a picture and a question.")
        prompt = question_prompt(given.get("question"), self.task)
        hidden = self.hidden(read_picture(given["image"]))
        (ids, *_) = self.tokens(hidden, self.first_tokens(prompt), options)
        text = self.tokenizer.decode(ids, skip_special_tokens=False)
        config = getattr(self.tokenizer, "config", None) or {}
        marks = [str(config.get(name) or "") for name in ("eos_token", "pad_token")]
        return [{"answer": donut_answer(text, [*marks, "</s>", "<pad>"])}]
