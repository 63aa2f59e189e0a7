"""Training data: batches of rows of tokens and of arrays. logic/training/data.py has the rules of
rows and orders.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from ...compiler.arrays import as_input, as_output
from ...compiler.declare.dtypes import INT64, size_of
from ...compiler.declare.symbolic import product
from ...errors import InputError, token_ids
from ...logic.native import Seed
from ...logic.training.chat import (
    DataRequest,
    Example,
    Report,
    example_of,
    marked_template,
    rows_seen,
    seen,
    stream_texts,
)
from ...logic.training.data import Order, Row, batch_of, learned, token_rows
from ...logic.training.preferences import previewed
from ...logic.training.preview import Seen, preview_html, preview_text
from ...logic.training.records import (
    Format,
    Record,
    are_records,
    check_format,
    format_of,
    read_records,
)
from ..drive import drive

if TYPE_CHECKING:
    from ..text import Tokenizer


MAX_BYTES = 1e9  # of a file of training data


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
        (tokenizer().encode(text) if text else [])
        if isinstance(text, str)
        else token_ids(text, "data")
        for text in texts
    ]


def examples_of(
    records: Sequence[Record],
    tokenizer: Tokenizer,
    end: int | None,
    sequence: int,
    make: Callable[..., Generator[DataRequest, Any, list[Example]]] = example_of,
) -> list[Example]:
    """The tokens of records, and which of them are learned (logic/training/chat.py) in rows of
    `sequence` tokens. make: of one record.
    """
    template = template_of(tokenizer)
    answer = answer_of(tokenizer)
    return [
        example
        for i, record in enumerate(records)
        for example in drive(make(record, template, end, sequence, f"data, record {i + 1}"), answer)
    ]


def read_data(path: str | os.PathLike[str], format: Format | None = None) -> list[Record]:
    """The records of a file of training data.

    Args:
        path: of the file.
        format: "jsonl" (an object in each line, or one list or object), "csv" (the first line has
            the names of the fields) or "text". Default: by its name.

    Raises:
        InputError: it is empty, not UTF-8, or a record cannot be read; the message says which.
        OSError: there is no such file.
    """
    name = os.fspath(path)
    if format is not None:
        check_format(format)
    size = os.path.getsize(path)
    if size > MAX_BYTES:
        raise InputError(
            f"it has {size / 1e6:.0f} MB; at most {MAX_BYTES / 1e6:.0f} MB are read",
            name,
            "Take a part of it.",
        )
    with open(path, encoding="utf-8", newline="") as f:
        try:
            text = f.read()
        except UnicodeDecodeError as e:
            raise InputError(
                f"it is not UTF-8 text ({e.reason})", name, "Convert it to UTF-8."
            ) from None
    return read_records(text, format_of(name, text) if format is None else format, name)


class Preview(list[list[Seen]]):
    """What a model will see: of each example its tokens, with their texts, whether they are
    learned, and whether they fit into a row.

    A notebook shows it with the learned tokens marked; `print` writes a line for each run of tokens
    that are learned, read, or left out.
    """

    def _repr_html_(self) -> str:
        return preview_html(self)

    def __str__(self) -> str:
        return preview_text(self)


def preview(
    data: Sequence[str] | Sequence[Record],
    count: int,
    tokenizer: Tokenizer,
    end: int | None,
    sequence: int,
) -> Preview:
    """What a model will see of the first texts or records."""
    records = cast(Sequence[Record], data) if are_records(data, "data") else None
    texts = cast(Sequence[str], data) if records is None else stream_texts(records, "data")
    if records is not None and texts is None:
        examples = examples_of(records[:count], tokenizer, end, sequence, previewed)
    else:
        ids: list[list[int]] = []
        for text in texts or ():  # those of the first rows
            ids += encode_texts([text], lambda: tokenizer)
            if sum(map(len, ids)) > count * sequence:
                break
        examples = rows_seen(token_rows(ids, sequence, end, None, "data"), count)
    return Preview([seen(example, tokenizer.decode, sequence) for example in examples])


def template_of(tokenizer: Tokenizer) -> str | None:
    """The chat template of a tokenizer, if it has one."""
    template = tokenizer.chat_template
    return template if isinstance(template, str) and template else None


def answer_of(tokenizer: Tokenizer) -> Callable[[DataRequest], Any]:
    """Does what requests for data ask for."""
    template = template_of(tokenizer)
    marked = None if template is None else marked_template(template)

    def answer(request: DataRequest) -> Any:
        if request.kind == "encode":
            return tokenizer.encode(request.text, request.special)
        if request.kind == "locate":
            return tokenizer.tokens(request.text)
        return tokenizer.apply_chat_template(
            request.messages,
            tools=request.tools,
            chat_template=marked if request.marked else template,
            add_generation_prompt=request.prompt,
            tokenize=False,
        )

    return answer


class TokenRows:
    """Batches {"input_ids", "labels"} int64 [batch, sequence] of `token_rows`.

    Args:
        rows: of token_rows.
        batch: rows per batch. The last batch of an epoch is padded with rows without labels.
        seed: epoch e is shuffled by `permutation(len(rows), seed, e)`.
        pad: id in padded rows.
        report: of the records that the rows are of, if they are of records.
    """

    def __init__(
        self, rows: list[Row], batch: int, seed: int = 0, pad: int = 0, report: Report | None = None
    ):
        self.rows, self.pad, self.report = rows, pad, report
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
