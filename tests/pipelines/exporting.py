"""Exports models of transformers with the names of optimum's files."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def export(
    model: Any,
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
    path: Path,
) -> None:
    """Writes an .onnx file, in a folder that is made.

    Args:
        model: a model of transformers.
        inputs: example inputs by name.
        outputs: names of the fields of the model's output.
        axes: {input: {axis: name}} of free dimensions.
    """
    import torch

    class Exported(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: Any) -> tuple[Any, ...]:
            found = self.model(**dict(zip(inputs, values)))
            return tuple(found[name] for name in outputs)

    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Exported(),
            tuple(inputs.values()),
            path,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )
