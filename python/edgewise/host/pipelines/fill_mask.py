"""fill-mask. Mirrors transformers' FillMaskPipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...logic.tasks.texts import Filling, encode_options, fill_masks, filling
from .text import TextPipeline, need_text


class FillMaskPipeline(TextPipeline):
    """Fills masked tokens of texts, such as "The capital of France is [MASK]."

    Options:
        top_k: how many tokens. Default: 5.
        targets: a token or a list of tokens to choose from; of a text that is no token its first
            token counts.
        tokenizer_kwargs: {"truncation", "max_length", "padding", "add_special_tokens"}.

    Returns:
        for each text [{"score", "token", "token_str", "sequence"}], the highest score first; a
        list of such lists if several tokens are masked
    """

    task = "fill-mask"
    CALL = {"top_k": 5, "targets": None, "tokenizer_kwargs": None}

    def check(self, options: Mapping[str, Any]) -> None:
        self._filling(options)

    def _filling(self, options: Mapping[str, Any]) -> Filling:
        encode = encode_options(self.inner_options(options, "tokenizer_kwargs"))
        return filling(self.model, options, encode)

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        text = need_text(given, self.task)
        found = self.done(fill_masks(self.model, text, self._filling(options)))
        return found[0] if len(found) == 1 else found
