"""Packages of language models that see pictures or hear sounds: the programs "pre", from pixels or
samples to numbers, and "vision" or "hearing", from these to features; and a decoder whose plans
take features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from ...errors import InputError, UnsupportedOp
from ...json_text import parse_json
from ...logic.images.views import Seen, View, pixel_dims, seen
from ...logic.multimodal.encoder import features_of, others_of, pieces_at_once, pixels_of, strips
from ..compile.causal_lm import CHUNKS, compile_causal_lm
from ..compile.features import sees, text_config, with_reach
from ..compile.join import join_embedding
from ..compile.layer_names import name_layers
from ..compile.model_file import read_config
from ..compile.programs import Programs
from ..compile.selection import with_all_selected
from ..compile.weights import add_plans, new_package
from ..declare.dtypes import INT64
from ..declare.registers import Registers
from ..declare.symbolic import NeedsHost, NotStatic
from ..ir import Graph, Info, NeedsValue, Node, Tensor
from ..processors.audio import AudioProcessor
from ..processors.audio.heard import Wanted
from ..processors.audio.told import Told, in_blocks, told_graph
from ..processors.images.vision import VisionDescription, read_vision, vision_graph
from ..processors.prompts import picture_rule, reach_of, video_rule
from ..processors.reader import audio_processor
from ..processors.sounds import sound_rule
from ..training.package import adapter_programs, add_training
from .divided import HEAD, divided, with_head
from .joined import add_mixing, check_line, with_line
from .kept_graphs import keep_graph

if TYPE_CHECKING:
    from ...logic.manifest.processor import (
        AudioFields,
        PromptFields,
        SoundPromptFields,
        VideoFields,
    )
    from ...logic.manifest.schema import Decoder
    from ...logic.multimodal.families.pictures import PictureRule
    from ...logic.multimodal.families.sounds import SoundRule
    from ...logic.multimodal.families.videos import VideoRule
    from ...logic.multimodal.prompt import Sees
    from ..package import Package
    from . import Request

CONFIGS = (
    "processor_config.json",
    "preprocessor_config.json",
    "config.json",
    "tokenizer_config.json",
)
ROOM = 64  # tokens of texts in a run that takes pictures as a whole
EMBEDDINGS = ("embed_tokens", "embedding")
PICTURES = [(480, 640), (640, 480), (300, 1000), (64, 64)]
"""Sizes of pictures for which processors of one size make pieces of one size."""
MAX_SECONDS = 60  # of a sound in a package, where the encoder has no windows
MIN_ROWS = (2, 4, 16, 64)  # of samples, that a plan may begin with
HEARING, GENAI_HEARING = "audio_encoder", "speech"  # names of encoders of sounds


def multimodal_package(request: Request) -> Package:
    """The package of a model that sees pictures, or hears. Raises as compile_task."""
    first = next(iter(request.graphs))
    embedding, language, encoder = _graphs(request)
    described = None if first in (HEARING, GENAI_HEARING) else _vision(request.texts)
    package = _language_package(request, embedding, language, described)
    decoder = package.manifest["decoder"]
    programs = Programs(request.task, request.files, {}, request.target, request.compare, package)
    if described is None:
        rule, audio = add_hearing(programs, request.read(first), f"{first}.onnx", request, decoder)
        package.manifest["processor"] = {"audio": audio, "sounds": cast("SoundPromptFields", rule)}
        return package
    description, pictures = described
    package.manifest["processor"] = {
        "vision": description.to_dict(),
        "pictures": cast("PromptFields", pictures),
    }
    videos = _videos(request.texts, description)
    if videos is not None:
        package.manifest["processor"]["videos"] = cast("VideoFields", videos)
    if takes_any_size(description) and (request.any_size or encoder is None):
        _add_numbers(programs, description)
        file = request.graphs[first]
        if not request.any_size:
            file = keep_graph(package, request.files[file], f"{first}.onnx")
        package.manifest["processor"]["encoder"] = file
    else:
        encoder = encoder or request.read(first)
        if pictures["rule"] == "anyres":
            encoder = with_line(encoder, features_of([o.name for o in encoder.outputs])[0])
            add_mixing(programs, decoder["features"])
        add_vision(programs, encoder, f"{first}.onnx", description, decoder)
        if pictures["rule"] == "anyres":
            (made,) = programs.package.manifest["programs"]["vision"]["plans"]
            ((_, _, dims, _),) = made["outputs"].values()
            check_line(dims, pictures["count"], f"{first}.onnx")
    return package


def _language_package(
    request: Request,
    embedding: Graph,
    language: Graph,
    described: tuple[VisionDescription, PictureRule] | None,
) -> Package:
    """The package with the decoder, and the programs that train its adapters.

    Args:
        request: of the package.
        embedding, language: graphs of the decoder.
        described: as of `_reaching`.
    """
    trained, lora = adapter_programs(request.training)
    if trained and described is None:
        raise InputError("models that hear are not trained", "training", "Leave it out.")
    whole = read_config(request.files)
    config = text_config(whole)
    name_layers(language, whole)
    graph = join_embedding(embedding, language, config)
    graph, where, chunks = _reaching(graph, described, whole)
    decoder, plans = compile_causal_lm(
        graph,
        config,
        request.max_length,
        chunks,
        lora or request.lora,
        cache_dtype=request.cache_dtype,
        target=request.target,
    )
    if where is not None:
        decoder["sees"] = where
    fields = {"decoder": decoder}
    package = new_package(request.task, fields, request.texts, request.files, request.target)
    package.graph = graph
    add_plans(package, [(d["file"], plan) for plan, d in zip(plans, decoder["plans"])])
    for program in trained:
        add_training(package, program.pop("name"), target=request.target, **program)
    return package


def _graphs(request: Request) -> tuple[Graph, Graph, Graph | None]:
    """The embedding of token ids, the decoder, and the encoder; None: it is a file of its own."""
    first, second, third = request.graphs
    if third != HEAD:
        return request.read(second), request.read(third), None
    encoder, embedding = divided(request.read(first))
    return embedding, with_head(request.read(second), request.read(third)), encoder


def _reaching(
    graph: Graph, described: tuple[VisionDescription, PictureRule] | None, config: Mapping[str, Any]
) -> tuple[Graph, Sees | None, Sequence[int]]:
    """The decoder with what tokens see that come after them.

    Args:
        graph: the decoder.
        described: what happens to pictures, and what stands for them; None: it sees none.
        config: contents of config.json.

    Returns:
        (the decoder, where its tokens see others after them, tokens per run)
    """
    kind = None if described is None else reach_of(config)
    where = None if kind is None else sees(graph, kind == "prompt")
    if where is None or described is None:
        return graph, None, CHUNKS
    one = -(-(described[1]["count"] + ROOM) // ROOM) * ROOM
    more = [times * one for times in (1, 2, 4) if times * one > max(CHUNKS)]
    return with_reach(graph, where), where, [*CHUNKS, *more]


def add_hearing(
    programs: Programs, graph: Graph, file: str, request: Request, decoder: Decoder
) -> tuple[SoundRule, AudioFields]:
    """Adds the programs "pre", from samples to the encoder's inputs, and "hearing", to features
    [rows, width]; for sounds of any length these have a plan for a range of lengths, unless the
    caller runs the graphs in sessions.

    Args:
        programs: of the package.
        graph: the encoder of sounds.
        file: its name, for errors.
        request: of the package.
        decoder: takes the features.

    Returns:
        (the rule of prompts, what happens to samples)
    """
    hearing = read_hearing(request.texts)
    encoder, wanted = _hearing_inputs(graph, hearing, file)
    told, rule = hearing.told, hearing.rule
    if told is not None:
        if not request.any_length:
            most = _add_any_length(programs, encoder, told_graph(told, wanted), hearing, decoder)
            rule["any_length"]["most"] = most
        return rule, hearing.processor.description()
    programs.add("pre", hearing.processor.graph(), [({"audio": [1, rule["size"]]}, None)])
    (made,) = programs.package.manifest["programs"]["pre"]["plans"]
    ((_, _, shape, _),) = made["outputs"].values()
    frames = shape[2]
    shapes = {wanted.features[0]: shape}
    if wanted.mask is not None:
        shapes[wanted.mask[0]] = [1, frames]
    _add_encoder(programs, encoder, decoder, shapes, "hearing")
    return rule, hearing.processor.description()


@dataclass(frozen=True)
class Hearing:
    """How a language model hears.

    Attributes:
        processor: of sound.
        rule: of prompts.
        told: features, if the encoder hears sounds of any length.
    """

    processor: AudioProcessor
    rule: SoundRule
    told: Told | None


def read_hearing(texts: Mapping[str, bytes]) -> Hearing:
    """Reads the configuration of a language model that hears. Raises InputError."""
    processor, settings, config = (_json(texts, CONFIGS[i]) for i in (1, 0, 2))
    inner = settings.get("audio_processor", settings)  # Granite Speech's
    sound = audio_processor(processor or inner)
    return Hearing(sound, *sound_rule(sound, config, settings))


def hearing_graphs(texts: Mapping[str, bytes], graph: Graph, file: str) -> tuple[Graph, Graph]:
    """The graphs "pre" and "hearing" for an encoder that hears sounds of any length.

    Args:
        texts: small files of the model.
        graph, file: as of add_hearing.
    """
    hearing = read_hearing(texts)
    assert hearing.told is not None
    encoder, wanted = _hearing_inputs(graph, hearing, file)
    return told_graph(hearing.told, wanted), encoder.graph


def _hearing_inputs(graph: Graph, hearing: Hearing, file: str) -> tuple[_Encoder, Wanted]:
    """The inputs of an encoder of sounds. Raises UnsupportedOp."""
    features = next((i for i in graph.input_names() if len(i.shape or ()) == 3), None)
    masks = [i for i in graph.input_names() if i is not features]
    if features is None or len(masks) > 1 or any("mask" not in i.name for i in masks):
        raise UnsupportedOp(
            f"its inputs are {', '.join(i.name for i in graph.input_names())}",
            file,
            "Export the encoder of sounds with features and at most their mask.",
        )
    told = hearing.told
    mask = next(iter(masks), None)
    if told is not None and told.block > 1:
        graph = in_blocks(graph, told, features, mask)
        features, *rest = graph.inputs[-1 - len(masks) :]
        mask = next(iter(rest), None)
    turned = told is None or not told.pairs
    given = None if mask is None else (mask.name, mask.dtype)
    wanted = Wanted((features.name, features.dtype), turned, None, given)
    return _Encoder(graph, features, file), wanted


def _add_any_length(
    programs: Programs, encoder: _Encoder, pre: Graph, hearing: Hearing, decoder: Decoder
) -> int:
    """Adds the programs for sounds of any length; returns the most samples of a sound."""
    told, size = hearing.told, hearing.rule["size"]
    assert told is not None
    most = size or MAX_SECONDS * told.rate
    output, *_ = features_of([o.name for o in encoder.graph.outputs])
    width = told.mels * (2 if told.pairs else 1)
    high = (most + told.extra) // told.unit + 1

    def check(plan: Any) -> None:
        width = plan["outputs"][output][2][-1]  # the others follow a length
        strips([[width]], decoder["features"], encoder.file)

    for low in MIN_ROWS:
        blocks = Registers([(low - 1, high - 1)]).length(0)
        inner: list[Any] = [1, blocks, width] if told.pairs else [1, width, blocks]
        if told.block > 1:
            inner = [blocks, told.block, width]
        shapes = {encoder.pixels.name: inner}
        for info in encoder.graph.input_names():
            mask = [blocks, told.block] if told.block > 1 else [1, blocks]
            shapes.setdefault(info.name, mask)
        try:
            programs.add("hearing", encoder.graph, [(shapes, None)], [output], check)
        except (NotStatic, NeedsValue, NeedsHost):
            continue
        rows = Registers([(low, high)]).length(0)
        programs.add("pre", pre, [({"audio": [rows, told.unit], "valid": [1]}, None)])
        over = hearing.rule["any_length"]
        over["least"] = max(over["least"], (low - 1) * told.unit - told.extra)
        return most
    raise UnsupportedOp(
        "its shapes do not follow from the length of a sound",
        encoder.file,
        "Run it in Python, from its folder, or export the encoder with sizes that are products,"
        " sums and rounded quotients of the number of frames.",
    )


def _json(texts: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """A configuration file; empty where there is none."""
    value = parse_json(texts[name], name) if name in texts else {}
    return value if isinstance(value, dict) else {}


def _vision(texts: Mapping[str, bytes]) -> tuple[VisionDescription, PictureRule]:
    """What happens to pictures, and what stands for them in prompts. Raises InputError."""
    processor, image, config, tokenizer = (_json(texts, name) for name in CONFIGS)
    if not image and "image_processor" not in processor:
        raise InputError(
            "there is none", CONFIGS[1], "Put the model's preprocessor_config.json into its folder."
        )
    where = CONFIGS[0] if "image_processor" in processor else CONFIGS[1]
    description = read_vision(processor if where == CONFIGS[0] else image, where, processor)
    return description, picture_rule(description, config, processor, image, tokenizer)


def _videos(texts: Mapping[str, bytes], description: VisionDescription) -> VideoRule | None:
    """How videos are seen. Raises InputError."""
    processor, image, config, _ = (_json(texts, name) for name in CONFIGS)
    video = _json(texts, "video_preprocessor_config.json")
    return video_rule(description, config, processor, image, video)


@dataclass
class _Encoder:
    """The encoder of pictures.

    Attributes:
        graph: its graph.
        pixels: its input of numbers.
        file: its name, for errors.
    """

    graph: Graph
    pixels: Info
    file: str


def add_vision(
    programs: Programs, graph: Graph, file: str, description: VisionDescription, decoder: Decoder
) -> None:
    """Adds the programs "pre" and "vision".

    Args:
        programs: of the package.
        graph: the encoder of pictures.
        file: its name, for errors.
        description: what happens to pictures.
        decoder: takes the features.
    """
    infos = {i.name: i for i in graph.input_names()}
    pixels = infos[pixels_of([*infos], file)]
    encoder = _Encoder(with_all_selected(graph, pixels.name), pixels, file)
    _add_planes(programs, encoder, description, decoder)


def takes_any_size(description: VisionDescription) -> bool:
    """Whether the size of the pieces of a picture depends on its own, or their number counts."""
    return len(_sizes(description)) > 1 or description.form != "planes"


def _sizes(description: VisionDescription) -> set[tuple[int, int]]:
    """Sizes of the pieces of pictures."""
    return {seen(description.rule, *size).piece for size in PICTURES}


def _add_numbers(programs: Programs, description: VisionDescription) -> None:
    """Adds "pre" for pictures of any size: its runs are those of multimodal.encoder.batches."""
    (high, wide), *_ = _sizes(description)
    what = Seen([], (high, wide), (high, wide), (high, wide))
    register = (1, pieces_at_once(description.form, what))
    count = Registers([register]).length(0)
    shape = [1, count, 1, 3] if description.form == "planes" else [count, high, wide, 3]
    programs.add("pre", vision_graph(description), [({"pixels": shape}, None)])


def _add_planes(
    programs: Programs, encoder: _Encoder, description: VisionDescription, decoder: Decoder
) -> None:
    """The programs for pictures that are encoded square by square, or as a whole of one size.

    Raises UnsupportedOp for pictures of any size.
    """
    if takes_any_size(description):
        raise UnsupportedOp(
            "its encoder takes pictures of any size",
            encoder.file,
            "Give a page or Python the model's folder or the id of the model, which compile a plan"
            " for each size, or take a model whose processor makes squares of one size, such as"
            " SmolVLM.",
        )
    [(high, wide)] = _sizes(description)
    what = Seen([View([], high, wide)], (high, wide), (high, wide), (high, wide))
    pre = vision_graph(description)
    programs.add("pre", pre, [({"pixels": [1, high, wide, 3]}, None)])
    rank = len(encoder.pixels.shape or ())
    shapes = {encoder.pixels.name: pixel_dims(description.form, description.temporal, what, rank)}
    _add_encoder(programs, _with_constants(encoder, what), decoder, shapes)


def _with_constants(encoder: _Encoder, what: Seen) -> _Encoder:
    """The encoder without the inputs that are the same for each picture. Raises UnsupportedOp."""
    others = [i for i in encoder.graph.input_names() if i.name != encoder.pixels.name]
    given = {f.name: f for f in others_of([i.name for i in others], what, encoder.file)}
    nodes, constants = [], {}
    for info in others:
        further = given[info.name]
        numbers = [value for value, times in further.runs for _ in range(times)]
        if len(further.runs) == 1:  # made by the plan, not kept with it
            size = f"{info.name}/dims"
            constants[size] = Tensor.of(size, INT64, [len(further.dims)], further.dims)
            value = {"value": Tensor.of("value", info.dtype, [1], numbers[:1])}
            nodes.append(Node("ConstantOfShape", [size], [info.name], value, name=info.name))
        else:
            constants[info.name] = Tensor.of(info.name, info.dtype, further.dims, numbers)
    graph = replace(
        encoder.graph,
        nodes=[*nodes, *encoder.graph.nodes],
        inputs=[i for i in encoder.graph.inputs if i.name not in given],
        constants={**encoder.graph.constants, **constants},
        values=None,
    )
    return replace(encoder, graph=graph)


def _add_encoder(
    programs: Programs,
    encoder: _Encoder,
    decoder: Decoder,
    shapes: Mapping[str, Any],
    program: str = "vision",
) -> None:
    """Adds the program of an encoder. Raises InputError if its features do not fit the decoder."""
    outputs = features_of([o.name for o in encoder.graph.outputs])

    def check(plan: Any) -> None:
        dims = [plan["outputs"][name][2] for name in outputs]
        strips(dims, decoder["features"], encoder.file)

    programs.add(program, encoder.graph, [(shapes, None)], outputs, check)
