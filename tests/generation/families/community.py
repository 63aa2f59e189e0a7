"""Decoders as onnx-community publishes them: names of inputs and outputs, and a file that embeds
token ids where the models have one; by torch.onnx.export. Used by make.py, with transformers 5.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import (
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
)

EMBEDDED = ("gemma3n_text", "qwen3_5_text")  # types of models with such file
# Types of models with a convolution alone, and with one and a recurrent state.
CONVOLUTION, RECURRENT = ("lfm2", "lfm2_moe", "lfm3"), ("qwen3_5_text", "qwen3_next", "olmo_hybrid")


class Step(torch.nn.Module):
    """A run: ids or embeddings, mask, positions, perhaps `per_layer_inputs`, then states."""

    def __init__(self, model: torch.nn.Module, states: list[str], per_layer: bool) -> None:
        super().__init__()
        self.model, self.states, self.per_layer = model, states, per_layer

    def forward(self, given, mask, positions, *states):
        rest, more = list(states), {}
        if self.per_layer:
            more["per_layer_inputs"] = rest.pop(0)
        config = self.model.config.get_text_config()
        cache = DynamicCache(config=config)
        for i, layer in enumerate(cache.layers):
            if isinstance(layer, DynamicSlidingWindowLayer):  # the files keep all tokens
                cache.layers[i] = DynamicLayer()
        for name, value in zip(self.states, rest):
            _give(cache, name, value)
        more["inputs_embeds" if given.dim() == 3 else "input_ids"] = given
        out = self.model(
            attention_mask=mask, position_ids=positions, cache=cache, use_cache=True, **more
        )
        return out.logits, *(_take(cache, name) for name in self.states)


class Embedding(torch.nn.Module):
    """Token ids to embeddings, and what each layer gets besides (Gemma 3n)."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model.model

    def forward(self, ids):
        embedded = self.model.embed_tokens(ids)
        if not hasattr(self.model, "get_per_layer_inputs"):
            return (embedded,)
        return embedded, self.model.get_per_layer_inputs(ids)


def _give(cache, name, value):
    layer = cache.layers[int(name.split(".")[1])]
    if "conv" in name:
        layer.conv_states[0], layer.conv_kernel_size[0] = value.clone(), value.shape[-1]
        layer.is_conv_states_initialized[0] = layer.has_previous_state[0] = True
    elif name.endswith("key"):
        layer.lazy_initialization(value, value)
        layer.keys, layer.is_initialized = value, True
    elif name.endswith("value"):
        layer.values = value
    else:
        layer.recurrent_states[0], layer.is_recurrent_states_initialized[0] = value.clone(), True
        layer.has_previous_state[0] = True


def _take(cache, name):
    layer = cache.layers[int(name.split(".")[1])]
    if "conv" in name:
        return layer.conv_states[0]
    if "key_values" in name:
        return layer.keys if name.endswith("key") else layer.values
    return layer.recurrent_states[0]


def _states(model):
    """Names of the inputs, as transformers.js' getCacheNames has them."""
    config, names = model.config.get_text_config(), []
    shared = getattr(config, "num_kv_shared_layers", 0)
    layers = DynamicCache(config=config).layers
    for i, layer in enumerate(layers[: config.num_hidden_layers - shared]):
        if isinstance(layer, LinearAttentionCacheLayerMixin):
            names.append(f"past_conv.{i}")
            if config.model_type not in CONVOLUTION:
                kind = "recurrent" if config.model_type in RECURRENT else "ssm"
                names.append(f"past_{kind}.{i}")
        if isinstance(layer, DynamicLayer):
            names += [f"past_key_values.{i}.key", f"past_key_values.{i}.value"]
    return names


def export(model, folder, ids):
    """Writes model.onnx, or decoder_model_merged.onnx and embed_tokens.onnx.

    Args:
        ids: token ids of an example, a list of at least 8.
    """
    names, count = _states(model), 3
    if any("ssm" in n or "recurrent" in n for n in names):
        count = 1  # transformers computes several tokens by chunks of a traced number
    before, new = torch.tensor([ids[:-count]]), torch.tensor([ids[-count:]])
    with torch.no_grad():
        states = [_take(model(before, use_cache=True).cache, n).clone() for n in names]
    auto = torch.export.Dim.AUTO
    tokens = {1: auto} if count > 1 else {}
    embedded = model.config.get_text_config().model_type in EMBEDDED
    embedding = Embedding(model).eval()
    given = [x.detach() for x in embedding(new)] if embedded else [new]
    wanted = ["inputs_embeds", "per_layer_inputs"][: len(given)] if embedded else ["input_ids"]
    mask, positions = torch.ones(1, len(ids), dtype=torch.int64), torch.arange(len(ids))[None]
    grown = [{2: auto} if "key_values" in n else {} for n in names]
    with torch.no_grad():
        program = torch.onnx.export(
            Step(model, names, len(given) > 1).eval(),
            (given[0], mask, positions[:, -count:], *given[1:], *states),
            dynamo=True,
            opset_version=20,
            dynamic_shapes=(tokens, {1: auto}, tokens, (*[tokens] * (len(given) - 1), *grown)),
            input_names=[wanted[0], "attention_mask", "position_ids", *wanted[1:], *names],
            output_names=["logits", *(_present(n) for n in names)],
        )
        program.save(str(folder / ("decoder_model_merged.onnx" if embedded else "model.onnx")))
        if embedded:
            program = torch.onnx.export(
                embedding,
                (torch.tensor([ids]),),
                dynamo=True,
                opset_version=20,
                dynamic_shapes=({1: auto},),
                input_names=["input_ids"],
                output_names=wanted,
            )
            program.save(str(folder / "embed_tokens.onnx"))


def _present(name):
    return name.replace("past_key_values", "present").replace("past_", "present_")
