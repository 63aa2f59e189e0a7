"""speaker-diarization: who spoke when, by pyannote's segmentation and embeddings of voices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...compiler.arrays import Array, as_input
from ...compiler.declare.dtypes import FLOATS, NAME, pack
from ...errors import InputError, ModelError
from ...logic.speech.diarization import (
    OPTIONS,
    TASK,
    Diarization,
    Turn,
    Voice,
    check_options,
    starts_of,
    windows_of,
    with_speakers,
)
from ..media.recording import open_sound, part
from ..text.signals import check_signal
from .base import Pipeline
from .speaker_verification import SpeakerVerificationPipeline
from .speech.graphs import numbers_of

__all__ = ["SpeakerDiarizationPipeline"]


class SpeakerDiarizationPipeline(Pipeline):
    """Says who spoke when:
    `pipeline("speaker-diarization", "models/segmentation-3.0", embedding="models/wespeaker")`.

    Args:
        model: a segmentation model of pyannote's, whose classes are sets of speakers: folder,
            .onnx file or id.
        embedding: the model of voices: a pipeline of speaker-verification, or what it is made of.
            Without one a recording may not be longer than the model's window (10 s).
        options: as of Pipeline.

    Options of a call:
        num_speakers, min_speakers, max_speakers: how many there are. Default: found out.
        threshold: of the distance between voices, 0 to 2; more makes fewer speakers. Default: that
            of pyannote's pipeline 3.1.
        step: seconds between windows. Default: half of a window.
        chunks: of a transcript with timestamps; each gets its "speaker".
        signal: as of edgewise.generate.

    Returns:
        [{"start", "end": seconds, "speaker": "SPEAKER_00"}], by time; with `chunks`
        {"segments": these, "chunks": [{"text", "timestamp", "speaker"}]}
    """

    task = TASK
    CALL: Mapping[str, Any] = {**OPTIONS, "signal": None}  # type: ignore[misc]

    def __init__(self, model: Any, tokenizer: Any = None, *, embedding: Any = None, **options: Any):
        super().__init__(model, tokenizer, **options)
        if embedding is not None and not isinstance(embedding, SpeakerVerificationPipeline):
            embedding = SpeakerVerificationPipeline(
                embedding, session_options=self.session_options, engine=self.engine
            )
        self.embedding: SpeakerVerificationPipeline | None = embedding

    def is_list(self, inputs: Any) -> bool:
        return isinstance(inputs, (list, tuple)) and not (
            inputs and isinstance(inputs[0], (int, float))
        )

    def check(self, options: Mapping[str, Any]) -> None:
        check_options(options)

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        session = self.session("model")
        [port] = [i for i in session.inputs.values() if i.dtype in FLOATS][:1] or [None]
        outputs = [o for o in session.outputs.values() if o.dtype in FLOATS]
        if port is None or not outputs:
            raise ModelError("it takes no samples", self.task, "Give a segmentation model.")
        shape = list(port.shape or ())
        size = shape[-1] if shape and type(shape[-1]) is int and shape[-1] > 0 else 0
        processor = self._json("preprocessor_config.json")
        probe = windows_of(processor, size, 0, options)
        samples = open_sound(given, probe.sampling_rate)
        try:
            count = samples.size
            made: Diarization | None = None
            first = 0
            starts = starts_of(probe, count)
            if len(starts) > 1 and self.embedding is None:
                seconds = probe.size / probe.sampling_rate
                raise InputError(
                    f"the recording is longer than a window ({seconds:g} s)",
                    self.task,
                    "Give embedding= with a model of voices.",
                )
            for start in starts:
                check_signal(options["signal"], self.task)
                data = part(samples, start, probe.size).ljust(4 * probe.size, b"\0")
                dims = (1,) * max(1, len(shape) - 1) + (probe.size,)
                value = Array(dims, "float32", data)
                if NAME[port.dtype] != "float32":
                    value = Array(dims, NAME[port.dtype], pack(port.dtype, value.flat()))
                (logits,) = session.run([outputs[0].name], {port.name: value})
                dtype, found, raw = as_input(logits, outputs[0].name)
                if len(found) != 3:
                    raise ModelError(
                        f"its output is of shape {found}", self.task, "Give a segmentation model."
                    )
                if made is None:
                    windows = windows_of(processor, size, found[1], options)
                    made, first = Diarization(windows, count), found[1]
                made.feed(start, numbers_of(dtype, found, raw), found[1], found[2])
            assert made is not None and first
            voices = made.voices()
            vectors = [self._vector(samples, v, options) for v in voices]
        finally:
            if not isinstance(samples, Array):
                samples.close()
        return self._result(made.turns(vectors, options), options)

    def _vector(self, samples: Any, voice: Voice, options: Mapping[str, Any]) -> Any:
        """The vector of a voice; None: it is too short for the model."""
        check_signal(options["signal"], self.task)
        if self.embedding is None:  # of one window: each speaker is another voice
            return [float(s == voice.speaker) for s in range(8)]
        data = b"".join(part(samples, start, count) for start, count in voice.spans)
        if not data:
            return None
        sound = Array((len(data) // 4,), "float32", data)
        rate = windows_of(self._json("preprocessor_config.json"), 0, 0, {}).sampling_rate
        try:
            return self.embedding.embed({"array": sound, "sampling_rate": rate})
        except InputError:
            if len(data) // 4 >= rate:  # it is not for its length
                raise
            return None

    def _result(self, turns: list[Turn], options: Mapping[str, Any]) -> Any:
        segments = [{"start": t.start, "end": t.end, "speaker": t.speaker} for t in turns]
        if options["chunks"] is None:
            return segments
        return {"segments": segments, "chunks": with_speakers(options["chunks"], turns)}

    def close(self) -> None:
        with self.lock:
            if self.embedding is not None:
                self.embedding.close()
        super().close()
