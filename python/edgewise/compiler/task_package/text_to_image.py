"""Packages of text-to-image: the graphs of a diffusion model for one size of pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InputError, UnsupportedOp
from ...logic.diffusion.encoders import text_outputs
from ..compile.model_file import MAX_TEXT
from ..ir import Graph
from ..processors.diffusion.facts import (
    FILES,
    INPUTS,
    KINDS,
    SAFETY_CONFIG,
    check_text_outputs,
    json_of,
    read_facts,
)
from ..processors.diffusion.graphs import noise_graph, picture_graph, pixels_graph
from ..tokenizers.clip import clip_files

if TYPE_CHECKING:
    from ...logic.diffusion.options import Facts
    from ...logic.manifest.processor import DiffusionFields, ImageFields, Processor
    from ..compile.programs import Programs
    from ..package import Package
    from . import Request

DEFAULT_LENGTH = 77  # tokens of a prompt
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def text_to_image_package(request: Request) -> Package:
    """The package of a diffusion model. Its programs are its graphs ("text_encoder", "unet",
    "vae_decoder" and, where they exist, "vae_encoder" and "safety_checker"), and "noise",
    "picture", "pixels" (processors/diffusion/graphs.py) and "pre", which makes the safety checker's
    input.

    Raises:
        InputError: a size is not valid, or a file is missing.
        UnsupportedOp: an operator or an input is not supported.
    """
    if request.max_length is not None:
        raise InputError("the length of prompts is the model's", "max_length", "Leave it out.")
    texts = _texts(request)
    facts = read_facts(texts.get)
    request.texts.update(_tokenizer(texts, "tokenizer"))
    height, width = _size(request, facts)
    programs = request.programs()
    pixels = [facts.scale * height, facts.scale * width]
    latents = [facts.channels, height, width]
    text, unet = request.read("text_encoder/model"), request.read("unet/model")
    length = _fixed(text, "input_ids", 1) or DEFAULT_LENGTH
    hidden = _hidden(unet)
    shapes: dict[str, dict[str, list[int]]] = {
        "text_encoder": {"input_ids": [length], "attention_mask": [length]},
        "text_encoder_2": {"input_ids": [length], "attention_mask": [length]},
        "unet": {
            "sample": [facts.inputs, height, width],
            "text_embeds": [_fixed(unet, "text_embeds", 1) or 0],
            "time_ids": [6],
            "encoder_hidden_states": [length, hidden],
            "timestep_cond": [facts.cond or 256],
        },
        "vae_decoder": {"latent_sample": latents},
        "vae_encoder": {"sample": [3, *pixels]},
        "safety_checker": {"clip_input": [3, 224, 224], "images": [*pixels, 3]},
    }
    described: DiffusionFields = {
        "kind": facts.kind,
        "scheduler": {k: v for k, v in facts.scheduler.items() if v is not None},
        "size": (height, width),
        "channels": facts.channels,
        "scale": facts.scale,
        "factor": facts.factor,
        "shift": facts.shift,
        "cond": facts.cond,
        "checked": facts.checked,
        "length": length,
        "inputs": facts.inputs,
        "xl": facts.xl,
        "zeros": facts.zeros,
        "pad": _second_pad(texts) if facts.xl else None,
    }
    processor: Processor = {"diffusion": described}
    if "safety_checker/model" in request.graphs:
        image, side = _add_safety(programs, texts)
        processor["image"] = image
        shapes["safety_checker"]["clip_input"] = [3, *side]
    for stem in request.graphs:
        name = stem.split("/")[0]
        graph = {"text_encoder": text, "unet": unet}.get(name) or request.read(stem)
        programs.add(
            name, graph, [(_shapes(graph, name, shapes[name]), None)], _output(graph, name, facts)
        )
    programs.add("noise", noise_graph(*latents), [({}, None)])
    programs.add("picture", picture_graph(), [({"sample": [1, 3, *pixels]}, None)])
    if "vae_encoder/model" in request.graphs:
        programs.add("pixels", pixels_graph(), [({"pixels": [*pixels, 3]}, None)])
    programs.package.manifest["processor"] = processor
    return programs.package


def _texts(request: Request) -> dict[str, bytes]:
    """{name of FILES: bytes}; names in `files` may begin with the model's folder."""
    texts = {}
    for name in FILES:
        for path, source in request.files.items():
            if (path == name or path.endswith("/" + name)) and source.size <= MAX_TEXT:
                texts[name] = source.read_all(MAX_TEXT)
    return texts


def _tokenizer(texts: dict[str, bytes], folder: str) -> dict[str, bytes]:
    """The files of a tokenizer for a page."""
    read = clip_files(lambda name: texts.get(f"{folder}/{name}"), folder)
    found = {name: read(name) for name in TOKENIZER}
    return {name: bytes(data) for name, data in found.items() if data is not None}


def _second_pad(texts: dict[str, bytes]) -> int | None:
    """The id of padding for the second text encoder, whose tokenizer has the words of the first."""
    first, second = (_tokenizer(texts, folder) for folder in ("tokenizer", "tokenizer_2"))
    name = "tokenizer.json"
    models = [json_of(files.get(name), name) for files in (first, second)]
    vocab = models[1].get("model", {})
    if models[0].get("model") != vocab:
        raise UnsupportedOp(
            "it has other words than that of the first text encoder",
            "tokenizer_2/tokenizer.json",
            "Packages hold one tokenizer.",
        )
    config = json_of(second.get("tokenizer_config.json"), "tokenizer_2/tokenizer_config.json")
    token = config.get("pad_token")
    token = token.get("content") if isinstance(token, dict) else token
    added = {t.get("content"): t.get("id") for t in models[1].get("added_tokens") or []}
    found = added.get(token, vocab.get("vocab", {}).get(token))
    return found if type(found) is int else None


def _size(request: Request, facts: Facts) -> tuple[int, int]:
    """Height and width of the latents."""
    size = []
    dims = dict(request.dims or {})
    for name, own in zip(("height", "width"), facts.size):
        pixels = dims.pop(name, own * facts.scale)
        if pixels < facts.scale or pixels % facts.scale:
            raise InputError(
                f"{pixels} is no multiple of {facts.scale}", name, "Round it to the next one."
            )
        size.append(pixels // facts.scale)
    if dims:
        raise InputError(f"there is no size {next(iter(dims))!r}", "dims", "Give height and width.")
    return size[0], size[1]


def _fixed(graph: Graph, name: str, axis: int) -> int | None:
    """A dimension of an input that the graph fixes."""
    info = next((i for i in graph.input_names() if i.name == name), None)
    shape = info.shape if info is not None else None
    size = shape[axis] if shape is not None and len(shape) > axis else None
    return size if isinstance(size, int) and size > 0 else None


def _hidden(unet: Graph) -> int:
    size = _fixed(unet, "encoder_hidden_states", 2)
    if size is None:
        raise UnsupportedOp(
            "the size of encoder_hidden_states is not in the graph",
            "unet/model.onnx",
            "Export it with optimum.",
        )
    return size


def _shapes(graph: Graph, part: str, known: dict[str, list[int]]) -> dict[str, list[int]]:
    """Shapes of the inputs, for one row or as many as the graph fixes."""
    shapes: dict[str, list[int]] = {}
    for info in graph.input_names():
        if info.name not in INPUTS[part]:
            raise UnsupportedOp(
                f"its input '{info.name}' is none that this pipeline feeds",
                f"{part}/model.onnx",
                f"Supported are {KINDS}.",
            )
        if info.name == "timestep":
            shapes[info.name] = [_fixed(graph, info.name, 0) or 1] * len(info.shape or ())
            continue
        wanted = [_fixed(graph, info.name, 0) or 1, *known[info.name]]
        fixed = [_fixed(graph, info.name, axis) for axis in range(len(wanted))]
        if any(f not in (None, w) for f, w in zip(fixed, wanted)):
            raise InputError(
                f"the graph has the shape {info.shape}, the package needs {wanted}",
                f"{part}/model.onnx, input '{info.name}'",
                "Build it for that size: --dims height=...,width=....",
            )
        shapes[info.name] = wanted
    return shapes


def _output(graph: Graph, part: str, facts: Facts) -> list[str]:
    """The outputs that are read."""
    names = [o.name for o in graph.outputs]
    if part.startswith("text_encoder"):
        read = text_outputs(names, facts.xl)
        check_text_outputs(read, facts.xl, part)
        return read
    wanted = "has_nsfw_concepts"
    return [wanted] if part == "safety_checker" and wanted in names else names[:1]


def _add_safety(programs: Programs, texts: dict[str, bytes]) -> tuple[ImageFields, tuple[int, int]]:
    """Adds the program "pre"; returns the description of its pictures, and their size."""
    from ..processors.images import read_description
    from ..processors.images.graph import image_graph

    if SAFETY_CONFIG not in texts:
        raise InputError("the safety checker needs it", SAFETY_CONFIG, "Copy it from the model.")
    description = read_description(json_of(texts[SAFETY_CONFIG], SAFETY_CONFIG), SAFETY_CONFIG)
    size = description.size
    if size is None:
        raise UnsupportedOp("its pictures have no fixed size", SAFETY_CONFIG, "Set crop_size.")
    graph = image_graph(description, *size)
    programs.add("pre", graph, [({"pixels": [*size, 3]}, None)])
    return description.to_dict(), size
