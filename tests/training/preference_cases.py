"""Preferences, and adapters of tests/training/llama.py, for which TRL's losses and gradients are
known (make_preferences.py).
"""

from __future__ import annotations

import json
import zlib

import numpy as np

LORA = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"]}
SETTINGS: dict[str, dict[str, float]] = {
    "dpo": {"beta": 0.3},
    "kto": {"beta": 0.2, "desirable_weight": 1.5, "undesirable_weight": 0.75},
    "orpo": {"beta": 0.4},
    "simpo": {"beta": 2.0, "simpo_gamma": 0.5},
}
NAMES = (
    "model.layers.0.self_attn.q_proj.lora_A.weight",
    "model.layers.0.self_attn.v_proj.lora_B.weight",
    "model.layers.1.mlp.down_proj.lora_A.weight",
    "model.layers.1.mlp.down_proj.lora_B.weight",
)


def wave(name: str, shape) -> np.ndarray:
    """Small numbers that follow from a name."""
    seed = zlib.crc32(name.encode())
    return (np.random.default_rng(seed).standard_normal(tuple(shape)) * 0.1).astype(np.float32)


def tokenizer_json() -> str:
    """A tokenizer whose tokens are the words w0 to w253, the end and padding."""
    words = {"<end>": 0, "<pad>": 1, **{f"w{i}": i + 2 for i in range(254)}}
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": [
                {
                    "id": i,
                    "content": name,
                    "special": True,
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                }
                for i, name in enumerate(("<end>", "<pad>"))
            ],
            "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
        }
    )


def _text(seed: int, count: int) -> str:
    return " ".join(f"w{i}" for i in np.random.default_rng(seed).integers(0, 254, count))


def pairs() -> list[dict]:
    """Pairs whose completions have several lengths."""
    lengths = ((3, 5, 2), (4, 2, 6), (2, 7, 7), (6, 1, 3))
    return [
        {
            "prompt": _text(10 * i, p) + " ",
            "chosen": _text(10 * i + 1, c) + " ",
            "rejected": _text(10 * i + 2, r) + " ",
        }
        for i, (p, c, r) in enumerate(lengths)
    ]


def labelled() -> list[dict]:
    """Completions with their labels."""
    return [
        {"prompt": x["prompt"], "completion": x["chosen" if good else "rejected"], "label": good}
        for x, good in zip(pairs(), (True, False, True, True))
    ]
