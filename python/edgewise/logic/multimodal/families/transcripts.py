"""How language models that hear are asked for transcripts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....errors import InputError
from ...generation.config import Configuration
from ...native import option, written
from ...speech.languages import CODES, LANGUAGES
from .sounds import TASK, SoundRule

SPEECH = "automatic-speech-recognition"
LANGUAGE = "language"
QWEN3_ASR = "qwen3_asr"
MARK = "<asr_text>"
"""After the language, which Qwen3-ASR says."""
REFUSED = (
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


def transcript_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call without those that say nothing.

    Raises:
        InputError: one of them is none of transcripts, or the language is no text.
    """
    kept: dict[str, Any] = {}
    for name, value in given.items():
        if name not in REFUSED:
            kept[name] = value
        elif value:
            raise InputError("models that hear have no such option", option(name), "Leave it out.")
    language: Any = kept.get(LANGUAGE)
    if language is not None and not isinstance(language, str):
        raise InputError("it is no text", option(LANGUAGE), 'Give a code such as "en".')
    return kept


def transcript_defaults(
    defaults: Configuration, fields: Mapping[str, Any], capacity: int
) -> Configuration:
    """The configuration of a call: a transcript may be as long as the model allows.

    Args:
        defaults: of the model and the task.
        fields: of the call.
        capacity: tokens of a sequence.
    """
    if fields.get("max_new_tokens") is not None or fields.get("max_length") is not None:
        return defaults
    return defaults.merged(Configuration({"max_new_tokens": None, "max_length": capacity}))


def transcript_prompt(family: object, rule: SoundRule, language: str | None) -> str:
    """The text that asks for a transcript of a sound, with its placeholder. Mirrors
    mistral-common's encode_transcription, and Qwen3ASRProcessor.apply_transcription_request of
    transformers.

    Args:
        family: `model_type` of config.json.
        rule: of the family.
        language: its code or its name; None: the model finds it out.

    Raises:
        InputError: the family has no such prompt, or there is no such language.
    """
    if family != "voxtral" and family != QWEN3_ASR:
        raise InputError(
            f"the family {written(family)} has no prompt for transcripts",
            SPEECH,
            f'Ask for one with the task "{TASK}".',
        )
    code = None if language is None else _code(language)
    if family == QWEN3_ASR:
        sound = f"<|audio_start|>{rule['placeholder']}<|audio_end|>"
        name = "" if code is None else LANGUAGES[code]
        asked = f"language {name[:1].upper()}{name[1:]}{MARK}" if name else ""
        return (
            "<|im_start|>system\n<|im_end|>\n<|im_start|>user\n"
            f"{sound}<|im_end|>\n<|im_start|>assistant\n{asked}"
        )
    asked = "" if code is None else f"lang:{code}"
    return f"<s>[INST]{rule['placeholder']}[/INST]{asked}[TRANSCRIBE]"


def _code(language: str) -> str:
    """The code of a language, by its code or name. Raises InputError."""
    code = language.lower()
    code = CODES.get(code, code)
    if code not in LANGUAGES:
        raise InputError(
            f"the language {written(language)} is unknown",
            option(LANGUAGE),
            'Give a code of two letters such as "en", or a name such as "english".',
        )
    return code


def transcript_of(family: object, text: str) -> str:
    """A transcript without what the model writes before it: Qwen3-ASR says the language.

    Args:
        family: `model_type` of config.json.
        text: that was generated.
    """
    if family != QWEN3_ASR:
        return text
    parts = text.split(MARK)
    return (MARK.join(parts[1:]) if len(parts) > 1 else text).strip()
