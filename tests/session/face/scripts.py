"""The same script with `import onnxruntime as ort` and with `import edgewise as ort`, and what both
find, compared.
"""

from importlib import import_module

import edgewise
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

onnxruntime.set_default_logger_severity(4)
MODULES = (onnxruntime, edgewise)
X = np.arange(6, dtype=np.float32).reshape(3, 2)
W = np.float32([[1, 2], [3, 4], [5, 6]])


def both(script, *args):
    """Runs a script with each module, and asserts that the results are equal; returns them."""
    theirs, ours = (script(module, *args) for module in MODULES)
    assert ours == theirs
    return ours


def refused(module, run):
    """The name under which a module's `capi` has the error that `run` raises."""
    state = import_module(module.__name__ + ".capi.onnxruntime_pybind11_state")
    for name in ("NoSuchFile", "InvalidArgument", "InvalidProtobuf", "NotImplemented", "Fail"):
        try:
            run()
        except getattr(state, name):
            return name
        except Exception:  # another class: the next name is tried
            continue
    return "nothing"


def value(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, initializers=(), ir_version=8, opset=17, **more):
    graph = helper.make_graph(nodes, "graph", inputs, outputs, list(initializers))
    opsets = [helper.make_opsetid("", opset), *more.pop("opsets", ())]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, **more)


def product(inputs=("x",), ir_version=8, opset=17):
    """y = x * W, with W among the inputs if asked."""
    shapes = {"x": ["rows", 2], "w": [3, 2]}
    return model(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        [value(n, shapes[n]) for n in inputs],
        [value("y", ["rows", 2])],
        [numpy_helper.from_array(W, "w")],
        ir_version,
        opset,
    ).SerializeToString()
