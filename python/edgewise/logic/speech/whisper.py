"""Tokens from log-mel features with Whisper: prompts, windows, fallback, segments. Mirrors
transformers/models/whisper/generation_whisper.py for one recording.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any, Literal

from ...errors import InputError
from ..native import option
from .alignment import TIME_PRECISION, token_times
from .prompts import WhisperModel, WhisperOptions, first_tokens, id_of, no_timestamps_id
from .requests import (
    Align,
    Deflate,
    Encode,
    Found,
    Generate,
    LogProbability,
    Progress,
    Request,
    Segment,
)

FRAMES_PER_POSITION = 2
WARM = 0.5  # from this temperature on, previous text is not a prompt of the next window


def beams_of(fields: dict[str, Any], config: dict[str, Any]) -> int:
    """The number of beams: that of a call, else the model's own."""
    asked: int | None = fields.get("num_beams")
    own: int | None = config.get("num_beams")
    return asked or own or 1


class Transcriber:
    """Transcribes recordings with a Whisper model.

    Args:
        model: the model.
        options: how.

    Attributes:
        begin: id of the token of 0.00 s.
        eos: id of the first special token; None: the model does not say.
        language: id of the language token of the latest transcript; None: the model has none.
    """

    def __init__(self, model: WhisperModel, options: WhisperOptions) -> None:
        self.model = model
        self.options = options
        self.begin = no_timestamps_id(model, options) + 1
        self.eos = id_of(model.generation_config, "eos_token_id")
        self.language: int | None = None

    def transcribe(
        self, frames: int, spoken: int, within: tuple[int, int, int] | None = None
    ) -> Generator[Request, Any, list[Segment]]:
        """The segments of a recording, or of a part of one.

        Args:
            frames: of it. Those of more than a window are transcribed window by window, for which
                times must be generated.
            spoken: frames that are not padding.
            within: the frames of the recording for which it stands (first, end), and all, to tell
                of progress. Default: it is the recording.

        Raises:
            InputError: see `first_tokens`, or the prompt is too long.
        """
        options = self.options
        segments: list[Segment] = []
        previous = self._given_prompt()
        condition = options.condition_on_prev_tokens
        start: list[int] = []
        seek = 0
        before, end, total = within or (0, frames, frames)
        while seek < frames:
            yield Progress(min(before + seek, end), total)
            size = min(frames - seek, self.model.frames)
            yield Encode(seek)
            if not start:
                start, self.language = yield from first_tokens(self.model, options)
            prompt = self._prompt(start, previous, segments, condition)
            tokens, skip, temperature = yield from self._window(prompt, len(start))
            ended = len(tokens) > 0 and tokens[-1] == self.eos
            if ended:
                tokens = tokens[:-1]
            condition = options.condition_on_prev_tokens and (
                temperature is None or temperature < WARM
            )
            if skip:
                seek += size
                continue
            times: list[float] | None = None
            if options.word_times:
                times = yield from self._token_times(prompt, tokens, spoken - seek, ended)
            found, step = split_segments(tokens, times, self.begin, seek, size)
            segments += found
            yield Found(found)
            seek += step
        yield Progress(end, total)
        return segments

    # Prompts

    def _given_prompt(self) -> list[int]:
        """Tokens that count as said before the first window."""
        given = list(self.options.prompt_ids)
        if not given or self.options.prompt_condition_type != "first-segment":
            return []
        return given[1:] if given[0] == self._before() else given

    def _before(self) -> int | None:
        """The id of <|startofprev|>."""
        config = self.model.generation_config
        found = id_of(config, "prev_sot_token_id")
        suppressed: list[int] = config.get("suppress_tokens") or []
        if found is None and len(suppressed) > 1:
            return suppressed[-2]
        return found

    def _prompt(
        self, start: list[int], previous: list[int], segments: list[Segment], condition: bool
    ) -> list[int]:
        """The first tokens of a window."""
        given = list(self.options.prompt_ids)
        if not condition or not (previous or segments):
            return [*given, *start]
        before = self._before()
        head = [] if before is None else [before]
        if given and self.options.prompt_condition_type == "all-segments":
            head = given
        said = list(previous)
        for segment in segments:
            tokens = segment.tokens
            double = len(tokens) > 2 and tokens[-2] >= self.begin
            said += tokens[:-1] if double else tokens
        count = self.model.max_length // 2 - 1
        return [*head, *said[max(len(said) - count, 0) :], *start]

    # One window

    def _window(
        self, prompt: list[int], start: int
    ) -> Generator[Request, Any, tuple[list[int], bool, float | None]]:
        """Generates the tokens of a window, with other temperatures where they seem wrong.

        Args:
            prompt: first tokens.
            start: how many of them begin with <|startoftranscript|>.

        Returns:
            (tokens without prompt, whether the window has no speech, temperature)
        """
        options = self.options
        ratio, least = options.compression_ratio_threshold, options.logprob_threshold
        quiet = options.no_speech_threshold
        silence = 0.0
        if quiet is not None:
            # The probability of <|nospeech|> after <|startoftranscript|>.
            first = prompt[: len(prompt) - start + 1]
            logarithm: float = yield LogProbability(first, self.begin - 2)
            silence = math.exp(logarithm)
        last = len(options.temperature) - 1
        i = 0
        while True:
            temperature = options.temperature[i]
            tokens, logprob = yield from self._attempt(prompt, temperature)
            failed = False
            if ratio is not None:
                compressed = yield from compression_ratio(tokens, self.model.vocab_size)
                failed = compressed > ratio
            unlikely = least is not None and logprob < least
            skip = unlikely and quiet is not None and silence > quiet
            if not (failed or unlikely) or skip or i == last:
                return tokens, skip, temperature
            i += 1

    def _attempt(
        self, prompt: list[int], temperature: float | None
    ) -> Generator[Request, Any, tuple[list[int], float]]:
        """(tokens after the prompt, average logarithm of their probability or 0)"""
        options = self.options
        fields: dict[str, Any] = {
            **options.fields,
            **self._limit(len(prompt)),
            "return_timestamps": options.times,
        }
        if temperature is not None and temperature > 0:
            fields["do_sample"] = True
            fields["temperature"] = temperature
            fields["num_beams"] = 1
        scores: Literal["none", "chosen", "beams"] = "none"
        if options.logprob_threshold is not None:
            several = beams_of(fields, self.model.generation_config) > 1
            scores = "beams" if several else "chosen"
        answer: tuple[list[int], float] = yield Generate(prompt, fields, scores)
        tokens, total = answer
        return tokens, total / max(1, len(tokens))

    def _limit(self, prompt: int) -> dict[str, Any]:
        """The field that limits the length of a window's tokens. prompt: number of tokens."""
        most, fields = self.model.max_length, self.options.fields
        new: int | None = fields.get("max_new_tokens")
        if new is not None:
            if new + prompt > most:
                raise InputError(
                    f"a prompt of {prompt} tokens and max_new_tokens of {new} exceed the {most}"
                    " tokens of the decoder",
                    option("max_new_tokens"),
                    "Shorten the prompt, or lower max_new_tokens.",
                )
            return {"max_new_tokens": new}
        given: int | None = fields.get("max_length")
        given = given or id_of(self.model.generation_config, "max_length") or most
        return {"max_length": min(given, most)}

    def _token_times(
        self, prompt: list[int], tokens: list[int], frames: int, ended: bool
    ) -> Generator[Request, Any, list[float]]:
        """When each token of a window was spoken, in seconds from its start. As in transformers,
        which does not run the last one, that has the time of the one before where the window has no
        end.
        """
        length = max(1, min(frames // FRAMES_PER_POSITION, self.model.positions))
        run = tokens if ended else tokens[:-1]
        if not run:
            return [0.0 for _ in tokens]
        weights: Sequence[Sequence[float]] = yield Align([*prompt, *run], len(prompt), length)
        times = token_times(weights)
        return times if ended else [*times, times[-1]]


def compression_ratio(tokens: Sequence[int], vocab_size: int) -> Generator[Request, Any, float]:
    """How much smaller zlib makes the tokens' bytes: high for repetitions."""
    size = int(math.log2(vocab_size) / 8) + 1
    data = bytearray(size * len(tokens))
    at = 0
    for token in tokens:
        rest = token
        for k in range(size):
            data[at + k] = rest % 256
            rest //= 256
        at += size
    compressed: int = yield Deflate(bytes(data))
    return len(data) / compressed


def split_segments(
    tokens: Sequence[int], times: Sequence[float] | None, begin: int, seek: int, size: int
) -> tuple[list[Segment], int]:
    """The segments of a window.

    Args:
        tokens: of the window.
        times: of the tokens, from the window's start.
        begin: id of the token of 0.00 s.
        seek: the window's first frame.
        size: its frames.

    Returns:
        (segments, frames to the next window)
    """
    offset = seek * TIME_PRECISION / FRAMES_PER_POSITION
    count = len(tokens)
    is_time = [t >= begin for t in tokens]
    single = count > 1 and is_time[-1] and not is_time[-2]
    cuts = [i + 1 for i in range(count - 1) if is_time[i] and is_time[i + 1]]
    absolute = None if times is None else [t + offset for t in times]
    if not cuts:
        found = [t for t in tokens if t >= begin]
        last = int(size * 0.01 / TIME_PRECISION)
        if found and found[-1] != begin:
            last = found[-1] - begin
        whole = Segment(offset, offset + last * TIME_PRECISION, list(tokens), absolute)
        return [whole], size
    if single:
        cuts.append(count)
    else:
        cuts[-1] += 1
    segments: list[Segment] = []
    start = 0
    for i, stop in enumerate(cuts):
        part = list(tokens[start:stop])
        end = part[-1] if i < len(cuts) - 1 or single else part[-2]
        segments.append(
            Segment(
                offset + (part[0] - begin) * TIME_PRECISION,
                offset + (end - begin) * TIME_PRECISION,
                part,
                None if absolute is None else absolute[start:stop],
            )
        )
        start = stop
    if single:
        return segments, size
    return segments, (tokens[start - 2] - begin) * FRAMES_PER_POSITION
