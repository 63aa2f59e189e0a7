"""Names and values of parameters that exporters merged or transposed."""

import contextlib
import json

import numpy as np
import onnx
import pytest
from edgewise.errors import InputError, ModelError
from edgewise.extras.onnxruntime_training import artifacts, onnxblock
from edgewise.extras.onnxruntime_training.artifact_files.metadata import KEY, TrainingInfo
from edgewise.onnx import BytesSource, FileSource, ModelEditor, read_model
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from .graphs import array, generate, linear, rng, run


def norms(trained_mode=False, opset=15):
    """x -> BatchNormalization twice, with equal parameters that the exporter merged: scale with
    variance, bias with mean.
    """
    one, zero = (
        numpy_helper.from_array(np.full(3, v, "f4"), n)
        for v, n in ((1, "bn1.weight"), (0, "bn1.bias"))
    )
    nodes = [
        h.make_node("Identity", ["bn1.weight"], [n])
        for n in ("bn1.running_var", "bn2.weight", "bn2.running_var")
    ] + [h.make_node("Identity", ["bn1.bias"], [n]) for n in ("bn1.running_mean", "bn2.bias")]
    extra = {"training_mode": 1} if trained_mode else {}
    nodes.append(
        h.make_node(
            "BatchNormalization",
            ["x", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var"],
            ["m", "rm", "rv"] if trained_mode else ["m"],
            **extra,
        )
    )
    nodes.append(
        h.make_node(
            "BatchNormalization",
            ["m", "bn2.weight", "bn2.bias", "bn1.running_mean", "bn2.running_var"],
            ["y"],
        )
    )
    graph = h.make_graph(
        nodes,
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, ["n", 3])],
        [h.make_tensor_value_info("y", T.FLOAT, ["n", 3])],
        [one, zero],
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=8)


def test_merged_parameters_get_numbers_of_their_own(tmp_path):
    info, checkpoint = generate(
        norms(), tmp_path, ["bn1.weight", "bn1.bias", "bn2.weight", "bn2.bias"]
    )
    assert set(checkpoint.requires_grad) == {
        "bn1.weight",
        "bn1.bias",
        "bn2.weight",
        "bn2.bias",
    } and info.batch_norm.keys() == {"m", "y"}
    statistics = [name for pair in info.batch_norm.values() for name in pair]
    assert (
        len(set(statistics)) == 4
        and set(statistics) == set(checkpoint.frozen)
        and {array(t).tolist()[0] for t in checkpoint.frozen.values()} == {0, 1}
    )
    info, checkpoint = generate(norms(), tmp_path, ["bn2.bias"])
    assert list(info.batch_norm) == ["y"] and len(checkpoint.frozen) == 2
    assert (
        len(generate(norms(), tmp_path, ["bn2.bias"], batch_norm=True)[0].batch_norm) == 2
        and generate(norms(), tmp_path, ["bn2.bias"], batch_norm=False)[0].batch_norm == {}
    )
    info, _ = generate(norms(trained_mode=True), tmp_path, ["bn1.weight"])
    assert (
        info.batch_norm == {}
        and len(onnx.load(tmp_path / "training_model.onnx").graph.node[0].output) >= 1
    )
    evaluation = onnx.load(tmp_path / "eval_model.onnx")
    onnx.checker.check_model(evaluation, full_check=True)
    assert [len(n.output) for n in evaluation.graph.node if n.op_type == "BatchNormalization"] == [
        1,
        1,
    ]


def test_old_exports(tmp_path):
    """Operator set 11 has no cross entropy: the model is brought to 12."""
    info, _ = generate(
        linear(opset=11),
        tmp_path,
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.AdamW,
    )
    assert (
        info.inputs == ["x", "labels"]
        and onnx.load(tmp_path / "training_model.onnx").opset_import[0].version == 12
    )


def test_transposed_weights_get_their_names_back(tmp_path):
    w, bias = rng.normal(size=(4, 3)).astype("f4"), rng.normal(size=3).astype("f4")
    graph = h.make_graph(
        [h.make_node("MatMul", ["x", "val_7"], ["p"]), h.make_node("Add", ["p", "fc.bias"], ["y"])],
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, ["n", 4])],
        [h.make_tensor_value_info("y", T.FLOAT, ["n", 3])],
        [numpy_helper.from_array(w, "val_7"), numpy_helper.from_array(bias, "fc.bias")],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=8)
    _, checkpoint = generate(model, tmp_path)
    assert np.array_equal(array(checkpoint.requires_grad["fc.weight"]), w.T)
    evaluation = onnx.load(tmp_path / "eval_model.onnx")
    onnxblock.load_checkpoint_to_model(tmp_path / "checkpoint", evaluation)
    x = rng.normal(size=(2, 4)).astype("f4")
    assert run(evaluation, {"x": x, "target": x @ w + bias})[0] < 1e-10
    assert list(generate(model, tmp_path, ["val_7"])[1].requires_grad) == ["val_7"]


@pytest.mark.parametrize("note", ["metadata", "name", "nothing", "typo"])
def test_transposed_weights_without_a_bias(note, tmp_path):
    """Two of them: known by their modules.

    One: taken for what is missing, with a warning, unless that looks like a slip of the pen.
    """
    u, v = rng.normal(size=(4, 3)).astype("f4"), rng.normal(size=(3, 3)).astype("f4")
    first, second = ("/layers.0/q/MatMul", "/layers.0/k/MatMul") if note == "name" else ("a", "b")
    nodes = [
        h.make_node("MatMul", ["x", "val_1"], ["p"], first),
        h.make_node(
            "MatMul",
            ["p", "layers.0.o.weight" if note in ("nothing", "typo") else "val_2"],
            ["y"],
            second,
        ),
    ]
    if note == "metadata":
        for n, module in zip(nodes, ("q", "k")):
            n.metadata_props.add(
                key="pkg.torch.onnx.name_scopes",
                value=f"['', 'layers.0', 'layers.0.{module}', 'linear']",
            )
    graph = h.make_graph(
        nodes,
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, ["n", 4])],
        [h.make_tensor_value_info("y", T.FLOAT, ["n", 3])],
        [numpy_helper.from_array(u, "val_1"), numpy_helper.from_array(v, nodes[1].input[1])],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10)
    if note == "typo":
        with pytest.raises(InputError, match="layers.0.ö.weight.*layers.0.o.weight"):
            generate(model, tmp_path, ["layers.0.ö.weight"])
        return
    with (
        pytest.warns(UserWarning, match="taken to be 'val_1'")
        if note == "nothing"
        else contextlib.nullcontext()
    ):
        _, checkpoint = generate(
            model,
            tmp_path,
            ["head.weight"] if note == "nothing" else ["layers.0.q.weight", "layers.0.k.weight"],
        )
    assert np.array_equal(
        array(
            checkpoint.requires_grad["head.weight" if note == "nothing" else "layers.0.q.weight"]
        ),
        u.T,
    ) and (
        note == "nothing"
        or np.array_equal(array(checkpoint.requires_grad["layers.0.k.weight"]), v.T)
    )


def test_damaged_metadata(tmp_path):
    generate(linear(), tmp_path)
    good = json.loads(
        read_model(FileSource(tmp_path / "training_model.onnx")).about.custom_metadata_map[KEY]
    )

    def info(text):
        e = ModelEditor(tmp_path / "training_model.onnx")
        e.set_metadata(KEY, text)
        return TrainingInfo.of(read_model(BytesSource(e.write())))

    assert info(json.dumps(good)).requires_grad == ["fc.weight", "fc.bias"] and info(None) is None
    for text in (
        "",
        "[]",
        "[" * 99999,
        "{}",
        *(
            json.dumps(good | change)
            for change in (
                {"version": 2},
                {"inputs": "x"},
                {"inputs": ["x"]},
                {"inputs": [1, 2]},
                {"requires_grad": ["fc.weight"]},
                {"outputs": []},
                {"outputs": ["x"]},
                {"batch_norm": {"y": ["a", "b"]}},
                {"batch_norm": [1]},
                {"batch_norm": {"y": [1]}},
                {"frozen": None},
            )
        ),
    ):
        with pytest.raises(ModelError, match=KEY):
            info(text)
