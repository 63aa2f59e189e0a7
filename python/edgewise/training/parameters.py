"""Which constants of a graph are parameters.

ONNX does not say: a file knows weights, masks and tables alike as initializers.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Sequence

from ..declare.dtypes import FLOAT, FLOAT16
from ..errors import InputError, UnsupportedOp
from ..ir import Graph, Node, Tensor
from ..ops import declared

# Inputs that hold parameters, by op: whatever a layer of PyTorch or Keras learns is one of these.
_ROLES = declared("parameters")
_QUANTIZED = {name: w for name, w in declared("weight").items() if w.quantized}
_ARITHMETIC = (
    "Add",
    "Sub",
    "Mul",
    "Div",
)  # biases, gains, position tables; but also masks and constants of formulas
_VIEWS = (
    "Identity",
    "Transpose",
    "Reshape",
    "Unsqueeze",
    "Squeeze",
    "Slice",
    "Cast",
    "Expand",
    "Flatten",
    "Split",
    "Concat",
)
_NOT_LEARNED = re.compile(
    r"mask|inv_freq|(^|[._/])(cos|sin)(_cache|_cached)?$|running_(mean|var)|num_batches"
    r"|position_ids",
    re.I,
)
_MADE_UP = re.compile(
    r"^(onnx::|val_|/|_?const|arange|shape|scalar)|Constant", re.I
)  # names that exporters gave


def parameters(graph: Graph) -> list[str]:
    """Names of the float initializers that look like parameters, in the order of the file.

    What feeds a layer (products, convolutions, embeddings, norms, recurrent ops), directly or
    through reshapes and transposes, is one; what is only added or multiplied is one where it has
    several elements and a name of its own that is not a mask's or a table's: a single number is
    mostly an epsilon or a scale, and norms with a trained epsilon are not recognised as norms.
    """
    users: dict[str, list[tuple[Node, int]]] = {}
    for n in graph.every_node():
        for i, name in enumerate(n.inputs):
            users.setdefault(name, []).append((n, i))

    def learned(name: str, own: str, depth: int = 0) -> bool:
        for n, i in users.get(name, ()):
            if i in _ROLES.get(n.op, ()):
                return True
            if n.op in _ARITHMETIC and graph.constants[own].count > 1 and not _MADE_UP.search(own):
                return True
            if (
                n.op in _VIEWS
                and depth < 4
                and (i == 0 or n.op == "Concat")
                and any(learned(o, own, depth + 1) for o in n.outputs if o)
            ):
                return True
        return False

    return [
        name
        for name, t in graph.constants.items()
        if t.dtype in (FLOAT, FLOAT16)
        and len(t.shape) >= 1
        and not _NOT_LEARNED.search(name)
        and learned(name, name)
    ]


def quantized_count(graph: Graph) -> int:
    """How many weights are stored in integers: they cannot be trained, only adapters beside
    them.
    """
    count = 0
    for n in graph.every_node():
        if n.op in ("MatMulNBits", "MatMulBnb4"):
            count += (n.attrs.get("K") or 0) * (n.attrs.get("N") or 0)
            continue
        at = _QUANTIZED[n.op].input if n.op in _QUANTIZED else None
        t = graph.constants.get(n.inputs[at]) if at is not None and len(n.inputs) > at else None
        if t is not None and len(t.shape) > 1:
            count += t.count * (
                2
                if n.op == "GatherBlockQuantized"
                and n.attrs.get("bits", 4) == 4
                and t.nbytes == t.count
                else 1
            )
    return count


def choose(
    graph: Graph, wanted: str | Sequence[str] = "all", frozen: Sequence[str] = ()
) -> list[str]:
    """Names of the parameters to train.

    Args:
        wanted: "all", or a list of names and patterns ("*.bias", "head.*").
        frozen: names and patterns that are not trained.
    Raises:
        InputError: a name or pattern matches nothing.
    """
    known = list(graph.constants)
    if wanted == "all":
        chosen = parameters(graph)
    else:
        chosen = []
        for p in wanted:
            found = [p] if p in graph.constants else fnmatch.filter(known, p)
            if not found:
                raise InputError(
                    "the model has no initializer of this name",
                    f"parameter '{p}'",
                    f"Some of its parameters: {', '.join(parameters(graph)[:8])}.",
                )
            chosen += [f for f in found if f not in chosen]
    for p in frozen:
        if p not in graph.constants and not fnmatch.filter(known, p):
            raise InputError(
                "the model has no initializer of this name",
                f"frozen parameter '{p}'",
                f"Some of its parameters: {', '.join(parameters(graph)[:8])}.",
            )
    return [c for c in chosen if not any(c == p or fnmatch.fnmatchcase(c, p) for p in frozen)]


def separate(graph: Graph) -> Graph:
    """Gives parameters that the exporter merged because they began with equal values a tensor each.

    TorchScript's exporter writes initializers of one value once, and `Identity` for the others: all
    fresh norms of a model become one. Tensors whose elements are all the same number are such;
    others of equal content are tied weights, and stay one. Returns the graph (changed).
    """
    if graph.values is not None:
        return graph
    kept = []
    for n in graph.nodes:
        t = (
            graph.constants.get(n.inputs[0])
            if n.op == "Identity" and n.domain == "" and len(n.inputs) == 1
            else None
        )
        if (
            t is not None
            and t.dtype in (FLOAT, FLOAT16)
            and len(t.shape) >= 1
            and len(n.outputs) == 1
            and n.outputs[0] not in graph.constants
            and not any(o.name == n.outputs[0] for o in graph.outputs)
            and _uniform(t)
        ):
            graph.constants[n.outputs[0]] = Tensor(
                n.outputs[0], t.dtype, t.shape, t.source, t.offset, t.nbytes, t.data
            )
        else:
            kept.append(n)
    graph.nodes = kept
    return graph


def _uniform(t: Tensor) -> bool:
    data = bytes(t.bytes())
    size = 4 if t.dtype == FLOAT else 2
    return len(data) > 0 and data == data[:size] * (len(data) // size)


def with_batch_statistics(
    graph: Graph, only: Collection[str] | None = None
) -> tuple[Graph, dict[str, str]]:
    """(graph whose BatchNormalization nodes use the batch's statistics, {running statistic: name of
    its new value}).

    only: outputs of the nodes that are meant; None: all. Statistics that norms share because they
    began equal are one tensor in the file, which two norms cannot both update: such graphs have
    been through `separate`.
    """
    nodes: list[Node] = []
    running: dict[str, str] = {}
    for n in graph.nodes:
        internal = (
            n.op == "BatchNormInternal"
        )  # ONNX Runtime Training's own: the same with two more outputs
        if (
            (n.op == "BatchNormalization" and n.domain == "" or internal)
            and len(n.inputs) == 5
            and (only is None or n.outputs[0] in only)
        ):
            news = [f"{n.inputs[3]}~new", f"{n.inputs[4]}~new"]
            for old, new in zip(n.inputs[3:], news):
                if old in running or old not in graph.constants or old in n.inputs[1:3]:
                    raise UnsupportedOp(
                        f"its running statistic '{old}' is not its own",
                        n.where,
                        "Train with batch_norm='frozen', or export the model after a step of"
                        " training, when no two tensors are equal.",
                    )
                running[old] = new
            nodes.append(
                Node(
                    "BatchNormalization",
                    list(n.inputs),
                    [n.outputs[0], *news],
                    {
                        **{k: a for k, a in n.attrs.items() if k in ("epsilon", "momentum")},
                        "training_mode": 1,
                    },
                    "",
                    n.name,
                )
            )
        else:
            nodes.append(n)
    copy = Graph(
        graph.name,
        nodes,
        graph.inputs,
        graph.outputs,
        graph.constants,
        graph.value_info,
        {**graph.opsets, "": max(graph.opsets.get("", 15), 15)} if running else graph.opsets,
        graph.functions,
        graph.metadata,
        graph.ir_version,
        graph.producer,
        graph.source,
    )
    return copy, running
