"""edgewise.page, which a page's compiler calls: a missing file is reported by its name, which the
page fetches before it asks again.
"""

import json

import numpy as np
import pytest
from edgewise.page import run
from onnx import TensorProto, helper

EXTERNAL = "folder/weights of 'a'.bin"


class Blob:
    """What a page passes for each file."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)

    def read(self, offset, size):
        return self.data[offset : offset + size]


@pytest.fixture
def model():
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    w.data_location = TensorProto.EXTERNAL
    for key, value in (("location", EXTERNAL), ("offset", "0"), ("length", "16")):
        w.external_data.add(key=key, value=value)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [w])
    opset = [helper.make_opsetid("", 17)]
    return Blob(helper.make_model(graph, opset_imports=opset).SerializeToString())


def ask(files):
    return run(files, json.dumps({"of": "inference", "call": "open", "model_file": "model.onnx"}))


def test_the_missing_file_is_named(model):
    kind, what, where, _, missing = ask({"model.onnx": model})
    assert (kind, missing) == ("ModelError", [EXTERNAL])
    assert EXTERNAL in what and where == "model.onnx"
    answer, files = ask({"model.onnx": model, EXTERNAL: Blob(np.ones(4, "f4").tobytes())})
    assert [i["name"] for i in json.loads(answer)["inputs"]] == ["x"] and not files


def test_other_errors_name_no_file():
    assert ask({"model.onnx": Blob(b"external data file 'x' is missing")})[4] is None
