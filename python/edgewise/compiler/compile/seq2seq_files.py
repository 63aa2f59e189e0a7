"""What an encoder-decoder model consists of: its graphs, and the sizes that its files name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from ...errors import InputError, UnsupportedOp
from ...json_text import parse_json
from ...logic.manifest.limits import Run
from ...logic.manifest.schema import Seq2SeqPlan
from ..declare.dtypes import INT64
from ..ir import Graph, Info, Node, Tensor
from ..onnx import read_model
from ..onnx.source import Source
from ..plan import Plan
from .caches import CACHE_NAME
from .join import join_embedding
from .model_file import find_model_file

# Positions of the outputs of encoders of samples: 41.7 per second for Moonshine.
SOUND_LENGTHS = (64, 256, 1024, 1664)
# Of those of pictures: 577 for 384 pixels, with prompts in Florence-2; 4800 for Donut.
PICTURE_LENGTHS = (64, 256, 640, 1024, 2048, 4864)
SOURCE_LENGTHS = (16, 32, 64, 128, 256, 512)  # positions that encoders of text are compiled for
TARGET_FIELDS = ("max_target_positions", "max_position_embeddings", "n_positions")


@dataclass
class Graphs:
    """The graphs of a model; `first` and `step` are one graph where the decoder is merged.

    `cross` computes the keys and values of cross attention: as `first`, or see hidden_states.py.
    """

    encoder: Graph
    first: Graph
    step: Graph
    cross: Graph | None = None


def read_graphs(
    files: Mapping[str, Source],
    dtype: str | Mapping[str, str] | None,
    graphs: Mapping[str, str] | None,
) -> Graphs:
    """Reads the graphs of a model.

    Args:
        files, dtype, graphs: as of compile_seq2seq.

    Raises:
        InputError: a file is missing. UnsupportedOp: the decoder has no logits.
    """

    def read(stem: str, optional: bool = False) -> Graph | None:
        suffix = dtype.get(stem) if isinstance(dtype, Mapping) else dtype
        name = find_model_file(files, stem, suffix) if graphs is None else graphs.get(stem)
        if name is None and not optional:
            raise InputError(
                f"there is no {stem}.onnx",
                ", ".join(sorted(n for n in files if n.endswith(".onnx"))) or "empty folder",
                "Export the model with optimum-cli (encoder_model, and decoder_model_merged or"
                " decoder_model with decoder_with_past_model).",
            )
        return None if name is None else read_model(files[name])

    encoder, merged = read("encoder_model"), read("decoder_model_merged", True)
    assert encoder is not None
    if merged is not None:
        first = step = merged
    else:
        without, with_past = read("decoder_model"), read("decoder_with_past_model")
        assert without is not None and with_past is not None
        first, step = without, with_past
        _share(first, step)
        _rename(step, "step/", first)
    _rename(encoder, "encoder/", first)
    for name, graph, wanted in (("encoder", encoder, None), ("decoder", first, "logits")):
        if wanted is not None and not any(o.name == wanted for o in graph.outputs):
            raise UnsupportedOp(
                f"outputs {', '.join(o.name for o in graph.outputs)[:200]} are not a {name}'s",
                graph.name or name,
                "Export the model with optimum-cli.",
            )
    embedding = read("embed_tokens", True)
    if embedding is not None and not any(i.name == "input_ids" for i in first.input_names()):
        same = first is step
        first = join_embedding(embedding, first)
        step = first if same else join_embedding(embedding, step)
    return with_states(Graphs(encoder, first, step))


STATES = "past_key_values.0.encoder.states"
"""The name of a cache of the encoder's output itself."""


def with_states(graphs: Graphs) -> Graphs:
    """The graphs, of a decoder that attends to the encoder's output in each step (GPT-2), and has
    no keys and values of it: the output itself becomes a cache, [1, 1, positions, width].
    """
    step, hidden = graphs.step, "encoder_hidden_states"
    inputs = {i.name: i for i in step.input_names()}
    kept = any(".encoder." in name for name in inputs)
    if kept or hidden not in inputs or not any(map(CACHE_NAME.search, inputs)):
        return graphs
    shape = inputs[hidden].shape or [None, None, None]
    info = Info(STATES, inputs[hidden].dtype, [shape[0], 1, *shape[1:]])
    axis = Tensor.of("states_axis", INT64, [1], [1])

    def taking(graph: Graph) -> Graph:
        return replace(
            graph,
            nodes=[Node("Squeeze", [STATES, axis.name], [hidden]), *graph.nodes],
            inputs=[info if i.name == hidden else i for i in graph.inputs],
            constants={axis.name: axis, **graph.constants},
            values=None,
        )

    made = taking(step)
    cross = Graph(
        "states",
        [Node("Unsqueeze", [hidden, axis.name], [present_name(STATES)])],
        [inputs[hidden]],
        [replace(info, name=present_name(STATES))],
        constants={axis.name: axis},
        opsets={"": max(13, step.opsets.get("", 13))},
        ir_version=step.ir_version,
        about=step.about,
    )
    return Graphs(
        graphs.encoder, made if graphs.first is step else taking(graphs.first), made, cross
    )


def present_name(name: str) -> str:
    """The output that belongs to an input past_key_values.*"""
    return name.replace("past_key_values", "present")


def _share(first: Graph, step: Graph) -> None:
    """Lets equal constants of the two files of a decoder be one tensor, which is loaded once."""
    for name, t in step.constants.items():
        same = first.constants.get(name)
        if (
            same is not None
            and t.strings is None
            and (same.dtype, same.shape, same.nbytes) == (t.dtype, t.shape, t.nbytes)
            and same.bytes() == t.bytes()
        ):
            step.constants[name] = same


def _rename(graph: Graph, prefix: str, first: Graph) -> None:
    """Gives a file's constants names of their own: weights are stored by name, and exporters number
    them from 0 in each file. Those that `_share` took from `first` keep theirs.
    """
    kept = set(map(id, first.constants.values()))
    for t in graph.constants.values():
        if id(t) not in kept:
            t.name = prefix + t.name


def json_of(texts: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """A configuration file as a dict; {} where there is none."""
    found = parse_json(texts[name], name) if name in texts else {}
    return found if isinstance(found, dict) else {}


def with_decoder(config: Mapping[str, Any]) -> dict[str, Any]:
    """A model's configuration with the fields that that of its decoder of text has within it."""
    for name in ("decoder", "text_config"):
        inner = config.get(name)
        if isinstance(inner, dict):
            return {**inner, **config}
    return dict(config)


def width(graph: Graph, config: Mapping[str, Any]) -> int:
    """Elements of one position of the encoder's output."""
    inputs = {i.name: i for i in graph.input_names()}
    info = inputs.get("encoder_hidden_states", inputs.get(STATES))
    if info is not None and info.shape and isinstance(info.shape[-1], int):
        return info.shape[-1]
    for name in ("d_model", "hidden_size"):
        if type(config.get(name)) is int:
            return int(config[name])
    raise UnsupportedOp(
        "the size of the encoder's output is not known",
        graph.name or "decoder",
        "Put the model's config.json beside it.",
    )


def source_lengths(
    encoder: Graph, config: Mapping[str, Any], given: Sequence[int] | None
) -> tuple[dict[int, int], bool]:
    """({size of the input: positions of the output}, whether there is one size only)."""
    names = {i.name: i for i in encoder.input_names()}
    if "input_features" in names:  # Whisper: windows of 30 s, two frames a position
        positions = config.get("max_source_positions", 1500)
        return {2 * positions: positions}, True
    if "input_values" in names:  # the encoder is run by itself, and gives any number of positions
        return {n: n for n in given or SOUND_LENGTHS}, False
    if "pixel_values" in names or "inputs_embeds" in names:  # likewise; see picture_positions
        return {n: n for n in given or PICTURE_LENGTHS}, False
    if "input_ids" not in names:
        raise UnsupportedOp(
            f"its inputs are {', '.join(names)}",
            encoder.name or "encoder",
            "Encoder-decoder models of text (input_ids), features (input_features), samples"
            " (input_values) and pictures (pixel_values) are supported.",
        )
    limit = next((config[k] for k in TARGET_FIELDS[1:] if type(config.get(k)) is int), 512)
    lengths = given or [*(n for n in SOURCE_LENGTHS if n < min(limit, 512)), min(limit, 512)]
    if not all(type(n) is int and n > 0 for n in lengths):
        raise InputError(f"{lengths!r} are no lengths", "source_lengths", "Give integers above 0.")
    return {n: n for n in sorted(set(lengths))}, False


def alignment_heads(config: Mapping[str, Any], generation: Mapping[str, Any]) -> list[list[int]]:
    """Heads whose weights tell which sound a token belongs to; for Whisper only."""
    if config.get("model_type") != "whisper":
        return []
    layers, heads = config.get("decoder_layers", 0), config.get("decoder_attention_heads", 0)
    listed = [
        pair
        for pair in generation.get("alignment_heads") or []
        if len(pair) == 2 and pair[0] < layers and pair[1] < heads
    ]  # those of distilled models are the teacher's
    return listed or [[i, h] for i in range(layers // 2, layers) for h in range(heads)]


def mask_step(config: Mapping[str, Any]) -> int:
    """Elements of encoder_attention_mask for a position of the encoder's output: of Moonshine it is
    the mask of the samples.
    """
    return 384 if config.get("model_type") == "moonshine" else 1


def described(file: str, plan: Plan) -> Seq2SeqPlan:
    """A plan of the decoder for the manifest."""
    kind, _, tokens = file.partition("/")
    return {
        "kind": cast("Run", kind),
        "tokens": int(tokens or 1),
        "file": file,
        "registers": {"past": 0, "last": 1, "source": 2},
        "slots": [s.describe() for s in plan.slots],
    }
