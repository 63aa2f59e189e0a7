"""Models that speak, as their files and packages describe them: VITS as transformers has it, Piper
and Kokoro. What they read is decided by logic/speech/voices.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from ....compiler.processors.resampling import MAX_RATE
from ....compiler.processors.styles import Styles
from ....compiler.task_package.synthesis import piper_settings
from ....compiler.tokenizers.vits import VitsTokenizer
from ....errors import InputError, ModelError
from ....json_text import integer_field, number_field, object_field
from ....logic.manifest.processor import SpeechFields
from ....logic.options import read_within
from ....logic.speech.voices import MANY, SCALES, asked, ids_of, scales_of, speaker_number, units_of
from ...session.open import name_in
from .packaged import PackagedVoice

if TYPE_CHECKING:
    from ..base import Pipeline

__all__ = ["Speaker"]

RATES = (1, MAX_RATE)
SPEAKERS = (0, 1 << 20)
VOICE = "the voice's .onnx.json"

Feeds = dict[str, Any]
Options = Mapping[str, Any]


class _Lengths(TypedDict):
    """The fields of plans."""

    least: int
    most: int
    output: str


class Speaker:
    """What a pipeline's model reads, by its files and inputs.

    Args:
        pipe: the pipeline.

    Attributes:
        voice: its description.
        splits: whether a text is spoken sentence by sentence unless an option says otherwise.

    Raises:
        InputError: it is none that is known. ModelError, TokenizerError: a file is damaged.
    """

    def __init__(self, pipe: Pipeline) -> None:
        model = pipe.session("model")
        self.inputs = model.inputs
        self.styles: Styles | None = None
        self.tokenizer: Any = None  # of VITS, where it is none of transformers' kind
        if isinstance(model, PackagedVoice):
            self.voice: SpeechFields = model.described
            if self.voice["type"] == "vits":
                self._take(pipe.tokenizer)
            if self.voice["type"] == "kokoro":
                self.styles = model.styles()
        elif {"input", "input_lengths", "scales"} <= set(self.inputs):
            self.voice = _piper(pipe, self.inputs)
        elif {"style", "speed"} <= set(self.inputs):
            self.voice = _kokoro(pipe, self.inputs)
            names, read = (
                ([], lambda name: None)
                if pipe.files is None
                else (pipe.files.names, pipe.files.read)
            )
            self.styles = Styles(names, read)
        elif "input_ids" in self.inputs and set(self.inputs) <= _VITS:
            self.voice = _vits(pipe, self.inputs)
            tokenizer = pipe.tokenizer
            if tokenizer is None and pipe.files is not None:
                tokenizer = VitsTokenizer.from_files(pipe.files.read, pipe.files.where)
            if tokenizer is None:
                raise InputError("there is no tokenizer", pipe.task, "Pass tokenizer= with a path.")
            self._take(tokenizer)
        else:
            raise InputError(
                f"its inputs are {', '.join(self.inputs)}",
                pipe.task,
                "Models are VITS, Piper and Kokoro.",
            )
        self.splits = self.voice["type"] != "vits"

    def _take(self, tokenizer: Any) -> None:
        if isinstance(tokenizer, VitsTokenizer):
            self.voice = {**self.voice, **tokenizer.description()}  # type: ignore[typeddict-item]
        elif tokenizer is not None:
            self.tokenizer = tokenizer

    def units(self, text: str, options: Options) -> Iterator[list[str]]:
        """The units of the sentences that are made of a text: one, or those of its phonemizer."""
        phonemizer = options["phonemizer"]
        if self.tokenizer is not None:
            yield list(text if phonemizer is None else str(phonemizer(text)))
            return
        letters = asked(self.voice, text) if self.voice["type"] == "vits" else text
        if phonemizer is None or letters is None:
            yield units_of(self.voice, text, False)
            return
        found = phonemizer(letters)
        for sentence in [found] if isinstance(found, str) else found:
            given = sentence if isinstance(sentence, str) else [str(unit) for unit in sentence]
            yield units_of(self.voice, given, True)

    def ids(self, units: list[str]) -> list[int]:
        """The ids of units."""
        if self.tokenizer is None:
            return ids_of(self.voice, units)
        found = self.tokenizer.encode("".join(units))
        return list(getattr(found, "ids", found))

    def feeds(self, ids: list[int], count: int, options: Options) -> Feeds:
        """The inputs of the graph for a part of a sentence."""
        feeds: Feeds = {self.voice["tokens"]: [ids]}
        if "attention_mask" in self.inputs:
            feeds["attention_mask"] = [[1] * count + [0] * (len(ids) - count)]
        if "input_lengths" in self.inputs:
            feeds |= {"input_lengths": [count], "scales": scales_of(self.voice, options)}
        for name in {"speaker_id", "sid"} & set(self.inputs):
            number = speaker_number(self.voice, options)
            feeds[name] = [number] if self.inputs[name].shape else number
        if self.styles is not None:
            feeds["style"] = [self.styles.row(options["voice"], count - 2)]
            feeds["speed"] = [read_within(options, "speed", 1.0, 0.01, 100)]
        return feeds


# Of models that speak texts of any length at once.
_ANY: _Lengths = {"least": 1, "most": MANY, "output": ""}
_VITS = {"input_ids", "attention_mask", "speaker_id"}


def _vits(pipe: Pipeline, inputs: Mapping[str, Any]) -> SpeechFields:
    """transformers' VitsModel, among them MMS."""
    speakers = integer_field(pipe.config, "num_speakers", 1, SPEAKERS, "config.json")
    return {
        "type": "vits",
        "sampling_rate": integer_field(pipe.config, "sampling_rate", 16000, RATES, "config.json"),
        "speakers": max(1, speakers) if "speaker_id" in inputs else 0,
        "tokens": "input_ids",
        "vocabulary": {},
        **_ANY,
    }


_SCALES = dict(zip(SCALES, (0.667, 1.0, 0.8)))


def _piper(pipe: Pipeline, inputs: Mapping[str, Any]) -> SpeechFields:
    """Piper's voices: NAME.onnx with NAME.onnx.json."""
    config = _piper_config(pipe)
    speakers = integer_field(config, "num_speakers", 1, SPEAKERS, VOICE)
    ids = config.get("phoneme_id_map")
    vocabulary: dict[str, list[int]] = ids if isinstance(ids, dict) else {}
    lists = all(
        isinstance(of, list) and all(type(i) is int for i in of) for of in vocabulary.values()
    )
    if not lists or not all(c in vocabulary for c in "^_$"):
        raise ModelError(
            "it has no phoneme_id_map with ^, _ and $", VOICE, "Copy it again from the voice."
        )
    inference = object_field(config, "inference", VOICE)
    noise, length, width = (number_field(inference, n, x, VOICE) for n, x in _SCALES.items())
    audio = object_field(config, "audio", VOICE)
    return {
        "type": "piper",
        "sampling_rate": integer_field(audio, "sample_rate", 22050, RATES, VOICE),
        "speakers": max(1, speakers) if "sid" in inputs else 0,
        "speaker_names": object_field(config, "speaker_id_map", VOICE),
        "tokens": "input",
        "vocabulary": vocabulary,
        "is_text": config.get("phoneme_type") == "text",
        "scales": (noise, length, width),
        **_ANY,
    }


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


def _kokoro(pipe: Pipeline, inputs: Mapping[str, Any]) -> SpeechFields:
    """Kokoro (StyleTTS 2)."""
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
    return {
        "type": "kokoro",
        "sampling_rate": 24000,
        "speakers": 0,
        "tokens": "tokens" if "tokens" in inputs else "input_ids",
        "vocabulary": vocabulary,
        **_ANY,
    }
