"""The parameters of language models under the names of transformers and of llama.cpp.

The names of llama.cpp are those of its gguf package (constants.py, tensor_mapping.py) and of
convert_hf_to_gguf.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError, ModelError, UnsupportedField

LAYER = "model.layers."
_LLAMA: Mapping[str, str] = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_QUERY_NORMS: Mapping[str, str] = {
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}
_OLMO2: Mapping[str, str] = {
    **{k: v for k, v in _LLAMA.items() if not k.endswith("layernorm")},
    **_QUERY_NORMS,
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_TOP: Mapping[str, str] = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
# What exporters write for a part of a module's name: ONNX Runtime GenAI's model builder, and the
# graphs that were fused as it does.
_ALIASES = (
    (re.compile(r"\.attn\."), ".self_attn."),
    (re.compile(r"^model\.layers\.\d+\.final_norm_layernorm"), "model.norm"),
    (re.compile(r"\.(q|k)_norm\.layernorm"), r".\1_norm"),
    (re.compile(r"^model\.embed_tokens\..*"), "model.embed_tokens"),
)


@dataclass(frozen=True)
class Architecture:
    """A family of models with one layout of parameters.

    Attributes:
        gguf: its name in llama.cpp.
        modules: {module of a layer in transformers: tensor in llama.cpp}.
        interleaved: whether llama.cpp rotates neighbouring pairs where transformers rotates halves,
            so that rows of queries and keys change places.
        factors: {field of config.json: key of GGUF} of numbers that scale activations.
        biased: modules that always have a bias.
        tied: whether the output layer is the embedding where config.json does not say.
    """

    gguf: str
    modules: Mapping[str, str] = field(default_factory=lambda: _LLAMA)
    interleaved: bool = False
    factors: Mapping[str, str] = field(default_factory=dict)
    biased: Sequence[str] = ()
    tied: bool = False


_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
MAX_LAYERS = 1 << 10
MAX_SIZE = 1 << 24  # of rows and columns

ARCHITECTURES: Mapping[str, Architecture] = {  # by model_type of config.json
    "llama": Architecture("llama", interleaved=True),
    "mistral": Architecture("llama", interleaved=True),
    "smollm3": Architecture("smollm3", interleaved=True, tied=True),
    "qwen2": Architecture("qwen2", biased=_QKV),
    "qwen3": Architecture("qwen3", {**_LLAMA, **_QUERY_NORMS}),
    "olmo2": Architecture("olmo2", _OLMO2),
    "granite": Architecture(
        "granite",
        interleaved=True,
        factors={
            "attention_multiplier": "attention.scale",
            "embedding_multiplier": "embedding_scale",
            "residual_multiplier": "residual_scale",
            "logits_scaling": "logit_scale",
        },
    ),
}


@dataclass(frozen=True)
class Dims:
    """Sizes of a model, of its config.json."""

    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    tied: bool
    epsilon: float
    theta: float


def architecture_of(config: Mapping[str, Any], where: str = "config.json") -> Architecture:
    """The Architecture of a model.

    Raises:
        UnsupportedField: it is another family.
    """
    kind = config.get("model_type")
    found = ARCHITECTURES.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise UnsupportedField(
            f"model_type is {kind!r}, whose parameters cannot be given transformers' names",
            where,
            f"This can be done for {', '.join(ARCHITECTURES)}; write an .onnx file of others.",
        )
    return found


def dims_of(config: Mapping[str, Any], where: str = "config.json") -> Dims:
    """The Dims of a model.

    Raises:
        ModelError: a field is missing, or has a value that no model has.
    """
    heads = _count(config, "num_attention_heads", where)
    width = _count(config, "hidden_size", where)
    tied = config.get("tie_word_embeddings")
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    theta = config.get("rope_theta", rope.get("rope_theta") if isinstance(rope, dict) else None)
    return Dims(
        layers=_count(config, "num_hidden_layers", where, most=MAX_LAYERS),
        width=width,
        inner=_count(config, "intermediate_size", where),
        heads=heads,
        kv_heads=_count(config, "num_key_value_heads", where, heads),
        head_dim=_count(config, "head_dim", where, width // heads),
        vocab=_count(config, "vocab_size", where),
        context=_count(config, "max_position_embeddings", where),
        tied=architecture_of(config, where).tied if tied is None else tied is True,
        epsilon=positive(config.get("rms_norm_eps", 1e-6), "rms_norm_eps", where),
        theta=positive(10000.0 if theta is None else theta, "rope_theta", where),
    )


def _count(
    config: Mapping[str, Any],
    name: str,
    where: str,
    otherwise: int | None = None,
    most: int = MAX_SIZE,
) -> int:
    value = config.get(name)
    value = otherwise if value is None else value
    if type(value) is not int or not 0 < value <= most:
        raise ModelError(
            f"{name} is {value!r}, not a number from 1 to {most}",
            where,
            "Fetch the model's config.json.",
        )
    return value


def positive(value: object, name: str, where: str = "config.json") -> float:
    """A positive finite number of a configuration.

    Raises:
        ModelError: it is none.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value) if abs(value) < 1e300 else math.inf
        if math.isfinite(number) and number > 0:
            return number
    raise ModelError(
        f"{name} is {value!r}, not a positive number", where, "Fetch the model's config.json."
    )


def hub_name(name: str) -> str:
    """A module's name in transformers, from the name that an export has for it."""
    for pattern, new in _ALIASES:
        name = pattern.sub(new, name)
    return name


def shapes_of(architecture: Architecture, dims: Dims) -> dict[str, tuple[int, ...]]:
    """{module: shape of its weight} of all modules, in the order of transformers' files."""
    q, kv = dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim
    whole = architecture.gguf == "olmo2"  # norms of all heads at once
    inner: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj": (q, dims.width),
        "self_attn.k_proj": (kv, dims.width),
        "self_attn.v_proj": (kv, dims.width),
        "self_attn.o_proj": (dims.width, q),
        "self_attn.q_norm": (q if whole else dims.head_dim,),
        "self_attn.k_norm": (kv if whole else dims.head_dim,),
        "mlp.gate_proj": (dims.inner, dims.width),
        "mlp.up_proj": (dims.inner, dims.width),
        "mlp.down_proj": (dims.width, dims.inner),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (dims.vocab, dims.width)}
    for i in range(dims.layers):
        for module in architecture.modules:
            shapes[f"{LAYER}{i}.{module}"] = inner.get(module, (dims.width,))
    shapes["model.norm"] = (dims.width,)
    if not dims.tied:
        shapes["lm_head"] = (dims.vocab, dims.width)
    return shapes


def biases_of(architecture: Architecture, config: Mapping[str, Any]) -> set[str]:
    """The modules of a layer that have a bias, as transformers builds them."""
    found = set(architecture.biased)
    if config.get("attention_bias") is True:
        found |= {*_QKV, "self_attn.o_proj"}
    if config.get("mlp_bias") is True:
        found |= set(_MLP)
    return found


def gguf_name(architecture: Architecture, module: str) -> str:
    """The name of a module of transformers in llama.cpp, without ".weight" or ".bias".

    Raises:
        InputError: the architecture has no such module.
    """
    found = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", module)
    if found is not None and found[2] in architecture.modules:
        return f"blk.{found[1]}.{architecture.modules[found[2]]}"
    if module in _TOP:
        return _TOP[module]
    raise InputError(
        f"llama.cpp has no tensor for '{module}'",
        "adapter",
        "Adapt linear layers and the embedding.",
    )


def rows_exchanged(architecture: Architecture, module: str, dims: Dims) -> int:
    """The heads over whose rows llama.cpp interleaves the halves; 0: rows stay in their order."""
    if not architecture.interleaved:
        return 0
    if module.endswith(".self_attn.q_proj"):
        return dims.heads
    return dims.kv_heads if module.endswith(".self_attn.k_proj") else 0
