"""text-to-speech by models of several graphs: SpeechT5 and Supertonic."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ....compiler.arrays import Array, as_input, as_output
from ....compiler.declare.dtypes import FLOAT, NAME
from ....errors import InputError, ModelError
from ....logic.native import Seed
from ....logic.speech import flow, kinds, spectrograms
from ....logic.speech.graphs import Signature
from ....seeds import check_seed
from ...session import InferenceSession
from ...text.signals import check_signal
from ..base import Pipeline
from ..files import ModelFiles, Stem, stems_of
from .graphs import GraphHost, signature_of
from .sound import Speech, sentences

__all__ = ["GraphSpeechPipeline", "kind_of"]

T5, SUPERTONIC = "speecht5", "supertonic"
GRAPHS: Mapping[str, tuple[Sequence[Stem], Sequence[str]]] = {
    T5: (
        ("encoder_model", (spectrograms.MERGED, spectrograms.FIRST)),
        (spectrograms.LATER, spectrograms.VOCODER),
    ),
    SUPERTONIC: ((flow.ENCODER, flow.DENOISER, flow.DECODER), ()),
}
OPTIONS = {T5: spectrograms.OPTIONS, SUPERTONIC: flow.OPTIONS}
MAX_VECTOR = 1 << 24  # bytes of a file of speaker_embeddings


def kind_of(model: Any, revision: str | None = None) -> str | None:
    """The kind of a model, by the names of its graphs; None: it is none of these."""
    return kinds.kind_of(sorted(stems_of(model, revision)))


class GraphSpeechPipeline(Pipeline):
    """Speaks texts with SpeechT5 (as optimum exports it) or Supertonic (as transformers.js has it).

    Args:
        model, tokenizer, options: as of Pipeline.
        vocoder: of SpeechT5 without decoder_postnet_and_vocoder.onnx: a folder, an .onnx file, an
            id or an InferenceSession of its vocoder.

    Options of a call; an option that the model does not have is refused:
        speaker_embeddings: a voice: numbers, or the path of a file of float32 (.bin, .npy). Of
            SpeechT5 an x-vector of 512 numbers, of Supertonic a style of its folder `voices`.
        threshold, minlenratio, maxlenratio: of SpeechT5. Defaults: 0.5, 0, 20.
        speed, num_inference_steps: of Supertonic. Defaults: 1.05, 5.
        split: whether each sentence is spoken by itself. Default: False.
        seed: 0 to 2^63 - 1. Default: unpredictable.
        signal: as of edgewise.generate.
        forward_params: more of these options, as in transformers.
    """

    task = "text-to-speech"
    PACKAGED = True
    TOKENIZER = True
    CALL: Mapping[str, Any] = {  # type: ignore[misc]
        **dict.fromkeys((*spectrograms.OPTIONS, *flow.OPTIONS)),
        "speaker_embeddings": None,
        "split": None,
        "seed": None,
        "signal": None,
        "forward_params": None,
    }

    def __init__(
        self, model: Any, tokenizer: Any = None, *, vocoder: Any = None, **options: Any
    ) -> None:
        self.kind = kind_of(model, options.get("revision")) or T5
        super().__init__(model, tokenizer, **options)
        if vocoder is not None:
            if not isinstance(vocoder, InferenceSession):
                path = ModelFiles(vocoder, ("model",)).graphs["model"]
                vocoder = InferenceSession(path, self.session_options, engine=self.engine)
            self.sessions[spectrograms.VOCODER] = vocoder
        lacks = kinds.missing(self.kind, self.all_graphs)
        if lacks:
            raise ModelError(
                f"it has no graph '{lacks}'",
                self.files.where if self.files is not None else self.task,
                "Export it again, and build its package again.",
            )

    def stems(self, model: str | os.PathLike[str]) -> tuple[Sequence[Stem], Sequence[str]]:
        return GRAPHS[self.kind]

    @property
    def sampling_rate(self) -> int:
        """Hz of the sound."""
        found = self.config.get("sampling_rate")
        found = found or self._json("preprocessor_config.json").get("sampling_rate", 16000)
        if type(found) is not int or found < 1:
            raise ModelError(f"its sampling_rate is {found!r}", "config.json", "Copy it again.")
        return found

    def options(self, given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """As Pipeline.options; forward_params are options, too."""
        given = dict(given)
        more = given.pop("forward_params", None)
        if more is not None and not isinstance(more, Mapping):
            raise InputError("it is no dict", "forward_params", "Give {option: value}.")
        return super().options({**(more or {}), **given}, where)

    def check(self, options: Mapping[str, Any]) -> None:
        check_seed(options["seed"], "seed")
        for kind, names in OPTIONS.items():
            for name in names:
                if kind != self.kind and options[name] is not None:
                    takes = ", ".join([*OPTIONS[self.kind], "speaker_embeddings"])
                    raise InputError(
                        "the model does not have this option", name, f"It has {takes}."
                    )

    def one(self, given: Any, options: dict[str, Any]) -> Speech:
        if not isinstance(given, str):
            kind = type(given).__name__
            raise InputError(f"a {kind} is no text", self.task, "Give a text or a list of texts.")
        options = self.ready(options)
        parts = sentences([given]) if options["split"] else [given]
        made = [self._spoken(text, options) for text in parts]
        if not made:
            raise InputError("the text is empty", self.task, "Give a text.")
        return self._speech(b"".join(made))

    def stream(self, text: str | Iterable[str], **options: Any) -> Iterator[Speech]:
        """Speaks sentence by sentence, as TextToSpeechPipeline.stream."""
        if options.get("split") is not None:
            raise InputError("a stream is always split", "split", "Leave it out.")
        chosen = self.options(options)
        self.check(chosen)
        with self.lock:
            chosen = self.ready(chosen)
        for sentence in sentences([text] if isinstance(text, str) else text):
            with self.lock:
                speech = self._speech(self._spoken(sentence, chosen))
            speech["text"] = sentence
            yield speech

    # ---- the models
    def ready(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of a call, with what its sentences share."""
        return {**options}

    def _spoken(self, text: str, options: Mapping[str, Any]) -> bytes:
        """The samples of a text, float32."""
        seed = options["seed"]
        found = self.tokenizer.encode(text)
        ids = list(getattr(found, "ids", found))

        def check() -> None:
            check_signal(options["signal"], self.task)

        host = GraphHost(self.session, check, seed)
        voice = _vector(options["speaker_embeddings"])
        if self.kind == SUPERTONIC:
            if voice is None:
                raise self._no_voice()
            dims = flow.style_dims(self.config, len(voice) // 4)
            host.put(flow.STYLE, Array(dims, "float32", voice))
            own = Seed(secrets.randbits(63) if seed is None else seed)
            host.drive(flow.flowed(self._signatures(), ids, self.config, options, own))
        else:
            self._spectrogram(host, ids, voice, options)
        _, _, data = as_input(host.result(flow.WAVEFORM), flow.WAVEFORM)
        return memoryview(data).cast("B").tobytes()

    def _spectrogram(
        self, host: GraphHost, ids: list[int], voice: bytes | None, options: Mapping[str, Any]
    ) -> None:
        graphs = self._signatures()
        if spectrograms.VOCODER not in graphs:
            raise InputError(
                "it has no decoder_postnet_and_vocoder.onnx",
                self.files.where if self.files else self.task,
                "Give vocoder= with a folder or an .onnx file.",
            )
        decoder = next(
            g for n, g in graphs.items() if n in (spectrograms.MERGED, spectrograms.FIRST)
        )
        port = next((p for p in decoder.inputs if p.name == spectrograms.SPEAKER), None)
        if port is not None:
            if voice is None:
                raise self._no_voice()
            size = port.shape[-1]
            if size not in (-1, len(voice) // 4):
                raise InputError(
                    f"it has {len(voice) // 4} numbers, the model takes {size}",
                    "speaker_embeddings",
                    "Give an x-vector of this size.",
                )
            host.put(spectrograms.SPEAKER, Array((1, len(voice) // 4), "float32", voice))
        host.drive(spectrograms.spectrogram(graphs, ids, self.config, options))
        host.put(spectrograms.SPECTROGRAM, host.result(spectrograms.SPECTROGRAM))
        host.drive(spectrograms.vocoded(graphs[spectrograms.VOCODER]))

    def _no_voice(self) -> InputError:
        return InputError(
            "the model needs a voice",
            "speaker_embeddings",
            "Give its numbers, or the path of a file of them.",
        )

    def _signatures(self) -> dict[str, Signature]:
        return {stem: signature_of(self.session(stem)) for stem in self.all_graphs}

    def _speech(self, data: bytes) -> Speech:
        audio = as_output(FLOAT, [1, len(data) // 4], data)
        return Speech({"audio": audio, "sampling_rate": self.sampling_rate})


def _vector(given: Any) -> bytes | None:
    """float32 numbers of a voice. Raises InputError: they are none."""
    name = "speaker_embeddings"
    if given is None:
        return None
    if isinstance(given, (str, os.PathLike)):
        try:
            with open(given, "rb") as file:
                data = file.read(MAX_VECTOR)
        except (OSError, ValueError) as e:
            raise InputError(f"it cannot be read ({e})", name, "Check the path.") from None
        if data[:6] == b"\x93NUMPY":
            wide = data[6] > 1
            at = int.from_bytes(data[8 : 12 if wide else 10], "little") + (12 if wide else 10)
            if b"'<f4'" not in data[:at] or b"'fortran_order': False" not in data[:at]:
                raise InputError("it is no float32", name, "Save it as float32.")
            data = data[at:]
        if not data or len(data) % 4:
            raise InputError("it is no file of float32", name, "Give a .bin or .npy file.")
        return data
    dtype, _, data = as_input(given, name, FLOAT)
    if dtype != FLOAT:
        raise InputError(f"it is {NAME[dtype]}", name, "Give float32.")
    return memoryview(data).cast("B").tobytes()
