"""Defaults of a training run: the one table that the Python API, the command line, the compiler of
packages and the page read.

`make gen` writes it to web/src/gen/training_defaults.ts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class TrainingDefaults:
    """Defaults of a training run.

    Attributes:
        sequence_length: tokens per row.
        learning_rate_lora, learning_rate_full: of AdamW, for adapters and for all parameters.
        max_grad_norm: maximum norm of the gradient; None: no clipping.
        no_decay: patterns of parameters without weight decay.
        lora_r, lora_alpha, lora_dropout, target_modules: of adapters.
        checkpoint_every: updates between two checkpoints.
    """

    epochs: int = 1
    batch_size: int = 4
    sequence_length: int = 128
    gradient_accumulation_steps: int = 1
    seed: int = 0
    optimizer: str = "AdamW"
    learning_rate_lora: float = 2e-3
    learning_rate_full: float = 3e-4
    schedule: str = "constant"
    warmup_steps: int = 0
    max_grad_norm: float | None = 1.0
    no_decay: tuple[str, ...] = ("*norm*", "*bias*")
    lora_r: int = 8
    lora_alpha: int = 16
    lora_dropout: float = 0.0
    target_modules: str = "all-linear"
    checkpoint_every: int = 50


# Fine-tuning of a language model, in Python, on the command line and in a page.
LANGUAGE_MODEL = TrainingDefaults()

# Other models, which only Python trains: no clipping, and all parameters decay, as in a plain
# PyTorch loop. The learning rate is the optimizer's own.
OTHER_MODEL = replace(LANGUAGE_MODEL, batch_size=8, max_grad_norm=None, no_decay=())


def default_learning_rate(optimizer: str, adapters: bool) -> float | None:
    """The default learning rate for a language model.

    Args:
        optimizer: class name in edgewise.training.optimizers.
        adapters: whether adapters are trained, not the parameters.

    Returns:
        The table's rate for AdamW and its 8-bit form; None for others: their own default applies.
    """
    if optimizer not in ("AdamW", "AdamW8bit"):
        return None
    return LANGUAGE_MODEL.learning_rate_lora if adapters else LANGUAGE_MODEL.learning_rate_full
