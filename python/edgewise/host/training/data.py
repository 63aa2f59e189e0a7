"""Training data: rows of tokens cut from texts, rows of arrays, and the batches made from them.

The page cuts and orders texts by the same rules (web/src/worker/training/data.ts);
tests/conformance/training_data.json holds both to them. docs/guide/training-runs.md describes them.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ...compiler.arrays import as_input, as_output
from ...compiler.declare.dtypes import INT64, size_of
from ...compiler.declare.symbolic import product
from ...errors import InputError

if TYPE_CHECKING:
    from ..text import Tokenizer

IGNORED = -100  # label of a position without a loss, as in PyTorch and transformers

Row = tuple[list[int], list[int]]  # token ids and labels


class Rows(Protocol):
    """Batches of training data."""

    def __len__(self) -> int:
        """Batches per epoch."""
        ...

    def get(self, index: int, epoch: int | None = None) -> dict[str, object]:
        """Batch `index` of an epoch, {input name: array}; epoch None: in the order given."""
        ...


def permutation(count: int, seed: int) -> list[int]:
    """0..count-1 shuffled as `torch.randperm(count, generator=Generator().manual_seed(seed))`.

    Epoch e of a run is shuffled with seed + e, as transformers' Trainer does (accelerate's
    SeedableRandomSampler). The generator is MT19937, seeded with the seed's low 32 bits.
    """
    state = [seed & 0xFFFFFFFF]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) & 0xFFFFFFFF)
    generator = random.Random()
    generator.setstate((3, (*state, 624), None))
    order = list(range(count))
    for i in range(count - 1):
        j = i + generator.getrandbits(32) % (count - i)
        order[i], order[j] = order[j], order[i]
    return order


def split_rows(rows: list[Row], share: float, seed: int) -> tuple[list[Row], list[Row]]:
    """Holds back a share of the rows for evaluation: at least one, never all.

    The rows are drawn as torch.utils.data.random_split draws them and keep their order.

    Args:
        rows: of `token_rows`.
        share: between 0 and 1, exclusive.
        seed: of the run.

    Returns:
        (rows to train on, rows to evaluate on)

    Raises:
        InputError: there are too few rows.
    """
    if not 0 < share < 1:
        raise InputError(
            f"{share!r} is not between 0 and 1",
            "evaluation",
            "Give texts, or a share of the rows such as 0.1.",
        )
    held = max(1, math.floor(len(rows) * share + 0.5))
    if held >= len(rows):
        raise InputError(
            f"{len(rows)} rows are too few to hold out a part for evaluation",
            "evaluation",
            "Give more text, or separate texts for evaluation.",
        )
    order = permutation(len(rows), seed)
    kept = len(rows) - held
    return [rows[i] for i in sorted(order[:kept])], [rows[i] for i in sorted(order[kept:])]


def updates_per_epoch(batches: int, accumulation: int) -> int:
    """Updates in an epoch of `batches` batches; the last one may average fewer batches."""
    return max(1, -(-batches // accumulation))


def total_updates(per_epoch: int, epochs: float | None, max_steps: int | None) -> int:
    """Updates of a run.

    Args:
        per_epoch: of updates_per_epoch.
        epochs: passes over the data, fractions allowed. None: 1, or as many as `max_steps` takes.
        max_steps: maximum number of updates, or None.
    """
    if epochs is None and max_steps is not None:
        return max_steps
    total = max(1, math.ceil(per_epoch * (1 if epochs is None else epochs)))
    return total if max_steps is None else min(total, max_steps)


def encode_texts(
    texts: Sequence[str | Sequence[int]], tokenizer: Callable[[], Tokenizer]
) -> list[list[int]]:
    """Token ids of each text, with the special tokens that the tokenizer adds (as
    `tokenizer(text)` in transformers). Token ids pass unchanged.
    """
    for text in texts:
        if not isinstance(text, (str, list, tuple)):
            raise InputError(
                f"a {type(text).__name__} is not a text",
                "data",
                "Give strings, or lists of token ids.",
            )
    # An empty text makes no tokens, not even special ones.
    return [
        (tokenizer().encode(text) if text else []) if isinstance(text, str) else list(text)
        for text in texts
    ]


def token_rows(
    texts: Sequence[Sequence[int]], sequence: int, end: int | None = None, pad: int | None = None
) -> list[Row]:
    """Cuts texts into rows of `sequence` tokens.

    The texts form one stream; each is followed by an end token unless it ends with one. A row
    repeats the last token of the row before, so that every token but the first is predicted
    exactly once. The last row is padded on the right.

    Args:
        texts: token ids of each text. Empty ones are skipped.
        sequence: tokens per row, at least 2.
        end: id of the end-of-text token, or None: texts follow each other without one.
        pad: id of padding; default `end`, or 0.

    Returns:
        [(ids, labels)], lists of `sequence` ints. Labels are the ids (the loss shifts them), -100
        for padding.

    Raises:
        InputError: the texts have fewer than two tokens.
    """
    stream: list[int] = []
    for text in texts:
        stream.extend(text)
        if end is not None and text and text[-1] != end:
            stream.append(end)
    if len(stream) < 2:
        raise InputError(
            f"{len(stream)} tokens are too few to learn from", "texts", "Give at least a sentence."
        )
    fill = pad if pad is not None else end if end is not None else 0
    rows = []
    for start in range(0, len(stream) - 1, max(1, sequence - 1)):
        part = stream[start : start + sequence]
        missing = sequence - len(part)
        rows.append((part + [fill] * missing, part + [IGNORED] * missing))
    return rows


class TokenRows:
    """Batches {"input_ids", "labels"} int64 [batch, sequence] of `token_rows`.

    Args:
        rows: of token_rows.
        batch: rows per batch. The last batch of an epoch is padded with rows without labels.
        seed: epoch e is shuffled by `permutation(len(rows), seed + e)`.
        pad: id in padded rows.
    """

    def __init__(self, rows: list[Row], batch: int, seed: int = 0, pad: int = 0):
        self.rows, self.batch, self.seed, self.pad = rows, batch, seed, pad
        self._order: tuple[int | None, Sequence[int]] = (None, range(len(rows)))

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch)

    def tokens(self, index: int, epoch: int | None) -> int:
        """Number of labels that batch `index` of an epoch is trained on."""
        return sum(
            sum(x != IGNORED for x in self.rows[i][1][1:]) for i in self.chosen(index, epoch)
        )

    def chosen(self, index: int, epoch: int | None) -> Sequence[int]:
        """Indices of the rows in batch `index` of an epoch; epoch None: in order."""
        if epoch is None:
            order: Sequence[int] = range(len(self.rows))
        else:
            if self._order[0] != epoch:
                self._order = (epoch, permutation(len(self.rows), self.seed + epoch))
            order = self._order[1]
        return order[index * self.batch : (index + 1) * self.batch]

    def get(self, index: int, epoch: int | None = None) -> dict[str, object]:
        """Batch `index` of an epoch; epoch None: in order."""
        ids: list[int] = []
        labels: list[int] = []
        for i in self.chosen(index, epoch):
            ids += self.rows[i][0]
            labels += self.rows[i][1]
        sequence = len(self.rows[0][0])
        missing = self.batch * sequence - len(ids)
        ids, labels = ids + [self.pad] * missing, labels + [IGNORED] * missing
        return {
            name: as_output(INT64, [self.batch, sequence], struct.pack(f"<{len(x)}q", *x))
            for name, x in (("input_ids", ids), ("labels", labels))
        }


class ArrayRows:
    """Batches of arrays with the same first dimension.

    The rows at the end of an epoch that fill no batch are left out, as by PyTorch's DataLoader
    with drop_last=True.

    Args:
        arrays: {name: array [rows, ...]}.
        batch: rows per batch.
        seed: epoch e is shuffled by `permutation(rows, seed + e)`.

    Raises:
        InputError: the first dimensions differ, or there are fewer rows than a batch has.
    """

    def __init__(self, arrays: Mapping[str, object], batch: int, seed: int = 0):
        self.arrays = {name: as_input(x, name) for name, x in arrays.items()}
        counts = {shape[0] if shape else 0 for _, shape, _ in self.arrays.values()}
        if len(counts) != 1 or not min(counts):
            shapes = ", ".join(f"{n}: {list(s)}" for n, (_, s, _) in self.arrays.items())
            raise InputError(
                f"they have {shapes} rows", "data", "Give arrays with the same first dimension."
            )
        self.count, self.batch, self.seed = counts.pop(), batch, seed
        if self.batch > self.count:
            raise InputError(
                f"{self.count} rows are fewer than a batch of {batch}",
                "data",
                "Use a smaller batch_size or more data.",
            )
        self._order: tuple[int | None, Sequence[int]] = (None, range(self.count))

    def __len__(self) -> int:
        return self.count // self.batch

    def get(self, index: int, epoch: int | None = None) -> dict[str, object]:
        """Batch `index` of an epoch, {name: array [batch, ...]}; epoch None: in order."""
        if epoch is not None and self._order[0] != epoch:
            self._order = (epoch, permutation(self.count, self.seed + epoch))
        order = range(self.count) if epoch is None else self._order[1]
        chosen = order[index * self.batch : (index + 1) * self.batch]
        out = {}
        for name, (dtype, shape, data) in self.arrays.items():
            view = memoryview(data).cast("B") if len(data) else b""
            row = size_of(dtype) * product(shape[1:])
            out[name] = as_output(
                dtype,
                [self.batch, *shape[1:]],
                b"".join(view[i * row : (i + 1) * row] for i in chosen),
            )
        return out
