"""`VisionProcessor`: pictures to the inputs of a vision-language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import Array, as_input, as_output
from ....compiler.declare.dtypes import FLOAT
from ....compiler.processors.images.vision import VisionDescription, read_vision, vision_graph
from ....logic.images.geometry import Step
from ....logic.images.views import (
    Seen,
    View,
    ViewRule,
    count_pieces,
    further_inputs,
    pieces,
    pixel_dims,
    seen,
)
from ...media.pictures import Picture, apply_step, read_picture
from ...session import InferenceSession

if TYPE_CHECKING:
    from ....compiler.declare.dtypes import BytesLike
    from ...engine import Engine

__all__ = ["VisionProcessor"]


class VisionProcessor:
    """Makes the inputs of a vision-language model from a picture of any size.

    Args:
        config: contents of preprocessor_config.json, or a VisionDescription.
        where: name of the file, for errors.
        engine: the Engine to use; by default that of the process.

    Attributes:
        description: of the processing.

    Raises:
        InputError: the type or a field is not supported.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | VisionDescription,
        where: str = "preprocessor_config.json",
        engine: Engine | None = None,
    ) -> None:
        self.description = (
            config if isinstance(config, VisionDescription) else read_vision(config, where)
        )
        self.session = InferenceSession(vision_graph(self.description), engine=engine)

    def of(self, rule: ViewRule) -> VisionProcessor:
        """The processor with another rule, which shares its graph."""
        if rule is self.description.rule:
            return self
        made = copy(self)
        made.description = replace(self.description, rule=rule)
        return made

    def seen(self, picture: Picture) -> Seen:
        """What the model sees of a picture. Raises InputError."""
        return seen(self.description.rule, picture.height, picture.width)

    def pixels(self, picture: Picture, what: Seen) -> bytes:
        """uint8 [pieces, height, width, 3] of a picture."""
        out: list[bytes] = []
        done: list[Step] = []
        made = [picture]  # after each step of `done`: views begin alike
        for view in what.views:
            same = 0
            while same < min(len(done), len(view.steps)) and done[same] == view.steps[same]:
                same += 1
            done, made = done[:same], made[: same + 1]
            for step in view.steps[same:]:
                made.append(apply_step(made[-1], step))
                done.append(step)
            out.append(_cut(made[-1], what, view))
        return b"".join(out)

    def __call__(self, image: Any, rank: int = 0) -> tuple[Any, Seen]:
        """The numbers of one picture.

        Args:
            image: path of a file, its bytes, a PIL.Image, a Picture, or an array of uint8
                [height, width, 3].
            rank: how many dimensions the model's input `pixel_values` has; 0: as many as there
                are.

        Returns:
            (float32 of logic.images.views.pixel_dims, what the model sees)

        Raises:
            InputError: the picture is damaged, empty, too large or too long.
        """
        picture = read_picture(image)
        what = self.seen(picture)
        high, wide = what.piece
        shape = (count_pieces(what), high, wide, 3)
        (values,) = self.session.run(
            None, {"pixels": Array(shape, "uint8", self.pixels(picture, what))}
        )
        dims = pixel_dims(self.description.form, self.description.temporal, what, rank)
        _, _, data = as_input(values, "pixel_values", FLOAT)
        return as_output(FLOAT, dims, _with_room(data, what) if what.room else data), what

    def frames(self, pictures: Sequence[Picture], rank: int) -> tuple[Any, Seen]:
        """The numbers of a picture, or of frames of one size that are seen together.

        Args:
            pictures: one, or as many as a patch has frames.
            rank: as of a call.
        """
        values, what = self(pictures[0], rank)
        if len(pictures) == 1:
            return values, what
        high, wide = what.piece
        each, size = 4 * high * wide, len(pictures)
        _, dims, first = as_input(values, "pixel_values", FLOAT)
        out = bytearray(first)
        for at, picture in enumerate(pictures[1:], 1):
            _, _, data = as_input(self(picture, rank)[0], "pixel_values", FLOAT)
            source = memoryview(data).cast("B")
            for start in range(at * each, len(out), size * each):  # of each piece and channel
                out[start : start + each] = source[start : start + each]
        return as_output(FLOAT, dims, bytes(out)), what

    def inputs(self, image: Any, names: Sequence[str]) -> dict[str, Any]:
        """The inputs of a model that sees one picture.

        Args:
            image: as of a call.
            names: of the inputs that the model has.

        Raises:
            InputError: as a call.
        """
        values, what = self(image)
        out = {"pixel_values": values}
        for further in further_inputs(names, what):
            numbers = [value for value, times in further.runs for _ in range(times)]
            rows, size = further.dims
            out[further.name] = [numbers[size * i : size * (i + 1)] for i in range(rows)]
        return out

    def close(self) -> None:
        """Frees the memory of the graph."""
        self.session.free()


def _with_room(values: BytesLike, what: Seen) -> bytes:
    """The pieces of each view, with zeros up to `room`."""
    high, wide = what.piece
    data = memoryview(values).cast("B")
    row = len(data) // count_pieces(what)
    parts: list[Any] = []
    at = 0
    for view in what.views:
        size = view.height // high * (view.width // wide) * row
        parts += [data[at : at + size], bytes(what.room * row - size)]
        at += size
    return b"".join(parts)


def _cut(picture: Picture, what: Seen, view: View) -> bytes:
    """The pieces of a view, one after the other."""
    high, wide = what.piece
    if (high, wide) == (view.height, view.width):
        return picture.pixels
    source, line, size = memoryview(picture.pixels), 3 * view.width, 3 * wide
    parts: list[memoryview] = []
    for piece in pieces(what, view):
        at = piece.top * line + 3 * piece.left
        parts += [source[i : i + size] for i in range(at, at + high * line, line)]
    return b"".join(parts)
