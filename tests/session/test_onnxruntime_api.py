"""The API of `InferenceSession` compared with onnxruntime's."""

import edgewise
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from edgewise.errors import InputError
from onnx import TensorProto, helper, numpy_helper
from zoo.zoo import models

ort.set_default_logger_severity(4)
MODELS = models()


def other(model):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(model.path), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_inputs_and_outputs(model):
    """Names, types and shapes, in order."""
    ours, theirs = edgewise.InferenceSession(str(model.path)), other(model)
    for a, b in (
        (ours.get_inputs(), theirs.get_inputs()),
        (ours.get_outputs(), theirs.get_outputs()),
    ):
        assert [(x.name, x.type) for x in a] == [(x.name, x.type) for x in b]
        for x, y in zip(a, b):
            assert len(x.shape) == len(y.shape)
            # a size that the file spells as a name ("4") is a size here; onnxruntime's shapes are
            # those of its own inference: where the file says no size, they may hold one
            assert all(
                str(p) == str(q) or not isinstance(p, int) for p, q in zip(x.shape, y.shape)
            ), (x.shape, y.shape)


MODEL = next(m for m in MODELS if "q4_llama" in m.name)


def test_run():
    """None for all, in the model's order; names in the caller's order, also twice; an empty list as
    None.
    """
    ours, theirs = edgewise.InferenceSession(str(MODEL.path)), other(MODEL)
    names = [o.name for o in theirs.get_outputs()]
    for asked in (
        None,
        [],
        names,
        names[::-1],
        ["logits"],
        [names[2], names[0]],
        (names[1],),
        ["logits", "logits"],
    ):
        got, want = (
            ours.run(asked, MODEL.feeds),
            theirs.run(list(asked) if asked else asked, MODEL.feeds),
        )
        assert len(got) == len(want)
        for g, w in zip(got, want):
            assert type(g) is np.ndarray and g.dtype == w.dtype and g.shape == w.shape
            np.testing.assert_allclose(g, w, atol=2e-2 * max(1, np.abs(w).max()))
    got[0][...] = 0  # an array of one's own: writable, and no window into the engine
    assert np.abs(ours.run(["logits"], MODEL.feeds)[0]).max() > 1


def test_where_onnxruntime_refuses():
    """The same mistakes are refused, each with the input's name; then the session works as
    before.
    """
    ours, theirs = edgewise.InferenceSession(str(MODEL.path)), other(MODEL)
    want = ours.run(None, MODEL.feeds)
    wrong = [
        {**MODEL.feeds, "input_ids": MODEL.feeds["input_ids"].astype(t)}
        for t in ("i4", "f4", "f8", "u8")
    ]
    wrong += [
        {**MODEL.feeds, "past_key_values.0.key": MODEL.feeds["past_key_values.0.key"].astype(t)}
        for t in ("f8", "f2", "i8")
    ]
    wrong += [
        {**MODEL.feeds, "input_ids": MODEL.feeds["input_ids"][0]},
        {k: v for k, v in MODEL.feeds.items() if k != "attention_mask"},
        {**MODEL.feeds, "more": MODEL.feeds["input_ids"]},
        {**MODEL.feeds, "past_key_values.1.value": MODEL.feeds["past_key_values.1.value"][:, :1]},
    ]
    for feeds in wrong:
        with pytest.raises(Exception):  # noqa: B017 - onnxruntime's own
            theirs.run(None, feeds)
        with pytest.raises(InputError) as e:
            ours.run(None, feeds)
        assert any(
            name in str(e.value)
            for name in (
                "input_ids",
                "past_key_values.0.key",
                "attention_mask",
                "more",
                "past_key_values.1.value",
            )
        )
    with pytest.raises(InputError, match="no output 'nothing'"):
        ours.run(["nothing"], MODEL.feeds)
    assert all(np.array_equal(a, b) for a, b in zip(ours.run(None, MODEL.feeds), want))


def test_an_empty_past():
    """Zero-length past, as the first step of a generation loop feeds it; and one longer than
    stored.
    """
    ours, theirs = edgewise.InferenceSession(str(MODEL.path)), other(MODEL)
    for past, new in ((0, 1), (0, 7), (40, 2)):
        rng = np.random.default_rng(past)
        feeds = {
            "input_ids": rng.integers(0, 255, (1, new)),
            "attention_mask": np.ones((1, past + new), "i8"),
            "position_ids": np.arange(past, past + new)[None],
        }
        feeds |= {
            i.name: rng.standard_normal((1, i.shape[1], past, i.shape[3])).astype("f4")
            for i in theirs.get_inputs()
            if "past" in i.name
        }
        for g, w in zip(ours.run(None, feeds), theirs.run(None, feeds)):
            assert g.shape == w.shape
            np.testing.assert_allclose(g, w, atol=2e-2 * max(1, np.abs(w).max()))


def test_many_shapes():
    """More shapes than plans are kept for: memory is given back, answers stay right."""
    ours, theirs = edgewise.InferenceSession(str(MODEL.path)), other(MODEL)
    ours.MAX_PLANS = 4
    for new in [*range(1, 12), 3, 1, 11]:
        feeds = {
            "input_ids": np.arange(new)[None],
            "attention_mask": np.ones((1, new), "i8"),
            "position_ids": np.arange(new)[None],
        }
        feeds |= {
            i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), "f4")
            for i in theirs.get_inputs()
            if "past" in i.name
        }
        np.testing.assert_allclose(
            ours.run(["logits"], feeds)[0], theirs.run(["logits"], feeds)[0], atol=0.3
        )
        assert len(ours.plans) <= 4
    ours.free()
    assert ours.run(["logits"], feeds)[0].shape == (1, 11, 256)  # freed is not closed


def test_ways_to_open(tmp_path):
    data = MODEL.path.read_bytes()
    for source in (str(MODEL.path), MODEL.path, data, bytearray(data), memoryview(data)):
        s = edgewise.InferenceSession(
            source, sess_options=edgewise.SessionOptions(), providers=["CPUExecutionProvider"]
        )
        assert s.run(["logits"], MODEL.feeds)[0].shape == MODEL.expected["logits"].shape
    assert s.get_providers()


def test_two_sessions_do_not_disturb_each_other():
    a, b = (edgewise.InferenceSession(str(m.path)) for m in MODELS[:2])
    first = a.run(None, MODELS[0].feeds)
    second = b.run(None, MODELS[1].feeds)
    for _ in range(2):
        assert all(np.array_equal(x, y) for x, y in zip(a.run(None, MODELS[0].feeds), first))
        assert all(np.array_equal(x, y) for x, y in zip(b.run(None, MODELS[1].feeds), second))
    a.free()
    assert all(np.array_equal(x, y) for x, y in zip(b.run(None, MODELS[1].feeds), second))


@pytest.mark.parametrize(
    "wrong",
    [
        {"providers": 5},
        {"providers": "CPUExecutionProvider"},
        {"providers": [None]},
        {"sess_options": 4},
        {"sess_options": {"intra_op_num_threads": 2}},
        {"threads": "2"},
        {"threads": 1.5},
        {"threads": -1},
        {"threads": True},
        {"trips": "many"},
    ],
)
def test_options_of_wrong_types(wrong):
    if "providers" not in wrong and "sess_options" not in wrong:
        options = edgewise.SessionOptions()
        options.intra_op_num_threads, options.max_loop_trips = (
            wrong.get("threads", 0),
            wrong.get("trips", 1),
        )
        wrong = {"sess_options": options}
    with pytest.raises(InputError):
        edgewise.InferenceSession(str(MODEL.path), **wrong)


def test_options_of_onnxruntime():
    """Its own classes are taken, too."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = edgewise.InferenceSession(
        str(MODEL.path), options, providers=[("CPUExecutionProvider", {"x": 1}), "Other"]
    )
    assert session.engine.threads == 2
    session.run(None, MODEL.feeds, ort.RunOptions())
    with pytest.raises(InputError, match="run_options"):
        session.run(None, MODEL.feeds, {"terminate": True})


def test_declarations_that_are_not_complete():
    """Outputs without a type or shape, -1 as a size, a tensor that is two outputs: as onnxruntime
    lists and computes them.
    """
    free = helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1, 3])
    named = [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", "n", 3])]
    weight = numpy_helper.from_array(np.ones((3, 5), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("ArgMax", ["z"], ["i"], axis=1, keepdims=0),
        helper.make_node("Concat", ["z", "z"], ["c"], axis=2),
        helper.make_node("Transpose", ["c"], ["t"], perm=[1, 2, 0]),
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", "i", "t", "y")]
    outputs.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, None))
    graph = helper.make_graph(nodes, "g", [free, *named], outputs, [weight])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data = data.SerializeToString()
    ours = edgewise.InferenceSession(data)
    theirs = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    for a, b in (
        (ours.get_inputs(), theirs.get_inputs()),
        (ours.get_outputs(), theirs.get_outputs()),
    ):
        assert [(x.name, x.type, x.shape) for x in a] == [(x.name, x.type, x.shape) for x in b]
    feeds = {"x": np.ones((2, 3), np.float32), "z": np.zeros((1, 4, 3), np.float32)}
    for got, want in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
        np.testing.assert_array_equal(got, want)
