"""What the backward part computes again, and what it need not: plans of small steps."""

from collections import Counter

import numpy as np
import pytest
from edgewise.onnx import as_source, read_model
from edgewise.training.losses import MSELoss
from edgewise.training.optimizers import SGD
from edgewise.training.peft import LoraConfig
from edgewise.training.program import Program
from onnx import TensorProto, helper, numpy_helper

R = np.random.default_rng(0)


def gated_block():
    """y = x + (SiLU(x G) * (x U)) D, the last so that the gradient of y is wanted for more than
    D.
    """
    shapes = {"G": (16, 40), "U": (16, 40), "D": (40, 16), "O": (16, 16)}
    nodes = [
        ("MatMul", "x O", "h"),
        ("MatMul", "h G", "g"),
        ("Sigmoid", "g", "s"),
        ("Mul", "g s", "a"),
        ("MatMul", "h U", "u"),
        ("Mul", "a u", "m"),
        ("MatMul", "m D", "d"),
        ("Add", "h d", "y"),
    ]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 7, 16]) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node(op, i.split(), [o], o) for op, i, o in nodes],
        "block",
        info[:1],
        info[1:],
        [
            numpy_helper.from_array(R.standard_normal(s, np.float32) * 0.3, n)
            for n, s in shapes.items()
        ],
    )
    return read_model(
        as_source(
            helper.make_model(
                graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
            ).SerializeToString()
        )
    )


@pytest.mark.parametrize("lora", (False, True))
def test_gates(lora):
    """The gradients of a gate compute its output, which the weight after it uses: the gate runs
    once.
    """
    adapters = (
        {"lora": LoraConfig(r=4, target_modules=["h", "g", "u", "d"]), "trainable": []}
        if lora
        else {}
    )
    plan = Program(
        gated_block(), {"x": [4, 7, 16]}, loss=MSELoss(), optimizer=SGD(), **adapters
    ).plan("train")
    count = Counter(plan.kernels)
    assert (
        count["gated_grad"] == 1
        and plan.notes.op.count("SiLUMul") == 1
        and "Sigmoid" not in plan.notes.op
    ), Counter(plan.notes.op)
