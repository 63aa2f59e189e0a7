"""Public names of logic/post/speakers.py."""

from ...logic.post.speakers import cosine, equal_error_rate, mean_voice, unit

__all__ = ["cosine", "equal_error_rate", "mean_voice", "unit"]
