"""Models that compare pictures (CLIP, SigLIP) or sounds (CLAP) with texts in two files, as optimum
exports them for transformers.js: vision_model.onnx or audio_model.onnx, and text_model.onnx, which
end with embeddings. What the whole model does with these is added here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError, UnsupportedOp
from ...logic.tasks.candidates import is_padded
from ..ir import Graph
from ..onnx.source import Source
from ..processors.audio.build import Builder
from ..training.safetensors import load_safetensors

TEXT, TEXT_EMBEDS = "text_model", "text_embeds"
WEIGHTS = "model.safetensors"
CLIP_SCALE = math.log(100)  # the bound that CLIP's training reaches


@dataclass(frozen=True)
class Compared:
    """What a model compares with texts.

    Attributes:
        stem: name of its file.
        embeds: the output of this file.
        logits: the output of a model in one file: [1, texts].
        name: for errors.
        inputs: of the file, for errors.
        scale: the weight whose exponential the products are multiplied by.
        bias: the weight that is added to them; None: there is none.
        also: further outputs, which depend on the input alone.
    """

    stem: str
    embeds: str
    logits: str
    name: str
    inputs: str
    scale: str
    bias: str | None = None
    also: tuple[str, ...] = ()


PICTURES = Compared(
    "vision_model",
    "image_embeds",
    "logits_per_image",
    "picture",
    "pixels",
    "logit_scale",
    "logit_bias",
)
SOUNDS = Compared(
    "audio_model", "audio_embeds", "logits_per_audio", "sound", "features", "logit_scale_a"
)
OBJECTS = Compared("model", "", "logits", "picture", "pixels", "", also=("pred_boxes",))
COMPARED = {
    "zero-shot-image-classification": PICTURES,
    "zero-shot-audio-classification": SOUNDS,
    "zero-shot-object-detection": OBJECTS,
}
"""{task: input that it compares with texts}"""


def embeds_of(graph: Graph | Any, name: str, stem: str, config: Mapping[str, Any]) -> str:
    """The output of a file that is its embedding.

    Args:
        graph: a Graph, or names of outputs.
        name: TEXT_EMBEDS, or the embeddings of a Compared.
        stem: the file, for errors.
        config: contents of config.json.

    Raises:
        UnsupportedOp: it has none.
    """
    names = [o.name for o in graph.outputs] if isinstance(graph, Graph) else [*graph]
    wanted = [name, "pooler_output"] if is_padded(config) else [name]  # SigLIP projects nothing
    for one in wanted:
        if one in names:
            return one
    raise UnsupportedOp(
        f"its outputs are {', '.join(names)[:200]}",
        stem,
        f"This task needs {' or '.join(wanted)}: export the model with its projection.",
    )


def check_inputs(of: Compared, given: Iterable[str], text: Iterable[str]) -> None:
    """Raises InputError if names of inputs are not those of the first file and of that of texts:
    both embeddings of SigLIP have one name.
    """
    for stem, names, wanted in ((of.stem, [*given], False), (TEXT, [*text], True)):
        if ("input_ids" in names) != wanted:
            raise InputError(
                f"its inputs are {', '.join(names)[:200]}",
                f"{stem}.onnx",
                f"This task needs {'input_ids' if wanted else of.inputs}: are the files swapped?",
            )


def check_shapes(of: Compared, given: Sequence[Any], text: Sequence[Any]) -> None:
    """Raises InputError if shapes of embeddings are not [rows, size] of one size."""
    if len(given) != 2 or len(text) != 2 or given[1] != text[1]:
        raise InputError(
            f"embeddings of {of.name}s are {[*given]} and of texts {[*text]}",
            f"{of.stem}.onnx, {TEXT}.onnx",
            "They must be [1, size] of one size: take both files of one model.",
        )


def scale_and_bias(
    of: Compared, config: Mapping[str, Any], weights: Source | None
) -> tuple[float, float]:
    """What products of embeddings are multiplied by, and what is added. The files of the two halves
    lack these weights.

    Args:
        of: input that is compared with texts.
        config: contents of config.json, which may have the scale (a logarithm, as in the model's
            weights) and the bias, with the names of the weights.
        weights: model.safetensors, which is read where config.json lacks them; or None.

    Returns:
        (scale, bias); for a CLIP model of which neither is known 100 and 0

    Raises:
        InputError: they are not known, or no numbers that can be.
        ModelError: the weights are damaged.
    """
    learned = [of.scale] if of.bias is None else [of.scale, of.bias]
    found: dict[str, Any] = {}
    if of is PICTURES and not is_padded(config):
        found = dict(zip(learned, (CLIP_SCALE, 0.0), strict=True))
    if weights is not None and not all(name in config for name in learned):
        tensors, _ = load_safetensors(weights)
        for name in learned:
            if name in tensors and tensors[name].count == 1:
                [found[name]] = tensors[name].numbers()
    for name in learned:
        value = found[name] = config.get(name, found.get(name))
        if value is None:
            raise InputError(
                f"its {of.stem}.onnx and {TEXT}.onnx lack the weight '{name}'",
                "config.json",
                f"Add it to config.json, or put {WEIGHTS} into the folder. In a page, use a "
                "package that was built from it.",
            )
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 80:
            raise InputError(
                f"{name} is {value!r:.40}", "config.json", "Give the model's own weight."
            )
    return math.exp(found[of.scale]), float(found[of.bias]) if of.bias else 0.0


def scores_graph(of: Compared, scale: float, bias: float) -> Graph:
    """The scores of pictures, or sounds, and texts.

    Returns:
        graph with the inputs of.embeds [rows, size] and TEXT_EMBEDS [texts, size]; output of.logits
        [rows, texts], all float32
    """
    b = Builder("scores")
    axis = b.indices(1)
    unit = []
    for name, rows in ((of.embeds, "rows"), (TEXT_EMBEDS, "texts")):
        given = b.input(name, [rows, "size"])
        unit.append(b.op("Div", given, b.op("ReduceL2", given, axis, keepdims=1)))
    product = b.op("MatMul", unit[0], b.op("Transpose", unit[1], perm=[1, 0]))
    scaled = b.op("Mul", product, b.scalar(scale))
    b.output(of.logits, b.op("Add", scaled, b.scalar(bias)), ["rows", "texts"])
    return b.graph
