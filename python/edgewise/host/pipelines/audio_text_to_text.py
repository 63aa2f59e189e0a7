"""Text generation from sounds and text, as image-text-to-text from pictures."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ...compiler.arrays import Array, as_input
from ...compiler.declare.dtypes import FLOAT
from ...compiler.onnx import FileSource, read_model
from ...compiler.task_package import task_texts
from ...compiler.task_package.multimodal import hearing_graphs
from ...errors import Aborted, memory_in_words
from ...logic.multimodal.asking import SOUNDS, Ask, Kind
from ...logic.multimodal.encoder import features_of, strips
from ...logic.multimodal.families.sounds import (
    flat_messages,
    heard,
    prompt_text,
    rows_of,
    rows_of_window,
    tokens_of,
    windows_of,
)
from ...logic.multimodal.prompt import check_room, check_rows
from ..media.decode import read_sound
from ..media.recording import part
from ..session import InferenceSession
from ..session.features import Features
from ..session.open import folder_files
from ..text.signals import is_set
from .image_text_to_text import ImageTextToTextPipeline

__all__ = ["AudioTextToTextPipeline"]


class AudioTextToTextPipeline(ImageTextToTextPipeline):
    """Answers questions about sounds: pipe(messages), pipe(text=messages), pipe(audio=sound,
    text="..."), or lists of these.

    Messages have parts: [{"role": "user", "content": [{"type": "audio", "audio": sound},
    {"type": "text", "text": "What is said?"}]}]. Sounds are paths of files, bytes of files, samples
    (at the model's rate), or {"array" or "raw": samples, "sampling_rate": Hz}.

    Arguments, options of a call and results are those of ImageTextToTextPipeline. Features of
    sounds are kept, too.
    """

    task = SOUNDS.task
    STEMS = (
        ("audio_encoder", "speech"),
        ("embed_tokens", "embedding"),
        ("decoder_model_merged", "decoder_model", "model", "text"),
    )
    KIND: ClassVar[Kind] = SOUNDS

    def _start(self) -> None:
        self.rule: Any = self.package.manifest["processor"]["sounds"]
        self.rate: int = self.package.manifest["processor"]["audio"]["sampling_rate"]

    @memory_in_words
    def __call__(  # type: ignore[override]
        self, audio: Any = None, text: Any = None, **options: Any
    ) -> list[Any]:
        """Answers; see the class.

        Args:
            audio: a sound, a list of them, or for several texts a list of such lists; or a chat.
            text: a text, a chat, or a list of these.
            options: of the call.

        Raises:
            InputError: an input or an option is not valid. Aborted: by the signal.
        """
        if isinstance(audio, Mapping) and text is None and "text" in audio:
            audio, text = audio.get("audio"), audio["text"]
        return super().__call__(self._told(audio), text, **options)

    def _told(self, audio: Any) -> Any:
        """Sounds of which samples are told from lists of sounds."""
        several = isinstance(audio, (list, tuple))
        if several and not (audio and isinstance(audio[0], (int, float))):
            return [self._told(one) for one in audio]
        if audio is None or isinstance(audio, (str, bytes, os.PathLike, Mapping)):
            return audio
        return {"raw": audio, "sampling_rate": self.rate}

    def _features(self, ask: Ask, options: Mapping[str, Any], continued: bool) -> Features:
        """The prompt of an input, with the features of its sounds."""
        rule = self.rule
        sounds = [read_sound(one, self.rate).samples for one in ask.pictures]
        known = [tokens_of(rule, samples.size) for samples in sounds]
        parts: dict[int, bytes] = {}
        texts = []
        for i, count in enumerate(known):
            if count is None:  # the encoder says it
                parts[i] = self._heard(sounds[i], options["signal"])
                count = self._count(parts[i])
            texts.append(heard(rule, count))
        text = prompt_text(rule, self._text(ask, continued), texts)
        prompt = self._placed(text, [rule["token"]], texts, options)
        check_room(prompt, self.model.max_length, self.task)
        for i, samples in enumerate(sounds):
            if i not in parts:
                parts[i] = self._heard(samples, options["signal"])
            check_rows(self._count(parts[i]), texts[i], self.task)
        return Features(prompt, [parts[i] for i in range(len(sounds))], [t.count for t in texts])

    def _messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return flat_messages(self.rule, messages)

    def _count(self, data: bytes) -> int:
        return len(data) // (4 * self.model.package.manifest["decoder"]["features"])

    def _heard(self, samples: Any, signal: Any) -> bytes:
        """The features of a sound, float32 [count, hidden]."""
        data = bytes(part(samples, 0, samples.size))
        key = hashlib.sha256(data).hexdigest()
        found = self._kept.take(key)
        if found is None:
            found = b"".join(self._windows(data, signal))
            self._kept.put(key, found, len(found))
        return bytes(found)

    def _windows(self, data: bytes, signal: Any) -> Iterator[bytes]:
        """The features of a sound, window by window. Raises Aborted."""
        rule, width = self.rule, self.model.package.manifest["decoder"]["features"]
        hear = self._hear_any if "any_length" in rule else self._hear_window
        for first, count in windows_of(rule, len(data) // 4):
            if is_set(signal):
                raise Aborted("generation was aborted", self.task)
            rows = hear(data[4 * first : 4 * (first + count)], count)
            given = len(rows) // (4 * width)
            yield rows[: 4 * width * rows_of_window(rule, count, given)]

    def _hear_window(self, data: bytes, count: int) -> bytes:
        """The features of a window of one length."""
        rule, encoder = self.rule, self.session("hearing")
        masks = [name for name in encoder.inputs if "mask" in name]
        (features,) = [name for name in encoder.inputs if name not in masks]
        audio = Array((1, rule["size"]), "float32", data + bytes(4 * (rule["size"] - count)))
        (values,) = self.session("pre").run(None, {"audio": audio})
        feeds = {features: values}
        frames = values.shape[2]
        valid = -(-count * frames // rule["size"])
        for name in masks:
            ones = struct.pack(f"<{frames}q", *[1] * valid, *[0] * (frames - valid))
            feeds[name] = Array((1, frames), "int64", ones)
        (rows,) = encoder.run(None, feeds)
        return bytes(rows.tobytes())

    def _hear_any(self, data: bytes, count: int) -> bytes:
        """The features of a sound of any length."""
        pre, encoder = self.session("pre"), self.session("hearing")
        rows = rows_of(self.rule["any_length"], count)
        room = 4 * rows.count * rows.size
        audio = Array((rows.count, rows.size), "float32", data[:room] + bytes(room - len(data)))
        valid = Array((1,), "int64", struct.pack("<q", rows.valid))
        names = list(encoder.inputs)
        values = pre.run(names, {"audio": audio, "valid": valid})
        output, *_ = features_of(list(encoder.outputs))
        (found,) = encoder.run([output], dict(zip(names, values, strict=True)))
        strips([found.shape], self.model.package.manifest["decoder"]["features"], "encoder")
        return bytes(as_input(found, output, FLOAT)[2])

    def session(self, stem: str) -> Any:
        """Of sounds of any length the graphs of a folder run in sessions, without a limit."""
        programs = self.package.manifest.get("programs", {})
        graphs = list(self.files.graphs.values()) if self.files is not None else []
        if stem not in self.sessions and stem not in programs and graphs:
            assert self.files is not None
            path = graphs[0]  # the first of STEMS
            texts = task_texts(folder_files(self.files.root)[0])
            made = hearing_graphs(texts, read_model(FileSource(path)), os.path.basename(path))
            for name, graph in zip(("pre", "hearing"), made, strict=True):
                self.sessions[name] = InferenceSession(graph, engine=self.engine)
        return super().session(stem)
