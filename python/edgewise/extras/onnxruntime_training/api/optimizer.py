"""Optimizer and LinearLRScheduler of edgewise.training.api."""

from __future__ import annotations

import os
import struct

from ....compiler.ir import Tensor
from ....compiler.training.program import STEP
from ....errors import InputError, number_of, wrong_type
from ....logic.training.schedules import factor
from ..artifact_files.models import optimizer_of_model, saved_optimizer
from ..artifact_files.odtc import OptimizerGroup
from .module import Module


class Optimizer:
    """An optimizer, as onnxruntime.training.api.Optimizer.

    Args:
        optimizer_uri: path or bytes of optimizer_model.onnx.
        module: the Module whose parameters are updated. If its checkpoint holds optimizer states,
            they are used.

    Raises:
        InputError: module is not a Module.
        UnsupportedOp: the model is not gradient clipping and AdamW or SGD.
    """

    def __init__(self, optimizer_uri: str | os.PathLike[str] | bytes, module: Module) -> None:
        if not isinstance(module, Module):
            raise InputError(
                f"a {type(module).__name__} is not a Module",
                "module",
                "Pass the Module whose parameters are trained.",
            )
        self._module = module
        self._rule, norm = optimizer_of_model(optimizer_uri)
        self._saved = saved_optimizer(module._state._checkpoint)
        self._rate = (
            self._saved.initial_learning_rate
            if self._saved is not None and self._saved.initial_learning_rate
            else self._rule.lr
        )
        module._optimizer, module._norm = self._rule, norm
        for s in module._sessions.values():  # programs made before there was an optimizer
            s.program.optimizer, s.program.max_grad_norm = self._rule, norm
        module._state._optimizer = self

    def step(self) -> None:
        """Updates the parameters with the accumulated gradients.

        The gradients are kept until the call after Module.lazy_reset_grad.

        Raises:
            InputError: the module was not called in training mode.
        """
        with self._module.lock:
            session = self._module._session
            if session is None or not self._module._trained:
                raise InputError(
                    "there are no gradients yet",
                    "Optimizer.step",
                    "Call the module in training mode first.",
                )
            self._restore()
            session.update(self._rate)

    @property
    def steps(self) -> int:
        """Updates made, including those before the checkpoint was saved."""
        if self._saved is not None:
            return self._saved.step
        session = self._module._session
        return (
            session.step
            if session is not None and session.initialized and STEP in session.program.states
            else 0
        )

    def _restore(self) -> None:
        if self._saved is None:
            return
        session, saved, self._saved = self._module._session, self._saved, None
        session.program.plan("update")
        session.write(STEP, struct.pack("<q", saved.step))
        for name, states in saved.momentums.items():
            for key, suffix in (("momentum0", "exp_avg"), ("momentum1", "exp_avg_sq")):
                target = f"optimizer/{name}/{suffix}"
                if key in states and target in session.program.states:
                    session.write(target, states[key].bytes())

    def _group(self) -> OptimizerGroup:
        """The states, for a checkpoint."""
        if self._saved is not None:
            return self._saved
        session = self._module._session
        momentums = {}
        for name in self._module._train_model.trainable:
            kept: dict[str, Tensor] = {}
            for key, suffix in (("momentum0", "exp_avg"), ("momentum1", "exp_avg_sq")):
                s = (
                    session.program.states.get(f"optimizer/{name}/{suffix}")
                    if session is not None
                    else None
                )
                if s is not None:
                    data = session.read(s.name)
                    kept[key] = Tensor(
                        key, s.dtype, tuple(s.shape), None, 0, len(data), bytes(data)
                    )
            if kept:
                momentums[name] = kept
        return OptimizerGroup(session.step if session is not None else 0, self._rate, momentums)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Sets the learning rate of later updates."""
        self._rate = float(learning_rate)

    def get_learning_rate(self) -> float:
        """The learning rate of the next update."""
        return self._rate


class LinearLRScheduler:
    """A learning rate that rises linearly from 0 over the first steps and falls linearly to 0.

    Mirrors the documentation of onnxruntime.training.api.LinearLRScheduler. Its release 1.19.2
    confuses the two counts: there, the rate rises over total_step_count.

    Args:
        optimizer: the Optimizer.
        warmup_step_count: steps until the rate is initial_lr.
        total_step_count: steps until it is 0.
        initial_lr: the maximum.
    """

    def __init__(
        self, optimizer: Optimizer, warmup_step_count: int, total_step_count: int, initial_lr: float
    ) -> None:
        if not callable(getattr(optimizer, "set_learning_rate", None)):
            raise wrong_type(optimizer, "LinearLRScheduler", "an Optimizer")
        self._optimizer = optimizer
        self._warmup = number_of(warmup_step_count, "warmup_step_count")
        self._total = number_of(total_step_count, "total_step_count")
        self._initial = number_of(initial_lr, "initial_lr")
        self._set()

    def step(self) -> None:
        """Sets the learning rate of the next update from the optimizer's number of updates. Call it
        after each update.
        """
        self._set()

    def _set(self) -> None:
        self._optimizer.set_learning_rate(
            self._initial * factor("linear", self._optimizer.steps, self._total, self._warmup)
        )


__all__ = ["Optimizer", "LinearLRScheduler"]
