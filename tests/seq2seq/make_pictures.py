"""Makes models/: tiny random models from pictures to text, and what transformers writes with them.
Run it in an environment with torch, transformers 4.57 and optimum-onnx 0.1:

    python tests/seq2seq/make_pictures.py
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from optimum.exporters.onnx import main_export
from optimum.onnx import merge_decoders
from pictures import PICTURES, QUESTION, tokenizer, writing
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

HERE = Path(__file__).parent / "models"
TOKENS = {"decoder_start_token_id": 1, "pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 1}
DECODER = {"d_model": 16, "decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 24}
ENCODER = {"encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 24}
SIZES = {"vocab_size": 90, "max_position_embeddings": 48, "init_std": 0.6}


def vit():
    return transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        image_size=32,
        patch_size=16,
        initializer_range=0.6,
    )


def joined(encoder, decoder):
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    for name, value in TOKENS.items():
        setattr(config, name, value)
    return transformers.VisionEncoderDecoderModel(config)


def trocr():
    decoder = transformers.TrOCRConfig(**DECODER, **SIZES, cross_attention_hidden_size=16)
    return joined(vit(), decoder), transformers.ViTImageProcessor(size={"height": 32, "width": 32})


def vit_gpt2():
    """A decoder that attends to the encoder's output in each step."""
    decoder = transformers.GPT2Config(
        n_embd=16,
        n_layer=2,
        n_head=2,
        vocab_size=90,
        n_positions=48,
        add_cross_attention=True,
        initializer_range=0.6,
    )
    return joined(vit(), decoder), transformers.ViTImageProcessor(size={"height": 32, "width": 32})


def donut():
    encoder = transformers.DonutSwinConfig(
        image_size=[32, 24],
        patch_size=4,
        embed_dim=8,
        depths=[1, 1],
        num_heads=[1, 2],
        window_size=2,
    )
    decoder = transformers.MBartConfig(
        **DECODER, **ENCODER, **SIZES, is_decoder=True, add_cross_attention=True
    )
    return joined(encoder, decoder), transformers.DonutImageProcessor(
        size={"height": 32, "width": 24}
    )


def florence2():
    vision = transformers.Florence2Config().vision_config.to_dict()
    vision |= {
        "depths": [1, 1],
        "patch_size": [7, 3],
        "patch_stride": [4, 2],
        "patch_padding": [3, 1],
        "patch_prenorm": [False, True],
        "embed_dim": [8, 16],
        "num_heads": [2, 2],
        "num_groups": [2, 2],
        "window_size": 4,
        "projection_dim": 16,
        "initializer_range": 0.4,
    }
    text = transformers.BartConfig(
        **DECODER, **ENCODER, **SIZES, **TOKENS, tie_word_embeddings=True
    )
    config = transformers.Florence2Config(
        vision_config=vision, text_config=text.to_dict(), image_token_id=89, **TOKENS
    )
    processor = transformers.CLIPImageProcessor(
        size={"height": 32, "width": 32}, do_center_crop=False, resample=3
    )
    processor.image_seq_length = 17
    model = transformers.Florence2ForConditionalGeneration(config)
    text = model.model.language_model  # as in the published weights
    for part in (text.encoder, text.decoder):
        part.embed_tokens.weight = text.shared.weight
    return model, processor


class Vision(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixel_values):
        return self.model.get_image_features(pixel_values)


class Encoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.encoder = model.model.language_model.encoder

    def forward(self, attention_mask, inputs_embeds):
        return self.encoder(inputs_embeds=inputs_embeds, attention_mask=attention_mask)[0]


class Decoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.decoder, self.head = model.model.language_model.decoder, model.lm_head

    def forward(self, encoder_attention_mask, encoder_hidden_states, inputs_embeds, *past):
        cache = None
        if past:
            own = DynamicCache.from_legacy_cache(
                tuple(past[i : i + 2] for i in range(0, len(past), 4))
            )
            cross = tuple(past[i + 2 : i + 4] for i in range(0, len(past), 4))
            cache = EncoderDecoderCache(own, DynamicCache.from_legacy_cache(cross))
            cache.is_updated = dict.fromkeys(range(len(past) // 4), True)
        out = self.decoder(
            inputs_embeds=inputs_embeds,
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
            past_key_values=cache,
            use_cache=True,
        )
        found = [x for layer in out.past_key_values.to_legacy_cache() for x in layer]
        if past:  # as optimum: those of cross attention stay
            found = [x for i, x in enumerate(found) if i % 4 < 2]
        return self.head(out.last_hidden_state), *found


def export(module, inputs, outputs, axes, path: Path) -> None:
    """Writes an .onnx file with names of inputs and outputs."""
    torch.onnx.export(
        module.eval(),  # the export brings back the mode
        tuple(inputs.values()),
        path,
        input_names=list(inputs),
        output_names=outputs,
        dynamic_axes=axes,
        opset_version=17,
        dynamo=False,
    )


ROWS = {0: "batch_size", 1: "sequence_length"}
SOURCE = {0: "batch_size", 1: "encoder_sequence_length"}


def export_florence2(model, out: Path) -> None:
    """The files of onnx-community's exports."""
    model.set_attn_implementation("eager")
    pixels, batch = {"pixel_values": torch.randn(1, 3, 32, 32)}, {"pixel_values": {0: "batch_size"}}
    export(Vision(model), pixels, ["image_features"], batch, out / "vision_encoder.onnx")
    ids, free = {"input_ids": torch.ones(1, 3).long()}, {"input_ids": ROWS}
    embedding = model.get_input_embeddings()
    export(embedding, ids, ["inputs_embeds"], free, out / "embed_tokens.onnx")
    words = {"attention_mask": torch.ones(1, 7).long(), "inputs_embeds": torch.randn(1, 7, 16)}
    free = dict.fromkeys(words, SOURCE)
    export(Encoder(model), words, ["last_hidden_state"], free, out / "encoder_model.onnx")
    export_decoder(model, out)


def export_decoder(model, out: Path) -> None:
    """The decoder of Florence-2, whose branches are merged."""
    given = {
        "encoder_attention_mask": torch.ones(1, 7).long(),
        "encoder_hidden_states": torch.randn(1, 7, 16),
        "inputs_embeds": torch.randn(1, 3, 16),
    }
    parts = [f"{part}.{kind}" for part in ("decoder", "encoder") for kind in ("key", "value")]
    names = [f"{i}.{part}" for i in (0, 1) for part in parts]
    axes = dict(zip(given, (SOURCE, SOURCE, ROWS)))
    decoder, outputs = Decoder(model), ["logits", *(f"present.{n}" for n in names)]
    export(decoder, given, outputs, axes, out / "decoder_model.onnx")
    past = {f"past_key_values.{n}": torch.randn(1, 2, 7 if "encoder" in n else 4, 8) for n in names}
    given["inputs_embeds"] = torch.randn(1, 1, 16)
    for name in past:
        length = "encoder_sequence_length" if "encoder" in name else "past"
        axes[name] = {0: "batch_size", 2: length}
    outputs = [name for name in outputs if "encoder" not in name]
    export(decoder, {**given, **past}, outputs, axes, out / "decoder_with_past_model.onnx")
    merge_decoders(
        out / "decoder_model.onnx",
        out / "decoder_with_past_model.onnx",
        save_path=out / "decoder_model_merged.onnx",
        strict=False,
    )


def florence_texts(model, processor, words):
    """What transformers writes for a task; its prompt is what florence_prompt gives."""
    found = []
    prompt = [1, *words.encode("w20 w21 w22", add_special_tokens=False), 2]
    for i, size in enumerate(PICTURES):
        pixels = processor(writing(*size, i), return_tensors="pt").pixel_values
        count = model.get_image_features(pixels).shape[1]
        ids = torch.tensor([[89] * count + prompt])
        out = model.generate(
            input_ids=ids,
            pixel_values=pixels,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=20,
        )
        found.append(words.decode(out[0], skip_special_tokens=False))
    return {"prompt": "w20 w21 w22", "texts": found}


OPTIONS = {
    "default": {},
    "greedy": {"max_new_tokens": 20},
    "beams": {"max_new_tokens": 15, "num_beams": 3, "num_return_sequences": 2},
}


def texts(model, processor, words):
    """What transformers writes for each picture and each of OPTIONS."""
    found = {}
    for name, options in OPTIONS.items():
        rows = []
        for i, size in enumerate(PICTURES):
            pixels = processor(writing(*size, i), return_tensors="pt").pixel_values
            made = model.generate(pixels, **options)
            rows.append([words.decode(ids, skip_special_tokens=True) for ids in made])
        found[name] = {"options": options, "texts": rows}
    return found


def answers(model, processor, words):
    """What Donut writes after a question."""
    prompt = f"<s_docvqa><s_question>{QUESTION}</s_question><s_answer>"
    first = words(prompt, add_special_tokens=False, return_tensors="pt").input_ids
    found = []
    for i, size in enumerate(PICTURES):
        pixels = processor(writing(*size, i), return_tensors="pt").pixel_values
        made = model.generate(pixels, decoder_input_ids=first, max_new_tokens=12)
        found.append(words.decode(made[0], skip_special_tokens=False))
    return found


@torch.no_grad()
def main() -> None:
    """Writes the models that are named on the command line; without names, all."""
    torch.set_num_threads(1)
    for make in (trocr, vit_gpt2, donut, florence2):
        name = make.__name__
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        torch.manual_seed(11)
        model, processor = make()
        model.eval()
        model.generation_config = transformers.GenerationConfig(**TOKENS, max_length=14)
        words, target = tokenizer(), HERE / name
        shutil.rmtree(target, ignore_errors=True)
        (target / "onnx").mkdir(parents=True)
        with tempfile.TemporaryDirectory() as folder:
            hf, out = Path(folder) / "hf", Path(folder) / "onnx"
            out.mkdir()
            model.save_pretrained(hf)
            if make is florence2:
                export_florence2(model, out)
            else:
                main_export(str(hf), str(out), task="image-to-text-with-past", do_validation=False)
            for graph in out.glob("*.onnx"):
                if graph.stem not in ("decoder_model", "decoder_with_past_model"):
                    shutil.copy(graph, target / "onnx")
            for file in ("config.json", "generation_config.json"):
                shutil.copy(hf / file, target)
        processor.save_pretrained(target)
        words.save_pretrained(target)
        if make is florence2:
            made = florence_texts(model, processor, words)
        else:
            made = {"cases": texts(model, processor, words)}
        if make is donut:
            made["answers"] = answers(model, processor, words)
        (HERE / f"{name}.json").write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
