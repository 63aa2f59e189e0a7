"""ONNX Runtime Training's Python API (onnxruntime.training.api, release 1.19): users come over by
changing the import.

    from edgewise.training.api import CheckpointState, LinearLRScheduler, Module, Optimizer

    state = CheckpointState.load_checkpoint("checkpoint")
    module = Module("training_model.onnx", state, "eval_model.onnx")
    optimizer = Optimizer("optimizer_model.onnx", module)
    for x, y in batches:
        loss = module(x, y)
        optimizer.step()
        module.lazy_reset_grad()

The artifacts are those of edgewise.training.artifacts, or files that ONNX Runtime wrote. The
backward pass is derived here, from the forward part up to the loss.
"""

from ....host.session.face.ort_value import OrtValue
from .checkpoint_state import CheckpointState, Parameter, Parameters, Properties
from .module import Module, set_seed
from .optimizer import LinearLRScheduler, Optimizer

__all__ = [
    "CheckpointState",
    "LinearLRScheduler",
    "Module",
    "Optimizer",
    "OrtValue",
    "Parameter",
    "Parameters",
    "Properties",
    "set_seed",
]
