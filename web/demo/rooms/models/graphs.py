"""Writes small .onnx files, node by node."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from edgewise.compiler.declare.dtypes import FLOAT, INT64
from edgewise.ir import Info, Node
from edgewise.onnx import BytesSource
from edgewise.onnx.editor import ModelEditor


class Model:
    """A graph that grows. Names of results are numbers, unless they are given."""

    def __init__(self) -> None:
        self.editor = ModelEditor()
        self.nodes: list[Node] = []
        self.count = 0

    def input(self, name: str, dtype: int, shape: Sequence[int | str]) -> str:
        """Adds an input; returns its name."""
        self.editor.add_input(Info(name, dtype, list(shape)))
        return name

    def floats(self, values: Sequence[float], *shape: int, name: str = "") -> str:
        """Adds constants; returns their name. A shape of () is a scalar's."""
        return self._constant((FLOAT, shape, array("f", values).tobytes()), name)

    def integers(self, *values: int) -> str:
        """Adds int64 [n]; returns its name."""
        return self._constant((INT64, (len(values),), array("q", values).tobytes()))

    def scalar(self, value: int) -> str:
        """Adds an int64 without dimensions; returns its name."""
        return self._constant((INT64, (), array("q", [value]).tobytes()))

    def op(self, kind: str, *inputs: str, name: str = "", **attributes: object) -> str:
        """Adds a node; returns the name of its output."""
        made = name or self._name()
        self.nodes.append(Node(kind, list(inputs), [made], dict(attributes), "", made))
        return made

    def source(
        self,
        file: str,
        output: str,
        shape: Sequence[int | str],
        more: Sequence[tuple[str, Sequence[int | str]]] = (),
    ) -> BytesSource:
        """The file, with an output, and more of them with their shapes."""
        self.editor.add_nodes(self.nodes)
        for name, sizes in ((output, shape), *more):
            self.editor.add_output(Info(name, FLOAT, list(sizes)))
        data = self.editor.write(None)
        assert data is not None
        return BytesSource(data, file)

    def _constant(self, value: object, name: str = "") -> str:
        name = name or self._name()
        self.editor.set_initializer(name, value)
        return name

    def _name(self) -> str:
        self.count += 1
        return f"x{self.count}"
