"""Runs Whisper for logic/speech, which decides what is run."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ....logic.generation.generate import log_probability_of, resolved
from ....logic.generation.run import log_probability
from ....logic.speech.prompts import WhisperModel
from ....logic.speech.recognition import Part
from ....logic.speech.requests import Generate, Request
from ...drive import drive
from ..generate import generate, model_defaults
from ..run import GenerationHost, finished

if TYPE_CHECKING:
    from ...session.seq2seq import EncodedSource, Seq2SeqModel

__all__ = ["FeatureBytes", "Features", "WhisperRunner", "whisper_model"]

Result = TypeVar("Result")


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
        """Frames [start, start + size), zeros after the last one: float32 [bins, size]."""
        stop = min(start + size, self.frames)
        pad = bytes(4 * (size - (stop - start)))
        flat = self.data.cast("B")
        rows = (4 * self.frames * i for i in range(self.bins))
        return b"".join(bytes(flat[at + 4 * start : at + 4 * stop]) + pad for at in rows)


def whisper_model(model: Seq2SeqModel) -> WhisperModel:
    """What the logic knows of a model."""
    frames, positions = model.encoders[0][:2]
    return WhisperModel(
        model.generation_config,
        model.config,
        model.vocab_size,
        model.max_length,
        model.start_ids()[0],
        frames,
        positions,
    )


class WhisperRunner:
    """Answers what the logic of Whisper asks for.

    Args:
        model: the model.
        features: of the recording; a function that makes those of its parts.
        streamer: gets the tokens of each window.
        signal: see edgewise.generate.
        on_progress: called with (frames that are done, frames).
    """

    def __init__(
        self,
        model: Seq2SeqModel,
        features: Features | Callable[[Part], Features],
        streamer: Any = None,
        signal: Any = None,
        on_progress: Callable[[int, int], Any] | None = None,
    ) -> None:
        self.model, self.streamer, self.signal = model, streamer, signal
        self.on_progress = on_progress
        self._features = features
        self._part: Features | None = None if callable(features) else features
        self._source: EncodedSource | None = None

    def run(self, steps: Generator[Any, Any, Result]) -> Result:
        """The result of the logic. Raises InputError, Aborted: see edgewise.generate."""
        try:
            return drive(steps, self._answer)
        finally:
            self._close()

    def _close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def _answer(self, request: Request | Part) -> Any:
        """Does what a request asks for."""
        if request.kind == "part":
            assert callable(self._features)
            self._part = self._features(request)
            return self._part.frames, self._part.spoken
        if request.kind == "progress":
            if self.on_progress is not None:
                self.on_progress(request.done, request.total)
        elif request.kind == "encode":
            self._close()
            assert self._part is not None
            size = self.model.encoders[0][0]
            self._source = self.model.encode(FeatureBytes(self._part.window(request.start, size)))
        elif request.kind == "deflate":
            return len(zlib.compress(request.data))
        elif request.kind != "found" and self._source is not None:
            return self._run(request, self._source)
        return None

    def _run(self, request: Request, source: EncodedSource) -> Any:
        """As `_answer`, for what the decoder is run for."""
        if request.kind == "generate":
            return self._generate(request, source)
        if request.kind == "align":
            return self.model.align(source, request.tokens, request.skip, request.length)
        sequence = source.open()
        try:
            with self.model.lock:
                if request.kind == "logits":
                    return self.model.logits(source.forward(sequence, request.tokens))
                if request.kind == "log_probability":
                    logits = source.forward(sequence, request.tokens)
                    return self._log_probability(logits, request.token, 1.0)
        finally:
            source.close(sequence)
        raise AssertionError(request.kind)

    def _generate(self, request: Generate, source: EncodedSource) -> tuple[list[int], float]:
        """(tokens after the prompt, sum of the logarithms of their probabilities or 0)"""
        prompt, fields, total = request.prompt, request.fields, 0.0

        def add(scores: int, token: int) -> None:
            nonlocal total
            total += self._log_probability(scores, token, fields.get("temperature", 1.0))

        source.scored = add if request.scores == "chosen" else None
        try:
            out: Any = generate(
                source,
                prompt,
                streamer=self.streamer,
                signal=self.signal,
                return_dict_in_generate=True,
                **fields,
            )
        finally:
            source.scored = None
        tokens = list(out["sequences"][0][len(prompt) :])
        if request.scores == "beams":
            host = GenerationHost(source)
            config = resolved(model_defaults(source), None, fields)
            total = finished(host.answer(log_probability_of(host, config, prompt, tokens)))
        return tokens, total

    def _log_probability(self, scores: int, token: int, factor: float) -> float:
        """The logarithm of the probability of a token. factor: of the scores."""
        model = self.model
        return log_probability(model.engine, model.vocab_size, scores, token, factor)


class FeatureBytes:
    """Features as Seq2SeqModel.encode takes them."""

    dtype = "float32"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def tobytes(self) -> bytes:
        """The bytes."""
        return self.data
