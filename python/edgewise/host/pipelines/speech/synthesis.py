"""Models that speak: VITS as transformers has it, Piper and Kokoro.

Each makes the inputs of its graph of one sentence.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ....compiler.processors.resampling import MAX_RATE
from ....compiler.processors.styles import Styles
from ....compiler.task_package.synthesis import piper_settings
from ....compiler.tokenizers.vits import VitsTokenizer
from ....errors import InputError, ModelError
from ....json_text import integer_field, number_field, object_field
from ....logic.speech.parts import parts_of
from ....logic.speech.units import piper_ids, piper_room
from ...session.open import name_in
from .packaged import PackagedVoice

if TYPE_CHECKING:
    from ..base import Pipeline

__all__ = ["Speaker", "speaker_of"]

MAX_TOKENS = 510  # of Kokoro, without those at the ends
RATES = (1, MAX_RATE)
SPEAKERS = (0, 1 << 20)
VOICE = "the voice's .onnx.json"
ESPEAK = "such as espeak-ng's; pass phonemizer=str for texts that are phonemes already"

Feeds = dict[str, Any]
Options = Mapping[str, Any]


class Speaker(Protocol):
    """What a kind of model adds to the pipeline. A part of a sentence is a list of its units:
    characters or phonemes.

    Attributes:
        rate: Hz of the sound.
        splits: whether a text is spoken sentence by sentence unless an option says otherwise.
        takes: names of the options that apply to the model.
    """

    rate: int
    splits: bool
    takes: frozenset[str]

    def parts(self, text: str, options: Options) -> Iterator[list[str]]:
        """The parts of a sentence."""

    def feeds(self, part: list[str], options: Options) -> Feeds:
        """The inputs of the graph for a part."""


def speaker_of(pipe: Pipeline) -> Speaker:
    """The kind of a pipeline's model, by its files and inputs.

    Raises:
        InputError: it is none that is known. ModelError, TokenizerError: a file is damaged.
    """
    model = pipe.session("model")
    if isinstance(model, PackagedVoice):
        kinds: dict[str, Callable[[Pipeline], Speaker]]
        kinds = {"vits": _Vits, "piper": _Piper, "kokoro": _Kokoro}
        return kinds[model.type](pipe)
    inputs = model.inputs
    if {"input", "input_lengths", "scales"} <= set(inputs):
        return _Piper(pipe)
    if {"style", "speed"} <= set(inputs):
        return _Kokoro(pipe)
    if "input_ids" in inputs and set(inputs) <= {"input_ids", "attention_mask", "speaker_id"}:
        return _Vits(pipe)
    raise InputError(
        f"its inputs are {', '.join(inputs)}", pipe.task, "Models are VITS, Piper and Kokoro."
    )


class _Vits:
    """transformers' VitsModel, among them MMS."""

    splits = False

    def __init__(self, pipe: Pipeline) -> None:
        model = pipe.session("model")
        self.inputs = model.inputs
        self.rate = integer_field(pipe.config, "sampling_rate", 16000, RATES, "config.json")
        self.takes = frozenset({"phonemizer"} | ({"speaker"} & {n[:7] for n in self.inputs}))
        self.speakers = integer_field(pipe.config, "num_speakers", 1, SPEAKERS, "config.json")
        self.tokenizer = pipe.tokenizer
        self.most = 0  # any number
        if isinstance(model, PackagedVoice):
            self.tokenizer = self.tokenizer or model.tokenizer()
            blank = getattr(self.tokenizer, "add_blank", False)
            self.most = (model.most - 1) // 2 if blank else model.most
        elif self.tokenizer is None and pipe.files is not None:
            self.tokenizer = VitsTokenizer.from_files(pipe.files.read, pipe.files.where)
        if self.tokenizer is None:
            raise InputError("there is no tokenizer", pipe.task, "Pass tokenizer= with a path.")

    def parts(self, text: str, options: Options) -> Iterator[list[str]]:
        """See Speaker."""
        phonemizer = options["phonemizer"]
        if isinstance(self.tokenizer, VitsTokenizer):
            characters = [*self.tokenizer.characters(text, phonemizer)]
        else:
            characters = [*(text if phonemizer is None else str(phonemizer(text)))]
        if self.most and len(characters) > self.most:
            yield from parts_of(characters, self.most)
        else:
            yield characters

    def feeds(self, part: list[str], options: Options) -> Feeds:
        """See Speaker."""
        if isinstance(self.tokenizer, VitsTokenizer):
            ids = self.tokenizer.ids(part)
        else:
            found = self.tokenizer.encode("".join(part))
            ids = list(getattr(found, "ids", found))
        if not ids:
            raise InputError("the text has no characters that the model knows", "text", "Give one.")
        feeds: Feeds = {"input_ids": [ids]}
        if "attention_mask" in self.inputs:
            feeds["attention_mask"] = [[1] * len(ids)]
        if "speaker_id" in self.inputs:
            number = check_speaker(options["speaker"] or 0, self.speakers, {})
            rank = len(self.inputs["speaker_id"].shape or ())
            feeds["speaker_id"] = [number] if rank else number
        return feeds


SCALES = {"noise_scale": 0.667, "length_scale": 1.0, "noise_w": 0.8}


class _Piper:
    """Piper's voices: NAME.onnx with NAME.onnx.json."""

    splits = True

    def __init__(self, pipe: Pipeline) -> None:
        model = pipe.session("model")
        self.inputs = model.inputs
        config = _piper_config(pipe)
        self.speakers = integer_field(config, "num_speakers", 1, SPEAKERS, VOICE)
        ids = config.get("phoneme_id_map")
        self.ids: dict[str, list[int]] = ids if isinstance(ids, dict) else {}
        lists = all(
            isinstance(of, list) and all(type(i) is int for i in of) for of in self.ids.values()
        )
        if not lists or not all(c in self.ids for c in "^_$"):
            raise ModelError(
                "it has no phoneme_id_map with ^, _ and $", VOICE, "Copy it again from the voice."
            )
        self.names = object_field(config, "speaker_id_map", VOICE)
        inference = object_field(config, "inference", VOICE)
        self.scales = {name: number_field(inference, name, s, VOICE) for name, s in SCALES.items()}
        self.is_text = config.get("phoneme_type") == "text"
        audio = object_field(config, "audio", VOICE)
        self.rate = integer_field(audio, "sample_rate", 22050, RATES, VOICE)
        names = {"phonemizer", "speed", "noise_scale", "length_scale", "noise_w"}
        self.takes = frozenset(names | ({"speaker"} if "sid" in self.inputs else set()))
        self.most = 0  # any number
        if isinstance(model, PackagedVoice):
            self.most = max(1, piper_room(model.most, self.ids))

    def parts(self, text: str, options: Options) -> Iterator[list[str]]:
        """See Speaker. Phonemes that the voice does not have are left out, as in Piper."""
        for phonemes in self._phonemes(text, options["phonemizer"]):
            known = [p for p in phonemes if p in self.ids]
            if self.most and len(known) > self.most:
                yield from parts_of(known, self.most)
            else:
                yield known

    def feeds(self, part: list[str], options: Options) -> Feeds:
        """See Speaker."""
        scales = [s if options[n] is None else float(options[n]) for n, s in self.scales.items()]
        scales[1] /= options["speed"]
        ids = piper_ids(part, self.ids)
        feeds: Feeds = {"input": [ids], "input_lengths": [len(ids)], "scales": scales}
        if "sid" in self.inputs:
            feeds["sid"] = [check_speaker(options["speaker"] or 0, self.speakers, self.names)]
        return feeds

    def _phonemes(self, text: str, phonemizer: Callable[[str], Any] | None) -> Iterator[list[str]]:
        """The phonemes of each sentence."""
        if phonemizer is None:
            if not self.is_text:
                raise InputError(
                    "the voice reads phonemes",
                    "phonemizer",
                    f"Give a function that makes them of a text, {ESPEAK}.",
                )
            phonemizer = str
        found = phonemizer(text)
        for sentence in [found] if isinstance(found, str) else found:
            if isinstance(sentence, str):
                yield list(unicodedata.normalize("NFD", sentence))
            else:  # a list of phonemes, as Piper's phonemizers return
                yield [str(phoneme) for phoneme in sentence]


def _piper_config(pipe: Pipeline) -> dict[str, Any]:
    """The settings of the voice: of its .onnx.json (piper_settings), or those that were given."""
    if pipe.config.get("phoneme_id_map"):
        return pipe.config
    if pipe.files is not None:
        graph = name_in(pipe.files.root, pipe.files.graphs["model"])
        name = piper_settings(pipe.files.names, graph)
        found = pipe.files.json(name) if name != "config.json" else None
        if found is not None:
            return found
    raise InputError(
        "there is no .onnx.json of the voice",
        pipe.task,
        "Put it beside the .onnx file, or pass its contents: config={...}.",
    )


class _Kokoro:
    """Kokoro (StyleTTS 2)."""

    splits = True
    takes = frozenset({"phonemizer", "speed", "voice"})
    rate = 24000

    def __init__(self, pipe: Pipeline) -> None:
        model = pipe.session("model")
        self.tokens = "tokens" if "tokens" in model.inputs else "input_ids"
        names, read = (
            ([], lambda name: None) if pipe.files is None else (pipe.files.names, pipe.files.read)
        )
        self.styles = Styles(names, read)
        self.most = MAX_TOKENS
        if isinstance(model, PackagedVoice):
            self.styles = model.styles()
            self.most = min(MAX_TOKENS, model.most - 2)
        vocabulary: Any = pipe.config.get("vocab")
        if vocabulary is None and pipe.files is not None:
            fast = pipe.files.json("tokenizer.json") or {}
            vocabulary = object_field(fast, "model", "tokenizer.json").get("vocab")
            if vocabulary is None:
                vocabulary = pipe.files.json("vocab.json")
                vocabulary = (vocabulary or {}).get("vocab", vocabulary)
        if not isinstance(vocabulary, dict) or not all(type(i) is int for i in vocabulary.values()):
            raise InputError(
                "there is no vocabulary of phonemes",
                pipe.task,
                "Put config.json with `vocab`, tokenizer.json or vocab.json into the folder.",
            )
        self.vocabulary = vocabulary

    def parts(self, text: str, options: Options) -> Iterator[list[str]]:
        """See Speaker. Phonemes that the model does not have are left out, as in Kokoro."""
        phonemizer = options["phonemizer"]
        if phonemizer is None:
            raise InputError(
                "the model reads phonemes",
                "phonemizer",
                f"Give a function that makes them of a text, {ESPEAK}.",
            )
        found = phonemizer(text)
        for sentence in [found] if isinstance(found, str) else found:
            phonemes = "".join(sentence)
            yield from parts_of([c for c in phonemes if c in self.vocabulary], self.most)

    def feeds(self, part: list[str], options: Options) -> Feeds:
        """See Speaker."""
        ids = [self.vocabulary[c] for c in part]
        return {
            self.tokens: [[0, *ids, 0]],
            "style": [self.styles.row(options["voice"], len(ids))],
            "speed": [options["speed"]],
        }


def check_speaker(speaker: Any, count: int, names: Mapping[str, Any]) -> int:
    """The number of a speaker. Raises InputError: there is no such speaker."""
    number = names.get(speaker) if isinstance(speaker, str) else speaker
    if type(number) is not int or not 0 <= number < max(1, count):
        raise InputError(
            f"there is no speaker {speaker!r}",
            "speaker",
            f"Give a number below {count}" + (f" or one of {', '.join(names)}." if names else "."),
        )
    return number
