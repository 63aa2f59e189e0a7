"""What a package needs so that a page can teach it labels of its user.

The program "model" also computes the features of its inputs, and the program "head" is a step of
the training of a head on them (heads.step). The programs of heads.lora train the model, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...json_text import parse_json
from ..compile.programs import Programs
from ..heads.features import Features, digest_of, find_features, tensor_names, text_states
from ..heads.lora import add_lora, lora_fields
from ..heads.step import CLASSES, ROWS, STATES, step_graph
from ..ir import Info

if TYPE_CHECKING:
    from ...logic.manifest.processor import Processor
    from ..package import Package
    from . import Request

TASKS = (
    "image-classification",
    "image-feature-extraction",
    "audio-classification",
    "speaker-verification",
    "text-classification",
    "feature-extraction",
)
"""Tasks whose packages can be personalized."""
LORA_TASKS = (
    "image-classification",
    "image-feature-extraction",
    "audio-classification",
    "speaker-verification",
    "text-classification",
)
"""Those whose model can be trained, too."""


class Personal:
    """The model of a package and, if a page is to teach it labels, its features.

    Args:
        request: of the package.
        kind: of the model's inputs: "image", "audio" or "text".

    Attributes:
        graph: the model; with an output for the features if they are wanted.

    Raises:
        InputError: packages of this task cannot be personalized, or the features are not known.
    """

    def __init__(self, request: Request, kind: str) -> None:
        self.graph = request.read("model")
        self.features: Features | None = None
        self.lora = lora_fields(request.personalize)
        self.unit = request.task == "speaker-verification"
        if not request.personalize:
            return
        if self.lora and request.task not in LORA_TASKS:
            raise InputError(
                f"models for {request.task!r} are not trained with a head",
                "personalize",
                f"Those for {', '.join(LORA_TASKS)} are: leave `lora` out.",
            )
        if request.task not in TASKS:
            raise InputError(
                f"packages for {request.task!r} cannot be personalized",
                "personalize",
                f"Those for {', '.join(TASKS)} can.",
            )
        text = request.texts.get("config.json")
        found = {} if text is None else parse_json(text, "config.json")
        config = found if isinstance(found, dict) else {}
        if request.task == "feature-extraction":
            self.features = text_states(self.graph)
        else:
            self.features = find_features(self.graph, kind, str(config.get("model_type", "")))
        self.digest = digest_of(self.graph, self.features)
        name = self.features.tensor
        if name not in [o.name for o in self.graph.outputs]:
            if name not in tensor_names(self.graph):
                raise InputError(f"the model has no tensor '{name}'", "personalize")
            self.graph = replace(self.graph, outputs=[*self.graph.outputs, Info(name)])

    def also(self, outputs: Sequence[str]) -> list[str]:
        """Names of outputs, and that of the features if they are wanted."""
        wanted = [] if self.features is None else [self.features.tensor]
        return list(dict.fromkeys([*outputs, *wanted]))

    def package(self, programs: Programs, processor: Processor) -> Package:
        """The finished package.

        Args:
            programs: with the program "model".
            processor: of the manifest. Where features are wanted, it gets `features`: {output:
                name, pooling, size: numbers of an input's features, model: digest}, and with LoRA
                `lora` (LoraLayout.to_dict).

        Raises:
            InputError: the features have no dimension of a fixed size.
        """
        if self.features is not None:
            plan = programs.package.manifest["programs"]["model"]["plans"][0]
            shape = plan["outputs"][self.features.tensor][2]
            size = shape[1] if len(shape) == 4 else shape[-1]
            if not isinstance(size, int) or len(shape) not in (2, 3, 4):
                raise InputError(f"the features have the shape {shape}", "personalize")
            runs = [(_shapes(size, rows, classes), None) for classes in CLASSES for rows in ROWS]
            programs.add("head", step_graph(size), runs)
            processor["features"] = {
                "output": self.features.tensor,
                "pooling": self.features.pooling,
                "size": size,
                "model": self.digest,
            }
            if self.lora is not None:
                rate = processor["audio"]["sampling_rate"] if "audio" in processor else None
                layout = add_lora(
                    programs, self.graph, self.features, size, self.lora, rate, self.unit
                )
                processor["features"]["lora"] = layout.to_dict()
        programs.package.manifest["processor"] = processor
        return programs.package


def _shapes(size: int, rows: int, classes: int) -> dict[str, list[Any]]:
    """Shapes of the inputs of a step."""
    states = {n: [size, classes] if n.startswith("w") else [classes] for n in STATES}
    scalars: dict[str, list[Any]] = {"penalty": [], "rate": [], "step": []}
    return {"x": [rows, size], "targets": [rows, classes], "mask": [classes], **scalars, **states}
