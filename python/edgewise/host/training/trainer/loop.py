"""The loop of `Trainer.fit`: batches of the data, and reports. logic/training/run.py decides what
follows what.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from ....compiler.arrays import as_input
from ....errors import Aborted, InputError
from ....logic.native import Seed
from ....logic.training.chat import Report, fitted, stream_texts
from ....logic.training.data import Updates, split_rows, token_rows
from ....logic.training.options import check_options
from ....logic.training.preferences import Preference
from ....logic.training.records import Record, are_records
from ....logic.training.run import Event, Made, Run, RunRequest, Schedule, Update
from ...drive import drive
from ..data import ArrayRows, Rows, TokenRows, encode_texts, examples_of
from ..preferences import UnitRows, batch_size_of, preference_units
from .options import Options, TrainedModel

if TYPE_CHECKING:
    from .trainer import Trainer


BAR = 24  # columns


@dataclass
class Progress:
    """State of a run after an update, as callbacks get it.

    Attributes:
        step: updates made.
        total: updates of the run.
        epoch: passes over the data, with a fraction.
        loss: mean over the update's batches, before the update.
        learning_rate: of the next update.
        tokens_per_second: of other models than language models, rows per second.
        seconds_left: at the present speed.
        evaluation: loss on the evaluation data, if it was computed after this update.
    """

    step: int
    total: int
    epoch: float
    loss: float
    learning_rate: float
    tokens_per_second: float
    seconds_left: float
    evaluation: float | None = None

    def show(self, unit: str) -> None:
        """Writes one line to stderr over the one before. unit: "tokens" or "rows"."""
        filled = round(BAR * self.step / max(1, self.total))
        evaluation = "" if self.evaluation is None else f" evaluation {self.evaluation:.4f}"
        sys.stderr.write(
            f"\r{'#' * filled}{'.' * (BAR - filled)} {self.step}/{self.total}"
            f" loss {self.loss:.4f}{evaluation} lr {self.learning_rate:.2e}"
            f" {self.tokens_per_second:.0f} {unit}/s {self.seconds_left:.0f} s left "
        )
        sys.stderr.flush()


@dataclass
class History:
    """Result of `Trainer.fit`.

    Attributes:
        losses: of each update.
        evaluations: [(step, loss on the evaluation data)].
        stopped: why the loop ended: "done", "early_stopping" or "callback".
        report: of data that are records: how many are too long, and the tokens that were cut off.
    """

    losses: list[float] = field(default_factory=list)
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    stopped: str = "done"
    report: Report | None = None


Data = str | Iterable[str | Sequence[int] | Record] | Mapping[str, object] | Rows


def rows_of(data: Data, model: TrainedModel, options: Options) -> Rows:
    """Batches of data.

    Args:
        data: a text, texts, lists of token ids or records (language models); {name: array}; or
            Rows, which pass unchanged.

    Raises:
        InputError: it is something else.
    """
    if hasattr(data, "get") and hasattr(data, "__len__") and not isinstance(data, dict):
        return cast(Rows, data)
    if isinstance(data, dict):
        return ArrayRows(data, options.batch_size, options.seed)
    if options.preference is not None:
        return unit_rows(data, model, options)
    if not options.is_lm or isinstance(data, (bytes, bytearray)) or not hasattr(data, "__iter__"):
        raise InputError(
            f"expected data, got {type(data).__name__}",
            "data",
            "Give {name: array}, or texts for a language model.",
        )
    texts: Any = [data] if isinstance(data, str) else list(data)
    if are_records(texts, "data"):
        streamed = stream_texts(texts, "data")
        if streamed is None:
            return record_rows(texts, model, options)
        texts = streamed
    ids = encode_texts(texts, lambda: model.tokenizer)
    pad = model.pad
    rows = token_rows(ids, options.sequence_length, model.end, pad)
    return TokenRows(rows, options.batch_size, options.seed, pad)


def record_rows(records: Sequence[Record], model: TrainedModel, options: Options) -> TokenRows:
    """Batches of records of which a part is learned, one row for each."""
    pad, sequence = model.pad, options.sequence_length
    examples = examples_of(records, model.tokenizer, model.end, sequence)
    rows, report = fitted(examples, sequence, pad, "data")
    return TokenRows(rows, options.batch_size, options.seed, pad, report)


def unit_rows(data: Data, model: TrainedModel, options: Options) -> UnitRows:
    """Batches of preferences."""
    by = cast(Preference, options.preference)
    records: Any = list(data) if isinstance(data, Iterable) and not isinstance(data, str) else []
    if not are_records(records, "data"):
        raise InputError(
            f"expected preferences, got {type(data).__name__}",
            "data",
            'Give records such as {"prompt": ..., "chosen": ..., "rejected": ...}.',
        )
    batch = options.batch_size
    block = batch_size_of(batch) * options.accumulation
    units, report = preference_units(
        records, model.tokenizer, model.end, model.pad, by, options.sequence_length, block
    )
    return UnitRows(units, batch, options.seed, model.pad, by, report)


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
    if isinstance(rows, UnitRows):
        units, rest = split_rows(rows.units, evaluation, Seed(options.seed))
        first, second = (
            UnitRows(part, rows.size, options.seed, rows.pad, rows.by, rows.report)
            for part in (units, rest)
        )
        return first, second
    if not isinstance(rows, TokenRows):
        raise InputError(
            "a share can be held back from texts only",
            "evaluation",
            "Give data of the same kind as the training data.",
        )
    train, held_out = (
        TokenRows(part, options.batch_size, options.seed, rows.pad, rows.report)
        for part in split_rows(rows.rows, evaluation, Seed(options.seed))
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


class Signal(Protocol):
    """What stops a loop between two updates."""

    aborted: bool


@dataclass
class Fit:
    """Arguments of `Trainer.fit` besides the data."""

    epochs: float | None
    max_steps: int | None
    evaluate_every: int | None
    early_stopping: int | None
    callbacks: Sequence[Callable[[Progress], object]]
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int
    progress: bool | None
    signal: Signal | None

    def __post_init__(self) -> None:
        names = ("epochs", "max_steps", "evaluate_every", "early_stopping", "checkpoint_every")
        check_options({name: getattr(self, name) for name in names})


class Loop:
    """One call of `Trainer.fit`: the host of logic/training/run.py. Only one thread at a time runs
    one.
    """

    def __init__(self, trainer: Trainer, rows: Rows, held_out: Rows | None, fit: Fit):
        self.trainer, self.rows, self.held_out, self.fit = trainer, rows, held_out, fit
        updates = Updates(len(rows), trainer.options.accumulation)
        trainer.begin_run(updates.total(fit.epochs, fit.max_steps))
        schedule = Schedule(
            trainer.total,
            fit.evaluate_every or updates.per_epoch,
            False,
            0 if fit.checkpoint is None else fit.checkpoint_every,
            fit.early_stopping or 0,
        )
        self.first = trainer.first_update
        self.logic = Run(
            updates,
            schedule,
            trainer.rate_at,
            trainer,
            held_out is not None,
            "Trainer.fit",
            trainer.session.step - self.first,
            trainer.first_epoch,
        )
        self.show = sys.stderr.isatty() if fit.progress is None else fit.progress

    def run(self) -> History:
        """Updates up to the end of the run, or until a callback, a signal or an error stops it."""
        trainer, run = self.trainer, self.logic
        try:
            ended = drive(run.fit(), self._answer)
        finally:
            if self.show:
                sys.stderr.write("\n")
            trainer.refresh()
        if not ended:
            raise Aborted(
                "training was stopped",
                f"update {trainer.session.step}",
                "What was learned so far is kept.",
            )
        trainer.done = run.ended != "callback"
        evaluations = [(self.first + step, loss) for step, loss in run.evaluations]
        report = getattr(self.rows, "report", None)
        return History(run.losses, evaluations, run.ended, report)

    def _answer(self, request: RunRequest) -> Any:
        """Does what a request asks for."""
        trainer = self.trainer
        if request.kind == "advance":
            if self.fit.signal is not None and self.fit.signal.aborted:
                return False
            drive(self.logic.advance(), self._answer)
            return True
        if request.kind == "update":
            return self._update(request)
        if request.kind == "evaluate":
            return trainer.evaluate(cast(Rows, self.held_out))
        if request.kind == "reached":
            return self._reached(request.event)
        if request.kind == "save":
            trainer.save(cast(str, self.fit.checkpoint))
        return None

    def _update(self, request: Update) -> Made:
        trainer, rows, epoch = self.trainer, self.rows, request.epoch
        chosen, size = range(request.first, request.end), trainer.options.batch_size
        started = time.monotonic()
        if isinstance(rows, UnitRows):
            loss = trainer.prefer([unit for i in chosen for unit in rows.at(i, epoch)])
        else:
            loss = trainer.step([rows.get(i, epoch) for i in chosen])
        tokens = sum(tokens_of(rows, i, epoch, size) for i in chosen)
        return Made(loss, tokens, time.monotonic() - started)

    def _reached(self, event: Event) -> bool:
        """Tells the callbacks. Returns whether none of them stops the loop."""
        at = Progress(
            event.step,
            event.total,
            event.epoch,
            event.loss,
            self.trainer.learning_rate(),
            event.tokens_per_second,
            event.seconds_left,
            event.evaluation,
        )
        if self.show:
            at.show("tokens" if self.trainer.options.is_lm else "rows")
        return not any(callback(at) is False for callback in self.fit.callbacks)
