"""`Trainer`: fits an ONNX model to data, in a loop that can be stopped, saved and resumed.

`options` checks the arguments and reads the model's folder, `programs` compiles and computes the
memory, `loop` is `Trainer.fit`, `checkpoint` saves and resumes, `results` exports.
"""

from ....logic.training.memory import Estimate
from .loop import History, Progress
from .trainer import Trainer

__all__ = ["Estimate", "History", "Progress", "Trainer"]
