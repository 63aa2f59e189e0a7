"""The graphs of a diffusion model: which inputs they have, and how one is run."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....compiler.arrays import Array, as_input
from ....compiler.declare.dtypes import BOOL, FLOAT, FLOAT16, NAME, RANGE, pack, unpack
from ....compiler.processors.diffusion.facts import INPUTS, KINDS
from ....errors import InputError, UnsupportedOp
from ....logic.diffusion.denoising import groups
from ...session import InferenceSession, RunOptions

__all__ = ["Part", "array_of", "floats", "layout"]


def floats(value: Any, name: str = "output") -> tuple[list[int], array[float]]:
    """(shape, numbers as float32) of an array. Raises InputError if it is none of numbers."""
    code, shape, data = as_input(value, name, FLOAT)
    if code == FLOAT:
        return shape, array("f", bytes(data))
    count = 1
    for d in shape:
        count *= d
    return shape, array("f", map(float, unpack(code, bytes(data), count)))


def array_of(shape: Sequence[int], numbers: Sequence[float], dtype: int = FLOAT) -> Array:
    """An array of a type; numbers between integers are cut for integer types."""
    if dtype == FLOAT:
        return Array(shape, "float32", array("f", numbers).tobytes())
    if dtype == FLOAT16:
        numbers = [min(max(x, -65504.0), 65504.0) for x in numbers]
    elif dtype in RANGE:
        numbers = [int(x) for x in numbers]
    elif dtype == BOOL:
        numbers = [bool(x) for x in numbers]
    return Array(shape, NAME[dtype], pack(dtype, numbers))


def layout(part: str, session: InferenceSession) -> None:
    """Checks the names of a graph's inputs. Raises UnsupportedOp."""
    for name in session.inputs:
        if name not in INPUTS[part]:
            raise UnsupportedOp(
                f"its input '{name}' is none that this pipeline feeds",
                f"{part}/model.onnx",
                f"Supported are {KINDS}.",
            )


class Part:
    """A graph that is open.

    Args:
        name: one of PARTS.
        session: of the graph.
        done: called by `close`.

    Raises:
        UnsupportedOp: the graph has an input that is not known.
    """

    def __init__(self, name: str, session: InferenceSession, done: Callable[[], None]) -> None:
        layout(name, session)
        self.name, self.session, self.done = name, session, done

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_: object) -> None:
        self.done()

    def has(self, name: str) -> bool:
        """Whether the graph has an input."""
        return name in self.session.inputs

    def size(self, name: str, axis: int) -> int | None:
        """A dimension that the graph fixes; None if it is free."""
        info = self.session.inputs.get(name)
        shape = info.shape if info is not None else None
        size = shape[axis] if shape is not None and len(shape) > axis else None
        return size if isinstance(size, int) and size > 0 else None

    def feed(self, name: str, shape: Sequence[int], numbers: Sequence[float]) -> Array:
        """An input of the type that the graph has."""
        return array_of(shape, numbers, self.session.inputs[name].dtype)

    def run(
        self,
        feeds: Mapping[str, Any],
        outputs: Sequence[str] = (),
        options: RunOptions | None = None,
    ) -> tuple[list[int], array[float]]:
        """Runs the graph.

        Args:
            feeds: {input: array}.
            outputs: names of the output, the first that exists; else the graph's first one.
            options: of the run.

        Returns:
            (shape, numbers) of the output
        """
        name = next((o for o in outputs if o in self.session.outputs), None)
        name = name or next(iter(self.session.outputs))
        (value,) = self.session.run([name], feeds, options)
        return floats(value, name)

    def one(
        self, row: Mapping[str, tuple[Sequence[int], Sequence[float]]], outputs: Sequence[str]
    ) -> list[array[float]]:
        """Runs the graph for one row.

        Args:
            row: {input: (shape without the batch, numbers)}.
            outputs: names of outputs.

        Returns:
            the numbers of each output
        """
        together = self.size(next(iter(row)), 0) or 1
        feeds = {name: self._stacked(name, [value] * together) for name, value in row.items()}
        made = []
        for value, name in zip(self.session.run(list(outputs), feeds), outputs):
            numbers = floats(value, name)[1]
            made.append(numbers[: len(numbers) // together])
        return made

    def rows(
        self,
        rows: Sequence[Mapping[str, tuple[Sequence[int], Sequence[float]]]],
        outputs: Sequence[str] = (),
    ) -> list[array[float]]:
        """Runs the graph for rows, one at a time, or as many together as the graph fixes.

        Args:
            rows: for each, {input: (shape without the batch, numbers)}.
            outputs: as of `run`.

        Returns:
            the numbers of the output for each row
        """
        first = next(iter(rows[0]))
        together = self.size(first, 0) or 1
        made: list[array[float]] = []
        for indices in groups(len(rows), together):
            group = [rows[i] for i in indices]
            feeds = {name: self._stacked(name, [row[name] for row in group]) for name in group[0]}
            shape, numbers = self.run(feeds, outputs)
            if not shape or shape[0] != together:
                raise InputError(
                    f"its output has the shape {shape}",
                    f"{self.name}/model.onnx",
                    f"Export it again; the first dimension is that of '{first}'.",
                )
            size = len(numbers) // together
            made += [numbers[i * size : (i + 1) * size] for i in range(together)]
        return made[: len(rows)]

    def _stacked(self, name: str, rows: Sequence[tuple[Sequence[int], Sequence[float]]]) -> Array:
        """The rows as one input; a graph may have one number for all of them."""
        info = self.session.inputs[name]
        shape, rank = rows[0][0], None if info.shape is None else len(info.shape)
        if name == "timestep" and (rank == 0 or self.size(name, 0) == 1):
            return self.feed(name, [] if rank == 0 else [1], rows[0][1])
        numbers = [x for _, row in rows for x in row] if len(rows) > 1 else rows[0][1]
        return self.feed(name, [len(rows), *shape], numbers)
