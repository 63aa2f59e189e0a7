"""fill-mask. Mirrors transformers' FillMaskPipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import InputError
from ...logic.post.classification import check_top_k, fill_mask
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
        if options["top_k"] is not None:
            check_top_k(options["top_k"])
        extra = options["tokenizer_kwargs"] or {}
        if not isinstance(extra, Mapping) or not set(extra) <= set(self.ENCODING):
            raise InputError(
                f"it is {extra!r}", "tokenizer_kwargs", f"There are: {', '.join(self.ENCODING)}."
            )
        self.check_encoding({**self.ENCODING, **extra})
        if self.tokenizer.mask_token_id is None:
            raise InputError(
                "the tokenizer has no mask token", self.task, "Give a masked language model."
            )

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        extra = {**self.ENCODING, **(options["tokenizer_kwargs"] or {})}
        del extra["padding"]
        ids = (encoding := self.encodings(need_text(given, self.task), **extra)[0]).ids
        masked = [i for i, number in enumerate(ids) if number == self.tokenizer.mask_token_id]
        if not masked:
            raise InputError(
                f"no {self.tokenizer.mask_token} in the text", self.task, "Put one in it."
            )
        (logits,) = self.forward(encoding, outputs=[self.need_output("model", "logits")])
        top_k = 5 if options["top_k"] is None else options["top_k"]
        targets = self._targets(options["targets"])
        result = []
        for at in masked:
            row = []
            for number, score in fill_mask(logits.row(0, at), top_k, targets):
                filled = [*ids[:at], number, *ids[at + 1 :]]
                filled = [i for i in filled if i != self.tokenizer.pad_token_id]
                row.append(
                    {
                        "score": score,
                        "token": number,
                        "token_str": self.tokenizer.decode([number]),
                        "sequence": self.tokenizer.decode(
                            filled, skip_special_tokens=len(masked) == 1
                        ),
                    }
                )
            result.append(row)
        return result[0] if len(masked) == 1 else result

    def _targets(self, targets: Any) -> list[int] | None:
        """Ids of the tokens to choose from. Raises InputError."""
        if targets is None:
            return None
        found: list[int] = []
        targets = [targets] if isinstance(targets, str) else targets
        if not isinstance(targets, (list, tuple)):
            raise InputError("it is no list of tokens", "targets")
        for target in targets:
            number = self.tokenizer.token_to_id(need_text(target, "targets"))
            if number is None:
                ids = self.tokenizer.encode(target, add_special_tokens=False)
                number = ids[0] if ids else None
            if number is not None and number not in found:
                found.append(number)
        if not found:
            raise InputError("none of them is a token", "targets", "Give at least one.")
        return found
