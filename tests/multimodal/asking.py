"""Questions about pictures, and transformers' answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from .tiny import Tiny

SIZES = [(50, 100), (30, 20), (70, 70)]
QUESTION = {"type": "text", "text": "what is in this picture ?"}


def pictures(count: int) -> list[Any]:
    """Pictures of different sizes, with smooth parts and noise."""
    from PIL import Image

    found = []
    for i in range(count):
        rng, (height, width) = np.random.default_rng(i), SIZES[i % len(SIZES)]
        coarse = rng.integers(0, 255, (4, 4, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BILINEAR)
        noise = rng.integers(0, 60, (height, width, 3), dtype=np.uint8)
        found.append(Image.fromarray(np.asarray(image) // 2 + noise))
    return found


def with_bytes(root: Path) -> None:
    """Gives the tokenizer of a folder a decoder as sentencepiece's, which formats of answers need.
    Texts of its words are as before.
    """
    file = root / "tokenizer.json"
    made = json.loads(file.read_text())
    space = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    steps = [space, {"type": "ByteFallback"}, {"type": "Fuse"}]
    made["decoder"] = {"type": "Sequence", "decoders": steps}
    file.write_text(json.dumps(made))


def messages(count: int) -> list[dict[str, Any]]:
    """A question about so many pictures."""
    return [{"role": "user", "content": [{"type": "image"}] * count + [QUESTION]}]


def answered(tiny: Tiny, chat: list[dict[str, Any]], images: list[Any], tokens: int) -> list[int]:
    """Token ids of transformers' greedy answer, prompt included."""
    text = tiny.processor.apply_chat_template(chat, add_generation_prompt=True)
    bos = tiny.processor.tokenizer.bos_token
    given = tiny.processor(
        text=text,
        images=images or None,
        return_tensors="pt",
        add_special_tokens=not (bos and text.startswith(bos)),
    )
    made = tiny.model.generate(**given, max_new_tokens=tokens, do_sample=False)
    return [int(i) for i in made[0]]
