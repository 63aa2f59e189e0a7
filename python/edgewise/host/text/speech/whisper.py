"""Tokens from log-mel features with Whisper: prompts, windows, fallback, segments. Mirrors
transformers/models/whisper/generation_whisper.py for one recording.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ....errors import InputError
from ....logic.speech.alignment import TIME_PRECISION, token_times
from ..generate import generate
from .rescore import average_log_probability
from .whisper_prompt import first_tokens, no_timestamps_id

if TYPE_CHECKING:
    from ...session.seq2seq import EncodedSource, Seq2SeqModel

FRAMES_PER_POSITION = 2
WARM = 0.5  # from this temperature on, previous text is not a prompt of the next window


@dataclass
class WhisperOptions:
    """How to transcribe; names and defaults are transformers'.

    Attributes:
        times: whether tokens of times are generated.
        word_times: whether each token gets a time.
        language, task: of the prompt.
        prompt_ids: tokens before the first window's, or with prompt_condition_type "all-segments"
            before each.
        condition_on_prev_tokens: whether the text so far is a prompt of the next window.
        temperature: one, or several to try in turn; None: greedy or beams.
        compression_ratio_threshold, logprob_threshold, no_speech_threshold: when another
            temperature is tried, and when a window is skipped; None: never.
        fields: of GenerationConfig.
        streamer: gets the tokens of each window.
        signal: see edgewise.generate.
        on_progress: called with (frames that are done, frames).
    """

    times: bool = False
    word_times: bool = False
    language: str | None = None
    task: str | None = None
    prompt_ids: Sequence[int] | None = None
    prompt_condition_type: str = "first-segment"
    condition_on_prev_tokens: bool = False
    temperature: float | Sequence[float] | None = None
    compression_ratio_threshold: float | None = None
    logprob_threshold: float | None = None
    no_speech_threshold: float | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    streamer: Any = None
    signal: Any = None
    on_progress: Callable[[int, int], Any] | None = None


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


@dataclass
class Features:
    """Log-mel features of a recording.

    Attributes:
        data: float32 [bins, frames].
        bins, frames: see there.
        spoken: frames that are not padding.
    """

    data: Any  # memoryview of "f"; its type has no parameter at run time before Python 3.14
    bins: int
    frames: int
    spoken: int

    def window(self, start: int, size: int) -> bytes:
        """Frames [start, start + size), zeros behind the last one: float32 [bins, size]."""
        stop = min(start + size, self.frames)
        pad = bytes(4 * (size - (stop - start)))
        flat = self.data.cast("B")
        rows = (4 * self.frames * i for i in range(self.bins))
        return b"".join(bytes(flat[at + 4 * start : at + 4 * stop]) + pad for at in rows)


class WhisperTranscriber:
    """Transcribes recordings with a Whisper model.

    Args:
        model: the model.
        options: how.

    Attributes:
        language: id of the language token of the latest transcript; None: the model has none.
    """

    def __init__(self, model: Seq2SeqModel, options: WhisperOptions) -> None:
        self.model, self.options = model, options
        self.window_frames = model.encoders[0][0]
        self.begin = no_timestamps_id(model, options.times) + 1
        self.language: int | None = None
        self.eos = _one_id(model.generation_config.get("eos_token_id"))

    def transcribe(self, features: Features) -> list[Segment]:
        """The segments of a recording.

        Args:
            features: of the recording. Those of more than a window are transcribed window by
                window, for which times must be generated.

        Raises:
            InputError, Aborted: see edgewise.generate.
        """
        options, seek, total = self.options, 0, features.frames
        segments: list[Segment] = []
        previous = self._given_prompt()
        condition, start = options.condition_on_prev_tokens, None
        while seek < total:
            if options.on_progress is not None:
                options.on_progress(seek, total)
            size = min(total - seek, self.window_frames)
            source = self.model.encode(_Bytes(features.window(seek, self.window_frames)))
            try:
                if start is None:
                    start, self.language = first_tokens(self.model, source, options)
                prompt = self._prompt(start, previous, segments, condition)
                tokens, skip, temperature = self._window(source, prompt, len(start))
                ended = bool(tokens) and tokens[-1] == self.eos
                tokens = tokens[:-1] if ended else tokens
                condition = options.condition_on_prev_tokens and (
                    temperature is None or temperature < WARM
                )
                if skip:
                    seek += size
                    continue
                times = None
                if options.word_times:
                    spoken = features.spoken - seek
                    times = self._token_times(source, prompt, tokens, spoken, ended)
            finally:
                source.close()
            new, step = split_segments(tokens, times, self.begin, seek, size)
            segments += new
            seek += step
        if options.on_progress is not None:
            options.on_progress(total, total)
        return segments

    # ---- prompts
    def _given_prompt(self) -> list[int]:
        """Tokens that count as said before the first window."""
        given = list(self.options.prompt_ids or [])
        if not given or self.options.prompt_condition_type != "first-segment":
            return []
        return given[1:] if given[0] == self._before() else given

    def _before(self) -> int | None:
        """The id of <|startofprev|>."""
        config = self.model.generation_config
        found = config.get("prev_sot_token_id")
        suppressed = config.get("suppress_tokens") or []
        return found if found is not None else suppressed[-2] if len(suppressed) > 1 else None

    def _prompt(
        self, start: list[int], previous: list[int], segments: list[Segment], condition: bool
    ) -> list[int]:
        """The first tokens of a window."""
        given = list(self.options.prompt_ids or [])
        if condition and (previous or segments):
            all_segments = given and self.options.prompt_condition_type == "all-segments"
            before = self._before()
            head = given if all_segments else [] if before is None else [before]
            said = list(previous)
            for s in segments:
                double = len(s.tokens) > 2 and s.tokens[-2] >= self.begin
                said += s.tokens[:-1] if double else s.tokens
            return [*head, *said[-(self.model.max_length // 2 - 1) :], *start]
        return [*given, *start]

    # ---- one window
    def _window(
        self, source: EncodedSource, prompt: list[int], start: int
    ) -> tuple[list[int], bool, float | None]:
        """Generates the tokens of a window, with other temperatures where they seem wrong.

        Args:
            source: the window.
            prompt: first tokens.
            start: how many of them begin with <|startoftranscript|>.

        Returns:
            (tokens without prompt, whether the window has no speech, temperature)
        """
        options = self.options
        silence = 0.0
        if options.no_speech_threshold is not None:
            silence = self._silence(source, prompt[: len(prompt) - start + 1])
        temperatures = _listed(options.temperature)
        for i, temperature in enumerate(temperatures):
            tokens, logprob = self._attempt(source, prompt, temperature)
            failed = skip = False
            ratio, least = options.compression_ratio_threshold, options.logprob_threshold
            if ratio is not None:
                failed = compression_ratio(tokens, self.model.vocab_size) > ratio
            if least is not None:
                failed = failed or logprob < least
            if options.no_speech_threshold is not None and least is not None:
                skip = logprob < least and silence > options.no_speech_threshold
            if not failed or skip or i == len(temperatures) - 1:
                break
        return tokens, skip, temperature

    def _attempt(
        self, source: EncodedSource, prompt: list[int], temperature: float | None
    ) -> tuple[list[int], float]:
        """(tokens behind the prompt, average logarithm of their probability or 0)"""
        options, engine, total = self.options, self.model.engine, 0.0
        fields = {**options.fields, **self._limit(prompt)}
        sampled = temperature is not None and temperature > 0
        if sampled:
            fields.update(do_sample=True, temperature=temperature, num_beams=1)
        beams = fields.get("num_beams") or self.model.generation_config.get("num_beams") or 1
        out_at = engine.alloc(4)

        def add(scores: int, token: int) -> None:
            nonlocal total
            engine.write(out_at, struct.pack("<f", fields.get("temperature", 1.0)))
            engine.call("ew_sampling_log_probability", scores, source.vocab_size, token, out_at)
            total += struct.unpack("<f", bytes(engine.read(out_at, 4)))[0]

        wanted = options.logprob_threshold is not None
        source.scored = add if wanted and beams == 1 else None
        try:
            out: Any = generate(
                source,
                prompt,
                streamer=options.streamer,
                signal=options.signal,
                return_timestamps=options.times,
                return_dict_in_generate=True,
                **fields,
            )
        finally:
            engine.free(out_at)
            source.scored = None
        tokens = list(out["sequences"][0][len(prompt) :])
        if wanted and beams > 1:
            return tokens, average_log_probability(
                source, prompt, tokens, {**fields, "return_timestamps": options.times}
            )
        return tokens, total / max(1, len(tokens))

    def _limit(self, prompt: list[int]) -> dict[str, int]:
        """The field that limits the length of a window's tokens."""
        most, fields = self.model.max_length, self.options.fields
        new = fields.get("max_new_tokens")
        if new is not None:
            if new + len(prompt) > most:
                raise InputError(
                    f"a prompt of {len(prompt)} tokens and max_new_tokens={new} exceed the"
                    f" {most} tokens of the decoder",
                    "max_new_tokens",
                    "Shorten the prompt, or lower max_new_tokens.",
                )
            return {"max_new_tokens": new}
        given = fields.get("max_length") or self.model.generation_config.get("max_length") or most
        return {"max_length": min(given, most)}

    def _silence(self, source: EncodedSource, prompt: list[int]) -> float:
        """The probability of <|nospeech|> behind <|startoftranscript|>, the prompt's last token."""
        engine, sequence = self.model.engine, source.open()
        at = engine.alloc(4)
        try:
            with self.model.lock:
                engine.write(at, struct.pack("<f", 1.0))
                logits = source.forward(sequence, prompt)
                token = self.begin - 2
                engine.call("ew_sampling_log_probability", logits, source.vocab_size, token, at)
                return math.exp(struct.unpack("<f", bytes(engine.read(at, 4)))[0])
        finally:
            engine.free(at)
            source.close(sequence)

    def _token_times(
        self, source: EncodedSource, prompt: list[int], tokens: list[int], frames: int, ended: bool
    ) -> list[float]:
        """When each token of a window was spoken, in seconds from its start. As in transformers,
        which does not run the last one, that has the time of the one before where the window has no
        end.
        """
        length = max(1, min(frames // FRAMES_PER_POSITION, source.positions))
        run = tokens if ended else tokens[:-1]
        if not run:
            return [0.0] * len(tokens)
        times = token_times(self.model.align(source, [*prompt, *run], len(prompt), length))
        return times if ended else [*times, times[-1]]


class _Bytes:
    """Features as Seq2SeqModel.encode takes them."""

    dtype = "float32"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def tobytes(self) -> bytes:
        """The bytes."""
        return self.data


def _listed(temperature: float | Sequence[float] | None) -> list[float | None]:
    if temperature is None or isinstance(temperature, (int, float)):
        return [temperature]
    return list(temperature)


def _one_id(value: Any) -> int | None:
    return value[0] if isinstance(value, list) and value else value


def compression_ratio(tokens: Sequence[int], vocab_size: int) -> float:
    """How much smaller zlib makes the tokens' bytes: high for repetitions."""
    length = int(math.log2(vocab_size) / 8) + 1
    data = b"".join(t.to_bytes(length, "little") for t in tokens)
    return len(data) / len(zlib.compress(data))


def split_segments(
    tokens: list[int], times: list[float] | None, begin: int, seek: int, size: int
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
    is_time = [t >= begin for t in tokens]
    single = is_time[-2:] == [False, True]
    cuts = [i + 1 for i in range(len(tokens) - 1) if is_time[i] and is_time[i + 1]]
    absolute = None if times is None else [t + offset for t in times]
    if not cuts:
        found = [t for t in tokens if t >= begin]
        last: float = int(size * 0.01 / TIME_PRECISION)
        if found and found[-1] != begin:
            last = found[-1] - begin
        whole = Segment(offset, offset + last * TIME_PRECISION, list(tokens), absolute)
        return [whole], size
    if single:
        cuts.append(len(tokens))
    else:
        cuts[-1] += 1
    segments, start = [], 0
    for i, stop in enumerate(cuts):
        part = tokens[start:stop]
        end = part[-1 if i < len(cuts) - 1 or single else -2]
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
