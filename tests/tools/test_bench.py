"""`edgewise bench`: what is measured, the comparison of results, and the report. Speed itself is
not tested.
"""

import json
import math

import edgewise.extras.bench as tool
import onnxruntime
import pytest
from edgewise import cli
from edgewise.errors import InputError
from edgewise.extras.bench import contender, peer
from onnx import TensorProto, helper

MODEL = "web/demo/model"


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(contender, "SLICE", 0.001)


@pytest.fixture(scope="module")
def perceptron(tmp_path_factory):
    import numpy as np
    from onnx import numpy_helper

    w = numpy_helper.from_array(np.random.default_rng(0).standard_normal((8, 4)).astype("f4"), "w")
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"]),
        helper.make_node("Add", ["e", "x"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    table = numpy_helper.from_array(
        np.random.default_rng(1).standard_normal((200, 8)).astype("f4"), "table"
    )
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"]),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [w, table],
    )
    path = tmp_path_factory.mktemp("bench") / "perceptron.onnx"
    path.write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString()
    )
    return str(path)


def check(r, peer=True):
    d = json.loads(json.dumps(r.as_dict()))
    assert d["rounds"] >= tool.MIN_ROUNDS and d["threads"] >= 1 and d["notes"]
    for f in d["figures"]:
        for who in ("edgewise", "onnxruntime")[: 1 + peer]:
            s = f[who]
            assert (
                s is None
                and f["unit"] == "MB"
                or 0 <= s["q1"] <= s["median"] <= s["q3"]
                and s["n"] in (1, d["rounds"])
            )
        assert (f["ratio"] is not None) <= peer and f["better"] in ("higher", "lower")
        assert f["name"] in str(r)
    return d


def test_any_model(perceptron):
    r = tool.bench(perceptron, {"n": 5}, seconds=0.01, threads=1)
    d = check(r)
    assert (
        d["difference"] <= 1e-6
        and d["peer"].startswith("onnxruntime ")
        and [f["unit"] for f in d["figures"]] == ["ms", "ms", "MB"]
        and d["threads"] == 1
    )
    assert "ids int64[5]" in d["notes"][0] and "NOT THE SAME" not in str(r)
    alone = tool.bench(perceptron, {"n": 5}, seconds=0.01, against=False, profile=True)
    assert (
        check(alone, peer=False)["difference"] is None
        and {"Gather", "MatMul"} <= {o["op"] for o in alone.as_dict()["profile"]["ops"]}
        and "of limit" in str(alone)
    )


def test_other_results_are_not_comparable(perceptron, monkeypatch):
    monkeypatch.setattr(peer, "_difference", lambda a, b: 0.5)
    assert "NOT THE SAME WORK" in str(tool.bench(perceptron, {"n": 5}, seconds=0.01))


def test_sums_that_saturate(tmp_path, monkeypatch):
    """What onnxruntime makes of bytes without VNNI is named, where it is what differs."""
    import numpy as np
    from onnx import numpy_helper

    w = np.random.default_rng(0).integers(-128, 128, (64, 48)).astype(np.int8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["a", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["a", "w", "zero"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["y"], to=TensorProto.FLOAT),
    ]
    floats = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("x", "y")]
    floats[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, [9, 64]))
    graph = helper.make_graph(nodes, "g", floats[:1], floats[1:], [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "bytes.onnx"
    path.write_bytes(model.SerializeToString())
    named = "with onnxruntime's session.x64quantprecision they differ by"
    # as users have it, whatever the processor is
    with monkeypatch.context() as plain:
        session = onnxruntime.InferenceSession
        plain.setattr(session, "__init__", session.__init__.__wrapped__)
        report = tool.bench(str(path), seconds=0.01)
    assert "NOT THE SAME" not in str(report)
    assert (report.difference <= peer.AGREE) != (named in str(report)), report.notes
    differences = iter([0.5, 1e-7])
    monkeypatch.setattr(peer, "_difference", lambda a, b: next(differences))
    assert f"{named} 1.0e-07" in str(tool.bench(str(path), seconds=0.01))


def test_differences():
    assert peer._difference([[1.0, -2.0, math.inf]], [[1.0, -2.2, math.inf]]) == pytest.approx(
        0.2 / 2.2
    )
    assert (
        peer._difference([[1.0, math.nan]], [[1.0, 1.0]])
        == peer._difference([[1.0]], [[1.0, 2.0]])
        == math.inf
    )


@pytest.mark.parametrize("dtype", ["q4"])
def test_a_language_model(dtype, tmp_path):
    """As it writes: the same logits as onnxruntime's after the prompt and after a token more."""
    r = tool.bench(MODEL, dtype=dtype, prompt=20, tokens=3, seconds=0.01)
    d = check(r)
    assert [f["name"] for f in d["figures"]][:2] == ["prompt of 20", "decoding at 20"] and d[
        "difference"
    ] < 1e-4
    assert cli.main(["build", MODEL, "-o", str(tmp_path / "m.edge")]) == 0
    p = check(tool.bench(str(tmp_path / "m.edge"), prompt=20, tokens=3, seconds=0.01), peer=False)
    assert p["difference"] is None and "packages" in p["notes"][-1]


@pytest.mark.parametrize("at_once", [None, 1])
def test_caches_are_known_by_where_they_go(at_once, tmp_path):
    """Output names and order do not matter: the same logits as onnxruntime, with caches as inputs
    and outputs.
    """
    import onnx

    model = onnx.load(f"{MODEL}/onnx/model_q4.onnx")
    new = {
        o.name: o.name.replace("present", "output.layers")
        for o in model.graph.output
        if o.name != "logits"
    }
    for n in model.graph.node:
        n.output[:] = [new.get(o, o) for o in n.output]
        n.input[:] = [new.get(i, i) for i in n.input]
    outputs = list(model.graph.output)[::-1]
    del model.graph.output[:]
    for o in outputs:
        model.graph.output.add().CopyFrom(o)
        model.graph.output[-1].name = new.get(o.name, o.name)
    if at_once:
        for i in model.graph.input:
            if i.name == "input_ids":
                i.type.tensor_type.shape.dim[1].dim_value = at_once
    path = str(tmp_path / "model.onnx")
    onnx.save(model, path)
    r = tool.bench(path, prompt=5, tokens=2, seconds=0.01)
    assert len(new) > 2 and check(r)["difference"] < 1e-4, r.notes


def test_caches_that_are_not_there():
    """An output that depends on two caches belongs to neither."""
    from edgewise.ir import Graph, Info, Node

    graph = Graph(
        nodes=[Node("Concat", ["past.key", "past.value"], ["both"], {"axis": 0})],
        outputs=[Info("both"), Info("logits")],
    )
    with pytest.raises(InputError, match="the outputs of its 2 caches"):
        peer.match_caches(graph, ["past.key", "past.value"])


def test_the_command(perceptron, tmp_path, capsys):
    assert (
        cli.main(
            [
                "bench",
                perceptron,
                "--dims",
                "n=3",
                "--value",
                "ids=7",
                "--seconds",
                "0.01",
                "--json",
                "--trace",
                str(tmp_path / "t.json"),
            ]
        )
        == 0
    )
    d = json.loads(capsys.readouterr().out)
    assert (
        d["figures"][0]["name"] == "a run"
        and "except for ids" in d["notes"][0]
        and d["profile"]["runs"] >= 1
    )
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert cli.main(["bench", perceptron, "--seconds", "0.01"]) == 1
    assert "--dims n=1" in capsys.readouterr().err
    assert cli.main(["bench", str(tmp_path / "none.onnx")]) == 1
    assert cli.main(["bench", MODEL, "--prompt", "600", "--alone"]) == 1
    assert "exceed the maximum length" in capsys.readouterr().err
    assert cli.main(["bench", perceptron, "--dims", "n"]) == 1
    assert "edgewise bench --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, without",
    [
        (["--flavour", "simd128", "-o", "x.edge"], "--engine"),
        (["--from", "here", "-o", "x.edge"], "--engine"),
        (["--lora-r", "4", "-o", "x.edge"], "--train"),
        (["--learning-rate", "1e-3", "-o", "x.edge"], "--train"),
        (["--batch-size", "4", "-o", "x.edge"], "--train"),
    ],
)
def test_options_of_an_option(options, without, capsys):
    """What would do nothing is refused."""
    assert cli.main(["build", MODEL, *options]) == 1
    assert f"it is for {without}, which was not given" in capsys.readouterr().err
    assert cli.main(["train", MODEL, "none.txt", "--lora-alpha", "4"]) == 1
    assert "it is for --lora," in capsys.readouterr().err


def test_wrong_arguments(perceptron):
    for wrong in (
        {"prompt": 0},
        {"tokens": 1.5},
        {"threads": 0},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"seconds": -1},
        {"seconds": "1"},
    ):
        with pytest.raises(InputError):
            tool.bench(perceptron, {"n": 1}, **wrong)
    with pytest.raises(InputError, match="5 numbers for 1"):
        tool.bench(perceptron, {"n": 1}, values={"ids": [1, 2, 3, 4, 5]})
