"""Speech to text with CTC models: wav2vec2, HuBERT, WavLM and their relatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import Array
from ....compiler.tokenizers.ctc import CTCTokenizer, frame_size, frame_windows
from ....errors import InputError
from ....logic.speech.chunks import Chunk
from ....logic.speech.ctc import frames_in, frames_of
from ...media.decode import read_sound
from ...text.signals import check_signal
from ..audio import AudioPipeline
from ..text import Numbers
from .chunks import chunk_lengths, sound_and_others, sound_chunks

if TYPE_CHECKING:
    from ..base import Pipeline

__all__ = ["CTCRecognizer"]

_OTHERS = (
    "return_timestamps",
    "chunk_length_s",
    "stride_length_s",
    "on_progress",
    "signal",
    "ignore_warning",
)
"""The options of automatic-speech-recognition that apply to CTC models."""


class CTCRecognizer(AudioPipeline):
    """The part of automatic-speech-recognition that is of CTC models: each frame of about 20 ms has
    a token, repeated tokens are one, and blanks are left out.

    Args:
        outer: the pipeline, whose files and sessions are used.
    """

    def __init__(self, outer: Pipeline) -> None:
        self.start_lock()
        self.closed, self.engine, self.session_options = False, outer.engine, outer.session_options
        self.files, self.sessions, self.config = outer.files, outer.sessions, outer.config
        self.defaults = {**outer.CALL}
        self.processor, self.tokenizer = outer.processor, outer.tokenizer

    def check(self, options: Mapping[str, Any]) -> None:
        """Checks the options of a call. Raises InputError."""
        times = options["return_timestamps"]
        if times not in (None, False, "char", "word"):
            raise InputError(
                f"CTC models have no times of kind {times!r}",
                "return_timestamps",
                'Give False, "char" or "word".',
            )
        for name, value in options.items():
            if name not in _OTHERS and value not in (self.defaults[name], None, {}):
                raise InputError("CTC models have no such option", name, "Leave it out.")
        if (times or options["chunk_length_s"]) and self.ratio is None:
            raise InputError(
                "config.json does not say how many samples a frame has",
                "return_timestamps" if times else "chunk_length_s",
                "Give a config.json with conv_stride.",
            )

    @property
    def ratio(self) -> int | None:
        """Samples of a frame; None: not known."""
        return frame_size(self.config)

    def one(self, given: Any, options: dict[str, Any]) -> dict[str, Any]:
        """The text of a recording."""
        rate = self.features.processor.sampling_rate
        given, others = sound_and_others(given)
        extra = {name: [value] for name, value in others.items()}
        samples = read_sound(given, rate).samples
        ids: list[int] = []
        for piece, chunk in self._pieces(samples, options):
            check_signal(options["signal"], "automatic-speech-recognition")
            found = self._frames(piece)
            if chunk is not None:
                first, end = frames_of(chunk, self.ratio or 1)
                found = found[first:end]
            ids += found
            if options["on_progress"] is not None:
                done = samples.size if chunk is None else chunk.start + chunk.length
                options["on_progress"](done, samples.size)
        tokenizer: CTCTokenizer = self.tokenizer
        characters = tokenizer.characters(ids)
        result: dict[str, Any] = {"text": tokenizer.text(characters)}
        if options["return_timestamps"]:
            words = options["return_timestamps"] == "word"
            spans, ratio = tokenizer.words(characters) if words else characters, self.ratio or 1
            result["chunks"] = [
                {"text": s.text, "timestamp": (s.start * ratio / rate, s.end * ratio / rate)}
                for s in spans
            ]
        return {**result, **extra}

    def _pieces(
        self, samples: Array, options: Mapping[str, Any]
    ) -> Iterator[tuple[Array, Chunk | None]]:
        """The samples of the recording or of its chunks."""
        rate, ratio = self.features.processor.sampling_rate, self.ratio or 1
        most = self.longest_sound
        seconds = options["chunk_length_s"]
        if not seconds and most is not None and samples.size > most:
            seconds = most // ratio * ratio / rate  # chunks are of whole frames
        if not seconds:
            yield samples, None
            return
        lengths = chunk_lengths(seconds, options["stride_length_s"], rate, ratio)
        yield from sound_chunks(samples, *lengths)

    def _frames(self, samples: Array) -> list[int]:
        """The token of each frame; none of the silence that fills up a sound for a package."""
        name = self.need_output("model", "logits")
        inputs, wanted = self.features.of_samples(samples), self.session("model").inputs
        if "attention_mask" in wanted and "attention_mask" not in inputs:
            inputs["attention_mask"] = [[1] * samples.size]
        elif "attention_mask" in wanted:  # of int64; exports of torch have int32
            inputs["attention_mask"] = inputs["attention_mask"].tolist()
        if missing := [n for n in wanted if n not in inputs]:
            raise InputError(
                f"the model has an input '{missing[0]}', which {self.features.processor.kind}"
                " does not give",
                self.task or "automatic-speech-recognition",
                "Check that preprocessor_config.json belongs to the model.",
            )
        feeds = self.fitted({n: inputs[n] for n in wanted})
        (logits,) = self.session("model").run([name], feeds)
        ids, windows = best_of_rows(logits), frame_windows(self.config)
        return ids[: frames_in(windows, samples.size)] if self.described_sound and windows else ids


def best_of_rows(logits: Any) -> list[int]:
    """The index of the greatest number of each row of [1, rows, n]; the first of equal ones."""
    if hasattr(logits, "argmax"):
        found: list[int] = logits[0].argmax(-1).tolist()
        return found
    values = Numbers(logits)
    rows = (values.row(0, i) for i in range(values.shape[1]))
    return [row.index(max(row)) for row in rows]
