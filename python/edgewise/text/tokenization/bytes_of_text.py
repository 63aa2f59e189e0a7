"""GPT-2's alphabet: each byte as a printable character."""

from __future__ import annotations


def _alphabet() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + i) for i, byte in enumerate(others)
    }


_TO_CHARACTER = _alphabet()
_TO_BYTE = {ord(character): byte for byte, character in _TO_CHARACTER.items()}


def to_byte_characters(text: str) -> str:
    """The UTF-8 bytes of a text as characters of the alphabet."""
    return text.encode("utf-8").decode("latin-1").translate(_TO_CHARACTER)


def to_bytes(characters: str) -> bytes:
    """The bytes that characters of the alphabet stand for. A token with any other character, such
    as a special token, stands for its own text.
    """
    try:
        return bytes([_TO_BYTE[ord(character)] for character in characters])
    except KeyError:
        return characters.encode("utf-8")
