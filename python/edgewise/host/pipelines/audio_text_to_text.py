"""Text generation from sounds and text, as image-text-to-text from pictures."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ...compiler.arrays import Array
from ...errors import Aborted, memory_in_words
from ...logic.multimodal.asking import SOUNDS, Ask, Kind
from ...logic.multimodal.families.sounds import heard, prompt_text, rows_of_window, windows_of
from ...logic.multimodal.prompt import Shown, check_rows
from ..media.decode import read_sound
from ..media.recording import part
from ..session.features import Features
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
        texts = [heard(rule, samples.size) for samples in sounds]
        text = prompt_text(rule, self._text(ask, continued), texts)
        prompt = self._placed(text, rule["token"], texts, options)
        parts = [self._heard(one, of, options["signal"]) for one, of in zip(sounds, texts)]
        return Features(prompt, parts, [one.count for one in texts])

    def _heard(self, samples: Any, text: Shown, signal: Any) -> bytes:
        """The features of a sound, float32 [count, hidden]."""
        data = bytes(part(samples, 0, samples.size))
        key = hashlib.sha256(data).hexdigest()
        found = self._kept.take(key)
        if found is None:
            found = b"".join(self._windows(data, signal))
            self._kept.put(key, found, len(found))
        count = len(found) // (4 * self.model.package.manifest["decoder"]["features"])
        check_rows(count, text, self.task)
        return bytes(found)

    def _windows(self, data: bytes, signal: Any) -> Iterator[bytes]:
        """The features of a sound, window by window. Raises Aborted."""
        rule, width = self.rule, self.model.package.manifest["decoder"]["features"]
        encoder = self.session("hearing")
        masks = [name for name in encoder.inputs if "mask" in name]
        (features,) = [name for name in encoder.inputs if name not in masks]
        for first, count in windows_of(rule, len(data) // 4):
            if is_set(signal):
                raise Aborted("generation was aborted", self.task)
            window = data[4 * first : 4 * (first + count)] + bytes(4 * (rule["size"] - count))
            audio = Array((1, rule["size"]), "float32", window)
            (values,) = self.session("pre").run(None, {"audio": audio})
            feeds = {features: values}
            frames = values.shape[2]
            valid = -(-count * frames // rule["size"])
            for name in masks:
                ones = struct.pack(f"<{frames}q", *[1] * valid, *[0] * (frames - valid))
                feeds[name] = Array((1, frames), "int64", ones)
            (rows,) = encoder.run(None, feeds)
            yield rows.tobytes()[: 4 * width * rows_of_window(rule, count)]
