"""What a model's file says about the model, in packages and in a page's session.
test_models.py compares `get_modelmeta` with onnxruntime.
"""

import io
import json

import numpy as np
import onnx
import pytest
from edgewise.compiler.compile import compile_inference
from edgewise.errors import ModelError, PackageError
from edgewise.host.session.inference_calls import call
from edgewise.onnx import as_source, read_model
from edgewise.package import Package
from engines.page_session import PageSession
from onnx import TensorProto, helper

SAID = {
    "producer_name": "exporter",
    "graph_name": "g",
    "domain": "org.example",
    "description": "what it does",
    "graph_description": "its graph",
    "version": str(2**60 + 1),
    "custom_metadata_map": {"names": "{0: 'cat', 1: 'dög'}", "stride": "32", "empty": ""},
}


def model(plain=False):
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", value[:1], value[1:])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if not plain:
        m.producer_name, m.domain, m.doc_string = "exporter", "org.example", "what it does"
        m.model_version, m.graph.doc_string = 2**60 + 1, "its graph"
        helper.set_model_props(m, SAID["custom_metadata_map"])
    return m


def files(m):
    return {"model.onnx": as_source(m.SerializeToString())}


def written(package):
    out = io.BytesIO()
    package.write(out)
    return out.getvalue()


def test_package():
    package = compile_inference(files(model()))
    read = Package.read(as_source(written(package)))
    assert read.manifest["inference"]["metadata"] == SAID
    assert compile_inference(files(model(True))).manifest["inference"]["metadata"] == {
        "graph_name": "g"
    }


def test_session_of_a_page():
    answer, _ = call(files(model()), {"call": "open", "model_file": "model.onnx"})
    assert json.loads(answer)["metadata"] == SAID


def test_page():
    """Also at the second visit, from the page's own storage."""
    data = model().SerializeToString()
    for _ in range(2):
        page = PageSession(data, cache=True)
        assert page.info["metadata"] == {
            "producerName": "exporter",
            "graphName": "g",
            "domain": "org.example",
            "description": "what it does",
            "graphDescription": "its graph",
            "version": SAID["version"],
            "customMetadataMap": SAID["custom_metadata_map"],
        }
        page.run(None, {"x": np.float32([1, 2])})


@pytest.mark.parametrize(
    "metadata",
    [
        3,
        [],
        {"domain": 3},
        {"custom_metadata_map": []},
        {"custom_metadata_map": {"k": None}},
        {"description": "x" * ((1 << 20) + 1)},
        {"version": 5},
    ],
    ids=lambda v: str(v)[:40],
)
def test_damaged_package(metadata):
    package = compile_inference(files(model()))
    package.manifest["inference"]["metadata"] = metadata
    with pytest.raises(PackageError, match="metadata"):
        Package.read(as_source(written(package)))


def test_texts_that_are_not_utf8_or_long():
    """A description is no reason to refuse a model; a damaged key or text of its metadata is."""
    m = model()
    m.doc_string = "A" * 70
    data = m.SerializeToString().replace(b"A" * 70, b"\xff" * 70)
    assert read_model(as_source(data)).about.description == "\ufffd" * 70
    m.graph.doc_string = "x" * (3 << 20)
    about = read_model(as_source(m.SerializeToString())).about
    assert about.graph_description == "x" * (1 << 20) and about.version == 2**60 + 1
    helper.set_model_props(m, {"key": "B" * 70})
    with pytest.raises(ModelError, match="UTF-8"):
        read_model(as_source(m.SerializeToString().replace(b"B" * 70, b"\xff" * 70)))
    assert isinstance(m, onnx.ModelProto)
