"""What the pipelines of pictures share: reading, preprocessing, and the model's inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....compiler.arrays import Array, as_input
from ....compiler.declare.dtypes import FLOAT
from ....compiler.processors.images import Description, layout
from ....compiler.processors.images.reader import FLEXIBLE, type_of
from ....errors import InputError
from ....logic.images.geometry import Box
from ....logic.post.classification import id2label_of
from ....logic.tasks.pictures import count_planes, kept_size
from ...media.pictures import Picture, read_picture
from ..base import Pipeline
from ..post.plane import Plane
from .image_graphs import ImageGraphs
from .image_processor import ImageProcessor
from .vision import VisionProcessor

__all__ = ["ImagePipeline", "Plane"]

PATCHES = ("spatial_shapes", "pixel_attention_mask")


class ImagePipeline(Pipeline):
    """A pipeline of an image processor and a graph. Pictures run one by one.

    Inputs are paths, bytes of a file, PIL.Images, or arrays of uint8 [height, width, 3]; or a list
    of these.

    Attributes:
        processor: the ImageProcessor.
        graphs: of post-processing.
    """

    PACKAGED = True
    FLEXIBLE = False
    """Whether the model may take patches, in a number that depends on the picture."""
    STEM = "model"
    """The graph that takes the picture."""

    def __init__(self, model: Any, tokenizer: Any = None, **options: Any) -> None:
        super().__init__(model, tokenizer, **options)
        self.graphs = ImageGraphs(self.engine)
        if not isinstance(self.processor, (ImageProcessor, VisionProcessor)):
            config: Any = self.processor
            if config is None and self.files is not None and self.files.package is not None:
                described = self.files.package.manifest["processor"]["image"]
                config = Description.from_dict(described)
            if config is None:
                config = self._json("preprocessor_config.json") or self.default_processor()
            if not isinstance(config, (Mapping, Description)):
                raise InputError(
                    f"a {type(config).__name__} is not an image processor",
                    "processor",
                    "Pass an ImageProcessor, or the contents of preprocessor_config.json.",
                )
            if self.FLEXIBLE and isinstance(config, Mapping) and type_of(config) in FLEXIBLE:
                self.processor = VisionProcessor(config, engine=self.engine)
            else:
                self.processor = ImageProcessor(config, engine=self.engine)

    def default_processor(self) -> dict[str, Any]:
        """The configuration of a processor for a model without preprocessor_config.json."""
        if self._json("tokenizer_config.json") and "vision_config" not in self.config:
            raise InputError(
                f"it is a model of texts ({self.config.get('model_type')}), and has no"
                " preprocessor_config.json",
                self.task,
                "Give a model of pictures.",
            )
        raise InputError(
            "the model has no preprocessor_config.json",
            self.task,
            "Pass image_processor= with its contents.",
        )

    @property
    def labels(self) -> Mapping[str, str]:
        """id2label of config.json."""
        return id2label_of(self.config)

    def close(self) -> None:
        super().close()
        self.graphs.close()
        if isinstance(self.processor, (ImageProcessor, VisionProcessor)):
            self.processor.close()

    def forward(
        self,
        picture: Picture,
        *outputs: str,
        feeds: Mapping[str, Any] | None = None,
        box: Box | None = None,
    ) -> list[Any]:
        """Runs the model on a picture.

        Args:
            picture: input of the processor.
            outputs: names of outputs.
            feeds: other inputs of the graph.
            box: the part of the picture that the model sees.

        Returns:
            the outputs

        Raises:
            InputError: the graph has inputs that are not known.
        """
        session = self.session(self.STEM)
        if isinstance(self.processor, VisionProcessor):
            values = self.processor.inputs(picture, list(session.inputs))
        else:
            values = self.processor(picture, box) if box is not None else self.processor(picture)
        given = {**values, **(feeds or {})}
        if "pixel_values" not in session.inputs and len(session.inputs) == 1:
            values = given = {next(iter(session.inputs)): values["pixel_values"]}
        missing = [name for name in session.inputs if name not in given]
        if missing:
            raise InputError(
                f"the model has inputs that are not known: {', '.join(missing)}",
                self.task,
                "It was exported for another task: give a model of this one.",
            )
        for name in values:
            if name in session.inputs and name not in PATCHES:
                given[name] = _ranked(given[name], session.inputs[name])
        return session.run(list(outputs), {name: given[name] for name in session.inputs})

    def planes(self, value: Any, picture: Picture) -> Plane:
        """The planes of an output, without what a package's frame added.

        Args:
            value: the output.
            picture: that the model has seen.
        """
        plane = Plane(value)
        count_planes(plane.shape, self.task)
        steps = self.processor.description.steps
        done = layout(steps, picture.height, picture.width)
        height, width = plane.shape[-2:]
        plane.crop(*kept_size(height, width, done))
        return plane

    def picture(self, given: Any) -> Picture:
        """Reads an input. Raises InputError."""
        return read_picture(given)


def _ranked(value: Any, info: Any) -> Any:
    """The pictures of an input, each as the only view of a scene where the model takes views:
    [batch, views, 3, height, width].
    """
    batch, *dims = value.shape
    if len(getattr(info, "shape", None) or ()) != len(dims) + 2:
        return value
    _, _, data = as_input(value, "pixel_values", FLOAT)
    return Array((batch, 1, *dims), "float32", data)
