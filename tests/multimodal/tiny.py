"""Tiny vision-language models with random weights, as folders and as models of transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .exporting import write, write_json, write_text

WORDS = "what is in this picture a cat dog on the mat and red blue green two of them user".split()


@dataclass
class Tiny:
    """A model.

    Attributes:
        root: its folder.
        model, processor: of transformers.
    """

    root: Path
    model: Any
    processor: Any


def tokenizer(special: Sequence[str], template: str) -> Any:
    """A tokenizer of words, with a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<unk>", "<s>", "</s>", "<pad>", *WORDS, "\n", ":", "?", ".", *map(str, range(40))]
    vocabulary = {w: i for i, w in enumerate(dict.fromkeys(words))}
    made = Tokenizer(models.WordLevel(vocabulary, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        model_input_names=["input_ids", "attention_mask"],
        additional_special_tokens=list(special),
    )
    fast.chat_template = template
    return fast


IDEFICS3_TEMPLATE = (
    "<s>{% for message in messages %}{{ message['role'] }} :"
    "{% if message['content'] is string %} {{ message['content'] }}{% else %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %} {{ line['text'] }}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}{% endif %}\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'a :' }}{% endif %}"
)


# long: a configuration
def idefics3(
    root: Path,
    family: str = "Idefics3",
    template: str = IDEFICS3_TEMPLATE,
    more: Sequence[str] = (),
) -> Tiny:
    """Idefics3, SmolVLM, Granite-Docling.

    Args:
        root: the model's folder.
        family: of the names of their classes.
        template: of chats.
        more: further special tokens.
    """
    import transformers

    def of(name: str) -> Any:
        return getattr(transformers, family + name)

    class Processor(transformers.Idefics3Processor):  # type: ignore[misc]
        """SmolVLM's, which needs torchvision for videos, writes the same for pictures."""

        image_processor_class = f"{family}ImageProcessor"

    rows = [f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)]
    special = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>", *rows]
    words = tokenizer([*special, *more], template)
    config = of("Config")(
        text_config={
            "model_type": "llama",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": len(words),
            "max_position_embeddings": 2048,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 3,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 64,
            "patch_size": 8,
        },
        scale_factor=2,
        image_token_id=words.convert_tokens_to_ids("<image>"),
        pad_token_id=3,
    )
    torch.manual_seed(5)
    model = of("ForConditionalGeneration")(config).eval()
    spread(model)
    pictures = of("ImageProcessor")(size={"longest_edge": 192}, max_image_size={"longest_edge": 64})
    processor = Processor(pictures, words, image_seq_len=16)

    class Vision(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model.model

        def forward(self, pixel_values: Any, pixel_attention_mask: Any) -> Any:
            """As get_image_features, whose `unfold` of the mask cannot be exported."""
            pixels, mask = pixel_values.flatten(0, 1), pixel_attention_mask.flatten(0, 1)
            real = (pixels == 0.0).sum(dim=(-1, -2, -3)) != pixels.shape[1:].numel()
            pixels, mask = pixels[real], mask[real]
            squares = mask.reshape(mask.shape[0], 8, 8, 8, 8).sum(dim=(2, 4)) > 0
            states = self.model.vision_model(pixels, patch_attention_mask=squares)
            return self.model.connector(states.last_hidden_state)

    def embed(pixel_values: Any, patch_attention_mask: Any) -> Any:
        """As the model's, whose loop over pictures is unrolled by an export."""
        own = model.model.vision_model.embeddings
        x = own.patch_embedding(pixel_values).flatten(2).transpose(1, 2)
        bounds = torch.arange(1 / 8, 1.0, 1 / 8)
        high, wide = patch_attention_mask[:, :, 0].sum(1), patch_attention_mask[:, 0].sum(1)
        buckets = [
            ((torch.arange(8.0) / n[:, None] * (1 - 1e-6))[..., None] >= bounds).sum(-1)
            for n in (high, wide)
        ]
        ids = buckets[0][:, :, None] * 8 + buckets[1][:, None]
        ids = torch.where(patch_attention_mask, ids, 0).flatten(1)
        return x + own.position_embedding(ids)

    embeddings = model.model.vision_model.embeddings
    embeddings.forward = embed
    write(
        Vision(),
        {
            "pixel_values": torch.randn(1, 2, 3, 64, 64),
            "pixel_attention_mask": torch.ones(1, 2, 64, 64, dtype=torch.bool),
        },
        ["image_features"],
        {
            "pixel_values": {0: "batch_size", 1: "num_images", 3: "height", 4: "width"},
            "pixel_attention_mask": {0: "batch_size", 1: "num_images", 2: "height", 3: "width"},
            "image_features": {0: "num_total_images"},
        },
        root / "onnx/vision_encoder.onnx",
    )
    del embeddings.forward
    write_text(
        root,
        model.model.text_model,
        model.lm_head,
        model.get_input_embeddings(),
        config.text_config,
    )
    return saved(root, model, processor)


LLAVA_TEMPLATE = IDEFICS3_TEMPLATE.replace("{{ '<image>' }}", "{{ '<image>\n' }}")


# long: a configuration
def llava(root: Path) -> Tiny:
    """LLaVA 1.5: one view of a picture, of an encoder with a first token that is left out."""
    from transformers import (
        CLIPImageProcessor,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )

    words = tokenizer(["<image>"], LLAVA_TEMPLATE)
    config = LlavaConfig(
        text_config={
            "model_type": "llama",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "vocab_size": len(words),
            "max_position_embeddings": 1024,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 3,
        },
        vision_config={
            "model_type": "clip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": 48,
            "patch_size": 8,
            "projection_dim": 32,
        },
        image_token_id=words.convert_tokens_to_ids("<image>"),
        image_seq_length=36,
    )
    torch.manual_seed(11)
    model = LlavaForConditionalGeneration(config).eval()
    spread(model)
    pictures = CLIPImageProcessor(size={"shortest_edge": 48}, crop_size={"height": 48, "width": 48})
    processor = LlavaProcessor(
        pictures,
        words,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )

    class Vision(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model.model

        def forward(self, pixel_values: Any) -> Any:
            found = self.model.vision_tower(pixel_values, output_hidden_states=True)
            return self.model.multi_modal_projector(found.hidden_states[-2][:, 1:])

    write(
        Vision(),
        {"pixel_values": torch.randn(1, 3, 48, 48)},
        ["image_features"],
        {"pixel_values": {0: "batch_size"}, "image_features": {0: "batch_size"}},
        root / "onnx/vision_encoder.onnx",
    )
    write_text(
        root,
        model.model.language_model,
        model.lm_head,
        model.get_input_embeddings(),
        config.text_config,
    )
    return saved(root, model, processor)


def spread(model: Any) -> None:
    """Larger weights, so that greedy tokens differ and depend on the picture."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6.0)


def saved(root: Path, model: Any, processor: Any) -> Tiny:
    processor.chat_template = processor.tokenizer.chat_template
    processor.save_pretrained(root)
    model.config.save_pretrained(root)
    fields = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
    write_json(root, "generation_config.json", fields)
    for name, value in fields.items():
        setattr(model.generation_config, name, value)
    return Tiny(root, model, processor)


MODELS: dict[str, Callable[[Path], Tiny]] = {
    "idefics3": idefics3,
    "smolvlm": lambda root: idefics3(root, "SmolVLM"),
    "llava": llava,
}
