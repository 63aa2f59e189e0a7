# runs ONNX Runtime Training's walk-through; records what it gave
import inspect
import json
import os
import sys
import tempfile

import numpy as np
import onnx

out = {}
data = np.load(sys.argv[1])
model = sys.argv[2]
target = sys.argv[3]
import onnxruntime.training.api as api
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, LinearLRScheduler, Module, Optimizer

folder = tempfile.mkdtemp()
m = onnx.load(model)
requires = [p.name for p in m.graph.initializer]
artifacts.generate_artifacts(
    m,
    optimizer=artifacts.OptimType.AdamW,
    loss=artifacts.LossType.CrossEntropyLoss,
    requires_grad=requires,
    artifact_directory=folder,
)
p = lambda n: os.path.join(folder, n)
state = CheckpointState.load_checkpoint(p("checkpoint"))
module = Module(p("training_model.onnx"), state, p("eval_model.onnx"))
optimizer = Optimizer(p("optimizer_model.onnx"), module)
sched = LinearLRScheduler(optimizer, 4, 24, 5e-3)
losses, rates, evals = [], [], []
for _epoch in range(3):
    module.train()
    for i in range(0, 64, 8):
        loss = module(data["x"][i : i + 8], data["y"][i : i + 8])
        losses.append(float(np.asarray(loss)))
        rates.append(optimizer.get_learning_rate())
        optimizer.step()
        sched.step()
        module.lazy_reset_grad()
    module.eval()
    e = module(data["x"][:32], data["y"][:32])
    evals.append(float(np.asarray(e[0] if isinstance(e, (list, tuple)) else e)))
out["losses"], out["rates"], out["evals"] = losses, rates, evals
module.export_model_for_inferencing(p("inference.onnx"), ["output"])
import onnxruntime

out["inference"] = (
    onnxruntime.InferenceSession(p("inference.onnx"))
    .run(None, {"input": data["x"][:2]})[0]
    .tolist()
)
out["sizes"] = [module.get_parameters_size(True), module.get_parameters_size(False)]
out["names"] = {
    "train": [list(module.train().input_names()), list(module.output_names())],
    "eval": [list(module.eval().input_names()), list(module.output_names())],
}
CheckpointState.save_checkpoint(state, p("after"), include_optimizer_state=True)
# federated averaging over three clients
size = None
glob = CheckpointState.load_checkpoint(p("checkpoint"))
gm = Module(p("training_model.onnx"), glob, p("eval_model.onnx"))
fed = []
for _rnd in range(3):
    buffers = []
    for c in range(3):
        s = CheckpointState.load_checkpoint(p("checkpoint"))
        mod = Module(p("training_model.onnx"), s, p("eval_model.onnx"))
        opt = Optimizer(p("optimizer_model.onnx"), mod)
        opt.set_learning_rate(1e-2)
        mod.copy_buffer_to_parameters(
            gm.get_contiguous_parameters(trainable_only=True), trainable_only=True
        )
        mod.train()
        for i in range(c * 16, c * 16 + 16, 8):
            mod(data["x"][i : i + 8], data["y"][i : i + 8])
            opt.step()
            mod.lazy_reset_grad()
        buffers.append(mod.get_contiguous_parameters(trainable_only=True).numpy())
    mean = np.mean(buffers, 0).astype(np.float32)
    gm.copy_buffer_to_parameters(
        onnxruntime.OrtValue.ortvalue_from_numpy(mean)._ortvalue, trainable_only=True
    )
    gm.eval()
    e = gm(data["x"], data["y"])
    fed.append(float(np.asarray(e[0] if isinstance(e, (list, tuple)) else e)))
out["federated"] = fed
sig = {}
for c in ("CheckpointState", "Module", "Optimizer", "LinearLRScheduler"):
    o = getattr(api, c)
    sig[c] = {}
    for n, mth in vars(o).items():
        if (not n.startswith("_") or n in ("__call__", "__init__")) and callable(getattr(o, n)):
            sig[c][n] = [
                [q.name, None if q.default is q.empty else q.default, str(q.kind)]
                for q in inspect.signature(getattr(o, n)).parameters.values()
            ]
        elif isinstance(mth, property):
            sig[c][n] = "property"
sig["generate_artifacts"] = [
    [q.name, None if q.default is q.empty else q.default, str(q.kind)]
    for q in inspect.signature(artifacts.generate_artifacts).parameters.values()
]
out["signatures"] = sig
json.dump(out, open(target, "w"), indent=1, default=str)
print(losses[:3], evals, fed, out["sizes"], out["names"])
