"""The decoder of an encoder-decoder model in training, beside the states of its encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import UnsupportedOp
from ...logic.manifest.schema import Encoder
from ..compile.seq2seq_files import width, with_decoder
from ..ir import Graph
from .language_model import without_past

STATES, MASK = "encoder_hidden_states", "encoder_attention_mask"


def encoder_decoder_inputs(
    graph: Graph, rows: int, sequence: int, positions: int, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of Program for rows of tokens, and the states of the encoder for each row.

    Args:
        graph: the decoder, or its branch without a past.
        rows, sequence: of a step: rows, and tokens of each.
        positions: of the encoder's output in a row; a mask says which of them count.
        config: the model's config.json.

    Returns:
        {"shapes": ..., "known": ..., "computed": ...}

    Raises:
        UnsupportedOp: the decoder has other inputs.
    """
    config = with_decoder(config)
    shapes = {"input_ids": [rows, sequence], STATES: [rows, positions, width(graph, config)]}
    if any(i.name == MASK for i in graph.input_names()):
        shapes[MASK] = [rows, positions]
    made = without_past(graph, shapes, config)
    known = {*made["shapes"], *made["computed"]}
    other = next((i.name for i in graph.input_names() if i.name not in known), None)
    if other is not None:
        raise UnsupportedOp(
            f"it has an input '{other}'",
            graph.name or "decoder",
            "Train it with Trainer, which takes any inputs.",
        )
    return made


def source_positions(encoder: Encoder, sequence: int) -> int:
    """The positions of the encoder's output in a row: all, where there is one number of them;
    else as many as there are tokens in a row.
    """
    sizes = sorted(p["positions"] for p in encoder["plans"])
    if encoder["fixed"]:
        return sizes[0]
    return next((n for n in sizes if n >= sequence), sizes[-1])
