"""Recognition with models whose decoder gets a prompt of languages and tasks, and writes text with
times (Canary). Mirrors NeMo's prompts.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import InputError
from ..native import option
from ..options import read_choice, read_flag, read_text
from .chunks import Done, joined_tokens
from .ctc import Frames, divided, frames_of
from .languages import CODES
from .pieces import Heard, Pieces
from .transducer import Listen

OPTIONS = ("language", "target_language", "task", "pnc")
TASKS = ("transcribe", "translate")
CONTEXT = "<|startofcontext|>"  # of the prompts of Canary 2 and Flash
START = "<|startoftranscript|>"
TIMES = "<|timestamp|>"


@dataclass(frozen=True)
class Decode:
    """Run the decoder. Answer: id of the likeliest token after all tokens so far.

    Attributes:
        tokens: that follow those of the requests before.
        past: number of tokens before them; 0: what is known of others may be forgotten.
    """

    tokens: list[int]
    past: int
    kind: Literal["decode"] = "decode"


Request = Listen | Decode | Done


def prompt_of(pieces: Pieces, options: Mapping[str, Any], times: str) -> list[int]:
    """The first tokens of the decoder.

    Args:
        options: of the call; these are OPTIONS.
        times: of pieces.times_of.

    Raises:
        InputError: the model does not know a language, a task, or times.
    """
    language = _language(pieces, options, "language", "en")
    task = read_choice(options, "task", "transcribe", TASKS)
    otherwise = language if task == "transcribe" else "en"
    target = _language(pieces, options, "target_language", otherwise)
    pnc = "<|pnc|>" if read_flag(options, "pnc", True) else "<|nopnc|>"
    if times and TIMES not in pieces.tokens:
        raise InputError("the model gives no times", option("return_timestamps"), "Leave it out.")
    if CONTEXT in pieces.tokens:
        clock = TIMES if times else "<|notimestamp|>"
        names = [CONTEXT, START, "<|emo:undefined|>", f"<|{language}|>", f"<|{target}|>", pnc]
        names += ["<|noitn|>", clock, "<|nodiarize|>"]
        if "▁" in pieces.tokens:
            names = ["▁", *names]
    else:
        kind = "<|transcribe|>" if language == target else "<|translate|>"
        names = [START, f"<|{language}|>", kind, f"<|{target}|>", pnc]
    for name in names:
        if name not in pieces.tokens:
            raise InputError(
                f"its vocabulary has no token {name!r}",
                "vocab.txt",
                "Do the model and its vocabulary belong together?",
            )
    return [list(pieces.tokens).index(name) for name in names]


def _language(pieces: Pieces, options: Mapping[str, Any], name: str, otherwise: str) -> str:
    """The code of a language that the model knows."""
    given = read_text(options, name)
    code = otherwise if given is None else given.lower()
    code = CODES.get(code, code)
    if f"<|{code}|>" not in pieces.tokens or len(code) > 3:
        known = sorted(t[2:-2] for t in pieces.tokens if t[:2] == "<|" and len(t) == 6)
        raise InputError(
            f"the language {code!r} is unknown to the model",
            option(name),
            f"There are: {', '.join(t for t in known if t.isalpha())}.",
        )
    return code


def recognized(
    pieces: Pieces,
    prompt: list[int],
    most: int,
    frames: Frames,
    options: Mapping[str, Any],
    count: int,
) -> Generator[Request, Any, list[Heard]]:
    """The tokens of a recording; with times their frames.

    Args:
        prompt: of `prompt_of`.
        most: tokens of the decoder.
        frames: of the model.
        options: of the call; these are chunk_length_s and stride_length_s. A recording that is too
            long for the model is divided in any case.
        count: samples of the recording.

    Raises:
        InputError: see `chunk_lengths`.
    """
    timed = TIMES in pieces.tokens and list(pieces.tokens).index(TIMES) in prompt
    chunks, cut = divided(frames, options, count)
    found: list[Heard] = []
    for chunk in chunks:
        yield Listen(chunk.start, chunk.length)
        ids = yield from _decoded(pieces, prompt, most)
        heard = heard_of(pieces, ids)
        if timed and cut:
            first, end = frames_of(chunk, frames.samples)
            before = round(chunk.start / frames.samples)
            last = end if chunk.right else end + 1
            found += [
                Heard(one.token, before + one.start, before + one.end)
                for one in heard
                if first <= one.start < last
            ]
        elif found:
            joined = joined_tokens([one.token for one in found], [one.token for one in heard])
            found = [Heard(token, 0, 0) for token in joined]
        else:
            found = heard
        yield Done(chunk.start + chunk.length, count)
    return found


def _decoded(pieces: Pieces, prompt: list[int], most: int) -> Generator[Request, Any, list[int]]:
    """The likeliest token after each, up to the end."""
    made: list[int] = []
    more = prompt
    past = 0
    while past + len(more) < most:
        token: int = yield Decode(more, past)
        past += len(more)
        if token == pieces.blank:
            break
        made.append(token)
        more = [token]
    return made


def heard_of(pieces: Pieces, ids: Sequence[int]) -> list[Heard]:
    """Tokens with the frames that are written before and after them, as <|12|>."""
    found: list[Heard] = []
    waiting: list[int] = []
    start = 0
    for i in ids:
        mark = _frame_of(pieces.tokens[i] if i < len(pieces.tokens) else "")
        if mark < 0:
            waiting.append(i)
            continue
        found += [Heard(token, start, max(mark, start)) for token in waiting]
        waiting = []
        start = mark
    return found + [Heard(token, start, start) for token in waiting]


def _frame_of(token: str) -> int:
    """The frame that a token says; -1: it says none."""
    if token[:2] != "<|" or token[-2:] != "|>" or not 4 < len(token) < 12:
        return -1
    number = 0
    for c in token[2:-2]:
        digit = "0123456789".find(c)
        if digit < 0:
            return -1
        number = 10 * number + digit
    return number
