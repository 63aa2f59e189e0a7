"""The classes that scripts import from onnxruntime.capi.onnxruntime_pybind11_state.

Each error of ONNX Runtime is the class of edgewise.errors that is raised where ONNX Runtime raises
it. `Fail`, `RuntimeException` and `EPFail` stand for many reasons: they are the base class of all.
"""

from __future__ import annotations

from ..errors import EdgewiseError as EPFail
from ..errors import EdgewiseError as Fail
from ..errors import EdgewiseError as RuntimeException
from ..errors import EngineError, NoSuchFile
from ..errors import InputError as InvalidArgument
from ..errors import ModelError as InvalidGraph
from ..errors import ModelError as InvalidProtobuf
from ..errors import ModelError as NoModel
from ..errors import UnsupportedOp as NotImplemented
from ..host.session import RunOptions, SessionOptions
from ..host.session.face.node_arg import NodeArg
from ..host.session.face.options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from ..host.session.face.ort_value import OrtValue
from ..model_metadata import ModelMetadata

OrtValueVector = list  # of OrtValues, as `run_with_ort_values` returns


def get_default_session_options() -> SessionOptions:
    """New SessionOptions."""
    return SessionOptions()


__all__ = [
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelMetadata",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotImplemented",
    "OrtValue",
    "OrtValueVector",
    "RunOptions",
    "RuntimeException",
    "SessionOptions",
    "get_default_session_options",
]
