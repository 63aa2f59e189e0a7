"""The small language model of case `webgpu`, in the format of each contender."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from ..browser import WORK
from ..language import gguf_file
from ..models import genai_model, in_4_bits, language_model

FOLDER = WORK / "webgpu"
SHAPE: dict[str, Any] = {
    "layers": 3,
    "width": 128,
    "heads": 2,
    "kv_heads": 1,
    "head_dim": 64,
    "inner": 384,
    "vocab": 2048,
    "theta": 100000.0,
    "epsilon": 1e-5,
}
PROMPT, STEPS, CAPACITY = 16, 6, 64
IDS = [(i * 7919 + 11) % SHAPE["vocab"] for i in range(PROMPT + STEPS)]


def onnx_file() -> list[str]:
    """Writes the model and its packages; returns the names of its cache."""
    from edgewise.compiler.targets import target_named
    from edgewise.host.session.open import open_package

    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / "model.onnx"
    if not path.exists():
        onnx.save(in_4_bits(genai_model(**SHAPE, positions=CAPACITY), 4), path)
    for target in ("cpu", "webgpu"):
        with open(FOLDER / f"{target}.edge", "wb") as f:
            open_package(str(path), None, CAPACITY, target=target_named(target)).write(f)
    outputs = onnx.load(path, load_external_data=False).graph.output
    return [o.name for o in outputs if o.name != "logits"]


def gguf() -> None:
    """Writes the same model for llama.cpp, in 4 bits of its own."""
    path = FOLDER / "model.gguf"
    if not path.exists():
        part = path.with_name("part")
        gguf_file.write(language_model(**SHAPE, head=True), part, "Q4_0", CAPACITY, SHAPE, IDS)
        part.rename(path)


NAMES = {  # in page/webgpu/jax.js: in the model
    "qkv": "attn.qkv_proj.weight",
    "o": "self_attn.o_proj.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
    "norm1": "input_layernorm.weight",
    "norm2": "post_attention_layernorm.weight",
}


def float_weights() -> None:
    """Writes what the 4-bit weights of the model stand for, as float32: jax.weights, jax.json."""
    graph = onnx.load(FOLDER / "model.onnx").graph
    stored = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    named = {"embedding": "model.embed_tokens.weight", "norm": "model.norm.weight"}
    named["head"] = "lm_head.weight"
    for i in range(SHAPE["layers"]):
        named |= {f"{ours}.{i}": f"model.layers.{i}.{name}" for ours, name in NAMES.items()}
    listed, blob = [], bytearray()
    for ours, name in named.items():
        array = stored[name] if name in stored else _expanded(stored, name)
        listed.append(
            {"name": ours, "shape": list(array.shape), "at": len(blob), "count": array.size}
        )
        blob += np.ascontiguousarray(array, np.float32).tobytes()
    (FOLDER / "jax.weights").write_bytes(blob)
    about = {**SHAPE, "capacity": CAPACITY, "weights": listed}
    (FOLDER / "jax.json").write_text(json.dumps(about))


def _expanded(stored: dict[str, np.ndarray], name: str) -> np.ndarray:
    """A weight of MatMulNBits, symmetric in blocks of 32, as [rows, columns]."""
    packed, scales = stored[name + "_Q4"], stored[name + "_scales"]
    columns = packed.shape[0]
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(columns, -1, 32).astype(np.float32)
    return ((codes - 8) * scales.reshape(columns, -1, 1)).reshape(columns, -1).T
