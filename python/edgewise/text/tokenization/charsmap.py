"""Sentencepiece's precompiled_charsmap: a trie of texts with their replacements."""

from __future__ import annotations

import base64
import struct
from array import array

from .characters import short_clusters

LONGEST = 6  # grapheme clusters of as many bytes are replaced character by character


class Charsmap:
    """The normalizer `Precompiled`, as the crate spm_precompiled reads it.

    Args:
        encoded: Base64 of: the size of the trie in bytes as uint32, the trie (uint32 units of a
            double array), the replacements as texts that end with NUL.

    Raises:
        ValueError: the data is malformed.
    """

    def __init__(self, encoded: str) -> None:
        data = base64.b64decode(encoded, validate=True)
        if len(data) < 4:
            raise ValueError("precompiled_charsmap is truncated")
        (size,) = struct.unpack_from("<I", data)
        end = 4 + size // 4 * 4
        if end > len(data) or size < 4:
            raise ValueError("precompiled_charsmap is truncated")
        self.units = array("I", struct.unpack_from(f"<{size // 4}I", data, 4))
        self.texts = data[end:]
        self.texts.decode("utf-8")
        self.known: dict[str, str | None] = {}

    def normalize(self, text: str) -> str:
        """Replaces each grapheme cluster, or else each of its characters."""
        if text.isascii() and "\r" not in text:
            return "".join([c if (new := self._replacement(c)) is None else new for c in text])
        pieces = []
        for cluster in short_clusters(text):
            if len(cluster.encode()) < LONGEST:
                new = self._replacement(cluster)
                if new is not None:
                    pieces.append(new)
                    continue
            for character in cluster:
                new = self._replacement(character)
                pieces.append(character if new is None else new)
        return "".join(pieces)

    def _replacement(self, text: str) -> str | None:
        try:
            return self.known[text]
        except KeyError:
            new = self._search(text.encode())
            if len(self.known) < 100_000:
                self.known[text] = new
            return new

    def _search(self, key: bytes) -> str | None:
        """The replacement of the shortest prefix of the key that the trie has, or None."""
        units = self.units
        position = _offset(units[0])
        for byte in key:
            if byte == 0:
                break
            position ^= byte
            unit = self._unit(position)
            if unit & (1 << 31 | 0xFF) != byte:
                return None
            position ^= _offset(unit)
            if unit >> 8 & 1:
                start = self._unit(position) & ((1 << 31) - 1)
                end = self.texts.find(b"\0", start)
                return self.texts[start : len(self.texts) if end < 0 else end].decode("utf-8")
        return None

    def _unit(self, position: int) -> int:
        if position >= len(self.units):
            raise ValueError("precompiled_charsmap points outside of itself")
        return self.units[position]


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & 1 << 9) >> 6)
