"""Layers of a recognised graph: products with a fixed matrix, convolutions, embeddings, under the
names that they have in the PyTorch model.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..declare.dtypes import FLOAT
from ..ir import BoundNode, Graph, Node, Value
from ..ops import declared

if TYPE_CHECKING:
    from ..bind import BoundGraph

WEIGHTS = {name: weight for name, weight in declared("weight").items() if weight.kind}
_RANKS = {"linear": 2, "conv": 4, "embedding": 2}  # of weights that LoRA is for
# A value that these nodes make of a weight is still that weight.
_VIEWS = ("Transpose", "Cast", "Identity", "DequantizeLinear", "QuantizeDequantize", "Reshape")
# The suffix of a node's name that stands for its operator, also after quantizers renamed it:
# MatMul_Q4, MatMul_quant_output_scale_mul.
_TAIL = re.compile(r"/(MatMul|Gemm|Conv|Gather|FusedMatMul)[^/]*$")
_PRODUCT = re.compile("MatMul|Gemm|Conv|Gather|Einsum|Linear|Embed")
# The end of a weight's name. re.S: no newline makes it backtrack.
_WEIGHT_NAME = re.compile(
    r"(.+?)[._](weight|weight_quantized|weight_Q4|qweight|MatMul\.weight.*|weight.*)$", re.S
)


def layers(bound: BoundGraph) -> list[tuple[str, BoundNode]]:
    """[(module name, node)] of all layers that LoRA can be inserted at."""
    found: list[tuple[str, BoundNode]] = []
    names: set[str] = set()
    for n in bound.nodes:
        if not _is_layer(n):
            continue
        name = module_name(n)
        if name in names and kind_of(n) == "linear":  # a tied weight has the embedding's name
            name = _own_name(n) or name
        if name:
            names.add(name)
            found.append((name, n))
    return found


def _is_layer(n: BoundNode) -> bool:
    kind = kind_of(n)
    if kind == "linear":
        x = n.inputs[0]
        return x is not None and not x.fixed and matrix_shape(n) is not None
    if kind == "conv":
        x, w = n.inputs[:2]
        return len(x.shape) == 4 and _is_weight(w) and n.attr("group", 1) == 1
    if kind == "embedding":
        table, ids = n.inputs[:2]
        return (
            table.rank == 2
            and _is_weight(table)
            and n.outputs[0].dtype == FLOAT
            and not ids.fixed
            and n.attr("axis", 0) == 0
        )
    return False


def kind_of(n: BoundNode) -> str:
    """The kind of layer that a node is (Weight.kind); "" where it is none."""
    return WEIGHTS[n.op].kind if n.op in WEIGHTS else ""


def matrix_shape(n: BoundNode) -> tuple[int, int] | None:
    """(in, out) of a product with a fixed matrix; None of others."""
    if n.op in ("MatMulNBits", "MatMulBnb4"):
        return n.attr("K"), n.attr("N")
    if n.op == "QuantizedMatMul":
        rows, columns = n.inputs[4].shape
        return rows, columns
    w = _weight_input(n)
    if w is None or not _is_weight(w) or w.rank != 2 or n.attr("transA", 0):
        return None
    return (w.shape[1], w.shape[0]) if n.attr("transB", 0) else (w.shape[0], w.shape[1])


def stored_weight(n: BoundNode) -> tuple[str | None, bool]:
    """(name of the initializer, whether it is stored as [out, in]) of a layer.

    (None, False) where the weight is quantized, or scaled by the node.
    """
    if WEIGHTS[n.op].quantized or n.attr("alpha", 1.0) != 1.0:
        return None, False
    v, transposed = _weight_input(n), bool(n.attr("transB", 0))
    while v is not None and v.producer is not None:
        if v.producer.op not in ("Transpose", "Cast", "Identity"):
            break
        transposed ^= v.producer.op == "Transpose" and v.rank == 2
        v = v.producer.inputs[0]
    name = _stored_name(v)
    return (name, transposed) if name is not None else (None, False)


def module_name(n: BoundNode) -> str:
    """The name of a layer in the PyTorch model, as far as the export has it.

    It comes from the name of its weight, from what the exporter noted, or from the node's name.
    """
    name = _plain_name(_stored_name(_behind_views(_weight_input(n))) or "")
    return _own_name(n) if name is None else name


def _own_name(n: BoundNode | Node) -> str:
    return n.module or _TAIL.sub("", n.name).strip("/").replace("/", ".")


def possible_names(graph: Graph) -> set[str]:
    """Names among which are those of all layers of a file, before its ops are recognised."""
    found: set[str] = set()
    for n in graph.nodes:
        # A node that a quantizer put after a product has its name, and may become the layer.
        if n.module or _PRODUCT.search(n.op) or _PRODUCT.search(n.name.rpartition("/")[2]):
            found.add(_own_name(n))
        for inner in n.subgraphs():
            found |= possible_names(inner)
    for name, t in graph.constants.items():
        stem = _WEIGHT_NAME.match(name)
        if stem and len(t.shape) > 1:
            found.add(stem[1])
    return found - {""}


def names_of_weights(graph: Graph) -> set[str]:
    """Those of `possible_names` that belong to nodes with a stored weight."""
    found: set[str] = set()
    for n, weight in _weighted(graph):
        rank = len(graph.constants[weight].shape)
        if WEIGHTS[n.op].quantized or rank == _RANKS[WEIGHTS[n.op].kind]:
            named = _plain_name(weight)
            found.add(named if named is not None else _own_name(n))
    for n in graph.nodes:
        for inner in n.subgraphs():
            found |= names_of_weights(inner)
    return found - {""}


def weights_of_experts(graph: Graph) -> set[str]:
    """The initializers with the weights of several experts: operands of nodes for experts, and of
    products with a matrix for each.
    """
    found = {
        weight
        for n, weight in _weighted(graph)
        if WEIGHTS[n.op].kind == "linear" and not WEIGHTS[n.op].quantized
    }
    for n in graph.nodes:
        if n.op in ("MoE", "QMoE"):
            found |= set(n.inputs)
        for inner in n.subgraphs():
            found |= weights_of_experts(inner)
    constants = graph.constants
    return {name for name in found if name in constants and len(constants[name].shape) == 3}


def _weighted(graph: Graph) -> list[tuple[Node, str]]:
    """[(node, initializer)] of nodes whose weight is an initializer, or a view of one."""
    stored = {name: name for name in graph.constants}
    found: list[tuple[Node, str]] = []
    for n in graph.nodes:
        if n.op in _VIEWS and n.inputs and n.inputs[0] in stored:
            stored.setdefault(n.outputs[0], stored[n.inputs[0]])
        weight = WEIGHTS.get(n.op)
        if weight is not None and weight.input < len(n.inputs):
            name = stored.get(n.inputs[weight.input])
            if name is not None:
                found.append((n, name))
    return found


def stored_layers(graph: Graph) -> list[tuple[str, Node]]:
    """[(module name, node)] of convolutions and embeddings of a graph that is not bound, whose
    weights are stored.
    """
    found: list[tuple[str, Node]] = []
    for n in graph.nodes:
        weight = WEIGHTS.get(n.op)
        if weight is None or weight.kind not in ("conv", "embedding"):
            continue
        name = n.inputs[weight.input] if weight.input < len(n.inputs) else ""
        stored = graph.constants.get(name)
        if stored is None or len(stored.shape) != (2 if weight.kind == "embedding" else 4):
            continue
        named = _plain_name(name)
        found.append((named if named is not None else _own_name(n), n))
    return found


def _plain_name(weight: str) -> str | None:
    """The module's name in that of its weight; None where the exporter made that up."""
    found = _WEIGHT_NAME.match(weight)
    return found[1] if found and not weight.startswith(("onnx::", "val_", "/")) else None


def uses_of_weights(bound: BoundGraph) -> dict[str, int]:
    """{initializer: number of nodes that compute with it}, views of it not counted."""
    count: dict[str, int] = {}
    for n in bound.nodes:
        if n.op in _VIEWS and _is_weight(n.inputs[0]):
            continue
        for v in n.inputs:
            name = _stored_name(_behind_views(v))
            if name is not None:
                count[name] = count.get(name, 0) + 1
    return count


def _weight_input(n: BoundNode) -> Value | None:
    return n.input(WEIGHTS[n.op].input)


def _behind_views(v: Value | None) -> Value | None:
    """What a value is a view, or another form, of."""
    while v is not None and v.producer is not None and v.producer.op in _VIEWS:
        v = v.producer.inputs[0]
    return v


def _stored_name(v: Value | None) -> str | None:
    """Name of the initializer that a value is; None of others."""
    if v is None:
        return None
    if v.tensor is not None:
        return v.tensor.name
    return v.name if v.role == "state" else None


def _is_weight(v: Value | None) -> bool:
    """Whether a value is a weight, or a view or another form of one."""
    v = _behind_views(v) if v is not None and not v.fixed else v
    return v is not None and v.fixed
