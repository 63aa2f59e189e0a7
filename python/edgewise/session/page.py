"""What a page's InferenceSession asks of Python: the model read, a plan for the shapes that come, or a whole run where plans alone don't do.

Called in the compiler's worker (web/src/compiler.ts); web/src/inference/model.ts is the other end."""
from __future__ import annotations

import json

from ..arrays import Array, as_input
from ..compile import CONSTANTS, add_inference_plan, describe_values, inference_package
from ..errors import InputError, UnsupportedOp
from ..ir import NeedsHost, NeedsValue
from ..onnx import read_model
from ..ops.dtypes import CODE, NAME
from ..ops.symbolic import NotStatic
from ..plan.notes import NOTES
from .inference import InferenceSession, RunOptions

_model = None  # a compiler's worker serves one session


class _Model:
    def __init__(self, files, name):
        self.graph = read_model(files[name])
        self.package = inference_package(self.graph, files)
        self.sent = 0          # of the package's weights
        self.session = None    # an InferenceSession here, for graphs that need one

    def plan(self, feeds, outputs, known, file):
        """A plan as JSON and blobs: {"plan", "weights"}; or {"needs": [inputs whose numbers shapes depend on]}; or {"driven": why Python must run the graph}.

        feeds: {input: [type name, shape]}; known: {input: numbers}; file: what the plan is called."""
        try:
            described = add_inference_plan(self.package, self.graph, {n: [int(d) for d in shape] for n, (_, shape) in feeds.items()}, {n: CODE[t] for n, (t, _) in feeds.items()}, outputs, known, file)
        except NeedsValue as e:
            name = e.value.name
            return ({"needs": [name]} if name in feeds and name not in known else {"driven": f"a shape depends on '{name}'"}), {}
        except (NeedsHost, NotStatic) as e:
            return {"driven": str(e)}, {}
        manifest, blobs = self.package.manifest, {described["file"]: self.package.blobs.pop(described["file"])}
        fresh = manifest["weights"][self.sent:]
        self.sent += len(fresh)
        blobs[NOTES] = self.package.blobs.pop(NOTES)  # of this plan alone
        if any(w["file"] == CONSTANTS for w in fresh):
            blobs[CONSTANTS] = self.package.blobs[CONSTANTS]
        return {"plan": described, "weights": fresh}, blobs

    def run(self, feeds, data, outputs, seed):
        """Runs the graph here. feeds: {input: [type name, shape]}; data: {input: Source}; seed: of its random numbers, in decimal."""
        if self.session is None:
            self.session = InferenceSession(self.graph)
        arrays = {n: Array([int(d) for d in shape], t, bytes(data[n].read(0, data[n].size))) for n, (t, shape) in feeds.items()}
        described, blobs, options = {}, {}, RunOptions()
        options.seed = int(seed)
        for name, value in zip(outputs, self.session.run(outputs, arrays, options)):
            if not isinstance(value, Array) and not hasattr(value, "dtype"):
                raise UnsupportedOp(f"it is a {type(value).__name__}", f"output '{name}'", "A page's session gives tensors; fetch other outputs, or run the model in Python.")
            dtype, shape, content = as_input(value, name)
            described[name], blobs[name] = [NAME[dtype], list(shape)], bytes(content)
        return {"outputs": described}, blobs


def call(files, options):
    """files: {name: Source}. options["call"]: one of "open" (model_file), "plan" (feeds, outputs, known, file), "run" (feeds, outputs, seed; files: the feeds' bytes). Returns (JSON, {name: bytes})."""
    global _model
    what = options["call"]
    if what == "open":
        _model = _Model(files, options["model_file"])
        return json.dumps({"inputs": describe_values(_model.graph.input_names()), "outputs": describe_values(_model.graph.outputs)}), {}
    if _model is None:
        raise InputError("no model has been opened", "InferenceSession", "This is a mistake in Edgewise; please report it.")
    described, blobs = _model.plan(options["feeds"], options["outputs"], options["known"], options["file"]) if what == "plan" else _model.run(options["feeds"], files, options["outputs"], options["seed"])
    return json.dumps(described), blobs
