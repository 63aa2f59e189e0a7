"""Models written back: untouched ones byte for byte, changed ones as onnx's checker and onnxruntime
take them.
"""

import io
import shutil

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from edgewise.compiler.onnx import BytesSource, ModelEditor, editor, read_model
from edgewise.errors import InputError, ModelError
from edgewise.ir import Info, Node, Tensor
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper
from zoo.zoo import OWN, folder

SOME = [
    "optimum_gpt2_merged_op14",
    "dynamo_llama_smollm2_op24",
    "hf5_llama",
    "genai_phi3_int4_webgpu",
    "genai_llama_fp16_webgpu",
    "int8_llama",
    "qdq_resnet",
    "bnb4_minilm",
    "dynamo_lstm_op23",
    "ortopt_gpt2",
    "q4gather_llama",
    "train/cnn_bn_ce_adamw",
    "train/nanogpt_dynamo18_ce_adamw",
]


def models():
    zoo = folder()
    return sorted(OWN.rglob("*.onnx")) + [
        p for name in SOME if zoo for p in sorted((zoo / name).glob("*.onnx"))
    ]


def run(path, feeds, **options):
    o = ort.SessionOptions()
    o.log_severity_level = 3
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(path), o, providers=["CPUExecutionProvider"]).run(None, feeds)


def same(a, b):
    assert len(a) == len(b) and all(
        x.dtype == y.dtype and np.array_equal(x, y, equal_nan=x.dtype.kind == "f")
        for x, y in zip(a, b)
    )


@pytest.mark.parametrize("path", models(), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_unchanged(path, tmp_path):
    """The same bytes; with all weights moved out, or in, the same model and the same outputs."""
    assert ModelEditor(path).write(keep_external=True) == path.read_bytes()
    editor = ModelEditor(path)
    inline, outside = tmp_path / "inline.onnx", tmp_path / "outside.onnx"
    editor.write(inline)
    editor.write(outside, external_data="weights.bin")
    ModelEditor(outside).write(tmp_path / "back.onnx")
    want = onnx.load(path)
    for p in (inline, outside, tmp_path / "back.onnx"):
        got = onnx.load(p)
        if not any(
            n.domain not in ("", "ai.onnx") for n in got.graph.node
        ):  # the checker knows no other operators
            onnx.checker.check_model(p)
        for m in (
            want,
            got,
        ):  # numbers may lie in typed fields in the one, as raw bytes in the other
            for t in m.graph.initializer:
                t.CopyFrom(
                    numpy_helper.from_array(numpy_helper.to_array(t), t.name)
                    if t.data_type != T.BFLOAT16
                    else t
                )
        assert (
            len(got.graph.node) == len(want.graph.node)
            and got.graph.initializer == want.graph.initializer
            and got.opset_import == want.opset_import
            and got.metadata_props == want.metadata_props
        )
        if p is inline or p.name == "back.onnx":
            assert not any(
                t.data_location for t in onnx.load(p, load_external_data=False).graph.initializer
            )
    stored = path.with_suffix(".npz")
    if stored.exists() and path.parent.parent.name != "train":
        with np.load(stored) as z:
            feeds = {k[3:]: z[k] for k in z.files if k.startswith("in/")}
        outputs = run(path, feeds)
        same(run(inline, feeds), outputs)
        same(run(outside, feeds), outputs)
    assert not list(tmp_path.glob("*.part"))


def small(**kwargs):
    """y = relu(x W + b), W in float_data, b raw, an If around a large constant, a doc string,
    metadata and an unused function.
    """
    w, big = np.arange(6, dtype="f4").reshape(2, 3), np.arange(400, dtype="f4")
    then = h.make_graph(
        [h.make_node("ReduceSum", ["big"], ["r"], keepdims=0)],
        "then",
        [],
        [h.make_tensor_value_info("r", T.FLOAT, [])],
        [numpy_helper.from_array(big, "big")],
    )
    other = h.make_graph(
        [h.make_node("Constant", [], ["z"], value=numpy_helper.from_array(np.float32(0)))],
        "else",
        [],
        [h.make_tensor_value_info("z", T.FLOAT, [])],
    )
    nodes = [
        h.make_node("MatMul", ["x", "W"], ["m"], "mm", doc_string="the product"),
        h.make_node("Add", ["m", "b"], ["a"], "add"),
        h.make_node("If", ["c"], ["i"], "if", then_branch=then, else_branch=other),
        h.make_node("Add", ["a", "i"], ["s"], "sum"),
        h.make_node("LeakyRelu", ["s"], ["y"], "act", alpha=0.5),
    ]
    graph = h.make_graph(
        nodes,
        "g",
        [
            h.make_tensor_value_info("x", T.FLOAT, ["n", 2]),
            h.make_tensor_value_info("c", T.BOOL, []),
        ],
        [h.make_tensor_value_info("y", T.FLOAT, ["n", 3])],
        [
            h.make_tensor("W", T.FLOAT, [2, 3], w.ravel()),
            numpy_helper.from_array(np.ones(3, "f4"), "b"),
        ],
        value_info=[h.make_tensor_value_info("m", T.FLOAT, ["n", 3])],
    )
    graph.initializer[1].doc_string = "bias"
    f = h.make_function(
        "local",
        "Twice",
        ["t"],
        ["u"],
        [h.make_node("Add", ["t", "t"], ["u"])],
        [h.make_opsetid("", 17)],
    )
    m = h.make_model(
        graph,
        opset_imports=[h.make_opsetid("", 17), h.make_opsetid("local", 1)],
        functions=[f],
        ir_version=8,
    )
    h.set_model_props(m, {"a": "1", "b": "2"})
    return m.SerializeToString()


X = {"x": np.array([[1, -2], [0.5, 3]], "f4"), "c": np.array(False)}


def outputs(data, feeds=X):
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    return ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)


def leaky(x):
    return np.where(x > 0, x, x / 2)


def test_initializers():
    w = np.random.default_rng(0).normal(size=(2, 3)).astype("f4")
    raw = w.tobytes()
    for given in (
        w,
        Tensor.of("W", 1, (2, 3), list(w.ravel())),
        ("float32", (2, 3), raw),
        (1, [2, 3], [raw[:5], raw[5:]]),
        (1, [2, 3], lambda: iter([raw])),
        Tensor("other", 1, (2, 3), BytesSource(b"??" + raw), 2, 24),
    ):
        e = ModelEditor(small())
        e.set_initializer("W", given)
        got = e.write()
        np.testing.assert_allclose(outputs(got)[0], leaky(X["x"] @ w + 1), rtol=1e-6)
        model = onnx.load_from_string(got)
        assert (
            [t.name for t in model.graph.initializer] == ["W", "b"]
            and model.graph.initializer[1].doc_string == "bias"
            and model.graph.node[0].doc_string == "the product"
        )
        assert [p.key for p in model.metadata_props] == ["a", "b"] and model.functions[
            0
        ].name == "Twice"
    with pytest.raises(InputError, match="8 bytes for shape"):
        e.set_initializer("W", ("float32", (2, 3), b"12345678"))
    e.set_initializer("W", ("float32", (2, 3), [raw, raw]))
    with pytest.raises(InputError, match="more than 24"):
        e.write()
    with pytest.raises(InputError, match="no initializer 'V'"):
        e.remove_initializer("V")


def test_lora_as_nodes():
    """x A B s is added to the product; its output is renamed, later nodes are unchanged."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 1)).astype("f4"), rng.normal(size=(1, 3)).astype("f4")
    e = ModelEditor(small())
    node = e.producer("m")
    down, up, base = (e.unused_name(n) for n in ("m", "W", "base"))
    assert (down, up, base) == ("m_1", "W_1", "base")
    e.add_initializer("A", a)
    e.add_initializer("B", 0.5 * b)
    node.outputs[0] = base
    e.add_nodes(
        [
            Node("MatMul", ["x", "A"], [down]),
            Node("MatMul", [down, "B"], [up]),
            Node("Add", [base, up], ["m"], name="lora"),
        ],
        before=e.consumers("m")[0][0],
    )
    got = e.write()
    np.testing.assert_allclose(
        outputs(got)[0], leaky(X["x"] @ (np.arange(6).reshape(2, 3) + 0.5 * a @ b) + 1), rtol=1e-5
    )
    assert onnx.load_from_string(got).graph.node[0].doc_string == "the product"


def test_graph_edits():
    e = ModelEditor(small())
    e.replace_input(e.producer("s"), 1, "b")
    e.remove_node(e.producer("i"))
    e.remove_input("c")
    e.add_output(Info("a", 1, ["n", 3]))
    e.graph.inputs[0].shape[0] = 2
    e.producer("y").attrs["alpha"] = 0.25
    e.set_metadata("a", "one")
    e.set_metadata("b", None)
    e.set_metadata("new", "ümlaut")
    e.set_opset("ai.onnx", 18)
    e.set_opset("com.microsoft", 1)
    got = e.write()
    model = onnx.load_from_string(got)
    y, a = outputs(got, {"x": X["x"]})
    want = X["x"] @ np.arange(6).reshape(2, 3) + 1
    np.testing.assert_allclose(a, want)
    np.testing.assert_allclose(y, np.where(want + 1 > 0, want + 1, (want + 1) / 4))
    assert {p.key: p.value for p in model.metadata_props} == {"a": "one", "new": "ümlaut"} and {
        o.domain: o.version for o in model.opset_import
    } == {"": 18, "local": 1, "com.microsoft": 1}
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [2, 2]
    for call in (
        lambda: e.remove_input("c"),
        lambda: e.remove_output("no"),
        lambda: e.add_nodes([], before=Node("Relu", ["x"], ["q"])),
    ):
        with pytest.raises(InputError):
            call()
    e.producer("y").attrs["alpha"] = object()
    with pytest.raises(InputError, match="alpha"):
        e.write()


def test_attributes_of_every_kind():
    attrs = {
        "i": 3,
        "f": 2.5,
        "s": "text",
        "t": Tensor.of("t", 7, (2,), [1, 2]),
        "ints": [1, -2],
        "floats": [1.0, 2],
        "strings": ["a", "ü"],
        "none": [],
        "flag": True,
        "bytes": b"x\xff",
        "tensors": [Tensor.of("u", 1, (), [1.0])],
        "g": read_model(BytesSource(small())),
        "graphs": [read_model(BytesSource(small()))],
    }
    e = ModelEditor()
    e.add_nodes([Node("Anything", ["x", "", "z"], ["y"], attrs, "some.domain", "n")])
    e.set_opset("some.domain", 1)
    e.add_input(Info("x", 1, [None, "n", 3]))
    e.add_output(Info("y", 10, None))
    data = e.write()
    node = onnx.load_from_string(data).graph.node[0]
    got = {a.name: h.get_attribute_value(a) for a in node.attribute}
    assert {
        k: got[k] for k in ("i", "f", "s", "ints", "floats", "strings", "none", "flag", "bytes")
    } == {
        "i": 3,
        "f": 2.5,
        "s": b"text",
        "ints": [1, -2],
        "floats": [1, 2],
        "strings": [b"a", "ü".encode()],
        "none": [],
        "flag": 1,
        "bytes": b"x\xff",
    }
    assert (
        numpy_helper.to_array(got["t"]).tolist() == [1, 2]
        and len(got["tensors"]) == 1
        and got["g"].node[2].op_type == "If"
        and len(got["graphs"][0].initializer) == 2
    )
    graph = read_model(BytesSource(data))
    assert (
        graph.inputs[0].shape == [None, "n", 3]
        and graph.outputs[0].shape is None
        and list(node.input) == ["x", "", "z"]
    )


def test_a_model_from_nothing():
    e = ModelEditor()
    e.add_input(Info("x", 1, ["n"]))
    e.add_output(Info("y", 1, ["n"]))
    e.set_initializer("two", np.float32(2))
    e.add_nodes([Node("Mul", ["x", "two"], ["y"])])
    np.testing.assert_array_equal(outputs(e.write(), {"x": np.array([1, 2], "f4")})[0], [2, 4])


def test_external_data_inside_of_nodes(tmp_path):
    """Tensors in subgraphs move too, and come back."""
    path = tmp_path / "m.onnx"
    path.write_bytes(small())
    ModelEditor(path).write(tmp_path / "out.onnx", external_data="out.bin")
    model = onnx.load(tmp_path / "out.onnx", load_external_data=False)
    big = next(a for a in model.graph.node[2].attribute if a.name == "then_branch").g.initializer[0]
    assert (
        big.data_location == T.EXTERNAL
        and {p.key: p.value for p in big.external_data}
        == {"location": "out.bin", "offset": "0", "length": "1600"}
        and (tmp_path / "out.bin").stat().st_size == 1600
    )
    feeds = X | {"c": np.array(True)}
    want = outputs(small(), feeds)
    same(run(tmp_path / "out.onnx", feeds), want)
    (tmp_path / "elsewhere").mkdir()
    ModelEditor(tmp_path / "out.onnx").write(tmp_path / "elsewhere" / "in.onnx")
    same(run(tmp_path / "elsewhere" / "in.onnx", feeds), want)
    e = ModelEditor(tmp_path / "out.onnx")  # a changed node around it
    e.producer("i").name = "renamed"
    same(outputs(e.write(), feeds), want)
    e.write(tmp_path / "out.onnx", external_data="out.bin")  # over itself
    same(run(tmp_path / "out.onnx", feeds), want)
    (tmp_path / "out.bin").unlink()
    with pytest.raises(ModelError, match="out.bin"):
        ModelEditor(tmp_path / "out.onnx")


class Count:
    """A file that only counts bytes, and keeps a few of them."""

    def __init__(self):
        self.size, self.heads = 0, {}

    def write(self, data):
        if len(data) and data[0]:
            self.heads[self.size] = bytes(data[:4])
        self.size += len(data)


def test_more_than_a_protobuf_may_be():
    chunk = bytes(1 << 26)
    mark = b"mark" + bytes((1 << 26) - 4)
    e = ModelEditor()
    e.set_initializer("first", ("uint8", (1 << 32,), lambda: (chunk for _ in range(64))))
    e.set_initializer("second", ("uint8", (1 << 26,), lambda: iter([mark])))
    with pytest.raises(InputError, match="external_data"):
        e.write(io.BytesIO())
    model, data = io.BytesIO(), Count()
    e.write(model, external_data=("w.bin", data))
    proto = onnx.ModelProto.FromString(model.getvalue())
    entry = {p.key: p.value for p in proto.graph.initializer[1].external_data}
    assert (
        data.size == (1 << 32) + (1 << 26)
        and data.heads == {1 << 32: b"mark"}
        and entry == {"location": "w.bin", "offset": str(1 << 32), "length": str(1 << 26)}
    )


@pytest.mark.parametrize("external", ["", "a/b.bin", "../b.bin"])
def test_external_data_lies_beside(external, tmp_path):
    with pytest.raises(InputError, match="without a path"):
        ModelEditor(small()).write(tmp_path / "m.onnx", external_data=external)
    with pytest.raises(InputError, match="no folder for external_data"):
        ModelEditor(small()).write(external_data="b.bin")


def test_failing_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_bytes(small())
    e = ModelEditor(path)
    e.set_initializer("W", ("float32", (2, 3), [b"1234"]))
    with pytest.raises(InputError):
        e.write(path)
    assert path.read_bytes() == small() and list(tmp_path.iterdir()) == [path]
    with monkeypatch.context() as m, pytest.raises(InputError, match="at most 2048"):
        m.setattr(editor, "MAX_MODEL", 100)
        ModelEditor(path).write(path)
    shutil.rmtree(tmp_path)
    with pytest.raises(InputError, match="cannot write"):
        ModelEditor(small()).write(path)
