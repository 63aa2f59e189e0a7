"""The classes of edgewise.training.api."""

from __future__ import annotations

import struct

from ...arrays import Array, as_input, as_output
from ...declare.dtypes import FLOAT, NAME
from ...declare.symbolic import product
from ...engine import Owner, locked
from ...errors import InputError
from ...ir import Tensor
from ...onnx import as_source
from ..artifact_files.models import GROUP, optimizer_of_model, read_training_model, saved_optimizer
from ..artifact_files.odtc import Checkpoint, OptimizerGroup, read_checkpoint, write_checkpoint
from ..program import STEP, Program
from ..schedules import factor
from ..session import TrainingSession

_seed = 0


def set_seed(seed):
    """Seed of dropout in modules that are made from now on."""
    global _seed
    _seed = int(seed)


class OrtValue:
    """A tensor, with the methods of onnxruntime.OrtValue that training code uses."""

    def __init__(self, dtype, shape, data):
        self._value = dtype, list(shape), data

    def numpy(self):
        """As an array (without NumPy an edgewise.Array)."""
        return as_output(*self._value)

    def shape(self):
        """List of ints, as onnxruntime.OrtValue.shape()."""
        return list(self._value[1])

    def __array__(self, dtype=None, copy=None):
        return Array(self._value[1], NAME[self._value[0]], self._value[2]).__array__(dtype, copy)

    def __len__(self):
        return self._value[1][0]


class Parameter:
    """A parameter of a checkpoint: name, data (array, can be set), grad (array or None),
    requires_grad.
    """

    def __init__(self, state, name):
        self._state, self.name = state, name

    @property
    def requires_grad(self):
        """Whether the artifacts train it."""
        return self.name in self._state._checkpoint.requires_grad

    @property
    def data(self):
        """A copy as an array, as it is now.

        Setting it takes an array of the same type and shape (of a nominal checkpoint: any shape);
        InputError where they differ, or where a running module holds it frozen.
        """
        dtype, shape, data = self._state._read(self.name)
        return as_output(dtype, list(shape), data)

    @data.setter
    def data(self, value):
        self._state._write(self.name, value)

    @property
    def grad(self):
        """The gradient accumulated so far as an array; None before the module's first call in
        training mode, and of a frozen one.
        """
        return self._state._gradient(self.name)

    def __repr__(self):
        return f"Parameter({self.name!r}, requires_grad={self.requires_grad})"


class Parameters:
    """The parameters of a checkpoint by name."""

    def __init__(self, state):
        self._state = state

    def __getitem__(self, name):
        if name not in self:
            raise KeyError(f"Parameter {name} does not exist.")
        return Parameter(self._state, name)

    def __setitem__(self, name, value):
        self[name].data = value

    def __contains__(self, name):
        return name in self._state._checkpoint.parameters

    def __iter__(self):
        for name in self._state._checkpoint.parameters:
            yield name, Parameter(self._state, name)

    def __len__(self):
        return len(self._state._checkpoint.parameters)

    def __repr__(self):
        return f"Parameters({', '.join(self._state._checkpoint.parameters)})"


class Properties:
    """Numbers and texts that a user keeps in a checkpoint, by name."""

    def __init__(self, state):
        self._state = state

    def __getitem__(self, name):
        if name not in self:
            raise KeyError(f"Property {name} does not exist.")
        return self._state._checkpoint.properties[name]

    def __setitem__(self, name, value):
        if not isinstance(name, str) or type(value) not in (int, float, str):
            raise InputError(
                f"{name!r}: {value!r} is no property",
                "properties",
                "Keep ints, floats and texts by name.",
            )
        self._state._checkpoint.properties[name] = value

    def __contains__(self, name):
        return name in self._state._checkpoint.properties

    def __iter__(self):
        yield from self._state._checkpoint.properties.items()

    def __len__(self):
        return len(self._state._checkpoint.properties)


class CheckpointState:
    """Parameters, and what else a run needs to go on. `parameters`, `properties`: by name."""

    def __init__(self, checkpoint):
        if not isinstance(checkpoint, Checkpoint):
            raise TypeError(
                f"CheckpointState is made by load_checkpoint, not of a {type(checkpoint).__name__}"
            )
        self._checkpoint, self._module, self._optimizer = checkpoint, None, None
        self.parameters, self.properties = Parameters(self), Properties(self)

    @classmethod
    def load_checkpoint(cls, checkpoint_uri):
        """Reads a checkpoint file (a path, or its bytes)."""
        return cls(read_checkpoint(checkpoint_uri))

    @classmethod
    def save_checkpoint(cls, state, checkpoint_uri, include_optimizer_state=False):
        """Writes a checkpoint file that ONNX Runtime reads, too."""
        c = state._checkpoint
        current = Checkpoint(
            {n: state._tensor(n) for n in c.requires_grad},
            {n: state._tensor(n) for n in c.frozen},
            {},
            dict(c.properties),
        )
        if include_optimizer_state:
            current.groups = (
                {GROUP: state._optimizer._group()}
                if state._optimizer is not None
                else dict(c.groups)
            )
        write_checkpoint(current, checkpoint_uri)

    # values are the file's until a module holds them
    def _read(self, name):
        if self._module is not None and name in self._module._states():
            s = self._module._session.program.states[name]
            return s.dtype, s.shape, self._module._session.read(name)
        t = self._checkpoint.parameters[name]
        return t.dtype, t.shape, t.bytes()

    def _tensor(self, name):
        dtype, shape, data = self._read(name)
        return Tensor(name, dtype, tuple(shape), None, 0, len(data), bytes(data))

    def _write(self, name, value):
        t = self._checkpoint.parameters[name]
        dtype, shape, data = as_input(value, name, t.dtype)
        if dtype != t.dtype or list(shape) != list(t.shape) and not self._checkpoint.nominal:
            raise InputError(
                f"it is {NAME[dtype]}{list(shape)}, {NAME[t.dtype]}{list(t.shape)} is wanted",
                f"parameter '{name}'",
                "Convert or reshape it.",
            )
        if self._module is not None and self._module._session is not None:
            if name not in self._module._states():
                raise InputError(
                    "it is frozen, and the module holds it already",
                    f"parameter '{name}'",
                    "Set it before the first call of the Module.",
                )
            self._module._session.write(name, data)
            return
        new = Tensor(name, dtype, tuple(shape), None, 0, len(data), bytes(data))
        (
            self._checkpoint.requires_grad
            if name in self._checkpoint.requires_grad
            else self._checkpoint.frozen
        )[name] = new

    def _gradient(self, name):
        m = self._module
        if m is None or m._session is None or f"gradient/{name}" not in m._session.program.states:
            return None
        return m._session.get(f"gradient/{name}")


class Module(Owner):
    """A model in training. Calls from several threads queue.

    Args:
        train_model_uri: path or bytes of training_model.onnx. state: CheckpointState; the module
        holds its parameters from now on. eval_model_uri: of eval_model.onnx; None: no evaluation
        and no export. device: "cpu". session_options: ignored.
    """

    training: bool
    rank = -1  # locked before its sessions

    def __init__(
        self,
        train_model_uri,
        state,
        eval_model_uri=None,
        device="cpu",
        session_options=None,
        *,
        engine=None,
    ):
        if not isinstance(state, CheckpointState):
            raise InputError(
                f"a {type(state).__name__} is no CheckpointState",
                "state",
                "Pass CheckpointState.load_checkpoint(...).",
            )
        if device not in ("cpu", None):
            raise InputError(f"there is no device {device!r}", "device", "Modules run on the cpu.")
        if state._checkpoint.nominal and any(
            not t.data and t.source is None for t in state._checkpoint.parameters.values()
        ):
            raise InputError(
                "it is a nominal checkpoint: its parameters have no values",
                "state",
                "Set state.parameters[name].data of each first.",
            )
        self.start_lock()
        self.training, self._state, self._engine = True, state, engine
        self._train_uri, self._eval_uri = train_model_uri, eval_model_uri
        self._train_model = read_training_model(train_model_uri, state._checkpoint.parameters)
        self._eval_model = (
            read_training_model(eval_model_uri, state._checkpoint.parameters)
            if eval_model_uri is not None
            else None
        )
        self._optimizer, self._norm = None, None
        self._sessions, self._session, self._reset, self._seed = {}, None, True, _seed
        self._trained = False  # whether there are gradients
        state._module = self

    # ---- sessions: one for each set of shapes, all with the states of the first ----
    def _states(self):
        return self._session.program.states if self._session is not None else ()

    def _session_of(self, feeds, training):
        key = (training, tuple((n, tuple(s), d) for n, (d, s, _) in sorted(feeds.items())))
        if key not in self._sessions:
            model = self._train_model if training or self._session is None else self._eval_model
            if not training and self._session is None:  # the states are the training model's
                self._session_of_train(feeds)
                model = self._eval_model
            self._sessions[key] = self._make(model, feeds)
        return self._sessions[key]

    def _session_of_train(self, feeds):
        known = {n: f for n, f in feeds.items() if n in self._train_model.inputs}
        return self._session_of(known, True)

    def _make(self, model, feeds):
        if self._session is None:  # parameters may have been set since the models were read
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
        more = {"optimizer": self._optimizer} if self._optimizer is not None else {}
        program = Program(
            model.graph,
            {n: list(s) for n, (_, s, _) in feeds.items()},
            dtypes={n: d for n, (d, _, _) in feeds.items()},
            loss=f"output:{model.outputs[0]}",
            trainable=self._train_model.trainable,
            outputs=model.outputs[1:],
            max_grad_norm=self._norm,
            batch_norm=self._train_model.batch_norm,
            **more,
        )
        session = TrainingSession(program, self._engine, self._seed, share=self._session)
        program.plan(
            "accumulate" if model is self._train_model else "evaluate"
        )  # a batch that does not fit fails here, and leaves the module as it was
        if self._session is None:
            self._session = session
        return session

    @locked
    def __call__(self, *user_inputs):
        """One pass over a batch: inputs in the order of `input_names()`.

        In training mode gradients are added to what was accumulated. Returns the loss, or a list of
        all outputs.
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
            n: as_input(x, n, infos[n].dtype or None) for n, x in zip(model.inputs, user_inputs)
        }
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
        values = [out["loss"], *(out[n] for n in model.outputs[1:])]
        return values[0] if len(values) == 1 else values

    def train(self, mode=True):
        """Training mode (mode False: evaluation mode). Returns self."""
        self.training = bool(mode)
        return self

    def eval(self):
        """Evaluation mode. Returns self."""
        return self.train(False)

    def lazy_reset_grad(self):
        """The next call begins with gradients of zero."""
        self._reset = True

    def input_names(self):
        """Names of a batch's inputs, in the order of a call, of the mode it is in.

        InputError: evaluation without a model for it.
        """
        return list((self._train_model if self.training else self._need_eval()).inputs)

    def output_names(self):
        """Names of the outputs, the loss first, of the mode it is in. InputError as input_names."""
        return list((self._train_model if self.training else self._need_eval()).outputs)

    def _need_eval(self):
        if self._eval_model is None:
            raise InputError("there is no evaluation model", "Module", "Pass eval_model_uri.")
        return self._eval_model

    # ---- parameters as one buffer, for federated learning ----
    def _names(self, trainable_only):
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
    def get_contiguous_parameters(self, trainable_only=False):
        """All parameters, flattened and one behind the other: an OrtValue, float32
        [get_parameters_size(trainable_only)].
        """
        data = b"".join(bytes(self._state._read(n)[2]) for n in self._names(trainable_only))
        return OrtValue(FLOAT, [len(data) // 4], data)

    def get_parameters_size(self, trainable_only=True):
        """Number of elements of all parameters."""
        return sum(
            product(self._state._checkpoint.parameters[n].shape)
            for n in self._names(trainable_only)
        )

    @locked
    def copy_buffer_to_parameters(self, buffer, trainable_only=True):
        """Sets all parameters from a buffer: what get_contiguous_parameters gives, or an array of
        as many float32.
        """
        dtype, shape, data = (
            buffer._value if isinstance(buffer, OrtValue) else as_input(buffer, "buffer", FLOAT)
        )
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

    def export_model_for_inferencing(self, inference_model_uri, graph_output_names):
        """Writes the evaluation model up to these outputs, with the parameters as they are now, as
        a plain ONNX file.
        """
        from ..export import export_inference

        self._need_eval()
        export_inference(
            as_source(self._eval_uri),
            {n: self._state._read(n) for n in self._state._checkpoint.parameters},
            self._buffers(),
            list(graph_output_names),
            inference_model_uri,
        )

    def _buffers(self):
        return (
            {
                n: (s.dtype, s.shape, self._session.read(n))
                for n, s in self._states().items()
                if s.kind == "buffer"
            }
            if self._session is not None
            else {}
        )


class Optimizer:
    """The step of an optimizer.

    Args:
        optimizer_uri: path or bytes of optimizer_model.onnx. module: Module whose parameters it
        updates; its state is taken from the module's checkpoint where that has one.
    """

    def __init__(self, optimizer_uri, module):
        if not isinstance(module, Module):
            raise InputError(
                f"a {type(module).__name__} is no Module",
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

    def step(self):
        """Updates the parameters with the gradients that the module accumulated, which stay: after
        lazy_reset_grad the module's next call resets them.

        Raises InputError where the module was never called in training mode.
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
    def steps(self):
        """Updates so far, those of the checkpoint included."""
        if self._saved is not None:
            return self._saved.step
        session = self._module._session
        return (
            session.step
            if session is not None and session.initialized and STEP in session.program.states
            else 0
        )

    def _restore(self):
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

    def _group(self):
        """State as a checkpoint holds it."""
        if self._saved is not None:
            return self._saved
        session = self._module._session
        momentums = {}
        for name in self._module._train_model.trainable:
            kept = {}
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

    def set_learning_rate(self, learning_rate):
        """The rate of updates from now on."""
        self._rate = float(learning_rate)

    def get_learning_rate(self):
        """The rate of the next update."""
        return self._rate


class LinearLRScheduler:
    """A learning rate that rises linearly from 0 over the first steps and falls linearly to 0.

    Args:
        optimizer: Optimizer. warmup_step_count, total_step_count: in steps. initial_lr: the rate at
        the end of the rise.

    This is what ONNX Runtime documents. Its release 1.19.2 takes the two counts for each other, so
    that the rate rises over total_step_count.
    """

    def __init__(self, optimizer, warmup_step_count, total_step_count, initial_lr):
        self._optimizer, self._warmup, self._total, self._initial = (
            optimizer,
            warmup_step_count,
            total_step_count,
            float(initial_lr),
        )
        self._set()

    def step(self):
        """Sets the optimizer's rate for the next update, by the updates it has done (in a run that
        was taken up: those before, too); to be called after each.
        """
        self._set()

    def _set(self):
        self._optimizer.set_learning_rate(
            self._initial * factor("linear", self._optimizer.steps, self._total, self._warmup)
        )


__all__ = [
    "CheckpointState",
    "LinearLRScheduler",
    "Module",
    "Optimizer",
    "OrtValue",
    "Parameter",
    "Parameters",
    "Properties",
    "set_seed",
]
