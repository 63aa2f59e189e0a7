"""Programs of models that read one text: of all its lengths, where the graph permits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import InputError, UnsupportedOp
from ...json_text import parse_json
from ...logic.tasks.inputs import first_position
from ..compile.programs import Programs
from ..declare.op import TooLong
from ..declare.symbolic import NeedsHost, NotStatic, Sym
from ..ir import Graph, NeedsValue

DEFAULT_LENGTH = 512  # tokens of a text, where the model itself does not allow fewer
MIN_LENGTH = 2  # dimensions of 0 and 1 are broadcast by other rules
# Lengths of plans for graphs that have no plan for a range of lengths; texts are padded.
FIXED_LENGTHS = (8, 16, 32, 64, 128, 256, 512)
TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


def config_of(texts: Mapping[str, bytes], file: str = "config.json") -> dict[str, Any]:
    """The contents of a JSON file of a model; {} if there is none, or it is no object."""
    found = parse_json(texts[file], file) if file in texts else {}
    return found if isinstance(found, dict) else {}


def text_limit(texts: Mapping[str, bytes], max_length: int | None) -> int:
    """The most tokens of a text: `max_length`, or what the tokenizer and the config say."""
    if max_length is not None:
        if max_length < MIN_LENGTH:
            raise InputError(
                f"{max_length} is not a valid length", "max_length", "Give 2 or more tokens."
            )
        return max_length
    lengths = [DEFAULT_LENGTH]
    for file, field in (
        ("tokenizer_config.json", "model_max_length"),
        ("config.json", "max_position_embeddings"),
    ):
        config = config_of(texts, file)
        value = config.get(field)
        if type(value) is int:
            value -= first_position(config)
        if type(value) is int and value >= MIN_LENGTH:
            lengths.append(value)
    return min(lengths)


def add_text_model(
    programs: Programs,
    graph: Graph,
    outputs: Sequence[str],
    limit: int,
    name: str = "model",
    others: Sequence[Mapping[str, Sequence[int]]] = ({},),
) -> int:
    """Adds a program of a text encoder for one text of up to `limit` tokens.

    Args:
        programs, name: what is added to, and the name.
        graph, outputs: what is run, and its outputs that are read.
        limit: most tokens.
        others: shapes of the inputs that are not of the text: each has plans of its own.

    Returns:
        the most tokens of a text
    """
    has_mask = any(i.name == "attention_mask" for i in graph.input_names())
    texts = replace(graph, inputs=[i for i in graph.inputs if i.name not in others[0]])
    high = limit
    for _ in range(3):
        # Not packed: attention weights have two such dimensions. The tensors that a page feeds and
        # reads have one, after a batch of 1: they are contiguous (`_check_ends`).
        length = Sym(0, 1, 0, MIN_LENGTH, high)
        of_range, of_one = text_shapes(texts, length), text_shapes(texts, 1)
        runs: list[Any] = [({**other, **of_range}, (MIN_LENGTH, high)) for other in others]
        if not has_mask:  # a text of one token cannot be padded
            runs += [({**other, **of_one}, None) for other in others]
        try:
            programs.add(name, graph, runs, outputs, _check_ends)
            return high
        except TooLong as e:  # the table of positions is shorter
            high -= max(1, e.excess)
            if high < MIN_LENGTH:
                raise
        except (NotStatic, NeedsValue, NeedsHost):
            break
    if not has_mask:
        raise UnsupportedOp(
            "it has no attention_mask, and its shapes are not linear in the length of the text",
            graph.name or "model",
            "Export the model with an attention_mask.",
        )
    lengths = [n for n in FIXED_LENGTHS if n < high] + [high]
    shapes = [{**other, **text_shapes(texts, n)} for n in lengths for other in others]
    programs.add(name, graph, [(one, None) for one in shapes], outputs)
    return high


def _check_ends(plan: Mapping[str, Any]) -> None:
    """Checks that the inputs and outputs of a plan are contiguous at each length.

    Raises:
        NotStatic: they are not.
    """
    for _, shape in plan["inputs"].values():
        _check_contiguous(shape)
    for _, _, shape, _ in plan["outputs"].values():
        _check_contiguous(shape)


def _check_contiguous(shape: Sequence[Any]) -> None:
    if any(isinstance(d, list) and shape[:i] != [1] * i for i, d in enumerate(shape)):
        raise NotStatic("an output that is not contiguous")


def text_shapes(graph: Graph, length: Sym | int) -> dict[str, list[Any]]:
    """Shapes of the inputs for one text. Dimensions that the file fixes keep their size."""
    shapes: dict[str, list[Any]] = {}
    for info in graph.input_names():
        if info.name not in TEXT_INPUTS or info.shape is None or len(info.shape) != 2:
            raise UnsupportedOp(
                f"its input '{info.name}' is none that this task feeds",
                graph.name or "model",
                f"Export the model with {', '.join(TEXT_INPUTS)} of [batch, sequence].",
            )
        free = [not (isinstance(d, int) and d > 0) for d in info.shape]
        shapes[info.name] = [1 if free[0] else info.shape[0], length if free[1] else info.shape[1]]
    if "input_ids" not in shapes:
        raise UnsupportedOp(
            f"its inputs are {', '.join(shapes) or 'none'}",
            graph.name or "model",
            "A task on text needs a model with input_ids.",
        )
    return shapes
