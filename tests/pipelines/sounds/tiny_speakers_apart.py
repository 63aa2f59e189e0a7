"""Toy models of who speaks: voices are sounds above and below 0. In a window the one who speaks
first is speaker 0.
"""

from __future__ import annotations

import json
from pathlib import Path

from .tiny_codecs import export

FRAME, SIZE, RATE = 100, 4000, 1000


def make_segmentation(folder: Path) -> Path:
    """Scores of 7 classes for frames of 0.1 s, of samples at 1000 Hz."""
    import torch
    from torch import nn

    class Segmentation(nn.Module):
        def forward(self, input_values):
            mean = nn.functional.avg_pool1d(input_values, FRAME, FRAME)[:, 0]
            loud = (mean.abs() > 0.05).float()
            first = loud * (loud.cumsum(-1) == 1).float()
            side = torch.sign((mean * first).sum(-1, keepdim=True))
            one, two = torch.relu(mean * side), torch.relu(-mean * side)
            zero = torch.zeros_like(one)
            return torch.stack([zero + 0.05, one, two, zero, zero, zero, zero], -1)

    export(
        Segmentation(), {"input_values": torch.randn(1, 1, SIZE)}, ["logits"],
        {"input_values": {2: "samples"}}, folder / "onnx/model.onnx",
    )  # fmt: skip
    config = {"feature_extractor_type": "PyAnnoteFeatureExtractor", "sampling_rate": RATE}
    config |= {"step": FRAME, "offset": 0}
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    return folder


def make_embedding(folder: Path) -> Path:
    """A vector that says whether a sound is above or below 0."""
    import torch
    from torch import nn

    class Embedding(nn.Module):
        def forward(self, input_values):
            above = torch.relu(input_values).mean(-1)
            below = torch.relu(-input_values).mean(-1)
            return torch.stack([above, below], -1)

    export(
        Embedding(), {"input_values": torch.randn(1, 50)}, ["embeddings"],
        {"input_values": {1: "samples"}}, folder / "onnx/model.onnx",
    )  # fmt: skip
    config = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": RATE}
    config |= {"do_normalize": False, "feature_size": 1, "padding_value": 0.0}
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    return folder
