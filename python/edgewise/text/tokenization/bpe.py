"""Byte-pair encoding."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

from .component import Component, ids

MOST_CACHED, LONGEST_CACHED = 50_000, 256  # words, and characters of one


class BytePairs:
    """The model `BPE`. Dropout is ignored: it is for training.

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
        self.prefix = component.optional_text("continuing_subword_prefix") or ""
        self.suffix = component.optional_text("end_of_word_suffix") or ""
        self.unknown = component.optional_text("unk_token")
        self.fuse = component.flag("fuse_unk", False)
        self.ignore_merges = component.flag("ignore_merges", False)
        self.byte_ids = self._byte_ids() if component.flag("byte_fallback", False) else None
        self.ranks: dict[tuple[int, int], int] = {}
        self.made: list[int] = []  # ids that merges make, by rank
        for merge in component.items("merges"):
            self._add_merge(merge)
        self.cache: dict[str, list[int]] = {}

    def _byte_ids(self) -> list[int | None]:
        return [self.vocabulary.get(f"<0x{byte:02X}>") for byte in range(256)]

    def _add_merge(self, merge: Any) -> None:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if (
            not isinstance(pair, list)
            or len(pair) != 2
            or not all(isinstance(x, str) for x in pair)
        ):
            raise ValueError(f"merge {len(self.made)} is no pair of tokens")
        left, right = pair
        get = self.vocabulary.get
        one, two = get(left), get(right)
        new = get(left + right[len(self.prefix) :])
        if one is None or two is None or new is None:
            raise ValueError(f"merge {len(self.made)} has or makes a token that does not exist")
        self.ranks[one, two] = len(self.made)
        self.made.append(new)

    def tokenize(self, word: str) -> list[int]:
        """The ids of a word.

        Raises:
            ValueError: the unknown token is needed, but not in the vocabulary.
        """
        found = self.cache.get(word)
        if found is not None:
            return found
        if self.ignore_merges and word in self.vocabulary:
            found = [self.vocabulary[word]]
        else:
            found = self._merge(self._symbols(word))
        if len(word) <= LONGEST_CACHED:
            if len(self.cache) >= MOST_CACHED:
                self.cache.clear()
            self.cache[word] = found
        return found

    def _symbols(self, word: str) -> list[int]:
        """The ids of the characters of a word."""
        get = self.vocabulary.get
        symbols: list[int] = []
        unknown: int | None = None  # an unknown token that following characters may join
        last = len(word) - 1
        for i, character in enumerate(word):
            if i and self.prefix:
                character = self.prefix + character
            if i == last and self.suffix:
                character += self.suffix
            number = get(character)
            if number is not None:
                if unknown is not None:
                    symbols.append(unknown)
                    unknown = None
                symbols.append(number)
                continue
            if self.byte_ids is not None:
                numbers = [self.byte_ids[byte] for byte in character.encode("utf-8")]
                if None not in numbers:
                    symbols += [n for n in numbers if n is not None]
                    continue
            if self.unknown is not None:
                if unknown is not None and not self.fuse:
                    symbols.append(unknown)
                unknown = get(self.unknown)
                if unknown is None:
                    raise ValueError(f"the unknown token {self.unknown!r} is not in the vocabulary")
        if unknown is not None:
            symbols.append(unknown)
        return symbols

    def _merge(self, symbols: list[int]) -> list[int]:
        """Merges pairs of neighbors, the lowest rank first, then from left to right. The queue has
        rank * length + position of each pair; entries that are out of date are skipped.
        """
        n, ranks, made = len(symbols), self.ranks, self.made
        queue = [
            rank * n + i
            for i, pair in enumerate(zip(symbols, symbols[1:]))
            if (rank := ranks.get(pair)) is not None
        ]
        if not queue:
            return symbols
        heapify(queue)
        following, previous = list(range(1, n + 1)), list(range(-1, n - 1))
        while queue:
            rank, i = divmod(heappop(queue), n)
            left, right_at = symbols[i], following[i]
            if left < 0 or right_at >= n:
                continue
            new = made[rank]
            current = ranks.get((left, symbols[right_at]))
            if current is None or made[current] != new:
                continue
            symbols[i], symbols[right_at] = new, -1
            after = following[i] = following[right_at]
            if after < n:
                previous[after] = i
                rank_after = ranks.get((new, symbols[after]))
                if rank_after is not None:
                    heappush(queue, rank_after * n + i)
            before = previous[i]
            if before >= 0:
                rank_before = ranks.get((symbols[before], new))
                if rank_before is not None:
                    heappush(queue, rank_before * n + before)
        return [symbol for symbol in symbols if symbol >= 0]
