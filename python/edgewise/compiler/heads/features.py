"""The features of a model's inputs: which tensor of its graph they are.

The features of a classifier are the input of its last layer. Other models have an output for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import InputError
from ..declare.dtypes import FLOAT, FLOAT16, INT64
from ..ir import Graph, Info, Node, Tensor, Value

FEATURES = "features"
"""Name of the output that is added to a graph; with a number after it where that is taken."""
EMBEDDINGS = (
    "sentence_embedding",
    "embeddings",
    "embedding",
    "embeds",
    "image_embeds",
    "pooler_output",
)
STATES = ("last_hidden_state", "hidden_states", "token_embeddings", "extract_features")
LOGITS = ("logits", "output", "probabilities")
# Inputs of layers that hold weights, where an activation is input 0: {op: index of the weight}.
_LAYERS = {
    "Gemm": 1,
    "MatMul": 1,
    "MatMulInteger": 1,
    "DynamicQuantizeMatMul": 1,
    "MatMulNBits": 1,
    "MatMulBnb4": 1,
    "FusedMatMul": 1,
    "FusedGemm": 1,
    "Conv": 1,
    "ConvInteger": 1,
}
# What may be between the last layer and the logits; the activation is input 0 (of Add and Mul any).
_AFTER = (
    "Add",
    "Mul",
    "Cast",
    "Identity",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Softmax",
    "LogSoftmax",
    "Sigmoid",
    "QuantizeLinear",
    "DequantizeLinear",
    "BiasGelu",
)
_QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Cast", "Identity")
EDGE = 64
"""Bytes at the beginning and end of a weight that its digest is made of."""
CLASS_TOKEN = ("vit", "deit", "beit", "dinov2", "dinov2_with_registers", "dinov3_vit", "vit_mae",
               "vit_msn", "data2vec-vision", "clip_vision_model", "ijepa", "yolos")  # fmt: skip
"""Types of models of pictures whose first state stands for the picture."""


@dataclass(frozen=True)
class Features:
    """The features in a graph.

    Attributes:
        tensor: name of the tensor.
        pooling: how it becomes a vector: "none" (it has one number for each feature), "mean" (over
            positions) or "first" (the state of the first token).
    """

    tensor: str
    pooling: str = "none"


def find_features(graph: Graph, kind: str, model_type: str = "") -> Features:
    """The features of a graph.

    Args:
        graph: of the model.
        kind: of its inputs: "image", "audio" or "text".
        model_type: of config.json.

    Raises:
        InputError: it has neither a last layer nor an output that is known.
    """
    outputs = [o.name for o in graph.outputs]
    for name in EMBEDDINGS:
        if name in outputs:
            return Features(name)
    logits = next((n for n in LOGITS if n in outputs), None)
    if logits is not None or len(outputs) == 1 and outputs[0] not in STATES:
        found = last_layer_input(graph, logits or outputs[0])
        if found is not None:
            return Features(found)
    for name in STATES:
        if name in outputs:
            first = kind == "image" and model_type in CLASS_TOKEN
            return Features(name, "first" if first else "mean")
    if len(outputs) == 1:
        return Features(outputs[0])
    raise InputError(
        f"its features are not known; it has the outputs {', '.join(outputs)}",
        graph.name or "model",
        f"Export it with logits, or with one of {', '.join((*EMBEDDINGS, *STATES))}.",
    )


def text_states(graph: Graph) -> Features:
    """What feature-extraction makes its vectors of, in its own way.

    Raises:
        InputError: the graph has no such output.
    """
    outputs = [o.name for o in graph.outputs]
    for name in (EMBEDDINGS[0], *STATES):
        if name in outputs:
            return Features(name, "own")
    raise InputError(
        f"it has the outputs {', '.join(outputs)}",
        graph.name or "model",
        f"Export it with one of {', '.join((EMBEDDINGS[0], *STATES))}.",
    )


def last_layer_input(graph: Graph, output: str) -> str | None:
    """The input of the layer that computes `output`; None if no such layer is found."""
    by_output = {o: n for n in graph.nodes for o in n.outputs if o}
    name = output
    for _ in range(16):
        node = by_output.get(name)
        if node is None:
            return None
        if node.op in _LAYERS and _has_weight(graph, node, by_output):
            return _unquantized(node.inputs[0], by_output)
        if node.op not in _AFTER:
            return None
        paths = node.inputs if node.op in ("Add", "Mul") else node.inputs[:1]
        computed = [x for x in paths if not _is_constant(graph, x, by_output)]
        if node.op == "Mul":  # of dynamic quantization: the product, and its scale
            computed = [x for x in computed if not _is_scale(x, by_output)]
        if len(computed) != 1:
            return None
        name = computed[0]
    return None


def _has_weight(graph: Graph, node: Node, by_output: dict[str, Node]) -> bool:
    return _is_constant(graph, node.inputs[_LAYERS[node.op]], by_output)


def _is_constant(graph: Graph, name: str, by_output: dict[str, Node]) -> bool:
    """Whether a tensor depends on initializers alone."""
    for _ in range(4):
        if not name or name in graph.constants or name in (graph.values or ()):
            return True
        node = by_output.get(name)
        if node is None or node.op not in ("Constant", "Transpose", *_QUANTIZED):
            return False
        if node.op == "Constant":
            return True
        name = node.inputs[0]
    return False


def _is_scale(name: str, by_output: dict[str, Node]) -> bool:
    node = by_output.get(name)
    if node is not None and node.op == "Mul":  # of the activation's scale and the weight's
        return any(_is_scale(x, by_output) for x in node.inputs)
    return node is not None and node.op == "DynamicQuantizeLinear"


def _unquantized(name: str, by_output: dict[str, Node]) -> str:
    """The float tensor that a quantized one stands for."""
    while (node := by_output.get(name)) is not None and node.op in _QUANTIZED:
        name = node.inputs[0]
    return name


def with_features(
    graph: Graph, features: Features, rank: int, dtype: int = FLOAT
) -> tuple[Graph, str]:
    """A graph that has an output for its features, float32 [batch, size], beside its others.

    Args:
        graph: it is not changed; both have the same nodes and weights.
        features: of the graph.
        rank: of the tensor.
        dtype: of the tensor: FLOAT or FLOAT16.

    Returns:
        (graph, name of the output)

    Raises:
        InputError: the tensor has no dimension of features.
    """
    taken = tensor_names(graph)
    name = unused(taken, FEATURES)
    opset = graph.opsets.get("", 17)
    nodes, constants = feature_nodes(features, rank, name, taken, opset, dtype)
    changed = replace(
        graph,
        nodes=[*graph.nodes, *nodes],
        outputs=[*graph.outputs, Info(name, FLOAT, ["batch", None])],
        constants={**graph.constants, **{t.name: t for t in constants}},
        values=values_with(graph, constants),
    )
    return changed, name


def values_with(graph: Graph, constants: Sequence[Tensor]) -> dict[str, Value] | None:
    """`values` of a graph with more constants; once it was bound, they hold its Constant nodes."""
    if graph.values is None:
        return None
    return {
        **graph.values,
        **{t.name: Value(t.name, t.dtype, t.shape, tensor=t) for t in constants},
    }


def tensor_names(graph: Graph) -> set[str]:
    """Names of the tensors of a graph, without those of its subgraphs."""
    names = {info.name for info in [*graph.inputs, *graph.outputs]} | set(graph.constants)
    for node in graph.nodes:
        names.update(node.inputs, node.outputs)
    return names


def unused(taken: set[str], stem: str) -> str:
    """A name that is not taken; takes it."""
    name, i = stem, 0
    while name in taken:
        i += 1
        name = f"{stem}_{i}"
    taken.add(name)
    return name


def feature_nodes(
    features: Features, rank: int, output: str, taken: set[str], opset: int, dtype: int = FLOAT
) -> tuple[list[Node], list[Tensor]]:
    """The nodes that make a vector of the tensor of features.

    Args:
        features: of the graph.
        rank: of the tensor.
        output: name of the vectors [batch, size].
        taken: names of the graph's tensors.
        opset: of ai.onnx in the graph.
        dtype: of the tensor.

    Returns:
        (nodes, constants that they read)

    Raises:
        InputError: the tensor has no dimension of features.
    """
    last = features.tensor
    nodes: list[Node] = []
    constants: list[Tensor] = []
    if rank not in (2, 3, 4):
        raise InputError(
            f"it has {rank} dimensions", f"features '{last}'", "Features are vectors of a batch."
        )
    if dtype == FLOAT16:
        nodes.append(Node("Cast", [last], [last := unused(taken, "features_float")], {"to": FLOAT}))
    if rank == 3 and features.pooling == "first":
        constants.append(Tensor.of(unused(taken, "features_first"), INT64, [], [0]))
        nodes.append(Node("Gather", [last, constants[-1].name], [output], {"axis": 1}))
    elif rank > 2:
        axes: Sequence[int] = [1] if rank == 3 else [2, 3]
        inputs: list[str] = [last]
        attrs: dict[str, Any] = {"keepdims": 0}
        if opset >= 18:
            constants.append(
                Tensor.of(unused(taken, "features_axes"), INT64, [len(axes)], list(axes))
            )
            inputs.append(constants[-1].name)
        else:
            attrs["axes"] = list(axes)
        nodes.append(Node("ReduceMean", inputs, [output], attrs))
    else:
        nodes.append(Node("Identity", [last], [output]))
    return nodes, constants


def digest_of(graph: Graph, features: Features) -> str:
    """A digest that tells models with other features apart: of the operators that compute them, the
    names and shapes of weights, and the first and last bytes of each.

    Constant nodes and the order of nodes do not count: both change when a graph is first bound.
    """
    h = hashlib.sha256(f"{features.tensor} {features.pooling}".encode())
    nodes, used = graph.needed([features.tensor])
    h.update(" ".join(sorted(n.op for n in nodes if n.op != "Constant")).encode())
    for name, t in sorted(graph.constants.items()):
        if name not in used or t.strings is not None or t.nbytes < EDGE:
            continue
        h.update(f"{name} {t.dtype} {list(t.shape)}".encode())
        if t.data is not None:
            h.update(bytes(t.data[:EDGE]) + bytes(t.data[-EDGE:]))
        elif t.source is not None:
            h.update(t.source.read(t.offset, EDGE))
            h.update(t.source.read(t.offset + t.nbytes - EDGE, EDGE))
    return h.hexdigest()[:32]
