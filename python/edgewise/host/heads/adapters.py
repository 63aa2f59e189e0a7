"""Adapters of heads.lora in a model: merged into float weights, as nodes beside others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import Array, as_input
from ...compiler.declare.dtypes import FLOAT, FLOAT16, NAME
from ...compiler.heads.features import values_with
from ...compiler.ir import Graph, Info, Node, Tensor
from ...compiler.onnx.editor import ModelEditor
from ...compiler.passes.lora import LoraLayer
from ...compiler.training.export import put_lora
from ...errors import InputError
from ...logic.personal.layout import Layer, LoraLayout
from ..session import InferenceSession

if TYPE_CHECKING:
    from ..engine import Engine

Stored = tuple[int, tuple[int, ...], bytes]


def put_adapters(
    editor: ModelEditor, layout: LoraLayout, data: bytes, engine: Engine | None = None
) -> None:
    """Puts adapters into a model that is to be written.

    Args:
        editor: of the model.
        layout: where the adapters are in `data`.
        data: float32 [layout.numbers].
        engine: the Engine to use; by default that of the process.

    Raises:
        InputError: they do not fit the model.
    """
    try:
        _put(editor, layout, data, engine)
    except OverflowError:
        raise InputError(
            "their numbers are too large for the model's weights", "adapters", "Train them again."
        ) from None


def _put(editor: ModelEditor, layout: LoraLayout, data: bytes, engine: Engine | None) -> None:
    graph, scaling = editor.graph, layout.alpha / layout.rank
    layers, pairs, merged = [], dict[str, Stored](), dict[str, Stored]()
    with _Merging(scaling, engine) as merging:
        for layer, a, b in layout.pairs():
            names = (f"{layer.name}.lora_A", f"{layer.name}.lora_B")
            for name, at, shape in (
                (names[0], a, (layout.rank, layer.inner)),
                (names[1], b, (layer.outer, layout.rank)),
            ):
                count = shape[0] * shape[1]
                pairs[name] = (FLOAT, shape, data[4 * at : 4 * (at + count)])
            made = LoraLayer(
                layer.name, "linear", *names, scaling, layer.weight, layer.transposed,
                layer.x, layer.y,
            )  # fmt: skip
            layers.append(made)
            if layer.weight is not None:
                weight = _weight(graph, layer)
                merged[layer.weight] = merging(weight, layer, *(pairs[name] for name in names))
    put_lora(editor, layers, pairs, merged)


def adapted_graph(
    graph: Graph, layout: LoraLayout, data: bytes, engine: Engine | None = None
) -> Graph:
    """A graph with adapters; `graph` stays as it is. Args, Raises: as of put_adapters."""
    editor = ModelEditor()
    nodes = [replace(n, inputs=list(n.inputs), outputs=list(n.outputs)) for n in graph.nodes]
    editor.graph = replace(graph, nodes=nodes, constants=dict(graph.constants))
    put_adapters(editor, layout, data, engine)
    made = editor.graph
    changed = [t for name, t in made.constants.items() if graph.constants.get(name) is not t]
    made.values = values_with(graph, changed)
    return made


def _weight(graph: Graph, layer: Layer) -> Tensor:
    """The initializer of a layer. Raises InputError: it is not there, or another one."""
    found = graph.constants.get(layer.weight or "")
    shape = (layer.outer, layer.inner) if layer.transposed else (layer.inner, layer.outer)
    if found is None or found.dtype not in (FLOAT, FLOAT16) or tuple(found.shape) != shape:
        raise InputError(
            f"the model has no weight '{layer.weight}' of {list(shape)}",
            "adapters",
            "Use them with the model that they were trained with.",
        )
    return found


class _Merging:
    """Computes W + scaling (B A) in the layout and type of W."""

    def __init__(self, scaling: float, engine: Engine | None) -> None:
        self.scaling, self.engine = scaling, engine
        self.sessions: dict[tuple[int, bool], InferenceSession] = {}

    def __enter__(self) -> _Merging:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self.sessions.values():
            session.free()

    def __call__(self, weight: Tensor, layer: Layer, a: Stored, b: Stored) -> Stored:
        key = (weight.dtype, layer.transposed)
        if key not in self.sessions:
            self.sessions[key] = InferenceSession(self._graph(*key), engine=self.engine)
        feeds = {
            "w": Array(tuple(weight.shape), NAME[weight.dtype], bytes(weight.bytes())),
            "a": Array(a[1], "float32", a[2]),
            "b": Array(b[1], "float32", b[2]),
        }
        (new,) = self.sessions[key].run(["new"], feeds)
        return weight.dtype, tuple(weight.shape), bytes(memoryview(as_input(new, "")[2]).cast("B"))

    def _graph(self, dtype: int, transposed: bool) -> Graph:
        nodes = [
            Node("MatMul", ["b", "a"], ["change"]),
            Node("Transpose", ["change"], ["turned"], {"perm": [0, 1] if transposed else [1, 0]}),
            Node("Mul", ["turned", "scaling"], ["scaled"]),
            Node("Cast", ["w"], ["weight"], {"to": FLOAT}),
            Node("Add", ["weight", "scaled"], ["sum"]),
            Node("Cast", ["sum"], ["new"], {"to": dtype}),
        ]
        inputs: list[Any] = [Info("w", dtype, ["p", "q"])]
        inputs += [Info("a", FLOAT, ["r", "inner"]), Info("b", FLOAT, ["outer", "r"])]
        return Graph(
            "merge",
            nodes,
            inputs,
            [Info("new", dtype, ["p", "q"])],
            {"scaling": Tensor.of("scaling", FLOAT, [], [self.scaling])},
            opsets={"": 17},
            ir_version=9,
        )
