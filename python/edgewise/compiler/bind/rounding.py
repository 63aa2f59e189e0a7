"""Where casting to half precision rounds.

A tensor of a half type is float32 within a plan, and arithmetic on it is more exact than the file
asks for, like that of a processor with wide registers. But a number that is cast to half precision
and then cast to another type, compared, or returned is one of that precision: its Cast rounds.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..declare.dtypes import BFLOAT16, FLOAT16
from ..ir import Graph, Node, Value
from ..ops import OPS

HALF = (FLOAT16, BFLOAT16)
# Operators that only compute: with a number that is not rounded they are as exact or more so.
_ARITHMETIC = frozenset(
    """
    Add Sub Mul Div Sum Mean Sqrt Reciprocal Exp Log Pow Sin Cos Tanh Sigmoid Erf Softplus Softsign
    LeakyRelu Elu Selu Celu PRelu HardSigmoid HardSwish Mish Gelu FastGelu BiasGelu QuickGelu Swish
    Softmax LogSoftmax MatMul FusedMatMul MatMulNBits MatMulBnb4 Gemm Conv ConvTranspose Einsum
    LayerNormalization RMSNormalization SimplifiedLayerNormalization SkipLayerNormalization
    SkipSimplifiedLayerNormalization GroupNormalization InstanceNormalization BatchNormalization
    LpNormalization MeanVarianceNormalization AveragePool GlobalAveragePool ReduceSum ReduceMean
    ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSumExp CumSum Resize Attention MultiHeadAttention
    GroupQueryAttention RotaryEmbedding LSTM GRU RNN
    """.split()
)
# Operators whose outputs are elements of their inputs, perhaps with another sign.
_CHOICES = frozenset(
    """
    Neg Abs Relu Clip Max Min MaxPool GlobalMaxPool ReduceMax ReduceMin Dropout Identity Reshape
    Squeeze Unsqueeze Flatten
    """.split()
)
# Their results do not show whether a number is rounded.
_BLIND = _ARITHMETIC | {"Shape", "Size"}


def rounded_casts(graph: Graph, fed: Mapping[str, Value]) -> dict[str, int]:
    """{output of a Cast or CastLike to a half type that rounds: the type} of the nodes of a graph,
    without its subgraphs. fed: the inputs of the graph.
    """
    made_by = {o: n for n in graph.nodes for o in n.outputs if o}
    liked = any(n.op == "CastLike" for n in graph.nodes)
    types = _declared_types(graph, fed) if liked else {}
    casts = {n.outputs[0]: to for n in graph.nodes if (to := _half_type(n, types, made_by))}
    if not casts:
        return {}
    stack = [o.name for o in graph.outputs if o.dtype not in HALF]
    for n in graph.nodes:
        if not _passes_on(n, casts) and n.op not in _BLIND:
            stack += n.inputs
        for g in n.subgraphs():
            stack += [name for inner in g.every_node() for name in inner.inputs]
            stack += [o.name for o in g.outputs]
    seen: set[str] = set()
    while stack:
        name = stack.pop()
        node = made_by.get(name)
        if name in seen or node is None:
            continue
        seen.add(name)
        if _passes_on(node, casts):
            stack += node.inputs
    return {name: to for name, to in casts.items() if name in seen}


def _passes_on(n: Node, casts: dict[str, int]) -> bool:
    """Whether a node's outputs are elements of its inputs, or those in half precision."""
    decl = OPS.get((n.domain, n.op))
    moves = decl is not None and decl.moves
    return not n.domain and (moves or n.op in _CHOICES) or bool(n.outputs and n.outputs[0] in casts)


def _half_type(n: Node, types: Mapping[str, int], made_by: Mapping[str, Node]) -> int:
    """The half type that a node casts to; 0: none. types: of `_declared_types`."""
    if n.domain or n.op not in ("Cast", "CastLike") or not n.outputs:
        return 0
    to = n.attrs.get("to") if n.op == "Cast" else _type_of(n.inputs[1:], types, made_by)
    return to if isinstance(to, int) and to in HALF else 0


def _declared_types(graph: Graph, fed: Mapping[str, Value]) -> dict[str, int]:
    """The element types of tensors that the file states or that are known before binding."""
    known = {i.name: i.dtype for i in (*graph.outputs, *graph.inputs, *graph.value_info.values())}
    for constants in (graph.constants, graph.values or {}, fed):
        known.update({name: t.dtype for name, t in constants.items()})
    return known


def _type_of(names: list[str], types: Mapping[str, int], made_by: Mapping[str, Node]) -> int:
    """The element type of a tensor; of arithmetic that of its operand; 0: unknown."""
    for _ in range(len(made_by) + 1):
        name = names[0] if names else ""
        if types.get(name):
            return types[name]
        n = made_by.get(name)
        if n is None:
            return 0
        if n.op in ("Cast", "Constant"):
            value = n.attrs.get("value")
            return int(n.attrs.get("to", 0) or getattr(value, "dtype", 0))
        if n.op not in ("CastLike", "Where") and not (n.op in _ARITHMETIC or _passes_on(n, {})):
            return 0
        names = n.inputs[1:] if n.op in ("CastLike", "Where") else n.inputs
    return 0
