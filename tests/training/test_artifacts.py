"""generate_artifacts and its blocks: ONNX Runtime Training's names and files, its numbers, not its
traps.
"""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import edgewise
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from edgewise.errors import EdgewiseError, InputError, ModelError, UnsupportedField, UnsupportedOp
from edgewise.ir import Node
from edgewise.onnx import BytesSource, FileSource, ModelEditor, read_model
from edgewise.training import artifacts, onnxblock
from edgewise.training.artifact_files import KEY, OptimizerInfo, TrainingInfo, read_optimizer_model
from edgewise.training.odtc import read_checkpoint
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from .zoo import cases

CASES = sorted(cases().values())
LOSS = {
    "ce": artifacts.LossType.CrossEntropyLoss,
    "mse": artifacts.LossType.MSELoss,
    "bce": artifacts.LossType.BCEWithLogitsLoss,
}
rng = np.random.default_rng(0)


def array(t):
    return np.frombuffer(t.bytes(), {1: "f4", 7: "i8"}[t.dtype]).reshape(t.shape)


def info_of(path):
    return TrainingInfo.of(read_model(FileSource(path)))


def run(model, feeds):
    data = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feeds)


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


def linear(scores=("n", 3), weight="fc.weight", opset=17, **more):
    """y = x W + b."""
    graph = h.make_graph(
        [h.make_node("Gemm", ["x", weight, "fc.bias"], ["y"], transB=1)],
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, ["n", 4])],
        [h.make_tensor_value_info("y", T.FLOAT, list(scores))],
        [
            numpy_helper.from_array(rng.normal(size=(3, 4)).astype("f4"), weight),
            numpy_helper.from_array(rng.normal(size=3).astype("f4"), "fc.bias"),
        ],
        **more,
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=8)


def identity(shape, opset=17, kind=T.FLOAT):
    graph = h.make_graph(
        [h.make_node("Identity", ["x"], ["y"])],
        "g",
        [h.make_tensor_value_info("x", kind, shape)],
        [h.make_tensor_value_info("y", kind, shape)],
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=8)


class Forward(onnxblock.ForwardBlock):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def build(self, *names):
        return self.block(*names)


def forward(model, block, *names):
    with onnxblock.base(model):
        f = Forward(block)
        f(*(names or [o.name for o in model.graph.output]))
    return f.to_model_proto()


X, TARGET = rng.normal(size=(5, 3)).astype("f4") * 3, rng.uniform(size=(5, 3)).astype("f4")
W, P = rng.uniform(0.5, 2, size=3).astype("f4"), rng.uniform(0.5, 2, size=3).astype("f4")
F = torch.nn.functional


@pytest.mark.parametrize("opset", [11, 13, 15, 18, 21])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    "make, theirs",
    [
        (lambda r: onnxblock.loss.MSELoss(r), lambda x, t, r: F.mse_loss(x, t, reduction=r)),
        (
            lambda r: onnxblock.loss.L1Loss(reduction=r),
            lambda x, t, r: F.l1_loss(x, t, reduction=r),
        ),
        (
            lambda r: onnxblock.loss.BCEWithLogitsLoss(reduction=r),
            lambda x, t, r: F.binary_cross_entropy_with_logits(x, t, reduction=r),
        ),
        (
            lambda r: onnxblock.loss.BCEWithLogitsLoss(W, r, P),
            lambda x, t, r: F.binary_cross_entropy_with_logits(
                x, t, torch.tensor(W), reduction=r, pos_weight=torch.tensor(P)
            ),
        ),
    ],
    ids=["mse", "l1", "bce", "bce_weighted"],
)
def test_losses(make, theirs, reduction, opset):
    (got,) = run(forward(identity(["n", 3], opset), make(reduction)), {"x": X, "target": TARGET})
    np.testing.assert_allclose(
        got, theirs(torch.tensor(X), torch.tensor(TARGET), reduction).numpy(), rtol=2e-6, atol=1e-6
    )


def test_binary_cross_entropy_does_not_overflow():
    x, t = np.array([[200, -200, 200, -200, 0]], "f4"), np.array([[1, 0, 0, 1, 0.5]], "f4")
    (got,) = run(
        forward(identity([1, 5]), onnxblock.loss.BCEWithLogitsLoss(reduction="none")),
        {"x": x, "target": t},
    )
    np.testing.assert_allclose(got, [[0, 0, 200, 200, np.log(2)]], rtol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    "kwargs",
    [{}, {"weight": W}, {"weight": list(map(float, W)), "ignore_index": -100}, {"ignore_index": 1}],
    ids=["plain", "weight", "weight_ignore", "ignore"],
)
def test_cross_entropy(kwargs, reduction):
    labels = np.array([0, 2, 1, 1, 0])
    if kwargs.get("ignore_index") == -100:
        labels[1] = -100
    (got,) = run(
        forward(identity(["n", 3]), onnxblock.loss.CrossEntropyLoss(reduction=reduction, **kwargs)),
        {"x": X, "labels": labels},
    )
    want = F.cross_entropy(
        torch.tensor(X),
        torch.tensor(labels),
        None if "weight" not in kwargs else torch.tensor(W),
        reduction=reduction,
        ignore_index=kwargs.get("ignore_index", -100),
    )
    np.testing.assert_allclose(got, want.numpy(), rtol=2e-6)


def test_cross_entropy_of_sequences_and_of_pictures():
    x, labels = rng.normal(size=(2, 5, 3)).astype("f4"), rng.integers(0, 3, (2, 5))
    want = F.cross_entropy(torch.tensor(x).reshape(-1, 3), torch.tensor(labels).reshape(-1))
    model = forward(identity(["n", "length", 3]), onnxblock.loss.CrossEntropyLoss())
    assert [
        [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim]
        for i in model.graph.input
    ] == [["n", "length", 3], ["n", "length"]]
    np.testing.assert_allclose(run(model, {"x": x, "labels": labels})[0], want, rtol=2e-6)
    picture, labels = rng.normal(size=(2, 3, 4, 5)).astype("f4"), rng.integers(0, 3, (2, 4, 5))
    base = identity([2, 3, 4, 5])
    base.graph.input.append(h.make_tensor_value_info("mask", T.INT64, [2, 4, 5]))
    (got,) = run(
        forward(base, onnxblock.loss.CrossEntropyLoss(), "y", "mask"),
        {"x": picture, "mask": labels},
    )
    np.testing.assert_allclose(
        got, F.cross_entropy(torch.tensor(picture), torch.tensor(labels)), rtol=2e-6
    )
    artifacts_opset11 = linear(opset=11)
    with pytest.raises(InputError, match="operator set 11"):
        forward(artifacts_opset11, onnxblock.loss.CrossEntropyLoss())


def test_blocks(tmp_path):
    b = onnxblock.blocks

    class All(onnxblock.ForwardBlock):
        def build(self, x):
            y = b.Add()(b.Sub()(b.Mul()(b.Div()(x, b.Constant(2.0)()), x), b.Neg()(x)), b.Abs()(x))
            y = b.Log()(b.Sigmoid()(b.Pow(2.0)(y)))
            z = b.Linear(3, 2)(b.Clip(-0.5, 0.5)(y))
            return (
                y,
                b.ReduceMean()(z),
                b.ReduceSum(keepdims=False)(z),
                b.Cast(T.INT64)(x),
                b.Linear(3, 1, bias=False, alpha=0.5)(x),
                b.Clip(clip_max=1)(x),
                b.PassThrough()(x)[0],
            )

    with onnxblock.base(identity(["n", 3])) as handle:
        f = All()
        f("y")
        assert handle.has_path is False and len(handle.model.graph.output) == 7
    y, mean, total, cast, scaled, clipped, same = run(f.to_model_proto(), {"x": X})
    np.testing.assert_allclose(
        y, np.log(1 / (1 + np.exp(-((X / 2 * X + X + abs(X)) ** 2)))), rtol=1e-4, atol=1e-6
    )
    assert (
        mean.shape == (1, 1)
        and total.shape == ()
        and total == pytest.approx(mean[0, 0] * 10, rel=1e-4)
        and np.array_equal(cast, X.astype("i8"))
        and scaled.shape == (5, 1)
    )
    assert np.array_equal(clipped, np.minimum(X, 1)) and np.array_equal(same, X)
    m = forward(
        identity([2], kind=T.INT64), b.LabelEncoder(keys_int64s=[1, 2], values_int64s=[10, 20])
    )
    assert run(m, {"x": np.array([2, 1])})[0].tolist() == [20, 10]
    with onnxblock.base(identity(["n", 3])) as handle:
        assert (
            b.InputLike("x")("z") == "z"
            and handle.model.graph.input[1].type == handle.model.graph.input[0].type
            and b.InputLike("y")() == handle.model.graph.input[2].name
        )
        with pytest.raises(LookupError, match="'q' is no graph input"):
            b.InputLike("q")()
        b.ReduceAllL2()("x", "y")
    with onnxblock.empty_base() as handle:
        handle.model.graph.input.append(h.make_tensor_value_info("x", T.FLOAT, [1]))
        b.SequenceConstruct()("x", "x")
        with (
            pytest.raises(RuntimeError, match="another model is open"),
            onnxblock.base(identity([1])),
        ):
            pass
    for wrong in (
        lambda: b.Add()("a", "b"),
        lambda: Forward(b.Neg()).to_model_proto(),
        lambda: onnxblock.loss.MSELoss("max"),
        lambda: onnxblock.base(None).__enter__(),
        lambda: onnxblock.save_checkpoint(None, "x"),
    ):
        with pytest.raises(RuntimeError) as e:
            wrong()
        assert isinstance(e.value, InputError) and e.value.remedy


def generate(
    model,
    directory,
    requires_grad=("fc.weight", "fc.bias"),
    loss=artifacts.LossType.MSELoss,
    **kwargs,
):
    artifacts.generate_artifacts(
        model, list(requires_grad), loss=loss, artifact_directory=directory, **kwargs
    )
    return info_of(directory / "training_model.onnx"), read_checkpoint(directory / "checkpoint")


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
    ids=str,
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


def norms(trained_mode=False, opset=15):
    """x -> BatchNormalization twice, whose equal parameters the exporter merged: scale with
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


def test_damaged_metadata(tmp_path):
    generate(linear(), tmp_path)
    good = json.loads(read_model(FileSource(tmp_path / "training_model.onnx")).metadata[KEY])

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


def test_without_the_onnx_package():
    """The modules are imported, and say what is missing when it is needed."""
    script = """
import sys
sys.modules["onnx"] = None
from edgewise.training import artifacts, onnxblock
from edgewise.training.artifact_files import read_optimizer_model
try:
    artifacts.generate_artifacts("model.onnx")
except artifacts.InputError as e:
    print(e)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(Path(edgewise.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert "pip install onnx" in done.stdout, done.stderr
    assert issubclass(InputError, EdgewiseError)


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
