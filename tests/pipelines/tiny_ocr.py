"""Models with the inputs and outputs of PP-OCR's that read colored bars: red is "r", green "g" and
blue "b".
"""

from __future__ import annotations

import warnings
from pathlib import Path

CHARACTERS = ["r", "g", "b"]


def make(folder: Path, metadata: bool = True, directions: bool = True) -> Path:
    """Writes the models. metadata: whether the dictionary is in that of the recognizer."""
    import onnx
    import torch
    from torch.nn import functional as f

    class Detector(torch.nn.Module):
        """What is colored is text."""

        def forward(self, x):
            most, least = x.amax(1, keepdim=True), x.amin(1, keepdim=True)
            return torch.sigmoid(10 * (most - least - 0.5))

    class Recognizer(torch.nn.Module):
        """The color of each 8 columns; of gray, black and white none."""

        def forward(self, x):
            blue, green, red = f.avg_pool2d(x, (48, 8))[:, :, 0].unbind(1)
            none = torch.full_like(red, 0.5)
            colors = [none, red - green - blue, green - red - blue, blue - red - green]
            return torch.softmax(8 * torch.stack(colors, -1), -1)

    class Directions(torch.nn.Module):
        """A text is upside down if it ends red."""

        def forward(self, x):
            red = torch.relu(x[:, 2] - x[:, :2].amax(1))[:, 8:40].mean(1)
            turned = 30 * (red[:, 80:].mean(1) - red[:, :60].mean(1))
            return torch.softmax(torch.stack([torch.zeros_like(turned), turned], -1), -1)

    free = {0: "batch", 2: "height", 3: "width"}
    models = {
        "ch_tiny_det_infer": (Detector(), (64, 96), {"x": free, "y": free}),
        "ch_tiny_rec_infer": (Recognizer(), (48, 320), {"x": {3: "width"}, "y": {1: "steps"}}),
        "ch_tiny_cls_infer": (Directions(), (48, 192), {"x": {0: "batch"}}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, (model, size, axes) in models.items():
        if "cls" in name and not directions:
            continue
        path = folder / f"{name}.onnx"
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                model,
                torch.rand(1, 3, *size),
                path,
                input_names=["x"],
                output_names=["y"],
                dynamic_axes=axes,
                opset_version=17,
                dynamo=False,
            )
        if "rec" in name and metadata:
            made = onnx.load(path)
            entry = made.metadata_props.add()
            entry.key, entry.value = "character", "\n".join(CHARACTERS[:3])
            onnx.save(made, path)
    if not metadata:
        (folder / "dict.txt").write_text("\n".join(CHARACTERS) + "\n")
    return folder


COLORS = {"r": (255, 0, 0), "g": (0, 255, 0), "b": (0, 0, 255)}


def page(bars, height=300, width=400):
    """A white picture with bars: (text, left, top, width, height) of each."""
    import numpy as np

    made = np.full((height, width, 3), 255, np.uint8)
    for text, left, top, wide, high in bars:
        step = wide // len(text)
        for i, letter in enumerate(text):
            at = left + i * step
            made[top : top + high, at : at + step] = COLORS[letter]
    return made
