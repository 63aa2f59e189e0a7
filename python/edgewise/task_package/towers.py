"""Models that compare pictures and texts (CLIP, SigLIP) in two files, as optimum exports them for
transformers.js: vision_model.onnx and text_model.onnx, which end with embeddings. What the whole
model does with these is added here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import InputError, UnsupportedOp
from ..ir import Graph
from ..onnx.source import Source
from ..processors.audio.build import Builder
from ..text.candidates import is_padded
from ..training.safetensors import load_safetensors

VISION, TEXT = "vision_model", "text_model"
IMAGE_EMBEDS, TEXT_EMBEDS = "image_embeds", "text_embeds"
LOGITS = "logits_per_image"
WEIGHTS = "model.safetensors"
_LEARNED = ("logit_scale", "logit_bias")
CLIP_SCALE = math.log(100)  # the bound that CLIP's training reaches


def embeds_of(graph: Graph | Any, name: str, config: Mapping[str, Any]) -> str:
    """The output of a file that is its embedding.

    Args:
        graph: a Graph, or names of outputs.
        name: IMAGE_EMBEDS or TEXT_EMBEDS.
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
        VISION if name == IMAGE_EMBEDS else TEXT,
        f"This task needs {' or '.join(wanted)}: export the model with its projection.",
    )


def check_inputs(vision: Iterable[str], text: Iterable[str]) -> None:
    """Raises InputError if names of inputs are not those of the file of pictures and of texts: both
    embeddings of SigLIP have one name.
    """
    for stem, names, wanted in ((VISION, [*vision], False), (TEXT, [*text], True)):
        if ("input_ids" in names) != wanted:
            raise InputError(
                f"its inputs are {', '.join(names)[:200]}",
                f"{stem}.onnx",
                f"This task needs {'input_ids' if wanted else 'pixels'}: are the files swapped?",
            )


def check_shapes(vision: Sequence[Any], text: Sequence[Any]) -> None:
    """Raises InputError if shapes of embeddings are not [rows, size] of one size."""
    if len(vision) != 2 or len(text) != 2 or vision[1] != text[1]:
        raise InputError(
            f"embeddings of pictures are {[*vision]} and of texts {[*text]}",
            f"{VISION}.onnx, {TEXT}.onnx",
            "They must be [1, size] of one size: take both files of one model.",
        )


def scale_and_bias(config: Mapping[str, Any], weights: Source | None) -> tuple[float, float]:
    """What products of embeddings are multiplied by, and what is added. The files of the two halves
    lack these two weights.

    Args:
        config: contents of config.json, which may have `logit_scale` (a logarithm, as in the
            model's weights) and `logit_bias`.
        weights: model.safetensors, which is read where config.json lacks them; or None.

    Returns:
        (scale, bias); for a CLIP model of which neither is known 100 and 0

    Raises:
        InputError: they are not known, or no numbers that can be.
        ModelError: the weights are damaged.
    """
    found: dict[str, Any] = {}
    if not is_padded(config):
        found = {"logit_scale": CLIP_SCALE, "logit_bias": 0.0}
    if weights is not None and not all(name in config for name in _LEARNED):
        tensors, _ = load_safetensors(weights)
        for name in _LEARNED:
            if name in tensors and tensors[name].count == 1:
                [found[name]] = tensors[name].numbers()
    for name in _LEARNED:
        value = found[name] = config.get(name, found.get(name))
        if value is None:
            raise InputError(
                f"its {VISION}.onnx and {TEXT}.onnx lack the weight '{name}'",
                "config.json",
                f"Add it to config.json, or put {WEIGHTS} into the folder.",
            )
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 80:
            raise InputError(
                f"{name} is {value!r:.40}", "config.json", "Give the model's own weight."
            )
    return math.exp(found["logit_scale"]), float(found["logit_bias"])


def scores_graph(scale: float, bias: float) -> Graph:
    """The scores of pictures and texts.

    Returns:
        graph with the inputs IMAGE_EMBEDS [pictures, size] and TEXT_EMBEDS [texts, size]; output
        LOGITS [pictures, texts], all float32
    """
    b = Builder("scores")
    axis = b.indices(1)
    unit = []
    for name, rows in ((IMAGE_EMBEDS, "pictures"), (TEXT_EMBEDS, "texts")):
        given = b.input(name, [rows, "size"])
        unit.append(b.op("Div", given, b.op("ReduceL2", given, axis, keepdims=1)))
    product = b.op("MatMul", unit[0], b.op("Transpose", unit[1], perm=[1, 0]))
    scaled = b.op("Mul", product, b.scalar(scale))
    b.output(LOGITS, b.op("Add", scaled, b.scalar(bias)), ["pictures", "texts"])
    return b.graph
