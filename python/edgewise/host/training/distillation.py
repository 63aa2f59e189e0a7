"""Records with what a teacher says of their tokens, as training data."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...compiler.arrays import as_output
from ...compiler.declare.dtypes import FLOAT, INT64
from ...compiler.training.distillation import DistillationLoss
from ...errors import InputError
from ...logic.manifest.limits import MAX_VOCABULARY
from ...logic.native import Seed
from ...logic.training.chat import kept_rows
from ...logic.training.data import Order, batch_of, learned
from ...logic.training.distillation import of_batch, taught, told
from ...logic.training.options import check_whole
from ...logic.training.records import Record
from .data import examples_of

if TYPE_CHECKING:
    from .trainer import Trainer


class DistillationRows:
    """Batches of records with the field "teacher", for DistillationLoss: of each token that is
    learned, in their order, its most probable ones as [[id, log-probability], ...].

    Args:
        trainer: of a language model, with the loss.
        records: as `Trainer.fit` takes them, one row each.
        sequence_length: tokens of a row; the end of a longer one is cut off. None: the trainer's.

    Raises:
        InputError: a record is invalid, or the trainer has another loss.
    """

    def __init__(
        self, trainer: Trainer, records: Sequence[Record], sequence_length: int | None = None
    ) -> None:
        loss, model = trainer.options.loss, trainer.model
        if not isinstance(loss, DistillationLoss):
            raise InputError("the trainer has another loss", "trainer", "Give DistillationLoss.")
        if sequence_length is None:
            sequence_length = trainer.options.sequence_length
        check_whole(sequence_length, "sequence_length", 1)
        self.rows, self.sequence, self.pad = trainer.options.batch_size, sequence_length, model.pad
        self.top_k = loss.top_k
        vocabulary = next(
            (v.shape[-1] for v in trainer.graph.outputs if v.name == loss.output and v.shape), None
        )
        most = vocabulary if isinstance(vocabulary, int) else MAX_VOCABULARY
        examples, parts = [], []
        listed = list(records) if isinstance(records, Iterable) else records
        for i, record in enumerate(taught(listed, "data")):
            where = f"data, record {i + 1}"
            for one in examples_of([record], model.tokenizer, model.end, sequence_length):
                examples.append(one)
                parts.append(told(record, one, sequence_length, loss.top_k, most, where))
        kept = kept_rows(examples, sequence_length, self.pad, "data")
        self.kept, self.report = kept.rows, kept.report
        self.told = [parts[i] for i in kept.examples]
        self.inputs = {v.name for v in trainer.graph.input_names()}
        self.order = Order(len(self.kept), self.rows, Seed(trainer.options.seed))

    def __len__(self) -> int:
        return self.order.batches

    def tokens(self, index: int, epoch: int | None) -> int:
        """Number of labels that batch `index` of an epoch is trained on."""
        return learned([self.kept[i] for i in self.order.chosen(index, epoch)])

    def get(self, index: int, epoch: int | None = None) -> dict[str, object]:
        """Batch `index` of an epoch; epoch None: in order."""
        chosen = self.order.chosen(index, epoch)
        ids, labels = batch_of([self.kept[i] for i in chosen], self.rows, self.pad)
        said = of_batch([self.told[i] for i in chosen], self.rows)
        shape = [self.rows, self.sequence]
        numbers = {
            "input_ids": ids,
            "attention_mask": [1] * len(ids),
            "position_ids": [*range(self.sequence)] * self.rows,
        }
        made: dict[str, object] = {
            name: as_output(INT64, shape, struct.pack(f"<{len(x)}q", *x))
            for name, x in numbers.items()
            if name in self.inputs
        }
        made["labels"] = as_output(INT64, shape, struct.pack(f"<{len(labels)}q", *labels))
        wide, count = [*shape, self.top_k], len(said.ids)
        made["teacher_ids"] = as_output(INT64, wide, struct.pack(f"<{count}q", *said.ids))
        made["teacher_log_probs"] = as_output(
            FLOAT, wide, struct.pack(f"<{count}f", *said.log_probs)
        )
        return made
