"""Programs for all lengths of a range whose padding is a quotient that floats round, as exporters
of PyTorch write `math.ceil`, against onnxruntime.
"""

import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise.compiler.compile.programs import Programs
from edgewise.compiler.declare.registers import Registers
from edgewise.compiler.onnx import read_model
from edgewise.host.session.packaged import ProgramSession
from edgewise.onnx import BytesSource
from edgewise.package import Package

GRAPH = """
    <ir_version: 8, opset_import: ["": 17]>
    rounded (float[1, 1, n] x) => (float[1, 1, m] y)
    <int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, float[1] half = {0.5},
     float[1] four = {4.0}, int64[1] four_ = {4}, int64[5] before = {0, 0, 3, 0, 0}>
    {
        shape = Shape(x)
        n_ = Slice(shape, two, three)
        more = Add(n_, one)
        wide = Cast <to = 1>(more)
        part = Div(wide, four)
        above = Add(part, half)
        up = ROUND(above)
        whole = Cast <to = 7>(up)
        total = Mul(whole, four_)
        longer = Add(total, four_)
        after = Sub(longer, n_)
        pads = Concat <axis = 0>(before, after)
        y = Pad <mode = "MODE">(x, pads)
    }
"""


@pytest.mark.parametrize("rounding", ["Ceil", "Floor", "Identity"])
@pytest.mark.parametrize("mode", ["edge", "reflect", "constant"])
def test_padding_up_to_a_multiple(mode, rounding):
    text = GRAPH.replace("MODE", mode).replace("ROUND", rounding)
    model = onnx.parser.parse_model(text).SerializeToString()
    source = BytesSource(model, "model.onnx")
    programs = Programs("codec", {"model.onnx": source}, {})
    n = Registers([(12, 100)]).length(0)
    programs.add("model", read_model(source), [({"x": [1, 1, n]}, None)])
    package = programs.package
    assert isinstance(package, Package)
    session, theirs = ProgramSession(package, "model"), onnxruntime.InferenceSession(model)
    for count in (12, 13, 14, 15, 16, 59, 100):
        x = np.arange(count, dtype="f4").reshape(1, 1, count)
        (found,), (expected,) = session.run(["y"], {"x": x}), theirs.run(None, {"x": x})
        assert np.array_equal(np.asarray(found), expected)
    session.free()
