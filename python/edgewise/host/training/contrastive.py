"""Texts that belong together, as training data of embeddings."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from ...compiler.arrays import as_output
from ...compiler.declare.dtypes import FLOAT, INT64
from ...compiler.training.contrastive import POOLING_MASK, MultipleNegativesRankingLoss
from ...errors import InputError
from ...logic.native import Seed
from ...logic.training.data import Order
from ...logic.training.records import Record, text_of

if TYPE_CHECKING:
    from .trainer import Trainer

NAMES = ("anchor", "positive", "negative")


class ContrastiveRows:
    """Batches of {"anchor", "positive"[, "negative"]}, for MultipleNegativesRankingLoss.

    Records that fill no batch at the end of an epoch are left out: the other records of a batch are
    the negatives.

    Args:
        trainer: of an encoder; `batch_size` has the texts of all records of a batch.
        records: with the same fields: a "negative" each, if the loss has `negatives=1`.
        sequence_length: tokens of a text; the end of a longer one is cut off.

    Raises:
        InputError: a record has other fields, or they are fewer than a batch has.
    """

    def __init__(
        self, trainer: Trainer, records: Sequence[Record], sequence_length: int = 64
    ) -> None:
        given = list(records)
        self.names = _names_of(trainer.options.loss, given)
        self.rows, self.sequence = trainer.options.batch_size, sequence_length
        size = self.rows // len(self.names)
        if len(given) < size or size < 2 or self.rows % len(self.names):
            raise InputError(
                f"{len(given)} records of {len(self.names)} texts fill no batch of {self.rows}",
                "records",
                f"Give more records, or another batch_size: {len(self.names)} for each record.",
            )
        tokenizer = trainer.tokenizer
        self.ids = [
            [
                tokenizer.encode(text_of(record, name, f"data, record {i + 1}"))[:sequence_length]
                for name in self.names
            ]
            for i, record in enumerate(given)
        ]
        self.inputs = {v.name for v in trainer.graph.input_names()}
        self.pad = trainer.model.pad
        self.order = Order(len(given), size, Seed(trainer.options.seed))

    def __len__(self) -> int:
        return self.order.count // self.order.batch

    def get(self, index: int, epoch: int | None = None) -> dict[str, object]:
        """Batch `index` of an epoch; epoch None: in order."""
        chosen = self.order.chosen(index, epoch)
        texts = [self.ids[i][which] for which in range(len(self.names)) for i in chosen]
        missing = [self.sequence - len(ids) for ids in texts]
        ids = [x for t, n in zip(texts, missing) for x in (*t, *[self.pad] * n)]
        mask = [x for t, n in zip(texts, missing) for x in (*[1] * len(t), *[0] * n)]
        shape, count = [len(texts), self.sequence], len(ids)
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": [0] * count}
        made: dict[str, object] = {
            name: as_output(INT64, shape, struct.pack(f"<{count}q", *x))
            for name, x in arrays.items()
            if name in self.inputs
        }
        made[POOLING_MASK] = as_output(FLOAT, shape, struct.pack(f"<{count}f", *mask))
        return made


def _names_of(loss: object, records: Sequence[Record]) -> tuple[str, ...]:
    """The fields of all records. Raises InputError: they differ, or are not those of the loss."""
    known = isinstance(loss, MultipleNegativesRankingLoss)
    negatives = loss.negatives if isinstance(loss, MultipleNegativesRankingLoss) else None
    if negatives is not None and negatives > 1:
        raise InputError(
            f"records have one negative at most, and the loss has {negatives}",
            "loss.negatives",
            "Use 0 or 1, or make the batches yourself.",
        )
    has = ["negative" in record for record in records]
    expected = negatives == 1 if known else any(has)
    for i, one in enumerate(has):
        if one != expected:
            raise InputError(
                f"there is {'a' if one else 'no'} negative, "
                + (f"and the loss has negatives={negatives}" if known else "and others have one"),
                f"data, record {i + 1}",
                f"Give {'each record' if expected else 'no record'} a negative"
                + (f", or negatives={1 - cast(int, negatives)} to the loss." if known else "."),
            )
    return NAMES if expected else NAMES[:2]
