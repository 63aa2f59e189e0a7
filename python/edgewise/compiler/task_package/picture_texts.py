"""Packages of models that write about pictures: TrOCR, Donut, ViT-GPT2 and Florence-2.

The programs are "pre", from pixels to numbers, and "encoder". Florence-2, whose encoder hears a
prompt, too, has "vision" and "embed", from token ids to embeddings, before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import InputError, UnsupportedOp
from ...json_text import parse_json
from ..bind import bind
from ..compile.programs import Programs
from ..compile.seq2seq import compile_seq2seq
from ..compile.seq2seq_files import TARGET_FIELDS, json_of, with_decoder
from ..declare.registers import Registers
from ..ir import Graph
from ..processors.images import Description, read_description
from ..processors.images.graph import image_graph

if TYPE_CHECKING:
    from ...logic.manifest.processor import Processor
    from ..package import Package
    from . import Request

CONFIG = "preprocessor_config.json"
MAX_PROMPT = 256
"""Tokens of a prompt of Florence-2."""


def picture_text_package(request: Request) -> Package:
    """Makes the package. Raises as compile_task."""
    description, size = _description(request)
    places = "vision_encoder" in request.graphs
    seeing = request.read("vision_encoder" if places else "encoder_model")
    pixels = {"pixel_values": [1, 3, *size]}
    if [i.name for i in seeing.input_names()] != ["pixel_values"]:
        raise UnsupportedOp(
            f"its inputs are {', '.join(i.name for i in seeing.input_names())[:200]}",
            seeing.name or "encoder_model",
            "Export the model with pixel_values of [batch, 3, height, width].",
        )
    positions, width = _sizes(seeing, pixels)
    most = positions + (_room(request, positions) if places else 0)
    package = compile_seq2seq(
        request.files,
        capacity=request.max_length,
        cache_dtype=request.cache_dtype,
        target=request.target,
        source_lengths=[most],
        graphs={n: f for n, f in request.graphs.items() if n != "vision_encoder"},
        task=request.task,
    )
    package.blobs |= request.texts
    programs = Programs(request.task, request.files, {}, request.target, request.compare, package)
    programs.add("pre", image_graph(description), [({"pixels": [*size, 3]}, None)])
    output = [seeing.outputs[0].name]
    programs.add("vision" if places else "encoder", seeing, [(pixels, None)], output)
    if places:
        _add_prompts(programs, request, positions, most, width)
    processor: Processor = {"image": description.to_dict()}
    if places:
        processor["places"] = True
    package.manifest["processor"] = processor
    return package


def _description(request: Request) -> tuple[Description, tuple[int, int]]:
    """What happens to pictures, and their height and width after it. Raises InputError."""
    if CONFIG not in request.texts:
        raise InputError("there is none", CONFIG, f"Put the model's {CONFIG} into its folder.")
    config = parse_json(request.texts[CONFIG], CONFIG)
    description = read_description(config if isinstance(config, dict) else {}, CONFIG)
    if description.size is None or description.mask or description.frame:
        raise UnsupportedOp(
            "the size of its result depends on the picture",
            CONFIG,
            "Set size to a height and a width, or use the model in Python.",
        )
    return description, description.size


def _sizes(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> tuple[int, int]:
    """Positions and width of a graph's first output. Raises UnsupportedOp."""
    name = graph.outputs[0].name
    shape = list(bind(graph, {n: list(s) for n, s in shapes.items()}).outputs[name].shape)
    if len(shape) != 3 or not all(type(d) is int for d in shape):
        raise UnsupportedOp(
            f"it gives {shape}",
            f"output '{name}'",
            "An encoder of pictures gives [1, positions, width].",
        )
    return int(shape[1]), int(shape[2])


def _room(request: Request, positions: int) -> int:
    """Tokens of a prompt. Raises InputError."""
    config = with_decoder(json_of(request.texts, "config.json"))
    limits = [config[n] for n in TARGET_FIELDS if type(config.get(n)) is int]
    room = min([MAX_PROMPT, *(n - positions for n in limits)])
    if room < 1:
        raise InputError(
            f"a picture has {positions} positions, and the encoder {min(limits)}",
            "config.json",
            f"Do the model and its {CONFIG} belong together?",
        )
    return room


def _add_prompts(
    programs: Programs, request: Request, positions: int, most: int, width: int
) -> None:
    """Adds the programs of prompts of any length."""
    embedding, encoder = request.read("embed_tokens"), request.read("encoder_model")
    (ids,) = (i.name for i in embedding.input_names())
    length = Registers([(1, most - positions)]).length(0)
    programs.add("embed", embedding, [({ids: [1, length]}, None)], [embedding.outputs[0].name])
    length = Registers([(positions + 1, most)]).length(0)
    shapes: dict[str, list[Any]] = {
        "inputs_embeds": [1, length, width],
        "attention_mask": [1, length],
    }
    given = {i.name: shapes[i.name] for i in encoder.input_names() if i.name in shapes}
    programs.add("encoder", encoder, [(given, None)], [encoder.outputs[0].name])
