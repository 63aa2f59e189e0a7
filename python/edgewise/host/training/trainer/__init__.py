"""`Trainer`: fits an ONNX model to data, in a loop that can be stopped, saved and resumed.

`options` checks the arguments, `model` reads the model's folder, `batches` makes batches of the
data, `estimate` computes the memory, `loop` is `Trainer.fit`, `run_file` the checkpoints.
"""

from .estimate import Estimate
from .progress import History, Progress
from .trainer import Trainer

__all__ = ["Estimate", "History", "Progress", "Trainer"]
