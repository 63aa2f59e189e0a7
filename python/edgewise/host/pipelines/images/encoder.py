"""`EncoderSession`: encoders of pictures of any size."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ....compiler.arrays import Array, as_input
from ....compiler.declare.dtypes import FLOAT, NAME, pack
from ....compiler.task_package.multimodal import check_width, features_of, others_of, pixels_of
from ...session import InferenceSession

if TYPE_CHECKING:
    from ....logic.manifest.schema import Decoder
    from ...engine import Engine
    from ...media.pictures import Picture
    from .vision import VisionProcessor

__all__ = ["EncoderSession"]


class EncoderSession(InferenceSession):
    """An encoder of pictures whose inputs are of another size for each picture.

    A plan is compiled for each size, and kept.

    Args:
        path: of its file.
        engine: the Engine to use; by default that of the process.
    """

    MAX_PLANS = 8

    def __init__(self, path: str, engine: Engine | None = None) -> None:
        super().__init__(path, engine=engine)
        self.file = os.path.basename(path)
        self.pixels = pixels_of(list(self.inputs.values()), self.file)

    def features(self, processor: VisionProcessor, picture: Picture, decoder: Decoder) -> bytes:
        """The features of a picture, float32 [count, hidden].

        Args:
            processor: of the model.
            picture: to be encoded.
            decoder: takes the features.

        Raises:
            InputError: their width is not that of the decoder.
            UnsupportedOp: the encoder has an input that pictures do not give.
        """
        values, what = processor(picture, len(self.pixels.shape or ()))
        feeds = {self.pixels.name: values}
        names = [n for n in self.inputs if n != self.pixels.name]
        for further in others_of(names, what, self.file):
            dtype = self.inputs[further.name].dtype
            numbers = [value for value, times in further.runs for _ in range(times)]
            feeds[further.name] = Array(further.dims, NAME[dtype], pack(dtype, numbers))
        output = features_of(list(self.outputs))
        (rows,) = self.run([output], feeds)
        check_width(rows.shape, decoder["features"], self.file)
        return bytes(as_input(rows, output, FLOAT)[2])
