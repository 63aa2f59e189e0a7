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
_GEMMA2: Mapping[str, str] = {
    **_LLAMA,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_PHI3: Mapping[str, str] = {
    "input_layernorm": "attn_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GLM4: Mapping[str, str] = {
    **{k: v for k, v in _LLAMA.items() if k not in ("mlp.gate_proj", "mlp.up_proj")},
    "mlp.gate_up_proj": "ffn_up",
    "post_self_attn_layernorm": "post_attention_norm",
    "post_mlp_layernorm": "post_ffw_norm",
}
_COHERE: Mapping[str, str] = {k: v for k, v in _LLAMA.items() if not k.startswith("post")}
_EXPERTS: Mapping[str, str] = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.*.gate_proj": "ffn_gate_exps",
    "mlp.experts.*.up_proj": "ffn_up_exps",
    "mlp.experts.*.down_proj": "ffn_down_exps",
}
_MIXTRAL: Mapping[str, str] = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.*.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.*.w3": "ffn_up_exps",
    "block_sparse_moe.experts.*.w2": "ffn_down_exps",
}
_NO_MLP: Mapping[str, str] = {k: v for k, v in _LLAMA.items() if not k.startswith("mlp.")}
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


_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
# Modules that are several matrices, one below the other, in exports or in transformers.
JOINED: Mapping[str, Sequence[str]] = {
    "self_attn.qkv_proj": _QKV,
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
MAX_LAYERS = 1 << 10
MAX_EXPERTS = 1 << 10
MAX_SIZE = 1 << 24  # of rows and columns
_EXPERT = re.compile(r"(?<=\.experts)\.\d+\.")


@dataclass(frozen=True)
class Architecture:
    """A family of models with one layout of parameters.

    Attributes:
        gguf: its name in llama.cpp.
        modules: {module of a layer in transformers: tensor in llama.cpp}. A star stands for the
            numbers of experts, whose matrices are one tensor.
        interleaved: whether llama.cpp rotates neighbouring pairs where transformers rotates halves,
            so that rows of queries and keys change places.
        factors: {field of config.json: key of GGUF} of numbers that scale activations.
        needed: the factors without which llama.cpp computes with numbers of its own.
        biased: modules that always have a bias.
        biases: {field of config.json: modules that have a bias if it is true}.
        tied: whether the output layer is the embedding where config.json does not say.
        headless: whether llama.cpp takes the embedding for the output layer in any case.
        centred: whether norms multiply with 1 + weight; llama.cpp's with the weight.
        layer_norm: whether norms are LayerNorm, not RMSNorm.
        square: whether all heads together are as wide as the model.
        windows: 0, or n where all layers but each n-th have the window of config.json.
        rotary: partial_rotary_factor where config.json does not say; None: llama.cpp rotates all.
        fixed: {field of config.json: the value that llama.cpp has for it}.
        defaults: {field of `fixed`: transformers' value where config.json does not say}, where it
            is another one than llama.cpp's.
    """

    gguf: str
    modules: Mapping[str, str] = field(default_factory=lambda: _LLAMA)
    interleaved: bool = False
    factors: Mapping[str, str] = field(default_factory=dict)
    needed: Sequence[str] = ()
    biased: Sequence[str] = ()
    biases: Mapping[str, Sequence[str]] = field(
        default_factory=lambda: {"attention_bias": (*_QKV, "self_attn.o_proj"), "mlp_bias": _MLP}
    )
    tied: bool = False
    headless: bool = False
    centred: bool = False
    layer_norm: bool = False
    square: bool = False
    windows: int = 0
    rotary: float | None = None
    fixed: Mapping[str, Any] = field(default_factory=lambda: {"hidden_act": "silu"})
    defaults: Mapping[str, Any] = field(default_factory=dict)


_TANH = {"hidden_activation": "gelu_pytorch_tanh"}

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
    "gemma2": Architecture(
        "gemma2",
        _GEMMA2,
        factors={
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        needed=("attn_logit_softcapping", "final_logit_softcapping"),
        tied=True,
        headless=True,
        centred=True,
        windows=2,
        fixed=_TANH,
    ),
    "gemma3_text": Architecture(
        "gemma3",
        {**_GEMMA2, **_QUERY_NORMS},
        factors={"final_logit_softcapping": "final_logit_softcapping"},
        tied=True,
        centred=True,
        windows=6,
        fixed={**_TANH, "attn_logit_softcapping": None, "use_bidirectional_attention": False},
    ),
    "phi3": Architecture("phi3", _PHI3, square=True, rotary=1.0),
    "glm4": Architecture("glm4", _GLM4, biases={"attention_bias": _QKV}, rotary=0.5),
    "cohere": Architecture(
        "command-r",
        _COHERE,
        factors={"logit_scale": "logit_scale"},
        needed=("logit_scale",),
        tied=True,
        headless=True,
        layer_norm=True,
        square=True,
        fixed={"hidden_act": "silu", "use_qk_norm": False},
    ),
    "cohere2": Architecture(
        "cohere2",
        _COHERE,
        factors={"logit_scale": "logit_scale"},
        needed=("logit_scale",),
        tied=True,
        headless=True,
        layer_norm=True,
        square=True,
        windows=4,
        fixed={"hidden_act": "silu", "rotary_pct": 1.0},
    ),
    "exaone4": Architecture("exaone4", {**_OLMO2}, square=True),
    "mixtral": Architecture("llama", {**_NO_MLP, **_MIXTRAL}, interleaved=True),
    "qwen3_moe": Architecture(
        "qwen3moe",
        {**_NO_MLP, **_QUERY_NORMS, **_EXPERTS},
        fixed={
            "hidden_act": "silu",
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
        defaults={"norm_topk_prob": False},
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
    rotated: int
    experts: int
    chosen: int
    expert_inner: int


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
    architecture = architecture_of(config, where)
    heads = _count(config, "num_attention_heads", where)
    width = _count(config, "hidden_size", where)
    tied = config.get("tie_word_embeddings")
    rope = rope_of(config)
    theta = config.get("rope_theta", rope.get("rope_theta"))
    epsilon = "layer_norm_eps" if architecture.layer_norm else "rms_norm_eps"
    head_dim = _count(config, "head_dim", where, width // heads)
    inner = _count(config, "intermediate_size", where)
    part = config.get("partial_rotary_factor", rope.get("partial_rotary_factor"))
    part = positive(architecture.rotary or 1.0 if part is None else part, "rotary factor", where)
    mixed = any("*" in module for module in architecture.modules)
    number = "num_local_experts" if "num_local_experts" in config else "num_experts"
    return Dims(
        layers=_count(config, "num_hidden_layers", where, most=MAX_LAYERS),
        width=width,
        inner=inner,
        heads=heads,
        kv_heads=_count(config, "num_key_value_heads", where, heads),
        head_dim=head_dim,
        vocab=_count(config, "vocab_size", where),
        context=_count(config, "max_position_embeddings", where),
        tied=architecture.tied if tied is None else tied is True,
        epsilon=positive(config.get(epsilon, 1e-6), epsilon, where),
        theta=positive(10000.0 if theta is None else theta, "rope_theta", where),
        rotated=int(min(part, 1.0) * head_dim),
        experts=_count(config, number, where, most=MAX_EXPERTS) if mixed else 0,
        chosen=_count(config, "num_experts_per_tok", where, most=MAX_EXPERTS) if mixed else 0,
        expert_inner=_count(config, "moe_intermediate_size", where, inner),
    )


def rope_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """rope_scaling of transformers 4, or rope_parameters of transformers 5: those of layers
    without a window, where these have others.
    """
    found = config.get("rope_scaling") or config.get("rope_parameters") or {}
    found = found if isinstance(found, dict) else {}
    inner = found.get("full_attention")
    return inner if isinstance(inner, dict) else found


def local_rope_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """As `rope_of`, of layers with a window; empty where config.json does not say."""
    found = config.get("rope_parameters")
    inner = found.get("sliding_attention") if isinstance(found, dict) else None
    if isinstance(inner, dict) and inner.get("rope_theta") is not None:
        return inner
    theta = config.get("rope_local_base_freq")  # of transformers 4
    inner = inner if isinstance(inner, dict) else {}
    return inner if theta is None else {**inner, "rope_theta": theta}


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
        "self_attn.qkv_proj": (q + 2 * kv, dims.width),
        "self_attn.o_proj": (dims.width, q),
        "self_attn.q_norm": (q if whole else dims.head_dim,),
        "self_attn.k_norm": (kv if whole else dims.head_dim,),
        "mlp.gate_proj": (dims.inner, dims.width),
        "mlp.up_proj": (dims.inner, dims.width),
        "mlp.gate_up_proj": (2 * dims.inner, dims.width),
        "mlp.down_proj": (dims.width, dims.inner),
    }
    parts: dict[str, tuple[int, ...]] = {  # by the tensor in llama.cpp
        "ffn_gate_inp": (dims.experts, dims.width),
        "ffn_gate_exps": (dims.expert_inner, dims.width),
        "ffn_up_exps": (dims.expert_inner, dims.width),
        "ffn_down_exps": (dims.width, dims.expert_inner),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (dims.vocab, dims.width)}
    for i in range(dims.layers):
        for module, tensor in architecture.modules.items():
            shape = inner.get(module, parts.get(tensor, (dims.width,)))
            for n in range(dims.experts if "*" in module else 1):
                shapes[f"{LAYER}{i}.{module.replace('*', str(n))}"] = shape
    shapes["model.norm"] = (dims.width,)
    if not dims.tied:
        shapes["lm_head"] = (dims.vocab, dims.width)
    return shapes


def biases_of(architecture: Architecture, config: Mapping[str, Any]) -> set[str]:
    """The modules of a layer that have a bias, as transformers builds them."""
    found = set(architecture.biased)
    for name, modules in architecture.biases.items():
        if config.get(name) is True:
            found |= set(modules)
    return found


def gguf_name(architecture: Architecture, module: str) -> str:
    """The name of a module of transformers in llama.cpp, without ".weight" or ".bias"; experts of
    a layer have one.

    Raises:
        InputError: the architecture has no such module.
    """
    found = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", module)
    part = _EXPERT.sub(".*.", found[2]) if found is not None else ""
    if found is not None and part in architecture.modules:
        return f"blk.{found[1]}.{architecture.modules[part]}"
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
