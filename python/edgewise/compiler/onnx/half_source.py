"""Numbers of float32 in a file that float16 holds exactly, read as float16."""

from __future__ import annotations

from ...errors import ModelError
from .halves import AT_ONCE, halves
from .source import Source


class HalfSource(Source):
    """float16 numbers of w * 2^power, made of float32 numbers w.

    Args:
        floats: what has them.
        offset: where they begin in it.
        size: bytes of the float16 numbers.
        power: chosen so that every result is exact, and zero or normal (compile/half_weights.py).
    """

    def __init__(self, floats: Source, offset: int, size: int, power: int) -> None:
        self.floats, self.begin, self.size, self.power = floats, offset, size, power
        self.name = floats.name

    def read(self, offset: int, size: int) -> bytes:
        """As Source.read. offset, size: even.

        Raises:
            ModelError: a number is not exact, as the file is another one by now.
        """
        self._check(offset, size)
        data = self.floats.read(self.begin + 2 * offset, 2 * size)
        pieces = [halves(data[i : i + AT_ONCE], self.power) for i in range(0, len(data), AT_ONCE)]
        if None in pieces:
            raise ModelError(
                "its weights are no longer those that it was compiled for",
                self.name,
                "Load it again.",
            )
        return b"".join(piece for piece in pieces if piece is not None)
