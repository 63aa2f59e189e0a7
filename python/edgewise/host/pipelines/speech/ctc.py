"""Speech to text with CTC models: wav2vec2, HuBERT, WavLM and their relatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import Array
from ....compiler.tokenizers.ctc import CTCTokenizer, frame_size, frame_windows
from ....errors import InputError
from ....logic.speech.chunks import Done, Hear
from ....logic.speech.ctc import Frames, recognized, times_of, transcript
from ....logic.speech.samples import longest
from ...drive import drive
from ...media.decode import read_sound
from ...media.recording import part
from ...text.signals import check_signal
from ..audio import AudioPipeline, sound_and_others
from ..post.plane import Plane

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
        times = times_of(options)
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

        def answer(request: Hear | Done) -> Any:
            if request.kind == "hear":
                check_signal(options["signal"], "automatic-speech-recognition")
                data = part(samples, request.start, request.length)
                return self._tokens(Array((request.length,), "float32", data))
            if options["on_progress"] is not None:
                options["on_progress"](request.done, request.total)
            return None

        sound = self.described_sound
        frames = Frames(
            rate,
            self.ratio or 1,
            frame_windows(self.config),
            None if sound is None else longest(sound),
            sound is not None,
        )
        ids = drive(recognized(frames, options, samples.size), answer)
        tokenizer: CTCTokenizer = self.tokenizer
        found = transcript(tokenizer.vocabulary, frames, ids, times_of(options))
        return {**found, **extra}

    def _tokens(self, samples: Array) -> list[int]:
        """The token of each frame."""
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
        return best_of_rows(logits)


def best_of_rows(logits: Any) -> list[int]:
    """The index of the greatest number of each row of [1, rows, n]; the first of equal ones."""
    if hasattr(logits, "argmax"):
        found: list[int] = logits[0].argmax(-1).tolist()
        return found
    values = Plane(logits)
    rows = (values.row(0, i) for i in range(values.shape[1]))
    return [row.index(max(row)) for row in rows]
