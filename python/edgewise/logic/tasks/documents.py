"""Texts that models write about pictures: answers of Donut, and the places of Florence-2. Mirrors
document_question_answering.py and processing_florence2.py of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..images.geometry import Size

TASK = "image-to-text"
BINS = 1000
"""Places of Florence-2 in each direction."""


def question_prompt(question: object, task: str) -> str:
    """The first tokens of Donut's answer, as text. Raises InputError."""
    if not isinstance(question, str) or not question:
        raise InputError("the question is no text", task, "Give a text as the question.")
    return f"<s_docvqa><s_question>{question}</s_question><s_answer>"


def donut_answer(text: str, marks: Sequence[str]) -> str | None:
    """The answer in what Donut wrote.

    Args:
        text: with special tokens.
        marks: tokens that are left out: of the end, and of padding.

    Returns:
        the answer; None: there is none
    """
    for mark in marks:
        if mark:
            text = text.replace(mark, "")
    start = text.find("<s_answer>")
    if start < 0:
        return None
    line = text[start + len("<s_answer>") :].split("\n")[0]
    end = line.rfind("</s_answer>")
    return None if end < 0 else line[:end].strip()


# ---- Florence-2
FIXED = {
    "<OCR>": "What is the text in the image?",
    "<OCR_WITH_REGION>": "What is the text in the image, with regions?",
    "<CAPTION>": "What does the image describe?",
    "<DETAILED_CAPTION>": "Describe in detail what is shown in the image.",
    "<MORE_DETAILED_CAPTION>": "Describe with a paragraph what is shown in the image.",
    "<OD>": "Locate the objects with category name in the image.",
    "<DENSE_REGION_CAPTION>": "Locate the objects in the image, with their descriptions.",
    "<REGION_PROPOSAL>": "Locate the region proposals in the image.",
}
"""Prompts of tasks that have no text."""
WITH_TEXT = {
    "<CAPTION_TO_PHRASE_GROUNDING>": ["Locate the phrases in the caption: ", ""],
    "<REFERRING_EXPRESSION_SEGMENTATION>": ["Locate ", " in the image with mask"],
    "<REGION_TO_SEGMENTATION>": ["What is the polygon mask of region ", ""],
    "<OPEN_VOCABULARY_DETECTION>": ["Locate ", " in the image."],
    "<REGION_TO_CATEGORY>": ["What is the region ", "?"],
    "<REGION_TO_DESCRIPTION>": ["What does the region ", " describe?"],
    "<REGION_TO_OCR>": ["What text is in the region ", "?"],
}
"""Prompts of tasks around a text."""
KINDS = {
    "<OCR_WITH_REGION>": "quads",
    "<OD>": "boxes",
    "<DENSE_REGION_CAPTION>": "boxes",
    "<CAPTION_TO_PHRASE_GROUNDING>": "phrases",
    "<REFERRING_EXPRESSION_SEGMENTATION>": "polygons",
    "<REGION_TO_SEGMENTATION>": "polygons",
    "<OPEN_VOCABULARY_DETECTION>": "either",
    "<REGION_PROPOSAL>": "proposals",
}
"""What is found in the texts of tasks; others give the text."""


@dataclass
class Asked:
    """A prompt of Florence-2.

    Attributes:
        task: its token; "": the prompt is a text.
        text: for the encoder.
    """

    task: str
    text: str


def florence_prompt(prompt: object) -> Asked:
    """A prompt, such as "<OD>" or "<OPEN_VOCABULARY_DETECTION>a cat". Raises InputError."""
    if prompt is None:
        return Asked("", "")
    if not isinstance(prompt, str):
        raise InputError("the prompt is no text", TASK, 'Give a text, such as "<CAPTION>".')
    for name, fixed in FIXED.items():
        if name in prompt:
            if prompt != name:
                raise InputError(
                    f"the prompt has a text besides {name}", TASK, "Give the task's token alone."
                )
            return Asked(name, fixed)
    for name, around in WITH_TEXT.items():
        if name in prompt:
            text = prompt.replace(name, "").strip()
            return Asked(name, around[0] + text + around[1])
    return Asked("", prompt)


@dataclass
class Phrase:
    """Words and the tags after them.

    Attributes:
        words: without tags; "" where tags are looked for alone.
        tags: places, and those of _SHAPES.
        end: position after it.
    """

    words: str
    tags: list[str]
    end: int


_SHAPES = ["<sep>", "<poly>", "</poly>"]
_BEGIN = ["<od>", "</od>", "<box>", "</box>", "<bbox>", "</bbox>", "<loc_"]
"""Tags before which a label ends."""


def _place(tag: str) -> int:
    """The number of a tag <loc_N>; -1: it is no place."""
    digits = tag[5 : len(tag) - 1]
    number = tag.startswith("<loc_") and 0 < len(digits) < 8 and not digits.strip("0123456789")
    return int(digits) if number else -1


def _tags_at(text: str, at: int, others: Sequence[str]) -> list[str]:
    """The places and other tags that follow one another from a position on."""
    out: list[str] = []
    while text[at : at + 1] == "<":
        end = text.find(">", at)
        tag = text[at : end + 1]
        if end < 0 or (_place(tag) < 0 and tag not in others):
            break
        out.append(tag)
        at = end + 1
    return out


def _phrases(text: str, others: Sequence[str], alone: bool) -> list[Phrase]:
    """Words with at least four tags after them; with `alone` such tags."""
    out: list[Phrase] = []
    at = 0
    while at < len(text):
        start = text.find("<", at)
        if start < 0:
            break
        if not alone and start == at:
            at += 1
            continue
        tags = _tags_at(text, start, others)
        if len(tags) < 4:
            at = start + 1 if alone else start
            continue
        end = start + len("".join(tags))
        out.append(Phrase("" if alone else text[at:start], tags, end))
        at = end
    return out


def florence_result(
    text: str, task: str, size: Size, config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What a text of Florence-2 says, as transformers' post_process_generation.

    Args:
        text: with its places.
        task: token of the task.
        size: height and width of the picture.
        config: post_processor_config of processor_config.json.

    Returns:
        {task: text}, or {task: {"bboxes": [[left, top, right, bottom]], "labels": [...]}},
        {"quad_boxes", "labels"} or {"polygons", "labels"}, in pixels
    """
    for mark in ("<s>", "</s>"):
        text = text.replace(mark, "")
    kind = KINDS.get(task, "text")
    if kind == "text":
        found: Any = text.strip()
    else:
        text = text.replace("<pad>", "")
        if kind == "quads":
            found = _quads(text, size)
        elif kind == "polygons" or (kind == "either" and "<poly>" in text):
            found = _polygons(text, size, kind == "polygons")
        else:
            found = _boxes(text, size, kind == "proposals", _banned(config, kind))
        if kind == "either":
            is_boxes = "bboxes" in found
            found = {
                "bboxes": found["bboxes"] if is_boxes else [],
                "bboxes_labels": found["labels"] if is_boxes else [],
                "polygons": [] if is_boxes else found["polygons"],
                "polygons_labels": [] if is_boxes else found["labels"],
            }
    result: dict[str, Any] = {}
    result[task] = found
    return result


def _banned(config: Mapping[str, Any] | None, kind: str) -> list[str]:
    """Phrases that are no labels."""
    if kind != "phrases" or config is None:
        return []
    inner: object = config.get("phrase_grounding")
    if not isinstance(inner, dict):
        return []
    words: object = inner.get("banned_grounding_tokens")
    return [str(word) for word in words] if isinstance(words, list) else []


def _pixel(place: int, pixels: int) -> int:
    """The middle of a place, in pixels."""
    return int((place + 0.5) * (pixels / BINS))


def _points(places: Sequence[int], size: Size) -> list[int]:
    """Pairs of places as pixels: left and top in turn."""
    return [_pixel(place, size[1] if i % 2 == 0 else size[0]) for i, place in enumerate(places)]


def _label(text: str) -> str:
    """A label, of letters of ASCII."""
    return "".join([c for c in text if ord(c) < 128])


def _is_line(words: str) -> bool:
    """Whether words are of one line, after white space."""
    return "\n" not in words.lstrip()


def _boxes(text: str, size: Size, alone: bool, banned: list[str]) -> dict[str, Any]:
    """Boxes of four places each, and their labels."""
    boxes: list[list[int]] = []
    labels: list[str] = []
    for phrase in _phrases(text, [], alone):
        label = phrase.words.strip()
        if not _is_line(phrase.words) or label in banned:
            continue
        places = [_place(tag) for tag in phrase.tags]
        for i in range(0, len(places) - 3, 4):
            boxes.append(_points(places[i : i + 4], size))
            labels.append(_label(label))
    return {"bboxes": boxes, "labels": labels}


def _quads(text: str, size: Size) -> dict[str, Any]:
    """Quadrilaterals of eight places, and the words before them."""
    boxes: list[list[int]] = []
    labels: list[str] = []
    start = 0
    at = 1
    while at < len(text):
        if text[at - 1] == "\n":
            start = at
            at += 1
            continue
        tags = _tags_at(text, at, [])[:8]
        if len(tags) < 8 or at == start:
            at += 1
            continue
        boxes.append(_points([_place(tag) for tag in tags], size))
        labels.append(text[start:at].strip())
        start = at + len("".join(tags))
        at = start + 1
    return {"quad_boxes": boxes, "labels": labels}


def _polygons(text: str, size: Size, alone: bool) -> dict[str, Any]:
    """Polygons of places, and their labels; with `alone` there are no words before them."""
    polygons: list[list[list[int]]] = []
    labels: list[str] = []
    for phrase in _phrases(text, _SHAPES, alone):
        tags = phrase.tags[1:] if alone and _place(phrase.tags[0]) >= 0 else phrase.tags
        whole = phrase.words + "".join(tags)
        ends = [whole.find(tag) for tag in [*_BEGIN, "<poly>"]]
        found = [end for end in ends if end >= 0]
        if not found or not _is_line(whole[: min(found)]):
            continue
        for part in _instances(phrase.tags):
            shapes = _shapes(part, size)
            if shapes:
                polygons.append(shapes)
                labels.append(whole[: min(found)].strip())
    return {"polygons": polygons, "labels": labels}


def _instances(tags: list[str]) -> list[list[str]]:
    """The tags between <poly> and </poly>, or all."""
    if "<poly>" not in tags or "</poly>" not in tags:
        return [tags]
    out: list[list[str]] = []
    rest = tags
    while "<poly>" in rest:
        rest = rest[rest.index("<poly>") + 1 :]
        if "</poly>" not in rest:
            break
        end = rest.index("</poly>")
        out.append(rest[:end])
        rest = rest[end + 1 :]
    return out


def _shapes(tags: list[str], size: Size) -> list[list[int]]:
    """Places up to <sep> or the end, as polygons."""
    out: list[list[int]] = []
    places: list[int] = []
    for tag in [*tags, "<sep>"]:
        place = _place(tag)
        if place >= 0:
            places.append(place)
            continue
        if tag == "<sep>" and places:
            out.append(_points(places[: len(places) // 2 * 2], size))
        places = []
    return out
