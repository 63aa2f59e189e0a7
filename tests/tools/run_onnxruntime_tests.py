"""Runs test files of onnxruntime with edgewise in its place (docs/contribute/peers.md).

python tests/tools/run_onnxruntime_tests.py FILE... [options of pytest]
"""

import functools
import importlib
import os
import sys
import types
from pathlib import Path

import edgewise
import pytest
from edgewise.capi import onnxruntime_pybind11_state

# Modules of onnxruntime, and what takes their place.
MODULES = {
    "onnxruntime": edgewise,
    "onnxruntime.backend": "onnx_suite.backend",
    "onnxruntime.capi": "edgewise.capi",
    "onnxruntime.training": "edgewise.training",
    "onnxruntime.training.api": "edgewise.training.api",
    "onnxruntime.training.artifacts": "edgewise.training.artifacts",
    "onnxruntime.training.onnxblock": "edgewise.training.onnxblock",
}


class State(types.ModuleType):
    """onnxruntime.capi._pybind_state: a name that Edgewise does not have can be imported, since the
    other tests of the file would not run otherwise, but not used.
    """

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(onnxruntime_pybind11_state, name, None) or getattr(edgewise, name, None)
        return found or Missing(name, (), {})


class Missing(type):
    """A class that Edgewise does not have: neither it nor its members can be called."""

    def __getattr__(cls, name):
        return Missing(f"{cls.__name__}.{name}", (), {})

    def __call__(cls, *_, **__):
        raise AttributeError(f"edgewise has no {cls.__name__}")


def _keep_old_exporter():
    """The tests' models are exported by PyTorch's older exporter, which needs no other library."""
    try:
        import torch
    except ImportError:
        return
    torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)


def main(arguments):
    _keep_old_exporter()
    sys.path.append(str(Path(__file__).parents[1]))
    for name, module in MODULES.items():
        sys.modules[name] = importlib.import_module(module) if isinstance(module, str) else module
    edgewise.backend = sys.modules["onnxruntime.backend"]
    for name in [n for n in sys.modules if n.startswith("edgewise.training.")]:
        sys.modules[name.replace("edgewise", "onnxruntime", 1)] = sys.modules[name]
    for name in ("_pybind_state", "onnxruntime_pybind11_state"):
        state = State(f"onnxruntime.capi.{name}")
        sys.modules[state.__name__] = state
        setattr(edgewise.capi, name, state)
    folders = {Path(a).resolve().parent for a in arguments if a.endswith(".py")}
    files = [str(Path(a).resolve()) if a.endswith(".py") else a for a in arguments]
    sys.path[:0] = map(str, folders)
    if folders:  # models are found relative to it
        os.chdir(next(iter(folders)).parent)
    options = ["-q", "--tb=line", "-c", os.devnull, "-p", "no:cacheprovider", "--rootdir", "."]
    return pytest.main([*options, *files])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
