"""The loss that spreads tokens over the experts of mixtures (Fedus et al. 2021, Switch
Transformers, equations 4 to 6), as `load_balancing_loss_func` of transformers computes it.

Source: Mixtral and Qwen3-MoE of transformers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InputError
from ..bind.autodiff import Gradients
from ..bind.graph import BoundGraph
from ..declare.dtypes import BOOL, FLOAT, INT32, INT64
from ..declare.symbolic import product
from ..ir import BoundNode, Tensor, Value

_EXPERTS = ("ExpertMatMul", "ExpertMatMulNBits")
_PASSED = ("Reshape", "Cast", "Identity", "Squeeze", "Unsqueeze", "Flatten")


@dataclass(frozen=True)
class Router:
    """A choice of experts.

    Attributes:
        scores: [..., experts]: the router's outputs, before their softmax.
        index: [..., k]: the experts that are chosen.
    """

    scores: Value
    index: Value


def balance_loss(graph: Gradients, real: Value) -> Value:
    """A scalar: the number of experts times the sum, over all experts, of the share of tokens that
    chose it times its mean probability; both are means over the tokens of all layers.

    Args:
        graph: the graph, with the model.
        real: float32 [tokens], 1 for tokens and 0 for padding.

    Raises:
        InputError: the model has no routers, or they are of another kind.
    """
    tokens = product(real.shape)
    routers = _routers(graph.bound, tokens)
    experts = routers[0].scores.shape[-1]
    mask = graph.reshape(real, [tokens, 1])
    shares, chosen = (graph.zeros([tokens, experts]) for _ in range(2))
    for router in routers:
        k = router.index.shape[-1]
        of_layer = graph.op("Softmax", graph.reshape(router.scores, [tokens, experts]))
        one = Tensor.of("one", FLOAT, [1], [1.0])
        ones = graph.op("ConstantOfShape", graph.ints([tokens, k]), value=one)
        index = graph.reshape(router.index, [tokens, k])
        shares = graph.add(shares, of_layer)
        chosen = graph.op("ScatterElements", chosen, index, ones, axis=1, reduction="add")
    count = graph.op("Max", graph.op("ReduceSum", real, keepdims=0), graph.number(1.0))
    count = graph.scale(count, float(len(routers)))
    means = [
        graph.div(graph.op("ReduceSum", graph.mul(v, mask), graph.ints([0]), keepdims=0), count)
        for v in (shares, chosen)
    ]
    return graph.scale(graph.op("ReduceSum", graph.mul(*means), keepdims=0), float(experts))


def real_tokens(graph: Gradients, labels: Value, ignore_index: int) -> Value:
    """float32 [batch, sequence]: 1 up to the last label of a row, 0 for the padding after it."""
    none = graph.constant(labels.dtype, [], [ignore_index])
    labelled = graph.op("Not", graph.op("Equal", labels, none))
    after = graph.op(
        "CumSum", graph.op("Cast", labelled, to=FLOAT), graph.constant(INT64, [], [1]), reverse=1
    )
    return graph.op("Cast", graph.op("Cast", after, to=BOOL), to=FLOAT)


def _routers(bound: BoundGraph, tokens: int) -> list[Router]:
    """The routers of a model, in its order."""
    made = {id(o): n for n in bound.nodes for o in n.outputs if o is not None}
    experts = {n.inputs[1].shape[0] for n in bound.nodes if n.op in _EXPERTS}
    marked = {  # by masks of the experts of each choice, as OneHot is computed
        id(_source(made, n.inputs[0]))
        for n in bound.nodes
        if n.op == "Equal" and n.inputs[0].dtype in (INT32, INT64)
    }
    found: list[Router] = []
    for n in bound.nodes:
        if n.op != "TopK" or n.outputs[1] is None or product(n.inputs[0].shape[:-1]) != tokens:
            continue
        if n.inputs[0].shape[-1] in experts or id(n) in marked:
            found.append(Router(_scores(made, n), n.outputs[1]))
    if not found:
        raise InputError(
            "the model has no experts that a router chooses",
            "router_aux_loss_coef",
            "Leave it out; it is for mixtures of experts.",
        )
    if len({(r.scores.shape[-1], r.index.shape[-1]) for r in found}) > 1:
        raise InputError(
            "the layers of the model have different numbers of experts",
            "router_aux_loss_coef",
            "Leave it out.",
        )
    return found


def _source(made: dict[int, BoundNode], v: Value) -> BoundNode | None:
    """The node that makes a value; nodes that only rearrange or convert are passed, and the Where
    that counts negative indices from the end.
    """
    node = made.get(id(v))
    while node is not None and node.op in (*_PASSED, "Where"):
        node = made.get(id(node.inputs[2 if node.op == "Where" else 0]))
    return node


def _scores(made: dict[int, BoundNode], top: BoundNode) -> Value:
    """The scores whose softmax, or which themselves, a TopK compares."""
    node = _source(made, top.inputs[0])
    if node is not None and node.op == "Softmax":
        axis, rank = node.attr("axis", -1), node.inputs[0].rank
        if axis in (-1, rank - 1):
            return node.inputs[0]
    if node is None or node.op in ("MatMul", "Gemm", "Add", "MatMulNBits", "FusedMatMul"):
        return top.inputs[0]
    raise InputError(
        f"experts are not chosen by a softmax of scores, but by the results of {node.where}",
        "router_aux_loss_coef",
        "Leave it out; models of this kind balance their experts by other means.",
    )
