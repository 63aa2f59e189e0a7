"""Public names of host/session/face/ort_value.py."""

from ...host.session.face.ort_value import IOBinding, OrtValue, arrays_of, plain

__all__ = ["IOBinding", "OrtValue", "arrays_of", "plain"]
