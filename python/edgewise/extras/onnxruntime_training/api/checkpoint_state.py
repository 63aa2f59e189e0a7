"""Checkpoints of edgewise.training.api, their parameters and properties."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import as_input, as_output
from ....compiler.declare.dtypes import NAME, bytes_for
from ....compiler.ir import Tensor
from ....errors import InputError, memory_in_words
from ..artifact_files.models import GROUP
from ..artifact_files.odtc import Checkpoint, read_checkpoint, write_checkpoint

if TYPE_CHECKING:
    from ....compiler.declare.dtypes import BytesLike
    from ....compiler.onnx.sink import Writable
    from .module import Module
    from .optimizer import Optimizer


class Parameter:
    """A parameter of a checkpoint, with `name`, `data`, `grad` and `requires_grad`."""

    def __init__(self, state: CheckpointState, name: str) -> None:
        self._state, self.name = state, name

    @property
    def requires_grad(self) -> bool:
        """Whether the artifacts train the parameter."""
        return self.name in self._state._checkpoint.requires_grad

    @property
    def data(self) -> Any:
        """A copy of the current value, as an array.

        It can be set to an array of the same type and shape; a nominal checkpoint without a Module
        takes any shape.
        A frozen parameter is a constant of the compiled plans: the next call of the Module compiles
        them again if it has changed.

        Raises:
            InputError: on setting: the type or shape differs; on reading: it has no value.
        """
        dtype, shape, data = self._state._read(self.name)
        return as_output(dtype, list(shape), data)

    @data.setter
    def data(self, value: Any) -> None:
        self._state._write(self.name, value)

    @property
    def grad(self) -> Any:
        """The accumulated gradient, as an array.

        Zeros before the module's first call in training mode; None without a module, and for frozen
        parameters.
        """
        return self._state._gradient(self.name)

    def __repr__(self) -> str:
        return f"Parameter({self.name!r}, requires_grad={self.requires_grad})"


class Parameters:
    """The parameters of a checkpoint by name."""

    def __init__(self, state: CheckpointState) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Parameter:
        if name not in self:
            raise KeyError(f"Parameter {name} does not exist.")
        return Parameter(self._state, name)

    def __setitem__(self, name: str, value: Any) -> None:
        self[name].data = value

    def __contains__(self, name: object) -> bool:
        return name in self._state._checkpoint.parameters

    def __iter__(self) -> Iterator[tuple[str, Parameter]]:
        for name in self._state._checkpoint.parameters:
            yield name, Parameter(self._state, name)

    def __len__(self) -> int:
        return len(self._state._checkpoint.parameters)

    def __repr__(self) -> str:
        return f"Parameters({', '.join(self._state._checkpoint.parameters)})"


class Properties:
    """Numbers and strings that a user stores in a checkpoint, by name."""

    def __init__(self, state: CheckpointState) -> None:
        self._state = state

    def __getitem__(self, name: str) -> int | float | str:
        if name not in self:
            raise KeyError(f"Property {name} does not exist.")
        return self._state._checkpoint.properties[name]

    def __setitem__(self, name: str, value: int | float | str) -> None:
        if not isinstance(name, str) or type(value) not in (int, float, str):
            raise InputError(
                f"{name!r}: {value!r} is not a valid property",
                "properties",
                "Properties are ints, floats and strings.",
            )
        self._state._checkpoint.properties[name] = value  # type: ignore[index]

    def __contains__(self, name: object) -> bool:
        return name in self._state._checkpoint.properties

    def __iter__(self) -> Iterator[tuple[str, int | float | str]]:
        yield from self._state._checkpoint.properties.items()

    def __len__(self) -> int:
        return len(self._state._checkpoint.properties)


class CheckpointState:
    """The state of a training run, from which it can be continued.

    Attributes:
        parameters: Parameters, by name.
        properties: Properties, by name.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        if not isinstance(checkpoint, Checkpoint):
            raise TypeError(
                f"CheckpointState is made by load_checkpoint, not of a {type(checkpoint).__name__}"
            )
        self._checkpoint = checkpoint
        self._module: Module | None = None
        self._optimizer: Optimizer | None = None
        self.parameters, self.properties = Parameters(self), Properties(self)

    @classmethod
    @memory_in_words
    def load_checkpoint(cls, checkpoint_uri: str | os.PathLike[str] | bytes) -> CheckpointState:
        """Reads a checkpoint.

        Args:
            checkpoint_uri: path of the file, or its bytes.

        Raises:
            ModelError: the file is damaged or not a checkpoint.
        """
        return cls(read_checkpoint(checkpoint_uri))

    @classmethod
    @memory_in_words
    def save_checkpoint(
        cls,
        state: CheckpointState,
        checkpoint_uri: str | os.PathLike[str] | Writable,
        include_optimizer_state: bool = False,
    ) -> None:
        """Writes a checkpoint, which ONNX Runtime can read too.

        Args:
            state: to be written.
            checkpoint_uri: path of the file, or an open file.
            include_optimizer_state: whether to write the step, the learning rate and the moments.
        """
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

    # Values come from the file until a Module has been called; from then on, from its session.
    def _read(self, name: str) -> tuple[int, Sequence[int], BytesLike]:
        if self._module is not None and name in self._module._states():
            s = self._module._session.program.states[name]
            return s.dtype, s.shape, self._module._session.read(name)
        t = self._checkpoint.parameters[name]
        if not has_value(t):
            self._check_values()
        return t.dtype, t.shape, t.bytes()

    def _tensor(self, name: str) -> Tensor:
        dtype, shape, data = self._read(name)
        return Tensor(name, dtype, tuple(shape), None, 0, len(data), bytes(data))

    def _write(self, name: str, value: Any) -> None:
        t = self._checkpoint.parameters[name]
        dtype, shape, data = as_input(value, name, t.dtype)
        if dtype != t.dtype or list(shape) != list(t.shape) and (has_value(t) or t.shape):
            raise InputError(
                f"it is {NAME[dtype]}{list(shape)}, {NAME[t.dtype]}{list(t.shape)} is expected",
                f"parameter '{name}'",
                "Convert or reshape it.",
            )
        if self._module is not None and name in self._module._states():
            self._module._session.write(name, data)
            return
        new = Tensor(name, dtype, tuple(shape), None, 0, len(data), bytes(data))
        changed = not has_value(t) or new.data != t.bytes()
        (
            self._checkpoint.requires_grad
            if name in self._checkpoint.requires_grad
            else self._checkpoint.frozen
        )[name] = new
        if changed and self._module is not None and self._module._session is not None:
            self._module._stale = True

    def _give_shapes(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Gives parameters without a value, of a nominal checkpoint, the shapes of the model."""
        for part in (self._checkpoint.requires_grad, self._checkpoint.frozen):
            for name, t in part.items():
                if not has_value(t) and name in shapes:
                    part[name] = replace(t, shape=tuple(shapes[name]))

    def _check_values(self) -> None:
        """Raises InputError if a parameter has no value."""
        missing = [n for n, t in self._checkpoint.parameters.items() if not has_value(t)]
        if missing:
            raise InputError(
                f"it is nominal: {len(missing)} parameters have no values, such as '{missing[0]}'",
                "CheckpointState",
                "Call Module.copy_buffer_to_parameters(buffer, trainable_only=False) first.",
            )

    def _gradient(self, name: str) -> Any:
        m = self._module
        if m is None or name not in m._train_model.trainable:
            return None
        if m._session is None or f"gradient/{name}" not in m._session.program.states:
            t = self._checkpoint.parameters[name]
            return as_output(t.dtype, list(t.shape), bytes(bytes_for(t.dtype, t.count)))
        return m._session.get(f"gradient/{name}")


def has_value(t: Tensor) -> bool:
    """Whether a parameter has a value; those of a nominal checkpoint have none."""
    return bool(t.data) or t.source is not None or t.count == 0


__all__ = ["Parameter", "Parameters", "Properties", "CheckpointState"]
