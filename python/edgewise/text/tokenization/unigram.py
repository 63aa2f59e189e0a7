"""Sentencepiece's unigram language model."""

from __future__ import annotations

from .component import Component, NotSupported

UNKNOWN_PENALTY = 10.0
# Lengths of the tokens with one beginning, in total: all of them are looked up at each position.
MOST_LENGTHS = 1 << 14
MOST_CACHED, LONGEST_CACHED = 50_000, 256  # words, and characters of one


class Unigram:
    """The model `Unigram`: of all segmentations, the one with the highest sum of scores.

    Args:
        component: member `model` of tokenizer.json.

    Attributes:
        vocabulary: {token: id}.
        tokens: {id: token}.

    Raises:
        ValueError: the model is malformed.
    """

    def __init__(self, component: Component) -> None:
        scores: list[float] = []
        self.vocabulary: dict[str, int] = {}
        self.tokens: dict[int, str] = {}
        for entry in component.items("vocab"):
            if (
                not isinstance(entry, list)
                or len(entry) != 2
                or not isinstance(entry[0], str)
                or not isinstance(entry[1], (int, float))
            ):
                raise ValueError(f"entry {len(scores)} of the vocabulary is no token with a score")
            self.vocabulary[entry[0]], self.tokens[len(scores)] = len(scores), entry[0]
            scores.append(float(entry[1]))
        unknown = component.value.get("unk_id")
        self.unknown = None if unknown is None else component.count("unk_id")
        if self.unknown is not None and self.unknown >= len(scores):
            raise ValueError(f"unk_id is {self.unknown}, but there are {len(scores)} tokens")
        self.byte_fallback = component.flag("byte_fallback", False)
        self.scores = {token: scores[number] for token, number in self.vocabulary.items()}
        self.unknown_score = min(scores, default=0.0) - UNKNOWN_PENALTY
        self.lengths = self._lengths()
        self.cache: dict[str, list[int]] = {}

    def _lengths(self) -> dict[str, list[int]]:
        """{first two characters: lengths of the tokens with them, ascending}"""
        found: dict[str, set[int]] = {}
        for token in self.vocabulary:
            if token:
                found.setdefault(token[:2], set()).add(len(token))
        for beginning, lengths in found.items():
            if sum(lengths) > MOST_LENGTHS:
                raise NotSupported(
                    f"the vocabulary has {len(lengths)} lengths of tokens with {beginning!r}"
                )
        return {beginning: sorted(lengths) for beginning, lengths in found.items()}

    def tokenize(self, word: str) -> list[int]:
        """The ids of a word.

        Raises:
            ValueError: the unknown token is needed, but there is none.
        """
        found = self.cache.get(word)
        if found is None:
            found = self._ids(self._pieces(word))
            if len(word) <= LONGEST_CACHED:
                if len(self.cache) >= MOST_CACHED:
                    self.cache.clear()
                self.cache[word] = found
        return found

    def _pieces(self, word: str) -> list[str]:
        """The best segmentation; unknown neighbors are one piece."""
        size, scores, lengths = len(word), self.scores, self.lengths
        best = [0.0] * (size + 1)
        begins = [-1] * (size + 1)  # of the best piece that ends there
        unknown = [False] * (size + 1)
        for i in range(size):
            single = False
            two = lengths.get(word[i : i + 2], ())
            one = lengths.get(word[i], ()) if i + 1 < size else ()
            for length in (*one, *two):
                end = i + length
                if end > size:
                    break
                piece = word[i:end]
                score = scores.get(piece)
                if score is None:
                    continue
                score += best[i]
                if begins[end] < 0 or score > best[end]:
                    best[end], begins[end] = score, i
                    unknown[end] = self.vocabulary[piece] == self.unknown
                single = single or length == 1
            if not single:
                score = self.unknown_score + best[i]
                if begins[i + 1] < 0 or score > best[i + 1]:
                    if self.unknown is None:
                        raise ValueError(f"{word[i]!r} is unknown, but there is no unknown token")
                    best[i + 1], begins[i + 1], unknown[i + 1] = score, i, True
        pieces: list[str] = []
        end, open_ = size, False  # open_: whether the last piece is unknown and may grow
        while end > 0:
            start = begins[end]
            if unknown[end] and open_:
                pieces[-1] = word[start:end] + pieces[-1]
            else:
                pieces.append(word[start:end])
            open_ = unknown[end]
            end = start
        return pieces[::-1]

    def _ids(self, pieces: list[str]) -> list[int]:
        result: list[int] = []
        for piece in pieces:
            number = self.vocabulary.get(piece)
            if number is None and self.byte_fallback:
                numbers = [self.vocabulary.get(f"<0x{b:02X}>") for b in piece.encode("utf-8")]
                if None not in numbers:
                    result += [n for n in numbers if n is not None]
                    continue
            if number is None:
                number = self.unknown
            if number is None:
                raise ValueError(f"{piece!r} is unknown, but there is no unknown token")
            result.append(number)
        return result
