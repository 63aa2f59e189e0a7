"""Candidate labels, and texts of models that compare them with pictures (CLIP, SigLIP) or sounds
(CLAP).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import InputError

__all__ = [
    "SIGLIP_LENGTH",
    "candidate_ids",
    "candidate_labels",
    "is_padded",
    "longest_candidate",
    "padding",
]

SIGLIP_LENGTH = 64  # tokens that SigLIP's texts are padded to


def candidate_labels(given: Any) -> list[str]:
    """The labels of a call: a list, or a string with commas.

    Raises:
        InputError: there is none, or one has no text.
    """
    if isinstance(given, str):
        given = [label.strip() for label in given.split(",") if label.strip()]
    labels = list(given) if isinstance(given, (list, tuple)) else []
    if not labels or not all(isinstance(label, str) and label for label in labels):
        raise InputError(
            "there are no labels",
            "candidate_labels",
            'Give a list of strings, or one like "sport, politics".',
        )
    return labels


def is_padded(config: Mapping[str, Any]) -> bool:
    """Whether each text has the same number of tokens, as SigLIP's have."""
    return "siglip" in str(config.get("model_type"))


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found = config.get("text_config")
    return found if isinstance(found, Mapping) else {}


def longest_candidate(config: Mapping[str, Any]) -> int:
    """The most tokens of a text. config: contents of config.json."""
    found = _text_config(config).get("max_position_embeddings")
    siglip = is_padded(config)
    if config.get("model_type") == "clap":  # its positions begin after that of the padding
        positions = found if type(found) is int and found > 3 else 514
        pad = _text_config(config).get("pad_token_id")
        return positions - 1 - (pad if type(pad) is int and 0 <= pad < positions - 2 else 1)
    longest = found if type(found) is int and found > 1 else SIGLIP_LENGTH if siglip else 77
    return min(longest, SIGLIP_LENGTH) if siglip else longest


def candidate_ids(config: Mapping[str, Any], tokenizer: Any, text: str) -> list[int]:
    """The tokens of a text, without padding.

    Raises:
        InputError: they are more than the model takes, and it is not one that gets the first ones.
    """
    longest, ids = longest_candidate(config), list(tokenizer.encode(text))
    if len(ids) <= longest:
        return ids
    if is_padded(config):
        return [*ids[: longest - 1], ids[-1]]
    raise InputError(
        f"{text!r} has {len(ids)} tokens, the model takes {longest}",
        "candidate_labels",
        "Use a shorter label.",
    )


def padding(config: Mapping[str, Any], tokenizer: Any) -> int:
    """The token that fills up texts."""
    token = (getattr(tokenizer, "config", None) or {}).get("pad_token")
    name = token.get("content") if isinstance(token, Mapping) else token
    if isinstance(name, str):
        found = tokenizer.token_to_id(name)
        if found is not None:
            return int(found)
    other = getattr(tokenizer, "eos_token_id", None)
    value = _text_config(config).get("pad_token_id", other)
    return value if type(value) is int else 0
