"""generate_artifacts: parameters, outputs, options, and what is refused."""

import contextlib
import json
import re

import numpy as np
import onnx
import pytest
import torch
from edgewise.errors import InputError, ModelError, UnsupportedField, UnsupportedOp
from edgewise.extras.onnxruntime_training import artifacts, onnxblock
from edgewise.extras.onnxruntime_training.artifact_files.metadata import (
    KEY,
    OptimizerInfo,
    TrainingInfo,
    read_optimizer_model,
)
from edgewise.extras.onnxruntime_training.artifact_files.odtc import read_checkpoint
from edgewise.ir import Node
from edgewise.onnx import BytesSource, ModelEditor, read_model
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from .graphs import CASES, LOSS, F, array, generate, identity, info_of, linear, run


# long: the fields of the artifacts, one after the other
@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name)
def test_zoo(case, tmp_path):
    """Of every forward model: onnxruntime runs the evaluation model with the checkpoint's
    parameters to the loss that ORT's artifacts gave, the optimizer model says the same as ORT's.
    """
    spec = json.loads((case / "spec.json").read_text())
    wanted = spec["requires_grad"]
    optim, block = onnxblock.optim, None
    if case.name == "mlp_ce_adamw_wd":
        block = optim.AdamW(weight_decay=spec["adamw"]["weight_decay"])
    elif case.name == "mlp_clipnorm_ce_adamw":
        block = optim.AdamW(clip_grad=optim.ClipGradNorm(0.2))
    if case.name in (
        "nanogpt_dynamo18_ce_adamw",
        "nanogpt_dynamo18_lnfix_ce_adamw",
    ):  # whose head, without a bias, got the name val_N
        warnings = pytest.warns(UserWarning, match=r"'head.weight' is taken to be 'val_\d+'")
    else:
        warnings = contextlib.nullcontext()
    with warnings:
        artifacts.generate_artifacts(
            str(case / "forward.onnx"),
            wanted,
            loss=LOSS[spec["loss"]],
            optimizer=block
            or artifacts.OptimType[{"adamw": "AdamW", "sgd": "SGD"}[spec["optimizer"]]],
            artifact_directory=tmp_path / "out",
            prefix="p_",
        )
    out = tmp_path / "out"
    assert sorted(p.name for p in out.iterdir()) == [
        "p_checkpoint",
        "p_eval_model.onnx",
        "p_optimizer_model.onnx",
        "p_training_model.onnx",
    ]
    checkpoint, info = read_checkpoint(out / "p_checkpoint"), info_of(out / "p_training_model.onnx")
    assert (
        set(info.requires_grad) == set(wanted) == set(checkpoint.requires_grad)
        and info.frozen == list(checkpoint.frozen)
        and (info.mode, info_of(out / "p_eval_model.onnx").mode) == ("train", "eval")
    )
    assert len(info.batch_norm) == (
        2 if case.name == "cnn_bn_ce_adamw" else 0
    )  # a frozen backbone's norms stay as they are
    for name in ("p_training_model.onnx", "p_eval_model.onnx"):
        onnx.checker.check_model(out / name, full_check=True)
    with np.load(case / "data.npz") as z:
        feeds = dict(zip(info.inputs, (z[k] for k in z.files)))
    (loss,) = run(
        out / "p_eval_model.onnx", feeds | {n: array(t) for n, t in checkpoint.parameters.items()}
    )
    if (case / "ort.npz").exists():
        with np.load(case / "ort.npz") as z:
            assert loss == pytest.approx(z["eval_loss_before"], rel=1e-6)
        assert read_optimizer_model(out / "p_optimizer_model.onnx") == read_optimizer_model(
            case / "optimizer_model.onnx"
        )
        theirs = read_checkpoint(case / "checkpoint")
        if "dynamo18" not in case.name:  # of which ORT has 20 of 29
            assert list(theirs.requires_grad) == list(checkpoint.requires_grad) and all(
                np.array_equal(array(checkpoint.requires_grad[n]), array(t))
                for n, t in theirs.requires_grad.items()
            )
    elif (
        case.name != "mlp_dropout_ce_adamw" and not spec["train_mode_batchnorm"]
    ):  # where training computes what evaluation does
        with np.load(case / "torch.npz") as z:
            assert loss == pytest.approx(z["loss_torch"][0], rel=1e-5)


def test_parameters_and_outputs(tmp_path):
    model = linear()
    info, checkpoint = generate(
        model,
        tmp_path,
        ["fc.bias"],
        frozen_params=["fc.weight"],
        additional_output_names=["y"],
        nominal_checkpoint=True,
    )
    assert (
        info.inputs == ["x", "target"]
        and info.outputs[1:] == ["y"]
        and list(checkpoint.frozen) == ["fc.weight"]
        and read_checkpoint(tmp_path / "nominal_checkpoint").nominal
    )
    onnx_model = onnx.load(tmp_path / "training_model.onnx")
    assert (
        [i.name for i in onnx_model.graph.input] == ["x", "target", "fc.weight", "fc.bias"]
        and model.graph.output[0].name == "y"
        and len(model.graph.output) == 1
        and not (tmp_path / "optimizer_model.onnx").exists()
    )
    assert json.loads(next(p.value for p in onnx_model.metadata_props if p.key == KEY))[
        "requires_grad"
    ] == ["fc.bias"]

    class Custom(onnxblock.Block):
        def build(self, y, target):
            return onnxblock.loss.MSELoss()(y, target)

    info, _ = generate(model, tmp_path, loss=Custom(), loss_input_names=["y", "goal"])
    assert info.inputs == ["x", "goal"]
    inference = linear()
    onnxblock.save_checkpoint(
        (
            [numpy_helper.from_array(np.full((3, 4), 2, "f4"), "fc.weight")],
            [numpy_helper.from_array(np.zeros(3, "f4"), "fc.bias")],
        ),
        tmp_path / "two",
    )
    onnxblock.load_checkpoint_to_model(tmp_path / "two", inference)
    np.testing.assert_allclose(run(inference, {"x": np.ones((1, 4), "f4")})[0], [[8, 8, 8]])
    evaluation = onnx.load(tmp_path / "eval_model.onnx")
    onnxblock.load_checkpoint_to_model(tmp_path / "two", evaluation)
    assert run(evaluation, {"x": np.ones((1, 4), "f4"), "goal": np.zeros((1, 3), "f4")})[0] == 64
    with pytest.raises(ModelError, match="fc.weight"):
        onnxblock.load_checkpoint_to_model(tmp_path / "two", identity([1]))


@pytest.mark.parametrize(
    "kwargs, words",
    [
        (dict(requires_grad=["fc.wieght"]), "fc.wieght.*fc.weight"),
        (dict(requires_grad=[]), "no parameter is trained"),
        (dict(frozen_params=["fc.bias"]), "trained or frozen"),
        (dict(requires_grad="fc.bias"), "list of names"),
        (dict(loss="mse"), "loss is a str"),
        (dict(optimizer="adamw"), "optimizer is a str"),
        (dict(loss=None), "not one number"),
        (dict(loss=onnxblock.loss.MSELoss("none")), "not one number"),
        (dict(model=3), "model is a int"),
        (dict(ort_format=True), "ort_format"),
        (dict(custom_op_library="x.so"), "x.so"),
        (dict(model="nowhere.onnx"), "cannot read"),
        (dict(model=__file__), "not an ONNX model"),
        (dict(additional_output_names=["q"]), "no node"),
        (dict(artifact_directory=__file__), "cannot write"),
    ],
    ids=lambda value: re.sub(r" object at 0x\w+", "", str(value)),
)
def test_what_is_refused(kwargs, words, tmp_path):
    with pytest.raises((InputError, UnsupportedField), match=words) as e:
        artifacts.generate_artifacts(
            **dict(
                model=linear(),
                requires_grad=["fc.weight", "fc.bias"],
                loss=artifacts.LossType.MSELoss,
                artifact_directory=tmp_path,
            )
            | kwargs
        )
    assert e.value.where and e.value.remedy and list(tmp_path.iterdir()) == []
    with onnxblock.empty_base():
        pass  # a failure leaves no model open


def optimizer(block):
    with onnxblock.empty_base(opset_version=15):
        block(([numpy_helper.from_array(np.zeros(3, "f4"), "w")], []))
        return block.to_model_proto().SerializeToString()


def test_optimizer_models():
    o = onnxblock.optim
    close = pytest.approx
    a = read_optimizer_model(
        optimizer(
            o.AdamW(
                bias_correction=False,
                betas=(0.8, 0.9),
                eps=1e-3,
                weight_decay=0.5,
                clip_grad=o.ClipGradNorm(0.25),
            )
        )
    )
    assert (
        a.kind,
        a.betas,
        a.eps,
        a.weight_decay,
        a.correct_bias,
        a.adam_mode,
        a.max_norm,
        a.moments,
    ) == ("AdamW", close((0.8, 0.9)), close(1e-3), 0.5, False, 1, 0.25, ("momentum0", "momentum1"))
    assert (
        read_optimizer_model(optimizer(o.SGD())) == OptimizerInfo("SGD")
        and read_optimizer_model(optimizer(o.SGD(o.ClipGradNorm(2)))).max_norm == 2
    )
    with pytest.raises(InputError, match="no parameter"), onnxblock.empty_base():
        o.AdamW()(([], []))

    def edited(change):
        e = ModelEditor(optimizer(o.AdamW(clip_grad=o.ClipGradNorm(1.0))))
        change(e)
        return e.write()

    for change, kind in (
        (lambda e: e.graph.nodes.clear(), UnsupportedOp),
        (lambda e: e.graph.nodes.append(Node("Relu", ["a"], ["b"])), UnsupportedOp),
        (lambda e: e.graph.nodes.append(e.graph.nodes[1]), UnsupportedOp),
        (lambda e: e.graph.nodes[1].attrs.update(alpha="x"), ModelError),
        (lambda e: e.graph.nodes[1].attrs.update(alpha=2.0), ModelError),
        (lambda e: e.graph.nodes[1].attrs.update(adam_mode=7), UnsupportedOp),
        (lambda e: e.graph.nodes[0].attrs.update(max_norm=-1.0), ModelError),
        (lambda e: e.replace_input(e.graph.nodes[1], 3, "gradients"), UnsupportedOp),
    ):
        with pytest.raises(kind) as e:
            read_optimizer_model(edited(change))
        assert e.value.remedy


class WeightedAverageLoss(onnxblock.Block):
    """The custom loss of ONNX Runtime's documentation, which calls no super().__init__()."""

    def __init__(self):
        self._loss1, self._loss2 = onnxblock.loss.MSELoss(), onnxblock.loss.MSELoss()
        self._w1, self._w2 = onnxblock.blocks.Constant(0.4), onnxblock.blocks.Constant(0.6)
        self._add, self._mul = onnxblock.blocks.Add(), onnxblock.blocks.Mul()

    def build(self, loss_input_name1, loss_input_name2):
        return self._add(
            self._mul(self._w1(), self._loss1(loss_input_name1, target_name="target1")),
            self._mul(self._w2(), self._loss2(loss_input_name2, target_name="target2")),
        )


def test_the_documented_ways(tmp_path):
    """A loss of two outputs; a TrainingBlock and an optimizer used by hand, with every initializer
    said to be trained or frozen.
    """
    model = linear()
    model.graph.node.append(h.make_node("Reshape", ["y", "shape"], ["z"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1, 3]), "shape"))
    model.graph.output.append(h.make_tensor_value_info("z", T.FLOAT, ["n", 3]))
    info, _ = generate(model, tmp_path, loss=WeightedAverageLoss())
    assert info.inputs == ["x", "target1", "target2"]

    class Training(onnxblock.TrainingBlock):
        def __init__(self):
            super().__init__()
            self.loss = onnxblock.loss.CrossEntropyLoss()

        def build(self, name, *_):
            return self.loss(name), name

    block = Training()
    for t in model.graph.initializer:
        block.requires_grad(t.name, t.name == "fc.weight")
    with onnxblock.base(model) as accessor:
        block(*[o.name for o in model.graph.output])
        training, evaluation = block.to_model_proto()
        assert accessor.model == training
    with onnxblock.empty_base() as accessor:
        onnxblock.optim.AdamW(weight_decay=0.5)(block.parameters())
        assert read_optimizer_model(accessor.model.SerializeToString()).weight_decay == 0.5
    onnxblock.save_checkpoint(block.parameters(), tmp_path / "ck")
    c = read_checkpoint(tmp_path / "ck")
    assert (
        list(c.requires_grad) == ["fc.weight"]
        and list(c.frozen) == ["fc.bias", "shape"]
        and TrainingInfo.of(read_model(BytesSource(training.SerializeToString()))).frozen
        == ["fc.bias", "shape"]
    )
    loss, y = run(
        evaluation,
        {"x": np.ones((2, 4), "f4"), "labels": np.array([0, 1])}
        | {n: array(t) for n, t in c.parameters.items()},
    )
    np.testing.assert_allclose(
        loss, F.cross_entropy(torch.tensor(y), torch.tensor([0, 1])), rtol=1e-6
    )
