"""What the transcription of a recording asks its host for. All but Encode is about the window that
was encoded last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Encode:
    """Run the encoder on the features of a window. No answer.

    Attributes:
        start: the window's first frame.
    """

    start: int
    kind: Literal["encode"] = "encode"


@dataclass(frozen=True)
class Logits:
    """Answer: the logits after tokens, one of each token of the vocabulary."""

    tokens: list[int]
    kind: Literal["logits"] = "logits"


@dataclass(frozen=True)
class LogProbability:
    """Answer: the logarithm of the probability of a token after others."""

    tokens: list[int]
    token: int
    kind: Literal["log_probability"] = "log_probability"


@dataclass(frozen=True)
class Generate:
    """Answer: (tokens after the prompt, sum of the logarithms of their probabilities, or 0).

    Attributes:
        prompt: first tokens.
        fields: of GenerationConfig.
        scores: "none": the sum is not needed; "chosen": of the tokens as they are chosen; "beams":
            the tokens are run again, since beams do not keep their steps.
    """

    prompt: list[int]
    fields: dict[str, Any]
    scores: Literal["none", "chosen", "beams"]
    kind: Literal["generate"] = "generate"


@dataclass(frozen=True)
class Align:
    """Answer: weights of cross attention, [tokens without the skipped ones][length], for dynamic
    time warping.

    Attributes:
        tokens: prompt included.
        skip: number of first tokens that do not count.
        length: number of positions of the encoder's output that count.
    """

    tokens: list[int]
    skip: int
    length: int
    kind: Literal["align"] = "align"


@dataclass(frozen=True)
class Deflate:
    """Answer: the number of bytes that zlib makes of bytes."""

    data: bytes
    kind: Literal["deflate"] = "deflate"


@dataclass(frozen=True)
class Progress:
    """Tell of the frames that are done. No answer."""

    done: int
    total: int
    kind: Literal["progress"] = "progress"


@dataclass
class Segment:
    """A part of a transcript.

    Attributes:
        start, end: in seconds.
        tokens: of text and times.
        token_times: for each token when it was spoken, in seconds; None: not asked for.
    """

    start: float
    end: float
    tokens: list[int]
    token_times: list[float] | None = None


@dataclass(frozen=True)
class Found:
    """Tell of the segments of a window. No answer."""

    segments: list[Segment]
    kind: Literal["found"] = "found"


Request = Encode | Logits | LogProbability | Generate | Align | Deflate | Progress | Found
