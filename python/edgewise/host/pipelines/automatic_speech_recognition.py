"""Speech to text. Mirrors transformers/pipelines/automatic_speech_recognition.py and
transformers.js' AutomaticSpeechRecognitionPipeline.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import as_input
from ...compiler.declare.dtypes import FLOAT
from ...compiler.processors.reader import audio_processor
from ...compiler.tokenizers.ctc import CTCTokenizer
from ...errors import InputError
from ...logic.generation.fields import GENERATION_FIELDS
from ...logic.speech.join import Joiner, Window
from ...logic.speech.prompts import language_name
from ..media.recording import Recording, Samples, open_sound, part
from ..session import InferenceSession
from ..text.speech.whisper import Features, WhisperOptions, WhisperTranscriber
from .base import Pipeline
from .files import ModelFiles
from .seq2seq import Seq2SeqPipeline
from .speech.chunks import chunk_lengths, sound_and_others, sound_chunks
from .speech.ctc import CTCRecognizer
from .speech.moonshine import MoonshineRecognizer
from .whisper_features import WhisperFeatures

if TYPE_CHECKING:
    from .speech.stream import SpeechStream
    from .voice_activity import VoiceActivityPipeline

__all__ = ["AutomaticSpeechRecognitionPipeline"]

RATE = 16000  # Hz, of Whisper
HOP = 160  # samples of a frame
# Options that WhisperOptions has under the same name.
_WHISPER = (
    "language",
    "task",
    "prompt_ids",
    "prompt_condition_type",
    "condition_on_prev_tokens",
    "temperature",
    "compression_ratio_threshold",
    "logprob_threshold",
    "no_speech_threshold",
)


@dataclass
class _Piece:
    """A part of a recording that is transcribed by itself.

    Attributes:
        samples: float32 [n], or of a long file.
        stride: (length, left overlap, right overlap) in samples; None: it is the whole recording.
    """

    samples: Samples
    stride: tuple[int, int, int] | None


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
            InferenceSession of a CTC model.
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
    CALL: Mapping[str, Any] = {  # type: ignore[misc]
        "return_timestamps": None,
        "return_language": False,
        "chunk_length_s": 0,
        "stride_length_s": None,
        "num_frames": None,
        "force_full_sequences": False,
        "generate_kwargs": None,
        "ignore_warning": None,
        "decoder_kwargs": None,
        "on_progress": None,
        **dict.fromkeys((*_WHISPER, "streamer", "signal")),
    }

    def __init__(self, model: Any, tokenizer: Any = None, **options: Any) -> None:
        self.other: CTCRecognizer | MoonshineRecognizer | None = None
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

    def _tokenizer(self, given: Any) -> Any:
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
        for name in [*self.CALL][:6]:  # what a result has, and how a recording is divided
            if name in options:
                raise InputError("it has no effect in a stream", name, "Leave it out.")
        if not 0.1 <= interval <= 10:
            raise InputError(f"{interval!r} is not 0.1 to 10 seconds", "interval")
        self.check(self.options({**options, "return_timestamps": "word"}))
        if type(live) is not bool:
            raise InputError(f"{live!r} is not a bool", "live")
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
        if self.other is None and self.is_ctc:
            self.other = CTCRecognizer(self)
        if self.other is None and self.config.get("model_type") == "moonshine":
            self.other = MoonshineRecognizer(self)

    def check(self, options: Mapping[str, Any]) -> None:
        self._find_other()
        if self.other is not None:
            self.other.check(options)
            return
        times = options["return_timestamps"]
        if times not in (None, False, True, "word"):
            raise InputError(
                f"Whisper has no times of kind {times!r}",
                "return_timestamps",
                'Give False, True or "word".',
            )
        if options["decoder_kwargs"] is not None:
            raise InputError(
                "they are for CTC models with a language model", "decoder_kwargs", "Leave it out."
            )
        if options["prompt_condition_type"] not in (None, "first-segment", "all-segments"):
            raise InputError(
                f"there is no {options['prompt_condition_type']!r}",
                "prompt_condition_type",
                'Give "first-segment" or "all-segments".',
            )
        if (
            options["prompt_condition_type"] == "all-segments"
            and not (options["condition_on_prev_tokens"])
        ):
            raise InputError(
                '"all-segments" needs condition_on_prev_tokens=True', "prompt_condition_type"
            )
        if options["no_speech_threshold"] is not None and options["logprob_threshold"] is None:
            raise InputError(
                "it has an effect only with logprob_threshold", "no_speech_threshold", "Give both."
            )

    def is_list(self, inputs: Any) -> bool:
        """A list of numbers is one recording."""
        return isinstance(inputs, (list, tuple)) and not (
            inputs and isinstance(inputs[0], (int, float))
        )

    # ---- one recording
    def one(self, given: Any, options: dict[str, Any]) -> Any:
        if self.other is not None:
            return self.other.one(given, options)
        samples, extra = self._samples(given)
        with samples if isinstance(samples, Recording) else nullcontext():
            return {**self._transcript(samples, options), **extra}

    def _transcript(self, samples: Samples, options: dict[str, Any]) -> dict[str, Any]:
        """The result for a recording."""
        whisper = self._whisper_options(options, samples.size)
        transcriber = WhisperTranscriber(
            self.model, whisper, options["streamer"], options["signal"], options["on_progress"]
        )
        asked = options["return_timestamps"] or False
        begin, eos = transcriber.logic.begin, transcriber.logic.eos
        joiner = Joiner(
            lambda ids: str(self.tokenizer.decode(ids)),
            begin if eos is None else eos,
            begin,
            words=asked == "word",
            times=bool(asked),
            segment_size=self.model.encoders[0][1],
        )
        for piece in self._pieces(samples, options):
            joiner.add(self._transcribe(transcriber, piece, options))
        text, chunks = joiner.end()
        if asked and options["force_full_sequences"] and chunks:
            if chunks[-1]["timestamp"][1] is None:
                raise InputError(
                    "the model gave no end of the last chunk", "force_full_sequences", "Set False."
                )
        return {"text": text, **self._chunks(chunks, bool(asked), options)}

    def _chunks(
        self, chunks: Sequence[dict[str, Any]], times: bool, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The result's "chunks", if they were asked for."""
        language = options["return_language"]
        if not times and not language:
            return {}
        return {
            "chunks": [
                {
                    **({"language": chunk["language"]} if language else {}),
                    **({"timestamp": tuple(chunk["timestamp"])} if times else {}),
                    "text": chunk["text"],
                }
                for chunk in chunks
            ]
        }

    def _whisper_options(self, options: Mapping[str, Any], count: int) -> WhisperOptions:
        config = self.model.generation_config
        given = {n: options[n] for n in _WHISPER if options[n] is not None}
        for name in _WHISPER[3:9]:
            if name not in given and config.get(name) is not None and name != "temperature":
                given[name] = config[name]
        fields = dict(options["generate_kwargs"] or {})
        if fields.get("num_return_sequences", 1) != 1 or fields.get("do_sample"):
            name = "do_sample" if fields.get("do_sample") else "num_return_sequences"
            raise InputError(
                "transcripts have one text; `temperature` draws at random", name, "Leave it out."
            )
        temperature = given.pop("temperature", None)
        if temperature is None or isinstance(temperature, (int, float)):
            temperature = [temperature]
        long = not options["chunk_length_s"] and count > self.model.encoders[0][0] * HOP
        times = options["return_timestamps"]
        return WhisperOptions(
            times=bool(times) or long,
            word_times=times == "word",
            temperature=list(temperature),
            fields=fields,
            **given,
        )

    def _transcribe(
        self, transcriber: WhisperTranscriber, piece: _Piece, options: Mapping[str, Any]
    ) -> Window:
        features = self._features(piece.samples, options)
        segments = transcriber.transcribe(features)
        times = None
        if options["return_timestamps"] == "word":
            times = [t for s in segments for t in s.token_times or []]
        stride = piece.stride and (
            piece.stride[0] / RATE,
            piece.stride[1] / RATE,
            piece.stride[2] / RATE,
        )
        language = language_name(self.model.generation_config, transcriber.logic.language)
        return Window([t for s in segments for t in s.tokens], times, stride, language)

    # ---- sound
    def _samples(self, given: Any) -> tuple[Samples, dict[str, Any]]:
        """(samples at 16 kHz, entries of a dict that belong into the result)"""
        sound, others = sound_and_others(given)
        return open_sound(sound, RATE), others

    def _pieces(self, samples: Samples, options: Mapping[str, Any]) -> Iterator[_Piece]:
        """The recording, or its overlapping chunks."""
        seconds = options["chunk_length_s"]
        if not seconds:
            yield _Piece(samples, None)
            return
        lengths = chunk_lengths(seconds, options["stride_length_s"], RATE)
        for piece, chunk in sound_chunks(samples, *lengths):
            yield _Piece(piece, (piece.size, chunk.left, chunk.right))

    def _features(self, samples: Samples, options: Mapping[str, Any]) -> Features:
        """Log-mel features; those of a chunk, or of a recording that fits, of a whole window."""
        if self.processor is None or isinstance(self.processor, Mapping):
            config = self.processor or self._json("preprocessor_config.json")
            self.processor = WhisperFeatures(audio_processor(config), self.engine)
        if isinstance(self.processor, WhisperFeatures):
            found = self.processor(samples)
        else:  # as transformers' feature extractors are called
            long = samples.size > self.model.encoders[0][0] * HOP
            length = {"truncation": False, "padding": "longest"} if long else {}
            given = memoryview(part(samples, 0, samples.size)).cast("f").tolist()
            out = self.processor(given, sampling_rate=RATE, **length)["input_features"]
            _, shape, data = as_input(out[0] if isinstance(out, list) else out, "features", FLOAT)
            values = memoryview(data).cast("B").cast("f")
            found = Features(values, shape[-2], shape[-1], -(-samples.size // HOP))
        if options["num_frames"] is not None:
            found.spoken = int(options["num_frames"])
        return found
