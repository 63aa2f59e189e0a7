"""How language models that hear are asked for transcripts."""

from __future__ import annotations

from ....errors import InputError
from ...native import option, written
from ...speech.languages import CODES, LANGUAGES
from .sounds import TASK, SoundRule

SPEECH = "automatic-speech-recognition"


def transcript_prompt(family: object, rule: SoundRule, language: str | None) -> str:
    """The text that asks for a transcript of a sound, with its placeholder. Mirrors
    mistral-common's encode_transcription.

    Args:
        family: `model_type` of config.json.
        rule: of the family.
        language: its code or its name; None: the model finds it out.

    Raises:
        InputError: the family has no such prompt, or there is no such language.
    """
    if family != "voxtral":
        raise InputError(
            f"the family {written(family)} has no prompt for transcripts",
            SPEECH,
            f'Ask for one with the task "{TASK}".',
        )
    asked = ""
    if language is not None:
        code = language.lower()
        code = CODES.get(code, code)
        if code not in LANGUAGES:
            raise InputError(
                f"the language {written(language)} is unknown",
                option("language"),
                'Give a code of two letters such as "en", or a name such as "english".',
            )
        asked = f"lang:{code}"
    return f"<s>[INST]{rule['placeholder']}[/INST]{asked}[TRANSCRIBE]"
