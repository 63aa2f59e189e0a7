"""A run of training: its updates, evaluations and checkpoints, and when it ends. What computes,
stores and waits is the host's: it answers the requests below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ...errors import EngineError, InputError
from .data import Updates

LATEST = 16  # updates over which the speed is averaged
UNKNOWN = -1  # after how many updates a copy was made: files of old versions do not say


# Requests


@dataclass(frozen=True)
class Reset:
    """Set the accumulated gradients to zero."""

    kind: Literal["reset"] = "reset"


@dataclass(frozen=True)
class Forward:
    """Run the batches of an update forward and backward: with `rate` the only one, which also
    updates the parameters; with None all of them, whose gradients accumulate. The answer: their
    losses.
    """

    rate: float | None
    kind: Literal["forward"] = "forward"


@dataclass(frozen=True)
class Apply:
    """Update the parameters with the accumulated gradients times `scale`."""

    rate: float
    scale: float
    kind: Literal["apply"] = "apply"


@dataclass(frozen=True)
class Update:
    """Make the update after `step` ones, of the batches [first, end) of an epoch. The answer: a
    Made.
    """

    step: int
    epoch: int
    first: int
    end: int
    rate: float
    kind: Literal["update"] = "update"


@dataclass(frozen=True)
class BackUp:
    """An update was made, and is not the last one. Where a device may be lost, copy its states."""

    kind: Literal["back_up"] = "back_up"


@dataclass(frozen=True)
class Evaluate:
    """Compute the loss on the evaluation data. The answer: it."""

    kind: Literal["evaluate"] = "evaluate"


@dataclass(frozen=True)
class Reached:
    """Tell callbacks that may change parameters. The answer: whether to go on."""

    event: Event
    kind: Literal["reached"] = "reached"


@dataclass(frozen=True)
class Save:
    """Write a checkpoint. The answer: its size in bytes, or why that failed."""

    kind: Literal["save"] = "save"


@dataclass(frozen=True)
class Keep:
    """Copy what is trained: it is the best so far on the evaluation data."""

    kind: Literal["keep"] = "keep"


@dataclass(frozen=True)
class TakeAverages:
    """The run has ended: make the averages of the weights the weights."""

    kind: Literal["take_averages"] = "take_averages"


@dataclass(frozen=True)
class TakeBack:
    """The run has ended: put back what Keep copied last."""

    kind: Literal["take_back"] = "take_back"


@dataclass(frozen=True)
class Advance:
    """Wait while the run is paused, answer the requests of `Run.advance` with nothing else between
    them, and tell its event. The answer: whether to go on; False if the run was aborted.
    """

    kind: Literal["advance"] = "advance"


UpdateRequest = Reset | Forward | Apply
RunRequest = Update | BackUp | Evaluate | Keep | Reached | Save | TakeAverages | TakeBack | Advance


# Values


@dataclass(frozen=True)
class Made:
    """An update that was made: the mean loss of its batches, the tokens (or rows) that it trained
    on, and how long it took.
    """

    loss: float
    tokens: int
    seconds: float


@dataclass
class Event:
    """A run after an update.

    Attributes:
        step: updates made.
        total: updates of the run.
        epoch: passes over the data, with a fraction.
        loss: mean over the update's batches, before the update.
        learning_rate: of this update.
        tokens_per_second: of the latest updates.
        seconds_left: at that speed.
        evaluation: loss on the evaluation data, if it was computed after this update.
        checkpoint: if one was due: its size in bytes, or why it could not be written.
    """

    step: int
    total: int
    epoch: float
    loss: float
    learning_rate: float
    tokens_per_second: float
    seconds_left: float
    evaluation: float | None = None
    checkpoint: int | str | None = None


@dataclass(frozen=True)
class Schedule:
    """When something is due. Numbers of updates; 0: never.

    Attributes:
        total: updates of the run.
        evaluate_every: between evaluations. The last update is always evaluated.
        evaluates_first: whether the values before the first update are evaluated, too.
        checkpoint_every: between checkpoints. The last update has one, unless this is 0.
        early_stopping: evaluations without improvement after which the run ends.
        load_best: whether the run ends with the result of its best evaluation.
        averages: whether there are averages of the weights, with which the run ends.
    """

    total: int
    evaluate_every: int
    evaluates_first: bool
    checkpoint_every: int
    early_stopping: int
    load_best: bool = False
    averages: bool = False


class Place(Protocol):
    """A position in the data: the epoch, and its batches that were used."""

    epoch: int
    cursor: int


def update(
    count: int, rate: float, accumulates: bool, weighed: bool = False
) -> Generator[UpdateRequest, Any, float]:
    """Makes an update.

    Args:
        count: its batches.
        rate: its learning rate.
        accumulates: whether gradients are accumulated first, which one batch does not need.
        weighed: whether each of the accumulated losses is its part of the update's mean loss, such
            as that over all tokens; otherwise they are averaged.

    Returns:
        The mean loss of the update, before it.
    """
    if accumulates:
        yield Reset()
    losses: list[float] = yield Forward(None if accumulates else rate)
    if accumulates:
        yield Apply(rate, 1.0 if weighed else 1 / count)
    total = 0.0  # not `sum`, whose digits depend on the version of Python
    for loss in losses:
        total += loss
    return total if accumulates and weighed else total / count


def mean_loss(batches: int) -> Generator[int, tuple[float, int], float]:
    """The mean loss over evaluation data. Yields the numbers of batches; the answers: the loss of
    each, and its weight, such as the number of its tokens.
    """
    total, weights = 0.0, 0
    for i in range(batches):
        loss, weight = yield i
        total += loss * weight
        weights += weight
    return total / max(1, weights)


class Pace:
    """The time that updates took.

    Attributes:
        seconds: of all updates.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._latest: list[Made] = []
        self._in_latest = 0.0
        self._tokens = 0

    def add(self, made: Made) -> None:
        """Counts an update."""
        self._latest.append(made)
        self.seconds += made.seconds
        self._in_latest += made.seconds
        self._tokens += made.tokens
        if len(self._latest) > LATEST:
            first = self._latest.pop(0)
            self._in_latest -= first.seconds
            self._tokens -= first.tokens

    def speed(self) -> tuple[float, float]:
        """Tokens per second, and seconds per update, lately."""
        seconds = max(self._in_latest, 1e-9)
        return self._tokens / seconds, seconds / len(self._latest)


class Run:
    """A run of updates.

    Args:
        updates: which batches they have.
        schedule: what is due when.
        rate: the learning rate of the update after so many.
        place: where the run is in its data, which it moves.
        evaluates: whether there is evaluation data.
        where: what errors call the run.
        step: updates made before.
        first_epoch: in which the run began.

    Attributes:
        step: updates made.
        losses: of the updates.
        evaluations: (updates before it, loss on the evaluation data).
        pace: their speed.
        failed: whether the loss became infinite or NaN.
        untold: the latest event, where what was due after its update did not end.
        ended: why the run ended: "done", "early_stopping" or "callback"; "" before.
        best_step: updates before the best evaluation that was due; None: there was none.
    """

    def __init__(
        self,
        updates: Updates,
        schedule: Schedule,
        rate: Callable[[int], float],
        place: Place,
        evaluates: bool,
        where: str,
        step: int = 0,
        first_epoch: int = 0,
    ) -> None:
        self.updates = updates
        self.schedule = schedule
        self.rate = rate
        self.place = place
        self.evaluates = evaluates
        self.where = where
        self.step = step
        self.losses: list[float] = []
        self.evaluations: list[tuple[int, float]] = []
        self.pace = Pace()
        self.failed = False
        self.untold: Event | None = None
        self.ended = ""
        self._first_epoch = first_epoch
        self._due_at = -1  # updates at the latest checkpoint that was due
        self.best_step: int | None = None
        self._best = math.inf
        self._waited = 0  # evaluations without improvement

    def restore(
        self,
        step: int,
        losses: list[float],
        evaluations: list[tuple[int, float]],
        kept: int = UNKNOWN,
    ) -> None:
        """Goes on after `step` updates, which a checkpoint has. For runs from epoch 0 on. kept: as
        of `recall`.
        """
        self.step = step
        self._due_at = step
        self.losses = list(losses)
        self.evaluations = list(evaluations)
        self.recall(self.evaluations, kept)
        self.place.epoch, self.place.cursor = self.updates.place(step)

    def back_to(self, step: int) -> None:
        """Forgets the updates after the first `step` ones. For runs from epoch 0 on."""
        self.step = step
        self.losses = self.losses[:step]
        self.evaluations = [x for x in self.evaluations if x[0] <= step]
        best = self.best_step
        self.recall(self.evaluations, UNKNOWN if best is None or best > step else best)
        self.place.epoch, self.place.cursor = self.updates.place(step)

    def recall(self, evaluations: Sequence[tuple[int, float]], kept: int = UNKNOWN) -> None:
        """Counts the evaluations that were due in the run so far, and no others.

        Args:
            evaluations: of the run, in their order.
            kept: updates before the copy that `Keep` made last; 0: there is none. A run that ends
                with its best result takes that one for the best so far, since others cannot be put
                back.
        """
        copied = kept if self.schedule.load_best else UNKNOWN
        self.best_step = None
        self._best = math.inf
        self._waited = 0
        last = 0
        for step, loss in evaluations:
            if step <= last or step != copied and not self._is_evaluated(step):
                continue
            last = step
            if copied == UNKNOWN or step == copied:
                self._is_best(step, loss)
            elif step > copied:
                self._waited = 0 if loss < self._best else self._waited + 1

    def _is_evaluated(self, step: int) -> bool:
        """Whether an evaluation is due after `step` updates."""
        every = self.schedule.evaluate_every
        return step == self.schedule.total or every > 0 and step % every == 0

    def _is_best(self, step: int, loss: float) -> bool:
        """Counts an evaluation. Returns whether it is the best so far."""
        if loss < self._best:
            self._best = loss
            self.best_step = step
            self._waited = 0
            return True
        self._waited += 1
        return False

    def _is_at_rest(self) -> bool:
        """Whether evaluations have not improved for long enough."""
        patience = self.schedule.early_stopping
        return patience > 0 and self._waited >= patience

    def fit(self) -> Generator[RunRequest, Any, bool]:
        """Makes the updates up to the end of the run, or until a callback or an abort stops it.

        Returns:
            Whether it ended: it was not aborted. Where it was, a checkpoint is due before the host
            raises Aborted.
        """
        self.ended = "early_stopping" if self._is_at_rest() and not self._is_untold() else ""
        while not self.ended and (self.step < self.schedule.total or self._is_untold()):
            go_on: bool = yield Advance()
            if not go_on:
                if self.step:
                    yield from self._save_last()
                return False
        self.ended = self.ended or "done"
        yield from self._save_last()
        if self.ended != "callback":
            if self.schedule.averages:
                yield TakeAverages()
            if self.schedule.load_best and self.best_step is not None:
                yield TakeBack()
        return True

    def _is_untold(self) -> bool:
        return self.untold is not None and self.untold.step == self.step

    def _save_last(self) -> Generator[RunRequest, Any, None]:
        """Writes a checkpoint of the present step, unless there is one."""
        if self.schedule.checkpoint_every and self.step != self._due_at:
            self._due_at = self.step
            yield Save()

    def advance(self) -> Generator[RunRequest, Any, Event]:
        """Makes an update, and what is due after it: where that did not end, it is first tried
        again.

        Raises:
            InputError: the run is over, or has failed.
            EngineError: the loss became infinite or NaN.
        """
        again = self.untold
        event = again if again is not None and self._is_untold() else (yield from self._next())
        self.untold = event
        yield from self._after(event)
        self.untold = None
        return event

    def _next(self) -> Generator[RunRequest, Any, Event]:
        step, total, place = self.step, self.schedule.total, self.place
        if self.failed:
            raise InputError("its loss is not a number", self.where, "Close it and start over.")
        if step >= total:
            raise InputError(
                f"all {total} steps have been made", "step", "Make a new trainer with more epochs."
            )
        if self.evaluates and self.schedule.evaluates_first:
            if step == 0 and not self.evaluations:
                yield from self.evaluate()
        rate = self.rate(step)
        end = self.updates.end(place.cursor)
        made: Made = yield Update(step, place.epoch, place.cursor, end, rate)
        self.pace.add(made)
        self.step = step + 1
        self.losses.append(made.loss)
        place.cursor = end
        if end >= self.updates.batches:
            place.epoch += 1
            place.cursor = 0
        self.failed = not math.isfinite(made.loss)
        if self.failed:
            raise EngineError(
                f"the loss is {made.loss} at step {self.step}",
                self.where,
                "The parameters are damaged: go back to a checkpoint, or start over, with a lower"
                " learning_rate, more warmup_steps or max_grad_norm; and look for such numbers in"
                " the data.",
            )
        event = self._event(made.loss, rate)
        if self.step < total:
            yield BackUp()
        return event

    def _event(self, loss: float, rate: float) -> Event:
        tokens, seconds = self.pace.speed()
        step, total, place = self.step, self.schedule.total, self.place
        epoch = place.epoch - self._first_epoch + place.cursor / self.updates.batches
        return Event(step, total, epoch, loss, rate, tokens, (total - step) * seconds)

    def _after(self, event: Event) -> Generator[RunRequest, Any, None]:
        """What is due after an update."""
        step, due = self.step, self.schedule
        last = step == due.total
        if self.evaluates and self._is_evaluated(step):
            event.evaluation = yield from self.evaluate()
            if self._is_best(step, event.evaluation) and due.load_best:
                yield Keep()
        go_on: bool = yield Reached(event)
        if not go_on:
            self.ended = "callback"
        elif self._is_at_rest():
            self.ended = "early_stopping"
        every = due.checkpoint_every
        if every and (last or step % every == 0):
            self._due_at = step
            event.checkpoint = yield Save()

    def evaluate(self) -> Generator[RunRequest, Any, float]:
        """The loss on the evaluation data, which `evaluations` gets."""
        loss: float = yield Evaluate()
        self.evaluations.append((self.step, loss))
        return loss


__all__ = [
    "UNKNOWN",
    "Advance",
    "Apply",
    "BackUp",
    "Evaluate",
    "Event",
    "Forward",
    "Keep",
    "Made",
    "Pace",
    "Place",
    "Reached",
    "Reset",
    "Run",
    "RunRequest",
    "Save",
    "Schedule",
    "TakeAverages",
    "TakeBack",
    "Update",
    "UpdateRequest",
    "mean_loss",
    "update",
]
