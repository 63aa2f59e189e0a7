"""Runs of training on both forms: what follows what, beside transformers' Trainer, and calls that
fail, end early or are taken up again.
"""

import math

import pytest
from edgewise.errors import EngineError, InputError
from edgewise.logic.training.run import Made, Schedule

from .forms import both, module

LOSSES = [5.0, 4.0, 4.5, 3.0, 3.5, 3.1, 3.2, 2.0, 1.0]


class Place:
    """A position in Python; a plain object in a page."""

    def __init__(self):
        self.epoch = self.cursor = 0


class Host:
    """Notes the requests of a run. Evaluations are LOSSES; others of an update count its number.

    Args:
        form: see forms.py.
        batches: of an epoch.
        accumulation: batches of an update.
        due: fields of Schedule.
        evaluates: whether there is evaluation data.
        fails: {kind: errors that answers of requests raise, the next one last}.
    """

    def __init__(self, form, batches, accumulation, evaluates=True, fails=None, **due):
        data, self.logic = module(form, "training.data"), module(form, "training.run")
        due = {"total": 6, "evaluate_every": 0, "evaluates_first": False} | due
        due = {"checkpoint_every": 0, "early_stopping": 0} | due
        updates = data.Updates(batches, accumulation)
        place = Place() if form == "python" else {"epoch": 0, "cursor": 0}
        rate = self.rate
        self.run = self.logic.Run(updates, Schedule(**due), rate, place, evaluates, "the run")
        self.log, self.evaluated, self.fails = [], 0, fails or {}
        self.stops, self.aborts, self.loss = set(), set(), {}

    @staticmethod
    def rate(step):
        return 1.0 / (1 + step)

    def answer(self, request):
        if request.kind != "advance":
            self.log.append((request.kind, self.run.step))
        if self.fails.get(request.kind):
            raise self.fails[request.kind].pop()
        if request.kind == "advance":
            if self.run.step in self.aborts:
                return False
            self.event = self.drive(self.run.advance())
            return True
        if request.kind == "update":
            self.log[-1] = (request.epoch, request.first, request.end, request.rate)
            return Made(self.loss.get(request.step, float(request.step)), 10, 0.5)
        if request.kind == "evaluate":
            self.evaluated += 1
            return LOSSES[self.evaluated - 1]
        if request.kind == "reached":
            self.log.pop()
            return request.event.step not in self.stops
        return 1000 if request.kind == "save" else None

    def drive(self, steps):
        answer = None
        while True:
            try:
                answer = self.answer(steps.send(answer))
            except StopIteration as over:
                return over.value

    def fit(self):
        return self.drive(self.run.fit())

    def at(self, kind):
        """The steps of the requests of a kind."""
        return [x[1] for x in self.log if x[0] == kind]


def events_of_transformers(folder, rows, batch, accumulation, patience, **arguments):
    """(number of updates, steps of evaluations, steps of checkpoints, epochs after updates) of
    transformers' Trainer, whose evaluations give LOSSES.
    """
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    evaluations, saves, epochs = [], [], []

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(1))

        def forward(self, x):
            return {"loss": (self.w * x).mean()}

    class Trainer(transformers.Trainer):
        def evaluate(self, *_, **__):
            metrics = {"eval_loss": LOSSES[len(evaluations)]}
            evaluations.append(self.state.global_step)
            self.control = self.callback_handler.on_evaluate(
                self.args, self.state, self.control, metrics
            )
            return metrics

        def _save_checkpoint(self, *_):
            saves.append(self.state.global_step)

    class Note(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            epochs.append(state.epoch)

    callbacks = [Note()]
    if patience:
        callbacks.append(transformers.EarlyStoppingCallback(patience))
    data = [{"x": torch.ones(1)} for _ in range(rows)]
    given = transformers.TrainingArguments(
        str(folder),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        eval_strategy="steps",
        save_strategy="steps",
        metric_for_best_model="loss",
        greater_is_better=False,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        use_cpu=True,
        **arguments,
    )
    trainer = Trainer(Model(), given, train_dataset=data, eval_dataset=data, callbacks=callbacks)
    trainer.train()
    return trainer.state.global_step, evaluations, saves, epochs


@both
@pytest.mark.parametrize(
    "rows, batch, accumulation, total, evaluate, save, patience, first",
    [
        (9, 2, 1, 10, 2, 5, 0, False),
        (9, 2, 2, 8, 4, 3, 0, True),
        (4, 2, 1, 18, 2, 100, 2, False),
        (4, 4, 1, 9, 1, 2, 3, False),
    ],
)
def test_as_transformers(
    form, tmp_path, rows, batch, accumulation, total, evaluate, save, patience, first
):
    steps, evaluations, saves, epochs = events_of_transformers(
        tmp_path,
        rows,
        batch,
        accumulation,
        patience,
        max_steps=total,
        eval_steps=evaluate,
        save_steps=save,
        eval_on_start=first,
    )
    host = Host(
        form,
        -(-rows // batch),
        accumulation,
        total=total,
        evaluate_every=evaluate,
        evaluates_first=first,
        checkpoint_every=save,
        early_stopping=patience,
    )
    seen = []
    answer = host.answer

    def noted(request):
        if request.kind == "reached":
            seen.append(request.event.epoch)
        return answer(request)

    host.answer = noted
    assert host.fit()
    assert host.run.step == steps
    assert host.at("evaluate") == evaluations
    assert [x[0] for x in host.run.evaluations] == evaluations
    # transformers saves at the end of a run, not where it was stopped early
    assert host.at("save") == sorted({*saves, steps})
    assert host.run.ended == ("early_stopping" if patience else "done")
    if accumulation == 1:  # transformers counts the last, shorter update of an epoch as others
        assert seen == pytest.approx(epochs)


@both
def test_batches_and_rates(form):
    host = Host(form, 3, 2, evaluates=False, total=5)
    assert host.fit()
    updates = [x for x in host.log if len(x) == 4]
    batches = [(0, 0, 2), (0, 2, 3), (1, 0, 2), (1, 2, 3), (2, 0, 2)]
    assert updates == [(*x, 1 / (1 + i)) for i, x in enumerate(batches)]
    assert host.run.losses == [0, 1, 2, 3, 4]
    assert host.at("back_up") == [1, 2, 3, 4]
    event = host.event
    assert (event.step, event.total, event.epoch) == (5, 5, pytest.approx(2 + 2 / 3))
    assert (event.tokens_per_second, event.seconds_left) == (20, 0)


@both
def test_the_speed_is_that_of_the_latest_updates(form):
    pace = module(form, "training.run").Pace()
    for seconds in [100.0] * 5 + [2.0] * 16:
        pace.add(Made(0.0, 10, seconds))
    assert pace.seconds == 532
    assert pace.speed() == (5, 2)


@both
def test_a_callback_stops_and_the_run_is_taken_up(form):
    host = Host(form, 4, 1, checkpoint_every=4, evaluate_every=2)
    host.stops = {3}
    assert host.fit()
    assert (host.run.step, host.run.ended) == (3, "callback")
    assert host.at("save") == [3]
    assert host.fit()
    assert (host.run.step, host.run.ended) == (6, "done")
    assert host.at("save") == [3, 4, 6]
    assert [x[0] for x in host.run.evaluations] == [2, 4, 6]
    assert host.run.losses == [0, 1, 2, 3, 4, 5]


@both
def test_an_abort_is_saved(form):
    host = Host(form, 4, 1, checkpoint_every=2)
    host.aborts = {0}
    assert not host.fit()
    assert host.log == []
    host.aborts = {3}
    assert not host.fit()
    assert host.at("save") == [2, 3]
    host.aborts = set()
    assert host.fit()
    assert host.at("save") == [2, 3, 4, 6]


@both
def test_what_failed_after_an_update_is_made_again(form):
    host = Host(form, 4, 1, evaluate_every=2, fails={"evaluate": [OSError("gone")]})
    with pytest.raises(OSError, match="gone"):
        host.fit()
    assert (host.run.step, host.run.evaluations) == (2, [])
    assert host.fit()
    assert host.run.losses == [0, 1, 2, 3, 4, 5]
    assert [x[0] for x in host.run.evaluations] == [2, 4, 6]
    # also after the last update
    host = Host(form, 4, 1, total=1, fails={"evaluate": [OSError("gone"), OSError("again")]})
    for words in ("again", "gone"):
        with pytest.raises(OSError, match=words):
            host.fit()
    assert host.fit()
    assert [tuple(x) for x in host.run.evaluations] == [(1, 5)]


@both
def test_updates_that_were_lost_are_made_again(form):
    host = Host(form, 3, 1, evaluates_first=True, evaluate_every=2, total=9)
    host.aborts = {5}
    assert not host.fit()
    host.run.back_to(2)
    assert (host.run.step, host.run.losses) == (2, [0, 1])
    assert [x[0] for x in host.run.evaluations] == [0, 2]
    host.log, host.aborts = [], set()
    assert host.fit()
    assert host.run.losses == list(range(9))
    assert [x[:2] for x in host.log if len(x) == 4] == [divmod(i, 3) for i in range(2, 9)]
    # and of a checkpoint
    other = Host(form, 3, 1, evaluates_first=True, total=9, checkpoint_every=4)
    other.run.restore(4, [0, 1, 2, 3], [(0, 1.5)])
    assert other.fit()
    assert other.run.losses == host.run.losses
    assert [x[:2] for x in other.log if len(x) == 4] == [divmod(i, 3) for i in range(4, 9)]
    assert (other.at("evaluate"), other.at("save")) == ([9], [8, 9])


@both
@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_losses_that_are_no_numbers(form, loss):
    host = Host(form, 4, 1, checkpoint_every=1)
    host.loss = {2: loss}
    with pytest.raises(EngineError, match=f"the run: the loss is {loss} at step 3.*learning_rate"):
        host.fit()
    assert host.run.failed
    assert host.at("save") == [1, 2]
    with pytest.raises(InputError, match="not a number"):
        host.drive(host.run.advance())


@both
def test_no_updates_are_left(form):
    host = Host(form, 4, 1, evaluates=False, total=1)
    host.drive(host.run.advance())
    with pytest.raises(InputError, match="all 1 steps have been made"):
        host.drive(host.run.advance())
    assert host.fit()
    assert host.run.step == 1


@both
@pytest.mark.parametrize(
    "accumulates, wanted",
    [(False, [("forward", 0.5)]), (True, ["reset", ("forward", None), ("apply", 0.5, 1 / 3)])],
)
def test_an_update(form, accumulates, wanted):
    steps = module(form, "training.run").update(3, 0.5, accumulates)
    seen, answer = [], None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as over:
            assert over.value == 2
            break
        fields = {"forward": ["rate"], "apply": ["rate", "scale"]}.get(request.kind)
        seen.append((request.kind, *(getattr(request, n) for n in fields)) if fields else "reset")
        answer = [1.0, 2.0, 3.0] if request.kind == "forward" else None
    assert seen == wanted


@both
def test_a_mean_has_weights(form):
    steps = module(form, "training.run").mean_loss(2)
    assert steps.send(None) == 0
    assert steps.send((4.0, 3)) == 1
    with pytest.raises(StopIteration) as over:
        steps.send((2.0, 1))
    assert over.value.value == 3.5


@both
@pytest.mark.parametrize("patience, steps, best", [(0, 6, 3), (2, 5, 3), (1, 2, 1)])
def test_the_best_result(form, patience, steps, best):
    """It is kept when an evaluation is better than all before, and put back at the end; a run that
    goes on from a checkpoint counts what that has seen.
    """
    losses = [9.0, 3.0, 4.0, 2.0, math.nan, 2.0, 5.0]  # the first is before any update

    def host_of():
        host = Host(
            form,
            6,
            1,
            evaluate_every=1,
            evaluates_first=True,
            early_stopping=patience,
            load_best=True,
        )
        answer = host.answer

        def told(request):
            answer_ = answer(request)
            return losses[host.run.step] if request.kind == "evaluate" else answer_

        host.answer = told
        return host

    host = host_of()
    assert host.fit()
    assert host.run.step == steps and host.run.best_step == best
    kept = [1, 3] if best == 3 else [1]
    assert host.at("keep") == kept and host.at("take_back") == [steps]
    assert host.log[-1] == ("take_back", steps)
    again = host_of()
    done = min(4, steps)
    again.run.restore(done, [float(i) for i in range(done)], host.run.evaluations[: done + 1])
    assert again.fit() and again.run.step == steps and again.run.best_step == best
    assert again.at("keep") == [] and again.at("take_back") == [steps]
    assert again.run.ended == host.run.ended == ("early_stopping" if patience else "done")


@both
@pytest.mark.parametrize(
    "every, load_best, kept, best",
    [
        (1, True, 2, 2),  # the copy, though a later evaluation without one was better
        (3, True, 2, 2),  # also if evaluations are due at other updates by now
        (1, True, 0, None),  # no copy: nothing that can be put back
        (1, False, 0, 4),
        (1, True, -1, 4),  # a file that does not say
    ],
)
def test_the_best_result_that_was_kept(form, every, load_best, kept, best):
    host = Host(form, 9, 1, evaluate_every=every, load_best=load_best)
    host.run.restore(5, [0.0] * 5, [(1, 5.0), (2, 3.0), (3, 4.0), (4, 1.0), (5, 2.0)], kept)
    assert host.run.best_step == best
