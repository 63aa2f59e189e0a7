"""zero-shot-image-classification. Mirrors transformers' pipeline of this name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError
from ..post.classification import sigmoid, softmax
from .base import ImagePipeline, Plane

__all__ = ["ZeroShotImageClassificationPipeline"]

SIGLIP_LENGTH = 64  # tokens that SigLIP's texts are padded to


class ZeroShotImageClassificationPipeline(ImagePipeline):
    """Classifies pictures by any labels: pipe(image, candidate_labels=[...]), with CLIP or SigLIP
    as one graph that has the output logits_per_image.

    Options:
        candidate_labels: a list, or a string with commas.
        hypothesis_template: a text with {} for the label. Default: "This is a photo of {}."

    Returns:
        [{"score", "label"}] for each picture, the highest score first
    """

    PACKAGED = False
    task = "zero-shot-image-classification"
    TOKENIZER = True
    CALL = {"candidate_labels": None, "hypothesis_template": "This is a photo of {}."}

    def __call__(
        self,
        inputs: Any,
        candidate_labels: Any = None,
        *,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        """See the class and Pipeline.__call__."""
        if candidate_labels is not None:
            options["candidate_labels"] = candidate_labels
        return super().__call__(inputs, batch_size=batch_size, **options)

    def check(self, options: Mapping[str, Any]) -> None:
        template = options["hypothesis_template"]
        if not isinstance(template, str) or "{}" not in template:
            raise InputError("it is not a text with {}", "hypothesis_template", "Add {}.")
        if options["candidate_labels"] is not None:
            _labels(options["candidate_labels"])

    def one(self, given: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        labels = _labels(options["candidate_labels"])
        texts = [options["hypothesis_template"].replace("{}", label) for label in labels]
        siglip = "siglip" in str(self.config.get("model_type"))
        name = self.need_output(self.STEM, "logits_per_image")
        feeds = self._encode(texts, siglip)
        (logits,) = self.forward(self.picture(given), name, feeds=feeds)
        row = list(Plane(logits).numbers)
        scores = sigmoid(row) if siglip else softmax(row)
        order = sorted(range(len(labels)), key=lambda i: -scores[i])
        return [{"score": scores[i], "label": labels[i]} for i in order]

    def _encode(self, texts: Sequence[str], siglip: bool) -> dict[str, Any]:
        """The texts, padded to one length, as inputs of the graph."""
        text_config = self.config.get("text_config") or {}
        longest = text_config.get("max_position_embeddings") or (64 if siglip else 77)
        if siglip:
            longest = min(longest, SIGLIP_LENGTH)
        rows = []
        for text in texts:
            ids = list(self.tokenizer.encode(text))
            if len(ids) > longest:
                if not siglip:
                    raise InputError(
                        f"{text!r} has {len(ids)} tokens, the model takes {longest}",
                        "candidate_labels",
                        "Use a shorter label.",
                    )
                ids = [*ids[: longest - 1], ids[-1]]
            rows.append(ids)
        width = longest if siglip else max(map(len, rows))
        pad = self._pad(text_config)
        feeds = {
            "input_ids": [row + [pad] * (width - len(row)) for row in rows],
            "attention_mask": [[1] * len(row) + [0] * (width - len(row)) for row in rows],
        }
        return feeds

    def _pad(self, text_config: Mapping[str, Any]) -> int:
        """The token that fills up texts."""
        token = (getattr(self.tokenizer, "config", None) or {}).get("pad_token")
        name = token.get("content") if isinstance(token, Mapping) else token
        if isinstance(name, str):
            found = self.tokenizer.token_to_id(name)
            if found is not None:
                return int(found)
        value = text_config.get("pad_token_id", getattr(self.tokenizer, "eos_token_id", None))
        return value if type(value) is int else 0


def _labels(given: Any) -> list[str]:
    if isinstance(given, str):
        given = [label.strip() for label in given.split(",")]
    if not isinstance(given, (list, tuple)) or not all(isinstance(x, str) for x in given):
        raise InputError("it is not a list of texts", "candidate_labels", "Pass candidate_labels=.")
    if not given:
        raise InputError("there are no labels", "candidate_labels", "Pass at least one.")
    return list(given)
