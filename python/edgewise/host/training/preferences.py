"""Preferences as training data, and the host of logic/training/preferences.py."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import as_input, as_output
from ...compiler.declare.dtypes import FLOAT, INT64
from ...compiler.training.losses import TOKEN_LOSSES, TOKEN_WEIGHTS
from ...logic.native import Seed
from ...logic.training.chat import Example, Report
from ...logic.training.data import Order, Row, batch_of
from ...logic.training.preferences import (
    Preference,
    PreferenceRequest,
    Unit,
    compared,
    tokens_of_units,
    units_of,
)
from ...logic.training.records import Record
from ..drive import drive
from .data import answer_of

if TYPE_CHECKING:
    from ...compiler.training.program import State
    from ..text import Tokenizer
    from .session import TrainingSession


class UnitRows:
    """Batches of preferences.

    Args:
        units: what is compared.
        batch: rows of a run of the program; each comparison has two of them.
        seed: epoch e is shuffled by `permutation(len(units), seed, e)`.
        pad: id in padded rows.
        by: the loss.
        report: of the records that the units are of.
    """

    def __init__(
        self, units: list[Unit], batch: int, seed: int, pad: int, by: Preference, report: Report
    ):
        self.units, self.size, self.pad, self.by, self.report = units, batch, pad, by, report
        self.order = Order(len(units), batch_size_of(batch), Seed(seed))

    def __len__(self) -> int:
        return self.order.batches

    def at(self, index: int, epoch: int | None) -> list[Unit]:
        """The units of batch `index` of an epoch; epoch None: in order."""
        return [self.units[i] for i in self.order.chosen(index, epoch)]

    def tokens(self, index: int, epoch: int | None) -> int:
        """Number of tokens that batch `index` of an epoch is trained on."""
        return tokens_of_units(self.at(index, epoch), self.by)

    def get(self, index: int, epoch: int | None = None) -> dict[str, object]:
        """Nothing: shapes are those of the language model."""
        return {}


def batch_size_of(rows: int) -> int:
    """Comparisons of a batch of rows."""
    return max(1, rows // 2)


def preference_units(
    records: Sequence[Record],
    tokenizer: Tokenizer,
    end: int | None,
    pad: int,
    by: Preference,
    sequence: int,
    block: int,
) -> tuple[list[Unit], Report]:
    """What is compared of records."""
    answer = answer_of(tokenizer)
    examples: list[tuple[Example, bool]] = [
        x
        for i, record in enumerate(records)
        for x in drive(compared(record, by.loss, end, f"data, record {i + 1}"), answer)
    ]
    return units_of(examples, by.loss, sequence, pad, block, "data")


class PreferenceHost:
    """Answers the requests of logic/training/preferences.py.

    Args:
        session: of the program.
        pad: id in padded rows.
    """

    def __init__(self, session: TrainingSession, pad: int):
        self.session, self.pad = session, pad
        self.batch, self.sequence = session.program.shapes["input_ids"]

    def _feeds(self, rows: Sequence[Row]) -> dict[str, object]:
        shape = [self.batch, self.sequence]
        return {
            name: as_output(INT64, shape, struct.pack(f"<{len(x)}q", *x))
            for name, x in zip(("input_ids", "labels"), batch_of(rows, self.batch, self.pad))
        }

    def answer(self, request: PreferenceRequest) -> Any:
        """Does what a request asks for."""
        session = self.session
        if request.kind == "reset":
            session.reset()
        elif request.kind == "apply":
            session.update(request.rate, request.scale)
        elif request.kind == "score":
            losses = session.evaluate(self._feeds(request.rows))[TOKEN_LOSSES]
            found = memoryview(as_input(losses, TOKEN_LOSSES)[2]).cast("B").cast("f")
            return found.tolist()[: len(request.rows) * self.sequence]
        else:
            missing = self.batch * self.sequence - len(request.weights)
            weights = [*request.weights, *[0.0] * missing]
            data = struct.pack(f"<{len(weights)}f", *weights)
            array = as_output(FLOAT, [self.batch, self.sequence], data)
            session.accumulate({**self._feeds(request.rows), TOKEN_WEIGHTS: array})
        return None

    @contextmanager
    def first_states(self, states: Mapping[str, State]) -> Iterator[None]:
        """Sets the states to their first values meanwhile: adapters begin without an effect."""
        session = self.session
        runs = session.runs
        kept = {n: session.read(n) for n, s in states.items() if s.kind != "gradient"}
        session.initialize("accumulate")
        try:
            yield
        finally:
            for name, values in kept.items():
                session.write(name, values)
            session.runs = runs
