"""Tiny random models of sound, saved and exported as tiny.py's."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np

LABELS = ["yes", "no", "stop", "go", "left", "right"]
WAVE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "conv_dim": (16, 16, 16),
    "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 4, 4),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 16,
    "initializer_range": 0.4,
}


def make(folder: Path, kind: str, **config) -> Path:
    """Makes a model for classification. kind: "AST", "Wav2Vec2" or "Hubert"."""
    import torch
    import transformers

    torch.manual_seed(len(kind))
    labels = {
        "id2label": dict(enumerate(LABELS)),
        "label2id": {name: i for i, name in enumerate(LABELS)},
    }
    if kind == "AST":
        extractor = transformers.ASTFeatureExtractor(max_length=100, num_mel_bins=32)
        settings = transformers.ASTConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_length=100,
            num_mel_bins=32,
            initializer_range=0.4,
            **labels,
            **config,
        )
        model = transformers.ASTForAudioClassification(settings)
        axes = {0: "batch_size"}
    else:
        extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=False)
        settings = getattr(transformers, f"{kind}Config")(**WAVE, **labels, **config)
        model = getattr(transformers, f"{kind}ForSequenceClassification")(settings)
        axes = {0: "batch_size", 1: "samples"}
    return save(folder, model, extractor, axes)


def make_voices(folder: Path, kind: str) -> Path:
    """Makes a model of voices, with x-vectors. kind: "Wav2Vec2" or "WavLM"."""
    import torch
    import transformers

    from .exporting import export

    torch.manual_seed(len(kind))
    tdnn = {"tdnn_dim": (16, 16, 24), "tdnn_kernel": (5, 3, 1), "tdnn_dilation": (1, 2, 1)}
    settings = getattr(transformers, f"{kind}Config")(**WAVE, **tdnn, xvector_output_dim=12)
    model = getattr(transformers, f"{kind}ForXVector")(settings).eval()
    model.save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(return_attention_mask=False).save_pretrained(folder)
    inputs = {"input_values": torch.zeros(1, 16000)}
    axes = {"input_values": {0: "batch_size", 1: "samples"}}
    export(model, inputs, ["logits", "embeddings"], axes, folder / "onnx/model.onnx")
    return folder


def _clap(transformers, vocabulary: int, fused: bool):
    """Configuration and feature extractor of a CLAP model for a second at 16 kHz."""
    text = dict(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=42,
    )
    sound = dict(
        spec_size=32,
        num_mel_bins=16,
        window_size=4,
        patch_embeds_hidden_size=16,
        depths=[1, 1],
        num_attention_heads=[2, 2],
        hidden_size=32,
        projection_hidden_size=32,
        aff_block_r=2,
        enable_fusion=fused,
    )
    config = transformers.ClapConfig(text_config=text, audio_config=sound, projection_dim=16)
    extractor = transformers.ClapFeatureExtractor(
        feature_size=16,
        sampling_rate=16000,
        hop_length=320,
        max_length_s=1,
        fft_window_size=512,
        frequency_max=8000,
        truncation="fusion" if fused else "rand_trunc",
    )
    return config, extractor


def make_clap(folder: Path, separate: bool = False, fused: bool = False) -> Path:
    """Makes a CLAP model. separate: in two files. fused: it mixes parts of longer sounds."""
    import torch
    import transformers

    from .exporting import export
    from .tiny import tokenizer_of

    torch.manual_seed(7)
    tokenizer = tokenizer_of("roberta")
    config, extractor = _clap(transformers, len(tokenizer), fused)
    model = transformers.ClapModel(config).eval()
    with torch.no_grad():  # so that scores differ, and so do the two scales
        for x in model.parameters():
            if x.dim() > 1:
                torch.nn.init.normal_(x, std=0.3)
        model.logit_scale_t.fill_(1.0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    extractor.save_pretrained(folder)
    heard = extractor(np.ones(9000, "f"), sampling_rate=16000, return_tensors="pt")
    sounds = {"input_features": heard["input_features"]}
    if fused:
        sounds["is_longer"] = heard["is_longer"]
    ids = torch.tensor([[0, 5, 6, 2], [0, 7, 8, 2]])
    texts = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    axes = dict.fromkeys(texts, {0: "texts", 1: "length"})
    if not separate:
        outputs = ["logits_per_audio", "logits_per_text"]
        export(model, {**texts, **sounds}, outputs, axes, folder / "onnx/model.onnx")
        return folder
    for part, given, free in (("Audio", sounds, {}), ("Text", texts, axes)):
        half = getattr(transformers, f"Clap{part}ModelWithProjection").from_pretrained(folder)
        outputs = [f"{part.lower()}_embeds", "last_hidden_state"]
        export(half.eval(), given, outputs, free, folder / f"onnx/{part.lower()}_model.onnx")
    return folder


def make_ctc(folder: Path, kind: str, tokens: list[str], lower: bool, mask: bool, **config) -> Path:
    """Makes a CTC model. kind: "Wav2Vec2", "Hubert" or "WavLM". mask: the graph has a mask."""
    import torch
    import transformers

    torch.manual_seed(len(kind))
    settings = getattr(transformers, f"{kind}Config")(
        **WAVE, vocab_size=len(tokens), pad_token_id=0, **config
    )
    model = getattr(transformers, f"{kind}ForCTC")(settings)
    extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=mask)
    (folder / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(folder / "vocab.json", do_lower_case=lower)
    tokenizer.save_pretrained(folder)
    return save(folder, model, extractor, {0: "batch_size", 1: "samples"}, mask)


def save(folder: Path, model, extractor, axes: dict[int, str], mask: bool = False) -> Path:
    """Saves and exports a model. mask: whether it has an attention_mask."""
    import torch

    model.eval().save_pretrained(folder)
    extractor.save_pretrained(folder)
    (folder / "onnx").mkdir()
    example = extractor(np.zeros(16000, "f"), sampling_rate=16000, return_tensors="pt")
    names = ["input_values", *(["attention_mask"] if mask else [])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            tuple(example[name].long() if "mask" in name else example[name] for name in names),
            str(folder / "onnx" / "model.onnx"),
            input_names=names,
            output_names=["logits"],
            dynamic_axes={**dict.fromkeys(names, axes), "logits": {0: "batch_size", 1: "frames"}},
            opset_version=17,
            dynamo=False,
        )
    return folder
