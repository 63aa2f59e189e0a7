"""Training data: rows of tokens cut from texts, and which of them each update of a run is made
from. docs/guide/training-runs.md describes the rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from ...errors import InputError
from ..native import Seed, random_words

# Label of a position without a loss, as in PyTorch and transformers. So are others below 0.
IGNORED = -100

Row = tuple[list[int], list[int]]  # token ids and labels
T = TypeVar("T")


def permutation(count: int, seed: Seed, epoch: int = 0) -> list[int]:
    """0..count-1 shuffled as `torch.randperm(count, generator=Generator().manual_seed(seed))`.

    Epoch e of a run is shuffled with seed + e, as transformers' Trainer does (accelerate's
    SeedableRandomSampler). The generator is MT19937, seeded with the seed's low 32 bits.
    """
    word = random_words(seed, epoch)
    order = list(range(count))
    for i in range(count - 1):
        j = i + word() % (count - i)
        order[i], order[j] = order[j], order[i]
    return order


def token_rows(
    texts: Sequence[Sequence[int]],
    sequence: int,
    end: int | None = None,
    pad: int | None = None,
    where: str = "texts",
) -> list[Row]:
    """Cuts texts into rows of `sequence` tokens.

    The texts form one stream; each is followed by an end token unless it ends with one. A row
    repeats the last token of the row before, so that every token but the first is predicted
    exactly once. The last row is padded on the right.

    Args:
        texts: token ids of each text, special tokens of the tokenizer included. Empty ones are
            skipped.
        sequence: tokens per row, at least 2.
        end: id of the end-of-text token, or None: texts follow each other without one.
        pad: id of padding; default `end`, or 0.
        where: name of the argument, for errors.

    Returns:
        [(ids, labels)], lists of `sequence` ints. Labels are the ids (the loss shifts them), -100
        for padding.

    Raises:
        InputError: the texts have fewer than two tokens.
    """
    stream: list[int] = []
    for text in texts:
        stream.extend(text)
        if end is not None and len(text) and text[-1] != end:
            stream.append(end)
    if len(stream) < 2:
        raise InputError(
            f"{len(stream)} tokens are too few to learn from", where, "Give at least a sentence."
        )
    fill = pad if pad is not None else end if end is not None else 0
    rows: list[Row] = []
    for start in range(0, len(stream) - 1, max(1, sequence - 1)):
        part = stream[start : start + sequence]
        missing = sequence - len(part)
        rows.append((part + [fill] * missing, part + [IGNORED] * missing))
    return rows


def split_rows(
    rows: Sequence[T], share: float, seed: Seed, where: str = "evaluation"
) -> tuple[list[T], list[T]]:
    """Holds back a share of the rows for evaluation: at least one, never all.

    The rows are drawn as torch.utils.data.random_split draws them and keep their order.

    Args:
        rows: of `token_rows`, or what else is trained on.
        share: between 0 and 1, exclusive.
        seed: of the run.
        where: name of the argument, for errors.

    Returns:
        (rows to train on, rows to evaluate on)

    Raises:
        InputError: the share is another number, or there are too few rows.
    """
    if not 0 < share < 1:
        raise InputError(
            f"{share!r} is not between 0 and 1",
            where,
            "Give texts, or a share of the rows such as 0.1.",
        )
    held = max(1, math.floor(len(rows) * share + 0.5))
    if held >= len(rows):
        raise InputError(
            f"{len(rows)} rows are too few to hold out a part for evaluation",
            where,
            "Give more text, or separate texts for evaluation.",
        )
    order = permutation(len(rows), seed)
    kept = len(rows) - held
    return [rows[i] for i in sorted(order[:kept])], [rows[i] for i in sorted(order[kept:])]


def learned(rows: Sequence[Row]) -> int:
    """Number of tokens that are predicted: a row's first one is not."""
    count = 0
    for _, labels in rows:
        for at in range(1, len(labels)):
            if labels[at] >= 0:
                count += 1
    return count


def token_weights(labels: Sequence[int], sequence: int, weight: float) -> list[float]:
    """The weights of the losses of tokens, row after row: `weight` for those that are learned. A
    row's first token is not predicted.
    """
    return [weight if labels[at] >= 0 and at % sequence else 0.0 for at in range(len(labels))]


def batch_of(rows: Sequence[Row], size: int, pad: int) -> Row:
    """Ids and labels of a batch of `size` rows, one after another.

    Args:
        rows: at least one; the rest is filled with rows without labels.
        size: rows of the batch.
        pad: id of padding.
    """
    ids: list[int] = []
    labels: list[int] = []
    for row in rows:
        ids.extend(row[0])
        labels.extend(row[1])
    missing = size * len(rows[0][0]) - len(ids)
    return ids + [pad] * missing, labels + [IGNORED] * missing


class Order:
    """The rows of each batch. An epoch has every row once, and its last batch may have fewer.

    Args:
        count: rows of the data.
        batch: rows per batch.
        seed: epoch e is shuffled by `permutation(count, seed, e)`.
    """

    def __init__(self, count: int, batch: int, seed: Seed) -> None:
        self.count = count
        self.batch = batch
        self.seed = seed
        self._epoch = -1
        self._order: list[int] = []

    @property
    def batches(self) -> int:
        """Batches per epoch."""
        return -(-self.count // self.batch)

    def chosen(self, index: int, epoch: int | None = None) -> list[int]:
        """Indices of the rows in batch `index` of an epoch; epoch None: in the order given."""
        first = index * self.batch
        if epoch is None:
            return list(range(first, min(first + self.batch, self.count)))
        if self._epoch != epoch:
            self._epoch = epoch
            self._order = permutation(self.count, self.seed, epoch)
        return self._order[first : first + self.batch]


class Updates:
    """The batches of each update. The last update of an epoch may average fewer batches.

    Args:
        batches: per epoch.
        accumulation: batches of an update.
    """

    def __init__(self, batches: int, accumulation: int) -> None:
        self.batches = batches
        self.accumulation = accumulation

    @property
    def per_epoch(self) -> int:
        """Updates per epoch."""
        return max(1, -(-self.batches // self.accumulation))

    def total(self, epochs: float | None, max_steps: int | None) -> int:
        """Updates of a run.

        Args:
            epochs: passes over the data, fractions allowed. None: 1, or as many as `max_steps`
                takes.
            max_steps: maximum number of updates, or None.
        """
        if epochs is None and max_steps is not None:
            return max_steps
        passes = 1.0 if epochs is None else epochs
        made = max(1, math.ceil(self.per_epoch * passes))
        return made if max_steps is None else min(made, max_steps)

    def end(self, first: int) -> int:
        """The end of the batches of the update that begins with batch `first` of an epoch."""
        return min(first + self.accumulation, self.batches)

    def place(self, step: int) -> tuple[int, int]:
        """The epoch of update `step`, which counts from 0, and its first batch."""
        epoch, update = divmod(step, self.per_epoch)
        return epoch, update * self.accumulation

    def epochs(self, step: int) -> float:
        """Passes over the data after `step` updates, with a fraction."""
        epoch, first = self.place(step)
        return epoch + first / self.batches
