"""Public names of host/session/inference.py."""

from ..host.session.inference import InferenceSession

__all__ = ["InferenceSession"]
