"""The loop of `Trainer.fit`: batches of the data, and reports. logic/training/run.py decides what
follows what.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, cast

from ....compiler.arrays import as_input
from ....errors import Aborted, InputError
from ....logic.native import Seed
from ....logic.training.chat import Report, fitted, stream_texts
from ....logic.training.data import Updates, split_rows
from ....logic.training.options import check_judged, check_options
from ....logic.training.packing import rows_of_texts
from ....logic.training.preferences import Preference
from ....logic.training.records import Record, are_records
from ....logic.training.run import Event, Made, Run, RunRequest, Schedule, Update
from ...drive import drive
from ..card import TrainingRun
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

    def words(self, unit: str) -> str:
        """The update in words. unit: "tokens" or "rows"."""
        evaluation = "" if self.evaluation is None else f" evaluation {self.evaluation:.4f}"
        return (
            f"loss {self.loss:.4f}{evaluation} lr {self.learning_rate:.2e}"
            f" {self.tokens_per_second:.0f} {unit}/s"
        )


class Bar:
    """Shows updates: in a notebook with tqdm, where that is installed; else in one line of stderr,
    which is written over the one before.

    Args:
        tqdm: the class of bars, or None.
    """

    def __init__(self, tqdm: Any = None) -> None:
        self._tqdm = tqdm
        self._bar: Any = None

    @classmethod
    def of(cls, wanted: bool | None) -> Bar | None:
        """A Bar if one is wanted. None: where stderr is a terminal or a notebook's cell."""
        notebook = "ipykernel" in sys.modules or "pyodide_kernel" in sys.modules
        if not (sys.stderr.isatty() or notebook if wanted is None else wanted):
            return None
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return cls()
        return cls(tqdm if notebook else None)

    def show(self, at: Progress, unit: str) -> None:
        """Shows an update. unit: "tokens" or "rows"."""
        if self._tqdm is not None:
            if self._bar is None:
                self._bar = self._tqdm(total=at.total, initial=at.step - 1, unit="update")
            self._bar.set_postfix_str(at.words(unit), refresh=False)
            self._bar.update(at.step - self._bar.n)
            return
        filled = round(BAR * at.step / max(1, at.total))
        sys.stderr.write(
            f"\r{'#' * filled}{'.' * (BAR - filled)} {at.step}/{at.total}"
            f" {at.words(unit)} {at.seconds_left:.0f} s left "
        )
        sys.stderr.flush()

    def close(self) -> None:
        """Ends the line."""
        if self._bar is not None:
            self._bar.close()
        else:
            sys.stderr.write("\n")


@dataclass(repr=False)
class History:
    """Result of `Trainer.fit`.

    Attributes:
        losses: of each update.
        evaluations: [(step, loss on the evaluation data)].
        stopped: why the loop ended: "done", "early_stopping" or "callback".
        report: of data that are records: how many are too long, and the tokens that were cut off.
        best_step: updates before the best evaluation of the run, or None.
        first: updates of the trainer before this call.
    """

    losses: list[float] = field(default_factory=list)
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    stopped: str = "done"
    report: Report | None = None
    first: int = 0
    best_step: int | None = None

    def __repr__(self) -> str:
        losses = self.losses
        course = f"loss {losses[0]:.4f} to {losses[-1]:.4f}, " if losses else ""
        held = f"held out {self.evaluations[-1][1]:.4f}, " if self.evaluations else ""
        return f"History({len(losses)} updates, {course}{held}stopped={self.stopped!r})"

    def _repr_html_(self) -> str:
        """The losses as a picture, in notebooks."""
        across, up = 440 / max(1, len(self.losses) - 1), 120 / max(1e-9, *self.losses, 1e-9)
        points = " ".join(
            f"{20 + i * across:.1f},{140 - loss * up:.1f}" for i, loss in enumerate(self.losses)
        )
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" width="480" height="160" role="img">'
            f'<title>{escape(repr(self))}</title><polyline points="{points}" fill="none"'
            ' stroke="#2563eb" stroke-width="2"/><text x="20" y="14" font-size="12"'
            f' fill="currentColor">{escape(repr(self))}</text></svg>'
        )

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row for each update: `step` (its index), `loss`, and
        `evaluation` where the evaluation data were evaluated after it.

        Raises:
            InputError: pandas is not installed.
        """
        pandas = _library("pandas")
        held = dict(self.evaluations)
        steps = range(self.first + 1, self.first + 1 + len(self.losses))
        rows = {"loss": self.losses, "evaluation": [held.get(step) for step in steps]}
        index = pandas.Index(steps, name="step")
        return pandas.DataFrame(rows, index=index).astype("float64")

    def plot(self, ax: Any = None) -> Any:
        """Draws the losses with matplotlib.

        Args:
            ax: the matplotlib Axes to draw on. Default: new ones.

        Returns:
            The Axes.

        Raises:
            InputError: matplotlib is not installed.
        """
        if ax is None:
            ax = _library("matplotlib.pyplot").subplots()[1]
        steps = range(self.first + 1, self.first + 1 + len(self.losses))
        ax.plot(steps, self.losses, label="training")
        if self.evaluations:
            ax.plot(*zip(*self.evaluations), marker="o", label="held out")
        ax.set_xlabel("update")
        ax.set_ylabel("loss")
        ax.legend()
        return ax


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise InputError(
            f"it needs {package}, which is not installed", "History", f"pip install {package}"
        ) from None


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
    refuse_paths(data)
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
    sequence, packing = options.sequence_length, options.packing
    rows = rows_of_texts(ids, sequence, model.end, pad, "texts", packing)
    return TokenRows(rows, options.batch_size, options.seed, pad)


MAX_PATH = 4096


def refuse_paths(data: object) -> None:
    """Raises InputError for the path of a file, which would be learned as a text."""
    if isinstance(data, os.PathLike) or (
        isinstance(data, str) and len(data) <= MAX_PATH and os.path.isfile(data)
    ):
        raise InputError(
            "it is the path of a file",
            "data",
            f"Read it: edgewise.training.read_data({os.fspath(data)!r}).",
        )


def record_rows(records: Sequence[Record], model: TrainedModel, options: Options) -> TokenRows:
    """Batches of records of which a part is learned, one row for each."""
    pad, sequence = model.pad, options.sequence_length
    examples = examples_of(records, model.tokenizer, model.end, sequence)
    rows, report = fitted(examples, sequence, pad, "data", options.packing)
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


def patience_of(early_stopping: int | None, patience: int | None) -> int | None:
    """The value of two names of one option. Raises InputError for two values."""
    if early_stopping is not None and patience is not None and early_stopping != patience:
        raise InputError(
            f"it is {patience}, and early_stopping, another name of it, is {early_stopping}",
            "early_stopping_patience",
            "Give one of them.",
        )
    return early_stopping if patience is None else patience


class Signal(Protocol):
    """What stops a loop between two updates."""

    aborted: bool


@dataclass
class Fit:
    """Arguments of `Trainer.fit` besides the data."""

    epochs: float | None
    max_steps: int | None
    evaluate_every: int | None
    early_stopping_patience: int | None
    load_best_model_at_end: bool
    callbacks: Sequence[Callable[[Progress], object]]
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int
    progress: bool | None
    signal: Signal | None

    def __post_init__(self) -> None:
        names = ("epochs", "max_steps", "evaluate_every", "early_stopping_patience")
        check_options({name: getattr(self, name) for name in (*names, "checkpoint_every")})


class Loop:
    """One call of `Trainer.fit`: the host of logic/training/run.py. Only one thread at a time runs
    one.
    """

    def __init__(self, trainer: Trainer, rows: Rows, held_out: Rows | None, fit: Fit):
        check_judged(fit.early_stopping_patience, fit.load_best_model_at_end, held_out is not None)
        self.trainer, self.rows, self.held_out, self.fit = trainer, rows, held_out, fit
        updates = Updates(len(rows), trainer.options.accumulation)
        trainer.begin_run(updates.total(fit.epochs, fit.max_steps))
        schedule = Schedule(
            trainer.total,
            fit.evaluate_every or updates.per_epoch,
            False,
            0 if fit.checkpoint is None else fit.checkpoint_every,
            fit.early_stopping_patience or 0,
            fit.load_best_model_at_end,
            trainer.options.ema_decay is not None,
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
        self.logic.recall(trainer.evaluated, trainer.kept)
        self.before = trainer.session.step
        self.bar = Bar.of(fit.progress)

    def run(self) -> History:
        """Updates up to the end of the run, or until a callback, a signal or an error stops it."""
        trainer, run = self.trainer, self.logic
        try:
            ended = drive(run.fit(), self._answer)
        finally:
            if self.bar is not None:
                self.bar.close()
            trainer.refresh()
            if run.losses:
                self._remember()
        if not ended:
            raise Aborted(
                "training was stopped",
                f"update {trainer.session.step}",
                "What was learned so far is kept.",
            )
        trainer.done = run.ended != "callback"
        evaluations = [(self.first + step, loss) for step, loss in run.evaluations]
        report = getattr(self.rows, "report", None)
        best = None if run.best_step is None else self.first + run.best_step
        return History(run.losses, evaluations, run.ended, report, self.before, best)

    def _remember(self) -> None:
        """Keeps what a model card says of the run, with the parts before `resume`."""
        trainer, run = self.trainer, self.logic
        order = getattr(self.rows, "order", None)
        first = trainer.first_loss
        trainer.learned = TrainingRun(
            trainer.session.step - trainer.first_update,
            [] if first is None else [first, run.losses[-1]],
            None if order is None else order.count,
            None,
            run.evaluations[-1][1] if run.evaluations else None,
            trainer.options.on_card(),
        )
        trainer.learned_rows = self.rows

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
            with trainer.averaged():
                return trainer.evaluate(cast(Rows, self.held_out))
        if request.kind == "reached":
            return self._reached(request.event)
        if request.kind == "keep":
            trainer.keep_best(self.logic.step)
        if request.kind == "take_averages":
            trainer.take_averages()
        if request.kind == "take_back":
            trainer.take_best()
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
        if trainer.session.step == trainer.first_update + 1:
            trainer.first_loss = loss
        return Made(loss, tokens, time.monotonic() - started)

    def _reached(self, event: Event) -> bool:
        """Tells the callbacks. Returns whether none of them stops the loop."""
        if event.evaluation is not None:
            self.trainer.evaluated.append((event.step, event.evaluation))
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
        if self.bar is not None:
            self.bar.show(at, "tokens" if self.trainer.options.is_lm else "rows")
        return not any(callback(at) is False for callback in self.fit.callbacks)
