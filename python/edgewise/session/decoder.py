"""Public names of host/session/decoder.py."""

from ..host.session.decoder import DecoderModel

__all__ = ["DecoderModel"]
