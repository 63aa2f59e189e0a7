"""Models that look words up: WordPiece and WordLevel."""

from __future__ import annotations

from .component import Component, ids

MOST_CACHED = 50_000  # words


class WordLevel:
    """The model `WordLevel`: each word is a token.

    Args:
        component: member `model` of tokenizer.json.

    Attributes:
        vocabulary: {token: id}.
        tokens: {id: token}.

    Raises:
        ValueError: the model is malformed.
    """

    def __init__(self, component: Component) -> None:
        self.vocabulary = dict(ids(component.value.get("vocab"), "the vocabulary"))
        self.tokens = {number: token for token, number in self.vocabulary.items()}
        self.unknown = component.text("unk_token")

    def tokenize(self, word: str) -> list[int]:
        """The ids of a word.

        Raises:
            ValueError: the unknown token is needed, but not in the vocabulary.
        """
        number = self.vocabulary.get(word)
        return self._unknown() if number is None else [number]

    def _unknown(self) -> list[int]:
        number = self.vocabulary.get(self.unknown)
        if number is None:
            raise ValueError(f"the unknown token {self.unknown!r} is not in the vocabulary")
        return [number]


class WordPiece(WordLevel):
    """The model `WordPiece`: the longest token that fits, from left to right.

    Args:
        component: member `model` of tokenizer.json.
    """

    def __init__(self, component: Component) -> None:
        super().__init__(component)
        self.prefix = component.text("continuing_subword_prefix")
        self.most = component.count("max_input_chars_per_word")
        self.longest = max(map(len, self.vocabulary), default=0)
        self.cache: dict[str, list[int]] = {}

    def tokenize(self, word: str) -> list[int]:
        """The ids of a word; that of the unknown token if a part has none.

        Raises:
            ValueError: the unknown token is needed, but not in the vocabulary.
        """
        found = self.cache.get(word)
        if found is None:
            found = (self._pieces(word) if len(word) <= self.most else None) or self._unknown()
            if len(self.cache) >= MOST_CACHED:
                self.cache.clear()
            if len(word) <= self.most:
                self.cache[word] = found
        return found

    def _pieces(self, word: str) -> list[int] | None:
        get = self.vocabulary.get
        result: list[int] = []
        start, prefix = 0, ""
        while start < len(word):
            end = min(len(word), start + self.longest)
            while end > start and (number := get(prefix + word[start:end])) is None:
                end -= 1
            if end == start:
                return None
            result.append(number)  # type: ignore[arg-type]
            start, prefix = end, self.prefix
        return result
