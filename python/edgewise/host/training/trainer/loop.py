"""The loop of `Trainer.fit`."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ....errors import Aborted, EngineError
from ..data import Rows, total_updates, updates_per_epoch
from .batches import tokens_of
from .options import check_finite, check_whole
from .progress import History, Progress

if TYPE_CHECKING:
    from .trainer import Trainer


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
        if self.epochs is not None:
            check_finite("epochs", self.epochs, positive=True)
        if self.max_steps is not None:
            check_whole("max_steps", self.max_steps, 0)
        for name in ("evaluate_every", "early_stopping", "checkpoint_every"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)


class Loop:
    """One call of `Trainer.fit`. Only one thread at a time runs one."""

    def __init__(self, trainer: Trainer, rows: Rows, held_out: Rows | None, fit: Fit):
        self.trainer, self.rows, self.held_out, self.fit = trainer, rows, held_out, fit
        self.per_epoch = updates_per_epoch(len(rows), trainer.options.accumulation)
        self.history = History()
        self.best: float | None = None  # evaluation loss
        self.waited = 0  # evaluations without improvement
        self.tokens = 0

    def run(self) -> History:
        """Updates up to the end of the run, or until a callback, a signal or an error stops it."""
        trainer, fit = self.trainer, self.fit
        trainer.begin_run(total_updates(self.per_epoch, fit.epochs, fit.max_steps))
        end = trainer.first_update + trainer.total
        show = sys.stderr.isatty() if fit.progress is None else fit.progress
        self.started, self.first = time.monotonic(), trainer.session.step
        try:
            while trainer.session.step < end:
                at = self._update(end)
                if show:
                    at.show("tokens" if trainer.options.is_lm else "rows")
                if any(callback(at) is False for callback in fit.callbacks):
                    self.history.stopped = "callback"
                    break
                if fit.checkpoint is not None and trainer.session.step % fit.checkpoint_every == 0:
                    trainer.save(fit.checkpoint)
                if fit.early_stopping and self.waited >= fit.early_stopping:
                    self.history.stopped = "early_stopping"
                    trainer.done = True
                    break
            else:
                trainer.done = True
        finally:
            if show:
                sys.stderr.write("\n")
            trainer.refresh()
        if fit.checkpoint is not None:
            trainer.save(fit.checkpoint)
        return self.history

    def _update(self, end: int) -> Progress:
        trainer, rows = self.trainer, self.rows
        if self.fit.signal is not None and self.fit.signal.aborted:
            raise Aborted(
                "training was stopped",
                f"update {trainer.session.step}",
                "What was learned so far is kept.",
            )
        last = min(trainer.cursor + trainer.options.accumulation, len(rows))
        chosen, epoch = range(trainer.cursor, last), trainer.epoch
        loss = trainer.step([rows.get(i, epoch) for i in chosen])
        size = trainer.options.batch_size
        self.tokens += sum(tokens_of(rows, i, epoch, size) for i in chosen)
        if not math.isfinite(loss):
            raise EngineError(
                f"the loss is {loss}",
                f"update {trainer.session.step}",
                "The parameters are damaged: resume from the last checkpoint with a smaller"
                " learning rate, or set max_grad_norm; and look for such numbers in the data.",
            )
        rate = trainer.learning_rate()
        trainer.advance(last, len(rows))
        return self._record(loss, rate, end)

    def _record(self, loss: float, rate: float, end: int) -> Progress:
        """Adds the update to the history; evaluates if it is time to."""
        trainer, history = self.trainer, self.history
        done, seconds = trainer.session.step, time.monotonic() - self.started
        at = Progress(
            step=done - trainer.first_update,
            total=trainer.total,
            epoch=trainer.epoch - trainer.first_epoch + trainer.cursor / len(self.rows),
            loss=loss,
            learning_rate=rate,
            tokens_per_second=self.tokens / max(seconds, 1e-9),
            seconds_left=seconds / (done - self.first) * (end - done),
        )
        history.losses.append(loss)
        every = self.fit.evaluate_every or self.per_epoch
        if self.held_out is not None and (at.step % every == 0 or done == end):
            at.evaluation = trainer.evaluate(self.held_out)
            history.evaluations.append((done, at.evaluation))
            improved = self.best is None or at.evaluation < self.best
            self.waited = 0 if improved else self.waited + 1
            self.best = at.evaluation if improved else self.best
        return at
