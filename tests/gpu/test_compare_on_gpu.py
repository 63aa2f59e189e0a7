"""`edgewise compare`."""

import json
import sys

from edgewise.cli import main

from .adapters import gpu
from .test_models_on_gpu import RNG, TensorProto, helper, model, numpy_helper


def test_compare_from_the_command_line(tmp_path, monkeypatch, capsys):
    gpu()  # or skip
    w = numpy_helper.from_array(RNG.standard_normal((8, 5)).astype("f4"), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Softmax", ["h"], ["y"], name="second"),
    ]
    path = tmp_path / "model.onnx"
    path.write_bytes(model(nodes, [("x", TensorProto.FLOAT, ["n", 8])], [w]))
    assert main(["compare", str(path), "--dims", "n=3"]) == 0
    assert "2 steps" in (out := capsys.readouterr().out) and "within" in out
    monkeypatch.setattr(
        sys.modules["edgewise.host.webgpu.compare"], "SUMS", -1.0
    )  # as if the product were wrong
    assert main(["compare", str(path), "--dims", "n=3", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [d["where"] for d in report["differences"]] == ["node 'first' (MatMul)"]
    assert main(["compare", str(path), "--dims", "n=3", "--device", "cpu"]) == 1
    assert "webgpu" in capsys.readouterr().err
    assert main(["compare", str(path)]) == 1
    assert "--dims" in capsys.readouterr().err
