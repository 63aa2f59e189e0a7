"""speaker-diarization: who spoke when, by pyannote's segmentation and embeddings of voices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...compiler.arrays import Array
from ...errors import InputError
from ...logic.speech.diarization import (
    GRAPH,
    OPTIONS,
    SAMPLES,
    TASK,
    Voice,
    check_options,
    is_short,
    rate_of,
    result_of,
    segmented,
)
from ..media.recording import open_sound, part
from ..text.signals import check_signal
from .base import Pipeline
from .speaker_verification import SpeakerVerificationPipeline
from .speech.graphs import GraphHost, signature_of

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
    PACKAGED = True
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
        processor = self._json("preprocessor_config.json")
        rate = rate_of(processor)
        samples = open_sound(given, rate)
        try:

            def check() -> None:
                check_signal(options["signal"], self.task)

            host = GraphHost(self.session, check)
            host.read(SAMPLES, lambda start, count: part(samples, start, count))
            signature = signature_of(self.session(GRAPH))
            embeds = self.embedding is not None
            made = host.drive(segmented(signature, processor, samples.size, options, embeds))
            voices = made.voices()
            if embeds:
                vectors = [self._vector(samples, rate, v, check) for v in voices]
            else:
                vectors = made.apart()
        finally:
            if not isinstance(samples, Array):
                samples.close()
        return result_of(made.turns(vectors, options), options)

    def _vector(self, samples: Any, rate: int, voice: Voice, check: Any) -> Any:
        """The vector of a voice; None: it is too short for the model."""
        check()
        assert self.embedding is not None
        data = b"".join(part(samples, start, count) for start, count in voice.spans)
        count = len(data) // 4
        if not count:
            return None
        sound = Array((count,), "float32", data)
        try:
            return self.embedding.embed({"array": sound, "sampling_rate": rate})
        except InputError:
            if not is_short(count, rate):  # it is not for its length
                raise
            return None

    def close(self) -> None:
        with self.lock:
            if self.embedding is not None:
                self.embedding.close()
        super().close()
