"""Muon compared with torch.optim.Muon: matrices by Muon, biases by AdamW, from the same initial
values on the same data.
"""

import io

import numpy as np
import onnx
import pytest
import torch
from edgewise.errors import InputError
from edgewise.onnx import as_source, read_model
from edgewise.training import Muon, Program, TrainingSession

WIDTHS = (24, 40, 16, 8)  # a matrix of each kind: wide, tall
BATCH = 32


def mlp():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        *[m for a, b in zip(WIDTHS, WIDTHS[1:]) for m in (torch.nn.Linear(a, b), torch.nn.Tanh())][
            :-1
        ]
    )


def model_of(net):
    g, x = [], "x"
    constants = [
        onnx.numpy_helper.from_array(p.detach().numpy().copy(), n)
        for n, p in net.named_parameters()
    ]
    for i, m in enumerate(net):
        y = f"y{i}" if i < len(net) - 1 else "y"
        g.append(
            onnx.helper.make_node("Gemm", [x, f"{i}.weight", f"{i}.bias"], [y], transB=1)
            if isinstance(m, torch.nn.Linear)
            else onnx.helper.make_node("Tanh", [x], [y])
        )
        x = y
    f = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        g,
        "mlp",
        [onnx.helper.make_tensor_value_info("x", f, [BATCH, WIDTHS[0]])],
        [onnx.helper.make_tensor_value_info("y", f, [BATCH, WIDTHS[-1]])],
        constants,
    )
    out = io.BytesIO()
    onnx.save(
        onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
        ),
        out,
    )
    return read_model(as_source(out.getvalue()))


@pytest.mark.parametrize("adjust", ["match_rms_adamw", None])
@pytest.mark.parametrize("nesterov", [True, False])
def test_trajectory(engine, monkeypatch, adjust, nesterov):
    monkeypatch.setattr(
        torch.Tensor, "bfloat16", torch.Tensor.clone
    )  # PyTorch's iterations in float32, as ours
    net, rng = mlp(), np.random.default_rng(0)
    program = Program(
        model_of(net),
        {"x": [BATCH, WIDTHS[0]]},
        loss="mse",
        optimizer=Muon(nesterov=nesterov, adjust_lr_fn=adjust),
        max_grad_norm=0.5,
        groups=[("*.bias", {"optimizer": "AdamW", "weight_decay": 0.0, "lr_scale": 0.5})],
    )
    session = TrainingSession(program, engine)
    muon = torch.optim.Muon(
        [p for p in net.parameters() if p.dim() == 2],
        lr=0.02,
        nesterov=nesterov,
        adjust_lr_fn=adjust,
    )
    adamw = torch.optim.AdamW(
        [p for p in net.parameters() if p.dim() == 1], lr=0.01, weight_decay=0.0
    )
    try:
        for _ in range(10):
            x, y = (
                rng.standard_normal((BATCH, WIDTHS[0]), np.float32),
                rng.standard_normal((BATCH, WIDTHS[-1]), np.float32),
            )
            got = float(session.train({"x": x, "labels": y}, 0.02)["loss"])
            loss = torch.nn.functional.mse_loss(net(torch.from_numpy(x)), torch.from_numpy(y))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            for o in (muon, adamw):
                o.step()
                o.zero_grad()
            assert got == pytest.approx(loss.item(), rel=1e-4)
        for name, p in net.named_parameters():
            np.testing.assert_allclose(
                np.asarray(session.get(name)), p.detach().numpy(), rtol=0, atol=1e-4, err_msg=name
            )
    finally:
        session.free()


def test_only_matrices(engine):
    program = Program(model_of(mlp()), {"x": [BATCH, WIDTHS[0]]}, loss="mse", optimizer="Muon")
    with pytest.raises(InputError, match=r"'0.bias'.*\[40\]"):
        TrainingSession(program, engine).initialize()
