"""The base of pipelines whose input is sound."""

from __future__ import annotations

from typing import Any

from ..arrays import Array
from ..errors import InputError
from ..processors.audio import AudioProcessor
from ..processors.reader import audio_processor
from .audio_features import AudioFeatures
from .base import Pipeline


class AudioPipeline(Pipeline):
    """A pipeline with the model's processor of sound.

    Inputs are paths of files, bytes of files, samples (at the model's rate), or
    {"array" or "raw": samples, "sampling_rate": Hz}.
    """

    _features: AudioFeatures | None = None

    def is_list(self, inputs: Any) -> bool:
        return isinstance(inputs, (list, tuple)) and not (
            inputs and isinstance(inputs[0], (int, float))
        )

    @property
    def features(self) -> AudioFeatures:
        """The model's processor, which is compiled on first use. Raises InputError."""
        if self._features is None:
            given = self.processor
            if given is None:
                given = self._json("preprocessor_config.json")
                given = given or self._json("processor_config.json")
            if not isinstance(given, AudioProcessor):
                if not isinstance(given, dict) or not given:
                    raise InputError(
                        "the model has no preprocessor_config.json",
                        self.task,
                        "Pass its contents: feature_extractor={...}.",
                    )
                given = audio_processor(given)
            self._features = AudioFeatures(given, self.engine)
        return self._features

    def inputs_of(self, sound: Any) -> dict[str, Any]:
        """The inputs of the graph "model": those of the processor's outputs that it has.

        Raises:
            InputError: it has other inputs: the model is of another task.
        """
        found = self.features(sound)
        wanted = self.session("model").inputs
        if missing := [name for name in wanted if name not in found]:
            raise InputError(
                f"the model has an input '{missing[0]}', which {self.features.processor.kind}"
                " does not give",
                self.task,
                "Check that preprocessor_config.json belongs to the model.",
            )
        return {name: found[name] for name in wanted}

    def vector(self, output: str, inputs: dict[str, Any]) -> list[float]:
        """The numbers of an output for one sound."""
        (value,) = self.session("model").run([output], inputs)
        return value.flat() if isinstance(value, Array) else value.reshape(-1).tolist()

    def close(self) -> None:
        with self.lock:
            if self._features is not None:
                self._features.close()
                self._features = None
        super().close()
