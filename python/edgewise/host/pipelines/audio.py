"""The base of pipelines whose input is sound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...compiler.arrays import Array, as_input
from ...compiler.declare.dtypes import NAME
from ...compiler.processors.audio import AudioProcessor
from ...compiler.processors.reader import audio_processor, voice_settings
from ...errors import InputError
from ...logic.manifest.processor import AudioFields
from ...logic.speech.samples import check_longest
from ..session.packaged import ProgramSession
from .audio_features import AudioFeatures
from .base import Pipeline

_SOUND = ("raw", "array", "sampling_rate", "path")


def sound_and_others(given: Any) -> tuple[Any, dict[str, Any]]:
    """An input of a call, and the other entries of it, which belong into the result."""
    if not isinstance(given, Mapping):
        return given, {}
    return (
        {name: value for name, value in given.items() if name in _SOUND},
        {name: value for name, value in given.items() if name not in _SOUND},
    )


class AudioPipeline(Pipeline):
    """A pipeline with the model's processor of sound.

    Inputs are paths of files, bytes of files, samples (at the model's rate), or
    {"array" or "raw": samples, "sampling_rate": Hz}.
    """

    _features: AudioFeatures | None = None
    PACKAGED = True

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
                if not given and self.task == "speaker-verification":
                    given = voice_settings([i.shape for i in self.session("model").inputs.values()])
            if not isinstance(given, AudioProcessor):
                if not isinstance(given, dict) or not given:
                    raise InputError(
                        "the model has no preprocessor_config.json",
                        self.task,
                        "Pass its contents: feature_extractor={...}.",
                    )
                given = self.processor_of(given)
            self._features = AudioFeatures(given, self.engine)
        return self._features

    def processor_of(self, config: Mapping[str, Any]) -> AudioProcessor:
        """The processor that a preprocessor_config.json describes. Raises InputError."""
        return audio_processor(config)

    def inputs_of(
        self, sound: Any, stem: str = "model", feeds: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The inputs of a graph: those of the processor's outputs and of `feeds` that it has.

        Raises:
            InputError: it has other inputs: the model is of another task.
        """
        found = {**self.features(sound), **(feeds or {})}
        wanted = self.session(stem).inputs
        if missing := [name for name in wanted if name not in found]:
            raise InputError(
                f"the model has an input '{missing[0]}', which {self.features.processor.kind}"
                " does not give",
                self.task,
                "Check that preprocessor_config.json belongs to the model.",
            )
        return self.fitted({name: found[name] for name in wanted}, stem)

    @property
    def described_sound(self) -> AudioFields | None:
        """What a package says of its sound; None for other models."""
        if self.files is None or self.files.package is None:
            return None
        found: AudioFields | None
        found = self.files.package.manifest.get("processor", {}).get("audio")
        return found

    def fitted(self, inputs: Mapping[str, Any], stem: str = "model") -> dict[str, Any]:
        """Inputs of a graph; for one of a package samples are followed by silence, and their mask
        by zeros, up to a number that it has a plan for.

        Raises:
            InputError: there are more samples than it has a plan for.
        """
        session, sound = self.session(stem), self.described_sound
        if sound is None or not isinstance(session, ProgramSession):
            return dict(inputs)
        found = {}
        for name, value in inputs.items():
            dtype, shape, data = as_input(value, name)
            if len(shape) == 2:
                check_longest(sound, shape[1], self.task or "automatic-speech-recognition")
                size = session.size_for(name, 1, shape[1])
                more = bytes(len(data) // shape[1] * (size - shape[1]))
                value = Array((1, size), NAME[dtype], bytes(memoryview(data).cast("B")) + more)
            found[name] = value
        return found

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
