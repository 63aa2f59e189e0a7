"""What a graph gives: onnxruntime without its optimizations, and with exact products of bytes.

onnxruntime adds products of bytes in 16 bits on processors with AVX2 and without VNNI, where they
saturate. Therefore `exact` writes these products with int32 and float64 for it.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from edgewise.passes.integer_bias import BIAS_ERROR
from onnx import TensorProto, helper, numpy_helper

DOUBLE, INT32 = TensorProto.DOUBLE, TensorProto.INT32
FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
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
            exact(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def run(self, run):
        """The outputs of a Run."""
        return self.session.run(run.names, run.feeds)


def exact(model):
    """The model with products of bytes in int32 and float64."""
    if not any(node.op_type in EXACT for node in model.graph.node):
        return model
    out = onnx.ModelProto()
    out.CopyFrom(model)
    del out.graph.node[:]
    for node in model.graph.node:
        if node.op_type in EXACT:
            out.graph.node.extend(EXACT[node.op_type](node, Names(node.output[0])))
        else:
            out.graph.node.append(node)
    return out


class Names:
    """Makes nodes whose outputs have names of their own."""

    def __init__(self, stem):
        self.stem, self.nodes = stem, []

    def __call__(self, op, *inputs, out=None, **attrs):
        out = out or f"{self.stem}/{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [out], **attrs))
        return out

    def number(self, value, dtype):
        value = numpy_helper.from_array(np.array(value, dtype))
        return self("Constant", value=value)

    def centered(self, x, zero, columns=None):
        """x - zero as float64. columns: the shape of a zero for each channel."""
        x = self("Cast", x, to=DOUBLE)
        if not zero:
            return x
        zero = self("Cast", zero, to=DOUBLE)
        if columns:
            zero = self("Reshape", zero, self.number(columns, np.int64))
        return self("Sub", x, zero)


def attributes(node):
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def given(node, i):
    return node.input[i] if i < len(node.input) else ""


def _mat_mul_integer(node, make):
    a, b = (make.centered(node.input[i], given(node, i + 2)) for i in (0, 1))
    make("Cast", make("MatMul", a, b), out=node.output[0], to=INT32)
    return make.nodes


def _convolved(node, make, x, w):
    """A convolution of integers below 2^24, which float32 adds without an error."""
    x, w = (make("Cast", v, to=FLOAT) for v in (x, w))
    return make("Cast", make("Conv", x, w, **attributes(node)), to=DOUBLE)


def _conv_integer(node, make):
    x, w = (make.centered(node.input[i], given(node, i + 2)) for i in (0, 1))
    make("Cast", _convolved(node, make, x, w), out=node.output[0], to=INT32)
    return make.nodes


def _requantized(make, y, scales, zero, out):
    """y * a * b / c rounded to the type of `zero`. scales: (a, b, c, shape of b or None)."""
    a, b, c, shape = scales
    b = make("Reshape", b, make.number(shape, np.int64)) if shape else b
    factor = make("Div", make("Mul", a, b), c)  # float32, as it is in onnxruntime
    y = make("Round", make("Mul", make("Cast", y, to=FLOAT), factor))
    one = make.number(1, np.float32)
    make("QuantizeLinear", y, one, zero, out=out)
    return make.nodes


def _q_linear_mat_mul(node, make):
    a, sa, za, b, sb, zb, sy, zy = node.input
    y = make("MatMul", make.centered(a, za), make.centered(b, zb))
    return _requantized(make, y, (sa, sb, sy, None), zy, node.output[0])


def _q_linear_conv(node, make):
    x, sx, zx, w, sw, zw, sy, zy = node.input[:8]
    rank = len(attributes(node)["kernel_shape"])
    y = _convolved(node, make, make.centered(x, zx), make.centered(w, zw, [-1, *[1] * (rank + 1)]))
    shape = [1, -1, *[1] * rank]
    if given(node, 8):
        bias = make("Cast", node.input[8], to=DOUBLE)
        y = make("Add", y, make("Reshape", bias, make.number(shape, np.int64)))
    return _requantized(make, y, (sx, sw, sy, shape), zy, node.output[0])


EXACT = {
    "MatMulInteger": _mat_mul_integer,
    "ConvInteger": _conv_integer,
    "QLinearMatMul": _q_linear_mat_mul,
    "QLinearConv": _q_linear_conv,
}


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
