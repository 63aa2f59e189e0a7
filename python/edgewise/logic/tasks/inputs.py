"""What graphs of texts read, and outputs of graphs as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError

OFFSET_POSITIONS = (
    "roberta",
    "xlm-roberta",
    "xlm-roberta-xl",
    "roberta-prelayernorm",
    "camembert",
    "mpnet",
    "longformer",
    "data2vec-text",
    "xmod",
    "luke",
)
"""Model types whose positions begin after that of the padding token."""


@dataclass(frozen=True)
class Values:
    """An output of a graph.

    Attributes:
        dims: dimensions.
        data: elements in row-major order.
    """

    dims: Sequence[int]
    data: Sequence[float]


def row(values: Values, at: int) -> Sequence[float]:
    """The numbers of the last dimension. at: flat index in the others."""
    size = values.dims[-1]
    return values.data[at * size : (at + 1) * size]


def choose_output(outputs: Sequence[str], wanted: Sequence[str], task: str) -> str:
    """The output of a graph that a pipeline reads.

    Args:
        outputs: names of those that the graph has.
        wanted: names in order of preference.
        task: of the pipeline.

    Raises:
        InputError: there is none of them: the model is of another task.
    """
    for name in wanted:
        if name in outputs:
            return name
    raise InputError(
        f"the model has no output {' or '.join(wanted)}; it has {', '.join(outputs)}",
        task,
        "It was exported for another task: give a model of this one.",
    )


def first_position(config: Mapping[str, Any]) -> int:
    """The position of the first token of a text. config: contents of config.json."""
    pad: object = config.get("pad_token_id")
    if config.get("model_type") not in OFFSET_POSITIONS:
        return 0
    return (pad if type(pad) is int else 1) + 1


def tokens_fed(
    name: str, ids: Sequence[int], type_ids: Sequence[int], length: int, pad: int, first: int
) -> list[int] | None:
    """An input of a graph for a text, which is padded.

    Args:
        name: of the input.
        ids: of the text.
        type_ids: of its tokens; 0 for those that are missing.
        length: of the input.
        pad: id of padding.
        first: position of the first token.

    Returns:
        `length` numbers; None if the input is not known
    """
    rest = length - len(ids)
    if name == "input_ids":
        return [*ids, *[pad] * rest]
    if name == "attention_mask":
        return [*[1] * len(ids), *[0] * rest]
    if name == "token_type_ids":
        return [*type_ids, *[0] * (length - len(type_ids))]
    if name == "position_ids":
        return list(range(first, first + length))
    return None
