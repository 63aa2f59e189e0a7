"""Texts that belong together, as training data of embeddings."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...compiler.arrays import as_output
from ...compiler.declare.dtypes import FLOAT, INT64
from ...compiler.training.contrastive import POOLING_MASK
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
        records: with the same fields.
        sequence_length: tokens of a text; the end of a longer one is cut off.

    Raises:
        InputError: a record has other fields, or they are fewer than a batch has.
    """

    def __init__(
        self, trainer: Trainer, records: Sequence[Record], sequence_length: int = 64
    ) -> None:
        given = list(records)
        self.names = NAMES if given and "negative" in given[0] else NAMES[:2]
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
