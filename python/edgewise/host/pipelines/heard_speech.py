"""automatic-speech-recognition with language models that hear: those of audio-text-to-text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...compiler.onnx import FileSource
from ...compiler.package import Package
from ...errors import InputError
from ...logic.generation.config import Configuration
from ...logic.multimodal.asking import SOUNDS
from ...logic.multimodal.families.transcripts import transcript_prompt
from .audio import sound_and_others
from .audio_text_to_text import AudioTextToTextPipeline
from .files import stems_of

__all__ = ["HeardSpeechPipeline", "hears_speech"]

_REFUSED = (
    "return_full_text",
    "return_tensors",
    "continue_final_message",
    "add_special_tokens",
    "return_timestamps",
    "return_language",
    "chunk_length_s",
    "stride_length_s",
)
"""Options that these models or transcripts do not have, unless they say nothing."""


def hears_speech(model: Any, revision: str | None = None) -> bool:
    """Whether a model is one of audio-text-to-text, by the names of its graphs."""
    if isinstance(model, (str, os.PathLike)) and os.fsdecode(model).endswith(".edge"):
        path = os.fsdecode(model)
        if not os.path.isfile(path):
            return False
        return Package.read(FileSource(path)).manifest.get("task") == SOUNDS.task
    stems = stems_of(model, revision)
    return all(any(n in stems for n in of) for of in AudioTextToTextPipeline.STEMS[:2])


class HeardSpeechPipeline(AudioTextToTextPipeline):
    """Transcribes recordings with Voxtral: `pipe("talk.wav", language="en")["text"]`.

    Args:
        model: folder, package or id of a model of audio-text-to-text.
        tokenizer, options: as of AudioTextToTextPipeline.

    Options of a call:
        language: of the speech: a code or a name. Default: the model finds it out.
        generate_kwargs and the others of AudioTextToTextPipeline that concern generation. Default
            of max_new_tokens: what is left of `capacity`.

    There are no times. Sounds are those of audio-text-to-text; of several, a list of results.
    """

    task = "automatic-speech-recognition"
    PACKAGES = (SOUNDS.task,)
    CALL: Mapping[str, Any] = {  # type: ignore[misc]
        **AudioTextToTextPipeline.CALL,
        "language": None,
    }

    def options(self, given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """As Pipeline.options, without those that transcripts do not have."""
        given = self.generation_fields(given)
        for name in _REFUSED:
            if given.pop(name, None):
                raise InputError("models that hear have no such option", name, "Leave it out.")
        language = given.get("language")
        if language is not None and not isinstance(language, str):
            raise InputError("it is no text", "language", 'Give a code such as "en".')
        return super().options(given, where)

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
        found = super()._defaults(fields)
        if any(fields.get(name) is not None for name in ("max_new_tokens", "max_length")):
            return found
        room = Configuration({"max_new_tokens": None, "max_length": self.model.max_length})
        return found.merged(room)

    def _transcript(self, given: Any, options: dict[str, Any]) -> dict[str, Any]:
        sound, extra = sound_and_others(given)
        language = self.options(options)["language"]
        text = transcript_prompt(self.config.get("model_type"), self.rule, language)
        [one, *_] = super().__call__(sound, text, **options)
        return {"text": one["generated_text"].removeprefix(text), **extra}
