"""The metadata of GGUF files, as convert_hf_to_gguf.py and convert_lora_to_gguf.py write it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...errors import ModelError, UnsupportedField
from .architectures import Architecture, Dims, local_rope_of, positive, rope_of
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
        f"{key}.attention.layer_norm{'' if architecture.layer_norm else '_rms'}_epsilon": (
            dims.epsilon
        ),
        f"{key}.rope.dimension_count": dims.rotated,
        f"{key}.rope.freq_base": dims.theta,
    }
    if dims.experts:
        made |= {
            f"{key}.expert_count": dims.experts,
            f"{key}.expert_used_count": dims.chosen,
            f"{key}.expert_feed_forward_length": dims.expert_inner,
        }
    for name_, end in architecture.factors.items():
        if config.get(name_) is not None:
            made[f"{key}.{end}"] = positive(config[name_], name_)
    _check_fixed(config, architecture, dims)
    made |= _rope(config, architecture, dims)
    made |= _window(config, architecture, dims)
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
    wanted: dict[str, tuple[Any, Any]] = {
        name: (config.get(name, architecture.defaults.get(name, value)), value)
        for name, value in architecture.fixed.items()
    }
    if architecture.rotary is None:
        wanted["partial_rotary_factor"] = dims.rotated / dims.head_dim, 1.0
    if architecture.square:
        wanted["num_attention_heads * head_dim"] = dims.heads * dims.head_dim, dims.width
    if architecture.headless:
        wanted["tie_word_embeddings"] = dims.tied, True
    for name in architecture.needed:
        if config.get(name) is None:
            wanted[name] = None, "a number"
    if architecture.centred:
        wide = architecture.gguf, dims.layers  # scaled by the width in the largest models alone
        own = dims.head_dim
        if wide in (("gemma2", 46), ("gemma3", 62)):
            own = dims.width // dims.heads
        wanted["query_pre_attn_scalar"] = config.get("query_pre_attn_scalar", 256), own
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


def _window(config: Mapping[str, Any], architecture: Architecture, dims: Dims) -> dict[str, Any]:
    """The keys of sliding windows.

    Raises:
        UnsupportedField: llama.cpp has windows in other layers of this family, or none.
    """
    key, window = architecture.gguf, config.get("sliding_window")
    if key == "phi3":  # its windows are off in llama.cpp
        return {f"{key}.attention.sliding_window": window or 0}
    if window is None or config.get("use_sliding_window") is False:
        if architecture.windows:
            raise UnsupportedField(
                "it has no sliding_window", "config.json", "llama.cpp needs one for this family."
            )
        return {}
    every = 4 if key == "exaone4" and dims.layers == 64 else architecture.windows
    if not every:
        raise UnsupportedField(
            f"its attention sees {window} tokens",
            "config.json",
            "llama.cpp has windows for other families; write format='safetensors'.",
        )
    kinds = [
        "sliding_attention" if (i + 1) % every else "full_attention" for i in range(dims.layers)
    ]
    pattern = config.get("sliding_window_pattern", config.get("_sliding_window_pattern"))
    given = config.get("layer_types")
    if given != kinds if given is not None else pattern not in (None, every, "LLLG"):
        raise UnsupportedField(
            "it has sliding windows in other layers than llama.cpp",
            "config.json",
            f"There each {every}th layer has none; write format='safetensors'.",
        )
    positive(window, "sliding_window")
    return {f"{key}.attention.sliding_window": int(window)}


def _rope(config: Mapping[str, Any], architecture: Architecture, dims: Dims) -> dict[str, Any]:
    key, scaling = architecture.gguf, rope_of(config)
    if architecture.layer_norm:  # Cohere's have none
        return {f"{key}.rope.scaling.type": "none"}
    made: dict[str, Any] = {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    before = scaling.get(
        "original_max_position_embeddings", config.get("original_max_position_embeddings")
    )
    if key == "gemma3":
        made |= _local_rope(config, key)
    if key == "phi3":
        before = dims.context if before is None else before
        made[f"{key}.rope.scaling.original_context_length"] = _length(before)
    if kind in ("default", "llama3"):
        return made
    if kind in ("longrope", "su") and key == "phi3":
        more = dims.context / _length(before)
        scale = math.sqrt(1 + math.log(more) / math.log(_length(before))) if more > 1 else 1.0
        return made | {
            f"{key}.rope.scaling.type": "longrope",
            f"{key}.rope.scaling.attn_factor": scale,
        }
    if kind in ("linear", "yarn"):
        made |= {
            f"{key}.rope.scaling.type": kind,
            f"{key}.rope.scaling.factor": positive(scaling.get("factor"), "factor"),
        }
        if scaling.get("original_max_position_embeddings") is not None:
            made[f"{key}.rope.scaling.original_context_length"] = _length(before)
        return made
    raise UnsupportedField(
        f"rope_type is {kind!r}",
        "config.json",
        "GGUF files are written for default, linear, yarn and llama3, and for Phi of longrope.",
    )


def _local_rope(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The base of layers with a window, which llama.cpp does not scale."""
    local = local_rope_of(config)
    kind = local.get("rope_type", local.get("type", "default"))
    if kind != "default":
        raise UnsupportedField(
            f"rope_parameters.sliding_attention.rope_type is {kind!r}",
            "config.json",
            "llama.cpp has 'default' for this family; write format='safetensors'.",
        )
    theta = local.get("rope_theta")
    return {} if theta is None else {f"{key}.rope.freq_base_swa": positive(theta, "rope_theta")}


def _length(value: object) -> int:
    """A length before scaling: its logarithm is a divisor."""
    length = positive(value, "original_max_position_embeddings")
    if length < 2:
        raise ModelError(
            f"original_max_position_embeddings is {value!r}, not a number of tokens from 2 on",
            "config.json",
            "Fetch the model's config.json.",
        )
    return int(min(length, 2**32 - 1))


def rope_factors(config: Mapping[str, Any], dims: Dims) -> dict[str, list[float]]:
    """{tensor: numbers} that divide frequencies.

    Raises:
        ModelError: there is another number of them than the model needs.
    """
    made: dict[str, list[float]] = {}
    frequencies = rope_frequencies(config, dims)
    if frequencies is not None:
        made["rope_freqs.weight"] = frequencies
    scaling = rope_of(config)
    if scaling.get("rope_type", scaling.get("type")) in ("longrope", "su"):
        for kind in ("long", "short"):
            given = scaling.get(f"{kind}_factor")
            if not isinstance(given, list) or len(given) != dims.rotated // 2:
                raise ModelError(
                    f"{kind}_factor has not {dims.rotated // 2} numbers",
                    "config.json",
                    "Fetch the model's config.json.",
                )
            made[f"rope_factors_{kind}.weight"] = [positive(x, f"{kind}_factor") for x in given]
    return made


def rope_frequencies(config: Mapping[str, Any], dims: Dims) -> list[float] | None:
    """Divisors of the frequencies of Llama 3's scaling; None without it. As transformers'
    `_compute_llama3_parameters`.
    """
    scaling = rope_of(config)
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
