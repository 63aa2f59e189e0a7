"""text-to-speech, text-to-audio. Mirrors transformers/pipelines/text_to_audio.py and
transformers.js' TextToAudioPipeline.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ....compiler.arrays import as_input, as_output
from ....compiler.declare.dtypes import FLOAT
from ....errors import InputError
from ....logic.speech.voices import Say, Sound, check_options, spoken
from ...drive import drive
from ...session import RunOptions
from ...text import Tokenizer
from ...text.signals import check_signal
from ..base import Pipeline
from .packaged import PackagedVoice
from .sound import Speech, sentences
from .synthesis import Speaker

__all__ = ["Speech", "TextToSpeechPipeline", "sentences"]

_MODEL = ("voice", "speaker", "speed", "noise_scale", "length_scale", "noise_w", "phonemizer")


class TextToSpeechPipeline(Pipeline):
    """Speaks texts: `pipe("Hello.")`, or sentence by sentence `for part in pipe.stream(text)`.

    Args:
        model: folder of VITS as optimum exports it (MMS), of a Piper voice (.onnx and .onnx.json),
            or of Kokoro (with voices/NAME.bin, .npy or an .npz); or the id of one of the hub.
        tokenizer, options: as of Pipeline.

    Options of a call; an option that the model does not have is refused:
        voice: of Kokoro: name, path, or array [rows, 1, 256]. Default: "af_heart" or the only one.
        speaker: number, or name in .onnx.json, of models with several speakers. Default: 0.
        speed: above 1 is faster. Piper, Kokoro.
        noise_scale, length_scale, noise_w: of Piper. Default: as in .onnx.json.
        phonemizer: function of a text that returns its phonemes, as a string, or as a list of
            sentences (strings or lists of phonemes). Piper, Kokoro, some of VITS.
        split: whether each sentence is spoken by itself. Default: True for Piper and Kokoro; VITS
            speaks a text at once, as in transformers.
        seed: 0 to 2^63 - 1, for models that draw random numbers. Default: unpredictable.
        signal: as of edgewise.generate.
        forward_params: more of these options, as in transformers (speaker_id is `speaker`).

    Returns:
        {"audio": float32 [1, samples], "sampling_rate": Hz}, a Speech, which has `save(path)`
    """

    task = "text-to-speech"
    PACKAGED = True
    CALL: Mapping[str, Any] = {  # type: ignore[misc]
        **dict.fromkeys(_MODEL),
        "speed": 1.0,
        "split": None,
        "seed": None,
        "signal": None,
        "forward_params": None,
    }

    _speaker: Speaker | None = None

    @classmethod
    def of(cls, model: Any, options: Mapping[str, Any]) -> Any:
        if "codec" in options:
            from .language_model import SpeakingLanguageModel

            return SpeakingLanguageModel
        from ....logic.speech.kinds import CLONING
        from .cloning import CloningPipeline
        from .graph_speech import GraphSpeechPipeline, kind_of

        kind = kind_of(model, options.get("revision"))
        if kind in CLONING:
            return CloningPipeline
        return GraphSpeechPipeline if kind else cls

    def session(self, stem: str) -> Any:
        """As Pipeline.session; the programs of a package are one session."""
        package = self.files.package if self.files is not None else None
        if package is not None and stem not in self.sessions and not self.closed:
            self.sessions[stem] = PackagedVoice(package, self.engine)
        return super().session(stem)

    @property
    def speaker(self) -> Speaker:
        """The kind of model, which is found out on first use. Raises InputError."""
        if self._speaker is None:
            self._speaker = Speaker(self)
        return self._speaker

    @property
    def sampling_rate(self) -> int:
        """Hz of the sound."""
        return self.speaker.voice["sampling_rate"]

    def _tokenizer(self, given: Any) -> Tokenizer | Any:
        from ....compiler.tokenizers.vits import VitsTokenizer
        from ..files import ModelFiles

        if isinstance(given, (str, os.PathLike)):
            files = ModelFiles(given, ())
            if "vocab.json" in files.names:
                return VitsTokenizer.from_files(files.read, files.where)
        return super()._tokenizer(given)

    def options(self, given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """As Pipeline.options; forward_params are options, too."""
        given = dict(given)
        more = given.pop("forward_params", None)
        if more is not None and not isinstance(more, Mapping):
            raise InputError("it is no dict", "forward_params", "Give {option: value}.")
        more = {"speaker" if n == "speaker_id" else n: v for n, v in (more or {}).items()}
        return super().options({**more, **given}, where)

    def check(self, options: Mapping[str, Any]) -> None:
        if options["phonemizer"] is not None and not callable(options["phonemizer"]):
            raise InputError("it cannot be called", "phonemizer", "Give a function of a text.")
        if options["split"] not in (None, True, False):
            raise InputError(f"it is {options['split']!r}", "split", "Give True or False.")
        check_options(self.speaker.voice, options, ["phonemizer"])

    def one(self, given: Any, options: dict[str, Any]) -> Speech:
        if not isinstance(given, str):
            raise InputError(
                f"a {type(given).__name__} is no text", self.task, "Give a text or a list of texts."
            )
        split = self.speaker.splits if options["split"] is None else options["split"]
        parts = [
            p for s in (sentences([given]) if split else [given]) for p in self._speak(s, options)
        ]
        if not parts:
            raise InputError(
                "the text has no characters that the model knows", self.task, "Give a text."
            )
        return self._speech(b"".join(parts))

    def stream(self, text: str | Iterable[str], **options: Any) -> Iterator[Speech]:
        """Speaks sentence by sentence.

        Args:
            text: a text, or its pieces as they arrive, such as those of a text streamer.
            options: as of a call without `split`.

        Yields:
            {"audio", "sampling_rate", "text"} of each sentence

        Raises:
            As a call.
        """
        if options.get("split") is not None:
            raise InputError("a stream is always split", "split", "Leave it out.")
        chosen = self.options(options)
        self.check(chosen)
        for sentence in sentences([text] if isinstance(text, str) else text):
            with self.lock:
                parts = b"".join(self._speak(sentence, chosen))
            if parts:
                speech = self._speech(parts)
                speech["text"] = sentence
                yield speech

    def _speak(self, sentence: str, options: Mapping[str, Any]) -> list[bytes]:
        """The samples of each part of a sentence as bytes."""
        speaker, sounds = self.speaker, []
        session = self.session("model")
        names = [*session.outputs]
        output = next((n for n in ("waveform", "output", "audio") if n in names), names[0])

        def answer(request: Say | Sound) -> int | None:
            check_signal(options["signal"], self.task)
            if request.kind == "sound":
                sounds.append(self._bytes(session.sound(request.frames)[0], output))
                return None
            feeds = speaker.feeds(request.ids, request.count, options)
            if isinstance(session, PackagedVoice):
                made = session.say(feeds, options["seed"])
                if isinstance(made, int):
                    return made
            else:
                run = RunOptions()
                run.seed = options["seed"]
                made = session.run([output], feeds, None if run.seed is None else run)
            sounds.append(self._bytes(made[0], output))
            return None

        masked = "attention_mask" in speaker.inputs
        for units in speaker.units(sentence, options):
            drive(spoken(speaker.voice, units, speaker.ids, masked), answer)
        return sounds

    def _bytes(self, sound: Any, output: str) -> bytes:
        """The samples of a sound. Raises InputError: it is none."""
        dtype, shape, data = as_input(sound, output)
        if dtype != FLOAT or math.prod(shape) != max(shape, default=0):
            raise InputError(
                f"its output '{output}' of shape {list(shape)} is no sound",
                self.task,
                "Give a model of this task.",
            )
        return memoryview(data).cast("B").tobytes()

    def _speech(self, data: bytes) -> Speech:
        audio = as_output(FLOAT, [1, len(data) // 4], data)
        return Speech({"audio": audio, "sampling_rate": self.sampling_rate})
