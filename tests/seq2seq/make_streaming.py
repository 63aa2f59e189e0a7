"""Makes moonshine_streaming of models/, a tiny random model, and what transformers generates with
it. The graphs have the signatures of those that optimum exports of Moonshine.

Was run with torch 2.13, transformers 5.24 and onnxscript:
    python -m tests.seq2seq.make_streaming
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import onnx
import torch
import transformers
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache

from .sounds import SOUNDS, samples

OUT = Path(__file__).parent / "models" / "moonshine_streaming"
LAYERS, HEADS, HEAD, WIDTH = 2, 2, 8, 16
OPTIONS = {"greedy": {"max_new_tokens": 20}, "beams": {"max_new_tokens": 20, "num_beams": 3}}


def model() -> transformers.PreTrainedModel:
    encoder = transformers.MoonshineStreamingEncoderConfig(
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=2,
        sliding_windows=[[16, 4], [16, 0]],
        initializer_range=0.4,
    )
    config = transformers.MoonshineStreamingConfig(
        encoder_config=encoder,
        vocab_size=60,
        hidden_size=WIDTH,
        intermediate_size=24,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=1664,
        decoder_start_token_id=1,
        initializer_range=0.6,
        attn_implementation="eager",
    )
    made = transformers.MoonshineStreamingForConditionalGeneration(config).eval()
    made.set_attn_implementation("eager")
    return made


class Encoder(torch.nn.Module):
    def __init__(self, of: transformers.PreTrainedModel) -> None:
        super().__init__()
        self.encoder = of.model.encoder

    def forward(self, input_values: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.encoder(input_values, attention_mask=attention_mask).last_hidden_state


class Decoder(torch.nn.Module):
    """The decoder without keys and values of earlier tokens."""

    def __init__(self, of: transformers.PreTrainedModel) -> None:
        super().__init__()
        self.decoder, self.head = of.model.decoder, of.proj_out

    def run(
        self,
        ids: torch.Tensor,
        hidden: torch.Tensor,
        mask: torch.Tensor,
        cache: EncoderDecoderCache,
    ) -> torch.Tensor:
        out = self.decoder(
            input_ids=ids,
            encoder_hidden_states=hidden,
            encoder_attention_mask=mask,
            cache=cache,
            use_cache=True,
        )
        return self.head(out.last_hidden_state)

    def forward(
        self, input_ids: torch.Tensor, encoder_hidden_states: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        logits = self.run(input_ids, encoder_hidden_states.clone(), mask, cache)
        out = [logits]
        for own, cross in zip(
            cache.self_attention_cache.layers, cache.cross_attention_cache.layers, strict=True
        ):
            out += [own.keys, own.values, cross.keys, cross.values]
        return tuple(out)


class Step(Decoder):
    """The decoder with them."""

    def forward(
        self, input_ids: torch.Tensor, mask: torch.Tensor, *past: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        own, cross = DynamicCache(), DynamicCache()
        for i in range(LAYERS):
            own.update(*past[4 * i : 4 * i + 2], i)
            cross.update(*past[4 * i + 2 : 4 * i + 4], i)
        cache = EncoderDecoderCache(own, cross)
        hidden = torch.zeros(1, past[2].shape[2], self.decoder.pos_emb.embedding_dim)
        out = [self.run(input_ids, hidden, mask, cache)]
        for layer in cache.self_attention_cache.layers:
            out += [layer.keys, layer.values]
        return tuple(out)


def traceable() -> None:
    """Replaces what the exporter cannot trace: masks by vmap and an empty cache, and
    `repeat_interleave`, of which it loses the rank.
    """
    of = transformers.models.moonshine_streaming.modeling_moonshine_streaming
    low = torch.finfo(torch.float32).min

    def bidirectional(
        config, inputs_embeds, attention_mask, encoder_hidden_states=None, and_mask_function=None
    ):
        seen = attention_mask[:, None, None, :] > 0
        if and_mask_function is not None:
            at = torch.arange(inputs_embeds.shape[1])
            seen = seen & and_mask_function(0, 0, at[:, None], at[None, :])
        return torch.where(seen, 0.0, low)

    def causal(config, inputs_embeds, attention_mask, cache, position_ids):
        at = torch.arange(inputs_embeds.shape[1] + cache.get_seq_length())
        return torch.where(at[None, :] <= position_ids[0][:, None], 0.0, low)[None, None]

    def repeated(x, times, dim):
        assert dim == -1
        return torch.stack([x] * times, -1).flatten(-2)

    def update(self, keys, values, *_, **__):
        if self.is_initialized:
            keys = torch.cat([self.keys, keys], -2)
            values = torch.cat([self.values, values], -2)
        self.keys, self.values, self.is_initialized = keys, values, True
        return keys, values

    of.create_bidirectional_mask, of.create_causal_mask = bidirectional, causal
    DynamicLayer.update, torch.Tensor.repeat_interleave = update, repeated
    torch.onnx.register_custom_op_symbolic("aten::asinh", lambda g, x: g.op("Asinh", x), 17)


def export(module, inputs, names, outputs, dynamic, file) -> None:
    torch.onnx.export(
        module,
        inputs,
        str(file),
        input_names=names,
        output_names=outputs,
        dynamic_axes=dynamic,
        dynamo=False,
        opset_version=17,
    )
    onnx.checker.check_model(str(file))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(7)
    of = model()
    found = {}
    extractor = transformers.Wav2Vec2FeatureExtractor(
        do_normalize=False, return_attention_mask=True
    )
    for name, options in OPTIONS.items():
        found[name] = {"options": options, "sequences": []}
        for i, count in enumerate(SOUNDS):
            inputs = extractor(
                samples(count, i), sampling_rate=16000, return_tensors="pt", padding=True,
                pad_to_multiple_of=80,
            )  # fmt: skip
            ids = of.generate(**inputs, **options)[0].tolist()
            found[name]["sequences"].append(ids)
            print(name, count, ids)
    shutil.rmtree(OUT, ignore_errors=True)
    (OUT / "onnx").mkdir(parents=True)
    of.save_pretrained("/tmp/audio_ms/hf")
    for file in ("config.json", "generation_config.json"):
        shutil.copy(f"/tmp/audio_ms/hf/{file}", OUT / file)
    traceable()
    sound, mask = torch.randn(1, 8000), torch.ones(1, 8000, dtype=torch.long)
    export(
        Encoder(of), (sound, mask), ["input_values", "attention_mask"], ["last_hidden_state"],
        {"input_values": {0: "batch_size", 1: "encoder_sequence_length"},
         "attention_mask": {0: "batch_size", 1: "encoder_sequence_length"},
         "last_hidden_state": {0: "batch_size", 1: "positions"}},
        OUT / "onnx" / "encoder_model.onnx",
    )  # fmt: skip
    kinds = [f"{i}.{where}.{what}" for i in range(LAYERS) for where in ("decoder", "encoder")
             for what in ("key", "value")]  # fmt: skip
    hidden, ids = torch.randn(1, 25, 24), torch.tensor([[1, 4, 5]])
    seen = torch.ones(1, 25, dtype=torch.long)
    length = {"decoder": "past_decoder_sequence_length", "encoder": "encoder_sequence_length"}
    axes = {"input_ids": {0: "batch_size", 1: "decoder_sequence_length"},
            "encoder_hidden_states": {0: "batch_size", 1: "encoder_sequence_length"},
            "encoder_attention_mask": {0: "batch_size", 1: "encoder_sequence_length"},
            "logits": {0: "batch_size", 1: "decoder_sequence_length"}}  # fmt: skip
    for kind in kinds:
        where = kind.split(".")[1]
        axes[f"past_key_values.{kind}"] = {0: "batch_size", 2: length[where]}
        axes[f"present.{kind}"] = {0: "batch_size", 2: f"{length[where]}_out"}
    export(
        Decoder(of), (ids, hidden, seen),
        ["input_ids", "encoder_hidden_states", "encoder_attention_mask"],
        ["logits", *(f"present.{k}" for k in kinds)], axes,
        OUT / "onnx" / "decoder_model.onnx",
    )  # fmt: skip
    past = [torch.randn(1, HEADS, 7 if "decoder" in k else 25, HEAD) for k in kinds]
    export(
        Step(of), (ids[:, :1], seen, *past),
        ["input_ids", "encoder_attention_mask", *(f"past_key_values.{k}" for k in kinds)],
        ["logits", *(f"present.{k}" for k in kinds if "decoder" in k)], axes,
        OUT / "onnx" / "decoder_with_past_model.onnx",
    )  # fmt: skip
    text = json.dumps(found, separators=(",", ":"))
    OUT.with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    main()
