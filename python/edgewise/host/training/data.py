"""Training data: batches of rows of tokens and of arrays. logic/training/data.py has the rules of
rows and orders.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ...compiler.arrays import as_input, as_output
from ...compiler.declare.dtypes import INT64, size_of
from ...compiler.declare.symbolic import product
from ...errors import InputError
from ...logic.native import Seed
from ...logic.training.data import Order, Row, batch_of, learned

if TYPE_CHECKING:
    from ..text import Tokenizer


class Rows(Protocol):
    """Batches of training data."""

    def __len__(self) -> int:
        """Batches per epoch."""
        ...

    def get(self, index: int, epoch: int | None = None) -> dict[str, object]:
        """Batch `index` of an epoch, {input name: array}; epoch None: in the order given."""
        ...


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


class TokenRows:
    """Batches {"input_ids", "labels"} int64 [batch, sequence] of `token_rows`.

    Args:
        rows: of token_rows.
        batch: rows per batch. The last batch of an epoch is padded with rows without labels.
        seed: epoch e is shuffled by `permutation(len(rows), seed, e)`.
        pad: id in padded rows.
    """

    def __init__(self, rows: list[Row], batch: int, seed: int = 0, pad: int = 0):
        self.rows, self.pad = rows, pad
        self.order = Order(len(rows), batch, Seed(seed))

    def __len__(self) -> int:
        return self.order.batches

    def tokens(self, index: int, epoch: int | None) -> int:
        """Number of labels that batch `index` of an epoch is trained on."""
        return learned([self.rows[i] for i in self.order.chosen(index, epoch)])

    def get(self, index: int, epoch: int | None = None) -> dict[str, object]:
        """Batch `index` of an epoch; epoch None: in order."""
        batch = self.order.batch
        made = batch_of([self.rows[i] for i in self.order.chosen(index, epoch)], batch, self.pad)
        return {
            name: as_output(INT64, [batch, len(x) // batch], struct.pack(f"<{len(x)}q", *x))
            for name, x in zip(("input_ids", "labels"), made)
        }


class ArrayRows:
    """Batches of arrays with the same first dimension.

    The rows at the end of an epoch that fill no batch are left out, as by PyTorch's DataLoader
    with drop_last=True.

    Args:
        arrays: {name: array [rows, ...]}.
        batch: rows per batch.
        seed: epoch e is shuffled by `permutation(rows, seed, e)`.

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
        count = counts.pop()
        if batch > count:
            raise InputError(
                f"{count} rows are fewer than a batch of {batch}",
                "data",
                "Use a smaller batch_size or more data.",
            )
        self.order = Order(count, batch, Seed(seed))

    def __len__(self) -> int:
        return self.order.count // self.order.batch

    def get(self, index: int, epoch: int | None = None) -> dict[str, object]:
        """Batch `index` of an epoch, {name: array [batch, ...]}; epoch None: in order."""
        chosen = self.order.chosen(index, epoch)
        out = {}
        for name, (dtype, shape, data) in self.arrays.items():
            view = memoryview(data).cast("B") if len(data) else b""
            row = size_of(dtype) * product(shape[1:])
            out[name] = as_output(
                dtype,
                [self.order.batch, *shape[1:]],
                b"".join(view[i * row : (i + 1) * row] for i in chosen),
            )
        return out
