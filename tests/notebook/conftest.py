"""Pyodide in Node with the wheel that `make wheel` builds and without NumPy; small models."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import textwrap
import threading
from pathlib import Path

import pytest
from zoo.zoo import folder as zoo_folder

ROOT = Path(__file__).parents[2]
PYODIDE = ROOT / "web/node_modules/pyodide"


@pytest.fixture(scope="session")
def wheel():
    """Path of the wheel for Pyodide; EDGEWISE_WHEEL overrides it."""
    if os.environ.get("EDGEWISE_WHEEL"):
        return Path(os.environ["EDGEWISE_WHEEL"])
    found = sorted(
        (ROOT / "dist").glob("edgewise-*-py3-none-any.whl"), key=lambda p: p.stat().st_mtime
    )
    assert found, "dist/ has no py3-none-any wheel: run `make wheel`"
    return found[-1]


@pytest.fixture(scope="session")
def pyodide_folder():
    assert (PYODIDE / "pyodide.mjs").exists(), "web/node_modules has no pyodide: run `make web`"
    return PYODIDE


@pytest.fixture(scope="session")
def zoo():
    """Folder of the model zoo; skips the test if there is none."""
    found = zoo_folder()
    if found is None:
        pytest.skip("the zoo is not there (set EDGEWISE_ZOO, or put it at ../shared/zoo)")
    return found


class Pyodide:
    """A Pyodide in Node.

    run(code) returns the variable `result` of the code (JSON); an exception fails the test with its
    traceback. put(name, bytes) writes a file, which the code sees as /work/NAME.
    """

    def __init__(self, pyodide, wheel, folder):
        self.folder, self.lines = folder, queue.Queue()
        self.errors = open(folder / "stderr", "wb")
        zoo = zoo_folder()
        self.process = subprocess.Popen(
            [
                "node",
                str(Path(__file__).parent / "host.mjs"),
                str(pyodide),
                str(wheel),
                str(folder),
                *([str(zoo)] if zoo else []),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()
        self.version = self._answer(120)["version"]

    def _listen(self):
        for line in self.process.stdout:
            if line.startswith("@"):
                self.lines.put(json.loads(line[1:]))
        self.lines.put(None)

    def _answer(self, timeout):
        try:
            answer = self.lines.get(timeout=timeout)
        except queue.Empty:
            self.process.kill()
            pytest.fail(f"Pyodide gave no answer in {timeout} s")
        if answer is None:
            pytest.fail(
                "Pyodide ended: "
                + (self.folder / "stderr").read_bytes().decode(errors="replace")[-2000:]
            )
        if "error" in answer:
            pytest.fail("in Pyodide:\n" + answer["error"], pytrace=False)
        return answer

    def put(self, name, data):
        (self.folder / name).write_bytes(data)
        return "/work/" + name

    def run(self, code, timeout=500, **names):
        """names: variables of the code (JSON values)."""
        given = "".join(
            f"{k} = __import__('json').loads({json.dumps(v)!r})\n" for k, v in names.items()
        )
        self.process.stdin.write(json.dumps(given + textwrap.dedent(code)) + "\n")
        self.process.stdin.flush()
        return self._answer(timeout).get("result")

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.errors.close()


@pytest.fixture(scope="session")
def pyodide(pyodide_folder, wheel, tmp_path_factory):
    p = Pyodide(pyodide_folder, wheel, tmp_path_factory.mktemp("pyodide"))
    yield p
    p.close()


@pytest.fixture
def fresh_pyodide(pyodide_folder, wheel, tmp_path):
    """A Pyodide without imported modules."""
    p = Pyodide(pyodide_folder, wheel, tmp_path)
    yield p
    p.close()


@pytest.fixture(scope="session")
def mlp():
    """(model bytes, input, expected output): y = relu(x @ w + b) for any batch size."""
    onnx = pytest.importorskip("onnx")
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(3)
    w, b = (
        rng.standard_normal((64, 40)).astype("float32"),
        rng.standard_normal(40).astype("float32"),
    )
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"], name="first"),
            helper.make_node("Add", ["xw", "b"], ["a"]),
            helper.make_node("Relu", ["a"], ["y"]),
        ],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 40])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    x = rng.standard_normal((3, 64)).astype("float32")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    return model.SerializeToString(), x, np.maximum(x @ w + b, 0)
