"""The pre-trained models of case `real`: the path of each file, and its inputs.

They are searched in the folder $EDGEWISE_REAL (default ~/.cache/edgewise-real), in the layout of
the packages that contain them. None is part of this repository; a missing file is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

FOLDER = Path(os.environ.get("EDGEWISE_REAL", Path.home() / ".cache" / "edgewise-real"))

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class RealModel:
    """One .onnx file.

    Args:
        title: name of the row.
        file: path below FOLDER.
        feeds: returns the inputs of one run.
        tolerance: largest difference of the first output from onnxruntime's, relative to its
            largest value.
        norms: compare the norm of the difference instead (quantized models, in which single values
            may round either way).
        shape_only: the graph draws random numbers, so only shapes are compared.
        prompt: returns the inputs of a run before the timed ones, if they differ.
        passed: {output of that run: input of all later runs}, for a decoder's caches.
    """

    title: str
    file: str
    feeds: Callable[[np.random.Generator], Feeds]
    tolerance: float = 1e-3
    norms: bool = False
    shape_only: bool = False
    prompt: Feeds = field(default_factory=dict)
    passed: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return FOLDER / self.file


def _normal(name: str, *shape: int) -> Callable[[np.random.Generator], Feeds]:
    """One float32 input of normally distributed numbers."""
    return lambda random: {name: random.standard_normal(shape, np.float32)}


def _minilm(random: np.random.Generator) -> Feeds:
    ids = random.integers(1000, 30000, (1, 128))
    return {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }


def _whisper_decoder(random: np.random.Generator) -> Feeds:
    """One token after 16 others, using the cache branch."""
    feeds: Feeds = {
        "input_ids": np.array([[50257]]),
        "encoder_hidden_states": random.standard_normal((1, 1500, 384), np.float32),
        "use_cache_branch": np.array([True]),
    }
    for layer in range(4):
        for part, length in (("decoder", 16), ("encoder", 1500)):
            for kind in ("key", "value"):
                cache = random.standard_normal((1, 6, length, 64), np.float32)
                feeds[f"past_key_values.{layer}.{part}.{kind}"] = cache
    return feeds


SMOLLM2 = "SmolLM2-135M-Instruct/onnx/model_q4.onnx"
LAYERS = 30


def smollm2_prompt(random: np.random.Generator, tokens: int = 128) -> Feeds:
    """A prompt of random tokens, without a cache."""
    feeds: Feeds = {
        "input_ids": random.integers(1000, 30000, (1, tokens)),
        "attention_mask": np.ones((1, tokens), np.int64),
        "position_ids": np.arange(tokens)[None],
    }
    for layer in range(LAYERS):
        for kind in ("key", "value"):
            feeds[f"past_key_values.{layer}.{kind}"] = np.zeros((1, 3, 0, 64), np.float32)
    return feeds


def _smollm2(random: np.random.Generator) -> Feeds:
    """One token after 64 others, with the cache that onnxruntime computes for these: with random
    numbers as a cache, onnxruntime's own results differ by 0.2 with and without optimization.
    """
    import onnxruntime

    past = 64
    session = onnxruntime.InferenceSession(str(FOLDER / SMOLLM2))
    names = [o.name.replace("present", "past_key_values") for o in session.get_outputs()]
    feeds = dict(zip(names[1:], session.run(None, smollm2_prompt(random, past))[1:]))
    return feeds | {
        "input_ids": np.array([[504]]),
        "attention_mask": np.ones((1, past + 1), np.int64),
        "position_ids": np.array([[past]]),
    }


def _silero(random: np.random.Generator, rate: bool = True) -> Feeds:
    feeds: Feeds = {
        "input": 0.1 * random.standard_normal((1, 576), np.float32),
        "state": np.zeros((2, 1, 128), np.float32),
    }
    return {**feeds, "sr": np.array(16000)} if rate else feeds


def _silero_v4(random: np.random.Generator) -> Feeds:
    state = np.zeros((2, 1, 64), np.float32)
    return {
        "input": 0.1 * random.standard_normal((1, 512), np.float32),
        "sr": np.array(16000),
        "h": state,
        "c": state,
    }


def _silero_sequence(random: np.random.Generator) -> Feeds:
    state = np.zeros((1, 1, 128), np.float32)
    return {"input": 0.1 * random.standard_normal((64, 576), np.float32), "h": state, "c": state}


def _piper(random: np.random.Generator) -> Feeds:
    """Scales of 0, 1 and 0 disable the random noise."""
    return {
        "input": random.integers(1, 130, (1, 109)),
        "input_lengths": np.array([109]),
        "scales": np.array([0, 1, 0], np.float32),
    }


def _kokoro(random: np.random.Generator) -> Feeds:
    tokens = np.concatenate([[0], random.integers(1, 150, 49), [0]])[None]
    return {
        "tokens": tokens,
        "style": 0.1 * random.standard_normal((1, 256), np.float32),
        "speed": np.ones(1, np.float32),
    }


def _unet(random: np.random.Generator) -> Feeds:
    return {
        "sample": random.standard_normal((1, 4, 16, 16), np.float32),
        "timestep": np.array(500, np.float32),
        "encoder_hidden_states": random.standard_normal((1, 77, 32), np.float32),
    }


MODELS = (
    RealModel(
        "wake-word head", "openwakeword/alexa_v0.1.onnx", _normal("onnx::Flatten_0", 1, 16, 96)
    ),
    RealModel("voice activity, Silero 4 (If)", "openwakeword/silero_vad.onnx", _silero_v4),
    RealModel("voice activity, Silero 6 (If)", "silero-vad/silero_vad.onnx", _silero),
    RealModel("voice activity, Silero 6, opset 15", "silero-vad/silero_vad_16k_op15.onnx", _silero),
    RealModel(
        "voice activity, Silero 6, without If", "silero-vad/silero_vad_op18_ifless.onnx", _silero
    ),
    RealModel(
        "voice activity, Silero 6, float16",
        "silero-vad/silero_vad_half.onnx",
        lambda random: _silero(random, rate=False),
        0.02,
    ),
    RealModel(
        "voice activity, Silero 6, 64 frames",
        "silero-vad/silero_vad_16k_sequence.onnx",
        _silero_sequence,
    ),
    RealModel(
        "mel spectrogram, 1 s", "openwakeword/melspectrogram.onnx", _normal("input", 1, 16000)
    ),
    RealModel(
        "speech embedding (CNN)",
        "openwakeword/embedding_model.onnx",
        _normal("input_1", 1, 76, 32, 1),
    ),
    RealModel("voice encoder (LSTM)", "resemblyzer/model.onnx", _normal("mels", 1, 160, 40)),
    RealModel(
        "EfficientNet-Lite0",
        "efficientnet-lite0/onnx/model.onnx",
        _normal("pixel_values", 1, 3, 224, 224),
    ),
    RealModel(
        "OCR detector, 320×320", "rapidocr/ch_PP-OCRv4_det_infer.onnx", _normal("x", 1, 3, 320, 320)
    ),
    RealModel(
        "OCR recognizer, 48×320", "rapidocr/ch_PP-OCRv4_rec_infer.onnx", _normal("x", 1, 3, 48, 320)
    ),
    RealModel(
        "OCR orientation, 48×192",
        "rapidocr/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        _normal("x", 1, 3, 48, 192),
    ),
    RealModel("MiniLM, 128 tokens", "all-MiniLM-L6-v2/onnx/model.onnx", _minilm),
    RealModel(
        "MiniLM, 128 tokens, int8",
        "all-MiniLM-L6-v2/onnx/model_quantized.onnx",
        _minilm,
        0.1,
        norms=True,
    ),
    RealModel(
        "Whisper tiny.en encoder, 30 s",
        "whisper-tiny.en/onnx/encoder_model.onnx",
        _normal("input_features", 1, 80, 3000),
    ),
    RealModel(
        "Whisper tiny.en merged decoder, 1 token",
        "whisper-tiny.en/onnx/decoder_model_merged.onnx",
        _whisper_decoder,
        prompt={"use_cache_branch": np.array([False])},
        passed={
            f"present.{layer}.encoder.{kind}": f"past_key_values.{layer}.encoder.{kind}"
            for layer in range(4)
            for kind in ("key", "value")
        },
    ),
    RealModel("SmolLM2-135M, 4 bits, 1 token", SMOLLM2, _smollm2, 0.05, norms=True),
    RealModel("Piper, 109 phonemes", "piper-en-joe/en_US-joe-medium.onnx", _piper),
    RealModel("Kokoro int8, 49 phonemes", "kokoro-82m/model_int8.onnx", _kokoro, shape_only=True),
    RealModel(
        "Stable Diffusion (tiny): text encoder",
        "tiny-random-sd/text_encoder/model.onnx",
        lambda random: {"input_ids": random.integers(0, 99, (1, 77))},
    ),
    RealModel("Stable Diffusion (tiny): UNet", "tiny-random-sd/unet/model.onnx", _unet),
    RealModel(
        "Stable Diffusion (tiny): VAE decoder",
        "tiny-random-sd/vae_decoder/model.onnx",
        _normal("latent_sample", 1, 4, 16, 16),
    ),
    RealModel(
        "Stable Diffusion (tiny): VAE encoder",
        "tiny-random-sd/vae_encoder/model.onnx",
        _normal("sample", 1, 3, 128, 128),
    ),
)
