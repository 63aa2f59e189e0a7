"""Public names of host/session/face/node_arg.py."""

from ...host.session.face.node_arg import ORT_TYPES, NodeArg, node_arg, type_text

__all__ = ["NodeArg", "ORT_TYPES", "node_arg", "type_text"]
