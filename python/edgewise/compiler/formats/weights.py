"""The weights of a language model's .onnx file under transformers' names.

A stored float weight is read from the file. A quantized one is computed by the layer's own nodes
from the identity matrix, so that every quantization that Edgewise runs can be written.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ModelError, UnsupportedField
from ..compile.mixtures import static_mixtures
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
from .architectures import JOINED, LAYER, Architecture, Dims, hub_name, shapes_of

_BIASES = (".bias", ".Add.bias", ".MatMul.bias")
# Operators that multiply with a norm's weight.
_NORMS = (
    "Mul",
    "SimplifiedLayerNormalization",
    "SkipSimplifiedLayerNormalization",
    "RMSNormalization",
    "LayerNormalization",
    "SkipLayerNormalization",
)
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
class Piece:
    """Rows of a matrix that are rows of a weight.

    Attributes:
        matrix: where they are.
        first: the first one there.
        rows: their number.
        at: the first one in the weight.
    """

    matrix: Matrix
    first: int
    rows: int
    at: int


@dataclass(frozen=True)
class Weight:
    """A parameter in transformers' layout: rows of matrices, or a vector.

    Attributes:
        name: in transformers.
        module: name without ".weight" or ".bias".
        shape: [out, in] or [n].
        pieces: its rows, in order; none of vectors.
        vectors: stored vectors, each with the first number that is taken and how many.
        shift: to be added to the numbers of vectors.
    """

    name: str
    module: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    vectors: tuple[tuple[Tensor, int, int], ...] = ()
    shift: float = 0.0


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
    matrices = _matrices(graph, static_mixtures(read_model(source), branches=False), dims)
    vectors = _vectors(graph)
    found: list[Weight] = []
    for module, shape in shapes_of(architecture, dims).items():
        if len(shape) == 1:
            found.append(_norm(vectors, module, shape, architecture.centred, graph))
            continue
        pieces, biases = [], []
        at = 0
        for whole, first, rows, total in _places_of(module, shape[0], matrices, dims, graph):
            matrix = matrices[whole]
            if matrix.shape != (total, shape[1]):
                raise ModelError(
                    f"'{matrix.name}' is {list(matrix.shape)}, config.json says"
                    f" {[total, shape[1]]}",
                    graph.name or "model",
                    "Take the config.json that belongs to this model.",
                )
            pieces.append(Piece(matrix, first, rows, at))
            biases.append(_bias(vectors, (module, whole), first, rows, total))
            at += rows
        found.append(Weight(f"{module}.weight", module, shape, tuple(pieces)))
        stored = [b for b in biases if b is not None]
        if stored and len(stored) == len(biases):
            found.append(Weight(f"{module}.bias", module, shape[:1], (), tuple(stored)))
        elif module.startswith(LAYER) and module[len(LAYER) :].partition(".")[2] in biased:
            raise ModelError(
                f"it has no '{module}.bias', which config.json says it has",
                graph.name or "model",
                "Exports in which names of biases are lost cannot be given transformers' names.",
            )
    _check_all(found, matrices, vectors, graph)
    return found


def _sizes(dims: Dims) -> dict[str, int]:
    """{module that exporters may put below another: its rows}"""
    kv = dims.kv_heads * dims.head_dim
    return {
        "self_attn.q_proj": dims.heads * dims.head_dim,
        "self_attn.k_proj": kv,
        "self_attn.v_proj": kv,
        "mlp.gate_proj": dims.inner,
        "mlp.up_proj": dims.inner,
    }


def parts_of(module: str, dims: Dims) -> list[tuple[str, int, int]]:
    """[(module, its first row, rows)] of the modules that are joined in one; [] of others."""
    layer, part = _split(module)
    sizes, first, found = _sizes(dims), 0, []
    for name in JOINED.get(part, ()):
        found.append((f"{LAYER}{layer}.{name}", first, sizes[name]))
        first += sizes[name]
    return found


def fused_name(module: str, dims: Dims) -> tuple[str, int]:
    """(module that exporters fuse another into, its first row there); its own name, 0 otherwise."""
    layer, part = _split(module)
    for whole, parts in JOINED.items():
        if part in parts:
            sizes = _sizes(dims)
            first = sum(sizes[p] for p in parts[: parts.index(part)])
            return f"{LAYER}{layer}.{whole}", first
    return module, 0


def _split(module: str) -> tuple[str, str]:
    """(number of the layer, module in it)"""
    if not module.startswith(LAYER):
        return "", module
    layer, _, part = module[len(LAYER) :].partition(".")
    return layer, part


def _places_of(
    module: str, rows: int, matrices: Mapping[str, Matrix], dims: Dims, graph: Graph
) -> list[tuple[str, int, int, int]]:
    """[(name of a matrix, first row there, rows, all of its rows)] of a module: its own matrix,
    rows of that into which an exporter fused it, or those that are joined in it.
    """
    if module in matrices:
        return [(module, 0, rows, rows)]
    whole, first = fused_name(module, dims)
    if whole in matrices:
        return [(whole, first, rows, sum(count for _, _, count in parts_of(whole, dims)))]
    parts = parts_of(module, dims)
    if parts and all(name in matrices for name, _, _ in parts):
        return [(name, 0, count, count) for name, _, count in parts]
    raise ModelError(
        f"it has no weight of '{module}'",
        graph.name or "model",
        "Does config.json belong to this model? Names of layers must be the exporter's.",
    )


def _vectors(graph: Graph) -> dict[str, tuple[Tensor, bool]]:
    """{name in transformers: (vector, whether the graph adds 1 to it)} of the vectors of a file.

    A norm has the name of its initializer, or, where an exporter computed that, of its node.
    """
    found: dict[str, tuple[Tensor, bool]] = {}
    vectors = {name for name, t in graph.constants.items() if len(t.shape) == 1}
    added = {i for n in graph.nodes if n.op == "Add" for i in n.inputs if _is_one_added(graph, n)}
    for name in vectors:
        found[hub_name(name)] = graph.constants[name], name in added
    for n in graph.nodes:
        if n.op in _NORMS:
            scope = n.module or n.name.rpartition("/")[0].strip("/").replace("/", ".")
            for i in n.inputs:
                if i in vectors:
                    found.setdefault(f"{hub_name(scope)}.weight", (graph.constants[i], False))
    return found


def _is_one_added(graph: Graph, n: Node) -> bool:
    """Whether a node adds 1 to a vector of the file."""
    sizes = {i: graph.constants[i] for i in n.inputs if i in graph.constants}
    ones = [t for t in sizes.values() if math.prod(t.shape) == 1]
    return len(sizes) == 2 and len(ones) == 1 and float(ones[0].numbers()[0]) == 1.0


def _norm(
    vectors: Mapping[str, tuple[Tensor, bool]],
    module: str,
    shape: tuple[int, ...],
    centred: bool,
    graph: Graph,
) -> Weight:
    name = f"{module}.weight"
    t, added = vectors.get(name, (None, False))
    if t is None or tuple(t.shape) != shape:
        raise ModelError(
            f"it has no '{name}'" if t is None else f"'{name}' is {list(t.shape)}, not {shape}",
            graph.name or "model",
            "Does config.json belong to this model? Exports in which names of norms are lost"
            " cannot be given transformers' names.",
        )
    return Weight(name, module, shape, (), ((t, 0, shape[0]),), -1.0 * (centred and not added))


def _bias(
    vectors: Mapping[str, tuple[Tensor, bool]],
    stems: tuple[str, str],
    first: int,
    rows: int,
    total: int,
) -> tuple[Tensor, int, int] | None:
    """(vector, first number, how many) of a module's bias: its own, or part of a fused one's."""
    for stem in dict.fromkeys(stems):
        for end in _BIASES:
            t, _ = vectors.get(stem + end, (None, False))
            if t is not None and t.shape[0] in (rows, total):
                return t, 0 if t.shape[0] == rows else first, rows
    return None


def _check_all(
    found: Sequence[Weight],
    matrices: Mapping[str, Matrix],
    vectors: Mapping[str, tuple[Tensor, bool]],
    graph: Graph,
) -> None:
    used = {id(piece.matrix) for w in found for piece in w.pieces}
    read = {id(t) for w in found for t, _, _ in w.vectors}
    rest = [name for name, m in matrices.items() if id(m) not in used and name != "lm_head"]
    rest += [
        name
        for name, (t, _) in vectors.items()
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
    """The numbers of a vector, as they are stored."""
    return [x for t, first, count in weight.vectors for x in t.numbers()[first : first + count]]


__all__ = ["Matrix", "Piece", "Weight", "fused_name", "hub_weights", "parts_of", "vector_numbers"]
