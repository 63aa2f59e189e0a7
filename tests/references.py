"""onnxruntime as the tests compare with it: its sums of products of bytes are exact on any
processor.

Products of unsigned with signed bytes are added in pairs in 16 bits, with saturation, by what
onnxruntime uses on x86 without VNNI (`vpmaddubsw`). Where that is so, sessions get a model that
means the same and has no such product: signed weights w with a zero point z become the unsigned
w + 128 with z + 128.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

MS = "com.microsoft"
# {operator: (the bytes that weights are multiplied with, [(weights, their zero points)])} by number
# of the input. None: onnxruntime makes unsigned bytes of a float input.
PRODUCTS: dict[str, tuple[int | None, list[tuple[int, int]]]] = {
    "MatMulInteger": (0, [(1, 3)]),
    "ConvInteger": (0, [(1, 3)]),
    "QLinearMatMul": (0, [(3, 5)]),
    "QLinearConv": (0, [(3, 5)]),
    "QGemm": (0, [(3, 5)]),
    "MatMulIntegerToFloat": (0, [(1, 5)]),
    "QAttention": (0, [(1, 7)]),
    "DynamicQuantizeMatMul": (None, [(1, 3)]),
    "DynamicQuantizeLSTM": (None, [(1, 9), (2, 11)]),
}
# Operators that onnxruntime computes on bytes if both operands come from DequantizeLinear; the
# first one on unsigned bytes, whatever they are in the model.
OF_FLOATS = ("Conv", "Gemm", "MatMul")
SIGNS = (*(name.encode() for name in PRODUCTS), b"DequantizeLinear")


# Before tests/conftest.py has changed it.
_create = onnxruntime.InferenceSession.__init__


def use_exact_products(create: Callable) -> Callable:
    """onnxruntime.InferenceSession.__init__ with the exact form of each model, where this processor
    needs it.
    """

    @functools.wraps(create)
    def wrapped(self: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        create(self, reference_of(model), *args, **kwargs)

    return wrapped


def reference_of(model: Any) -> Any:
    """What an InferenceSession is given (a path or bytes), or its exact form where this processor
    needs it.
    """
    return exact_form(model) if _sums_saturate() else model


@functools.cache
def _sums_saturate() -> bool:
    if _sums_are_exact(lambda model: model):
        return False
    assert _sums_are_exact(exact_form), "onnxruntime is not exact with unsigned weights"
    return True


def _sums_are_exact(form: Callable[[bytes], Any]) -> bool:
    """Whether a session multiplies bytes exactly: the largest ones, in a vector and in a matrix."""
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "w"], ["y"])],
        "products",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, ["rows", 64])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["rows", 48])],
        [numpy_helper.from_array(np.full((64, 48), 127, np.int8), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = object.__new__(onnxruntime.InferenceSession)
    _create(session, form(model.SerializeToString()), providers=["CPUExecutionProvider"])
    return all(
        (session.run(None, {"a": np.full((rows, 64), 255, np.uint8)})[0] == 64 * 255 * 127).all()
        for rows in (1, 9)
    )


def exact_form(model: Any) -> Any:
    """What an InferenceSession is given (a path or bytes) without products of unsigned with signed
    bytes; the same object if it has none, or is no ONNX model.
    """
    try:
        data = model if isinstance(model, bytes) else Path(model).read_bytes()
    except (OSError, TypeError):
        return model  # onnxruntime says what is wrong with it
    if not any(sign in data for sign in SIGNS):
        return model
    try:
        found = onnx.load_from_string(data) if data is model else onnx.load(model)
    except DecodeError:
        return model
    return found.SerializeToString() if use_unsigned_weights(found) else model


def use_unsigned_weights(model: ModelProto) -> bool:
    """Makes signed weights that are multiplied with unsigned bytes unsigned; whether there are."""
    return _rewrite(model.graph, {}, onnx.shape_inference.infer_shapes(model).graph.value_info)


def _rewrite(graph: GraphProto, outer: Mapping[str, int], inferred: Iterable[Any] = ()) -> bool:
    """The same of a graph and those within it. outer: types of the values around it."""
    types = {**outer, **{i.name: i.data_type for i in graph.initializer}}
    for info in (*graph.input, *graph.value_info, *inferred):
        types[info.name] = info.type.tensor_type.elem_type
    makers = {output: node for node in graph.node for output in node.output}
    unsigned, nodes, found = _Unsigned(graph), [], False
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                found |= _rewrite(inner, types)
        for user, weights, zeros in _weights(node, types, makers):
            if types.get(user.input[weights]) == TensorProto.INT8:
                nodes += unsigned.use(user, weights, zeros)
                found = True
        nodes.append(node)
    ordered = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(ordered)
    return found


def _weights(
    node: NodeProto, types: Mapping[str, int], makers: Mapping[str, NodeProto]
) -> list[tuple[NodeProto, int, int]]:
    """(node, number of the weights, of their zero points) of what unsigned bytes are multiplied
    with.
    """
    if node.domain in ("", MS) and node.op_type in PRODUCTS:
        first, weights = PRODUCTS[node.op_type]
        if first is None or types.get(node.input[first]) != TensorProto.INT8:
            return [(node, *pair) for pair in weights]
    elif node.op_type in OF_FLOATS:
        a, w = (makers.get(name) for name in node.input[:2])
        both = a is not None and w is not None and a.op_type == w.op_type == "DequantizeLinear"
        if both and w.input[0] not in makers:
            return [(w, 0, 2)]
    return []


class _Unsigned:
    """Signed values of a graph as unsigned ones."""

    def __init__(self, graph: GraphProto) -> None:
        self.graph, self.names = graph, {}
        self.constants = {i.name: i for i in graph.initializer}

    def use(self, node: NodeProto, weights: int, zeros: int) -> list[NodeProto]:
        """Changes inputs of a node; returns the nodes that make them."""
        node.input.extend([""] * (zeros + 1 - len(node.input)))
        if not node.input[zeros]:  # those of DequantizeLinear have the scale's shape
            scale = self.constants[node.input[1]] if node.op_type == "DequantizeLinear" else None
            node.input[zeros] = f"{node.input[weights]}/zeros"
            shape = () if scale is None else scale.dims
            self._store(np.zeros(shape, np.int8), node.input[zeros])
        made: list[NodeProto] = []
        for at in (weights, zeros):
            node.input[at] = self._unsigned(node.input[at], made)
        return made

    def _unsigned(self, name: str, made: list[NodeProto]) -> str:
        if name in self.names:
            return self.names[name]
        new = self.names[name] = f"{name}/unsigned"
        if name in self.constants:
            self._store(numpy_helper.to_array(self.constants[name]).view(np.uint8) ^ 128, new)
        else:
            wide, by = f"{new}/wide", f"{new}/by"
            self._store(np.array(128, np.int32), by)
            made += [
                helper.make_node("Cast", [name], [wide], to=TensorProto.INT32),
                helper.make_node("Add", [wide, by], [f"{new}/sums"]),
                helper.make_node("Cast", [f"{new}/sums"], [new], to=TensorProto.UINT8),
            ]
        return new

    def _store(self, array: np.ndarray, name: str) -> None:
        self.constants[name] = numpy_helper.from_array(array, name)
        self.graph.initializer.append(self.constants[name])
