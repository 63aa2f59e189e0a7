"""Embeddings of texts: options, the model's own way, and the vectors. Mirrors the pipelines
feature-extraction of transformers.js and transformers, and encode of sentence-transformers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..native import option, written
from ..options import read_choice, read_count, read_flag, read_text
from ..post.embeddings import PRECISIONS, check_pooling, normalized, packed, pool, shortened
from ..text.encoding import EncodeOptions
from ..text.recipe import Recipe
from .inputs import Values, choose_output, row
from .texts import Words

STATES = ("last_hidden_state", "token_embeddings", "hidden_states", "logits")
"""Outputs that are states of tokens, in order of preference."""
POOLED = "sentence_embedding"
"""The output of models that make the vector of a text themselves."""


@dataclass(frozen=True)
class Embedding:
    """The options of feature-extraction.

    Attributes:
        pooling: the name of a way, or "none"; None: the model's own.
        normalize: whether vectors have length 1; None: as the model's files say.
        dimensions: to which vectors are shortened; None: as the model's files say.
        precision: one of PRECISIONS.
        prompt: put before each text.
    """

    pooling: str | None
    normalize: bool | None
    dimensions: int | None
    precision: str
    prompt: str


@dataclass(frozen=True)
class Vectors:
    """How the vectors of texts are made.

    Attributes:
        output: of the graph.
        pooled: whether it is the vector of a text.
        own: whether the way is the model's own.
        poolings: ways of pooling, whose vectors are joined; empty: none.
        normalize: whether vectors have length 1.
        dimensions: to which they are shortened; None: all.
        precision: one of PRECISIONS.
    """

    output: str
    pooled: bool
    own: bool
    poolings: list[str]
    normalize: bool
    dimensions: int | None
    precision: str


def embedding(options: Mapping[str, Any], recipe: Recipe) -> Embedding:
    """The options of feature-extraction: `pooling`, `normalize`, `dimensions`, `quantize`,
    `precision`, `prompt` and `prompt_name`.

    Args:
        options: of a call.
        recipe: of the model.

    Raises:
        InputError: one is not valid.
    """
    pooling: object = options.get("pooling")
    normalize: object = options.get("normalize")
    bits = "binary" if read_flag(options, "quantize", False) else "float32"
    return Embedding(
        None if pooling is None else check_pooling(pooling),
        None if normalize is None else read_flag(options, "normalize", False),
        read_count(options, "dimensions"),
        read_choice(options, "precision", bits, PRECISIONS),
        _prompt(options, recipe),
    )


def _prompt(options: Mapping[str, Any], recipe: Recipe) -> str:
    given = read_text(options, "prompt")
    named: object = options.get("prompt_name")
    if named is not None and not (isinstance(named, str) and named in recipe.prompts):
        raise InputError(
            f"the model has no prompt {written(named)}",
            option("prompt_name"),
            f"It has: {', '.join(recipe.prompts) or 'none'}.",
        )
    if given is not None:
        return given
    name = named if isinstance(named, str) else recipe.default_prompt
    return "" if name is None else recipe.prompts.get(name, "")


def vectors_of(asked: Embedding, recipe: Recipe, outputs: Sequence[str], task: str) -> Vectors:
    """How the vectors of texts are made.

    Args:
        asked: by the caller.
        recipe: of the model.
        outputs: names of those that the graph has.
        task: of the pipeline.

    Raises:
        InputError: the graph has no output for it, or the model's files name what neither the graph
            nor this pipeline has.
    """
    poolings, own = recipe.poolings, False
    if asked.pooling is not None:
        poolings = [] if asked.pooling == "none" else [asked.pooling]
    else:
        if recipe.others and POOLED not in outputs:
            raise InputError(
                f"the model's embeddings need {', '.join(recipe.others)}, which the graph has not",
                task,
                f"Export it with the output {POOLED}, or set {option('pooling')}.",
            )
        own = len(poolings) > 0 or (
            POOLED in outputs and not any(name in outputs for name in STATES)
        )
    pooled = own and POOLED in outputs
    dimensions = recipe.dimensions if own and asked.dimensions is None else asked.dimensions
    return Vectors(
        POOLED if pooled else choose_output(outputs, STATES, task),
        pooled,
        own,
        [] if pooled else poolings,
        own and recipe.normalize if asked.normalize is None else asked.normalize,
        dimensions,
        asked.precision,
    )


def text_of(text: str, asked: Embedding, recipe: Recipe) -> str:
    """A text as the tokenizer reads it."""
    return asked.prompt + (text.lower() if recipe.lower_case else text)


def prompt_tokens(how: Vectors, asked: Embedding, recipe: Recipe, words: Words) -> int:
    """How many tokens of a text do not count in the pooling: those of the prompt, or none."""
    if not asked.prompt or not how.own or recipe.include_prompt:
        return 0
    alone = words.encodings(asked.prompt, None, EncodeOptions("do_not_truncate"))[0]
    last = 1 if alone.special and alone.special[-1] else 0
    return len(alone.ids) - last


def embedded(how: Vectors, values: Values, at: int, tokens: int, skipped: int) -> list[list[float]]:
    """The vectors of a text: one, or without pooling one for each token.

    Args:
        how: they are made.
        values: of the output.
        at: the text's index in them.
        tokens: of the text.
        skipped: tokens that do not count in the pooling.

    Raises:
        InputError: bits are wanted of vectors of tokens, or more dimensions than there are.
    """
    if how.pooled:
        return [_finished(how, row(values, at))]
    length, size = values.dims[1], values.dims[-1]
    if how.poolings:
        mask = [0 if i < skipped else 1 for i in range(tokens)]
        flat = values.data[at * length * size : (at * length + tokens) * size]
        return [_finished(how, [x for way in how.poolings for x in pool(flat, size, mask, way)])]
    if how.precision != "float32":
        raise InputError("only pooled vectors become bits", option("precision"), "Set pooling.")
    return [_finished(how, row(values, at * length + i)) for i in range(tokens)]


def _finished(how: Vectors, vector: Sequence[float]) -> list[float]:
    short = shortened(vector, how.dimensions)
    unit = normalized(short) if how.normalize else short
    return unit if how.precision == "float32" else [*packed(unit, how.precision)]
