"""text-to-speech by language models whose tokens are codes of a codec, such as Orpheus's."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ....compiler.arrays import as_input, as_output
from ....compiler.declare.dtypes import FLOAT
from ....errors import InputError, ModelError, memory_in_words
from ....logic.options import check_known
from ....logic.speech.audio_tokens import (
    KNOWN,
    Frames,
    Piece,
    Pieces,
    TokenRule,
    check_fit,
    fields_of,
    prompt_parts,
    rule_of,
    token_of,
)
from ....seeds import check_seed
from ...text.generate import steps
from ..text_generation import TextGenerationPipeline
from .codec import Codec
from .sound import Speech, sentences

__all__ = ["SpeakingLanguageModel"]

CALL = ("voice", "seed", "signal", "split", "generate_kwargs", "forward_params")
CODEC = ("codec", "audio_tokens")


class SpeakingLanguageModel:
    """Speaks texts with a language model and a codec:
    `pipeline("text-to-speech", "models/orpheus", codec="models/snac_24khz")`.

    Args:
        model: of text generation: a folder, an id, or an edgewise.CausalLM.
        tokenizer: default: the model's.
        codec: a Codec, or what it is made of.
        audio_tokens: which tokens are codes: "orpheus", "outetts", or {"tokens": "<a_{}>" (or
            one of each token of a frame), "streams": [codebook of each token of a frame], "size":
            codes of a codebook, "first": number of the code 0, "step": of it from token to token
            (default: `size`), "end": [tokens that end the speech]}. Default: by the vocabulary.
        options: of the language model, and defaults of the options of calls.

    Options of a call:
        voice: of Orpheus a name; of OuteTTS a speaker, its contents or the path of its .json.
        seed: of the sampler, and of codecs that draw random numbers. Default: unpredictable.
        split: whether each sentence is spoken by itself. Default: False.
        generate_kwargs: fields of GenerationConfig.
        signal: as of edgewise.generate.
    """

    task = "text-to-speech"

    @memory_in_words
    def __init__(self, model: Any, tokenizer: Any = None, **options: Any) -> None:
        codec, given = options.pop("codec"), options.pop("audio_tokens", None)
        self.defaults = {n: options.pop(n) for n in CALL if n in options}
        self.writer = TextGenerationPipeline(model, tokenizer, **options)
        self.tokenizer = self.writer.tokenizer
        self.codec = codec if isinstance(codec, Codec) else Codec(codec)
        self._texts: dict[int, str] = {}
        known = [all(self._ids(token_of(r, i, 0)) for i in (0, -1)) for r in KNOWN]
        self.rule: TokenRule = rule_of(given, known)
        for i, column in enumerate(self.rule.columns):
            if not self._ids(token_of(self.rule, i, 0)):
                raise InputError(
                    f"the vocabulary has no token {column.prefix}{column.first}{column.suffix}",
                    "audio_tokens",
                    "Give the rule of this model.",
                )
        codec_of = self.codec
        check_fit(self.rule, codec_of.streams, codec_of.num_codebooks, codec_of.codebook_size)

    @property
    def sampling_rate(self) -> int:
        """Hz of the sound."""
        return self.codec.sampling_rate

    @memory_in_words
    def __call__(self, texts: Any, **options: Any) -> Any:
        """Speaks a text, or each of a list. Returns a Speech, or a list of them."""
        if isinstance(texts, (list, tuple)):
            return [self(text, **options) for text in texts]
        chosen = self._options(options)
        if not isinstance(texts, str):
            kind = type(texts).__name__
            raise InputError(f"a {kind} is no text", self.task, "Give a text or a list of texts.")
        parts = sentences([texts]) if chosen.get("split") else [texts]
        made = [self._whole(part, chosen) for part in parts]
        if not made:
            raise InputError("the text is empty", self.task, "Give a text.")
        return self._speech(b"".join(made))

    def stream(self, text: str | Iterable[str], **options: Any) -> Iterator[Speech]:
        """Speaks sentence by sentence, and gives the sound while it is made.

        Args:
            text: a text, or its pieces as they arrive.
            options: as of a call without `split`.

        Yields:
            {"audio", "sampling_rate", "text"}: "text" is the sentence that the sound belongs to
        """
        if options.get("split") is not None:
            raise InputError("a stream is always split", "split", "Leave it out.")
        chosen = self._options(options)
        for sentence in sentences([text] if isinstance(text, str) else text):
            for data in self._pieces(sentence, chosen):
                speech = self._speech(data)
                speech["text"] = sentence
                yield speech

    def close(self) -> None:
        """Frees the codec's memory. The language model is freed with the pipeline."""
        self.codec.close()

    def __enter__(self) -> SpeakingLanguageModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- the parts of it
    def _options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        chosen = {**self.defaults, **given}
        more = chosen.pop("forward_params", None)
        if more is not None and not isinstance(more, Mapping):
            raise InputError("it is no dict", "forward_params", "Give {option: value}.")
        chosen = {**(more or {}), **chosen}
        check_known(list(chosen), CALL, self.task)
        fields = chosen.get("generate_kwargs")
        if fields is not None and not isinstance(fields, Mapping):
            raise InputError(f"it is {fields!r}", "generate_kwargs", "Give {name: value}.")
        check_seed(chosen.get("seed"), "seed")
        return chosen

    def _ids(self, token: str) -> list[int]:
        """The id of a token, alone in a list; [] if it is none."""
        found = self.tokenizer.encode(token, add_special_tokens=False)
        ids = list(getattr(found, "ids", found))
        return ids if len(ids) == 1 else []

    def _prompt(self, text: str, voice: Any) -> list[int]:
        if isinstance(voice, (str, os.PathLike)) and self.rule.name == "outetts":
            try:
                with open(voice, encoding="utf-8") as file:
                    voice = json.load(file)
            except (OSError, ValueError) as e:
                raise ModelError(f"it cannot be read ({e})", str(voice), "Check it.") from None
        ids: list[int] = []
        for part in prompt_parts(self.rule, text, voice):
            found = self.tokenizer.encode(part.text, add_special_tokens=part.special)
            ids += list(getattr(found, "ids", found))
        return ids

    def _tokens(self, text: str, options: Mapping[str, Any]) -> Iterator[int | None]:
        """The tokens that the model writes."""
        seed = options.get("seed")
        own = dict(options.get("generate_kwargs") or {})
        fields = fields_of(self.rule, own)
        if seed is not None:
            fields.setdefault("seed", seed)
        end = [i for token in self.rule.end for i in self._ids(token)]
        if "eos_token_id" not in own and end:
            eos = self.writer.generation_config.values.get("eos_token_id")
            more = eos if isinstance(eos, list) else [] if eos is None else [eos]
            fields["eos_token_id"] = [*end, *(i for i in more if i not in end)]
        prompt = self._prompt(text, options.get("voice"))
        running = steps(
            self.writer.model,
            prompt,
            self.writer.generation_config,
            signal=options.get("signal"),
            tokenizer=self.tokenizer,
            **fields,
        )
        try:
            yield from running
        finally:
            running.close()

    def _text(self, token: int) -> str:
        if token not in self._texts:
            self._texts[token] = self.tokenizer.decode([token], skip_special_tokens=False)
        return self._texts[token]

    def _whole(self, text: str, options: Mapping[str, Any]) -> bytes:
        frames, count = Frames(self.rule), 0
        for token in self._tokens(text, options):
            count += 1
            if token is not None:
                frames.feed(self._text(token))
        self._check(frames, count)
        return self._decoded(frames, Piece(0, frames.count, 0, frames.count), options)

    def _pieces(self, text: str, options: Mapping[str, Any]) -> Iterator[bytes]:
        frames, pieces, count = Frames(self.rule), Pieces(), 0
        for token in self._tokens(text, options):
            count += 1
            if token is not None and frames.feed(self._text(token)):
                while (piece := pieces.next(frames.count, False)) is not None:
                    yield self._decoded(frames, piece, options)
        self._check(frames, count)
        while (piece := pieces.next(frames.count, True)) is not None:
            yield self._decoded(frames, piece, options)

    def _check(self, frames: Frames, count: int) -> None:
        """Raises InputError: the model did not speak."""
        if frames.count == 0:
            raise InputError(
                f"the model wrote {count} tokens, and no whole frame of sound among them",
                self.task,
                "Check that the model, its prompt (voice=) and audio_tokens= belong together.",
            )

    def _decoded(self, frames: Frames, piece: Piece, options: Mapping[str, Any]) -> bytes:
        """The samples of frames."""
        codes = frames.codes(piece.start, piece.count)
        tensors: Any = [[of] for of in codes] if self.codec.streams > 1 else codes
        made = self.codec.decode(tensors, seed=options.get("seed"), signal=options.get("signal"))[
            "audio"
        ]
        _, shape, data = as_input(made, "audio")
        size = shape[-1]
        per = size / piece.count
        first, last = round(piece.first * per), round(piece.last * per)
        return memoryview(data).cast("B")[4 * first : 4 * last].tobytes()

    def _speech(self, data: bytes) -> Speech:
        audio = as_output(FLOAT, [1, len(data) // 4], data)
        return Speech({"audio": audio, "sampling_rate": self.sampling_rate})
