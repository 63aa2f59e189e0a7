"""Training: losses, optimizers, schedules and adapters; the plans of a training step; the files
that are kept.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:  # imported when first asked for: `import edgewise` stays quick
    from importlib import import_module

    where = {
        "Trainer": "trainer",
        "Progress": "trainer",
        "History": "trainer",
        "Estimate": "trainer",
        "LoraConfig": "peft",
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
