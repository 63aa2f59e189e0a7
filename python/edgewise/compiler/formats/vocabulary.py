"""The vocabulary of tokenizer.json in GGUF's metadata.

llama.cpp has the splitting of texts in its code, chosen by `tokenizer.ggml.pre`; the names are
those of its convert_hf_to_gguf_update.py and the expressions those of src/llama-vocab.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ModelError, UnsupportedField

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT_4O = (  # gpt-oss, Phi-4-mini
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_ENDS}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_ENDS}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_WHERE = "tokenizer.json"


def vocabulary(
    tokenizer: Mapping[str, Any],
    config: Mapping[str, Any],
    tokenizer_config: Mapping[str, Any],
    template: str | None,
    size: int,
) -> dict[str, Any]:
    """The keys `tokenizer.*`.

    Args:
        tokenizer: contents of tokenizer.json.
        config: of config.json, for the ids of special tokens.
        tokenizer_config: of tokenizer_config.json.
        template: of conversations, or None.
        size: rows of the embedding; ids without a token are marked as unused.

    Raises:
        UnsupportedField: llama.cpp does not split texts as this tokenizer does.
        ModelError: the file is damaged.
    """
    model = _object(tokenizer.get("model"), "model")
    if model.get("type") != "BPE":
        raise UnsupportedField(
            f"its model is {model.get('type')!r}",
            _WHERE,
            "GGUF files are written for BPE tokenizers.",
        )
    tokens, types = _tokens(tokenizer, model, size)
    ids = {token: i for i, token in enumerate(tokens)}
    pieces = bool(model.get("byte_fallback"))
    made: dict[str, Any] = {"tokenizer.ggml.model": "llama" if pieces else "gpt2"}
    if not pieces:
        made["tokenizer.ggml.pre"] = _splitting(tokenizer, model)
    made["tokenizer.ggml.tokens"] = tokens
    merges = [_merge(m) for m in _list(model, "merges")]
    if pieces:
        made["tokenizer.ggml.scores"] = _scores(merges, ids, len(tokens))
        made["tokenizer.ggml.add_space_prefix"] = _prepends(tokenizer)
    made["tokenizer.ggml.token_type"] = types
    if not pieces:
        made["tokenizer.ggml.merges"] = merges
    made |= _special(config, tokenizer_config, ids, len(tokens))
    made["tokenizer.ggml.add_bos_token"] = _begins(tokenizer, tokenizer_config)
    if template is not None:
        made["tokenizer.chat_template"] = template
    return made


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ModelError(f"it has no {what}", _WHERE, "Fetch the model's tokenizer.json.")
    return value


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    if found is not None and not isinstance(found, list):
        raise ModelError(f"{key} is no list", _WHERE, "Fetch the model's tokenizer.json.")
    return found or []


def _merge(merge: object) -> str:
    parts = [p for p in (merge if isinstance(merge, list) else [merge]) if isinstance(p, str)]
    if len(parts) != (len(merge) if isinstance(merge, list) else 1) or len(parts) not in (1, 2):
        raise ModelError(
            f"{str(merge)[:40]!r} is no merge", _WHERE, "Fetch the model's tokenizer.json."
        )
    return " ".join(parts)


def _tokens(
    tokenizer: Mapping[str, Any], model: Mapping[str, Any], size: int
) -> tuple[list[str], list[int]]:
    """(token of each id, its type)"""
    tokens, types = [f"[PAD{i}]" for i in range(size)], [UNUSED] * size

    def put(token: object, i: object, kind: int) -> None:
        if not isinstance(token, str) or type(i) is not int or not 0 <= i < size:
            raise ModelError(
                f"token {token!r} has id {i!r}, the model has {size}",
                _WHERE,
                "Take the tokenizer.json that belongs to this model.",
            )
        tokens[i], types[i] = token, kind

    for token, i in _object(model.get("vocab"), "vocabulary").items():
        put(token, i, NORMAL)
    if model.get("byte_fallback"):
        for value in range(256):
            i = model["vocab"].get(f"<0x{value:02X}>")
            if i is not None:
                types[i] = BYTE
    for entry in _list(tokenizer, "added_tokens"):
        special = _object(entry, "list of added tokens").get("special")
        put(entry.get("content"), entry.get("id"), CONTROL if special else USER_DEFINED)
    unknown = model.get("unk_token")
    if model.get("byte_fallback") and isinstance(unknown, str) and unknown in model["vocab"]:
        types[model["vocab"][unknown]] = UNKNOWN
    return tokens, types


def _scores(merges: list[str], ids: Mapping[str, int], size: int) -> list[float]:
    """What makes llama.cpp join pieces in the order of the merges: it takes the highest first."""
    scores = [0.0] * size
    for rank, merge in reversed(list(enumerate(merges))):
        i = ids.get(merge.replace(" ", "", 1))
        if i is not None:
            scores[i] = -1.0 - rank
    return scores


def _parts(value: object, key: str) -> list[Mapping[str, Any]]:
    """The members of a Sequence, or the one that there is."""
    if not isinstance(value, dict):
        return []
    if value.get("type") == "Sequence":
        return [p for p in _list(value, key) if isinstance(p, dict)]
    return [value]


def _prepends(tokenizer: Mapping[str, Any]) -> bool:
    for part in _parts(tokenizer.get("normalizer"), "normalizers"):
        if part.get("type") == "Prepend":
            return True
    return any(
        part.get("type") == "Metaspace"
        and part.get("prepend_scheme", "always") != "never"
        and part.get("add_prefix_space", True)
        for part in _parts(tokenizer.get("pre_tokenizer"), "pretokenizers")
    )


def _splitting(tokenizer: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """The name in llama.cpp of the way in which texts are split."""
    parts = _parts(tokenizer.get("pre_tokenizer"), "pretokenizers")
    kinds = [p.get("type") for p in parts]
    if parts and kinds[-1] == "ByteLevel" and not parts[-1].get("add_prefix_space"):
        by_regex = parts[-1].get("use_regex", True)
        if kinds == ["ByteLevel"] and by_regex:
            return "gpt-2"
        if kinds == ["Digits", "ByteLevel"] and by_regex and parts[0].get("individual_digits"):
            return "smollm"
        if kinds == ["Split", "ByteLevel"] and not by_regex:
            pattern = parts[0].get("pattern")
            expression = pattern.get("Regex") if isinstance(pattern, dict) else None
            if expression == _QWEN2:
                return "qwen2"
            if expression == _GPT_4O:
                return "gpt-4o"
            if expression == _LLAMA3:
                return "llama-bpe" if model.get("ignore_merges") else "dbrx"
    raise UnsupportedField(
        "its pre_tokenizer is none that llama.cpp is known to have",
        _WHERE,
        'Write format="safetensors" and convert the folder with llama.cpp.',
    )


def _special(
    config: Mapping[str, Any],
    tokenizer_config: Mapping[str, Any],
    ids: Mapping[str, int],
    size: int,
) -> dict[str, int]:
    made: dict[str, int] = {}
    for kind, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token = tokenizer_config.get(f"{kind}_token")
        token = token.get("content") if isinstance(token, dict) else token
        i = ids.get(token) if isinstance(token, str) else None
        if i is None:
            i = config.get(f"{kind}_token_id")
            i = i[0] if isinstance(i, list) and i else i
        if type(i) is int and 0 <= i < size:
            made[f"tokenizer.ggml.{key}_token_id"] = i
    return made


def _begins(tokenizer: Mapping[str, Any], tokenizer_config: Mapping[str, Any]) -> bool:
    """Whether every text begins with a special token."""
    stated = tokenizer_config.get("add_bos_token")
    for part in _parts(tokenizer.get("post_processor"), "processors"):
        if part.get("type") == "TemplateProcessing":
            single = part.get("single")
            if isinstance(single, list) and single:
                return isinstance(single[0], dict) and "SpecialToken" in single[0]
    return stated is True
