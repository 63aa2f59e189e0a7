"""Tiny random models that speak: VITS of transformers, and graphs with the inputs of Piper's and
Kokoro's.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LETTERS = "abcdefghijklmnopqrstuvwxyz '"


def make_vits(folder: Path, speakers: int = 1, **tokenizer) -> Path:
    """VITS without random numbers, exported as by optimum."""
    import torch
    import transformers

    torch.manual_seed(speakers)
    config = transformers.VitsConfig(
        vocab_size=len(LETTERS) + 2, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        ffn_dim=32, flow_size=8, spectrogram_bins=9, wavenet_dilation_rate=1,
        prior_encoder_num_flows=2, prior_encoder_num_wavenet_layers=1,
        posterior_encoder_num_wavenet_layers=1, depth_separable_num_layers=1,
        duration_predictor_num_flows=2, upsample_initial_channel=16, upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8], resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]],
        noise_scale=0.0, noise_scale_duration=0.0, num_speakers=speakers, sampling_rate=8000,
        speaker_embedding_size=4 if speakers > 1 else 0,
    )  # fmt: skip
    model = transformers.VitsModel(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    tokens = ["<pad>", *LETTERS, "<unk>"]
    (folder / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}))
    options = {"phonemize": False, **tokenizer}
    transformers.VitsTokenizer(folder / "vocab.json", **options).save_pretrained(folder)
    model.save_pretrained(folder)

    class Exported(torch.nn.Module):
        def forward(self, input_ids, attention_mask, speaker_id=None):
            return model(input_ids, attention_mask, speaker_id).waveform

        def __init__(self):
            super().__init__()
            self.model = model

    names = ["input_ids", "attention_mask", *(["speaker_id"] if speakers > 1 else [])]
    ids = torch.tensor([[0, 3, 0, 4, 0, 5, 0]])
    inputs = (ids, torch.ones_like(ids), *([torch.tensor([0])] if speakers > 1 else []))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Exported(), inputs, str(folder / "model.onnx"), input_names=names,
            output_names=["waveform"], opset_version=17, dynamo=False,
            dynamic_axes={"waveform": {1: "samples"}, **{n: {1: "text"} for n in names[:2]}},
        )  # fmt: skip
    return folder


def _save(path: Path, inputs, nodes, constants, output) -> None:
    graph = helper.make_graph(
        nodes,
        "voice",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*output)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def make_piper(folder: Path) -> Path:
    """A voice of three speakers, whose sound is what it was fed:
    [ids..., noise_scale, length_scale, noise_w, speaker] / 100.
    """
    inputs = [
        ("input", TensorProto.INT64, ["batch", "phonemes"]),
        ("input_lengths", TensorProto.INT64, ["batch"]),
        ("scales", TensorProto.FLOAT, [3]),
        ("sid", TensorProto.INT64, ["batch"]),
    ]
    nodes = [
        helper.make_node("Squeeze", ["input", "axis"], ["flat"]),
        helper.make_node("Cast", ["flat"], ["ids"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["sid"], ["who"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["input_lengths"], ["count"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["ids", "count", "scales", "who"], ["all"], axis=0),
        helper.make_node("Div", ["all", "hundred"], ["small"]),
        helper.make_node("Unsqueeze", ["small", "axes"], ["output"]),
    ]
    constants = {"axis": np.array([0]), "axes": np.array([0, 1, 2]), "hundred": np.array(100, "f")}
    output = ("output", TensorProto.FLOAT, ["batch", 1, 1, "samples"])
    _save(folder / "en_tiny.onnx", inputs, nodes, constants, output)
    marks = "_^$ .?!ab" + "c\u0327"[1:]
    config = {
        "audio": {"sample_rate": 16000},
        "inference": {"noise_scale": 0.5, "length_scale": 1.5, "noise_w": 0.25},
        "phoneme_type": "espeak",
        "phoneme_id_map": {**{m: [i] for i, m in enumerate(marks)}, "aɪ": [30]},
        "num_speakers": 3,
        "speaker_id_map": {"ann": 0, "bob": 2},
    }
    (folder / "en_tiny.onnx.json").write_text(json.dumps(config))
    return folder


def make_kokoro(folder: Path) -> Path:
    """A model whose sound is [tokens..., style[0], style[255], speed] / 100."""
    inputs = [
        ("input_ids", TensorProto.INT64, [1, "tokens"]),
        ("style", TensorProto.FLOAT, [1, 256]),
        ("speed", TensorProto.FLOAT, [1]),
    ]
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["ids"], to=TensorProto.FLOAT),
        helper.make_node("Gather", ["style", "ends"], ["two"], axis=1),
        helper.make_node("Unsqueeze", ["speed", "axis"], ["fast"]),
        helper.make_node("Concat", ["ids", "two", "fast"], ["all"], axis=1),
        helper.make_node("Div", ["all", "hundred"], ["waveform"]),
    ]
    constants = {"ends": np.array([0, 255]), "axis": np.array([0]), "hundred": np.array(100, "f")}
    (folder / "onnx").mkdir()
    output = ("waveform", TensorProto.FLOAT, [1, "samples"])
    _save(folder / "onnx" / "model.onnx", inputs, nodes, constants, output)
    vocabulary = {c: i for i, c in enumerate("$;:,.!?—… abcdefgh")}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    (folder / "voices").mkdir()
    for i, name in enumerate(["af_heart", "bm_tiny"]):
        styles(i).tofile(folder / "voices" / f"{name}.bin")
    return folder


def styles(voice: int) -> np.ndarray:
    """float32 [510, 1, 256]."""
    rows = np.arange(510, dtype="f")[:, None, None] / 8
    return (rows + np.arange(256, dtype="f") / 1024 + 100 * voice).astype("f")
