"""The tokenizer of VITS models: characters, with blanks in between.

Mirrors transformers' VitsTokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ...errors import TokenizerError
from ...json_text import parse_json_object
from ...logic.speech.units import vits_ids
from ...logic.speech.voices import asked, units_of

if TYPE_CHECKING:
    from ...logic.manifest.processor import SpeechFields

__all__ = ["VitsTokenizer"]


class VitsTokenizer:
    """Characters or phonemes as ids.

    Args:
        vocabulary: {token: id}.
        config: contents of tokenizer_config.json.

    Attributes:
        phonemize: whether texts must be phonemes.
        is_uroman: whether texts must be romanized.
    """

    def __init__(self, vocabulary: Mapping[str, int], config: Mapping[str, Any]) -> None:
        self.vocabulary = dict(vocabulary)
        self.add_blank = bool(config.get("add_blank", True))
        self.normalize = bool(config.get("normalize", True))
        self.phonemize = bool(config.get("phonemize", True))
        self.is_uroman = bool(config.get("is_uroman", False))
        self.language = config.get("language")
        unknown = config.get("unk_token", "<unk>")
        self.unknown = str(unknown.get("content") if isinstance(unknown, dict) else unknown)

    @classmethod
    def from_files(cls, read: Callable[[str], bytes | None], where: str = "") -> VitsTokenizer:
        """Reads vocab.json and tokenizer_config.json.

        Args:
            read: function(file name) that returns the bytes of a file of the model, or None.
            where: the model, for messages.

        Raises:
            TokenizerError: a file is missing or broken.
        """
        data, config = read("vocab.json"), read("tokenizer_config.json")
        name = f"{where}/vocab.json"
        if data is None:
            raise TokenizerError("there is none", name, "Copy it from the model.")
        vocabulary = parse_json_object(data, name, TokenizerError)
        if not vocabulary or not all(type(i) is int for i in vocabulary.values()):
            raise TokenizerError("it is not {token: id}", name, "Copy it again from the model.")
        where = f"{where}/tokenizer_config.json"
        return cls(vocabulary, parse_json_object(config or b"{}", where, TokenizerError))

    def description(self) -> dict[str, Any]:
        """The fields of SpeechFields (logic/manifest/processor.py)."""
        return {
            "vocabulary": {**self.vocabulary},
            "unknown": self.unknown,
            "language": self.language if isinstance(self.language, str) else "",
            "add_blank": self.add_blank,
            "normalize": self.normalize,
            "phonemize": self.phonemize,
            "is_uroman": self.is_uroman,
        }

    def encode(self, text: str, phonemizer: Callable[[str], Any] | None = None) -> list[int]:
        """The ids of a text.

        Args:
            text: any text; characters that the model does not know are left out.
            phonemizer: makes phonemes, or for `is_uroman` Latin letters, of a text.

        Raises:
            InputError: a phonemizer is missing, or a character of the phonemes is unknown.
        """
        return self.ids(self.characters(text, phonemizer))

    def characters(self, text: str, phonemizer: Callable[[str], Any] | None = None) -> str:
        """The characters of a text that get ids. Arguments and errors: as of encode."""
        voice = cast("SpeechFields", {"type": "vits", **self.description()})
        letters = asked(voice, text)
        if letters is None or phonemizer is None:
            return "".join(units_of(voice, text, False))
        return "".join(units_of(voice, str(phonemizer(letters)), True))

    def ids(self, text: Sequence[str]) -> list[int]:
        """The ids of characters. Raises InputError: one is unknown."""
        return vits_ids(text, self.vocabulary, self.unknown, self.add_blank)
