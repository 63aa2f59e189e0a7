"""Writes tests/multimodal/qwen3_5: a tiny Qwen3.5 that sees pictures, as onnx-community publishes
it, and transformers' answers. Needs transformers 5 (made with 5.24.0, torch 2.13.0):

    python -m tests.multimodal.make_qwen3_5
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

from .any_size import QWEN_TEMPLATE, QwenVision
from .asking import messages, pictures
from .exporting import write, write_json
from .tiny import spread, tokenizer

sys.path.insert(0, str(Path(__file__).parents[1] / "generation/families"))
HERE = Path(__file__).parent / "qwen3_5"
SPECIAL = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
ASKED: list[list[int]] = [[], [0], [0, 1], [1, 0], [0, 1, 2], [1]]
SIZES = {"patch_size": 8, "min_pixels": 32 * 32, "max_pixels": 96 * 96}


class Language(torch.nn.Module):
    """The language model with its head, as community.Step calls it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.inner, self.head, self.config = model.model.language_model, model.lm_head, model.config

    def forward(self, **given: Any) -> Any:
        out = self.inner(**given)
        out.logits = self.head(out.last_hidden_state)
        return out


def made(words: Any) -> Any:
    """The model."""
    image, video, start, end = words.convert_tokens_to_ids(SPECIAL)
    config = transformers.Qwen3_5Config(
        text_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "vocab_size": len(words),
            "max_position_embeddings": 2048,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
                "mrope_section": [2, 1, 1],
                "mrope_interleaved": True,
            },
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 3,
        },
        vision_config={
            "depth": 2,
            "num_heads": 2,
            "patch_size": 8,
            "hidden_size": 32,
            "intermediate_size": 48,
            "out_hidden_size": 32,
            "num_position_embeddings": 16,
        },
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    torch.manual_seed(19)
    model = transformers.Qwen3_5ForConditionalGeneration(config).eval()
    spread(model)
    model.set_attn_implementation("eager")
    return model


def write_decoder(root: Path, model: Any, count: int = 1, rows: int = 3) -> None:
    """Writes embed_tokens.onnx and decoder_model_merged.onnx.

    Args:
        root: the model's folder.
        model: whose layers are model.language_model.
        count: tokens of the example; 1: of each run, where transformers' chunks of several are
            traced with the sizes of the example.
        rows: of positions; 0: their dimensions are two.
    """
    import community

    sizes = {0: "batch_size", 1: "sequence_length"}
    write(
        model.get_input_embeddings(),
        {"input_ids": torch.tensor([[1, 2, 3]])},
        ["inputs_embeds"],
        {"input_ids": sizes, "inputs_embeds": sizes},
        root / "onnx/embed_tokens.onnx",
        opset=20,  # the decoder's
    )
    language, auto = Language(model), torch.export.Dim.AUTO
    names = community._states(language)
    before, new = torch.randn(1, 6, 32), torch.randn(1, count, 32)
    places = torch.arange(6, 6 + count)[None]
    if rows:
        places = places.expand(rows, 1, count)
    grown = auto if count > 1 else None
    with torch.no_grad():
        cache = language(inputs_embeds=before, use_cache=True).cache
        states = [community._take(cache, name).clone() for name in names]
        program = torch.onnx.export(
            community.Step(language, names, False).eval(),
            (new, torch.ones(1, 6 + count, dtype=torch.int64), places, *states),
            dynamo=True,
            opset_version=20,
            dynamic_shapes=(
                {1: grown},
                {1: auto},
                {2 if rows else 1: grown},
                tuple({2: auto} if "key_values" in name else {} for name in names),
            ),
            input_names=["inputs_embeds", "attention_mask", "position_ids", *names],
            output_names=["logits", *(community._present(name) for name in names)],
        )
    program.save(str(root / "onnx/decoder_model_merged.onnx"))


def keep(root: Path, target: Path, answers: list[list[int]]) -> None:
    """Keeps a model's files and the answers to questions about the pictures ASKED.

    Args:
        root: the model's folder.
        target: where they are kept.
        answers: token ids.
    """
    target.mkdir(exist_ok=True)
    for path in root.rglob("*"):
        if path.suffix == ".onnx":
            (target / f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes()))
        elif path.is_file() and path.suffix in (".json", ".jinja"):
            (target / path.name).write_bytes(path.read_bytes())
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    expected = {"versions": versions, "asked": ASKED, "answers": answers}
    (target / "expected.json").write_text(json.dumps(expected) + "\n")


def answered(model: Any, words: Any, images: list[Any]) -> list[int]:
    """Token ids of a greedy answer to a question about pictures, prompt included."""
    from transformers import Qwen2VLImageProcessorPil

    text = words.apply_chat_template(messages(len(images)), tokenize=False, add_generation_prompt=1)
    given: dict[str, Any] = {}
    if images:
        given = dict(Qwen2VLImageProcessorPil(**SIZES)(images, return_tensors="pt"))
        parts = text.split(SPECIAL[0])
        for i, (_, high, wide) in enumerate(given["image_grid_thw"].tolist()):
            parts[i] += SPECIAL[0] * (high * wide // 4)
        text = "".join(parts)
    ids = words(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
    kinds = (ids == model.config.image_token_id).int()
    out = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=kinds,
        max_new_tokens=10,
        do_sample=False,
        **given,
    )
    return [int(i) for i in out[0]]


def main() -> None:
    words = tokenizer(SPECIAL, QWEN_TEMPLATE)
    model = made(words)
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
    for name, value in special.items():
        setattr(model.generation_config, name, value)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(
            QwenVision(model.model.visual),
            {
                "pixel_values": torch.randn(24, 3 * 2 * 8 * 8),
                "image_grid_thw": torch.tensor([[1, 4, 6]]),
            },
            ["image_features"],
            {"pixel_values": {0: "num_patches"}, "image_features": {0: "num_features"}},
            root / "onnx/vision_encoder.onnx",
        )
        write_decoder(root, model)
        words.save_pretrained(root)
        model.config.save_pretrained(root)
        fields = {"image_processor_type": "Qwen2VLImageProcessorFast", **SIZES}
        write_json(root, "preprocessor_config.json", fields)
        write_json(root, "generation_config.json", special)
        images = pictures(3)
        answers = [answered(model, words, [images[i] for i in of]) for of in ASKED]
        keep(root, HERE, answers)


if __name__ == "__main__":
    main()
