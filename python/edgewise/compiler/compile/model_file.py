"""The files of a model folder: which .onnx file is the model, and its configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...errors import InputError, ModelError
from ...json_text import parse_json
from ..onnx.source import Source

MAX_TEXT = 1 << 28  # bytes of config.json, tokenizer.json and the like
TEXT_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
# Of the graph that embeds token ids for decoders that take embeddings.
EMBEDDING_STEMS = ("embed_tokens", "embedding", "embeddings", "text_embeddings", "decoder_embed")
STEMS = ("model", "decoder_model_merged", "decoder_with_past_model", "decoder_model")
# Suffixes of files by transformers.js' names of their types.
SUFFIX_OF = {
    "fp32": ("",),
    "fp16": ("_fp16",),
    "q8": ("_quantized", "_q8"),
    "int8": ("_int8",),
    "uint8": ("_uint8",),
    "q4": ("_q4",),
    "q4f16": ("_q4f16",),
    "q2": ("_q2",),
    "q2f16": ("_q2f16",),
    "bnb4": ("_bnb4",),
}
SUFFIXES = ("", "_q4", "_quantized", "_int8", "_uint8", "_q4f16", "_fp16", "_bnb4")
PREFERRED = ("", "_quantized", "_q8", *SUFFIXES)  # where no dtype is named, of several graphs


def pick_model_file(names: Iterable[str], dtype: str | None = None) -> str:
    """The .onnx file of a model folder, chosen by dtype suffix as transformers.js does.

    Args:
        names: file names, with folders.
        dtype: "fp32", "fp16", "int8", "uint8", "q8", "q4", "q4f16" or "bnb4"; None: the only one,
            else that of fp32, else the first suffix of SUFFIXES that exists.

    Raises:
        InputError: there is no such file, or several.
    """
    names = list(names)
    models = sorted(n for n in names if n.endswith(".onnx"))
    if not models:
        raise InputError(
            "there is no .onnx file",
            ", ".join(sorted(names)[:10]) or "empty folder",
            "Give the exported model's folder.",
        )
    if dtype:
        suffix = _suffix(dtype)
        found = _first(models, [f"{stem}{suffix}.onnx" for stem in STEMS])
        if found is None:
            raise InputError(
                f"there is no model file for dtype '{dtype}'",
                ", ".join(models),
                "Choose one of these.",
            )
        return found
    if len(models) == 1:
        return models[0]
    found = _first(models, [f"{stem}{suffix}.onnx" for stem in STEMS for suffix in SUFFIXES])
    if found is None:
        raise InputError(
            "it is not clear which .onnx file is the model",
            ", ".join(models),
            "Name the file, or pass dtype.",
        )
    return found


def find_model_file(names: Iterable[str], stem: str, dtype: str | None = None) -> str | None:
    """One of several .onnx files of a model, such as encoder_model.onnx; None where there is none.

    Args:
        names: file names, with folders.
        stem: name of the file without suffix and ending.
        dtype: as of pick_model_file; None: the first suffix of SUFFIXES that exists.
    """
    suffixes = SUFFIXES if dtype is None else [_suffix(dtype)]
    models = sorted(n for n in names if n.endswith(".onnx"))
    return _first(models, [f"{stem}{suffix}.onnx" for suffix in suffixes])


def find_embedding_file(names: Iterable[str], model_file: str) -> str | None:
    """The .onnx file that embeds token ids, beside a decoder that takes embeddings: of the same
    dtype if there is one, else the first of SUFFIXES; None where there is none.

    Args:
        names: file names, with folders.
        model_file: that of the decoder.
    """
    names = list(names)
    stem = model_file.rsplit("/", 1)[-1].removesuffix(".onnx")
    own = max((s for s in SUFFIXES if stem.endswith(s)), key=len)
    for suffix in (own, *SUFFIXES):
        found = _first(
            sorted(n for n in names if n.endswith(".onnx")),
            [f"{stem}{suffix}.onnx" for stem in EMBEDDING_STEMS],
        )
        if found is not None:
            return found
    return None


def _suffix(dtype: str) -> str:
    return {"fp32": "", "q8": "_quantized"}.get(dtype, f"_{dtype}")


def _first(paths: Iterable[str], wanted: Iterable[str]) -> str | None:
    """The path of the first wanted file name that exists."""
    for name in wanted:
        for path in paths:
            if path.rsplit("/", 1)[-1] == name:
                return path
    return None


def read_config(files: Mapping[str, Source]) -> dict[str, Any]:
    """The contents of a folder's config.json, and those of ONNX Runtime GenAI's genai_config.json
    as "genai"; empty where there are none.
    """
    config: dict[str, Any] = {}
    for name in ("config.json", "genai_config.json"):
        path = next((p for p in files if p.rsplit("/", 1)[-1] == name), None)
        if path is not None and files[path].size <= MAX_TEXT:
            found = parse_json(files[path].read_all(MAX_TEXT), name)
            if isinstance(found, dict):
                config |= found if name == "config.json" else {"genai": found}
    return config


def read_texts(files: Mapping[str, Source]) -> dict[str, bytes]:
    """{file name: bytes} of the configuration and tokenizer files of a model folder."""
    texts = {}
    for name in TEXT_FILES:
        path = next((p for p in files if p.rsplit("/", 1)[-1] == name), None)
        if path is None:
            continue
        if files[path].size > MAX_TEXT:
            raise ModelError(
                f"it has {files[path].size} bytes",
                path,
                "That is not a configuration or tokenizer; fetch it again.",
            )
        texts[name] = files[path].read_all(MAX_TEXT)
    return texts
