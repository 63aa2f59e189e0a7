"""The metadata of GGUF files, as convert_hf_to_gguf.py and convert_lora_to_gguf.py write it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...errors import ModelError, UnsupportedField
from .architectures import Architecture, Dims, positive
from .files import ModelFiles
from .gguf import Type
from .vocabulary import vocabulary


def model_metadata(
    config: Mapping[str, Any],
    architecture: Architecture,
    dims: Dims,
    type_: Type,
    name: str,
    files: ModelFiles,
) -> dict[str, Any]:
    """The metadata of a model.

    Args:
        config: of config.json.
        type_: of most tensors.
        name: general.name.
        files: of the model's folder.

    Raises:
        ModelError: there is no tokenizer.json. UnsupportedField: llama.cpp lacks a part of it.
    """
    key = architecture.gguf
    made: dict[str, Any] = {
        "general.architecture": key,
        "general.type": "model",
        "general.name": name,
        "general.file_type": type_.file,
        "general.quantization_version": 2,
        f"{key}.vocab_size": dims.vocab,
        f"{key}.context_length": dims.context,
        f"{key}.embedding_length": dims.width,
        f"{key}.block_count": dims.layers,
        f"{key}.feed_forward_length": dims.inner,
        f"{key}.attention.head_count": dims.heads,
        f"{key}.attention.head_count_kv": dims.kv_heads,
        f"{key}.attention.key_length": dims.head_dim,
        f"{key}.attention.value_length": dims.head_dim,
        f"{key}.attention.layer_norm_rms_epsilon": dims.epsilon,
        f"{key}.rope.dimension_count": dims.head_dim,
        f"{key}.rope.freq_base": dims.theta,
    }
    for name_, end in architecture.factors.items():
        if config.get(name_) is not None:
            made[f"{key}.{end}"] = positive(config[name_], name_)
    _check_fixed(config, architecture, dims)
    made |= _rope(config, key)
    window = config.get("sliding_window")
    if window is not None and config.get("use_sliding_window", True):
        raise UnsupportedField(
            f"its attention sees {window} tokens",
            "config.json",
            "llama.cpp has windows for other families; write format='safetensors'.",
        )
    tokenizer = files.json("tokenizer.json")
    if not tokenizer:
        raise ModelError(
            "there is no tokenizer.json beside the model",
            "GGUF",
            "Pass the model's folder; a GGUF file contains its tokenizer.",
        )
    settings = files.json("tokenizer_config.json")
    return made | vocabulary(tokenizer, config, settings, _template(files, settings), dims.vocab)


def _check_fixed(config: Mapping[str, Any], architecture: Architecture, dims: Dims) -> None:
    """Refuses what llama.cpp computes in one way alone, and a GGUF file has no key for."""
    rope = _scaling(config)
    wanted: dict[str, tuple[Any, Any]] = {
        "hidden_act": (config.get("hidden_act", "silu"), "silu"),
        "partial_rotary_factor": (
            config.get("partial_rotary_factor", rope.get("partial_rotary_factor", 1.0)),
            1.0,
        ),
    }
    if architecture.gguf == "smollm3":
        every = config.get("no_rope_layer_interval", 4)
        rotated = [int((i + 1) % 4 != 0) for i in range(dims.layers)]
        wanted["no_rope_layers"] = (config.get("no_rope_layers") or rotated, rotated)
        if not config.get("no_rope_layers"):
            wanted["no_rope_layer_interval"] = (every, 4)
    for name, (found, needed) in wanted.items():
        if found != needed:
            raise UnsupportedField(
                f"{name} is {found!r}",
                "config.json",
                f"llama.cpp has {needed!r} for this family; write format='safetensors'.",
            )


def _template(files: ModelFiles, settings: Mapping[str, Any]) -> str | None:
    data = files.contents("chat_template.jinja")
    if data is not None:
        return data.decode("utf-8", "replace")
    template = settings.get("chat_template")
    if isinstance(template, list):  # of several names
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _scaling(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """rope_scaling of transformers 4, or rope_parameters of transformers 5."""
    found = config.get("rope_scaling") or config.get("rope_parameters") or {}
    return found if isinstance(found, dict) else {}


def _rope(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    scaling = _scaling(config)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind in ("default", "llama3"):
        return {}
    if kind in ("linear", "yarn"):
        made: dict[str, Any] = {
            f"{key}.rope.scaling.type": kind,
            f"{key}.rope.scaling.factor": positive(scaling.get("factor"), "factor"),
        }
        before = scaling.get("original_max_position_embeddings")
        if before is not None:
            length = positive(before, "original_max_position_embeddings")
            made[f"{key}.rope.scaling.original_context_length"] = int(min(length, 2**32 - 1))
        return made
    raise UnsupportedField(
        f"rope_type is {kind!r}",
        "config.json",
        "GGUF files are written for default, linear, yarn and llama3.",
    )


def rope_frequencies(config: Mapping[str, Any], dims: Dims) -> list[float] | None:
    """Divisors of the frequencies of Llama 3's scaling; None without it. As transformers'
    `_compute_llama3_parameters`.
    """
    scaling = _scaling(config)
    if scaling.get("rope_type", scaling.get("type")) != "llama3":
        return None
    factor, low, high, before = (
        positive(scaling.get(name, otherwise), name)
        for name, otherwise in (
            ("factor", 8.0),
            ("low_freq_factor", 1.0),
            ("high_freq_factor", 4.0),
            ("original_max_position_embeddings", 8192),
        )
    )
    if high <= low:
        raise ModelError(
            f"high_freq_factor is {high}, low_freq_factor {low}",
            "config.json",
            "Fetch the model's config.json.",
        )
    out = []
    for i in range(0, dims.head_dim, 2):
        length = 2 * math.pi * dims.theta ** (i / dims.head_dim)
        if length < before / high:
            out.append(1.0)
        elif length > before / low:
            out.append(factor)
        else:
            smooth = (before / length - low) / (high - low)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return out


def adapter_metadata(
    architecture: Architecture, alpha: float, type_: Type, name: str
) -> dict[str, Any]:
    """The metadata of an adapter. alpha: lora_alpha, which llama.cpp divides by the rank."""
    return {
        "general.architecture": architecture.gguf,
        "general.type": "adapter",
        "general.name": name,
        "general.file_type": type_.file,
        "adapter.type": "lora",
        "adapter.lora.alpha": float(alpha),
    }
