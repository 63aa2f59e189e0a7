"""Tokens that are read ahead of their choice: those that followed the last ones before (Saxena,
"Prompt Lookup Decoding", 2023). Each token is chosen from its own logits nonetheless, by the rules
of the call and with the same random numbers: guesses that are not chosen are cut off again. A text
is that without guesses, and so is the distribution of texts.

Guesses are read where that saves time, by what was measured. Those that are not read are compared
with the tokens that are chosen later, which costs nothing: so it is known when they begin to be
right.
"""

from __future__ import annotations

from collections.abc import Sequence

from .config import Configuration

MAX_MATCH = 8
"""Last tokens that are looked for, at most."""
MIN_MATCH = 2
"""And at least: a single one is rarely followed by the same tokens again."""
MAX_PLACES = 32
"""Places where the last tokens occurred that are compared, the latest first."""
IDS = 1 << 24
"""More than there are token ids."""
PAST = 0.75
"""Share of the past in a mean."""
PRIOR = 3.0
"""Time of a run of guesses over that of a single token, before there was one."""
MARGIN = 1.1
"""Guesses have to save this much time."""
FADING = 0.99
"""By which a time that forbids guesses counts less each time: it may have been another load's."""
FEW = 16
"""Tokens that a smaller model reads between two guesses, at most; more are a text of its own."""
TRIED = 0.02
"""Share of the time that guesses may cost which are read to see whether they save any by now."""
USUAL_LENGTH = 100.0
"""Tokens of a text, before there was one."""
USUAL_GAIN = 4.0
"""Tokens of a round of guesses of a smaller model, before there was one."""
READING = 0.25
"""Time of reading a token of a text over that of a run of one token, before it was measured."""


def mean_of(mean: float, new: float) -> float:
    """A mean that follows a new number. mean: 0.0: there was none."""
    return new if mean == 0.0 else PAST * mean + (1 - PAST) * new


class Lookup:
    """Finds where the last tokens of a sequence occurred before."""

    def __init__(self) -> None:
        self.latest: dict[int, int] = {}  # of two tokens: the index after the latest such two
        self.before: list[int] = []  # of each index: the one before it that follows the same two
        self.known = 0  # tokens that these were made of

    def add(self, ids: Sequence[int]) -> None:
        """Takes the tokens that were added to a sequence."""
        for i in range(self.known, len(ids)):
            key = -1 if i == 0 else ids[i - 1] * IDS + ids[i]
            self.before.append(self.latest.get(key, 0))
            if i > 0:
                self.latest[key] = i + 1
        self.known = len(ids)

    def guess(self, ids: Sequence[int], count: int) -> tuple[int, list[int]]:
        """Tokens that followed the last ones, as many as possible, where these occurred before.

        Args:
            ids: of the sequence, all of them added.
            count: tokens of the guess. A text that ends before is repeated from that place on.

        Returns:
            (how many of the last tokens are the same there, the guess); (0, []): there is no place.
        """
        n = len(ids)
        place, length, compared = 0, 0, 0
        at = self.before[n - 1] if n > 1 else 0
        while at > 0 and compared < MAX_PLACES and length < MAX_MATCH:
            same = MIN_MATCH
            while same < MAX_MATCH and same < at and ids[at - 1 - same] == ids[n - 1 - same]:
                same += 1
            if same > length:
                place, length = at, same
            at = self.before[at - 1]
            compared += 1
        guesses: list[int] = []
        while length > 0 and len(guesses) < count:
            i = place + len(guesses)
            guesses.append(ids[i] if i < n else guesses[i - n])
        return length, guesses


class Pace:
    """Whether guesses save time, by what a decoder measured so far."""

    def __init__(self) -> None:
        self.single = 0.0  # mean seconds of a run of a token
        self.several = 0.0  # and of one of guesses
        # by how many of the last tokens were found before: mean tokens that a guess gives
        self.gains: list[float] = [0.5 * i for i in range(MAX_MATCH + 1)]
        self.drafts = DraftPace()  # of this decoder as the smaller model of another one

    def allows(self, length: int, count: int) -> bool:
        """Whether a guess is to be read.

        Args:
            length: tokens that were found before it.
            count: its tokens.
        """
        if self.single == 0.0 or length == 0:
            return False
        needed = MARGIN * (self.several or PRIOR * self.single)
        if min(self.gains[length], count + 1) * self.single > needed:
            return True
        if self.gains[length] > PRIOR:
            self.several *= FADING
        return False

    def ran(self, seconds: float) -> None:
        """Tells of a run of one token."""
        self.single = mean_of(self.single, seconds)

    def verified(self, seconds: float) -> None:
        """Tells of a run of guesses."""
        self.several = mean_of(self.several, seconds)

    def gave(self, length: int, tokens: int) -> None:
        """Tells how many tokens a guess gave, or would have given."""
        self.gains[length] = mean_of(self.gains[length], tokens)


class DraftPace:
    """Whether the guesses of a smaller model save time, by what was measured so far."""

    def __init__(self) -> None:
        self.rounds = 0
        self.guessing = 0.0  # mean seconds of a round's guesses
        self.reading = 0.0  # mean seconds of reading a token of a text
        self.gain = USUAL_GAIN  # mean tokens of a round
        self.length = USUAL_LENGTH  # mean tokens of a text
        self.time = 0.0  # seconds of all texts
        self.lost = 0.0  # seconds of rounds that were read to try them

    def began(self, single: float) -> None:
        """Tells of the first run of the smaller model. single: seconds of a run of a token."""
        self.guessing = USUAL_GAIN * single
        self.reading = READING * single

    def cost(self, pace: Pace) -> float:
        """Expected seconds of a round, less than which its tokens have to take one by one."""
        return MARGIN * ((pace.several or PRIOR * pace.single) + self.guessing)

    def allows(self, pace: Pace, behind: int) -> bool:
        """Whether a round is to begin.

        Args:
            pace: of the larger model.
            behind: tokens that the smaller model has to read before.
        """
        if pace.single == 0.0:
            return False
        saved = self.gain * pace.single - self.cost(pace)
        reading = self.reading * behind if behind > FEW else 0.0
        if saved > 0 and saved / self.gain * self.length >= reading:
            return True
        return self.lost + max(0.0, reading - saved) <= TRIED * self.time

    def read(self, tokens: int, seconds: float) -> None:
        """Tells of tokens that the smaller model read before it guessed."""
        self.reading = mean_of(self.reading, seconds / tokens)
        self.lost += seconds

    def over(self, pace: Pace, tokens: int) -> None:
        """Tells how many tokens a round gave."""
        self.gain = mean_of(self.gain, float(tokens))
        self.rounds += 1
        self.lost = max(0.0, self.lost + self.cost(pace) - tokens * pace.single)


class Speculation:
    """The tokens of a sequence that were read ahead.

    Args:
        pace: of the decoder.
        most: tokens of a guess; 0: nothing is looked up.
        row: bytes of the logits of a token.
    """

    def __init__(self, pace: Pace, most: int, row: int) -> None:
        self.pace, self.most, self.row = pace, most, row
        self.lookup = Lookup()
        self.guesses: list[int] = []  # tokens that were read, and are not chosen yet
        self.logits = 0  # address of those after the last one that was chosen
        self.watched: list[int] = []  # a guess that is compared with the tokens that are chosen
        self.length = self.right = 0  # tokens found before it; tokens of it that were chosen

    def chosen(self, token: int) -> int:
        """Tells of the token that was chosen. Returns the address of the logits after it, if it was
        read; else 0.
        """
        self._watch(token)
        if not self.guesses or self.guesses[0] != token:
            return 0
        self.guesses = self.guesses[1:]
        self.logits += self.row
        return self.logits

    def _watch(self, token: int) -> None:
        """Compares a guess with the tokens that are chosen."""
        if not self.watched:
            return
        if self.watched[self.right] == token:
            self.right += 1
            if self.right < len(self.watched):
                return
        self.pace.gave(self.length, self.right + 1)
        self.watched = []

    def guess(self, ids: Sequence[int], room: int) -> list[int]:
        """Tokens to read after the last one; none: they would not save time.

        Args:
            ids: of the sequence.
            room: tokens that may be read.
        """
        if self.most < 1:
            return []
        self.lookup.add(ids)
        if room < 1:
            return []
        length, guesses = self.lookup.guess(ids, min(self.most, room))
        if not guesses:
            return []
        allowed = self.pace.allows(length, len(guesses))
        if allowed or not self.watched:
            self.watched, self.length, self.right = guesses, length, 0
        return guesses if allowed else []

    def read(self, guesses: list[int], logits: int) -> None:
        """Tells that guesses were read. logits: address of those after the token before them."""
        self.guesses, self.logits = guesses, logits

    def left(self) -> bool:
        """Whether the sequence has tokens that were not chosen; they are forgotten."""
        some = len(self.guesses) > 0
        self.guesses = []
        return some


Ahead = Speculation | None
"""None: no tokens are read ahead."""


def speculation_of(
    pace: Pace, config: Configuration, verified: int, row: int, drafts: bool
) -> Ahead:
    """What reads tokens of a new sequence ahead.

    Args:
        pace: of the decoder.
        config: of the call.
        verified: tokens of a run that gives the logits of all of them; 0: there is none.
        row: bytes of the logits of a token.
        drafts: whether a smaller model guesses.
    """
    most: int | None = config.get("prompt_lookup_num_tokens")
    if (most is None and not drafts) or verified < 2:
        return None
    return Speculation(pace, min(most or 0, verified - 1), row)
