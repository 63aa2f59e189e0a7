"""Speech to text. Mirrors transformers/pipelines/automatic_speech_recognition.py and
transformers.js' AutomaticSpeechRecognitionPipeline.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import Array, as_input
from ...compiler.declare.dtypes import FLOAT
from ...compiler.processors.reader import audio_processor
from ...compiler.task_package.hearing import hears
from ...compiler.tokenizers.ctc import CTCTokenizer
from ...errors import InputError
from ...logic.generation.fields import GENERATION_FIELDS
from ...logic.speech.features import HOP
from ...logic.speech.hearing_files import PARTS, hearing_files
from ...logic.speech.moonshine import MODEL_TYPES as MOONSHINE
from ...logic.speech.recognition import OPTIONS, RATE, RESULTS, Part, Transcript, call_of
from ...logic.speech.stream import check_stream
from ..media.recording import Recording, Samples, open_sound, part
from ..session import InferenceSession
from ..text.speech.whisper import Features, WhisperRunner, whisper_model
from .audio import sound_and_others
from .base import Pipeline
from .files import ModelFiles
from .seq2seq import Seq2SeqPipeline
from .speech.ctc import CTCRecognizer
from .speech.hearing import HearingRecognizer
from .speech.moonshine import MoonshineRecognizer
from .whisper_features import WhisperFeatures

if TYPE_CHECKING:
    from .speech.stream import SpeechStream
    from .voice_activity import VoiceActivityPipeline

__all__ = ["AutomaticSpeechRecognitionPipeline"]


class AutomaticSpeechRecognitionPipeline(Seq2SeqPipeline):
    """Transcribes recordings: `pipe(audio)`, `pipe(audio, return_timestamps="word")`.

    Models with one graph (wav2vec2, HuBERT, WavLM, ...) are CTC models: return_timestamps is "char"
    or "word", and of the other options chunk_length_s, stride_length_s, on_progress (with samples)
    and signal apply. Moonshine has chunks, progress, signal, streamer and the fields of
    GenerationConfig. The following is about Whisper.

    Recordings of more than 30 seconds are transcribed window by window, each from where the last
    one ended (sequentially); with `chunk_length_s` in overlapping chunks, whose texts are merged.

    Args:
        model: folder of a Whisper model (encoder_model.onnx and decoder_model_merged.onnx) or of a
            CTC model (model.onnx), or the id of one of the hub; a Seq2SeqModel; or an
            InferenceSession of a CTC model. Of a language model that hears (Voxtral) `pipeline`
            makes a HeardSpeechPipeline.
        tokenizer, processor, options: as of Pipeline. A processor is called as transformers'
            feature extractors.

    Options of a call, with transformers' and transformers.js' names:
        return_timestamps: True: chunks with times; "word": words with times.
        return_language: chunks have the `language`.
        language, task: of the speech, and "transcribe" or "translate" (to English). By default the
            language is detected. Not for models for English only.
        chunk_length_s, stride_length_s: seconds of chunks, 0: none; and of their overlap at both
            ends, or [left, right]. Default: a sixth.
        prompt_ids, prompt_condition_type, condition_on_prev_tokens, temperature,
        compression_ratio_threshold, logprob_threshold, no_speech_threshold: see WhisperOptions.
        generate_kwargs: more of these and of the fields of GenerationConfig, which may also be
            given by themselves.
        target_language, pnc: of Canary: the language of the text, and whether it has punctuation
            and capitals.
        num_frames: frames of sound, for times of words. Default: those of the recording.
        force_full_sequences: raise InputError where the last chunk has no end.
        streamer, signal: as of edgewise.generate.
        on_progress: called with (frames that are done, frames).

    Returns:
        {"text": ..., "chunks": [{"text": ..., "timestamp": (start, end)}]}; without
        return_timestamps and return_language there are no chunks. An end is None where the model
        gives none.
    """

    task = "automatic-speech-recognition"
    STEMS = (("encoder_model", "model"),)
    find_graphs = staticmethod(hearing_files)
    FURTHER = PARTS
    CALL: Mapping[str, Any] = {  # type: ignore[misc]
        **dict.fromkeys(OPTIONS),
        "target_language": None,
        "pnc": None,
        "return_language": False,
        "chunk_length_s": 0,
        "force_full_sequences": False,
        "generate_kwargs": None,
        "ignore_warning": None,
        "decoder_kwargs": None,
        "on_progress": None,
        "streamer": None,
        "signal": None,
    }

    @classmethod
    def of(cls, model: Any, options: Mapping[str, Any]) -> Any:
        from .heard_speech import HeardSpeechPipeline, hears_speech

        return HeardSpeechPipeline if hears_speech(model, options.get("revision")) else cls

    def __init__(self, model: Any, tokenizer: Any = None, **options: Any) -> None:
        self.other: CTCRecognizer | HearingRecognizer | MoonshineRecognizer | None = None
        super().__init__(model, tokenizer, **options)

    def _take(self, model: Any) -> None:
        if isinstance(model, InferenceSession):
            model = {"model": model}
        if isinstance(model, Mapping):
            Pipeline._take(self, model)
        else:
            super()._take(model)

    @property
    def is_ctc(self) -> bool:
        """Whether the model is one graph, and no encoder and decoder."""
        if self.files is not None and self.files.package is not None:
            return "model" in self.files.package.manifest["programs"]
        return "model" in (self.sessions if self.files is None else self.files.graphs)

    @property
    def hears(self) -> bool:
        """Whether the model is a transducer, or a CTC model of features of any length."""
        if self.files is None:
            return False
        if self.files.package is not None:
            return "hearing" in self.files.package.manifest.get("processor", {})
        settings = self.processor if isinstance(self.processor, Mapping) else None
        if settings is None:
            settings = self._json("preprocessor_config.json")
            settings = settings or self._json("processor_config.json")
        return hears(self.files.graphs, self.files.names, settings)

    def _tokenizer(self, given: Any) -> Any:
        if self.hears:
            return None
        if not self.is_ctc or (given is not None and not isinstance(given, (str, os.PathLike))):
            return super()._tokenizer(given)
        if given is None and self.files is None:
            return super()._tokenizer(given)
        if given is None and self.files is not None and self.files.package is not None:
            described = self.files.package.manifest.get("processor", {}).get("ctc")
            return CTCTokenizer.from_description(described, self.files.where)
        files = self.files if given is None else ModelFiles(given, ())
        assert files is not None
        return CTCTokenizer.from_files(files.read, files.where)

    def _json(self, name: str) -> dict[str, Any]:
        if self.files is None and self._model is not None:
            return dict(self._model.package.json(name, {}))
        return super()._json(name)

    def close(self) -> None:
        """Frees the model, if the pipeline has loaded it, and the graph of features."""
        super().close()
        if isinstance(self.processor, WhisperFeatures):
            self.processor.close()
        if self.other is not None:
            self.other.close()

    @property
    def spaced(self) -> bool:
        """Whether words of results begin with their spaces, as Whisper's do."""
        return not (self.is_ctc or self.hears)

    def stream(
        self,
        *,
        interval: float = 1.0,
        vad: VoiceActivityPipeline | None = None,
        live: bool = False,
        **options: Any,
    ) -> SpeechStream:
        """A recognizer of sound that arrives in pieces, such as a microphone's.

        Args:
            interval: seconds of sound after which it is transcribed again.
            vad: finds speech; silence is then not transcribed.
            live: whether the sound does not wait: each call of `feed` transcribes at most once,
                the newest sound.
            options: as of a call, without those of times and chunks.

        Returns:
            its `feed(samples)` and `end()` give events {"committed", "partial", "timestamp"}

        Raises:
            InputError: an option is unknown or has no effect in a stream.
        """
        from .speech.stream import SpeechStream

        self._find_other()
        if isinstance(self.other, MoonshineRecognizer):
            raise InputError(
                "Moonshine gives no times of words, which a stream needs",
                "stream",
                "Use a Whisper or CTC model, or give each part that voice-activity-detection finds"
                " to the pipeline.",
            )
        for name in RESULTS:
            if name in options:
                raise InputError("it has no effect in a stream", name, "Leave it out.")
        check_stream({"interval": interval, "live": live})
        self.check(self.options({**options, "return_timestamps": "word"}))
        return SpeechStream(self, options, interval, vad, live)

    # ---- options
    def options(self, given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """As Pipeline.options; fields of GenerationConfig are collected in `generate_kwargs`."""
        given = self.generation_fields(given)
        fields = {
            n: given.pop(n) for n in list(given) if n in GENERATION_FIELDS and n not in self.CALL
        }
        found = super().options(given, where)
        found["generate_kwargs"] = {**(found["generate_kwargs"] or {}), **fields}
        return found

    def _find_other(self) -> None:
        """Makes the recognizer of models other than Whisper's."""
        if self.other is None and self.hears:
            self.other = HearingRecognizer(self)
        if self.other is None and self.is_ctc:
            self.other = CTCRecognizer(self)
        if self.other is None and self.config.get("model_type") in MOONSHINE:
            self.other = MoonshineRecognizer(self)

    def check(self, options: Mapping[str, Any]) -> None:
        self._find_other()
        if self.other is not None:
            self.other.check(options)
            return
        for name in ("target_language", "pnc"):
            if options[name] is not None:
                raise InputError("Whisper has no such option", name, "Leave it out.")
        if options["decoder_kwargs"] is not None:
            raise InputError(
                "they are for CTC models with a language model", "decoder_kwargs", "Leave it out."
            )
        fields = dict(options["generate_kwargs"] or {})
        call_of(options, fields, self._json("generation_config.json"))

    def is_list(self, inputs: Any) -> bool:
        """A list of numbers is one recording."""
        return isinstance(inputs, (list, tuple)) and not (
            inputs and isinstance(inputs[0], (int, float))
        )

    # ---- one recording
    def one(self, given: Any, options: dict[str, Any]) -> Any:
        if self.other is not None:
            return self.other.one(given, options)
        sound, extra = sound_and_others(given)
        samples = open_sound(sound, RATE)
        with samples if isinstance(samples, Recording) else nullcontext():
            fields = dict(options["generate_kwargs"] or {})
            transcript = Transcript(
                call_of(options, fields, self.model.generation_config),
                whisper_model(self.model),
                samples.size,
                lambda ids: str(self.tokenizer.decode(ids)),
            )
            runner = WhisperRunner(
                self.model,
                lambda of: self.features_of(samples if of.whole else _cut(samples, of)),
                options["streamer"],
                options["signal"],
                options["on_progress"],
            )
            return {**runner.run(transcript.steps()), **extra}

    def features_of(self, samples: Samples) -> Features:
        """Log-mel features; those of a chunk, or of a recording that fits, of a whole window."""
        if self.processor is None or isinstance(self.processor, Mapping):
            config = self.processor or self._json("preprocessor_config.json")
            self.processor = WhisperFeatures(audio_processor(config), self.engine)
        if isinstance(self.processor, WhisperFeatures):
            return self.processor(samples)
        # as transformers' feature extractors are called
        long = samples.size > self.model.encoders[0][0] * HOP
        length = {"truncation": False, "padding": "longest"} if long else {}
        given = memoryview(part(samples, 0, samples.size)).cast("f").tolist()
        out = self.processor(given, sampling_rate=RATE, **length)["input_features"]
        _, shape, data = as_input(out[0] if isinstance(out, list) else out, "features", FLOAT)
        values = memoryview(data).cast("B").cast("f")
        return Features(values, shape[-2], shape[-1], -(-samples.size // HOP))


def _cut(samples: Samples, of: Part) -> Array:
    """The samples of a part of a recording."""
    data = part(samples, of.start, of.length)
    return Array((len(data) // 4,), "float32", data)
