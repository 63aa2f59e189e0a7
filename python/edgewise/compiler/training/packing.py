"""Several documents in one row, which do not see each other: attention is masked at their borders,
and positions begin again, as transformers' DataCollatorWithFlattening has it.

A label of DOCUMENT says that a document begins at its token (logic/training/packing.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import InputError, UnsupportedOp
from ...logic.training.data import IGNORED
from ...logic.training.packing import DOCUMENT
from ..bind.autodiff import Gradients
from ..compile.states import StateInput
from ..declare.dtypes import BOOL, INT64
from ..ir import BoundNode, Value

if TYPE_CHECKING:
    from ..bind.graph import BoundGraph

POSITIONS = "position_ids"
LOW = -1e30  # is added to the scores of keys of other documents
# Where the operators that compute attention as a whole take what is added to scores.
_BIAS = {("", "Attention"): 3, ("com.microsoft", "GroupQueryAttention"): 10}
_FUSED = ("edgewise", "Attention")  # masks from input 3 on
_MAX_MASKS = 2
# Operators whose results depend on tokens before, in another way than attention.
_RECURRENT = {
    "CausalConvWithState",
    "Conv",
    "ConvTranspose",
    "CumProd",
    "DynamicSparseAttention",
    "EngramGate",
    "FlexAttention",
    "GatedDeltaNet",
    "GRU",
    "LSTM",
    "LinearAttention",
    "Loop",
    "NGramHashMapping",
    "PagedAttention",
    "RNN",
    "Scan",
    "SparseAttention",
    "VarlenCausalConvWithState",
}
_REMEDY = "Leave out packing: each document then has a row."
# Between scores and their softmax: a sink beside them, a maximum that is subtracted.
_BESIDE = ("Cast", "Concat", "Identity", "Reshape", "Sub")
# Between a softmax and its product with values.
_AFTER = (*_BESIDE, "Dropout", "Slice", "Where", "IsNaN", "Transpose", "Split")
MAX_NODES = 5


def check_states(states: Mapping[str, StateInput], config: Mapping[str, Any], where: str) -> None:
    """Raises UnsupportedOp for a model with states that go from one document to the next one."""
    for name, state in states.items():
        if state.fixed:
            raise UnsupportedOp(
                f"its state '{name}' goes from each document to the next one", where, _REMEDY
            )
    if config.get("attention_chunk_size"):
        raise UnsupportedOp("its layers see chunks of a whole row", where, _REMEDY)


def check_packing(packing: bool | None, of_tokens: bool) -> None:
    """Raises InputError for packing where something else than next tokens is learned, and for no
    boolean.
    """
    if packing is not None and not isinstance(packing, bool):
        raise InputError(f"it is {packing!r}", "packing", "Give True or False.")
    if packing and not of_tokens:
        raise InputError(
            "only next tokens of a language model are learned from rows with several documents",
            "packing",
            "Leave it out.",
        )


def learned_labels(graph: Gradients, labels: Value) -> Value:
    """Labels without DOCUMENT, int64 [batch, sequence]."""
    begins = graph.op("Equal", labels, graph.constant(INT64, [1], [DOCUMENT]))
    return graph.op("Where", begins, graph.constant(INT64, [1], [IGNORED]), labels)


def separate_documents(bound: BoundGraph, target: str) -> None:
    """Lets each token see its own document alone, and count its positions from there.

    Args:
        bound: a language model of whole rows, as it was bound.
        target: name of the input with the labels, which is added.

    Raises:
        UnsupportedOp: tokens of other documents would have an effect, or the model does not take
            positions.
    """
    for n in bound.nodes:
        if n.op in _RECURRENT:
            raise UnsupportedOp(
                f"{n.op} goes from each document of a row to the next one", n.where, _REMEDY
            )
    shape = list(bound.inputs["input_ids"].shape)
    labels = bound.inputs[target] = Value(target, INT64, shape, role="input")
    graph, first = Gradients(bound), len(bound.nodes)
    begins = graph.op("Equal", labels, graph.constant(INT64, [1], [DOCUMENT]))
    mask, positions = _of_documents(graph, begins, shape)
    made = bound.nodes[first:]
    del bound.nodes[first:]
    bound.nodes[:0] = made
    _count(bound, positions)
    _separate(bound, graph, mask, shape[1])


def _of_documents(graph: Gradients, begins: Value, shape: list[int]) -> tuple[Value, Value]:
    """What is added to scores, [batch, 1, sequence, sequence]; positions [batch, sequence]."""
    batch, sequence = shape
    numbers = graph.op("Cast", begins, to=INT64)
    one = graph.constant(INT64, [], [1])
    document = graph.op("CumSum", numbers, one)
    same = graph.op(
        "Equal",
        graph.reshape(document, [batch, 1, sequence, 1]),
        graph.reshape(document, [batch, 1, 1, sequence]),
    )
    mask = graph.op("Where", same, graph.number(0.0), graph.number(LOW))
    places = graph.constant(INT64, [1, 1, 1, sequence], list(range(sequence)))
    last = graph.constant(INT64, [1], [sequence])
    starts = graph.op("ReduceMin", graph.op("Where", same, places, last), graph.ints([3]))
    own = graph.constant(INT64, [1, sequence], list(range(sequence)))
    return mask, graph.sub(own, graph.reshape(starts, [batch, sequence]))


def _count(bound: BoundGraph, positions: Value) -> None:
    """Replaces the positions of a model. Raises UnsupportedOp: it takes none."""
    rotary = [
        n
        for n in bound.nodes
        if n.op == "GroupQueryAttention" and n.attr("do_rotary", 0) and not n.has(9)
    ]
    for n in rotary:
        _put(n, 9, positions)
    given = bound.inputs.pop(POSITIONS, None)
    if given is None:
        if not rotary:
            raise UnsupportedOp(
                "it has no input position_ids: positions cannot begin again in a row",
                "model",
                "Export it with position_ids, or leave out packing.",
            )
        return
    first = next(i for i, n in enumerate(bound.nodes) if positions in n.outputs) + 1
    binder, tail = bound.binder, len(bound.nodes)
    if given.rank > 2:  # of time, height and width: those of text are equal
        positions = binder.op("Expand", positions, binder.ints(list(given.shape)))
    if given.dtype != INT64:
        positions = binder.op("Cast", positions, to=given.dtype)
    made = bound.nodes[tail:]
    del bound.nodes[tail:]
    bound.nodes[first:first] = made
    bound.replace(given, positions)


def _separate(bound: BoundGraph, graph: Gradients, mask: Value, sequence: int) -> None:
    """Adds the mask to all scores. Raises UnsupportedOp: there are none."""
    users = bound.users()
    found = 0
    for n in list(bound.nodes):
        tail = len(bound.nodes)
        if n.op == "Softmax":
            scores = _scores(n, users, sequence)
            if scores is None:
                continue
            node, i = scores
            own = node.inputs[i]
            added = mask if own.rank == 4 else _flat(graph, mask, own)
            node.inputs[i] = graph.add(own, added)
        elif (n.domain, n.op) == _FUSED:
            if len(n.inputs) >= 3 + _MAX_MASKS:
                raise UnsupportedOp("its attention has two masks", n.where, _REMEDY)
            n.inputs = [*n.inputs, mask]
            node = n
        elif (n.domain, n.op) in _BIAS:
            i, node = _BIAS[n.domain, n.op], n
            if n.op == "Attention" and n.attr("softcap", 0.0):
                raise UnsupportedOp("its attention has a soft cap after masks", n.where, _REMEDY)
            _put(n, i, _with(graph, n.inputs[i] if n.has(i) else None, mask))
        else:
            continue
        found += 1
        made = bound.nodes[tail:]
        del bound.nodes[tail:]
        at = next(k for k, m in enumerate(bound.nodes) if m is node)
        bound.nodes[at:at] = made
    if not found:
        raise UnsupportedOp("no attention was found in it", "model", _REMEDY)


def _put(n: BoundNode, i: int, v: Value) -> None:
    inputs = [*n.inputs, *[None] * (i + 1 - len(n.inputs))]
    inputs[i] = v
    n.inputs = inputs


def _with(graph: Gradients, own: Value | None, mask: Value) -> Value:
    """The mask, and one that a node has, as one number to add."""
    if own is None:
        return mask
    if own.dtype == BOOL:
        own = graph.op("Where", own, graph.number(0.0), graph.number(LOW))
    return graph.add(own, mask)


def _flat(graph: Gradients, mask: Value, scores: Value) -> Value:
    """The mask for scores [batch * heads, sequence, sequence]."""
    batch, sequence = mask.shape[0], mask.shape[2]
    heads = scores.shape[0] // batch
    each = graph.op("Expand", mask, graph.ints([batch, heads, sequence, sequence]))
    return graph.reshape(each, list(scores.shape))


def _scores(
    softmax: BoundNode, users: Mapping[int, list[BoundNode | None]], sequence: int
) -> tuple[BoundNode, int] | None:
    """The input that has the scores of pairs of tokens: (node, its index); None: the softmax is of
    something else, such as experts.
    """
    if not _weighs(softmax, users):
        return None
    node, i = softmax, 0
    for _ in range(MAX_NODES):
        v = node.inputs[i]
        if v.rank in (3, 4) and list(v.shape[-2:]) == [sequence, sequence]:
            return node, i
        if v.producer is None or v.producer.op not in _BESIDE:
            return None
        node, i = v.producer, 0
    return None


def _weighs(softmax: BoundNode, users: Mapping[int, list[BoundNode | None]]) -> bool:
    """Whether the results of a softmax are multiplied with values, which tokens have."""
    found = [softmax.outputs[0]]
    for _ in range(MAX_NODES):
        after: list[Value] = []
        for v in found:
            for n in users.get(id(v), []):
                if n is None:
                    continue
                if n.op in ("MatMul", "FusedMatMul", "Einsum"):
                    other = n.inputs[1] if n.inputs[0] is v else n.inputs[0]
                    if not other.constant:
                        return True
                if n.op in _AFTER:
                    after += [o for o in n.outputs if o is not None]
        found = after
    return False


__all__ = ["POSITIONS", "check_packing", "check_states", "learned_labels", "separate_documents"]
