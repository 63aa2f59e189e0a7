"""Exports vision-language models of transformers as the repositories of transformers.js have them:
vision_encoder.onnx, embed_tokens.onnx and decoder_model_merged.onnx.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

LAYER_AXES = {0: "batch_size", 2: "past_sequence_length"}


class Decoder(torch.nn.Module):
    """A language model of embeddings, with a cache of keys and values.

    Args:
        model, head: the layers, and what makes logits of them.
        layers: how many.
        positions: the input of positions: None, or its first dimension, 0 where it has two.
        masks: "causal": an attention mask of two dimensions; "types": with it token_type_ids, of
            which those of pictures see each other; "pairs": one of four dimensions, a bool for each
            pair of tokens; "windows": two of these, of layers that see all tokens and of those with
            a sliding window; "prefix": tokens of a run see each other.
        inner: how many inputs there are for features of inner layers of the encoder.
        masked: whether these are one, after a mask of the tokens that have them.
    """

    def __init__(
        self,
        model: Any,
        head: Any,
        layers: int,
        positions: int | None,
        masks: str = "causal",
        inner: int = 0,
        masked: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.head, self.layers, self.positions = model, head, layers, positions
        self.masks, self.inner, self.masked = masks, inner, masked

    def seen(self, embeds: Any, mask: Any, types: Any) -> Any:
        """Which tokens see which: bool [batch, 1, tokens, past + tokens]."""
        if self.masks in ("pairs", "windows"):
            return mask
        columns = torch.arange(mask.shape[1])
        past = mask.shape[1] - embeds.shape[1]
        seen = columns[None] <= columns[past:][:, None]
        if self.masks == "prefix":
            seen = seen | (columns[past:] >= past)[:, None]
        if types is not None:
            picture = types == 1
            first = picture & ~torch.nn.functional.pad(picture, (1, 0))[:, :-1]
            group = torch.where(picture, torch.cumsum(first.to(torch.int64), 1), 0)
            keys = torch.cat([torch.zeros_like(mask[:, :past]), group], 1)
            same = (group[:, :, None] == keys[:, None]) & (group > 0)[:, :, None]
            return (seen | same)[:, None] & (mask[:, None, None, :] > 0)
        return seen & (mask[:, None, None, :] > 0)

    def forward(self, *values: Any) -> tuple[Any, ...]:
        from transformers.cache_utils import DynamicCache

        embeds, mask, *rest = values
        window = rest.pop(0) if self.masks == "windows" else None
        types = rest.pop(0) if self.masks == "types" else None
        positions = rest.pop(0) if self.positions is not None else None
        cache = DynamicCache()
        for layer in range(self.layers):
            cache.update(rest[2 * layer], rest[2 * layer + 1], layer)
        extra: dict[str, Any] = {} if positions is None else {"position_ids": positions}
        if self.masked:
            # indexed assignment is exported with the sizes of the example
            self.model._deepstack_process = lambda x, mask, more: (
                x + torch.zeros_like(x).masked_scatter(mask[..., None].expand_as(x), more)
            )
            extra["visual_pos_masks"], stack = rest[-2:]
            extra["deepstack_visual_embeds"] = list(stack.unbind(0))
        elif self.inner:
            self.model._deepstack_process = lambda x, mask, more: x + more
            extra["deepstack_visual_embeds"] = rest[-self.inner :]
        # transformers' own mask is made by vmap, which cannot be exported
        seen = self.seen(embeds, mask, types)
        added: Any = torch.where(seen, 0.0, torch.finfo(torch.float32).min)
        if hasattr(self.model.config, "layer_types") and "gemma3" in self.model.config.model_type:
            kinds = ("full_attention", "sliding_attention")
            added = dict.fromkeys(kinds, added)  # windows are longer than the prompts, or given
            if window is not None:
                added[kinds[1]] = torch.where(window, 0.0, torch.finfo(torch.float32).min)
        found = self.model(
            inputs_embeds=embeds,
            attention_mask=added,
            past_key_values=cache,
            use_cache=True,
            **extra,
        )
        made = []
        for layer in found.past_key_values.layers:
            made += [layer.keys, layer.values]
        return (self.head(found[0]), *made)


def write(
    module: Any,
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
    path: Path,
    opset: int = 17,
) -> None:
    """Writes an .onnx file, in a folder that is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            path,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=opset,
            dynamo=False,
        )


def write_text(
    root: Path,
    model: Any,
    head: Any,
    embedding: Any,
    config: Any,
    positions: int | None = 0,
    masks: str = "causal",
    inner: Sequence[str] = (),
    masked: bool = False,
    file: str = "decoder_model_merged",
    output: str = "logits",
) -> None:
    """Writes embed_tokens.onnx and decoder_model_merged.onnx.

    Args:
        root: the model's folder.
        model, head: the layers of the language model, and what makes logits.
        embedding: of token ids.
        config: of the language model.
        positions, masks: as of Decoder.
        inner: names of inputs for features of inner layers of the encoder.
        masked: as of Decoder.
        file: of the decoder.
        output: the decoder's, beside its caches.
    """
    ids = torch.tensor([[1, 2, 3]])
    write(
        embedding,
        {"input_ids": ids},
        ["inputs_embeds"],
        {
            "input_ids": {0: "batch_size", 1: "sequence_length"},
            "inputs_embeds": {0: "batch_size", 1: "sequence_length"},
        },
        root / "onnx/embed_tokens.onnx",
    )
    heads = config.num_key_value_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    inputs: dict[str, Any] = {
        "inputs_embeds": torch.randn(1, 3, config.hidden_size),
        "attention_mask": torch.ones(1, 5, dtype=torch.int64),
    }
    axes: dict[str, dict[int, str]] = {
        "inputs_embeds": {0: "batch_size", 1: "sequence_length"},
        "attention_mask": {0: "batch_size", 1: "total_sequence_length"},
        output: {0: "batch_size", 1: "sequence_length"},
    }
    add_masks(inputs, axes, masks)
    if positions is not None:
        row = torch.tensor([[2, 3, 4]])
        inputs["position_ids"] = row.expand(positions, 1, 3) if positions else row
        first = 1 if positions else 0
        axes["position_ids"] = {first: "batch_size", first + 1: "sequence_length"}
    names = [output]
    for layer in range(config.num_hidden_layers):
        for kind in ("key", "value"):
            inputs[f"past_key_values.{layer}.{kind}"] = torch.randn(1, heads, 2, size)
            axes[f"past_key_values.{layer}.{kind}"] = LAYER_AXES
            names.append(f"present.{layer}.{kind}")
            axes[names[-1]] = {0: "batch_size", 2: "total_sequence_length"}
    add_inner(inputs, axes, inner, masked, config.hidden_size)
    decoder = Decoder(model, head, config.num_hidden_layers, positions, masks, len(inner), masked)
    write(decoder, inputs, names, axes, root / f"onnx/{file}.onnx")
    model.__dict__.pop("_deepstack_process", None)


def add_masks(inputs: dict[str, Any], axes: dict[str, dict[int, str]], masks: str) -> None:
    """Adds what a decoder takes beside or in place of the mask of two dimensions."""
    if masks == "types":
        inputs["token_type_ids"] = torch.tensor([[0, 1, 1]])
        axes["token_type_ids"] = {0: "batch_size", 1: "sequence_length"}
    if masks == "pairs":
        inputs["attention_mask"] = torch.ones(1, 1, 3, 5, dtype=torch.bool)
        axes["attention_mask"] = {0: "batch_size", 2: "sequence_length", 3: "total_sequence_length"}
    if masks == "windows":
        for kind in (".full_attention", ".sliding_attention"):
            inputs[f"attention_mask{kind}"] = torch.ones(1, 1, 3, 5, dtype=torch.bool)
            axes[f"attention_mask{kind}"] = {
                0: "batch_size",
                2: "sequence_length",
                3: "total_sequence_length",
            }
        del inputs["attention_mask"], axes["attention_mask"]


def add_inner(
    inputs: dict[str, Any],
    axes: dict[str, dict[int, str]],
    inner: Sequence[str],
    masked: bool,
    hidden: int,
) -> None:
    """Adds the inputs of a decoder for features of inner layers of the encoder."""
    if masked:
        inputs["visual_pos_masks"] = torch.tensor([[False, True, True]])
        inputs["deepstack_visual_embeds"] = torch.randn(len(inner), 2, hidden)
        axes["visual_pos_masks"] = {0: "batch_size", 1: "sequence_length"}
        axes["deepstack_visual_embeds"] = {1: "visual_length"}
        return
    for name in inner:
        inputs[name] = torch.randn(1, 3, hidden)
        axes[name] = {0: "batch_size", 1: "sequence_length"}


def write_json(root: Path, name: str, value: Any) -> None:
    """Writes a configuration file."""
    root.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps(value, indent=1))
