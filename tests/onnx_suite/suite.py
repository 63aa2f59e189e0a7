"""The tests of onnx.backend.test, as the package's own runner creates them: {"node/test_abs":
Test}.
"""

import functools
import os
import tempfile
import unittest
import warnings
from pathlib import Path

import onnx
from onnx.backend.test.loader import load_model_tests

from .backend import EdgewiseBackend

KINDS = {
    "node": "Node",
    "simple": "Simple",
    "pytorch-converted": "PyTorchConverted",
    "pytorch-operator": "PyTorchOperator",
    "real": "Real",
}


class Test:
    """A test. run(engine) raises an AssertionError if outputs differ, as the package's runner does;
    `model` is its ModelProto.
    """

    __test__ = False

    def __init__(self, kind, case, function):
        self.name, self.case, self.function = f"{kind}/{case.name}", case, function

    def run(self, engine):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self.function(None, engine=engine)
            # raised for models that the backend reports as incompatible
            except unittest.SkipTest as e:
                raise AssertionError(f"skipped: {e}") from None

    @property
    def model(self):
        if self.case.model is not None:
            return self.case.model
        light = self.case.url and Path(onnx.__file__).parents[1] / self.case.url
        return onnx.load(light or Path(self.case.model_dir) / "model.onnx")


@functools.cache
def suite():
    """All tests of the package that need no download, by name."""
    os.environ["ONNX_MODELS"] = tempfile.mkdtemp(
        prefix="onnx-suite-"
    )  # the folder in which the runner writes the data of the light models
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # the runner computes the node tests when it is created
        from onnx.backend.test.runner import Runner

        classes = Runner(EdgewiseBackend).test_cases
        out = [
            Test(kind, case, vars(classes[f"OnnxBackend{name}ModelTest"])[case.name + "_cpu"])
            for kind, name in KINDS.items()
            for case in load_model_tests(kind=kind)
        ]
    return {t.name: t for t in sorted(out, key=lambda t: t.name)}


def contents(cache):
    """{name of a test: [operators of its graph, whether it has values other than numeric tensors]}.

    Making the suite takes five seconds, since the package computes the expected outputs. What each
    process needs to collect tests is kept in pytest's cache until another version is installed.
    """
    key = f"onnx-suite/{onnx.__version__}"
    kept = cache.get(key, None)
    if kept is None:
        kept = {name: _content(test.model.graph) for name, test in suite().items()}
        cache.set(key, kept)
    return kept


def _content(graph):
    other = any(
        i.type.tensor_type.elem_type == onnx.TensorProto.STRING
        or not i.type.HasField("tensor_type")
        for i in (*graph.input, *graph.output)
    )
    return [sorted({n.op_type for n in graph.node}), other]
