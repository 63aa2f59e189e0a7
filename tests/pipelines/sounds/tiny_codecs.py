"""Tiny random codecs: those of transformers, and a torch module with the layers of SNAC, exported
with the names of transformers.js' files.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from pathlib import Path

import pytest

RATE = 800  # Hz; frames are long, so that tests are quick


def export(module, inputs: dict, outputs: list[str], axes: dict, path: Path) -> None:
    """Writes an .onnx file. axes: {name: {axis: name of the dimension}}."""
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), tuple(inputs.values()), path, input_names=list(inputs),
            output_names=outputs, dynamic_axes=axes, opset_version=17, dynamo=False,
        )  # fmt: skip


def _module(function, model):
    import torch

    class Exported(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *values):
            return function(*values)

    return Exported()


def _save(model, folder: Path, samples: int, books: int, channels: int = 1) -> None:
    """The two graphs of a codec of transformers."""
    import torch

    example = 0.1 * torch.randn(1, channels, samples)
    axes = {"input_values": {2: "samples"}, "audio_codes": {2: "frames"}}
    export(
        _module(lambda x: model.encode(x).audio_codes, model), {"input_values": example},
        ["audio_codes"], axes, folder / "onnx/encoder_model.onnx",
    )  # fmt: skip
    codes = torch.randint(0, 4, (1, books, 20))
    export(
        _module(lambda x: model.decode(audio_codes=x).audio_values, model), {"audio_codes": codes},
        ["audio_values"], axes, folder / "onnx/decoder_model.onnx",
    )  # fmt: skip
    model.config.save_pretrained(folder)


def make_mimi(folder: Path):
    import torch
    import transformers

    torch.manual_seed(1)
    config = transformers.MimiConfig(
        sampling_rate=RATE, frame_rate=50.0, num_filters=4, hidden_size=16,
        upsampling_ratios=[4, 2],
        codebook_size=32, codebook_dim=8, num_quantizers=4, num_semantic_quantizers=1,
        num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=8,
        intermediate_size=32, vector_quantization_hidden_dimension=8, upsample_groups=16,
        sliding_window=250,
    )  # fmt: skip
    model = transformers.MimiModel(config).eval()
    _shake(model)
    with pytest.MonkeyPatch.context() as patch:  # tracing has no vmap
        masks = transformers.masking_utils
        patch.setattr(masks, "_vmap_for_bhqkv", _by_broadcast)
        patch.setattr(masks, "TransformGetItemToIndex", contextlib.nullcontext)
        patch.setattr(masks, "find_packed_sequence_indices", lambda position_ids: None)
        _save(model, folder, 256, 4)
    return model


def _by_broadcast(function, bh_indices: bool = True):
    def found(b, h, q, k):
        mask = function(b[:, None, None, None], h[:, None, None], q[:, None], k[None, :])
        return mask.expand(b.shape[0], h.shape[0], q.shape[0], k.shape[0])

    return found


def make_dac(folder: Path):
    import torch
    import transformers

    torch.manual_seed(2)
    config = transformers.DacConfig(
        encoder_hidden_size=4, downsampling_ratios=[2, 4], decoder_hidden_size=16, n_codebooks=3,
        codebook_size=32, codebook_dim=4, sampling_rate=RATE,
    )  # fmt: skip
    model = transformers.DacModel(config).eval()
    _shake(model)
    _save(model, folder, 64, 3)
    return model


def make_encodec(folder: Path, frames: bool = False):
    """EnCodec as of 24 kHz; frames: as of 48 kHz, with two channels, frames and scales."""
    import torch
    import transformers

    torch.manual_seed(3)
    more = {"audio_channels": 2, "normalize": True, "chunk_length_s": 0.4, "overlap": 0.1}
    more |= {"norm_type": "time_group_norm", "use_causal_conv": False}
    config = transformers.EncodecConfig(
        target_bandwidths=[2.0], sampling_rate=RATE, num_filters=4, hidden_size=8,
        upsampling_ratios=[4, 2], codebook_size=32, codebook_dim=8, num_lstm_layers=1,
        num_residual_layers=1, **(more if frames else {}),
    )  # fmt: skip
    model = transformers.EncodecModel(config).eval()
    _shake(model)
    axes = {"input_values": {2: "samples"}, "audio_codes": {3: "frames"}}

    def encode(x):
        codes, scales = model._encode_frame(x, 2.0, *_mask(model, x))
        codes = codes.unsqueeze(0)
        return (codes, scales) if frames else codes

    def decode(codes, *scales):
        return model._decode_frame(codes[0], *scales)

    books = model.quantizer.get_num_quantizers_for_bandwidth(2.0)
    names = ["audio_scales"] if frames else []
    example = torch.randn(1, 2 if frames else 1, 160)
    export(
        _module(encode, model), {"input_values": example}, ["audio_codes", *names], axes,
        folder / "onnx/encoder_model.onnx",
    )  # fmt: skip
    inputs = {"audio_codes": torch.randint(0, 4, (1, 1, books, 20))}
    inputs |= {"audio_scales": torch.ones(1, 1)} if frames else {}
    export(
        _module(decode, model), inputs, ["audio_values"], axes,
        folder / "onnx/decoder_model.onnx",
    )  # fmt: skip
    config.save_pretrained(folder)
    return model


def _mask(model, x):
    """The padding mask that older versions take."""
    import inspect

    import torch

    takes = len(inspect.signature(model._encode_frame).parameters)
    return [torch.ones_like(x).bool()] if takes > 2 else []


def _shake(model) -> None:
    """Weights of other sizes than the initial ones, so that codes differ."""
    import torch

    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(2.0)
        for name, b in model.named_buffers():
            if name.endswith((".embed", "embed_sum")):
                b.copy_(0.3 * torch.randn_like(b))
        for name, p in model.named_parameters():
            if "codebook.weight" in name:
                p.copy_(torch.randn_like(p))


def snac_module(size: int = 32):
    """A module with SNAC's layers: codebooks of three strides, residual."""
    import torch
    from torch import nn

    class Book(nn.Module):
        def __init__(self, stride):
            super().__init__()
            self.stride = stride
            self.codes = nn.Parameter(torch.randn(size, 4))
            self.down, self.up = nn.Conv1d(8, 4, 1), nn.Conv1d(4, 8, 1)

        def encode(self, z):
            pooled = nn.functional.avg_pool1d(z, self.stride, self.stride) if self.stride > 1 else z
            flat = self.down(pooled).transpose(1, 2)
            distance = (flat.unsqueeze(2) - self.codes).pow(2).sum(-1)
            return distance.argmin(-1)

        def decode(self, codes):
            found = self.up(self.codes[codes].transpose(1, 2))
            return found.repeat_interleave(self.stride, dim=-1)

    class Snac(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(
                nn.Conv1d(1, 8, 7, padding=3), nn.Tanh(), nn.Conv1d(8, 8, 8, 4, padding=2)
            )
            self.books = nn.ModuleList(Book(s) for s in (4, 2, 1))
            self.outer = nn.Sequential(
                nn.Conv1d(8, 8, 7, padding=3), nn.ConvTranspose1d(8, 8, 8, 4, padding=2),
                nn.Tanh(), nn.Conv1d(8, 1, 7, padding=3), nn.Tanh(),
            )  # fmt: skip

        def encode(self, audio):
            left, codes = self.inner(audio), []
            for book in self.books:
                codes.append(book.encode(left))
                left = left - book.decode(codes[-1])
            return codes

        def decode(self, *codes):
            return self.outer(sum(b.decode(c) for b, c in zip(self.books, codes)))

    torch.manual_seed(4)
    return Snac().eval()


def make_snac(folder: Path, size: int = 32):
    """The graphs of `snac_module`. size: codes of a codebook."""
    import torch

    model = snac_module(size)
    names = [f"audio_codes.{i}" for i in range(3)]
    export(
        _module(lambda x: tuple(model.encode(x)), model), {"input_values": torch.randn(1, 1, 64)},
        names, {"input_values": {2: "samples"}, **{n: {1: f"n{n[-1]}"} for n in names}},
        folder / "onnx/encoder_model.onnx",
    )  # fmt: skip
    codes = {n: torch.randint(0, 32, (1, size)) for n, size in zip(names, (4, 8, 16))}
    export(
        _module(model.decode, model), codes, ["audio_values"],
        {n: {1: f"n{n[-1]}"} for n in names} | {"audio_values": {2: "samples"}},
        folder / "onnx/decoder_model.onnx",
    )  # fmt: skip
    config = {
        "model_type": "snac", "sampling_rate": RATE, "encoder_rates": [4], "vq_strides": [4, 2, 1],
        "codebook_size": size, "attn_window_size": None,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return model


def make_books(folder: Path, books: int, size: int):
    """A decoder of one tensor [1, books, n], with a configuration of DAC."""
    import torch
    from torch import nn

    class Books(nn.Module):
        def __init__(self):
            super().__init__()
            self.codes = nn.ModuleList(nn.Embedding(size, 4) for _ in range(books))
            self.outer = nn.ConvTranspose1d(4, 1, 8, 4, padding=2)

        def forward(self, codes):
            found = sum(of(codes[:, i]) for i, of in enumerate(self.codes))
            return self.outer(found.transpose(1, 2)).tanh()

    torch.manual_seed(5)
    export(
        Books(), {"audio_codes": torch.randint(0, size, (1, books, 9))}, ["audio_values"],
        {"audio_codes": {2: "frames"}, "audio_values": {2: "samples"}},
        folder / "onnx/decoder_model.onnx",
    )  # fmt: skip
    config = {
        "model_type": "dac", "sampling_rate": RATE, "downsampling_ratios": [4],
        "codebook_size": size, "n_codebooks": books,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
