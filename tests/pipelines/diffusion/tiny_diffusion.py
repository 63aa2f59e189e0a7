"""A tiny random model of latent diffusion in the folders of optimum, run by ONNX Runtime."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

SIZE, SIDE, SCALE = 8, 8, 0.18215  # of vectors of tokens; latents along a side; of latents
OTHER = 6  # size of vectors of the second text encoder of Stable Diffusion XL
MERGES = ["t h", "th e</w>", "c a", "ca t</w>", "d o", "do g</w>", "r e", "re d</w>", "a s"]
F32, F16, I64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


def save(path: Path, nodes, inputs, outputs, weights, dtype=F32) -> None:
    """Writes a graph; float weights get the type `dtype`."""
    kind = np.float16 if dtype == F16 else np.float32
    constants = [
        numpy_helper.from_array(w if w.dtype == np.int64 else w.astype(kind), name)
        for name, w in weights.items()
    ]
    values = [[helper.make_tensor_value_info(*v) for v in group] for group in (inputs, outputs)]
    graph = helper.make_graph(nodes, path.parent.name, *values, constants)
    path.parent.mkdir(parents=True, exist_ok=True)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def make_unet(
    path: Path, dtype=F32, timestep=(F32, []), batch="batch", cond=0, channels=4, pooled=0
) -> None:
    """Writes the graph of a UNet.

    Args:
        path: of the file.
        dtype: of its numbers.
        timestep: (type, shape) of this input.
        batch: the first dimension.
        cond: size of timestep_cond; 0: there is none.
        channels: of `sample`: 9 for inpainting.
        pooled: size of text_embeds, of Stable Diffusion XL; 0: there are none.
    """
    rng = np.random.default_rng(1)
    node = helper.make_node
    nodes = [
        node("Conv", ["sample", "kernel"], ["conv"], pads=[1, 1, 1, 1]),
        node("ReduceMean", ["encoder_hidden_states"], ["mean"], axes=[1], keepdims=0),
        node("MatMul", ["mean", "project"], ["words"]),
        node("Cast", ["timestep"], ["time"], to=dtype),
        node("Mul", ["time", "rate"], ["angle"]),
        node("Cos", ["angle"], ["wave"]),
        node("Add", ["words", "wave"], ["bias"]),
        node("Unsqueeze", ["bias", "last"], ["planes"]),
        node("Add", ["conv", "planes"], ["sum"]),
        node("Tanh", ["sum"], ["out_sample"]),
    ]
    inputs = [
        ("sample", dtype, [batch, channels, "height", "width"]),
        ("timestep", *timestep),
        ("encoder_hidden_states", dtype, [batch, "sequence", SIZE + pooled]),
    ]
    if cond:
        nodes[6:7] = [
            node("ReduceMean", ["timestep_cond"], ["guide"], axes=[1], keepdims=1),
            node("Add", ["words", "guide"], ["led"]),
            node("Add", ["led", "wave"], ["bias"]),
        ]
        inputs.append(("timestep_cond", dtype, [batch, cond]))
    weights = {
        "kernel": rng.normal(size=[4, channels, 3, 3]) * 0.3,
        "project": rng.normal(size=[SIZE + pooled, 4]),
        "rate": np.array(0.003),
        "last": np.array([2, 3]),
    }
    if pooled:
        nodes[6:7] = [
            node("Concat", ["text_embeds", "small"], ["added"], axis=1),
            node("MatMul", ["added", "adds"], ["guide"]),
            node("Add", ["words", "guide"], ["led"]),
            node("Add", ["led", "wave"], ["bias"]),
        ]
        nodes.insert(6, node("Mul", ["time_ids", "hundredth"], ["small"]))
        inputs += [("text_embeds", dtype, [batch, pooled]), ("time_ids", dtype, [batch, 6])]
        weights |= {"adds": rng.normal(size=[pooled + 6, 4]), "hundredth": np.array(0.01)}
    save(
        path, nodes, inputs, [("out_sample", dtype, [batch, 4, "height", "width"])], weights, dtype
    )


# long: the graphs and files of a model
def make(folder: Path) -> Path:
    """Writes the model into a folder."""
    rng = np.random.default_rng(0)
    node = helper.make_node
    letters = [chr(c) for c in range(33, 127)]
    words = [*letters, *(c + "</w>" for c in letters), *("".join(m.split()) for m in MERGES)]
    vocab = {w: i for i, w in enumerate([*words, "<|startoftext|>", "<|endoftext|>"])}
    files = {
        "model_index.json": {
            "_class_name": "StableDiffusionPipeline",
            "requires_safety_checker": False,
        },
        "unet/config.json": {"sample_size": SIDE, "in_channels": 4, "out_channels": 4},
        "vae_decoder/config.json": {"block_out_channels": [4] * 4, "scaling_factor": SCALE},
        "scheduler/scheduler_config.json": {
            "_class_name": "PNDMScheduler",
            "beta_start": 0.00085,
            "beta_end": 0.012,
            "beta_schedule": "scaled_linear",
            "skip_prk_steps": True,
            "steps_offset": 1,
            "lambda_min_clipped": float("-inf"),
        },
        "tokenizer/vocab.json": vocab,
        "tokenizer/tokenizer_config.json": {
            "model_max_length": 77,
            "pad_token": "<|endoftext|>",
            "tokenizer_class": "CLIPTokenizer",
        },
    }
    for name, value in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(value))
    (folder / "tokenizer/merges.txt").write_text("\n".join(["#version: 0.2", *MERGES]) + "\n")
    save(
        folder / "text_encoder/model.onnx",
        [node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
        [("input_ids", I64, ["batch", "sequence"])],
        [("last_hidden_state", F32, ["batch", "sequence", SIZE])],
        {"table": rng.normal(size=[len(vocab), SIZE]) * 3},
    )
    make_unet(folder / "unet/model.onnx")
    save(
        folder / "vae_decoder/model.onnx",
        [node("ConvTranspose", ["latent_sample", "kernel"], ["sample"], strides=[8, 8])],
        [("latent_sample", F32, ["batch", 4, "height", "width"])],
        [("sample", F32, ["batch", 3, "pixel_height", "pixel_width"])],
        {"kernel": rng.normal(size=[4, 3, 8, 8]) * 0.1},
    )
    save(
        folder / "vae_encoder/model.onnx",
        [node("Conv", ["sample", "kernel"], ["latent_parameters"], strides=[8, 8])],
        [("sample", F32, ["batch", 3, "height", "width"])],
        [("latent_parameters", F32, ["batch", 8, "latent_height", "latent_width"])],
        {"kernel": rng.normal(size=[8, 3, 8, 8]) * 0.1},
    )
    return folder


def make_encoder(path: Path, seed: int, size: int, pooled: bool) -> None:
    """Writes a text encoder with the outputs of optimum for Stable Diffusion XL."""
    rng = np.random.default_rng(seed)
    node = helper.make_node
    states = ["hidden_states.0", "hidden_states.1", "hidden_states.2", "last_hidden_state"]
    whole = "text_embeds" if pooled else "pooler_output"
    nodes = [
        node("Gather", ["table", "input_ids"], [states[0]]),
        node("MatMul", [states[0], "layer"], [states[1]]),
        node("Tanh", [states[1]], [states[2]]),
        node("Neg", [states[2]], [states[3]]),
        node("ReduceMean", [states[3]], [whole], axes=[1], keepdims=0),
    ]
    outputs = [(name, F32, ["batch", "sequence", size]) for name in states]
    save(
        path,
        nodes,
        [("input_ids", I64, ["batch", "sequence"])],
        [(whole, F32, ["batch", size]), outputs[3], *outputs[:3]],
        {"table": rng.normal(size=[200, size]), "layer": rng.normal(size=[size, size])},
    )


def make_xl(folder: Path) -> Path:
    """Writes a model of Stable Diffusion XL."""
    make(folder)
    edits = {
        "model_index.json": {"_class_name": "StableDiffusionXLPipeline"},
        "scheduler/scheduler_config.json": {
            "_class_name": "EulerDiscreteScheduler",
            "timestep_spacing": "leading",
        },
    }
    for name, fields in edits.items():
        text = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**text, **fields}))
    shutil.copytree(folder / "tokenizer", folder / "tokenizer_2", dirs_exist_ok=True)
    config = folder / "tokenizer_2/tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "pad_token": "!"}))
    make_encoder(folder / "text_encoder/model.onnx", 5, SIZE, False)
    make_encoder(folder / "text_encoder_2/model.onnx", 6, OTHER, True)
    make_unet(folder / "unet/model.onnx", pooled=OTHER)
    return folder


def make_inpainter(folder: Path) -> Path:
    """Writes a model that inpaints: its UNet takes 9 channels."""
    make(folder)
    for name, fields in {
        "model_index.json": {"_class_name": "StableDiffusionInpaintPipeline"},
        "unet/config.json": {"in_channels": 9},
    }.items():
        text = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**text, **fields}))
    make_unet(folder / "unet/model.onnx", channels=9)
    return folder


def make_safety(folder: Path, most: float) -> None:
    """Adds a safety checker that refuses pictures brighter than `most`, from -1 to 1."""
    node = helper.make_node
    save(
        folder / "safety_checker/model.onnx",
        [
            node("ReduceMean", ["clip_input"], ["mean"], axes=[1, 2, 3], keepdims=0),
            node("Greater", ["mean", "most"], ["has_nsfw_concepts"]),
            node("Identity", ["images"], ["out_images"]),
        ],
        [
            ("clip_input", F32, ["batch", 3, 16, 16]),
            ("images", F32, ["batch", "height", "width", 3]),
        ],
        [
            ("out_images", F32, ["batch", "height", "width", 3]),
            ("has_nsfw_concepts", TensorProto.BOOL, ["batch"]),
        ],
        {"most": np.array(most)},
    )
    (folder / "feature_extractor").mkdir(exist_ok=True)
    (folder / "feature_extractor/preprocessor_config.json").write_text(
        json.dumps(
            {
                "image_processor_type": "CLIPImageProcessor",
                "size": {"shortest_edge": 16},
                "crop_size": {"height": 16, "width": 16},
                "image_mean": [0.5, 0.5, 0.5],
                "image_std": [0.5, 0.5, 0.5],
                "resample": 3,
            }
        )
    )


def reference_ids(folder: Path, text: str) -> np.ndarray:
    """The token ids of a prompt by transformers' CLIPTokenizer."""
    from transformers import CLIPTokenizer

    tokenizer = CLIPTokenizer.from_pretrained(folder / "tokenizer")
    return np.array([tokenizer(text, padding="max_length", truncation=True).input_ids])


def reference(
    folder: Path, prompt: str, negative: str, latents: np.ndarray, steps: int, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """(latents, pixels) of the DDIM scheduler by its formulas, with ONNX Runtime."""
    run = {
        part: onnxruntime.InferenceSession(folder / part / "model.onnx").run
        for part in ("text_encoder", "unet", "vae_decoder")
    }
    words = [
        run["text_encoder"](None, {"input_ids": reference_ids(folder, text)})[0]
        for text in (negative, prompt)
    ]
    betas = np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2
    alphas = np.cumprod(1 - betas)
    ratio = 1000 // steps
    for time in [i * ratio + 1 for i in range(steps)][::-1]:
        feeds = {
            "sample": np.concatenate([latents, latents]).astype("f"),
            "timestep": np.array(time, "f"),
            "encoder_hidden_states": np.concatenate(words),
        }
        without, with_prompt = run["unet"](None, feeds)[0]
        error = without + scale * (with_prompt - without)
        alpha = alphas[time]
        below = alphas[time - ratio] if time >= ratio else alphas[0]
        clean = (latents - (1 - alpha) ** 0.5 * error) / alpha**0.5
        latents = below**0.5 * clean + (1 - below) ** 0.5 * error
    (picture,) = run["vae_decoder"](None, {"latent_sample": (latents / SCALE).astype("f")})
    pixels = np.clip(picture[0].transpose(1, 2, 0) / 2 + 0.5, 0, 1) * 255
    return latents, pixels.round().astype(np.uint8)
