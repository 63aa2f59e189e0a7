"""optical-character-recognition, with the models of PP-OCR. Mirrors RapidOCR and PaddleOCR."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ....compiler.arrays import Array, as_input
from ....compiler.onnx import as_source, read_model
from ....compiler.processors.images import Description
from ....compiler.task_package.ocr import (
    DIRECTION_WIDTHS,
    MASK,
    NUMBER,
    SCORE,
    THRESH,
    detector_input,
    dictionary,
    line_input,
    line_widths,
    with_best,
    with_mask,
)
from ....logic.ocr.reading import Best, Detect, Detected, Line, See, read_page, reading
from ....logic.ocr.shapes import Quad, unit_to_quad
from ....logic.tasks.inputs import Values
from ...drive import drive
from ...media.pictures import Picture, apply_step, read_picture
from ...session import InferenceSession
from ..base import Pipeline
from ..post.plane import Plane
from .image_graphs import ImageGraphs
from .image_processor import ImageProcessor

__all__ = ["OpticalCharacterRecognitionPipeline"]


class OpticalCharacterRecognitionPipeline(Pipeline):
    """Reads the text in pictures: PP-OCR v3 to v5, as RapidOCR and PaddleOCR export them: a
    detector, a recognizer and, if there is one, a classifier of directions, whose files have "det",
    "rec" and "cls" in their names.

    Inputs are those of other pipelines of pictures. The dictionary is in the recognizer's metadata,
    or in a text beside it.

    Options, with the names and defaults of RapidOCR:
        thresh: numbers of the detector's map above it are text. Default: 0.3.
        box_thresh: the mean of the map within a box is at least this. Default: 0.5.
        unclip_ratio: how far boxes are made larger. Default: 1.6.
        text_score: lines with lower scores are left out. Default: 0.5.
        use_cls: whether texts that are upside down are turned. Default: True.

    Returns:
        [{"text", "score", "box": four corners (x, y) in pixels, from the top left one on,
        clockwise}] for each picture, in the order in which they are read
    """

    task = "optical-character-recognition"
    PACKAGED = True
    STEMS = ("det", "rec")
    OPTIONAL = ("cls",)
    CALL = {
        "thresh": None,
        "box_thresh": None,
        "unclip_ratio": None,
        "text_score": None,
        "use_cls": None,
    }

    def __init__(self, model: Any, tokenizer: Any = None, **options: Any) -> None:
        super().__init__(model, tokenizer, **options)
        self.graphs, self.processors = ImageGraphs(self.engine), dict[str, ImageProcessor]()
        self._characters: list[str] | None = None

    def check(self, options: Mapping[str, Any]) -> None:
        reading(options)

    def session(self, stem: str) -> Any:
        """As Pipeline.session, with the outputs that are read."""
        package = self.files.package if self.files is not None else None
        graphs = self.files.graphs if self.files is not None else {}
        if stem in graphs and package is None and not self.closed and stem not in self.sessions:
            graph = read_model(as_source(graphs[stem]))
            widths = line_widths(graph) if stem == "rec" else DIRECTION_WIDTHS
            if stem == "rec":
                self._characters = self._dictionary(graph)
            with_mask(graph) if stem == "det" else with_best(graph)
            description = detector_input() if stem == "det" else line_input(widths)
            self.processors[stem] = ImageProcessor(description, engine=self.engine)
            made = InferenceSession(graph, self.session_options, engine=self.engine)
            self.sessions[stem] = made
        session = super().session(stem)
        if stem not in self.processors:
            assert package is not None
            fields: Any = package.manifest["processor"]["ocr"]
            self._characters = list(fields["characters"])
            described = Description.from_dict(fields[stem])
            self.processors[stem] = ImageProcessor(described, engine=self.engine)
        return session

    def _dictionary(self, graph: Any) -> list[str]:
        assert self.files is not None
        return dictionary(graph, self.files.names, self.files.read)

    @property
    def directs(self) -> bool:
        """Whether there is a model of directions."""
        package = self.files.package if self.files is not None else None
        if package is not None:
            return "cls" in package.manifest["programs"]
        return self.files is not None and "cls" in self.files.graphs

    def close(self) -> None:
        super().close()
        self.graphs.close()
        for processor in self.processors.values():
            processor.close()

    def one(self, given: Any, options: dict[str, Any]) -> list[Line]:
        picture, how = read_picture(given), reading(options)
        self.session("rec")
        assert self._characters is not None
        size = (picture.height, picture.width)
        steps = read_page(how, size, self._characters, self.directs)

        def answer(request: Detect | See) -> Detected | Best:
            if request.kind == "detect":
                return self._detected(picture, request.thresh)
            return self._seen(picture, request)

        return drive(steps, answer)

    def _detected(self, picture: Picture, thresh: float) -> Detected:
        session = self.session("det")
        names = [n for n in session.outputs if n != MASK]
        values = self.processors["det"](picture)["pixel_values"]
        feeds = {n: [thresh] if n == THRESH else values for n in session.inputs}
        made, mask = session.run([names[0], MASK], feeds)
        plane = Plane(made)
        return Detected(Values(plane.shape, plane.numbers), bytes(as_input(mask, MASK)[2]))

    def _seen(self, picture: Picture, request: See) -> Best:
        session = self.session(request.model)
        part = self.cut(picture, request.quad, request.height, request.width)
        for _ in range(request.turns):
            part = apply_step(part, {"op": "rotate"})
        values = self.processors[request.model](part)["pixel_values"]
        made = session.run([NUMBER, SCORE], {next(iter(session.inputs)): values})
        numbers, scores = (Plane(x).numbers for x in made)
        return Best(numbers, scores)

    def cut(self, picture: Picture, quad: Quad, height: int, width: int) -> Picture:
        """A part of a picture at another size, between pixels cubic. Outside of the picture its
        edge continues.
        """
        left, top = (max(math.floor(min(p[i] for p in quad)) - 2, 0) for i in (0, 1))
        right = min(math.ceil(max(p[0] for p in quad)) + 3, picture.width)
        bottom = min(math.ceil(max(p[1] for p in quad)) + 3, picture.height)
        straight = (
            quad[0][1] == quad[1][1] and quad[0][0] == quad[3][0] and quad[2][0] == quad[1][0]
        )
        if straight and quad[2][1] == quad[3][1]:
            left, top, right, bottom = (int(x) for x in (*quad[0], *quad[2]))
            bottom, right = top + height, left + width
        part = apply_step(
            picture,
            {
                "op": "window",
                "top": top,
                "left": left,
                "height": bottom - top,
                "width": right - left,
                "color": [0, 0, 0],
            },
        )
        if straight:
            return part
        moved = [(x - left, y - top) for x, y in quad]
        feeds = {
            "pixels": Array((part.height, part.width, 3), "uint8", part.pixels),
            "matrix": unit_to_quad(moved),
            "size": [height, width],
        }
        (made,) = self.graphs.run("cut", feeds)
        return Picture(bytes(as_input(made, "cut")[2]), height, width)
