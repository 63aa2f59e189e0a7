"""The tests of onnx.backend.test as the package's own runner makes them: {"node/test_abs":
Test}.
"""

import functools
import os
import tempfile
import unittest
import warnings
from pathlib import Path

import onnx
from edgewise.backend import EdgewiseBackend
from onnx.backend.test.loader import load_model_tests

KINDS = {
    "node": "Node",
    "simple": "Simple",
    "pytorch-converted": "PyTorchConverted",
    "pytorch-operator": "PyTorchOperator",
    "real": "Real",
}


class Test:
    """One test: `run(engine)` fails as the suite's runner does, with an AssertionError where
    outputs differ; `model` is its ModelProto.
    """

    __test__ = False

    def __init__(self, kind, case, function):
        self.name, self.case, self.function = f"{kind}/{case.name}", case, function

    def run(self, engine):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self.function(None, engine=engine)
            except unittest.SkipTest as e:  # of models that the backend calls incompatible
                raise AssertionError(f"skipped: {e}") from None

    @property
    def model(self):
        if self.case.model is not None:
            return self.case.model
        light = self.case.url and Path(onnx.__file__).parents[1] / self.case.url
        return onnx.load(light or Path(self.case.model_dir) / "model.onnx")


@functools.cache
def suite():
    """Every test of the package that needs no download, by name."""
    os.environ["ONNX_MODELS"] = tempfile.mkdtemp(
        prefix="onnx-suite-"
    )  # where the runner writes the data of the light models
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.runner import Runner  # the node tests are computed while it is made

        classes = Runner(EdgewiseBackend).test_cases
        out = [
            Test(kind, case, vars(classes[f"OnnxBackend{name}ModelTest"])[case.name + "_cpu"])
            for kind, name in KINDS.items()
            for case in load_model_tests(kind=kind)
        ]
    return {t.name: t for t in sorted(out, key=lambda t: t.name)}
