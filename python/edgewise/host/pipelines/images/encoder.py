"""`EncoderSession`: encoders of pictures of any size."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import Array, as_input
from ....compiler.declare.dtypes import FLOAT, FLOAT16, NAME, pack, unpack
from ....compiler.declare.symbolic import product
from ....logic.multimodal.encoder import features_of, others_of, pixels_of, strips
from ...session import InferenceSession

if TYPE_CHECKING:
    from ....logic.manifest.schema import Decoder
    from ...engine import Engine
    from ...media.pictures import Picture
    from .vision import VisionProcessor

__all__ = ["EncoderSession", "feature_rows"]


class EncoderSession(InferenceSession):
    """An encoder of pictures whose inputs are of another size for each picture.

    A plan is compiled for each size, and kept.

    Args:
        model: path of its file, or its bytes.
        file: its name, for errors.
        engine: the Engine to use; by default that of the process.
    """

    MAX_PLANS = 8

    def __init__(self, model: Any, file: str, engine: Engine | None = None) -> None:
        super().__init__(model, engine=engine)
        self.file = os.path.basename(file)
        self.pixels = self.inputs[pixels_of([*self.inputs], self.file)]

    def features(
        self, processor: VisionProcessor, pictures: Sequence[Picture], decoder: Decoder
    ) -> bytes:
        """The features of a picture, float32 [count, hidden].

        Args:
            processor: of the model.
            pictures: one, or the frames that are seen together.
            decoder: takes the features.

        Raises:
            InputError: their width is not that of the decoder.
            UnsupportedOp: the encoder has an input that pictures do not give.
        """
        values, what = processor.frames(pictures, len(self.pixels.shape or ()))
        feeds: dict[str, Any] = {self.pixels.name: values}
        if self.pixels.dtype == FLOAT16:
            _, dims, data = as_input(values, self.pixels.name, FLOAT)
            numbers = memoryview(data).cast("B").cast("f").tolist()
            feeds[self.pixels.name] = Array(dims, NAME[FLOAT16], pack(FLOAT16, numbers))
        names = [n for n in self.inputs if n != self.pixels.name]
        for further in others_of(names, what, self.file):
            dtype = self.inputs[further.name].dtype
            numbers = [value for value, times in further.runs for _ in range(times)]
            feeds[further.name] = Array(further.dims, NAME[dtype], pack(dtype, numbers))
        outputs = features_of([*self.outputs])
        found = self.run(outputs, feeds)
        return feature_rows(found, decoder["features"], self.file)


def feature_rows(outputs: Sequence[Any], width: int, file: str) -> bytes:
    """Features, float32 [count, width], of the outputs of an encoder. Raises InputError."""
    parts = strips([one.shape for one in outputs], width, file)
    if len(parts) == 1:
        return _floats(outputs[0], file)
    sources = [memoryview(_floats(one, file)).cast("f") for one in outputs]
    count = len(sources[0]) // parts[0].size
    rows = memoryview(bytearray(4 * count * width)).cast("f")
    for strip in parts:
        source = sources[strip.output]
        for i in range(count):
            at, to = strip.at + i * strip.step, strip.to + i * width
            rows[to : to + strip.size] = source[at : at + strip.size]
    return rows.tobytes()


def _floats(output: Any, file: str) -> bytes:
    """An output as float32."""
    dtype, shape, data = as_input(output, file, FLOAT)
    if dtype == FLOAT16:
        return pack(FLOAT, unpack(dtype, data, product(shape)))
    return bytes(data)
