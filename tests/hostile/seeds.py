"""Small models for mutation that cover all parts of the reader, the binder and the lowering:
[(name, bytes, {external file: bytes})].
"""

import functools
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

ROOT = Path(__file__).parents[1]
F, I = T.FLOAT, T.INT64
MS = "com.microsoft"
rng = np.random.default_rng(0)


def c(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def i64(name, *values):
    return c(name, values, np.int64)


def node(op, inputs, outputs, **attrs):
    return h.make_node(op, inputs.split(), outputs.split(), **attrs)


def value(name, kind=F, shape=("b", 4)):
    return h.make_tensor_value_info(name, kind, None if shape is None else list(shape))


def model(nodes, inputs, outputs, constants=(), opset=18, functions=()):
    g = h.make_graph(list(nodes), "g", list(inputs), list(outputs), list(constants))
    opsets = [h.make_opsetid("", opset), h.make_opsetid(MS, 1)] + (
        [h.make_opsetid("local", 1)] if functions else []
    )
    m = h.make_model(g, opset_imports=opsets, functions=list(functions))
    m.ir_version = 9
    return m.SerializeToString()


def _rand(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def _movement():
    nodes = [
        node("Reshape", "x shape", "r"),
        node("Transpose", "r", "t", perm=[1, 0, 2]),
        node("Slice", "t starts ends axes steps", "s"),
        node("Concat", "s s", "k", axis=-1),
        node("Unsqueeze", "k one", "u"),
        node("Squeeze", "u one", "q"),
        node("Split", "q", "p1 p2", axis=2, num_outputs=2),
        node("Expand", "p1 wide", "e"),
        node("Tile", "p2 reps", "w"),
        node("Pad", "w pads zero", "pd"),
        node("Gather", "pd idx", "g", axis=1),
        node("Flatten", "g", "f", axis=1),
        node("Identity", "e", "y2"),
        node("Trilu", "f", "y"),
    ]
    return model(
        nodes,
        [value("x", F, ("b", 6))],
        [value("y", F, None), value("y2", F, None)],
        [
            i64("shape", 0, 2, 3),
            i64("starts", 0),
            i64("ends", 2**62),
            i64("axes", 2),
            i64("steps", 2),
            i64("one", 1),
            i64("wide", 3, 2, 1, 1),
            i64("reps", 1, 2, 2),
            i64("pads", 0, 1, 0, 0, 1, 0),
            c("zero", 0.5),
            i64("idx", 0, -1, 1),
        ],
    )


def _indices():
    nodes = [
        node("GatherElements", "x ge", "a", axis=1),
        node("GatherND", "a nd", "b"),
        node("ScatterND", "x sc up", "d"),
        node("TopK", "d k", "v i", axis=-1),
        node("ArgMax", "d", "m", axis=1, keepdims=0),
        node("CumSum", "v ax", "cs"),
        node("Cast", "m", "mf", to=T.FLOAT),
        node("Range", "r0 r1 r2", "rg"),
        node("Add", "cs rg", "y1"),
        node("Add", "b mf", "y2"),
    ]
    return model(
        nodes,
        [value("x", F, (2, 4))],
        [value("y1", F, None), value("y2", F, None), value("i", I, None)],
        [
            i64("nd", [0, 1], [1, -1]),
            c("up", [[9.0, 8, 7, 6]]),
            i64("sc", [1]),
            i64("k", 2),
            c("ax", 1, np.int64),
            c("ge", [[0, 1, -1], [3, 2, 0]], np.int64),
            c("r0", 0.0),
            c("r1", 2.0),
            c("r2", 1.0),
        ],
    )


def _shapes():
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Unsqueeze", "n axes", "n1"),
        node("Concat", "n1 four", "c", axis=0),
        node("ConstantOfShape", "c", "k", value=c("v", [2.0])),
        node("Mul", "x k", "m"),
        node("Size", "m", "z"),
        node("Cast", "z", "zf", to=T.FLOAT),
        node("Div", "m zf", "d"),
        node("Range", "i0 n i1", "r"),
        node("Cast", "r", "rf", to=T.FLOAT),
        node("Equal", "c four", "e"),
        node("Where", "e four c", "wh"),
        node("Reshape", "d wh", "dr"),
        node("Unsqueeze", "rf axes2", "ru"),
        node("Add", "dr ru", "y"),
    ]
    return model(
        nodes,
        [value("x")],
        [value("y", F, None)],
        [
            c("zero", 0, np.int64),
            i64("axes", 0),
            i64("four", 4),
            c("i0", 0, np.int64),
            c("i1", 1, np.int64),
            i64("axes2", 1),
        ],
    )


def _if():
    then = h.make_graph(
        [node("Add", "x one", "t")], "then", [], [value("t", F, None)], [c("one", 1.0)]
    )
    other = h.make_graph(
        [node("Constant", "", "two", value=c("two", [2.0, 3, 4, 5])), node("Mul", "x two", "o")],
        "else",
        [],
        [value("o", F, None)],
    )
    nodes = [
        node("ReduceSum", "x", "s", keepdims=0),
        node("Greater", "s zero", "c"),
        node("If", "c", "r", then_branch=then, else_branch=other),
        node("If", "flag", "q", then_branch=then, else_branch=other),
        node("Add", "r q", "y"),
    ]
    return model(
        nodes, [value("x"), value("flag", T.BOOL, (1,))], [value("y", F, None)], [c("zero", 0.0)]
    )


def _function():
    scale = h.make_node("Constant", [], ["k"])
    a = scale.attribute.add()
    a.name, a.ref_attr_name, a.type = "value_float", "alpha", onnx.AttributeProto.FLOAT
    f = h.make_function(
        "local",
        "Twice",
        ["a"],
        ["b"],
        [scale, node("Mul", "a k", "m"), node("Relu", "m", "b")],
        [h.make_opsetid("", 18)],
        ["alpha"],
    )
    g = h.make_function(
        "local",
        "Both",
        ["a"],
        ["b"],
        [
            h.make_node("Twice", ["a"], ["h"], domain="local", alpha=3.0),
            h.make_node("Twice", ["h"], ["b"], domain="local", alpha=0.5),
        ],
        [h.make_opsetid("", 18), h.make_opsetid("local", 1)],
    )
    return model(
        [h.make_node("Both", ["x"], ["y"], domain="local")],
        [value("x")],
        [value("y", F, None)],
        functions=[f, g],
    )


def _dense(opset=18):
    nodes = [
        node("MatMul", "x w", "a"),
        node("Add", "a bias", "h"),
        node("LayerNormalization", "h g bt", "l", axis=-1, epsilon=1e-5),
        node("Gelu", "l", "ge") if opset >= 20 else node("Erf", "l", "ge"),
        node("Gemm", "ge w2 c2", "gm", transB=1, alpha=0.5, beta=2.0),
        node("Softmax", "gm", "s", axis=-1),
        (
            node("ReduceMean", "s axes", "m", keepdims=1)
            if opset >= 18
            else node("ReduceMean", "s", "m", axes=[-1])
        ),
        node("Sub", "s m", "d"),
        node("Pow", "d two", "p"),
        node("Sqrt", "p", "q"),
        node("Clip", "q lo hi", "cl"),
        node("Where", "mask cl gm", "y"),
    ]
    return model(
        nodes,
        [value("x"), value("mask", T.BOOL, ("b", 3))],
        [value("y", F, None)],
        [
            c("w", _rand(4, 8)),
            c("bias", _rand(8)),
            c("g", _rand(8)),
            c("bt", _rand(8)),
            c("w2", _rand(3, 8)),
            c("c2", _rand(3)),
            i64("axes", -1),
            c("two", 2.0),
            c("lo", 0.1),
            c("hi", 0.9),
        ],
        opset,
    )


def _quantized():
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("MatMulInteger", "q w z wz", "i"),
        node("Cast", "i", "f", to=T.FLOAT),
        node("Mul", "s ws", "sw"),
        node("Mul", "f sw", "y1"),
        node("DequantizeLinear", "w dws dwz", "dw", axis=1),
        node("MatMul", "x dw", "y2"),
        node("QuantizeLinear", "y2 qs qz", "y3"),
        h.make_node(
            "MatMulNBits",
            ["x16", "nb", "nbs", "nbz"],
            ["y4"],
            domain=MS,
            K=16,
            N=3,
            bits=4,
            block_size=16,
        ),
        node("Concat", "x x x x", "x16", axis=1),
    ]
    nodes = nodes[:7] + nodes[7:8] + [nodes[9], nodes[8]]
    return model(
        nodes,
        [value("x")],
        [
            value("y1", F, None),
            value("y2", F, None),
            value("y3", T.UINT8, None),
            value("y4", F, None),
        ],
        [
            c("w", rng.integers(0, 255, (4, 5)), np.uint8),
            c("wz", 120, np.uint8),
            c("ws", 0.02),
            c("dws", _rand(5) ** 2 + 0.01),
            c("dwz", [1, 2, 3, 4, 5], np.uint8),
            c("qs", 0.1),
            c("qz", 128, np.uint8),
            c("nb", rng.integers(0, 255, (3, 1, 8)), np.uint8),
            c("nbs", _rand(3) ** 2),
            c("nbz", [[8], [7], [1]], np.uint8),
        ],
    )


def _attention():
    nodes = [
        node("MatMul", "x wq", "q0"),
        node("Reshape", "q0 sh", "q1"),
        node("Transpose", "q1", "q", perm=[0, 2, 1, 3]),
        node("Transpose", "q1", "k", perm=[0, 2, 3, 1]),
        node("MatMul", "q k", "s0"),
        node("Mul", "s0 sc", "s1"),
        node("Add", "s1 mask", "s2"),
        node("Softmax", "s2", "p", axis=-1),
        node("MatMul", "p q", "o0"),
        node("Transpose", "o0", "o1", perm=[0, 2, 1, 3]),
        node("Reshape", "o1 back", "y"),
    ]
    return model(
        nodes,
        [value("x", F, ("b", "s", 8)), value("mask", F, ("b", 1, 1, "s"))],
        [value("y", F, None)],
        [c("wq", _rand(8, 8)), i64("sh", 0, -1, 2, 4), c("sc", 0.5), i64("back", 0, -1, 8)],
    )


def _contrib():
    nodes = [
        h.make_node(
            "SkipLayerNormalization", ["x", "x", "g", "bt"], ["a"], domain=MS, epsilon=1e-5
        ),
        h.make_node("FastGelu", ["a", "bt"], ["f"], domain=MS),
        h.make_node("BiasGelu", ["f", "bt"], ["bg"], domain=MS),
        h.make_node("QuickGelu", ["bg"], ["qg"], domain=MS, alpha=1.7),
        h.make_node("FusedMatMul", ["qg", "qg"], ["fm"], domain=MS, transB=1, alpha=0.3),
        h.make_node(
            "GroupQueryAttention",
            ["x", "kv", "kv", "", "", "lens", "total"],
            ["y", "pk", "pv"],
            domain=MS,
            num_heads=2,
            kv_num_heads=1,
            scale=0.7,
        ),
    ]
    return model(
        nodes,
        [
            value("x", F, (1, "s", 16)),
            value("kv", F, (1, "s", 8)),
            value("lens", T.INT32, (1,)),
            value("total", T.INT32, ()),
        ],
        [value("fm", F, None), value("y", F, None)],
        [c("g", _rand(16)), c("bt", _rand(16))],
    )


def _types():
    t = [T.FLOAT, T.UINT8, T.INT8, T.INT32, T.INT64, T.BOOL, T.FLOAT16, T.DOUBLE]
    nodes = (
        [node("Abs", "x", "ax")]
        + [node("Cast", "ax", f"c{k}", to=k) for k in t]
        + [node("Cast", f"c{k}", f"y{k}", to=T.FLOAT) for k in t]
        + [
            node("Sum", " ".join(f"y{k}" for k in t), "y"),
            node("Mod", "c6 c6b", "m"),
            node("Max", "c6 c6b", "mx"),
        ]
    )
    return model(
        nodes,
        [value("x")],
        [value("y", F, None), value("m", T.INT32, None), value("mx", T.INT32, None)],
        [c("c6b", [3, -2, 5, 7], np.int32)],
    )


def _external():
    w = _rand(8, 8)
    t = c("w", w)
    t.ClearField("raw_data")
    t.data_location = T.EXTERNAL
    for k, v in (("location", "weights.bin"), ("offset", "64"), ("length", str(w.nbytes))):
        e = t.external_data.add()
        e.key, e.value = k, v
    return model(
        [node("MatMul", "x w", "y")], [value("x", F, ("b", 8))], [value("y", F, None)], [t]
    ), {"weights.bin": bytes(64) + w.tobytes()}


def _typed():
    w = h.make_tensor("w", F, [2, 4], [float(x) for x in range(8)])
    return model(
        [node("Mul", "x w", "a"), node("Gather", "a i", "y")],
        [value("x", F, (2, 4))],
        [value("y", F, None)],
        [w, h.make_tensor("i", I, [2], [1, 0])],
    )


def _loops():
    body = h.make_graph(
        [
            node("Add", "s w", "t"),
            node("SequenceInsert", "q t", "q2"),
            node("NonZero", "t", "nz"),
            node("Shape", "nz", "k"),
            node("Less", "i limit", "more"),
        ],
        "body",
        [
            value("i", I, ()),
            value("go", T.BOOL, ()),
            value("s"),
            h.make_tensor_sequence_value_info("q", F, None),
        ],
        [
            value("more", T.BOOL, ()),
            value("t"),
            h.make_tensor_sequence_value_info("q2", F, None),
            value("k", I, None),
        ],
    )
    step = h.make_graph(
        [node("Mul", "a b", "a2"), node("Identity", "a2", "o")],
        "step",
        [value("a", F, (4,)), value("b", F, (4,))],
        [value("a2", F, (4,)), value("o", F, (4,))],
    )
    nodes = [
        node("SequenceEmpty", "", "q0"),
        h.make_node("Loop", ["trips", "", "x", "q0"], ["y", "qs", "ks"], body=body),
        node("ConcatFromSequence", "qs", "z0", axis=0),
        h.make_node("Scan", ["one", "z0"], ["last", "z"], body=step, num_scan_inputs=1),
        node("Compress", "z keep", "kept", axis=1),
        node("Unique", "ks", "u"),
        node("SequenceAt", "qs at", "first"),
    ]
    return model(
        nodes,
        [value("x")],
        [value("z", F, None), value("kept", F, None), value("u", I, None), value("first", F, None)],
        [
            c("trips", 3, np.int64),
            c("w", [1, 0, -1, 2]),
            c("limit", 5, np.int64),
            c("one", [1, 1, 1, 1]),
            c("keep", [1, 0, 1], np.bool_),
            c("at", -1, np.int64),
        ],
    )


@functools.cache
def small():
    """Models built here: {name: (bytes, siblings)}."""
    out = {
        name: (make(), {})
        for name, make in (
            ("movement", _movement),
            ("indices", _indices),
            ("shapes", _shapes),
            ("if", _if),
            ("function", _function),
            ("dense18", _dense),
            ("dense13", lambda: _dense(13)),
            ("dense20", lambda: _dense(20)),
            ("quantized", _quantized),
            ("attention", _attention),
            ("contrib", _contrib),
            ("types", _types),
            ("typed", _typed),
            ("loops", _loops),
        )
    }
    out["external"] = _external()
    return out


@functools.cache
def real():
    """The exports in tests/zoo/models."""
    out = {}
    for path in sorted((ROOT / "zoo" / "models").rglob("*.onnx")):
        data = path.with_name(path.name + ".data")
        out[path.parent.name] = (
            path.read_bytes(),
            {data.name: data.read_bytes()} if data.exists() else {},
        )
    return out


@functools.cache
def suite():
    """Models of ONNX's backend tests: one for each operator and number of inputs."""
    import warnings

    from onnx.backend.test.loader import load_model_tests

    out = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in load_model_tests(kind="node"):
            ops = " ".join(n.op_type for n in case.model.graph.node)
            key = ops[:200], len(case.model.graph.input), len(case.model.graph.output)
            if key not in out and case.model.ByteSize() < 20000:
                out[key] = case.name, case.model.SerializeToString()
    return {name: (data, {}) for name, data in out.values()}
