"""Training of ONNX models.

    trainer/: Trainer, the loop that fits a model to data, and its checkpoints
    losses, optimizers, schedules, data: parts of a training run
    peft/, adapters: LoRA adapters in PEFT's format, and a language model with adapters
    program, state_plans, parameters, language_model: compile a model to the plans of a run
    session: runs these plans
    package, warm: training programs in packages, and a step that warms a page up
    safetensors, export, merge: files of trained models
    api/, artifacts, onnxblock/: ONNX Runtime Training's modules of these names
    artifact_files/: its files

Import from the modules; the classes below can also be imported from this package.
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
        "LoraConfig": "peft",
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
