"""Sines and cosines on a GPU, of which tables of rotary positions are made: those of WGSL are
inexact, and wrong for large angles. Against NumPy in float64.
"""

import edgewise
import numpy as np
import pytest
from onnx import helper

from .adapters import LIBRARIES, gpu


@pytest.mark.parametrize("library", LIBRARIES)
def test_angles(library):
    turns = [x * np.pi / 2 for x in (1, 2, 3, 1000, 1e6)]
    found = [np.linspace(-most, most, 1001) for most in (1e-3, 4, 100, 4096, 131072, 1e9, 3e38)]
    x = np.concatenate([*found, turns, [0, np.inf, -np.inf, np.nan]]).astype(np.float32)
    info = [helper.make_tensor_value_info(name, 1, x.shape) for name in ("x", "Sin", "Cos")]
    nodes = [helper.make_node(name, ["x"], [name]) for name in ("Sin", "Cos")]
    model = helper.make_model(
        helper.make_graph(nodes, "angles", info[:1], info[1:]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    session = edgewise.InferenceSession(model.SerializeToString(), engine=gpu(library))
    got = session.run(None, {"x": x})
    session.free()
    with np.errstate(invalid="ignore"):
        expected = [f(x.astype(np.float64)) for f in (np.sin, np.cos)]
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-7)
