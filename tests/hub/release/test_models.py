"""Models in ONNX as releases."""

import pytest

from . import environment  # noqa: F401  isort: skip

pytest.importorskip("tuf")

import numpy as np  # noqa: E402
from edgewise.cli import main  # noqa: E402
from edgewise.extras.release.client import Client  # noqa: E402


def run(*args):
    assert main(["release", *map(str, args)]) == 0


def test_a_folder_of_onnx_files_is_a_release(tmp_path):
    """As optimum lays it out; a change of weights arrives as deltas."""
    onnx = pytest.importorskip("onnx")
    folder, keys, model = (tmp_path / name for name in ("repository", "keys", "model"))
    run("init", folder, "--keys", keys, "--scheme", "ecdsa")
    rng = np.random.default_rng(0)
    (model / "onnx").mkdir(parents=True)
    weight = rng.normal(0, 0.05, (256, 300)).astype("f4")
    (model / "config.json").write_text("{}")
    root = ("--root", folder / "metadata/1.root.json")
    for version in (1, 2):
        bits = (weight + version * 1e-4).astype("f4").view("<u4") & 0xFFFF0000
        tensors = [
            onnx.numpy_helper.from_array(bits.view("<f4"), "w"),
            onnx.numpy_helper.from_array(np.ones(300, "f4"), "odd name"),
        ]
        nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["h"])]
        nodes += [onnx.helper.make_node("Add", ["h", "odd name"], ["y"])]
        ends = [
            onnx.helper.make_tensor_value_info(n, 1, [1, c]) for n, c in (("x", 256), ("y", 300))
        ]
        graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
        onnx.save(onnx.helper.make_model(graph), model / "onnx/model.onnx")
        run("add", folder, model, "net")
        run("publish", folder, "--keys", keys)
        client = Client([str(folder)], "net", str(tmp_path / "c"), root[1].read_bytes())
        client.update()
        client.export(str(tmp_path / "out"))
        for name in ("config.json", "onnx/model.onnx"):
            assert (tmp_path / "out" / name).read_bytes() == (model / name).read_bytes()
    assert client.received < weight.nbytes / 6
    run("add", folder, model / "onnx/model.onnx", "file")
    (model / "onnx/..model.onnx").write_bytes(b"x")
    (model / "onnx/bad.onnx").write_bytes(b"x" * 100)
    assert main(["release", "add", str(folder), str(model), "net"]) == 1


def test_weights_beside_a_model_are_released_with_it(tmp_path, capsys):
    """What is rounded keeps the files apart, of which names differ in a separator alone."""
    onnx = pytest.importorskip("onnx")
    folder, keys, model = (tmp_path / name for name in ("repository", "keys", "model"))
    run("init", folder, "--keys", keys, "--scheme", "ecdsa")
    (model / "onnx").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name, beside in (("onnx/model", True), ("onnx-model", False)):
        weight = rng.normal(0, 1, (80, 80)).astype("f4")
        ends = [onnx.helper.make_tensor_value_info(n, 1, [1, 80]) for n in "xy"]
        nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])]
        tensors = [onnx.numpy_helper.from_array(weight, "w")]
        graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
        save = {"save_as_external_data": True, "location": "model.onnx_data"} if beside else {}
        onnx.save(onnx.helper.make_model(graph), model / f"{name}.onnx", **save)
    assert main(["release", "add", str(folder), str(model / "onnx/model.onnx"), "net"]) == 1
    assert "model.onnx_data' is not in the release" in capsys.readouterr().err
    run("add", folder, model, "net", "--round", "bfloat16")
    run("publish", folder, "--keys", keys)
    root = (folder / "metadata/1.root.json").read_bytes()
    client = Client([str(folder)], "net", str(tmp_path / "c"), root)
    client.update()
    client.export(str(tmp_path / "out"))
    for name in ("onnx/model.onnx", "onnx/model.onnx_data"):
        assert (tmp_path / "out" / name).read_bytes() == (model / name).read_bytes()
    found = onnx.numpy_helper.to_array(
        onnx.load(tmp_path / "out/onnx-model.onnx").graph.initializer[0]
    )
    assert not (found.view("<u4") & 0xFFFF).any() and abs(found - weight).max() < 0.02
    (model / "onnx/model.onnx_data").unlink()
    assert main(["release", "add", str(folder), str(model), "net"]) == 1
