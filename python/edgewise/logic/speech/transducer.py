"""Recognition with transducers: RNN-T, TDT (which also say for how many frames a token sounds) and
those without a state. Mirrors NeMo's greedy decoding; beams are searched frame by frame.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..options import read_count
from .chunks import Chunk, Done
from .ctc import Frames, divided, frames_of
from .pieces import Heard

MAX_BEAMS = 16  # a graph gives so many tokens


@dataclass(frozen=True)
class Transducer:
    """What the search knows of a model.

    Attributes:
        blank: id of the token that moves on.
        durations: frames that a token may sound, by the index of their scores; none: RNN-T.
        symbols: most tokens of a frame.
        context: tokens that the predictor gets; 0: it gets one, and has a state.
    """

    blank: int
    durations: Sequence[int]
    symbols: int
    context: int


@dataclass(frozen=True)
class Listen:
    """Encode samples [start, start + length) of the recording, of which frames are asked for from
    now on. Answer: the number of frames.
    """

    start: int
    length: int
    kind: Literal["listen"] = "listen"


@dataclass(frozen=True)
class Join:
    """Score what may follow some tokens at a frame. Answer: Joined.

    Attributes:
        frame: of what was encoded last.
        place: number of the tokens; the predictor is run once for each.
        parent: number of the tokens without the last one; -1: there are none, and states are zeros.
        context: the last tokens.
        keep: numbers of other tokens that will be asked for again, or that are followed by more.
            What is known of all others may be forgotten.
    """

    frame: int
    place: int
    parent: int
    context: Sequence[int]
    keep: Sequence[int]
    kind: Literal["join"] = "join"


@dataclass(frozen=True)
class Joined:
    """Scores at a frame.

    Attributes:
        tokens: the likeliest ones, the best first.
        scores: logarithms of their probabilities.
        durations: logarithms of the probabilities of durations; none: RNN-T.
    """

    tokens: Sequence[int]
    scores: Sequence[float]
    durations: Sequence[float]


Request = Listen | Join | Done


def recognized(
    model: Transducer, frames: Frames, options: Mapping[str, Any], count: int
) -> Generator[Request, Any, list[Heard]]:
    """The tokens of a recording, with their frames.

    Args:
        model, frames: of the model.
        options: of the call; these are num_beams, chunk_length_s and stride_length_s. A recording
            that is too long for the model is divided in any case.
        count: samples of the recording.

    Raises:
        InputError: see `chunk_lengths`, or num_beams is no number of beams.
    """
    beams = beams_of(options)
    chunks, cut = divided(frames, options, count)
    found: list[Heard] = []
    for chunk in chunks:
        length: int = yield Listen(chunk.start, chunk.length)
        if beams > 1:
            heard = yield from searched(model, length, beams)
        else:
            heard = yield from greedy(model, length)
        found += _within(heard, chunk, frames) if cut else heard
        yield Done(chunk.start + chunk.length, count)
    return found


def beams_of(options: Mapping[str, Any]) -> int:
    """The option num_beams. Raises InputError."""
    beams = read_count(options, "num_beams") or 1
    return min(beams, MAX_BEAMS)


def _within(heard: Sequence[Heard], chunk: Chunk, frames: Frames) -> list[Heard]:
    """The tokens of a chunk that begin outside of its overlaps, with frames of the recording."""
    first, end = frames_of(chunk, frames.samples)
    if not chunk.right and heard:  # the last one
        end = max(end, heard[-1].start + 1)
    before = round(chunk.start / frames.samples)
    return [
        Heard(one.token, before + one.start, before + one.end)
        for one in heard
        if first <= one.start < end
    ]


def _best(scores: Sequence[float]) -> int:
    """The index of the highest one; the first of equal ones."""
    best = 0
    for i, score in enumerate(scores):
        if score > scores[best]:
            best = i
    return best


def _context(model: Transducer, tokens: Sequence[int]) -> list[int]:
    """The tokens that the predictor gets after some."""
    if not model.context:
        return [tokens[-1] if tokens else model.blank]
    before = [-1] * (model.context - 1) + [model.blank]
    some = [*before, *tokens[max(0, len(tokens) - model.context) :]]
    return some[len(some) - model.context :]


def greedy(model: Transducer, length: int) -> Generator[Request, Any, list[Heard]]:
    """The likeliest token after each.

    Args:
        length: number of frames.
    """
    found: list[Heard] = []
    tokens: list[int] = []
    frame, made = 0, 0  # tokens of the frame
    while frame < length:
        place = len(found)
        context = _context(model, tokens)
        joined: Joined = yield Join(frame, place, place - 1, context, [place - 1])
        token, step = joined.tokens[0], 0
        if model.durations:
            step = model.durations[_best(joined.durations)]
        if token != model.blank:
            made += 1
            found.append(Heard(token, frame, frame + (step if model.durations else 1)))
            tokens.append(token)
        if step > 0:
            frame += step
            made = 0
        elif token == model.blank or made >= model.symbols:
            frame += 1
            made = 0
    return found


@dataclass(frozen=True)
class Path:
    """Tokens that may be right.

    Attributes:
        key: the tokens as a text.
        place: their number.
        parent: of the tokens without the last one.
        heard: the tokens, with frames of the likeliest alignment.
        score: logarithm of the probability of all alignments so far.
        best: that of the likeliest alignment.
        made: tokens of the frame.
    """

    key: str
    place: int
    parent: int
    heard: list[Heard]
    score: float
    best: float
    made: int


def searched(model: Transducer, length: int, beams: int) -> Generator[Request, Any, list[Heard]]:
    """The likeliest tokens among those that are followed: alignments of the same tokens count as
    one.

    Args:
        length: number of frames.
        beams: how many are followed at a frame.
    """
    start = Path("", 0, -1, [], 0.0, 0.0, 0)
    waiting: dict[int, dict[str, Path]] = {0: {"": start}}
    places: dict[str, int] = {"": 0}
    count = 1
    for frame in range(length):
        here = waiting.pop(frame, {})
        active = _likeliest(here, beams)
        while active:
            more: dict[str, Path] = {}
            for path in active:
                keep = [path.parent]
                for other in [*active, *more.values()]:
                    keep += [other.place, other.parent]
                for paths in waiting.values():
                    for other in paths.values():
                        keep += [other.place, other.parent]
                context = _context(model, [one.token for one in path.heard])
                joined: Joined = yield Join(frame, path.place, path.parent, context, keep)
                for i, token in enumerate(joined.tokens):
                    if i >= beams and token != model.blank:
                        continue
                    key = path.key if token == model.blank else f"{path.key},{token}"
                    if key not in places:
                        places[key] = count
                        count += 1
                    for step, score in _steps(model, path, token, joined.durations):
                        moved = _moved(path, token, key, places[key], frame, step, model)
                        total = joined.scores[i] + score
                        made = _scored(path, moved, total, step)
                        if step:
                            _add(waiting, min(frame + step, length), made)
                        else:
                            _merge(more, made)
            active = _likeliest(more, beams)
        for at in list(waiting):
            waiting[at] = {path.key: path for path in _likeliest(waiting[at], beams)}
    last = _likeliest(waiting.get(length, {"": start}), 1)
    return last[0].heard if last else []


def _steps(
    model: Transducer, path: Path, token: int, durations: Sequence[float]
) -> list[tuple[int, float]]:
    """(frames to move on by, logarithm of their probability) after a token."""
    full = token != model.blank and path.made + 1 >= model.symbols
    stays = token != model.blank and not full
    if not model.durations:
        return [(0 if stays else 1, 0.0)]
    return [
        (0 if stays and not step else max(step, 1), durations[i])
        for i, step in enumerate(model.durations)
    ]


def _moved(
    path: Path, token: int, key: str, place: int, frame: int, step: int, model: Transducer
) -> Path:
    """A path after a token, with the score of the path."""
    if token == model.blank:
        return path
    end = frame + (step if model.durations else 1)
    heard = [*path.heard, Heard(token, frame, end)]
    return Path(key, place, path.place, heard, path.score, path.best, path.made + 1)


def _scored(path: Path, moved: Path, score: float, step: int) -> Path:
    """A path that has moved on, with its score."""
    made = 0 if step else moved.made
    return Path(
        moved.key,
        moved.place,
        moved.parent,
        moved.heard,
        path.score + score,
        path.best + score,
        made,
    )


def _add(waiting: dict[int, dict[str, Path]], frame: int, path: Path) -> None:
    paths = waiting.get(frame)
    if paths is None:
        paths = {}
        waiting[frame] = paths
    _merge(paths, path)


def _merge(paths: dict[str, Path], path: Path) -> None:
    """Adds a path; alignments of the same tokens are one."""
    other = paths.get(path.key)
    if other is None:
        paths[path.key] = path
        return
    better = path if path.best > other.best else other
    high, low = max(path.score, other.score), min(path.score, other.score)
    total = high + math.log1p(math.exp(low - high)) if low > -math.inf else high
    paths[path.key] = Path(
        better.key,
        better.place,
        better.parent,
        better.heard,
        total,
        better.best,
        min(path.made, other.made),
    )


def _likeliest(paths: dict[str, Path], count: int) -> list[Path]:
    """The likeliest paths, the best first; the first of equal ones."""
    return sorted(paths.values(), key=lambda path: -path.score)[:count]
