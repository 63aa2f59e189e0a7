"""States of earlier generations, from which later ones continue: what was read is not read again.

A new conversation is read in pieces of a fixed number of tokens, and what is left, if it is short,
by smaller runs (chunks.py). Kept are whole pieces and whole runs, so that a prompt which begins
with the same tokens continues from bits that reading it would give. Tokens that were generated are
read again as part of the next prompt, since runs of one token sum in another order; a host that has
time reads them ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...errors import InputError, OutOfMemory
from ..native import written
from .chunks import Tail, kept_length

BUDGET = 1 << 28
"""Bytes of the sequences that are kept, by default; a single one may be larger."""

MARK_EVERY = 4
"""Pieces between two copies of states that cannot be cut."""

MAX_MARKS = 8
"""Such copies of a sequence."""


class Store(Protocol):
    """The sequences of a decoder."""

    def open(self) -> Any:
        """A new sequence."""
        ...

    def close(self, sequence: Any) -> None:
        """Frees a sequence."""
        ...

    def bytes_for(self, count: int) -> int:
        """The memory of a new sequence with room for `count` tokens."""
        ...

    def bytes_of(self, sequence: Any) -> int:
        """The memory of a sequence."""
        ...

    def copy(self, source: Any, target: Any) -> None:
        """Copies the state of a sequence."""
        ...

    def truncate(self, sequence: Any, n: int) -> None:
        """Removes all but the first `n` tokens."""
        ...

    def cuts(self, sequence: Any, n: int) -> bool:
        """Whether its states are those of its first `n` tokens after `truncate`."""
        ...

    def marked_bytes(self, n: int) -> int:
        """The memory of a copy of states that cannot be cut, after `n` tokens; 0: of none."""
        ...

    def save(self, sequence: Any) -> Any:
        """A copy of the states of a sequence that cannot be cut."""
        ...

    def restore(self, saved: Any, sequence: Any, n: int) -> None:
        """Removes all but the first `n` tokens of a sequence, after which its states were saved."""
        ...

    def drop(self, saved: Any) -> None:
        """Frees a copy of states."""
        ...


@dataclass
class Mark:
    """A copy of the states that cannot be cut, as they were after `length` tokens."""

    length: int
    saved: Any


@dataclass
class Taken:
    """A sequence for a prompt.

    Attributes:
        sequence: of the store.
        past: tokens of the prompt that it holds.
        key: of its states.
        marks: copies of its states, in the order of their lengths.
    """

    sequence: Any
    past: int
    key: str
    marks: list[Mark]


@dataclass
class Entry:
    """A sequence that is kept.

    Attributes:
        taken: the sequence.
        ids: the tokens that it holds.
        following: tokens that the next prompt is likely to have after them.
    """

    taken: Taken
    ids: list[int]
    following: list[int]


@dataclass
class Ahead:
    """A piece that is read before a prompt has it.

    Attributes:
        taken: the sequence, which is to be given back.
        ids: tokens that it holds.
        piece: tokens that are to be appended.
        following: tokens after these.
    """

    taken: Taken
    ids: list[int]
    piece: list[int]
    following: list[int]


class Kept:
    """The sequences that are kept of a decoder.

    Args:
        store: has the sequences.
        budget: bytes that they may take; None: BUDGET, or one sequence of any size.
        piece: tokens of a piece.
        tail: how less than a piece is read; None: in one run.

    Raises:
        InputError: the budget is not a number of bytes.
    """

    def __init__(
        self, store: Store, budget: int | None, piece: int, tail: Tail | None = None
    ) -> None:
        self.store, self.piece, self.tail = store, piece, tail
        self.marked = store.marked_bytes(piece) > 0  # whether states cannot always be cut
        self.budget = checked_budget(budget)
        self.any_size = budget is None
        self.entries: list[Entry] = []  # the latest is the last

    def bytes(self) -> int:
        """The memory of what is kept."""
        return sum([self._bytes_of(entry.taken) for entry in self.entries])

    def take(self, key: str, prompt: Sequence[int]) -> Taken:
        """A sequence for a prompt, which continues an earlier one where it can. The caller owns it
        until it gives it back.

        Args:
            key: equal where equal tokens give equal states: names weights and adapter.
            prompt: token ids.

        Raises:
            OutOfMemory: there is no memory for a sequence.
        """
        best, past = None, 0
        for entry in self.entries:
            length = self._usable(entry, prompt) if entry.taken.key == key else 0
            if length > 0 and length >= past:
                best, past = entry, length
        if best is None:
            return Taken(self._open(), 0, key, [])
        if 2 * past < len(best.ids) and self._fits(best):
            return self._branch(best, past)
        self.entries.remove(best)
        taken = best.taken
        self._cut(taken, past)
        taken.past = past
        return taken

    def mark(self, taken: Taken, length: int, last: bool) -> None:
        """Copies the states that cannot be cut, if it is time.

        Args:
            taken: holds `length` tokens.
            length: after which a prompt can continue.
            last: whether less than a piece of the prompt follows.
        """
        if not self.marked or not (last or length % (MARK_EVERY * self.piece) == 0):
            return
        taken.marks.append(Mark(length, self.store.save(taken.sequence)))
        if len(taken.marks) > MAX_MARKS:
            self.store.drop(taken.marks.pop(0).saved)

    def give(self, taken: Taken, ids: list[int], following: list[int], key: str) -> None:
        """Takes a sequence back.

        Args:
            taken: from `take`.
            ids: those that it has read and can be continued from.
            following: tokens that the next prompt is likely to have after them.
            key: as it is now: a sequence of other weights is not kept.
        """
        held = ids
        budget = max(self.budget, self._bytes_of(taken)) if self.any_size else self.budget
        if self.marked:
            self._drop_after(taken, len(ids))
            while len(taken.marks) > 1 and self._bytes_of(taken) > budget:
                self.store.drop(taken.marks.pop(0).saved)
            if not self.store.cuts(taken.sequence, len(ids)):
                held = ids[: taken.marks[-1].length] if taken.marks else []
        if not held or taken.key != key or self._bytes_of(taken) > budget:
            self._free(taken)
            return
        for entry in list(self.entries):
            if entry.taken.key == key and held[: len(entry.ids)] == entry.ids:
                self._forget(entry)
        self.store.truncate(taken.sequence, len(held))
        after = following if len(held) == len(ids) else []
        self.entries.append(Entry(taken, held, after))
        while self.bytes() > budget:
            self._forget(self.entries[0])

    def ahead(self, key: str) -> Ahead | None:
        """What can be read before the next prompt comes: a piece that follows the latest sequence,
        or runs of its tail. None: nothing.
        """
        if not self.entries:
            return None
        entry = self.entries[-1]
        ids, tail = entry.ids, self.tail
        base = len(ids) - len(ids) % self.piece
        left = [*ids[base:], *entry.following]
        end = base + self.piece
        if len(left) < self.piece:
            # a longer prompt than this reads its tail by the same runs
            whole = len(ids) + len(entry.following)
            short = tail is not None and len(left) < tail.most
            end = kept_length(whole, whole, self.piece, tail) if short else base
            base = len(ids)
        if entry.taken.key != key or end <= len(ids) or not self._can_cut(entry.taken, base):
            return None
        self.entries.remove(entry)
        self._cut(entry.taken, base)
        tokens = [*ids, *entry.following]
        return Ahead(entry.taken, tokens[:base], tokens[base:end], tokens[end:])

    def was_read(self, ahead: Ahead, key: str) -> None:
        """Takes a sequence back to which a piece was appended."""
        ids = [*ahead.ids, *ahead.piece]
        self.mark(ahead.taken, len(ids), len(ahead.following) < self.piece)
        self.give(ahead.taken, ids, ahead.following, key)

    def put(self, key: str, ids: list[int], fill: Callable[[Any], None]) -> None:
        """Keeps states that were saved before.

        Args:
            key: of the states.
            ids: whole pieces that they come from.
            fill: writes the states to a new sequence.

        Raises:
            InputError: the budget has no room for them.
            OutOfMemory: there is no memory for a sequence.
        """
        needed = self.store.bytes_for(len(ids)) + self.store.marked_bytes(len(ids))
        if needed > self.budget and not self.any_size:
            raise InputError(
                f"a sequence takes {needed} bytes, those that are kept may take {self.budget}",
                "cache_bytes",
                "Load the model with more for them.",
            )
        taken = Taken(self._open(), 0, key, [])
        try:
            fill(taken.sequence)
            self.mark(taken, len(ids), True)
        except Exception:
            self._free(taken)
            raise
        self.give(taken, ids, [], key)

    def clear(self) -> None:
        """Frees all that is kept."""
        while self.entries:
            self._forget(self.entries[0])

    def _usable(self, entry: Entry, prompt: Sequence[int]) -> int:
        """The tokens of a prompt that an entry holds. The last one is always run."""
        most, n = min(len(entry.ids), len(prompt) - 1), 0
        while n < most and entry.ids[n] == prompt[n]:
            n += 1
        held, size = len(entry.ids), len(prompt)
        alike = held - held % self.piece == size - size % self.piece
        n = kept_length(n, size, self.piece, self.tail if alike else None)
        if not self.marked or self.store.cuts(entry.taken.sequence, n):
            return n
        lengths = [mark.length for mark in entry.taken.marks if mark.length <= n]
        return lengths[-1] if lengths else 0

    def _fits(self, source: Entry) -> bool:
        """Whether a copy of an entry fits beside it."""
        return 2 * self._bytes_of(source.taken) <= self.budget

    def _branch(self, source: Entry, past: int) -> Taken:
        """A copy of the beginning of another conversation."""
        self.entries.remove(source)  # it is not freed for the copy
        try:
            sequence = self._open()
        finally:
            self.entries.append(source)
        taken = Taken(sequence, past, source.taken.key, [])
        try:
            self.store.copy(source.taken.sequence, sequence)
            if not self.marked or self.store.cuts(sequence, past):
                self.store.truncate(sequence, past)
            else:
                mark = [one for one in source.taken.marks if one.length == past][0]
                self.store.restore(mark.saved, sequence, past)
            if self.marked:
                taken.marks.append(Mark(past, self.store.save(sequence)))
        except Exception:
            self.store.close(sequence)
            raise
        return taken

    def _cut(self, taken: Taken, length: int) -> None:
        """Removes all but the first tokens. Frees the sequence if that fails."""
        try:
            self._drop_after(taken, length)
            if not self.marked or self.store.cuts(taken.sequence, length):
                self.store.truncate(taken.sequence, length)
            else:
                self.store.restore(taken.marks[-1].saved, taken.sequence, length)
        except Exception:
            self._free(taken)
            raise

    def _can_cut(self, taken: Taken, length: int) -> bool:
        """Whether `_cut` can."""
        if not self.marked or self.store.cuts(taken.sequence, length):
            return True
        return any(mark.length == length for mark in taken.marks)

    def _drop_after(self, taken: Taken, length: int) -> None:
        """Frees the copies of states after more tokens."""
        while taken.marks and taken.marks[-1].length > length:
            self.store.drop(taken.marks.pop().saved)

    def _open(self) -> Any:
        """A new sequence, in the place of old ones where there is no room."""
        while self.entries and self.bytes() + self.store.bytes_for(0) > self.budget:
            self._forget(self.entries[0])
        try:
            return self.store.open()
        except OutOfMemory:
            if not self.entries:
                raise
            self.clear()
            return self.store.open()

    def _bytes_of(self, taken: Taken) -> int:
        copies = [self.store.marked_bytes(mark.length) for mark in taken.marks]
        return self.store.bytes_of(taken.sequence) + sum(copies)

    def _forget(self, entry: Entry) -> None:
        self.entries.remove(entry)
        self._free(entry.taken)

    def _free(self, taken: Taken) -> None:
        for mark in taken.marks:
            self.store.drop(mark.saved)
        taken.marks = []
        self.store.close(taken.sequence)


def checked_budget(budget: int | None) -> int:
    """The bytes that sequences may take.

    Raises:
        InputError: it is not a number of bytes.
    """
    if budget is None:
        return BUDGET
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 0:
        raise InputError(
            f"{written(budget)} is not a number of bytes",
            "cache_bytes",
            "Give the memory that earlier conversations may take, or 0 to keep none.",
        )
    return budget
