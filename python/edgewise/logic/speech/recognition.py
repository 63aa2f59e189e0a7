"""Recognition with Whisper: the options of a call, the parts of a recording, and the result.
Mirrors transformers' AutomaticSpeechRecognitionPipeline.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ...errors import InputError
from ..native import option, written
from ..options import read_choice, read_count, read_flag, read_ids, read_number, read_text, refused
from .chunks import Chunk, chunk_lengths, chunks_of
from .features import HOP
from .join import Joiner, Window
from .prompts import WhisperModel, WhisperOptions, language_name
from .requests import Request
from .whisper import Transcriber
from .words import Decode

RATE = 16000  # Hz, of Whisper
CONDITIONS = ("first-segment", "all-segments")
# Options of what a result has, and of how a recording is divided, which a stream does not have.
RESULTS = (
    "return_timestamps",
    "return_language",
    "chunk_length_s",
    "stride_length_s",
    "num_frames",
    "force_full_sequences",
)
# Options that the model's own generation_config.json may have, too.
OWN = (
    "prompt_condition_type",
    "condition_on_prev_tokens",
    "compression_ratio_threshold",
    "logprob_threshold",
    "no_speech_threshold",
)
OPTIONS = (*RESULTS, "language", "task", "prompt_ids", "temperature", *OWN)


@dataclass(frozen=True)
class Part:
    """Make features of a part of the recording, of which windows are encoded from now on. Answer:
    (its frames, those that are not padding)

    Attributes:
        start, length: in samples.
        whole: whether it is the recording.
    """

    start: int
    length: int
    whole: bool
    kind: Literal["part"] = "part"


@dataclass(frozen=True)
class Call:
    """The options of a call.

    Attributes:
        times: "" for none, "segment" or "word".
        language: whether chunks have a language.
        lengths: samples of a chunk and of its overlaps; None: the recording is not divided.
        frames: of the sound, for times of words; None: those of the recording.
        full: whether a last chunk without an end is an error.
        whisper: how to transcribe.
    """

    times: str
    language: bool
    lengths: tuple[int, int, int] | None
    frames: int | None
    full: bool
    whisper: WhisperOptions


def call_of(options: Mapping[str, Any], fields: dict[str, Any], config: dict[str, Any]) -> Call:
    """The options of a call.

    Args:
        options: of the task; what is None was not given.
        fields: of GenerationConfig.
        config: contents of generation_config.json, whose fields apply as well.

    Raises:
        InputError: one is not valid, or has no effect.
    """
    times = _times(options)
    both: Mapping[str, Any] = {
        n: config.get(n) if options.get(n) is None else options.get(n) for n in OWN
    }
    whisper = WhisperOptions(
        times=times != "",
        word_times=times == "word",
        language=read_text(options, "language"),
        task=read_text(options, "task"),
        prompt_ids=read_ids(options, "prompt_ids"),
        prompt_condition_type=read_choice(
            both, "prompt_condition_type", "first-segment", CONDITIONS
        ),
        condition_on_prev_tokens=read_flag(both, "condition_on_prev_tokens"),
        temperature=_temperatures(options),
        compression_ratio_threshold=read_number(both, "compression_ratio_threshold"),
        logprob_threshold=read_number(both, "logprob_threshold"),
        no_speech_threshold=read_number(both, "no_speech_threshold"),
        fields=fields,
    )
    _check(options, whisper)
    seconds: object = options.get("chunk_length_s")
    lengths: tuple[int, int, int] | None = None
    if seconds is not None and seconds != 0:
        lengths = chunk_lengths(seconds, options.get("stride_length_s"), RATE)
    return Call(
        times,
        read_flag(options, "return_language"),
        lengths,
        read_count(options, "num_frames"),
        read_flag(options, "force_full_sequences"),
        whisper,
    )


def _times(options: Mapping[str, Any]) -> str:
    value: object = options.get("return_timestamps")
    if value is None or value is False:
        return ""
    if value is True:
        return "segment"
    if value != "word":
        raise InputError(
            f"Whisper has no times of kind {written(value)}",
            option("return_timestamps"),
            f'Give {written(False)}, {written(True)} or "word".',
        )
    return "word"


def _temperatures(options: Mapping[str, Any]) -> list[float | None]:
    """Those to try in turn; None: greedy or beams."""
    given: Any = options.get("temperature")
    some: list[Any] = list(given) if isinstance(given, (list, tuple)) else [given]
    for value in some:
        known = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and not (known and 0 <= value < float("inf")):
            some = []
    if not some:
        raise refused("temperature", given, "Give a number of 0 or more, or a list of them.")
    return some


def _check(options: Mapping[str, Any], whisper: WhisperOptions) -> None:
    fields = whisper.fields
    several: int | None = fields.get("num_return_sequences")
    draws: bool | None = fields.get("do_sample")
    if draws or (several is not None and several != 1):
        raise InputError(
            "transcripts have one text; `temperature` draws at random",
            option("do_sample" if draws else "num_return_sequences"),
            "Leave it out.",
        )
    if whisper.prompt_condition_type == "all-segments" and not whisper.condition_on_prev_tokens:
        raise InputError(
            '"all-segments" needs condition_on_prev_tokens',
            option("prompt_condition_type"),
            "Give both.",
        )
    if options.get("no_speech_threshold") is not None and whisper.logprob_threshold is None:
        raise InputError(
            "it has an effect only with logprob_threshold",
            option("no_speech_threshold"),
            "Give both.",
        )


class Transcript:
    """Transcribes a recording.

    Args:
        call: how.
        model: the model.
        count: samples of the recording. One of more than a window is transcribed window by window,
            with times, unless it is divided into chunks.
        decode: from ids to text, special tokens included.

    Attributes:
        begin: id of the token of 0.00 s.
        eos: id of the first special token.
    """

    def __init__(self, call: Call, model: WhisperModel, count: int, decode: Decode) -> None:
        self.call = call
        self.model = model
        self.count = count
        long = call.lengths is None and count > model.frames * HOP
        whisper = replace(call.whisper, times=call.times != "" or long)
        self.transcriber = Transcriber(model, whisper)
        self.begin = self.transcriber.begin
        found = self.transcriber.eos
        self.eos = self.begin if found is None else found
        self.joiner = Joiner(
            decode,
            self.eos,
            self.begin,
            words=call.times == "word",
            times=call.times != "",
            segment_size=model.positions,
        )

    def steps(self) -> Generator[Request | Part, Any, dict[str, Any]]:
        """The result: {"text"}, and with times or languages {"chunks": [{...}]}.

        Raises:
            InputError: see Transcriber.transcribe, or the last chunk has no end, where it needs
                one.
        """
        lengths = self.call.lengths
        if lengths is None:
            yield from self._add(Chunk(0, self.count, 0, 0), True)
        else:
            size, before, after = lengths
            for chunk in chunks_of(self.count, size, before, after):
                yield from self._add(chunk, False)
        text, chunks = self.joiner.end()
        call = self.call
        if call.times and call.full and chunks and chunks[-1]["timestamp"][1] is None:
            raise InputError(
                "the model gave no end of the last chunk",
                option("force_full_sequences"),
                f"Set it to {written(False)}.",
            )
        result: dict[str, Any] = {"text": text}
        if call.times or call.language:
            result["chunks"] = [self._chunk(chunk) for chunk in chunks]
        return result

    def _add(self, chunk: Chunk, whole: bool) -> Generator[Request | Part, Any, None]:
        """Transcribes a part of the recording."""
        answer: tuple[int, int] = yield Part(chunk.start, chunk.length, whole)
        frames, spoken = answer
        asked = self.call.frames
        if asked is not None:
            spoken = asked
        within: tuple[int, int, int] | None = None
        if not whole:  # what overlaps is told of once
            end = chunk.start + chunk.length - chunk.right
            within = ((chunk.start + chunk.left) // HOP, end // HOP, self.count // HOP)
        segments = yield from self.transcriber.transcribe(frames, spoken, within)
        tokens: list[int] = []
        times: list[float] = []
        for segment in segments:
            tokens += segment.tokens
            times += segment.token_times or []
        self.joiner.add(
            Window(
                tokens,
                times if self.call.times == "word" else None,
                None if whole else (chunk.length / RATE, chunk.left / RATE, chunk.right / RATE),
                language_name(self.model.generation_config, self.transcriber.language),
            )
        )

    def _chunk(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """A chunk of the result."""
        made: dict[str, Any] = {}
        if self.call.language:
            made["language"] = chunk["language"]
        if self.call.times:
            made["timestamp"] = tuple(chunk["timestamp"])
        made["text"] = chunk["text"]
        return made
