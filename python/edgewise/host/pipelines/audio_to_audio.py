"""audio-to-audio: models that give sound for sound, such as those that remove noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...compiler.arrays import Array, as_input, as_output
from ...compiler.declare.dtypes import FLOAT
from ...errors import InputError
from ...logic.speech.enhancement import SAMPLES, SOUND, Model, enhanced, model_of, rate_of
from ..media.decode import read_sound, stream_samples
from ..text.signals import check_signal
from .base import Pipeline
from .speech.graphs import GraphHost, signature_of
from .speech.sound import Speech

__all__ = ["AudioToAudioPipeline"]


class AudioToAudioPipeline(Pipeline):
    """Gives sound for sound: `pipeline("audio-to-audio", "denoiser.onnx", sampling_rate=16000)`.

    The model takes samples, [n], [1, n] or [1, 1, n], and gives as many. It may have states, whose
    outputs have the names of their inputs with "out", "new", "next" or "n" in them.

    Args:
        model, options: as of Pipeline.
        sampling_rate: Hz. Default: as in preprocessor_config.json or config.json.

    Options of a call:
        signal: as of edgewise.generate.

    Returns:
        {"audio": float32 [1, samples], "sampling_rate": Hz}, which has `save(path)`
    """

    task = "audio-to-audio"
    PACKAGED = True
    CALL: Mapping[str, Any] = {"signal": None}  # type: ignore[misc]

    def __init__(
        self, model: Any, tokenizer: Any = None, *, sampling_rate: int | None = None, **options: Any
    ) -> None:
        super().__init__(model, tokenizer, **options)
        processor = self._json("preprocessor_config.json")
        self.sampling_rate = rate_of(sampling_rate, processor, self.config)
        self._model: Model | None = None

    def is_list(self, inputs: Any) -> bool:
        return isinstance(inputs, (list, tuple)) and not (
            inputs and isinstance(inputs[0], (int, float))
        )

    @property
    def graph(self) -> Model:
        """What the graph does. Raises ModelError."""
        if self._model is None:
            self._model = model_of(signature_of(self.session("model")))
        return self._model

    def one(self, given: Any, options: dict[str, Any]) -> Speech:
        samples = read_sound(given, self.sampling_rate).samples
        return self._speech(self._run(self._host(options["signal"]), bytes(samples.data), True))

    def stream(self) -> SoundStream:
        """A stream of a model with states: `feed(samples)` gives the sound so far, `end()` the
        rest.

        Raises:
            InputError: the model has no states, or takes sound of any length.
        """
        if not self.graph.states or not self.graph.size:
            raise InputError(
                "the model has no states and parts of one length", self.task, "Call the pipeline."
            )
        return SoundStream(self)

    def _host(self, signal: Any) -> GraphHost:
        def check() -> None:
            check_signal(signal, self.task)

        return GraphHost(self.session, check)

    def _run(self, host: GraphHost, data: bytes, first: bool) -> bytes:
        host.results.clear()
        host.put(SAMPLES, Array((1, len(data) // 4), "float32", data))
        host.drive(enhanced(self.graph, len(data) // 4, self.sampling_rate, first))
        _, _, made = as_input(host.result(SOUND), SOUND)
        return memoryview(made).cast("B").tobytes()

    def _speech(self, data: bytes) -> Speech:
        audio = as_output(FLOAT, [1, len(data) // 4], data)
        return Speech({"audio": audio, "sampling_rate": self.sampling_rate})


class SoundStream:
    """Sound that arrives in pieces, float32 [n] at the model's rate."""

    def __init__(self, pipe: AudioToAudioPipeline) -> None:
        self._pipe, self._host = pipe, pipe._host(None)
        self._left, self._begun = b"", False

    def feed(self, samples: Any) -> Any:
        """The sound of all whole parts so far, float32 [n]."""
        self._left += bytes(stream_samples(samples))
        size = 4 * self._pipe.graph.size
        whole = len(self._left) // size * size
        return self._take(whole)

    def end(self) -> Any:
        """The sound of what is left."""
        return self._take(len(self._left))

    def _take(self, count: int) -> Any:
        data, self._left = self._left[:count], self._left[count:]
        made = b""
        if data:
            with self._pipe.lock:
                made = self._pipe._run(self._host, data, not self._begun)
            self._begun = True
        return as_output(FLOAT, [len(made) // 4], made)
