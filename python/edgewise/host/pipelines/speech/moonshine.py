"""Speech to text with Moonshine: an encoder of samples, and a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import Array
from ....compiler.processors.audio import AudioProcessor, of_frames
from ....errors import InputError
from ....logic.speech.chunks import Done, Hear
from ....logic.speech.moonshine import fields_of, recognized, without_marks
from ...drive import drive
from ...media.decode import read_sound
from ...media.recording import part
from ...text import generate
from ...text.signals import check_signal
from ..audio import AudioPipeline, sound_and_others

if TYPE_CHECKING:
    from ..seq2seq import Seq2SeqPipeline

__all__ = ["MoonshineRecognizer"]

_OTHERS = ("generate_kwargs", "chunk_length_s", "stride_length_s", "on_progress", "signal")
"""The options of automatic-speech-recognition that apply to Moonshine, besides `streamer`."""


class MoonshineRecognizer(AudioPipeline):
    """The part of automatic-speech-recognition that is of Moonshine.

    Args:
        outer: the pipeline, whose files, sessions and model are used.
    """

    def __init__(self, outer: Seq2SeqPipeline) -> None:
        self.start_lock()
        self.closed, self.engine, self.session_options = False, outer.engine, outer.session_options
        self.files, self.sessions, self.config = outer.files, outer.sessions, outer.config
        self.processor, self.tokenizer = outer.processor, outer.tokenizer
        self.outer, self.defaults = outer, {**outer.CALL}

    def processor_of(self, config: Mapping[str, Any]) -> AudioProcessor:
        return of_frames(super().processor_of(config), self.config)

    def check(self, options: Mapping[str, Any]) -> None:
        """Checks the options of a call. Raises InputError."""
        for name, value in options.items():
            known = name in (*_OTHERS, "streamer", "ignore_warning")
            if not known and value not in (self.defaults[name], None, False):
                raise InputError("Moonshine has no such option", name, "Leave it out.")

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
                return self._tokens(Array((request.length,), "float32", data), rate, options)
            if options["on_progress"] is not None:
                options["on_progress"](request.done, request.total)
            return None

        ids = drive(recognized(options, rate, samples.size), answer)
        return {"text": self.tokenizer.decode(ids, skip_special_tokens=True), **extra}

    def _tokens(self, samples: Array, rate: int, options: Mapping[str, Any]) -> list[int]:
        """The tokens of a recording, without those that mark its begin and end."""
        stem = "encoder" if self.described_sound else "encoder_model"
        session, inputs = self.session(stem), self.features.of_samples(samples)
        if "attention_mask" in session.inputs:
            inputs.setdefault("attention_mask", [[1] * samples.size])
        output = self.need_output(stem, "last_hidden_state")
        feeds = self.fitted({n: inputs[n] for n in session.inputs}, stem)
        (hidden,) = session.run([output], feeds)
        model = self.outer.model
        room = model.max_length - len(model.start_ids())
        fields = fields_of(dict(options["generate_kwargs"] or {}), samples.size, rate, room)
        source = model.encode(hidden)
        try:
            out: Any = generate(
                source,
                model.start_ids(),
                tokenizer=self.tokenizer,
                streamer=options["streamer"],
                signal=options["signal"],
                **fields,
            )
        finally:
            source.close()
        return without_marks(list(out[0]), model.generation_config)
