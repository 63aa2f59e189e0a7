"""The weights of a language model's .onnx file under transformers' names.

A stored float weight is read from the file. A quantized one is computed by the layer's own nodes
from the identity matrix, so that every quantization that Edgewise runs can be written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ModelError, UnsupportedField
from ..declare.dtypes import FLOAT, FLOAT16, INT64
from ..ir import BoundNode, Graph, Info, Node, Tensor
from ..onnx.editor import ModelEditor
from ..onnx.reader import read_model
from ..onnx.source import Source
from ..passes.layers import kind_of, layers, matrix_shape, stored_weight
from ..passes.lora import file_name
from ..plan.explain import TRAINING, explained
from ..plan.pipeline import recognised
from ..training.language_model import causal_lm_inputs
from .architectures import LAYER, Architecture, Dims, hub_name, shapes_of

_FUSED: Mapping[str, Sequence[str]] = {  # matrices that exporters put one below the other
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
_BIASES = (".bias", ".Add.bias", ".MatMul.bias")
X, Y = "x", "y"


@dataclass(frozen=True)
class Matrix:
    """A matrix of the file.

    Attributes:
        name: of its module in transformers; of a fused one the exporter's.
        shape: (out, in).
        tensor: the stored matrix; None: it is quantized, and `model` computes it.
        transposed: whether it is stored as [in, out].
        model: what computes it, an .onnx file with an input "x" and an output "y". Of an embedding
            x are ids [1, n], and y rows; else x are rows [1, n, in] of the identity matrix, and y
            columns [1, n, out].
        embedding: whether it is that of an embedding.
    """

    name: str
    shape: tuple[int, int]
    tensor: Tensor | None
    transposed: bool
    model: bytes | None
    embedding: bool


@dataclass(frozen=True)
class Weight:
    """A parameter in transformers' layout: rows `first` to `first + shape[0]` of a matrix, or a
    vector.

    Attributes:
        name: in transformers.
        module: name without ".weight" or ".bias".
        shape: [out, in] or [n].
        matrix: where it is; None of vectors.
        first: its first row there.
        vector: a stored vector.
    """

    name: str
    module: str
    shape: tuple[int, ...]
    matrix: Matrix | None
    first: int
    vector: Tensor | None


def hub_weights(
    source: Source, architecture: Architecture, dims: Dims, biased: Collection[str] = ()
) -> list[Weight]:
    """The parameters of a causal language model, in the order of transformers' files.

    Args:
        source: the .onnx file.
        architecture, dims: of its config.json.
        biased: modules of a layer that have a bias.

    Raises:
        ModelError: the graph has no such parameter, or of another shape than config.json says.
        UnsupportedField: it has parameters that the architecture does not have.
    """
    graph = read_model(source)  # binding below removes nodes of the other
    matrices = _matrices(graph, read_model(source), dims)
    vectors = {hub_name(n): t for n, t in graph.constants.items() if len(t.shape) == 1}
    found: list[Weight] = []
    for module, shape in shapes_of(architecture, dims).items():
        if len(shape) == 1:
            found.append(_vector(vectors, f"{module}.weight", module, shape))
            continue
        whole, first, rows = _place_of(module, dims)
        matrix = matrices.get(module)
        if matrix is None:
            matrix = matrices.get(whole)
        else:
            whole, first, rows = module, 0, shape[0]
        if matrix is None:
            raise ModelError(
                f"it has no weight of '{module}'",
                graph.name or "model",
                "Does config.json belong to this model? Names of layers must be the exporter's.",
            )
        if matrix.shape != (rows, shape[1]):
            raise ModelError(
                f"'{matrix.name}' is {list(matrix.shape)}, config.json says {[rows, shape[1]]}",
                graph.name or "model",
                "Take the config.json that belongs to this model.",
            )
        found.append(Weight(f"{module}.weight", module, shape, matrix, first, None))
        bias = _bias(vectors, module, whole, first, shape[0])
        if bias is not None:
            found.append(bias)
        elif module.startswith(LAYER) and module[len(LAYER) :].partition(".")[2] in biased:
            raise ModelError(
                f"it has no '{module}.bias', which config.json says it has",
                graph.name or "model",
                "Exports in which names of biases are lost cannot be given transformers' names.",
            )
    _check_all(found, matrices, vectors, graph)
    return found


def _place_of(module: str, dims: Dims) -> tuple[str, int, int]:
    """(module that it may be fused into, its first row there, rows of that)"""
    if module.startswith(LAYER):
        layer, _, part = module[len(LAYER) :].partition(".")
        sizes = {
            "self_attn.q_proj": dims.heads * dims.head_dim,
            "self_attn.k_proj": dims.kv_heads * dims.head_dim,
            "self_attn.v_proj": dims.kv_heads * dims.head_dim,
            "mlp.gate_proj": dims.inner,
            "mlp.up_proj": dims.inner,
        }
        for fused, parts in _FUSED.items():
            if part in parts:
                first = sum(sizes[p] for p in parts[: parts.index(part)])
                return f"{LAYER}{layer}.{fused}", first, sum(sizes[p] for p in parts)
    return module, 0, 0


def fused_name(module: str, dims: Dims) -> tuple[str, int]:
    """(module that exporters fuse another into, its first row there); its own name, 0 otherwise."""
    whole, first, _ = _place_of(module, dims)
    return whole, first


def _vector(
    vectors: Mapping[str, Tensor], name: str, module: str, shape: tuple[int, ...]
) -> Weight:
    t = vectors.get(name)
    if t is None or tuple(t.shape) != shape:
        raise ModelError(
            f"it has no '{name}'" if t is None else f"'{name}' is {list(t.shape)}, not {shape}",
            "model",
            "Does config.json belong to this model? Exports in which names of norms are lost"
            " cannot be given transformers' names.",
        )
    return Weight(name, module, shape, None, 0, t)


def _bias(
    vectors: Mapping[str, Tensor], module: str, whole: str, first: int, rows: int
) -> Weight | None:
    for stem in dict.fromkeys((module, whole)):
        for end in _BIASES:
            t = vectors.get(stem + end)
            if t is not None:
                at = 0 if stem == module and t.shape[0] == rows else first
                return Weight(f"{module}.bias", module, (rows,), None, at, t)
    return None


def _check_all(
    found: Sequence[Weight],
    matrices: Mapping[str, Matrix],
    vectors: Mapping[str, Tensor],
    graph: Graph,
) -> None:
    used = {id(w.matrix) for w in found if w.matrix is not None}
    read = {id(w.vector) for w in found if w.vector is not None}
    rest = [name for name, m in matrices.items() if id(m) not in used and name != "lm_head"]
    rest += [
        name
        for name, t in vectors.items()
        if name.startswith(LAYER)
        and name.endswith((".weight", ".bias"))
        and t.dtype in (FLOAT, FLOAT16)
        and id(t) not in read
    ]
    if rest:
        raise UnsupportedField(
            f"it has parameters that its family does not have: {', '.join(rest[:6])}",
            graph.name or "model",
            "Write an .onnx file of it instead.",
        )


def _matrices(graph: Graph, to_bind: Graph, dims: Dims) -> dict[str, Matrix]:
    """{module in transformers, or the exporter's of a fused one: Matrix}"""
    asked = causal_lm_inputs(to_bind, 1, 2)
    with explained(TRAINING, graph.name):
        bound = recognised(
            to_bind,
            asked["shapes"],
            None,
            asked["known"],
            outputs=["logits"],
            computed=asked["computed"],
            float_outputs=True,
            doing=TRAINING.broken,
        )
        known = layers(bound)
    found: dict[str, Matrix] = {}
    for name, n in known:
        made = _embedding(graph, n, dims) if kind_of(n) == "embedding" else _linear(graph, name, n)
        if made is not None:
            found.setdefault(made.name, made)
    if "model.embed_tokens" not in found:  # a table of float16, which no adapter is put beside
        gathers = [n for n in graph.nodes if n.op == "Gather" and n.inputs[1:] == ["input_ids"]]
        for gather in gathers[:1]:
            model = _layer_model(graph, "input_ids", gather.outputs[0], INT64, dims.width)
            shape = (dims.vocab, dims.width)
            found["model.embed_tokens"] = Matrix(
                "model.embed_tokens", shape, None, False, model, True
            )
    return found


def _embedding(graph: Graph, n: BoundNode, dims: Dims) -> Matrix | None:
    table, ids = n.inputs[:2]
    if file_name(ids) != "input_ids":
        return None
    shape = (table.shape[0], dims.width)
    name, turned = stored_weight(n)
    if name is not None and name in graph.constants:
        t = graph.constants[name]
        rows = (t.shape[1], t.shape[0]) if turned else (t.shape[0], t.shape[1])
        return Matrix("model.embed_tokens", rows, t, turned, None, True)
    model = _layer_model(graph, "input_ids", file_name(n.outputs[0]), INT64, dims.width)
    return Matrix("model.embed_tokens", shape, None, False, model, True)


def _linear(graph: Graph, name: str, n: BoundNode) -> Matrix | None:
    shape = matrix_shape(n)
    if kind_of(n) != "linear" or shape is None:
        return None
    name = hub_name(name)
    stored, by_rows = stored_weight(n)
    if stored is not None and stored in graph.constants:
        t = graph.constants[stored]
        sizes = sorted(t.shape)
        if t.dtype in (FLOAT, FLOAT16) and sizes == sorted(shape):
            return Matrix(name, (shape[1], shape[0]), t, not by_rows, None, False)
    model = _layer_model(graph, file_name(n.inputs[0]), file_name(n.outputs[0]), FLOAT, shape[1])
    return Matrix(name, (shape[1], shape[0]), None, True, model, False)


def _layer_model(graph: Graph, x: str, y: str, dtype: int, width: int) -> bytes:
    """An .onnx file of the nodes between two tensors of a graph; biases are left out.

    Raises:
        ModelError: they depend on more than x.
    """
    producers = {o: n for n in graph.nodes for o in n.outputs if o}
    kept: list[Node] = []
    constants: dict[str, Tensor] = {}
    seen = {x}
    half = False

    def visit(name: str) -> None:
        nonlocal half
        if not name or name in seen:
            return
        seen.add(name)
        if name in graph.constants:
            constants[name] = graph.constants[name]
            return
        n = producers.get(name)
        if n is None or len(kept) > 64:
            raise ModelError(
                f"its layer depends on '{name}'", f"layer of '{y}'", "Write an .onnx file instead."
            )
        inputs, attrs = list(n.inputs), dict(n.attrs)
        if n.op == "MatMulNBits":
            attrs.pop("accuracy_level", None)  # the numbers of a weight are not rounded again
            inputs = [name if i != 5 else "" for i, name in enumerate(inputs)]
        elif n.op == "Gemm":
            inputs = inputs[:2]
        for i in inputs:
            visit(i)
        kept.append(Node(n.op, inputs, list(n.outputs), attrs, n.domain, n.name))
        if n.op in ("MatMulNBits", "GatherBlockQuantized"):
            scales = graph.constants.get(n.inputs[2])
            half = half or scales is not None and scales.dtype == FLOAT16

    visit(y)
    e = ModelEditor()
    e.graph.opsets.update(graph.opsets)
    e.graph.functions.update(graph.functions)
    begin = Node("Cast", [X], [x], {"to": FLOAT16 if half and dtype == FLOAT else dtype}, "", X)
    end = Node("Cast", [y], [Y], {"to": FLOAT}, "", Y)
    e.add_nodes([begin, *kept, end])
    for name, t in constants.items():
        e.set_initializer(name, t)
    e.add_input(Info(X, dtype, [1, "n"] if dtype == INT64 else [1, "n", "width"]))
    e.add_output(Info(Y, FLOAT, [1, "n", width]))
    made = e.write()
    assert made is not None
    return made


def vector_numbers(weight: Weight) -> Sequence[Any]:
    """The numbers of a vector."""
    assert weight.vector is not None
    return weight.vector.numbers()[weight.first : weight.first + weight.shape[0]]


__all__ = ["Matrix", "Weight", "fused_name", "hub_weights", "vector_numbers"]
