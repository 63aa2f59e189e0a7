"""`edgewise.training`: public names of training, which is in three places.

    compiler/training/: losses, optimizers, programs, LoRA adapters in PEFT's format
    host/training/: Trainer, the loop that fits a model to data, its checkpoints; runs of programs
    extras/onnxruntime_training/: ONNX Runtime Training's modules api, artifacts and onnxblock

Import from the modules beside this file; the classes below can also be imported from here.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:  # imported on first use, to keep `import edgewise` fast
    from importlib import import_module

    where = {
        "Trainer": "trainer",
        "Progress": "trainer",
        "History": "trainer",
        "Estimate": "trainer",
        "ContrastiveRows": "data",
        "DistillationRows": "data",
        "read_data": "data",
        "LoraConfig": "peft",
        "convert_adapter": "merge",
        "merge_adapter": "merge",
        "Program": "program",
        "TrainingSession": "session",
        "AdamW": "optimizers",
        "Adam": "optimizers",
        "AdamW8bit": "optimizers",
        "SGD": "optimizers",
        "Adagrad": "optimizers",
        "RMSprop": "optimizers",
        "Lion": "optimizers",
        "Muon": "optimizers",
    }.get(name)
    if where is None:
        raise AttributeError(f"module 'edgewise.training' has no attribute '{name}'")
    return getattr(import_module(f".{where}", __name__), name)
