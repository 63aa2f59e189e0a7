"""Models that speak: VITS as transformers has it, Piper and Kokoro. Their options, the units of
sentences that they are given, and the parts that they speak at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import InputError, PackageError
from ..manifest.processor import SpeechFields
from ..native import listed, nfd, option, written
from ..options import read_within
from .parts import parts_of
from .units import known_text, piper_ids, piper_room, vits_ids, vits_text

TASK = "text-to-speech"
MANY = 1 << 30  # `most` of models without plans
MAX_TOKENS = 510  # of Kokoro, without those at the ends
WIDTH = 256  # numbers of a style of Kokoro
DEFAULT = "af_heart"  # voice of Kokoro
SCALES = ("noise_scale", "length_scale", "noise_w")  # of Piper
# The options of each kind of model.
OPTIONS: dict[str, list[str]] = {
    "vits": [],
    "piper": ["speed", *SCALES],
    "kokoro": ["speed", "voice"],
}
ESPEAK = "such as espeak-ng's, or one that returns its argument for texts that are phonemes"


def check_options(voice: SpeechFields, options: Mapping[str, Any], more: Sequence[str]) -> None:
    """Checks the options of a call.

    Args:
        voice: the model.
        options: of any model that speaks.
        more: names of options that a host adds to those of this one.

    Raises:
        InputError: one is not valid, or the model does not have it.
    """
    speed = read_within(options, "speed", 1.0, 0.01, 100)
    for name in SCALES:
        read_within(options, name, 1.0, 0.01 if name == "length_scale" else 0, 100)
    takes = [*OPTIONS[voice["type"]], *more, *(["speaker"] if voice["speakers"] else [])]
    for name in ("voice", "speaker", *OPTIONS["piper"]):
        known = name in takes or (name == "speed" and speed == 1)
        if options.get(name) is not None and not known:
            raise InputError(
                "the model does not have this option",
                option(name),
                f"It has {', '.join(takes)}." if takes else "Leave it out.",
            )


def speaker_number(voice: SpeechFields, options: Mapping[str, Any]) -> int:
    """The number of a speaker, by number or name. Raises InputError: there is none."""
    given: object = options.get("speaker")
    known_names = voice.get("speaker_names")
    names: Mapping[str, int] = {} if known_names is None else known_names
    number = 0 if given is None else given
    if isinstance(given, str):
        number = names.get(given)
    count = voice["speakers"]
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole or not isinstance(number, int) or not 0 <= number < max(1, count):
        known = f" or one of {', '.join(names)}" if names else ""
        raise InputError(
            f"there is no speaker {written(given)}",
            option("speaker"),
            f"Give a number below {count}{known}.",
        )
    return number


def scales_of(voice: SpeechFields, options: Mapping[str, Any]) -> list[float]:
    """The scales that Piper is fed: of noise, of lengths, of the noise of lengths."""
    own = voice.get("scales")
    noise, length, width = (0.667, 1.0, 0.8) if own is None else own
    speed = read_within(options, "speed", 1.0, 0.01, 100)
    return [
        read_within(options, "noise_scale", noise, 0, 100),
        read_within(options, "length_scale", length, 0.01, 100) / speed,
        read_within(options, "noise_w", width, 0, 100),
    ]


def voice_name(names: Sequence[str], given: str | None) -> str:
    """The voice of Kokoro that a call means. Raises InputError: there is none, or several."""
    if given is None and len(names) == 1:
        return names[0]
    name = DEFAULT if given is None else given
    if name not in names:
        raise InputError(
            "the model has several voices" if given is None else f"there is no voice {given!r}",
            option("voice"),
            f"Give one of {', '.join(names[:40]) if names else 'none'}.",
        )
    return name


# Units: characters or phonemes


def asked(voice: SpeechFields, sentence: str) -> str | None:
    """The text that a phonemizer gets of VITS; None: the model reads the letters."""
    text = _cleaned(voice, sentence)
    return text if voice.get("phonemize") or _is_foreign(voice, text) else None


def _cleaned(voice: SpeechFields, text: str) -> str:
    vocabulary: Mapping[str, Any] = voice["vocabulary"]
    normalize, language = voice.get("normalize"), voice.get("language")
    return vits_text(text, vocabulary, normalize is True, language)


def _is_foreign(voice: SpeechFields, text: str) -> bool:
    """Whether a text has to be romanized."""
    return voice.get("is_uroman") is True and any(ord(c) > 127 for c in list(text))


def units_of(voice: SpeechFields, sentence: object, phonemes: bool) -> list[str]:
    """The units of a sentence, of which parts can be spoken by themselves. Those that Piper and
    Kokoro do not know are left out, as there.

    Args:
        voice: the model.
        sentence: a text, or a list of phonemes.
        phonemes: whether a phonemizer made it.

    Raises:
        InputError: the model reads phonemes.
    """
    if voice["type"] == "vits":
        return _vits_units(voice, _text(sentence), phonemes)
    if not phonemes and not voice.get("is_text"):
        raise _need("voice reads" if voice["type"] == "piper" else "model reads")
    vocabulary: Mapping[str, Any] = voice["vocabulary"]
    if voice["type"] == "kokoro":
        return [c for c in list(_text(sentence)) if c in vocabulary]
    units = list(nfd(sentence)) if isinstance(sentence, str) else listed(sentence)
    return [] if units is None else [unit for unit in units if unit in vocabulary]


def _vits_units(voice: SpeechFields, text: str, phonemes: bool) -> list[str]:
    vocabulary: Mapping[str, Any] = voice["vocabulary"]
    if phonemes:
        text = _single_spaces(text)
    else:
        text = _cleaned(voice, text)
        if voice.get("phonemize"):
            raise _need("model reads")
        if _is_foreign(voice, text):
            raise _need("model reads Latin letters (as made by uroman) as")
    if not voice.get("phonemize") and voice.get("normalize"):
        text = known_text(text, vocabulary)
    return list(text)


def _single_spaces(text: str) -> str:
    made: list[str] = []
    for c in list(text):
        if not c.isspace():
            made.append(c)
        elif not made or made[-1] != " ":
            made.append(" ")
    return "".join(made)


def _text(sentence: object) -> str:
    if isinstance(sentence, str):
        return sentence
    units: list[str] | None = listed(sentence)
    return "" if units is None else "".join(units)


def _need(what: str) -> InputError:
    return InputError(
        f"the {what} phonemes",
        "phonemizer",
        f"Give a function that makes them of a text, {ESPEAK}.",
    )


def ids_of(voice: SpeechFields, units: Sequence[str]) -> list[int]:
    """The ids of units. Raises InputError: VITS does not know one."""
    vocabulary: Mapping[str, Any] = voice["vocabulary"]
    if voice["type"] == "piper":
        return piper_ids(units, vocabulary)
    if voice["type"] == "kokoro":
        return [0, *[vocabulary[c] for c in units], 0]
    unknown = voice.get("unknown")
    blank = voice.get("add_blank") is True
    return vits_ids(units, vocabulary, "" if unknown is None else unknown, blank)


def room_of(voice: SpeechFields) -> int:
    """Most units of a part. Raises PackageError: no unit fits."""
    kind, most = voice["type"], voice["most"]
    vocabulary: Mapping[str, Any] = voice["vocabulary"]
    room = (most - 1) // 2 if voice.get("add_blank") else most
    if kind == "kokoro":
        room = min(most - 2, MAX_TOKENS)
    elif kind == "piper":
        room = piper_room(most, vocabulary)
    if room < 1:
        raise PackageError(
            f"its plans are for {most} tokens, fewer than a character of it takes",
            TASK,
            "Build it again with this version: `edgewise build --task`.",
        )
    return room


# Speech


@dataclass(frozen=True)
class Say:
    """Run the model, or its first program, and keep its outputs. Answer: frames of the sound, of
    which the second program makes it; None: that was all.

    Attributes:
        units: of a part of a sentence.
        ids: of the units, followed by zeros where there are too few.
        count: number of ids without those zeros.
    """

    units: list[str]
    ids: list[int]
    count: int
    kind: Literal["say"] = "say"


@dataclass(frozen=True)
class Sound:
    """Run the second program on the outputs of the first one. No answer."""

    frames: int
    kind: Literal["sound"] = "sound"


def spoken(
    voice: SpeechFields, units: list[str], encode: Callable[[list[str]], list[int]], masked: bool
) -> Generator[Say | Sound, Any, None]:
    """Speaks a sentence: a part after the other, and halves of parts that take too many frames.

    Args:
        voice: the model.
        units: of the sentence.
        encode: from units to ids.
        masked: whether the model has a mask of tokens.

    Raises:
        InputError: there are no plans for a part.
    """
    waiting = parts_of(units, room_of(voice))
    while waiting:
        part = waiting.pop(0)
        ids = encode(part)
        count = len(ids)
        missing = max(0, voice["least"] - count)
        if missing and not masked and voice["type"] != "piper":
            raise InputError("the text is too short for the model", TASK, "Give a longer one.")
        frames: int | None = yield Say(part, [*ids, *[0 for i in range(missing)]], count)
        limits = voice.get("frames")
        if frames is None or limits is None:
            continue
        least, most = limits
        if frames > most and len(part) > 1:
            waiting = [*parts_of(part, (len(part) + 1) // 2), *waiting]
            continue
        if not least <= frames <= most:
            raise InputError(
                f"the model speaks a part of the text in {frames} frames",
                TASK,
                f"The package is for {least} to {most}: choose another speed, or build it with"
                " --max-length.",
            )
        yield Sound(frames)
