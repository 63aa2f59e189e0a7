"""Text to text with encoder-decoder models: translation, summarization and others. Mirrors
transformers/pipelines/text2text_generation.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...errors import InputError
from ...logic.generation.arguments import truncated
from ...logic.generation.fields import GENERATION_FIELDS
from ..text import generate
from .seq2seq import Seq2SeqPipeline

__all__ = ["SummarizationPipeline", "Text2TextGenerationPipeline", "TranslationPipeline"]

_HOST = ("streamer", "signal", "stopping_criteria", "logits_processor")


class Text2TextGenerationPipeline(Seq2SeqPipeline):
    """Generates text from text: `pipe("translate English to German: Hello")`.

    Args:
        model: folder of a T5, BART, Marian or similar model (encoder_model.onnx and
            decoder_model_merged.onnx, or decoder_model.onnx with decoder_with_past_model.onnx) or
            the id of one of the hub; or a Seq2SeqModel.
        tokenizer, options: as of Pipeline.

    Options of a call:
        return_tensors: return {"generated_token_ids": ids} instead of text.
        return_text: return text, as by default.
        clean_up_tokenization_spaces: as the tokenizer's configuration by default.
        truncation: cut inputs that are too long; otherwise they are refused.
        prefix: put before each text. Default: that of the model's config.
        streamer, signal, stopping_criteria, logits_processor: as of edgewise.generate.
        fields of GenerationConfig.

    Returns:
        [{"generated_text": ...}, ...], one per returned sequence; for a list of texts a list of the
        first ones, or with num_return_sequences a list of lists.
    """

    task = "text2text-generation"
    STEMS = ("encoder_model",)
    NAME: ClassVar[str] = "generated"
    CALL: Mapping[str, Any] = {  # type: ignore[misc]
        "return_tensors": None,
        "return_text": None,
        "clean_up_tokenization_spaces": None,
        "truncation": False,
        "prefix": None,
        "generate_kwargs": None,
        **dict.fromkeys(_HOST),
    }

    def options(self, given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
        """As Pipeline.options; fields of GenerationConfig are collected in `generate_kwargs`."""
        given = self.generation_fields(given)
        fields = {n: given.pop(n) for n in list(given) if n in GENERATION_FIELDS}
        found = super().options(given, where)
        found["generate_kwargs"] = {**(found["generate_kwargs"] or {}), **fields}
        return found

    def check(self, options: Mapping[str, Any]) -> None:
        if options["return_tensors"] and options["return_text"]:
            raise InputError("return_text excludes return_tensors", self.task, "Give one.")

    def run(self, inputs: Any, options: dict[str, Any], batch_size: int | None = None) -> Any:
        results = super().run(inputs, options, batch_size)
        several = (options["generate_kwargs"] or {}).get("num_return_sequences", 1) > 1
        if self.is_list(inputs) and not several:
            return [records[0] for records in results]
        return results

    def prompt(self, text: str, options: dict[str, Any]) -> list[int]:
        """The ids of a text for the encoder."""
        prefix = options["prefix"]
        prefix = self.model.config.get("prefix") if prefix is None else prefix
        ids = self.tokenizer.encode((prefix or "") + text)
        return list(getattr(ids, "ids", ids))

    def one(self, given: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        if not isinstance(given, str):
            raise InputError(
                f"a {type(given).__name__} is no text", self.task, "Give a text or a list of texts."
            )
        ids, most = self.prompt(given, options), self.model.encoders[-1][0]
        if options["truncation"]:
            ids = truncated(ids, most, self.model.generation_config.get("eos_token_id"))
        source = self.model.encode(ids)
        try:
            out: Any = generate(
                source,
                self.model.start_ids(),
                return_dict_in_generate=True,
                tokenizer=self.tokenizer,
                **{n: options[n] for n in _HOST},
                **{
                    n: v
                    for n, v in (options["generate_kwargs"] or {}).items()
                    if n != "return_dict_in_generate"
                },
            )
        finally:
            source.close()
        return [self._record(sequence, options) for sequence in out["sequences"]]

    def _record(self, ids: list[int], options: dict[str, Any]) -> dict[str, Any]:
        if options["return_tensors"]:
            return {f"{self.NAME}_token_ids": ids}
        extra: dict[str, Any] = {"skip_special_tokens": True}
        if options["clean_up_tokenization_spaces"] is not None:
            extra["clean_up_tokenization_spaces"] = options["clean_up_tokenization_spaces"]
        return {f"{self.NAME}_text": self.tokenizer.decode(ids, **extra)}


class SummarizationPipeline(Text2TextGenerationPipeline):
    """Summarizes texts: `pipe(text)` gives [{"summary_text": ...}]. Options are those of
    Text2TextGenerationPipeline; `truncation` is True by default.
    """

    task = "summarization"
    NAME = "summary"
    CALL: Mapping[str, Any] = {  # type: ignore[misc]
        **Text2TextGenerationPipeline.CALL,
        "truncation": True,
    }


class TranslationPipeline(Text2TextGenerationPipeline):
    """Translates texts: `pipe(text)` gives [{"translation_text": ...}].

    Further options of a call:
        src_lang, tgt_lang: languages, for multilingual models (NLLB, M2M100, mBART) as tokens of
            the tokenizer such as "eng_Latn"; for T5 the model's config names a prefix for the pair.
    """

    task = "translation"
    NAME = "translation"
    CALL: Mapping[str, Any] = {  # type: ignore[misc]
        **Text2TextGenerationPipeline.CALL,
        "src_lang": None,
        "tgt_lang": None,
    }

    def prompt(self, text: str, options: dict[str, Any]) -> list[int]:
        source, target = options["src_lang"], options["tgt_lang"]
        params = self.model.config.get("task_specific_params") or {}
        pair = params.get(f"translation_{source}_to_{target}") or {}
        if pair.get("prefix") and options["prefix"] is None:
            return super().prompt(text, {**options, "prefix": pair["prefix"]})
        ids = super().prompt(text, options)
        if source is not None:
            ids = [self._language(source), *[i for i in ids if i not in self._languages()]]
        return ids

    def one(self, given: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        source, target = options["src_lang"], options["tgt_lang"]
        params = self.model.config.get("task_specific_params") or {}
        if target is not None and f"translation_{source}_to_{target}" not in params:
            fields = {
                **(options["generate_kwargs"] or {}),
                "forced_bos_token_id": self._language(target),
            }
            options = {**options, "generate_kwargs": fields}
        return super().one(given, options)

    def _names(self) -> set[str]:
        """The tokenizer's further special tokens, among them those of languages."""
        names = self.tokenizer.config.get("additional_special_tokens") or []
        return {n if isinstance(n, str) else n.get("content", "") for n in names}

    def _languages(self) -> set[int | None]:
        """Ids of the tokens of languages."""
        return {self.tokenizer.token_to_id(name) for name in self._names()}

    def _language(self, name: str) -> int:
        names = self._names()
        for form in (name, f"__{name}__", f"{name}_XX"):
            if form in names:
                return int(self.tokenizer.token_to_id(form))
        raise InputError(
            f"the model has no language {name!r}",
            "tgt_lang",
            "Give a token of the model's tokenizer; models for one pair have no such option.",
        )
