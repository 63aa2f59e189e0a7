"""Text to text with encoder-decoder models: translation, summarization and others. Mirrors
transformers/pipelines/text2text_generation.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...errors import InputError
from ...logic.generation.fields import GENERATION_FIELDS
from ...logic.generation.text2text import (
    LANGUAGES,
    OPTIONS,
    call_of,
    check,
    prompt_of,
    special_tokens,
)
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
        **dict.fromkeys(OPTIONS),
        "truncation": False,
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
        check(options)

    def run(self, inputs: Any, options: dict[str, Any], batch_size: int | None = None) -> Any:
        results = super().run(inputs, options, batch_size)
        several = (options["generate_kwargs"] or {}).get("num_return_sequences", 1) > 1
        if self.is_list(inputs) and not several:
            return [records[0] for records in results]
        return results

    def one(self, given: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        if not isinstance(given, str):
            raise InputError(
                f"a {type(given).__name__} is no text", self.task, "Give a text or a list of texts."
            )
        model = self.model
        call = call_of(options, False, model.config, self.special_ids())
        ids = self.encode(call.prefix + given)
        eos = model.generation_config.get("eos_token_id")
        source = model.encode(prompt_of(call, ids, model.encoders[-1][0], eos))
        fields = dict(options["generate_kwargs"] or {})
        fields.pop("return_dict_in_generate", None)
        if call.forced is not None:
            fields["forced_bos_token_id"] = call.forced
        try:
            out: Any = generate(
                source,
                model.start_ids(),
                return_dict_in_generate=True,
                tokenizer=self.tokenizer,
                **{n: options[n] for n in _HOST},
                **fields,
            )
        finally:
            source.close()
        if call.tensors:
            return [{f"{self.NAME}_token_ids": list(ids)} for ids in out["sequences"]]
        decode = self.tokenizer.decode
        return [{f"{self.NAME}_text": decode(i, **call.decoding)} for i in out["sequences"]]

    def encode(self, text: str) -> list[int]:
        """The ids of a text, with the special tokens that the tokenizer adds."""
        found = self.tokenizer.encode(text)
        return list(getattr(found, "ids", found))

    def special_ids(self) -> dict[str, int]:
        """Ids of the tokenizer's further special tokens, among them those of languages."""
        config = getattr(self.tokenizer, "config", None) or {}
        ids = {name: self.tokenizer.token_to_id(name) for name in special_tokens(config)}
        return {name: int(i) for name, i in ids.items() if i is not None}


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
        **dict.fromkeys(LANGUAGES),
    }
