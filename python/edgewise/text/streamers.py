"""Public names of host/text/streamers.py."""

from ..host.text.streamers import TextIteratorStreamer, TextStreamer

__all__ = ["TextIteratorStreamer", "TextStreamer"]
