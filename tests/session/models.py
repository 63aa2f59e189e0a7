"""Small models for the tests of threads, limits and direct runs, as bytes of ONNX files."""

import numpy as np
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

F, I, B, S = T.FLOAT, T.INT64, T.BOOL, T.STRING
R = np.random.default_rng(11)


def value(name, kind=F, shape=("n",)):
    return h.make_tensor_value_info(name, kind, shape)


def constant(name, x):
    return numpy_helper.from_array(np.asarray(x), name)


def node(op, inputs, outputs, **attrs):
    return h.make_node(
        op,
        inputs.split(" ") if inputs else [],
        outputs.split(" "),
        name=f"the_{outputs.split(' ')[0]}",
        **attrs,
    )


def model(nodes, inputs, outputs, constants=(), opset=20):
    graph = h.make_graph(list(nodes), "g", list(inputs), list(outputs), list(constants))
    return h.make_model(
        graph, opset_imports=[h.make_opsetid("", opset)], ir_version=9
    ).SerializeToString()


def normal(*shape):
    return R.standard_normal(shape).astype("f4")


def perceptron():
    """(model, feeds): three layers."""
    nodes = [
        node("Gemm", "x w0 b0", "a"),
        node("Relu", "a", "b"),
        node("Gemm", "b w1 b1", "c"),
        node("Tanh", "c", "d"),
        node("Gemm", "d w2 b2", "y"),
    ]
    weights = [
        constant(n, normal(*s) / 8)
        for n, s in (
            ("w0", (64, 48)),
            ("b0", (48,)),
            ("w1", (48, 32)),
            ("b1", (32,)),
            ("w2", (32, 8)),
            ("b2", (8,)),
        )
    ]
    return model(
        nodes, [value("x", F, ("n", 64))], [value("y", F, ("n", 8))], weights
    ), lambda rows=3: {"x": normal(rows, 64)}


def voice_detector():
    """(model, feeds): an LSTM in each branch of an If on a feed, as voice activity detectors have
    it.
    """

    def branch(k):
        nodes = [
            node("Transpose", "frames", f"t{k}", perm=[1, 0, 2]),
            node("LSTM", f"t{k} W{k} R{k} B{k}  h c", f"all{k} hn{k} cn{k}", hidden_size=16),
            node("Squeeze", f"hn{k} axis", f"s{k}"),
            node("Gemm", f"s{k} o{k}", f"g{k}"),
            node("Sigmoid", f"g{k}", f"p{k}"),
        ]
        weights = [
            constant(n, normal(*s) / 4)
            for n, s in (
                (f"W{k}", (1, 64, 12)),
                (f"R{k}", (1, 64, 16)),
                (f"B{k}", (1, 128)),
                (f"o{k}", (16, 1)),
            )
        ]
        return h.make_graph(
            nodes,
            "branch",
            [],
            [value(f"p{k}", F, None), value(f"hn{k}", F, None), value(f"cn{k}", F, None)],
            weights,
        )

    nodes = [
        node("Equal", "sr rate", "wide"),
        node("Reshape", "x shape", "frames"),
        node("If", "wide", "p hn cn", then_branch=branch(0), else_branch=branch(1)),
    ]
    state = (1, 1, 16)
    data = model(
        nodes,
        [value("x", F, (1, 96)), value("sr", I, ()), value("h", F, state), value("c", F, state)],
        [value("p", F, None), value("hn", F, state), value("cn", F, state)],
        [
            constant("rate", np.int64(16000)),
            constant("shape", np.array([1, 8, 12])),
            constant("axis", np.array([0])),
        ],
    )
    return data, lambda rate=16000: {
        "x": normal(1, 96),
        "sr": np.array(rate),
        "h": normal(*state),
        "c": normal(*state),
    }


def body(nodes, state=("s", "so"), scanned=()):
    """The body of a Loop that runs until it is stopped."""
    return h.make_graph(
        [node("Identity", "go", "go_on"), *nodes],
        "body",
        [value("i", I, ()), value("go", B, ()), value(state[0], F, None)],
        [value("go_on", B, ()), value(state[1], F, None), *(value(s, F, None) for s in scanned)],
    )


def loop(nodes, trips, state=("s", "so"), scanned=(), constants=()):
    outputs = "y" + "".join(f" z_{s}" for s in scanned)
    return model(
        [node("Loop", "trips  x", outputs, body=body(nodes, state, scanned))],
        [value("x", F, None)],
        [value(o, F, None) for o in outputs.split(" ")],
        [constant("trips", np.int64(trips)), *constants],
    )


def beats():
    """(model, feeds) of a loop with a body of one plan."""
    return loop(
        [node("Mul", "s half", "m"), node("Add", "m one", "so")],
        20,
        constants=[constant("half", np.float32(0.5)), constant("one", np.float32(1))],
    ), lambda rows=5: {"x": normal(rows)}


def endless_step():
    """(model, feeds): one step of some minutes."""
    pool = node("AveragePool", "x", "y", kernel_shape=[10000, 1000], pads=[9999, 999] * 2)
    return model([pool], [value("x", F, (1, 1, 10000, 1000))], [value("y", F, None)]), lambda: {
        "x": np.ones((1, 1, 10000, 1000), "f4")
    }
