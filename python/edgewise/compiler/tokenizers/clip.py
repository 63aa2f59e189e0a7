"""CLIP's tokenizer as a tokenizer.json: models of diffusers have only vocab.json and merges.txt.
Mirrors CLIPConverter of transformers/convert_slow_tokenizer.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import TokenizerError
from ...json_text import parse_json_object
from ...logic.text.limits import LIMITS

__all__ = ["clip_files"]

START, END = "<|startoftext|>", "<|endoftext|>"
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
COPY = "Copy the tokenizer's files again from the model they belong to."

Read = Callable[[str], "bytes | bytearray | memoryview | None"]


def clip_files(read: Read, where: str) -> Read:
    """As `read`, with a tokenizer.json that is made of vocab.json and merges.txt if there is none.

    Args:
        read: function(file name) that returns the bytes of a file of the tokenizer, or None.
        where: folder, for messages.

    Raises:
        TokenizerError: vocab.json or merges.txt is missing or broken.
    """
    if read("tokenizer.json") is not None:
        return read
    vocab, merges = read("vocab.json"), read("merges.txt")
    if vocab is None or merges is None:
        raise TokenizerError(
            "there is neither tokenizer.json nor vocab.json with merges.txt", where, COPY
        )
    config = read("tokenizer_config.json")
    made = _tokenizer_json(
        parse_json_object(
            vocab, f"{where}/vocab.json", TokenizerError, most_bytes=LIMITS.file_bytes
        ),
        _text(merges, f"{where}/merges.txt"),
        {} if config is None else parse_json_object(config, where, TokenizerError),
        where,
    ).encode()
    return lambda name: made if name == "tokenizer.json" else read(name)


def _text(data: bytes | bytearray | memoryview, where: str) -> str:
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"byte {error.start} is not UTF-8", where, COPY) from None


def _tokenizer_json(
    vocab: Mapping[str, Any], merges: str, config: Mapping[str, Any], where: str
) -> str:
    """The text of a tokenizer.json."""
    names = [_content(config.get(f, default)) for f, default in _ENDS]
    ids = [vocab.get(name) for name in names]
    if any(type(i) is not int for i in ids):
        missing = names[0] if type(ids[0]) is not int else names[1]
        raise TokenizerError(f"vocab.json has no token {missing!r}", where, COPY)
    pad = _content(config.get("pad_token", END))
    added = {i: name for name, i in zip(names, ids)}
    if type(vocab.get(pad)) is int:  # also "!", which pads in Stable Diffusion 2
        added[vocab[pad]] = pad
    lines = [line for line in merges.strip().split("\n")[1:] if line]
    tokens = [
        {
            "id": i,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i, content in sorted(added.items())
    ]
    steps = {
        **_STEPS,
        "added_tokens": tokens,
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": [names[1], ids[1]],
            "cls": [names[0], ids[0]],
            "trim_offsets": False,
            "add_prefix_space": False,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": END if END in vocab else names[1],
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "</w>",
            "fuse_unk": False,
            "vocab": dict(vocab),
            "merges": lines,
        },
    }
    return json.dumps(steps, ensure_ascii=False)


_ENDS = (("bos_token", START), ("eos_token", END))

_STEPS = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
            {"type": "Lowercase"},
        ],
    },
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Removed", "invert": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        ],
    },
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
}


def _content(token: Any) -> str:
    """The text of a token, which may be an object."""
    return str(token.get("content")) if isinstance(token, Mapping) else str(token)
