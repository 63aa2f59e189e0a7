"""Module of edgewise.training.api: a model in training."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import as_input, as_output
from ....compiler.declare.dtypes import FLOAT, NAME
from ....compiler.declare.symbolic import product
from ....compiler.onnx import as_source
from ....compiler.targets import CPU, target_of
from ....compiler.training.program import Program
from ....errors import InputError, memory_in_words, wrong_type
from ....host.engine import Owner, locked
from ....host.session.face.ort_value import OrtValue, plain
from ....host.training.session import TrainingSession
from ..artifact_files.models import read_training_model
from .checkpoint_state import CheckpointState

if TYPE_CHECKING:
    from ....compiler.arrays import Input
    from ....compiler.onnx.sink import Writable
    from ....compiler.training.optimizers import Optimizer as OptimizerRule
    from ....compiler.training.state_plans import State
    from ....host.engine import Engine
    from ..artifact_files.models import TrainingModel

_seed = 0


def set_seed(seed: int) -> None:
    """Sets the seed of dropout for modules that are created later."""
    global _seed
    try:
        _seed = index(seed)
    except TypeError:
        raise wrong_type(seed, "seed", "an integer") from None


class Module(Owner):
    """A model in training, as onnxruntime.training.api.Module. Calls from several threads queue.

    Args:
        train_model_uri: path or bytes of training_model.onnx.
        state: its checkpoint, whose parameters the module then updates. The parameters of a nominal
            one get their values from `copy_buffer_to_parameters` before the first call.
        eval_model_uri: path or bytes of eval_model.onnx. None: no evaluation and no export.
        device: "cpu".
        session_options: ignored.
        engine: default: the process's.

    Attributes:
        training: whether calls compute gradients.

    Raises:
        InputError: state is not a CheckpointState, or there is no such device.
        ModelError: a model is damaged, or lacks a parameter in the checkpoint.
    """

    training: bool
    rank = -1  # locked before its sessions

    @memory_in_words
    def __init__(
        self,
        train_model_uri: str | os.PathLike[str] | bytes,
        state: CheckpointState,
        eval_model_uri: str | os.PathLike[str] | bytes | None = None,
        device: str | None = "cpu",
        session_options: object = None,
        *,
        engine: Engine | None = None,
    ) -> None:
        if not isinstance(state, CheckpointState):
            raise InputError(
                f"a {type(state).__name__} is not a CheckpointState",
                "state",
                "Pass CheckpointState.load_checkpoint(...).",
            )
        if device not in ("cpu", None):
            raise InputError(f"there is no device {device!r}", "device", "Modules run on the cpu.")
        self.start_lock()
        self.training, self._state, self._engine = True, state, engine
        self._train_uri, self._eval_uri = train_model_uri, eval_model_uri
        self._train_model = read_training_model(train_model_uri, state._checkpoint.parameters)
        self._eval_model = (
            read_training_model(eval_model_uri, state._checkpoint.parameters)
            if eval_model_uri is not None
            else None
        )
        state._give_shapes(self._train_model.shapes)
        self._optimizer: OptimizerRule | None = None
        self._norm: float | None = None
        self._sessions: dict[tuple[Any, ...], TrainingSession] = {}
        self._session: Any = None  # the first TrainingSession, which owns the states
        self._reset, self._seed = True, _seed
        self._trained = False  # whether there are gradients
        self._stale = False  # whether frozen parameters changed since the plans were compiled
        state._module = self

    # ---- sessions: one for each set of shapes, all with the states of the first ----
    def _states(self) -> dict[str, State]:
        return self._session.program.states if self._session is not None else {}

    def _session_of(self, feeds: Mapping[str, Input], training: bool) -> TrainingSession:
        key = (training, tuple((n, tuple(s), d) for n, (d, s, _) in sorted(feeds.items())))
        if key not in self._sessions:
            model: Any = (
                self._train_model if training or self._session is None else self._eval_model
            )
            if not training and self._session is None:  # the first session owns the states
                self._session_of_train(feeds)
                model = self._eval_model
            self._sessions[key] = self._make(model, feeds)
        return self._sessions[key]

    def _session_of_train(self, feeds: Mapping[str, Input]) -> TrainingSession:
        known = {n: f for n, f in feeds.items() if n in self._train_model.inputs}
        return self._session_of(known, True)

    def _make(self, model: TrainingModel, feeds: Mapping[str, Input]) -> TrainingSession:
        if self._session is None:  # parameters may have been set since the models were read
            self._state._check_values()
            for m in (self._train_model, self._eval_model):
                if m is not None:
                    m.graph.constants.update(
                        {
                            n: t
                            for n, t in self._state._checkpoint.parameters.items()
                            if n in m.graph.constants
                        }
                    )
                    m.graph.values = None
        more: dict[str, Any] = {"optimizer": self._optimizer} if self._optimizer is not None else {}
        program = Program(
            model.graph,
            {n: list(s) for n, (_, s, _) in feeds.items()},
            dtypes={n: d for n, (d, _, _) in feeds.items()},
            loss=f"output:{model.outputs[0]}",
            trainable=self._train_model.trainable,
            outputs=model.outputs[1:],
            max_grad_norm=self._norm,
            batch_norm=self._train_model.batch_norm,
            target=CPU if self._engine is None else target_of(self._engine.device),
            **more,
        )
        session = TrainingSession(program, self._engine, self._seed, share=self._session)
        # Compiled first: a batch that cannot be run fails here and leaves the module unchanged.
        program.plan("accumulate" if model is self._train_model else "evaluate")
        if self._session is None:
            self._session = session
        return session

    def _renew(self) -> None:
        """Compiles again with the current frozen parameters, which are constants of the plans; the
        states keep their values. If that fails, nothing changes.
        """
        old, sessions = self._session, self._sessions
        kept = {n: old.read(n) for n in old.program.states} if old.initialized else {}
        self._session, self._sessions = None, {}
        try:
            _, feeds = next(key for key in sessions if key[0])
            new = self._session_of({n: (dtype, list(s), b"") for n, s, dtype in feeds}, True)
            for kind in old.program.plans:
                new.program.plan(kind)  # which declares its states
            for name in kept.keys() & new.program.states.keys():
                new.write(name, kept[name])
        except BaseException:
            self._session, self._sessions = old, sessions
            raise
        new.runs, self._stale = old.runs, False
        for session in (*(s for s in sessions.values() if s is not old), old):
            session.free()

    @locked
    @memory_in_words
    def __call__(self, *user_inputs: Any) -> Any:
        """Runs a batch; in training mode, adds its gradients to the accumulated ones.

        Args:
            user_inputs: arrays or OrtValues, in the order of `input_names()`.

        Returns:
            The loss, or a list of all outputs if there are more. They are OrtValues if inputs are.

        Raises:
            InputError: the number of inputs, a type or a shape is wrong, or there is no evaluation
                model.
        """
        model = self._train_model if self.training else self._eval_model
        if model is None:
            raise InputError("there is no evaluation model", "Module", "Pass eval_model_uri.")
        if len(user_inputs) != len(model.inputs):
            raise InputError(
                f"{len(user_inputs)} inputs, the model takes {len(model.inputs)}:"
                f" {', '.join(model.inputs)}",
                "Module",
                "Pass them in this order.",
            )
        infos = {i.name: i for i in model.graph.inputs}
        feeds = {
            n: as_input(plain(x), n, infos[n].dtype or None)
            for n, x in zip(model.inputs, user_inputs)
        }
        if self._stale:
            self._renew()
        session = self._session_of(feeds, self.training)
        arrays = {n: as_output(d, list(s), bytes(b)) for n, (d, s, b) in feeds.items()}
        if self.training:
            if self._reset:
                self._session.reset()
                self._reset = False
            out = session.accumulate(arrays)
            self._trained = True
        else:
            out = session.evaluate(arrays)
        values: list[Any] = [out["loss"], *(out[n] for n in model.outputs[1:])]
        if any(isinstance(x, OrtValue) for x in user_inputs):
            values = [OrtValue(v) for v in values]
        return values[0] if len(values) == 1 else values

    def train(self, mode: bool = True) -> Module:
        """Sets training mode, or with mode=False evaluation mode. Returns self."""
        self.training = bool(mode)
        return self

    def eval(self) -> Module:
        """Sets evaluation mode. Returns self."""
        return self.train(False)

    def lazy_reset_grad(self) -> None:
        """Makes the next call set the gradients to zero first."""
        self._reset = True

    def input_names(self) -> list[str]:
        """Names of the inputs in the current mode, in the order of a call.

        Raises:
            InputError: it is evaluation mode, and there is no evaluation model.
        """
        return list((self._train_model if self.training else self._need_eval()).inputs)

    def output_names(self) -> list[str]:
        """Names of the outputs in the current mode, the loss first. Raises: as `input_names`."""
        return list((self._train_model if self.training else self._need_eval()).outputs)

    def _need_eval(self) -> TrainingModel:
        if self._eval_model is None:
            raise InputError("there is no evaluation model", "Module", "Pass eval_model_uri.")
        return self._eval_model

    # ---- parameters as one buffer, for federated learning ----
    def _names(self, trainable_only: bool) -> list[str]:
        c = self._state._checkpoint
        return (
            list(self._train_model.trainable)
            if trainable_only
            else [
                *self._train_model.trainable,
                *(n for n in c.parameters if n not in self._train_model.trainable),
            ]
        )

    @locked
    def get_contiguous_parameters(self, trainable_only: bool = False) -> OrtValue:
        """All parameters, flattened and concatenated.

        Returns:
            OrtValue, float32 [get_parameters_size(trainable_only)].
        """
        data = b"".join(bytes(self._state._read(n)[2]) for n in self._names(trainable_only))
        return OrtValue(as_output(FLOAT, [len(data) // 4], data))

    def get_parameters_size(self, trainable_only: bool = True) -> int:
        """Number of elements of all parameters."""
        return sum(
            product(self._state._checkpoint.parameters[n].shape)
            for n in self._names(trainable_only)
        )

    @locked
    def copy_buffer_to_parameters(
        self, buffer: OrtValue | Any, trainable_only: bool = True
    ) -> None:
        """Sets all parameters from a buffer.

        Args:
            buffer: an OrtValue of get_contiguous_parameters, or a float32 array of its size.
            trainable_only: whether the buffer holds only the parameters that are trained.

        Raises:
            InputError: the size or the type is wrong.
        """
        dtype, _, data = as_input(plain(buffer), "buffer", FLOAT)
        if dtype != FLOAT or len(data) != 4 * self.get_parameters_size(trainable_only):
            raise InputError(
                f"it has {len(data) // 4} elements of {NAME[dtype]}, the parameters have"
                f" {self.get_parameters_size(trainable_only)} of float32",
                "buffer",
                "Pass what get_contiguous_parameters gave.",
            )
        view, at = memoryview(data).cast("B"), 0
        for n in self._names(trainable_only):
            t = self._state._checkpoint.parameters[n]
            size = 4 * product(t.shape)
            self._state._write(n, as_output(FLOAT, list(t.shape), bytes(view[at : at + size])))
            at += size

    @memory_in_words
    def export_model_for_inferencing(
        self,
        inference_model_uri: str | os.PathLike[str] | Writable,
        graph_output_names: Sequence[str],
    ) -> None:
        """Writes the part of the evaluation model that computes some outputs, with the current
        parameters, as a plain ONNX file.

        Args:
            inference_model_uri: path of the file, or an open file.
            graph_output_names: tensors of the evaluation model.

        Raises:
            InputError: there is no evaluation model, or no such tensor.
        """
        from ....compiler.training.export import export_inference

        self._need_eval()
        export_inference(
            as_source(self._eval_uri),
            {n: self._state._read(n) for n in self._state._checkpoint.parameters},
            self._buffers(),
            list(graph_output_names),
            inference_model_uri,
        )

    def _buffers(self) -> dict[str, tuple[int, Sequence[int], bytes]]:
        return (
            {
                n: (s.dtype, s.shape, self._session.read(n))
                for n, s in self._states().items()
                if s.kind == "buffer"
            }
            if self._session is not None
            else {}
        )


__all__ = ["set_seed", "Module"]
