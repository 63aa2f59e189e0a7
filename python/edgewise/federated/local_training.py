"""Local training with a Trainer: adapters, or all parameters."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import Aborted, InputError
from ..training.trainer import Progress, Trainer
from ..training.trainer.batches import Data, rows_of
from .client import Trained
from .codec import Floats, Schema, Values

STEPS = 10


class LocalTraining:
    """What a client with the native engine trains.

    Each round begins with a new optimizer and an order of the rows that depends on the round and
    the trainer's seed alone: training a round again gives the same update.

    Args:
        trainer: with adapters, or for all parameters. Modules of modules_to_save are not sent.
        data: as Trainer.fit's; None: nothing is trained here, for a server's first weights.
        examples: weight of the updates. Default: the number of rows.

    Raises:
        InputError: the data cannot be used.
    """

    def __init__(self, trainer: Trainer, data: Data | None, examples: int | None = None) -> None:
        self.trainer = trainer
        self.rows = None if data is None else rows_of(data, trainer.model, trainer.options)
        rows = 0 if self.rows is None else len(self.rows)
        self.examples = examples or rows * trainer.options.batch_size
        handle, self._start = tempfile.mkstemp(suffix=".safetensors")
        os.close(handle)
        trainer.save(self._start)
        self._rate = trainer.optimizer.lr
        self.names = [
            name
            for name, state in trainer.program.states.items()
            if state.kind == "parameter" or state.kind == "adapter" and ".lora_" in name
        ]
        states = trainer.program.states
        self._schema = Schema.of({name: states[name].shape for name in self.names})

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
        return {
            name: np.frombuffer(self.trainer.session.read(name), np.float32).reshape(shape).copy()
            for name, shape in self.schema.shapes.items()
        }

    def put(self, weights: Values) -> None:
        """Replaces the values."""
        for name in self.schema.shapes:
            self.trainer.session.write(
                name, np.ascontiguousarray(weights[name], np.float32).tobytes()
            )
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
        """As Training.train; `seed` is not used.

        Of the config it reads local-steps (updates, default 10), learning-rate, and proximal-mu
        (FedProx: weight of the squared distance to the weights of the round; its gradient step
        follows that of the optimizer).
        """
        if self.rows is None:
            raise InputError("there is nothing to train on", "data")
        trainer = self.trainer
        steps = _number(config, "local-steps", STEPS)
        if steps < 1:
            raise InputError(f"it is {steps:g}", "config 'local-steps'", "Give at least 1.")
        rate = _number(config, "learning-rate", self._rate)
        mu = _number(config, "proximal-mu", 0.0)
        trainer.resume(self._start, changed=["learning_rate"])
        trainer.optimizer.lr = rate
        self.put(weights)
        trainer.epoch = trainer.first_epoch = number

        class Signal:
            @property
            def aborted(self) -> bool:
                return stop()

        def pull(progress: Progress) -> None:
            factor = np.float32(1.0 / (1.0 + progress.learning_rate * mu))
            here = self.weights()
            self.put({n: weights[n] + (here[n] - weights[n]) * factor for n in here})

        history = trainer.fit(
            self.rows,
            max_steps=int(steps),
            callbacks=[pull] if mu else [],
            progress=False,
            signal=Signal(),  # type: ignore[arg-type]
        )
        if stop():
            raise Aborted("the deadline has passed", f"round {number}")
        metrics = {"loss": sum(history.losses) / len(history.losses)}
        return Trained(self.weights(), self.examples, len(history.losses), metrics)


def _number(config: Mapping[str, Any], name: str, otherwise: float) -> float:
    x = config.get(name, otherwise)
    if type(x) not in (int, float) or not math.isfinite(x) or x < 0:
        raise InputError(f"it is {str(x)[:40]!r}", f"config '{name}'", "Give a positive number.")
    return float(x)
