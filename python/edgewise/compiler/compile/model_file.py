"""The files of a model folder: which .onnx file is the model, and its configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import InputError, ModelError, wrong_type
from ...json_text import parse_json
from ...logic.manifest.limits import EMBEDDINGS, SUFFIX_OF
from ..onnx.source import MissingEmbedding, Source

MAX_TEXT = 1 << 28  # bytes of config.json, tokenizer.json and the like
TEXT_FILES = (
    "config.json",
    "generation_config.json",
    "genai_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)
# "decode" is the step of what transformers 5 exports for generation, beside "prefill".
STEMS = ("model", "decoder_model_merged", "decoder_with_past_model", "decoder_model", "decode")
SUFFIXES = (
    *("", "_q4", "_quantized", "_int8", "_uint8", "_q4f16", "_fp16", "_bnb4"),
    *("_q2", "_q2f16", "_q1", "_q1f16"),
)
PREFERRED = ("", "_quantized", "_q8", *SUFFIXES)  # where no dtype is named, of several graphs


Dtype = str | Mapping[str, str] | None  # of all files of a model, or of each by its name


def pick_model_file(names: Iterable[str], dtype: Dtype = None) -> str:
    """The .onnx file of a model folder, chosen by dtype suffix as transformers.js does.

    Args:
        names: file names, with folders.
        dtype: a name of SUFFIX_OF; None or "auto": the only one, else that of fp32, else the first
            suffix of SUFFIXES that exists. {name of STEMS: dtype}: of the first that is named;
            other names are ignored.

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
    stems: Sequence[str] = STEMS
    if isinstance(dtype, Mapping):
        stems = [stem for stem in STEMS if stem in dtype][:1] or STEMS
        dtype = dtype.get(stems[0])
    if dtype is not None and not isinstance(dtype, str):
        raise wrong_type(dtype, "dtype", 'a name, such as "q4"')
    if dtype and dtype != "auto":
        suffix = _suffix(dtype)
        found = _first(models, [f"{stem}{suffix}.onnx" for stem in stems])
        if found is None:
            raise InputError(
                f"there is no model file for dtype '{dtype}'",
                ", ".join(models),
                "Choose one of these.",
            )
        return found
    if len(models) == 1:
        return models[0]
    found = _first(models, [f"{stem}{suffix}.onnx" for stem in stems for suffix in SUFFIXES])
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
    suffixes = SUFFIXES if dtype in (None, "auto") else [_suffix(str(dtype))]
    models = sorted(n for n in names if n.endswith(".onnx"))
    return _first(models, [f"{stem}{suffix}.onnx" for suffix in suffixes])


def missing_embedding(model_file: str, dtypes: Mapping[str, str] | None = None) -> MissingEmbedding:
    """The error for a decoder, see `find_embedding_file`."""
    error = MissingEmbedding(
        "it takes `inputs_embeds`, and no graph that makes them is beside it",
        model_file,
        "Put embed_tokens.onnx of the same export into the folder.",
    )
    folder = model_file[: model_file.rfind("/") + 1]
    error.files = [folder + n for n in _embedding_names(model_file, EMBEDDINGS[:2], dtypes)]
    return error


def find_embedding_file(
    names: Iterable[str], model_file: str, dtypes: Mapping[str, str] | None = None
) -> str | None:
    """The .onnx file that embeds token ids, beside a decoder that takes embeddings: of the same
    dtype if there is one, else the first of SUFFIXES; None where there is none.

    Args:
        names: file names, with folders.
        model_file: that of the decoder.
        dtypes: {name of EMBEDDINGS: name of SUFFIX_OF or "auto"}; other names are ignored.
    """
    models = sorted(n for n in names if n.endswith(".onnx"))
    return _first(models, _embedding_names(model_file, EMBEDDINGS, dtypes))


def _embedding_names(
    model_file: str, stems: Sequence[str], dtypes: Mapping[str, str] | None
) -> list[str]:
    """File names without folders, in the order of preference."""
    decoder = model_file.rsplit("/", 1)[-1].removesuffix(".onnx")
    own = max((s for s in SUFFIXES if decoder.endswith(s)), key=len)
    if not decoder.startswith("decoder"):  # ONNX Runtime GenAI has `model` and `embedding`
        stems = sorted(stems, key=lambda stem: stem != "embedding")
    given = {n: d for n, d in (dtypes or {}).items() if n in stems and d != "auto"}
    found = [f"{n}{suffix}.onnx" for n, d in given.items() for suffix in SUFFIX_OF.get(d, ())]
    if not given:
        found = [f"{stem}{suffix}.onnx" for suffix in (own, *SUFFIXES) for stem in stems]
    return list(dict.fromkeys(found))


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
