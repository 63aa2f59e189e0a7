"""What `Trainer.fit` reports."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

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
    """

    losses: list[float] = field(default_factory=list)
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    stopped: str = "done"
