"""Local training with a Trainer: adapters, or all parameters."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...errors import Aborted, InputError
from ...host.training.data import Rows
from ...host.training.trainer import Progress, Trainer
from ...host.training.trainer.loop import Data, rows_of
from ...logic.federated.terms import SETTINGS, check_audit, number_of, steps_of, texts_of
from ...logic.training.adapters import name_of_saved
from ...logic.training.checkpoints import is_of_optimizer
from .client import Trained
from .codec import Floats, Schema, Values

STEPS = 10


class LocalTraining:
    """What a client with the native engine trains.

    Each round begins with a new optimizer, or with `keep-optimizer` with that of the client's last
    round, and an order of the rows that depends on the round and the trainer's seed alone: training
    a round again gives the same update.

    Args:
        trainer: with adapters, or for all parameters. What is sent has the names and layout of the
            adapter's file: magnitudes of DoRA, and what modules_to_save and bias train, belong to
            it.
        data: as Trainer.fit's; None: nothing is trained here, for a server's first weights.
        examples: weight of the updates. Default: the number of rows.

    Raises:
        InputError: the data cannot be used.
    """

    settings = SETTINGS

    def __init__(self, trainer: Trainer, data: Data | None, examples: int | None = None) -> None:
        if trainer.options.ema_decay is not None:
            raise InputError(
                "rounds send weights, not their averages",
                "ema_decay",
                "Leave it out: the server averages the weights of clients.",
            )
        self.trainer = trainer
        self.rows = None if data is None else rows_of(data, trainer.model, trainer.options)
        rows = 0 if self.rows is None else len(self.rows)
        self.examples = examples or rows * trainer.options.batch_size
        handle, self._start = tempfile.mkstemp(suffix=".safetensors")
        os.close(handle)
        trainer.save(self._start)
        self.rate = trainer.optimizer.lr
        self._places = _places_of(trainer)
        self.names = list(self._places)
        states, shapes = trainer.program.states, {}
        for name, (state, turned) in self._places.items():
            shape = states[state].shape
            shapes[name] = shape[::-1] if turned else shape
        self._schema = Schema.of(shapes)

    @property
    def schema(self) -> Schema:
        """Names and shapes of what is trained."""
        return self._schema

    def close(self) -> None:
        """Removes temporary files and frees the trainer."""
        if os.path.exists(self._start):
            os.remove(self._start)
        self.trainer.free()

    def weights(self) -> dict[str, Floats]:
        """The present values."""
        found = {}
        for name, shape in self.schema.shapes.items():
            state, turned = self._places[name]
            flat = np.frombuffer(self.trainer.session.read(state), np.float32)
            values = flat.reshape(shape[::-1]).T if turned else flat.reshape(shape)
            found[name] = values.copy()
        return found

    def put(self, weights: Values) -> None:
        """Replaces the values."""
        for name in self.schema.shapes:
            state, turned = self._places[name]
            values = np.asarray(weights[name], np.float32)
            values = np.ascontiguousarray(values.T if turned else values)
            self.trainer.session.write(state, values.tobytes())
        self.trainer.refresh()

    def evaluate(self, weights: Values, data: Data) -> float:
        """The mean loss of weights on data."""
        self.put(weights)
        return self.trainer.evaluate(data)

    def train(
        self,
        weights: Values,
        config: Mapping[str, Any],
        seed: int,
        number: int,
        stop: Callable[[], bool],
    ) -> Trained:
        """As Training.train; `seed` is for audits alone.

        With `audit` ({texts, batch, sequence}) in the config it trains on these texts, in the order
        and with the dropout of `seed`, as a page does (web/src/extras/federated/trainers.ts).

        Of the config it reads local-steps (updates, default 10), learning-rate, keep-optimizer (the
        moments and the number of updates are those of `kept`; audits begin with new ones, as the
        server does), proximal-mu (FedProx, see `drawn`), and part: the trained parameters. All
        others are restored after each update.
        """
        trainer = self.trainer
        audit = config.get("audit")
        rows = self.rows if audit is None else self._public(audit, seed)
        if rows is None:
            raise InputError("there is nothing to train on", "data")
        steps = steps_of(config, STEPS)
        rate = number_of(config, "learning-rate", self.rate)
        mu = number_of(config, "proximal-mu", 0.0)
        changing = self.schema.part(config.get("part")).shapes
        trainer.resume(self._start, changed=["learning_rate"])
        trainer.optimizer.lr = rate
        self.put(weights)
        keeps = bool(config.get("keep-optimizer")) and audit is None
        if keeps:
            self._go_on(config.get("kept", b""))
        trainer.epoch = trainer.first_epoch = number if audit is None else 0
        own = trainer.session.seed
        trainer.session.seed = own if audit is None else seed

        class Signal:
            @property
            def aborted(self) -> bool:
                return stop()

        def pull(progress: Progress) -> None:
            here = self.weights()
            rate = progress.learning_rate
            self.put(
                {
                    n: drawn(here[n], weights[n], rate, mu) if n in changing else weights[n]
                    for n in here
                }
            )

        try:
            history = trainer.fit(
                rows,
                max_steps=steps,
                callbacks=[pull] if mu or len(changing) < len(self.names) else [],
                progress=False,
                signal=Signal(),  # type: ignore[arg-type]
            )
        finally:
            trainer.session.seed = own
        if stop():
            raise Aborted("the deadline has passed", f"round {number}")
        metrics = {"loss": sum(history.losses) / len(history.losses)}
        examples = self.examples if audit is None else len(rows) * trainer.options.batch_size
        kept = b"".join(map(trainer.session.read, self._moments)) if keeps else b""
        return Trained(self.weights(), examples, len(history.losses), metrics, kept)

    @property
    def _moments(self) -> list[str]:
        """Names of the optimizer's states, with the number of its updates."""
        states = self.trainer.program.states
        return sorted(n for n, s in states.items() if is_of_optimizer(s.kind))

    def _go_on(self, kept: bytes) -> None:
        """Puts back what the optimizer was; nothing, if it was another one."""
        session, at = self.trainer.session, 0
        sizes = {name: len(session.read(name)) for name in self._moments}
        if len(kept) == sum(sizes.values()):
            for name, size in sizes.items():
                session.write(name, kept[at : at + size])
                at += size
            session.mended()
            self.trainer.first_update = session.step

    def _public(self, audit: Any, seed: int) -> Rows:
        """The rows of an audit's texts."""
        options = self.trainer.options
        texts = texts_of(audit)
        assert texts is not None
        check_audit(audit, options.batch_size, options.sequence_length)
        return rows_of(texts, self.trainer.model, dataclasses.replace(options, seed=seed))


def _places_of(trainer: Trainer) -> dict[str, tuple[str, bool]]:
    """What is trained: {name in the adapter's file, or of the parameter: (state, whether the file
    has its transpose)}.
    """
    program = trainer.program
    if program.lora is None:
        return {n: (n, False) for n, s in program.states.items() if s.kind == "parameter"}
    own = [n for n, s in program.states.items() if s.kind == "adapter" and ".lora_" in n]
    modules = [layer.name for layer in program.lora_layers]
    saved = {name_of_saved(s.name, modules): (s.parameter, s.transposed) for s in program.saved}
    return {n: (n, False) for n in own} | saved


def drawn(here: Floats, first: Floats, rate: float, mu: float) -> Floats:
    """What FedProx's term mu/2 ||w - first||^2 makes of weights after an update.

    The term is not added to the loss, where the optimizer would scale its gradient as any other,
    but follows the update as weight decay does in AdamW: this is its proximal step, the minimum of
    mu/2 ||w - first||^2 + 1/(2 rate) ||w - here||^2. With plain gradient descent both are the same
    to the first order of rate * mu. All arithmetic is float32, as in
    web/src/worker/training/anchor.ts.
    """
    return first + (here - first) * np.float32(1.0 / (1.0 + rate * mu))
