"""What a graph gives: onnxruntime without its optimizations, and with exact products of bytes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from edgewise.compiler.passes.integer_bias import BIAS_ERROR
from onnx import TensorProto, helper, numpy_helper
from references import reference_of

FLOAT, HALF, DOUBLE = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE
# Relative size of the changes of inputs and weights that show how exact a result can be.
NOISE = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-6, np.dtype(np.float16): 1e-3}
TRIES = 16
RANDOM = 21  # the last opset for which onnxruntime has random numbers
NEW = ("Attention", "RMSNormalization", "RotaryEmbedding")  # not in that opset


class Reference:
    """A model in onnxruntime. Raises what onnxruntime raises."""

    def __init__(self, model):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(
            reference_of(model.SerializeToString()), options, providers=["CPUExecutionProvider"]
        )

    def run(self, run):
        """The outputs of a Run."""
        return self.session.run(run.names, run.feeds)


class Names:
    """Makes nodes whose outputs have names of their own."""

    def __init__(self, stem):
        self.stem, self.nodes = stem, []

    def __call__(self, op, *inputs, out=None, **attrs):
        out = out or f"{self.stem}/{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [out], **attrs))
        return out


def changed(array, rng):
    """Random changes of the relative size that rounding has."""
    noise = NOISE.get(array.dtype)
    if noise is None:
        return array
    factor = 1 + noise * rng.standard_normal(array.shape)
    return (array * factor).astype(array.dtype)


def types_of(model):
    """{value: ONNX number of its type}. Operators of onnxruntime, which ONNX's inference does not
    know, are taken to give the type of their first input.
    """
    known = onnx.ModelProto()
    known.CopyFrom(model)
    while True:
        graph = onnx.shape_inference.infer_shapes(known).graph
        types = {t.name: t.data_type for t in graph.initializer}
        for v in (*graph.input, *graph.value_info):
            if v.type.HasField("tensor_type"):
                types[v.name] = v.type.tensor_type.elem_type
        for node in graph.node:
            if node.domain and node.input[0] in types and node.output[0] not in types:
                made = helper.make_tensor_value_info(node.output[0], types[node.input[0]], None)
                known.graph.value_info.append(made)
                break
        else:
            return types


def inexact(model, rng):
    """The model with changed weights, and a changed result of each node of floats."""
    types = types_of(model)
    out = onnx.ModelProto()
    out.CopyFrom(model)
    del out.graph.node[:]
    # onnxruntime has no random numbers of later opsets: then nodes are exact, and inputs are not.
    new = any(n.op_type in NEW and not n.domain for n in model.graph.node)
    for opset in out.opset_import:
        if not opset.domain and not new:
            opset.version = min(opset.version, RANDOM)
    # It refuses scales of a batch that are not 1.
    exact = {x for n in model.graph.node if n.op_type == "Resize" for x in n.input[1:]}
    for t in out.graph.initializer:
        if t.name not in exact:
            t.CopyFrom(numpy_helper.from_array(changed(numpy_helper.to_array(t), rng), t.name))
    for old in model.graph.node:
        node = onnx.NodeProto()
        node.CopyFrom(old)
        if node.op_type == "QuantizeLinear" and not new:
            before_rounding(node, out.graph, rng)
        after = []
        for i, name in enumerate(node.output):
            kind = types.get(name)
            if kind not in (FLOAT, HALF, DOUBLE) or new:
                continue
            node.output[i] = f"{name}/exact"
            noise = NOISE[helper.tensor_dtype_to_np_dtype(kind)]
            how = {
                "mean": 1.0,
                "scale": noise,
                "dtype": FLOAT,
                "seed": float(rng.integers(1 << 20)),
            }
            make = Names(name)
            factor = make("Cast", make("RandomNormalLike", node.output[i], **how), to=kind)
            make("Mul", node.output[i], factor, out=name)
            after += make.nodes
        out.graph.node.extend([node, *after])
    return out


def before_rounding(node, graph, rng):
    """Adds a part of a step to what a QuantizeLinear rounds: a quantized product may have its bias
    in steps of its sums, where that moves it by less than BIAS_ERROR.
    """
    make, most = Names(f"{node.output[0]}/bias"), 4 * BIAS_ERROR
    how = {"low": -most, "high": most, "dtype": FLOAT, "seed": float(rng.integers(1 << 20))}
    part = make("Mul", make("RandomUniformLike", node.input[0], **how), node.input[1])
    node.input[0] = make("Add", node.input[0], part)
    graph.node.extend(make.nodes)


def widened(model):
    """The model with float32 instead of float16; None if it has no float16."""

    def wide(graph):
        found = False
        for v in (*graph.input, *graph.output, *graph.value_info):
            kind = v.type.tensor_type
            found |= kind.elem_type == HALF
            kind.elem_type = FLOAT if kind.elem_type == HALF else kind.elem_type
        for t in graph.initializer:
            widen(t)
        for node in graph.node:
            for a in node.attribute:
                if a.name == "to" and a.i == HALF:
                    a.i = FLOAT
                if a.HasField("t"):
                    widen(a.t)
                if a.HasField("g"):
                    wide(a.g)
        return found

    def widen(t):
        if t.data_type == HALF:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype("f4"), t.name))

    out = onnx.ModelProto()
    out.CopyFrom(model)
    return out if wide(out.graph) else None


def spread(model, run, outputs):
    """How far each element of the outputs moves if inputs, weights and the nodes' results change by
    rounding errors, and, for float16, if all is computed in float32.

    Returns arrays of float64; infinity where a result is not a number.
    """
    others = []
    for k in range(TRIES):
        rng = np.random.default_rng(k)
        feeds = {name: changed(x, rng) for name, x in run.feeds.items()}
        others.append((inexact(model, rng), run._replace(feeds=feeds)))
    if (wide := widened(model)) is not None:
        half = np.dtype(np.float16)
        feeds = {k: x.astype("f4") if x.dtype == half else x for k, x in run.feeds.items()}
        others.append((wide, run._replace(feeds=feeds)))
    out = [np.zeros(x.shape) for x in outputs]
    for other, again in others:
        for i, (x, y) in enumerate(zip(outputs, Reference(other).run(again))):
            if x.shape != y.shape:
                out[i][...] = np.inf
                continue
            with np.errstate(invalid="ignore"):
                moved = np.abs(x.astype(np.float64) - y.astype(np.float64))
            out[i] = np.maximum(out[i], np.nan_to_num(moved, nan=np.inf))
    return out
