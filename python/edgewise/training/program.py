"""Public names of compiler/training/program.py."""

from ..compiler.training.program import (
    GRADIENT_SCALE,
    LEARNING_RATE,
    LOSS,
    SEED,
    STEP,
    Feed,
    Program,
    State,
)

__all__ = ["Feed", "GRADIENT_SCALE", "LEARNING_RATE", "LOSS", "Program", "SEED", "STEP", "State"]
