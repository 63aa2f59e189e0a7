"""Losses of Trainer against PyTorch."""

import edgewise
import numpy as np
import onnx
import pytest
import torch
from edgewise.compiler.training import losses
from edgewise.errors import InputError
from onnx import helper as h

from .models import net, rows, tensors

# ---- losses ----
WEIGHT = [0.2, 1.0, 3.0, 0.5]


LOSSES = [
    ("cross_entropy", torch.nn.CrossEntropyLoss(), "classes"),
    (
        losses.CrossEntropyLoss(label_smoothing=0.1),
        torch.nn.CrossEntropyLoss(label_smoothing=0.1),
        "classes",
    ),
    (
        losses.CrossEntropyLoss(weight=WEIGHT),
        torch.nn.CrossEntropyLoss(torch.tensor(WEIGHT)),
        "classes",
    ),
    (
        losses.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.3, ignore_index=2),
        torch.nn.CrossEntropyLoss(torch.tensor(WEIGHT), label_smoothing=0.3, ignore_index=2),
        "classes",
    ),
    (
        losses.CrossEntropyLoss(reduction="sum"),
        torch.nn.CrossEntropyLoss(reduction="sum"),
        "classes",
    ),
    ("mse", torch.nn.MSELoss(), "numbers"),
    (losses.MSELoss(reduction="sum"), torch.nn.MSELoss(reduction="sum"), "numbers"),
    ("l1", torch.nn.L1Loss(), "numbers"),
    ("huber", torch.nn.HuberLoss(), "numbers"),
    (losses.HuberLoss(delta=0.3), torch.nn.HuberLoss(delta=0.3), "numbers"),
    ("bce_with_logits", torch.nn.BCEWithLogitsLoss(), "probabilities"),
    (
        losses.BCEWithLogitsLoss(pos_weight=2.5),
        torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.5)),
        "probabilities",
    ),
]


@pytest.mark.parametrize("ours, theirs, kind", LOSSES, ids=lambda x: str(x)[:60])
def test_losses(ours, theirs, kind, engine):
    """Ten steps of SGD: the losses of PyTorch."""
    model, module = net()
    batch = rows(8, kind=kind)
    t = edgewise.Trainer(
        model, loss=ours, optimizer="SGD", learning_rate=0.02, batch_size=8, engine=engine
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02)
    x, y = tensors(batch)
    for _ in range(10):
        optimizer.zero_grad()
        loss = theirs(module(x), y)
        loss.backward()
        optimizer.step()
        assert t.step(batch) == pytest.approx(loss.item(), rel=1e-4)
    t.free()


def test_large_logits_stay_finite():
    """BCE and its gradient at logits where log(sigmoid) is infinite."""
    model, module = net()
    with torch.no_grad():
        module[2].bias += torch.tensor([200.0, -200.0, 90.0, 0.0])
    g = onnx.load_from_string(model)
    next(i for i in g.graph.initializer if i.name == "2.bias").CopyFrom(
        onnx.numpy_helper.from_array(module[2].bias.detach().numpy(), "2.bias")
    )
    batch = rows(8, kind="probabilities")
    t = edgewise.Trainer(
        g.SerializeToString(),
        loss="bce_with_logits",
        optimizer="SGD",
        learning_rate=0.1,
        batch_size=8,
    )
    x, y = tensors(batch)
    assert t.step(batch) == pytest.approx(
        torch.nn.functional.binary_cross_entropy_with_logits(module(x), y).item(), rel=1e-5
    )
    assert np.isfinite(t.step(batch))
    t.free()


def test_losses_of_ones_own():
    """A function that composes ONNX operators; an output of the model that is a loss; several
    outputs.
    """

    def loss(g, outputs, fed):
        d = g.sub(outputs["y"], fed["goal"])
        return g.op(
            "ReduceMean",
            g.op(
                "Mul",
                g.op("Exp", fed["weights"]),
                g.op("ReduceSum", g.mul(d, d), g.ints([1]), keepdims=0),
            ),
            keepdims=0,
        )

    model, module = net()
    b = rows(8, kind="numbers")
    batch = {"x": b["x"], "goal": b["labels"], "weights": np.linspace(-1, 1, 8).astype("f4")}
    t = edgewise.Trainer(
        model,
        loss=losses.FunctionLoss(loss, {"goal": (1, [8, 4]), "weights": (1, [8])}),
        optimizer="SGD",
        learning_rate=0.01,
        batch_size=8,
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        want = (
            torch.tensor(batch["weights"]).exp()
            * ((module(torch.tensor(b["x"])) - torch.tensor(b["labels"])) ** 2).sum(1)
        ).mean()
        want.backward()
        optimizer.step()
        assert t.step(batch) == pytest.approx(want.item(), rel=1e-4)
    t.free()
    g = onnx.load_from_string(model)
    g.graph.node.append(h.make_node("ReduceL2", ["y"], ["norm"], keepdims=0))
    g.graph.output.append(h.make_tensor_value_info("norm", 1, []))
    t = edgewise.Trainer(
        g.SerializeToString(), loss="output:norm", batch_size=8, learning_rate=1e-2
    )
    values = [t.step({"x": b["x"]}) for _ in range(5)]
    assert values == sorted(values, reverse=True)
    t.free()
    for bad, words in (
        ("output:none", "no output 'none'"),
        ("output:y", "not a scalar"),
        ("msee", "no loss 'msee'"),
        (losses.MSELoss(reduction="none"), "one number"),
        (losses.CrossEntropyLoss(label_smoothing=2), "not in"),
        (3, "not a loss"),
    ):
        with pytest.raises(InputError, match=words):
            edgewise.Trainer(model, loss=bad, batch_size=8).estimate(b)


def test_loss_that_is_a_model():
    """A loss from an ONNX file with its own opset and a constant with the name of a parameter,
    applied to the model's output.
    """
    scale = np.array([0.5, 1, 2, 3], "f4")
    nodes = [
        h.make_node("Sub", ["y", "goal"], ["d"]),
        h.make_node("Mul", ["d", "0.bias"], ["s"]),
        h.make_node("ReduceSumSquare", ["s"], ["squares"], axes=[1], keepdims=0),
        h.make_node("ReduceMean", ["squares"], ["loss"], keepdims=0),
    ]
    g = h.make_graph(
        nodes,
        "loss",
        [h.make_tensor_value_info("y", 1, ["n", 4]), h.make_tensor_value_info("goal", 1, ["n", 4])],
        [h.make_tensor_value_info("loss", 1, [])],
        [onnx.numpy_helper.from_array(scale, "0.bias")],
    )
    file = h.make_model(g, opset_imports=[h.make_opsetid("", 13)], ir_version=8).SerializeToString()
    model, module = net()
    b = rows(8, kind="numbers")
    with pytest.raises(InputError, match="shapes="):
        edgewise.Trainer(model, loss=losses.GraphLoss(file), batch_size=8).estimate({"x": b["x"]})
    t = edgewise.Trainer(
        model,
        loss=losses.GraphLoss(file, {"goal": [8, 4]}),
        optimizer="SGD",
        learning_rate=0.01,
        batch_size=8,
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        want = (
            (
                ((module(torch.tensor(b["x"])) - torch.tensor(b["labels"])) * torch.tensor(scale))
                ** 2
            )
            .sum(1)
            .mean()
        )
        want.backward()
        optimizer.step()
        assert t.step({"x": b["x"], "goal": b["labels"]}) == pytest.approx(want.item(), rel=1e-4)
    t.free()
