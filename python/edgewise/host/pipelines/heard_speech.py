"""automatic-speech-recognition with language models that hear: those of audio-text-to-text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...compiler.onnx import FileSource
from ...compiler.package import Package
from ...logic.multimodal.asking import SOUNDS
from ...logic.multimodal.families.transcripts import (
    LANGUAGE,
    SPEECH,
    transcript_defaults,
    transcript_of,
    transcript_options,
    transcript_prompt,
)
from ...logic.tasks.names import ALSO
from .audio import sound_and_others
from .audio_text_to_text import AudioTextToTextPipeline
from .files import stems_of

__all__ = ["HeardSpeechPipeline", "hears_speech"]


def hears_speech(model: Any, revision: str | None = None) -> bool:
    """Whether a model is one of audio-text-to-text, by the names of its graphs."""
    if isinstance(model, (str, os.PathLike)) and os.fsdecode(model).endswith(".edge"):
        path = os.fsdecode(model)
        if not os.path.isfile(path):
            return False
        manifest = Package.read(FileSource(path)).manifest
        task = manifest.get("task")
        return task == SOUNDS.task or (task == SPEECH and "sounds" in manifest.get("processor", {}))
    stems = stems_of(model, revision)
    return all(any(n in stems for n in of) for of in AudioTextToTextPipeline.STEMS[:2])


class HeardSpeechPipeline(AudioTextToTextPipeline):
    """Transcribes recordings with Voxtral and Qwen3-ASR: `pipe(sound, language="en")["text"]`.

    Args:
        model: folder, package or id of a model of audio-text-to-text.
        tokenizer, options: as of AudioTextToTextPipeline.

    Options of a call:
        language: of the speech: a code or a name. Default: the model finds it out.
        generate_kwargs and the others of AudioTextToTextPipeline that concern generation. Default
            of max_new_tokens: what is left of `capacity`.

    There are no times. Sounds are those of audio-text-to-text; of several, a list of results.
    """

    task = SPEECH
    PACKAGES = ALSO[SPEECH]
    CALL: Mapping[str, Any] = {  # type: ignore[misc]
        **AudioTextToTextPipeline.CALL,
        LANGUAGE: None,
    }

    def options(self, given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """As Pipeline.options, without those that transcripts do not have."""
        return super().options(transcript_options(self.generation_fields(given)), where)

    def __call__(  # type: ignore[override]  # the name of transformers
        self, inputs: Any, **options: Any
    ) -> Any:
        """Transcribes a recording, or a list of them.

        Raises:
            InputError: an input or an option is not valid. Aborted: by the signal.
        """
        several = isinstance(inputs, (list, tuple)) and not (
            inputs and isinstance(inputs[0], (int, float))
        )
        found = [self._transcript(one, dict(options)) for one in (inputs if several else [inputs])]
        return found if several else found[0]

    def _defaults(self, fields: Mapping[str, Any]) -> Any:
        return transcript_defaults(super()._defaults(fields), fields, self.model.max_length)

    def _transcript(self, given: Any, options: dict[str, Any]) -> dict[str, Any]:
        sound, extra = sound_and_others(given)
        language = self.options(options)[LANGUAGE]
        family = self.config.get("model_type")
        text = transcript_prompt(family, self.rule, language)
        [one, *_] = super().__call__(sound, text, **options)
        return {"text": transcript_of(family, one["generated_text"].removeprefix(text)), **extra}
