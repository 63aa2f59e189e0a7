"""The second part of a model behind the server: tensors there and back as safetensors."""

import http.client
import json

import numpy as np
import onnx
import onnxruntime
import pytest
from safetensors.numpy import load, save

from . import environment  # noqa: F401

pytest.importorskip("uvicorn")

FEEDS = {
    "input_ids": np.array([[2, 30, 31, 3], [2, 40, 3, 0]], np.int64),
    "attention_mask": np.array([[1, 1, 1, 1], [1, 1, 1, 0]], np.int64),
    "token_type_ids": np.zeros((2, 4), np.int64),
}


def run(path, feeds):
    session = onnxruntime.InferenceSession(str(path))
    names = [o.name for o in session.get_outputs()]
    given = {i.name: feeds[i.name] for i in session.get_inputs()}
    return dict(zip(names, session.run(names, given)))


@pytest.fixture(scope="module")
def parts(encoder, tmp_path_factory):
    """A BERT that is split after its first layer. The mask goes around it: the error names it."""
    from edgewise.compiler.compile.halves import split_file
    from edgewise.errors import InputError

    folder, path = tmp_path_factory.mktemp("parts"), encoder / "onnx/model.onnx"
    norms = [
        n.output[0]
        for n in onnx.load(path).graph.node
        if "layer.0/output/LayerNorm" in n.name and n.op_type != "Constant"
    ]
    with pytest.raises(InputError, match="would cross as well: ") as e:
        split_file(path, norms[-1:], folder)
    more = str(e.value).partition("as well: ")[2].partition(". Add")[0].split(", ")
    found = split_file(path, [norms[-1], *more], folder)
    assert norms[-1] in found.crossing and not found.shared
    return folder


@pytest.fixture(scope="module")
def server(parts):
    from edgewise.extras.serve.catalog import Catalog
    from edgewise.extras.serve.launch import Server
    from edgewise.extras.serve.options import Limits, ServeOptions

    catalog = Catalog({}, parts={"bert": str(parts / "second.onnx")})
    with Server(catalog, ServeOptions(port=0, limits=Limits(tensors=100_000))) as server:
        yield server


def send(server, body, name="bert", kind="application/octet-stream"):
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", f"/v1/split/{name}", body, {"Content-Type": kind})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data


def test_both_parts_are_the_whole(server, parts, encoder):
    first = run(parts / "first.onnx", FEEDS)
    status, data = send(server, save(first))
    assert status == 200
    whole = run(encoder / "onnx/model.onnx", FEEDS)["last_hidden_state"]
    np.testing.assert_allclose(load(data)["last_hidden_state"], whole, atol=2e-5)


def test_refused(server, parts):
    first = run(parts / "first.onnx", FEEDS)
    name = next(n for n, x in first.items() if x.dtype == np.float32 and x.ndim == 3)
    good = save(first)
    for body, status, words in (
        (b"", 400, "no safetensors file"),
        (good[:-1], 400, "no safetensors file"),
        (b"\xff" * 100, 400, "no safetensors file"),
        (save({k: v for k, v in first.items() if k != name}), 400, "there is no tensor"),
        (save({**first, "more": np.zeros(1)}), 400, "no input 'more'"),
        (save({**first, name: first[name].astype(np.float64)}), 400, name),
        (save({**first, name: first[name][0]}), 400, name),
        (save({**first, name: np.zeros((2, 4, 33), np.float32)}), 400, ""),
        (bytes(200_000), 413, "100000 bytes"),
    ):
        found, data = send(server, body)
        error = json.loads(data)["error"]
        assert found == status and words in error["message"], error
    assert send(server, good, "x")[0] == 404
    assert send(server, good, kind="text/plain")[0] == 415
    assert send(server, good)[0] == 200
