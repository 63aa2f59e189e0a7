"""Toy models from sound to sound: a whole one, and one of parts with states."""

from __future__ import annotations

from pathlib import Path

from .tiny_codecs import export

RATE, SIZE = 800, 32


def whole():
    """A convolution over samples [1, 1, n]."""
    import torch

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.conv = torch.nn.Conv1d(1, 1, 9, padding=4)

        def forward(self, x):
            return self.conv(x).tanh()

    return Whole()


def steps():
    """A recurrent layer over parts, with a cache of the last part."""
    import torch

    class Steps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.cell, self.out = torch.nn.GRU(1, 4), torch.nn.Linear(4, 1)

        def forward(self, frame, h0, cache):
            found, h = self.cell(frame.transpose(0, 1).unsqueeze(-1), h0)
            mixed = self.out(found).squeeze(-1).transpose(0, 1) + 0.5 * cache
            return mixed, h, frame

    return Steps()


def make(folder: Path) -> Path:
    """whole.onnx and steps.onnx."""
    import torch

    axes = {"noisy": {2: "n"}, "clean": {2: "n"}}
    export(whole(), {"noisy": torch.randn(1, 1, 50)}, ["clean"], axes, folder / "whole.onnx")
    inputs = {"frame": torch.randn(1, SIZE), "h_in": torch.zeros(1, 1, 4)}
    inputs["conv_cache"] = torch.zeros(1, SIZE)
    names = ["enhanced", "h_out", "conv_cache_out"]
    export(steps(), inputs, names, {}, folder / "steps.onnx")
    return folder
