"""Classification by any labels: candidate labels, and texts of models that compare them with
pictures (CLIP, SigLIP) or sounds (CLAP).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..native import listed, option, written
from ..options import read_text
from ..post.classification import Score, sigmoid, softmax

SIGLIP_LENGTH = 64
"""Tokens that SigLIP's texts are padded to."""
TEMPLATES = {
    "zero-shot-classification": "This example is {}.",
    "zero-shot-image-classification": "This is a photo of {}.",
    "zero-shot-audio-classification": "This is a sound of {}.",
    "zero-shot-object-detection": "{}",
}
"""Defaults of the option `hypothesis_template` of each task."""
MAX_TEXTS = 1024
"""Texts whose results are kept for the next inputs."""


@dataclass(frozen=True)
class Candidates:
    """The labels of a call, and a text for each."""

    labels: list[str]
    texts: list[str]


def hypothesis(options: Mapping[str, Any], task: str) -> str:
    """The option `hypothesis_template`. Raises InputError: it has no place for the label."""
    given = read_text(options, "hypothesis_template")
    template = TEMPLATES[task] if given is None else given
    if "{}" not in template:
        raise InputError(
            "it has no place for the label",
            option("hypothesis_template"),
            "Put {} where the label belongs.",
        )
    return template


def candidate_labels(given: object) -> list[str]:
    """The labels of a call: a list, or a string with commas.

    Raises:
        InputError: there is none, or one has no text.
    """
    found: list[Any] | None = listed(given)
    if isinstance(given, str):
        found = [label.strip() for label in given.split(",") if label.strip()]
    labels: list[str] = []
    for label in [] if found is None else found:
        if isinstance(label, str) and label:
            labels.append(label)
    if found is None or not labels or len(labels) < len(found):
        raise InputError(
            "there are no labels",
            "candidate_labels",
            'Give a list of strings, or one like "sport, politics".',
        )
    return labels


def candidates(options: Mapping[str, Any], task: str) -> Candidates:
    """The labels of a call of a task, and a text for each."""
    template = hypothesis(options, task)
    labels = candidate_labels(options.get("candidate_labels"))
    return Candidates(labels, [template.replace("{}", label) for label in labels])


def compared(
    config: Mapping[str, Any], labels: Sequence[str], logits: Sequence[float]
) -> list[Score]:
    """The scores of labels, the highest first.

    Args:
        config: contents of config.json.
        labels: the candidates.
        logits: of each label.
    """
    scores = sigmoid(logits) if is_padded(config) else softmax(logits)
    order = sorted(range(len(labels)), key=lambda i: -scores[i])
    return [{"label": labels[i], "score": scores[i]} for i in order]


def is_padded(config: Mapping[str, Any]) -> bool:
    """Whether each text has the same number of tokens, as SigLIP's have."""
    return "siglip" in str(config.get("model_type"))


def _text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    found: object = config.get("text_config")
    return found if isinstance(found, dict) else {}


def longest_candidate(config: Mapping[str, Any]) -> int:
    """The most tokens of a text. config: contents of config.json."""
    inner = _text_config(config)
    given: object = inner.get("max_position_embeddings")
    found = given if type(given) is int else 0
    if config.get("model_type") == "clap":  # its positions begin after that of the padding
        positions = found if found > 3 else 514
        pad: object = inner.get("pad_token_id")
        return positions - 1 - (pad if type(pad) is int and 0 <= pad < positions - 2 else 1)
    if is_padded(config):
        return min(found, SIGLIP_LENGTH) if found > 1 else SIGLIP_LENGTH
    return found if found > 1 else 77


def candidate_ids(
    config: Mapping[str, Any], text: str, ids: Sequence[int], longest: int
) -> list[int]:
    """The tokens of a text, without padding.

    Args:
        config: contents of config.json.
        text: the text.
        ids: its tokens.
        longest: the most tokens of a text.

    Raises:
        InputError: there are more, and the model is not one that gets the first ones.
    """
    if len(ids) <= longest:
        return list(ids)
    if is_padded(config):
        return [*ids[: longest - 1], ids[-1]]
    raise InputError(
        f"{written(text[:100])} has {len(ids)} tokens, the model takes {longest}",
        "candidate_labels",
        "Use a shorter label.",
    )


def padding_of(config: Mapping[str, Any], own: int | None, eos: int | None) -> int:
    """The id of the token that fills up texts.

    Args:
        config: contents of config.json.
        own: id of the tokenizer's pad_token; None: it has none.
        eos: id of its eos_token.
    """
    if own is not None:
        return own
    inner = _text_config(config)
    value: object = inner.get("pad_token_id") if "pad_token_id" in inner else eos
    return value if type(value) is int else 0
