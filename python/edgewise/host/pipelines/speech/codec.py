"""Codec: sound as codes, and codes as sound. EnCodec, DAC, SNAC, Mimi and others like them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ....compiler.arrays import Array, as_input, as_output
from ....compiler.declare.dtypes import FLOAT
from ....errors import InputError, memory_in_words
from ....logic.speech.codecs import (
    AUDIO,
    CODES,
    DECODER,
    ENCODER,
    NAMES,
    SAMPLES,
    SCALES,
    TASK,
    books_of,
    check_codes,
    codec_of,
    decoded,
    encoded,
    role_of,
    streams_of,
)
from ....logic.speech.graphs import Signature
from ...media.decode import read_channels
from ...text.signals import check_signal
from ..base import Pipeline
from ..files import Stem
from .graphs import GraphHost, numbers_of, signature_of
from .sound import Speech

__all__ = ["Codec", "Codes"]


class Codes(dict[str, Any]):
    """Codes of a sound: {"audio_codes", "audio_scales" of models that have them, "length": samples,
    "last_frame_pad_length"}. Each is an attribute, too.
    """

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"codes have no {name!r}; they have {', '.join(self)}")


class Codec(Pipeline):
    """A codec: `codec.decode(codec.encode("talk.wav")).save("again.wav")`.

    Args:
        model: folder with encoder_model.onnx, decoder_model.onnx or both, as transformers.js has
            them; an .onnx file; a package of `edgewise build --task codec`; the id of a model of
            the hub.
        sampling_rate: Hz. Default: as in config.json or preprocessor_config.json.
        dtype, revision, subfolder, session_options, engine: as of edgewise.pipeline.

    Raises:
        InputError, ModelError: a file is missing or is none of a codec.
    """

    task = TASK
    PACKAGED = True
    STEMS = ()

    @memory_in_words
    def __init__(self, model: Any, *, sampling_rate: int | None = None, **options: Any) -> None:
        if sampling_rate is not None and (type(sampling_rate) is not int or sampling_rate < 1):
            raise InputError(f"it is {sampling_rate!r}", "sampling_rate", "Give its Hz.")
        super().__init__(model, **options)
        processor = self._json("preprocessor_config.json")
        self._codec = codec_of(self.config, processor, sampling_rate)
        self._graphs: dict[str, str] | None = None
        if not self.all_graphs:
            raise InputError(
                "there is no encoder_model.onnx or decoder_model.onnx",
                self.files.where if self.files is not None else self.task,
                "Give a codec's folder, or the path of its .onnx file.",
            )

    def stems(self, model: str | os.PathLike[str]) -> tuple[Sequence[Stem], Sequence[str]]:
        return (("model",), ()) if os.fspath(model).endswith(".onnx") else ((), NAMES)

    # ---- what it is
    @property
    def sampling_rate(self) -> int:
        """Hz of the sound."""
        return self._codec.sampling_rate

    @property
    def channels(self) -> int:
        """Channels of the sound."""
        return self._codec.channels

    @property
    def streams(self) -> int:
        """Tensors of codes that `decode` takes. Raises InputError: the model has no decoder."""
        return streams_of(self._signature(DECODER))

    @property
    def num_codebooks(self) -> int:
        """Number of codebooks; 0: the model does not say."""
        has = DECODER in self._roles()
        return books_of(self._codec, self._signature(DECODER) if has else None)

    @property
    def codebook_size(self) -> int:
        """Number of codes of a codebook; 0: the model does not say."""
        return self._codec.codebook_size

    # ---- what it does
    @memory_in_words
    def encode(self, sound: Any, *, signal: Any = None) -> Codes:
        """The codes of a sound.

        Args:
            sound: as of pipelines of sound; of a model of two channels samples are [2, n].
            signal: as of edgewise.generate.

        Returns:
            "audio_codes": int64, as transformers has them: [1, codebooks, n] (EnCodec [frames, 1,
            codebooks, n]); of SNAC, whose codebooks differ in length, a list of [1, n]

        Raises:
            InputError: the model has no encoder, or the sound is none that it takes.
        """
        signature = self._signature(ENCODER)
        channels = read_channels(sound, self.sampling_rate, self.channels)
        count = len(channels[0]) // 4
        data = b"".join(channels)
        with self.lock:
            host = self._host(signal)
            host.put(SAMPLES, Array((1, len(channels), count), "float32", data))
            made = host.drive(encoded(self._codec, signature, len(channels), count))
        names = [CODES, *(f"{CODES}.{i}" for i in range(1, made.streams))]
        streams = [host.result(name) for name in names]
        codes = Codes({CODES: streams[0] if len(streams) == 1 else streams, "length": count})
        if made.scales:
            codes[SCALES] = host.result(SCALES)
        if made.padding:
            codes["last_frame_pad_length"] = made.padding
        return codes

    @memory_in_words
    def decode(self, codes: Any, *, signal: Any = None, seed: int | None = None) -> Speech:
        """The sound of codes.

        Args:
            codes: what `encode` returned; or codes alone, [codebooks, n], or a list of tensors,
                where the model takes several.
            signal: as of edgewise.generate.
            seed: 0 to 2^63 - 1, for models that draw random numbers. Default: unpredictable.

        Returns:
            {"audio": float32 [channels, samples], "sampling_rate": Hz}, which has `save(path)`

        Raises:
            InputError: the model has no decoder, or a code is out of range.
        """
        signature = self._signature(DECODER)
        given = codes if isinstance(codes, Mapping) else {CODES: codes}
        tensors = _tensors(given, streams_of(signature))
        scales = given.get(SCALES)
        numbers = [] if scales is None else numbers_of(*as_input(scales, SCALES, FLOAT))
        with self.lock:
            host = self._host(signal, seed)
            dims = []
            for i, value in enumerate(tensors):
                name = CODES if i == 0 else f"{CODES}.{i}"
                dtype, shape, data = as_input(value, name)
                if dtype == FLOAT or not shape:
                    raise InputError("they are no integers", CODES, "Give int64 of codes.")
                check_codes(self._codec, numbers_of(dtype, shape, data), CODES)
                dims.append(host.put(name, value))
            padding, length = given.get("last_frame_pad_length"), given.get("length")
            host.drive(decoded(self._codec, signature, dims, numbers, length, padding or 0))
        sound = host.result(AUDIO)
        _, shape, data = as_input(sound, AUDIO)
        channels = shape[-2] if len(shape) > 1 else 1
        audio = as_output(FLOAT, [channels, shape[-1]], memoryview(data).cast("B").tobytes())
        return Speech({"audio": audio, "sampling_rate": self.sampling_rate})

    # ---- graphs
    def _host(self, signal: Any, seed: int | None = None) -> GraphHost:
        def check() -> None:
            check_signal(signal, self.task)

        return GraphHost(lambda role: self.session(self._roles()[role]), check, seed)

    def _roles(self) -> dict[str, str]:
        """{"encoder" or "decoder": name of the graph}"""
        if self._graphs is None:
            self._graphs = {}
            for stem in self.all_graphs:
                role = role_of(signature_of(self.session(stem)))
                if role:
                    self._graphs.setdefault(role, stem)
        return self._graphs

    def _signature(self, role: str) -> Signature:
        """The inputs and outputs of a graph. Raises InputError: there is none."""
        stem = self._roles().get(role)
        if stem is None:
            verb = "encode" if role == ENCODER else "decode"
            raise InputError(
                f"it has no {role}, so it cannot {verb}",
                self.files.where if self.files is not None else self.task,
                f"Put {role}_model.onnx into its folder.",
            )
        return signature_of(self.session(stem))


def _tensors(given: Mapping[str, Any], count: int) -> list[Any]:
    """The tensors of codes. Raises InputError."""
    numbered = [given[f"{CODES}.{i}"] for i in range(64) if f"{CODES}.{i}" in given]
    codes = numbered or given.get(CODES)
    if codes is None:
        raise InputError("there are no codes", CODES, "Give what `encode` returned.")
    if count == 1:
        return [codes[0] if numbered else codes]
    if not isinstance(codes, (list, tuple)) or len(codes) != count:
        raise InputError(
            f"the model takes {count} tensors of codes",
            CODES,
            "Give a list of them, one for each codebook.",
        )
    return list(codes)
