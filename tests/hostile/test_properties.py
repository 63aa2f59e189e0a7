"""Random single nodes: any ONNX operator with inputs of any type, rank and size (absent or empty
too), indices and values out of range, and attributes that are missing, extreme or of another type.

The result is an EdgewiseError that names the node, or outputs with the shapes of ONNX's own shape
inference.
"""

import edgewise
import numpy as np
import onnx
import pytest
from edgewise.compiler.ops import OPS
from edgewise.errors import EdgewiseError
from edgewise.onnx import BytesSource
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from onnx import AttributeProto as A
from onnx import helper, printer
from tiers import ALL

OPSETS = {"": 23, "ai.onnx.ml": 5, "ai.onnx.preview.training": 1, "com.microsoft": 1}
TYPES = [
    np.float32,
    np.float32,
    np.float32,
    np.int64,
    np.int64,
    np.int32,
    np.bool_,
    np.uint8,
    np.int8,
    np.float16,
    np.float64,
    np.uint16,
]
SIZES = st.sampled_from([0, 1, 1, 2, 2, 3, 4, 5, 8])
INTS = st.one_of(
    st.integers(-4, 9),
    st.sampled_from([0, 1, -1, 127, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63), 1 << 40]),
)
FLOATS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-5, 1e30, -1e30, float("inf"), float("nan")])
WORDS = st.sampled_from(
    [
        "",
        "x",
        "linear",
        "nearest",
        "constant",
        "NOTSET",
        "SAME_UPPER",
        "VALID",
        "none",
        "add",
        "\0",
        "é" * 30,
    ]
)
KINDS = {
    A.INT: INTS,
    A.FLOAT: FLOATS,
    A.STRING: WORDS,
    A.INTS: st.lists(INTS, max_size=8),
    A.FLOATS: st.lists(FLOATS, max_size=5),
    A.STRINGS: st.lists(WORDS, max_size=4),
}


def operators():
    out = []
    for domain, name in sorted(OPS):
        schema = (
            onnx.defs.get_schema(name, OPSETS[domain], domain)
            if domain in OPSETS and onnx.defs.has(name, OPSETS[domain], domain)
            else None
        )
        if schema is not None and not any(
            a.type in (A.GRAPH, A.GRAPHS) for a in schema.attributes.values()
        ):
            out.append(schema)
    return out


@st.composite
def array(draw):
    dtype = np.dtype(draw(st.sampled_from(TYPES)))
    shape = draw(
        st.one_of(st.lists(SIZES, max_size=4), st.just([1, 2, 5, 5]), st.just([2, 3]), st.just([]))
    )
    if dtype.kind == "f":
        x = np.random.default_rng(draw(st.integers(0, 1 << 16))).standard_normal(shape)
        if x.size and draw(st.integers(0, 7)) == 0:
            x.flat[0] = draw(FLOATS)
        with np.errstate(over="ignore"):
            return np.asarray(x).astype(dtype)
    numbers = draw(
        st.lists(INTS if draw(st.booleans()) else st.integers(0, 3), min_size=1, max_size=6)
    )
    x = np.resize(
        np.array([n & ((1 << 64) - 1) for n in numbers], np.uint64), int(np.prod(shape))
    ).reshape(shape)
    return (x & 1).astype(bool) if dtype.kind == "b" else x.astype(dtype)  # values wrap around


@st.composite
def node(draw, schema):
    """Returns (ModelProto, feeds)."""
    count = draw(
        st.integers(max(0, schema.min_input - 1), min(schema.max_input, schema.min_input + 2))
    )
    names, feeds, constants = [], {}, []
    for i in range(count):
        if draw(st.integers(0, 9)) == 0:
            names.append("")
            continue
        x, name = draw(array()), f"x{i}"
        names.append(name)
        if draw(st.booleans()):
            constants.append(onnx.numpy_helper.from_array(x, name))
        else:
            feeds[name] = x
    attrs = {}
    for a in schema.attributes.values():
        how = draw(st.integers(0, 9))
        if how < (1 if a.required else 6):
            continue
        kind = a.type if how < 9 else draw(st.sampled_from(sorted(KINDS)))
        if kind in KINDS:
            attrs[a.name] = kind, draw(KINDS[kind])
    outputs = [f"y{i}" for i in range(draw(st.integers(1, max(1, min(schema.max_output, 4)))))]
    made = onnx.NodeProto(
        op_type=schema.name, input=names, output=outputs, domain=schema.domain, name="the node"
    )
    for name, (kind, value) in attrs.items():
        made.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    graph = helper.make_graph(
        [made],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in feeds.items()
        ],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        constants,
    )
    return (
        helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(d, v) for d, v in OPSETS.items()],
            ir_version=10,
        ),
        feeds,
    )


@pytest.mark.parametrize("schema", operators(), ids=lambda s: f"{s.domain}.{s.name}".lstrip("."))
def test_any_node(schema, refused):
    @settings(
        max_examples=30 if ALL else 12,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )
    @given(st.data())
    def check(data):
        model, feeds = data.draw(node(schema))
        session = None
        try:
            session = edgewise.InferenceSession(BytesSource(model.SerializeToString()))
            got = session.run(None, feeds)
        except EdgewiseError as e:
            assert e.what and e.where and e.remedy and len(str(e)) < 1500, repr(e)
            return
        finally:
            if session is not None:
                session.free()
        try:
            inferred = {
                o.name: o.type.tensor_type
                for o in onnx.shape_inference.infer_shapes(
                    model, strict_mode=True, data_prop=True
                ).graph.output
            }
        except Exception:  # noqa: BLE001 - ONNX refuses or does not implement the node
            return
        for name, g in zip([o.name for o in model.graph.output], got):
            t = inferred[name]
            if not isinstance(g, (np.ndarray, edgewise.Array)) or not t.elem_type:
                continue
            if t.HasField("shape"):
                want = [d.dim_value if d.HasField("dim_value") else None for d in t.shape.dim]
                assert len(want) == len(g.shape) and all(
                    w is None or w == d for w, d in zip(want, g.shape)
                ), f"{name} is {list(g.shape)}, ONNX says {want}: {printer.to_text(model)}"

    check()
