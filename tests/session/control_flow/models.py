"""Models, and comparison with onnxruntime and the page, for the tests of control flow."""

import edgewise
import numpy as np
import onnxruntime
from engines.page_session import PageSession
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

F, I, B, S = T.FLOAT, T.INT64, T.BOOL, T.STRING


R = np.random.default_rng(4)


def value(name, kind=F, shape=None):
    return (
        h.make_tensor_value_info(name, kind, shape)
        if isinstance(kind, int)
        else h.make_value_info(name, kind)
    )


def seq(kind=F):
    return h.make_sequence_type_proto(h.make_tensor_type_proto(kind, None))


def c(name, x, dtype=None):
    return numpy_helper.from_array(
        np.asarray(x, dtype if dtype is not None else np.float32 if isinstance(x, float) else None),
        name,
    )


def n(op, inputs, outputs, **attrs):
    return h.make_node(
        op,
        inputs.split(" ") if inputs else [],
        outputs.split(" "),
        name=f"the_{outputs.split(' ')[0]}",
        **attrs,
    )


def graph(nodes, inputs=(), outputs=(), constants=(), name="body"):
    return h.make_graph(nodes, name, list(inputs), list(outputs), list(constants))


def model(nodes, inputs, outputs, constants=(), opset=17, functions=(), ml=None):
    imports = (
        [h.make_opsetid("", opset)]
        + ([h.make_opsetid("ai.onnx.ml", ml)] if ml else [])
        + ([h.make_opsetid("local", 1)] if functions else [])
    )
    return h.make_model(
        graph(nodes, inputs, outputs, constants, "g"),
        opset_imports=imports,
        ir_version=8,
        functions=list(functions),
    ).SerializeToString()


def same(got, want, rtol=1e-5):
    if want is None or isinstance(want, (dict, str)):
        assert got == want
    elif isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want)
        for g, w in zip(got, want):
            same(g, w)
    else:
        want = np.asarray(want)
        assert got.shape == want.shape and (got.dtype == want.dtype), (
            got.dtype,
            got.shape,
            want.dtype,
            want.shape,
        )
        (
            np.testing.assert_array_equal(got, want)
            if want.dtype.kind not in "f"
            else np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-6)
        )


def check(data, *feeds, engine=None, reference="ort"):
    """Runs it on each set of feeds, twice, here and as pages do, and compares with onnxruntime (or
    ONNX's reference). Returns the last outputs.
    """
    other = (
        onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        if reference == "ort"
        else ReferenceEvaluator(data)
    )
    wants = [list(other.run(None, f)) for f in feeds]
    session = edgewise.InferenceSession(data, engine=engine)
    try:
        for f, want in [*zip(feeds, wants)] * 2:
            got = session.run(None, f)
            same(got, want)
    finally:
        session.free()
    check_page(data, feeds, wants)
    return got


def check_page(data, feeds, wants):
    """A page's session: one that compiles, and one of the next visit, which has all plans without
    Python. Only what Python alone can run is asked of it.
    """
    for visit in (1, 2):
        session = PageSession(data, cache=True)
        for f, want in [*zip(feeds, wants)] * 2:
            same(session.run(None, f), want)
            assert session.used == 0, "all engine memory of a run is given back"
        asked = [what for what in session.asked if what != "node"]
        assert visit == 1 or not asked or "node" in session.asked and asked == ["open"], asked


LOOP_IN = [value("i", I, []), value("go", B, [])]
SCALAR = value("M", I, [])


def counting(nodes, states, scans=(), constants=(), level=""):
    """A loop body: states as [(name in, name out, type, shape)]."""
    return graph(
        [*nodes, n("Identity", "go" + level, "go_on" + level)],
        [
            value("i" + level, I, []),
            value("go" + level, B, []),
            *[value(a, t, s) for a, _, t, s in states],
        ],
        [value("go_on" + level, B, []), *[value(b, t, s) for _, b, t, s in states], *scans],
        constants,
    )


def forever(state="s", out="t", nodes=None):
    body = counting(nodes or [n("Identity", "s", "t")], [(state, out, F, None)])
    return model([n("Loop", "  x", "y", body=body)], [value("x", F, None)], [value("y")])
