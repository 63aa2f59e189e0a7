"""The models of case `pipelines`, in the layout of the Hugging Face hub.

Some are pre-trained and are searched in the folder of tests/bench/real_models.py. The others have
random weights and the sizes of small models that people use; they are exported by PyTorch once,
below .build/bench/pipelines.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import wave
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..pipelines.exporting import export
from .browser import WORK
from .real_models import FOLDER

MADE = WORK / "pipelines"
TOKENIZER = FOLDER / "all-MiniLM-L6-v2"
TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
MINILM = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
VIT_SMALL = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
VIT_TINY = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768}
SQUARE = {"size": {"height": 224, "width": 224}}
# The blank is first, as in the models of MMS.
LETTERS = "'abcdefghijklmnopqrstuvwxyz -"
LABELS = {"id2label": {i: f"label {i}" for i in range(10)}}


@dataclass(frozen=True)
class Model:
    """A model of transformers with random weights.

    Args:
        name: name of its folder.
        model: class of transformers.
        config: fields of its configuration.
        outputs: names of its outputs.
        inputs: returns example inputs by name.
        axes: {input: {axis: name}} of free dimensions.
        processor: class of its image processor or feature extractor, and fields.
        exported: task with which optimum exports it, instead of the fields from outputs to axes.
    """

    name: str
    model: str
    config: dict[str, Any]
    outputs: tuple[str, ...] = ()
    inputs: Callable[[], dict[str, Any]] = dict
    axes: dict[str, dict[int, str]] = field(default_factory=dict)
    processor: tuple[str, dict[str, Any]] | None = None
    exported: str = ""


def tokens() -> dict[str, Any]:
    """Inputs of a BERT."""
    import torch

    ids = torch.randint(1000, 30000, (1, 16))
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "token_type_ids": torch.zeros_like(ids),
    }


def numbers(name: str, *shape: int) -> Callable[[], dict[str, Any]]:
    """One float32 input."""

    def make() -> dict[str, Any]:
        import torch

        return {name: torch.rand(shape)}

    return make


def letters() -> dict[str, Any]:
    """Inputs of a VITS."""
    import torch

    ids = torch.tensor([[0, 3, 0, 4, 0, 5, 0]])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def letter_tokenizer(folder: Path) -> None:
    """Writes a tokenizer of VITS, for transformers and for transformers.js."""
    import transformers

    vocabulary = {token: i for i, token in enumerate([*LETTERS, "<unk>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    tokenizer = transformers.VitsTokenizer(folder / "vocab.json", phonemize=False, pad_token="'")
    tokenizer.save_pretrained(folder)
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    known = "".join(LETTERS).replace("-", r"\-")
    normalizers = [
        {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"Regex": f"[^{known}]"}, "content": ""},
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": "(?=.)|(?<!^)$"}, "content": LETTERS[0]},
    ]
    contents = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": vocabulary[t], "content": t, "special": True, **special}
            for t in (LETTERS[0], "<unk>")
        ],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {
            "type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated", "invert": False,
        },
        "post_processor": None,
        "decoder": None,
        "model": {"vocab": vocabulary},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(contents))


TEXT_INPUTS = ("input_ids", "attention_mask")
TOKENS = {
    name: {0: "batch_size", 1: "sequence_length"}
    for name in ("input_ids", "attention_mask", "token_type_ids")
}
PICTURE = {"pixel_values": {0: "batch_size"}}


def bert(name: str, head: str, outputs: tuple[str, ...], **config: Any) -> Model:
    return Model(name, f"BertFor{head}", {**MINILM, **config}, outputs, tokens, TOKENS)


MODELS = {
    model.name: model
    for model in (
        bert("bert-classes", "SequenceClassification", ("logits",), **LABELS),
        bert(
            "bert-nli",
            "SequenceClassification",
            ("logits",),
            id2label={0: "contradiction", 1: "neutral", 2: "entailment"},
        ),
        bert("bert-entities", "TokenClassification", ("logits",), **LABELS),
        bert("bert-mask", "MaskedLM", ("logits",)),
        bert("bert-answers", "QuestionAnswering", ("start_logits", "end_logits")),
        Model(
            "vit-small",
            "ViTModel",
            {**VIT_SMALL, "num_hidden_layers": 12},
            ("last_hidden_state", "pooler_output"),
            numbers("pixel_values", 1, 3, 224, 224),
            PICTURE,
            ("ViTImageProcessor", SQUARE),
        ),
        Model(
            "yolos-tiny",
            "YolosForObjectDetection",
            {**VIT_TINY, "num_hidden_layers": 12, "image_size": [384, 512], **LABELS},
            ("logits", "pred_boxes"),
            numbers("pixel_values", 1, 3, 384, 512),
            PICTURE,
            ("YolosImageProcessor", {"size": {"height": 384, "width": 512}}),
        ),
        Model(
            "segformer-b0",
            "SegformerForSemanticSegmentation",
            LABELS,
            ("logits",),
            numbers("pixel_values", 1, 3, 512, 512),
            PICTURE,
            ("SegformerImageProcessor", {"size": {"height": 512, "width": 512}}),
        ),
        Model(
            "dpt-small",
            "DPTForDepthEstimation",
            {
                **VIT_SMALL,
                "num_hidden_layers": 12,
                "image_size": 224,
                "backbone_out_indices": [2, 5, 8, 11],
                "neck_hidden_sizes": [48, 96, 192, 384],
                "fusion_hidden_size": 64,
                "is_hybrid": False,
            },
            ("predicted_depth",),
            numbers("pixel_values", 1, 3, 224, 224),
            PICTURE,
            ("DPTImageProcessor", SQUARE),
        ),
        Model(
            "ast-tiny",
            "ASTForAudioClassification",
            {**VIT_TINY, "num_hidden_layers": 12, **LABELS},
            ("logits",),
            numbers("input_values", 1, 1024, 128),
            {"input_values": {0: "batch_size"}},
            ("ASTFeatureExtractor", {}),
        ),
        Model(
            "wav2vec2-small",
            "Wav2Vec2ForSequenceClassification",
            {
                "hidden_size": 384,
                "num_hidden_layers": 6,
                "num_attention_heads": 6,
                "intermediate_size": 1536,
                **LABELS,
            },
            ("logits",),
            numbers("input_values", 1, 16000),
            {"input_values": {0: "batch_size", 1: "samples"}},
            ("Wav2Vec2FeatureExtractor", {"return_attention_mask": False}),
        ),
        Model(
            "marian",
            "MarianMTModel",
            {
                "vocab_size": 30522,
                "d_model": 512,
                **{f"{part}_layers": 6 for part in ("encoder", "decoder")},
                **{f"{part}_attention_heads": 8 for part in ("encoder", "decoder")},
                **{f"{part}_ffn_dim": 2048 for part in ("encoder", "decoder")},
                "max_position_embeddings": 512,
                "init_std": 0.1,  # distinct scores: both engines choose the same tokens
                "decoder_start_token_id": 0,
                "pad_token_id": 0,
                "eos_token_id": 102,
                "forced_eos_token_id": 102,
            },
            exported="text2text-generation-with-past",
        ),
        Model(
            "vits",
            "VitsModel",
            # No random numbers: both engines make the same sound.
            {"vocab_size": len(LETTERS) + 1, "noise_scale": 0.0, "noise_scale_duration": 0.0},
            ("waveform",),
            letters,
            {
                **{name: {0: "text_batch_size", 1: "sequence_length"} for name in TEXT_INPUTS},
                "waveform": {0: "text_batch_size", 1: "n_samples"},
            },
        ),
    )
}
OPTIMUM = ("optimum==2.1.0", "optimum-onnx==0.1.0")


# Models with products of bytes: {folder: the model they are made of}
DYNAMIC, DYNAMIC_SPEECH = "minilm-dynamic", "whisper-dynamic"
QUANTIZED = {DYNAMIC: "all-MiniLM-L6-v2", DYNAMIC_SPEECH: "whisper-tiny.en"}


def quantized(name: str) -> Path:
    """A model with products of bytes, as transformers.js' scripts quantize it. Returns its folder.

    MiniLM's pre-trained file of 8 bits has bytes that become floats before they are multiplied.
    """
    folder, source = MADE / name, FOLDER / QUANTIZED[name]
    if not (folder / "onnx").exists():
        from onnxruntime.quantization import QuantType, quantize_dynamic

        folder.mkdir(parents=True, exist_ok=True)
        for file in source.glob("*.json"):
            shutil.copy(file, folder)
        parts = ("model", "encoder_model", "decoder_model_merged")
        made = folder / "making"
        made.mkdir(exist_ok=True)
        for part in parts:
            path = source / "onnx" / f"{part}.onnx"
            if path.exists():
                quantize_dynamic(
                    path,
                    made / f"{part}_quantized.onnx",
                    per_channel=True,
                    reduce_range=True,
                    weight_type=QuantType.QInt8,
                    extra_options={"EnableSubgraph": True, "MatMulConstBOnly": True},
                )
        made.rename(folder / "onnx")
    return folder


def make(model: Model) -> Path:
    """Returns the model's folder, made if it is not there. Text models take MiniLM's tokenizer."""
    folder = MADE / model.name
    files = ("model.onnx", "decoder_model_merged.onnx")
    if any((folder / "onnx" / name).exists() for name in files):
        return folder
    import torch
    import transformers

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    model_class = getattr(transformers, model.model)
    config = model_class.config_class(**model.config)
    config.label2id = {label: i for i, label in config.id2label.items()}
    config.architectures = [model.model]
    made = model_class(config).eval()
    config.save_pretrained(folder)
    if model.processor:
        name, fields = model.processor
        getattr(transformers, name)(**fields).save_pretrained(folder)
    elif model.name == "vits":
        letter_tokenizer(folder)
    else:
        for name in TEXT_FILES:
            shutil.copy(TOKENIZER / name, folder)
    if model.exported:
        optimum(made, model.exported, folder)
    else:
        export(made, model.inputs(), model.outputs, model.axes, folder / "onnx/model.onnx")
    return folder


def optimum(model: Any, task: str, folder: Path) -> None:
    """Exports a model with optimum, which has a folder of its own: it is only for benchmarks."""
    packages = WORK / "optimum"
    if not packages.exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*install, "--target", str(packages), *OPTIMUM], check=True)
    source, onnx = folder / "source", folder / "onnx"
    model.save_pretrained(source)
    code = "import sys; from optimum.exporters.onnx import main_export as m; "
    code += "m(sys.argv[1], sys.argv[2], task=sys.argv[3], do_validation=False)"
    subprocess.run(
        [sys.executable, "-c", code, str(source), str(onnx), task],
        env={**os.environ, "PYTHONPATH": str(packages)},
        check=True,
        capture_output=True,
    )
    shutil.copy(source / "generation_config.json", folder)
    shutil.rmtree(source)
    for name in (
        "decoder_model.onnx",
        "decoder_with_past_model.onnx",
    ):  # both are in the merged one
        (onnx / name).unlink()


def half_minute() -> Path:
    """30 s of speech: the recording of 11 s, repeated."""
    path = MADE / "speech30.wav"
    if not path.exists():
        with wave.open(str(FOLDER / "audio/jfk16k.wav")) as file:
            settings, frames = file.getparams(), file.readframes(file.getnframes())
        MADE.mkdir(parents=True, exist_ok=True)
        with wave.open(str(path), "wb") as file:
            file.setparams(settings)
            file.writeframes((3 * frames)[: 30 * settings.framerate * settings.sampwidth])
    return path
