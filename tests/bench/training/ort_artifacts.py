"""Creates the artifacts of a model for ONNX Runtime's on-device training.

    python ort_artifacts.py MODEL.onnx FOLDER [PATTERN ...]

Runs in a separate environment, see models.py. PATTERN: names of the trained parameters, as in
fnmatch; default: all in float32 with more than one element.
"""

import sys
import types
from fnmatch import fnmatch

for name in ("onnxruntime.training.optim", "onnxruntime.training.amp"):
    sys.modules[name] = types.ModuleType(name)  # they would import PyTorch, which is not used here

import onnx  # noqa: E402
from onnxruntime.training import artifacts, onnxblock  # noqa: E402

path, folder, *patterns = sys.argv[1:]
model = onnx.load(path)
floats = [
    i.name for i in model.graph.initializer if i.data_type == onnx.TensorProto.FLOAT and i.dims
]
trained = [n for n in floats if any(fnmatch(n, p) for p in patterns)] if patterns else floats
artifacts.generate_artifacts(
    model,
    requires_grad=trained,
    frozen_params=[n for n in floats if n not in trained],
    loss=artifacts.LossType.CrossEntropyLoss,
    optimizer=onnxblock.optim.AdamW(eps=1e-8, weight_decay=0.0),
    artifact_directory=folder,
)
