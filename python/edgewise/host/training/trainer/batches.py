"""Batches of the data that is passed to `Trainer.fit` and `Trainer.evaluate`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from ....errors import InputError
from ...arrays import as_input
from ..data import ArrayRows, Rows, TokenRows, encode_texts, split_rows, token_rows
from .model import TrainedModel
from .options import Options

Data = str | Iterable[str | Sequence[int]] | Mapping[str, object] | Rows


def rows_of(data: Data, model: TrainedModel, options: Options) -> Rows:
    """Batches of data.

    Args:
        data: a text, texts or lists of token ids (language models); {name: array}; or Rows, which
            pass unchanged.

    Raises:
        InputError: it is something else.
    """
    if hasattr(data, "get") and hasattr(data, "__len__") and not isinstance(data, dict):
        return cast(Rows, data)
    if isinstance(data, dict):
        return ArrayRows(data, options.batch_size, options.seed)
    if not options.is_lm or isinstance(data, (bytes, bytearray)) or not hasattr(data, "__iter__"):
        raise InputError(
            f"expected data, got {type(data).__name__}",
            "data",
            "Give {name: array}, or texts for a language model.",
        )
    texts = [data] if isinstance(data, str) else list(data)
    ids = encode_texts(texts, lambda: model.tokenizer)
    pad = model.pad
    rows = token_rows(ids, options.sequence_length, model.end, pad)
    return TokenRows(rows, options.batch_size, options.seed, pad)


def training_and_evaluation(
    data: Data, evaluation: Data | float | None, model: TrainedModel, options: Options
) -> tuple[Rows, Rows | None]:
    """Batches to train on, and batches to evaluate on or None.

    Args:
        data, evaluation: as `Trainer.fit`'s. A float holds back that share of the rows.
    """
    rows = rows_of(data, model, options)
    if evaluation is None:
        return rows, None
    if not isinstance(evaluation, float):
        return rows, rows_of(evaluation, model, options)
    if not isinstance(rows, TokenRows):
        raise InputError(
            "a share can be held back from texts only",
            "evaluation",
            "Give data of the same kind as the training data.",
        )
    train, held_out = (
        TokenRows(part, options.batch_size, options.seed, rows.pad)
        for part in split_rows(rows.rows, evaluation, options.seed)
    )
    return train, held_out


def tokens_of(rows: Rows, index: int, epoch: int | None, otherwise: int) -> int:
    """Labels in a batch; `otherwise` for rows that do not count them."""
    return rows.tokens(index, epoch) if hasattr(rows, "tokens") else otherwise


def shapes_of(batch: Mapping[str, object] | None) -> dict[str, list[int]] | None:
    """Shapes of a batch's arrays."""
    if batch is None:
        return None
    return {name: list(as_input(x, name)[1]) for name, x in batch.items()}
