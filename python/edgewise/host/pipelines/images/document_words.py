"""document-question-answering with LayoutLM, which reads the words of a page and their places.
Mirrors transformers/pipelines/document_question_answering.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from ....errors import InputError
from ....logic.post.questions import NO_SCORE, spans_of
from ....logic.tasks.inputs import Values, row
from ....logic.tasks.texts import Asking, asking
from ....logic.text.encoding import Encoding
from ...media.pictures import read_picture
from ..files import stems_of
from ..post.plane import Plane
from ..text import TextPipeline
from .written_answers import pairs_of

__all__ = ["WordsAnswersPipeline", "reads_words"]

PAGE = 1000
"""Places are parts of a page, in thousandths of its sides."""
STRIDE = 256
ROOM = 512
Box = Sequence[float]


def reads_words(model: Any, revision: str | None = None) -> bool:
    """Whether a model is one graph, which sees no picture, by the names of its graphs."""
    stems = stems_of(model, revision)
    others = ("vision", "embed", "encoder", "decoder")
    return "model" in stems and not any(name.startswith(others) for name in stems)


class WordsAnswersPipeline(TextPipeline):
    """Answers questions about pictures of documents, whose words are given:
    `pipe(question="What is the number?", word_boxes=[("12", [80, 20, 95, 30]), ...])`.

    Args:
        model: folder of a LayoutLM model that answers questions.
        tokenizer, options: as of Pipeline.

    A call takes a picture and a question, or {"image", "question", "word_boxes"}, or a list of
    these. The picture is read by `ocr` alone.

    Options:
        word_boxes: [(word, [left, top, right, bottom])] in thousandths of the page's sides.
        ocr: a pipeline of optical-character-recognition, which finds the words where they are not
            given; those of a line share its width by their characters.
        top_k, doc_stride, max_answer_len, max_seq_len, handle_impossible_answer: as of
            QuestionAnsweringPipeline; the first three are 1, 256 (at most half of max_seq_len) and
            15 by default.

    Returns:
        [{"score", "answer", "start", "end"}], the likeliest first; start and end are the first and
        the last word
    """

    task = "document-question-answering"
    PACKAGED = False
    CALL = {
        "word_boxes": None,
        "ocr": None,
        "top_k": 1,
        "doc_stride": None,
        "max_answer_len": 15,
        "max_seq_len": None,
        "handle_impossible_answer": False,
    }

    def check(self, options: Mapping[str, Any]) -> None:
        self._asking(options)

    def _asking(self, options: Mapping[str, Any]) -> Asking:
        most = options["max_seq_len"] or self.longest or ROOM
        stride = options["doc_stride"]
        if stride is None and isinstance(most, int):
            stride = min(most // 2, STRIDE)
        return asking({**options, "max_seq_len": most, "doc_stride": stride}, self.longest)

    def __call__(  # type: ignore[override]  # the names of transformers
        self, image: Any = None, question: Any = None, **options: Any
    ) -> Any:
        """Runs the task.

        Args:
            image: a picture, or None; or {"image", "question", "word_boxes"}, or a list of these.
            question: a text.
            options: of a call.
        """
        pairs, several = pairs_of(image, question)
        return super().__call__(pairs if several else pairs[0], **options)

    def one(self, given: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        how = self._asking(options)
        question = given.get("question") if isinstance(given, Mapping) else None
        if not isinstance(question, str) or not question.split():
            raise InputError("the question is no text", self.task, "Give a text as the question.")
        found = given.get("word_boxes", options["word_boxes"])
        words, boxes = self._words(given.get("image"), found, options["ocr"])
        context = " ".join(words)
        begins = [0, *accumulate(len(word) + 1 for word in words)]
        answers: list[dict[str, Any]] = []
        null = NO_SCORE
        cut = {"truncation": "only_second", "max_length": how.most, "stride": how.stride}
        for read in self.encodings(" ".join(question.split()), context, **cut):
            at = [
                _word_at(begins, context, *ends) if of == 1 else 0
                for of, ends in zip(read.sequences, read.offsets)
            ]
            spans, score = self._spans(read, [boxes[i] for i in at], how)
            null = min(null, score)
            for first, last, likely in spans:
                if read.sequences[first] == 1 and read.sequences[last] == 1:
                    answer = " ".join(words[at[first] : at[last] + 1])
                    ends = {"start": at[first], "end": at[last]}
                    answers.append({"score": likely, "answer": answer, **ends})
        if how.impossible:
            answers.append({"score": null, "answer": "", "start": 0, "end": 0})
        return sorted(answers, key=lambda one: -one["score"])[: how.top_k]

    def _spans(
        self, read: Encoding, boxes: Sequence[Box], how: Asking
    ) -> tuple[list[tuple[int, int, float]], float]:
        """The likeliest spans of tokens in a part of the page; and the score of no answer.

        Args:
            read: question and part.
            boxes: of the words of the tokens.
            how: answers are sought.
        """
        mark, none = self.tokenizer.sep_token_id, self.tokenizer.cls_token_id
        places = [
            [int(x) for x in box] if of == 1 else [PAGE * (i == mark)] * 4
            for box, of, i in zip(boxes, read.sequences, read.ids)
        ]
        session = self.session("model")
        feeds = {
            name: [places] if name == "bbox" else self._feed(info, [read], len(read.ids))
            for name, info in session.inputs.items()
        }
        names = [self.need_output("model", name) for name in ("start_logits", "end_logits")]
        made = [Plane(x) for x in session.run(names, feeds)]
        begins, ends = (Values(x.shape, x.numbers) for x in made)
        allowed = [of == 1 or i == none for of, i in zip(read.sequences, read.ids)]
        return spans_of(row(begins, 0), row(ends, 0), allowed, how.top_k, how.longest)

    def _words(self, image: Any, given: Any, ocr: Any) -> tuple[list[str], list[Box]]:
        """The words of a page and their boxes. Raises InputError."""
        if given is None and ocr is not None and image is not None:
            picture = read_picture(image)
            given = [
                word
                for line in ocr(image)
                for word in _words_of(line, picture.height, picture.width)
            ]
        where = "word_boxes"
        if given is None:
            raise InputError(
                "there are no words", where, "Give word_boxes, or a picture and ocr= a pipeline."
            )
        if not isinstance(given, Iterable):
            raise InputError(
                f"it is {given!r:.80}", where, "Give a list of (word, [left, top, right, bottom])."
            )
        words: list[str] = []
        boxes: list[Box] = []
        for one in given:
            pair = list(one) if isinstance(one, (list, tuple)) else []
            box = list(pair[1]) if len(pair) == 2 and isinstance(pair[1], (list, tuple)) else []
            if not pair or not isinstance(pair[0], str) or len(box) != 4:
                raise InputError(f"it has {one!r:.80}", where, "Give (word, [x, y, x, y]) of each.")
            if not all(isinstance(x, (int, float)) and 0 <= x <= PAGE for x in box):
                raise InputError(
                    f"the box of {pair[0]!r:.40} is {box}", where, f"Give numbers of 0 to {PAGE}."
                )
            words.append(pair[0])
            boxes.append(box)
        if not any(words):
            raise InputError("the page has no words", where, "Give a page with a text.")
        return words, boxes


def _word_at(begins: Sequence[int], context: str, start: int, end: int) -> int:
    """Which word a token with these characters is a part of: the space before a word may belong to
    it, or be all of it.
    """
    whole = start < end and context[end - 1] != " "
    return bisect_right(begins, end - 1 if whole else end) - 1


def _words_of(line: Mapping[str, Any], height: int, width: int) -> list[tuple[str, list[int]]]:
    """The words of a line that was recognised, with their boxes."""
    xs, ys = ([corner[i] for corner in line["box"]] for i in (0, 1))
    left, across = min(xs), max(xs) - min(xs)
    text, made, at = line["text"], [], 0
    for word in text.split():
        at = text.index(word, at)
        begin, end = (left + across * i / len(text) for i in (at, at + len(word)))
        at += len(word)
        sides = (begin / width, min(ys) / height, end / width, max(ys) / height)
        made.append((word, [min(max(int(PAGE * x), 0), PAGE) for x in sides]))
    return made
