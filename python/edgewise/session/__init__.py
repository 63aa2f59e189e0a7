"""`edgewise.session`, a public name of host/session: runs models."""

from .face.node_arg import NodeArg
from .face.options import RunOptions, SessionOptions
from .inference import InferenceSession

__all__ = ["InferenceSession", "NodeArg", "RunOptions", "SessionOptions"]
