"""Batches: texts cut into rows of tokens, or arrays cut into rows; in an order that a seed and an
epoch decide, so that a run can be taken up again.
"""

from __future__ import annotations

import struct

from ..arrays import as_input, as_output
from ..declare.dtypes import size_of
from ..declare.symbolic import product
from ..errors import InputError

IGNORED = -100  # labels that do not count


def order(count, seed, epoch):
    """0..count-1 shuffled (Fisher-Yates with SplitMix64).

    A page shuffles its blocks in its own way (web/src/worker/training/seeds.ts).
    """
    state = (seed * 0x9E3779B97F4A7C15 + epoch + 1) & ((1 << 64) - 1)
    out = list(range(count))
    for i in range(count - 1, 0, -1):
        state = (state + 0x9E3779B97F4A7C15) & ((1 << 64) - 1)
        z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & ((1 << 64) - 1)
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & ((1 << 64) - 1)
        j = (z ^ z >> 31) % (i + 1)
        out[i], out[j] = out[j], out[i]
    return out


def token_rows(texts, sequence, end=None, stride=None):
    """Rows of `sequence` tokens.

    Args:
        texts: lists of token ids. end: id put behind each text (end of text), or None.
        sequence: tokens per row. The texts stand one behind the other; the last row is filled up.
        stride: how far a row begins behind the one before; default sequence - 1, since a row's last
        token is only compared with.
    Returns:
        [(ids, labels)]: lists of `sequence` ints; labels are the ids, -100 for what fills up.
    """
    stream = [i for t in texts for i in [*t, *([end] if end is not None else [])]]
    if len(stream) < 2:
        raise InputError(
            f"{len(stream)} tokens are too few to learn from", "texts", "Give at least a sentence."
        )
    stride = stride or max(1, sequence - 1)
    rows = []
    for at in range(0, max(1, len(stream) - 1), stride):
        part = stream[at : at + sequence]
        if len(part) < 2:
            break
        fill = sequence - len(part)
        rows.append((part + [end if end is not None else part[-1]] * fill, part + [IGNORED] * fill))
        if at + sequence >= len(stream):
            break
    return rows


class TokenRows:
    """Batches {"input_ids", "labels"} int64 [batch, sequence] of token_rows.

    An epoch's last batch is filled up with rows that do not count.
    """

    def __init__(self, rows, batch, seed=0):
        self.rows, self.batch, self.seed = rows, batch, seed

    def __len__(self):
        return -(-len(self.rows) // self.batch)

    def tokens(self, index, epoch):
        """How many tokens of a batch are learned from: labels that count and have a token before
        them.
        """
        return sum(
            sum(x != IGNORED for x in self.rows[i][1][1:]) for i in self._chosen(index, epoch)
        )

    def _chosen(self, index, epoch):
        shuffled = (
            order(len(self.rows), self.seed, epoch) if epoch is not None else range(len(self.rows))
        )
        return shuffled[index * self.batch : (index + 1) * self.batch]

    def get(self, index, epoch=None):
        """Batch `index` of an epoch; epoch None: in order."""
        ids, labels = [], []
        for i in self._chosen(index, epoch):
            ids += self.rows[i][0]
            labels += self.rows[i][1]
        sequence = len(self.rows[0][0])
        missing = self.batch * sequence - len(ids)
        ids, labels = ids + [0] * missing, labels + [IGNORED] * missing
        return {
            name: as_output(7, [self.batch, sequence], struct.pack(f"<{len(x)}q", *x))
            for name, x in (("input_ids", ids), ("labels", labels))
        }


class ArrayRows:
    """Batches of {name: array} whose first dimensions agree.

    What is left over at the end of an epoch and fills no batch is left out.
    """

    def __init__(self, arrays, batch, seed=0):
        self.arrays = {name: as_input(x, name) for name, x in arrays.items()}
        counts = {shape[0] if shape else 0 for _, shape, _ in self.arrays.values()}
        if len(counts) != 1 or not min(counts):
            raise InputError(
                f"they have {', '.join(f'{n}: {list(s)}' for n, (_, s, _) in self.arrays.items())}"
                " rows",
                "data",
                "Give arrays with the same first dimension.",
            )
        self.count, self.batch, self.seed = counts.pop(), batch, seed
        if self.batch > self.count:
            raise InputError(
                f"{self.count} rows make no batch of {batch}",
                "data",
                "Use a smaller batch_size or more data.",
            )

    def __len__(self):
        return self.count // self.batch

    def get(self, index, epoch=None):
        """Batch `index` of an epoch, {name: array [batch, ...]}; epoch None: in order."""
        shuffled = order(self.count, self.seed, epoch) if epoch is not None else range(self.count)
        chosen = shuffled[index * self.batch : (index + 1) * self.batch]
        out = {}
        for name, (dtype, shape, data) in self.arrays.items():
            view, row = (
                memoryview(data).cast("B") if len(data) else b"",
                size_of(dtype) * product(shape[1:]),
            )
            out[name] = as_output(
                dtype,
                [self.batch, *shape[1:]],
                b"".join(view[i * row : (i + 1) * row] for i in chosen),
            )
        return out
