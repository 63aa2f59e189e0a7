"""The trained models, and their files for every contender."""

from __future__ import annotations

import json
import shutil
import sys
from fnmatch import fnmatch

import numpy as np
import onnx
from onnx import numpy_helper

from ..browser import HERE, WORK, _sh, say
from ..contenders import EDGEWISE, JAX, JAX_TWO, TF
from ..contenders import ORT_TRAINING as ORT
from ..contenders import TRAINING_ONE as ORT_ONE
from ..contenders import TRAINING_TWO as ORT_TWO
from .networks import NETWORKS

CONTENDERS = {
    **{who: ("training.js", how) for who, how in EDGEWISE.items()},
    ORT_ONE: ("ort-training.js", (1,)),
    ORT_TWO: ("ort-training.js", (2,)),
    JAX: ("jax.js", (1,)),
    JAX_TWO: ("jax.js", (2,)),
    TF: ("tf.js", (1,)),
}


# ---- models ----
def trained_names(name):
    return ["*.lora_?"] if name.endswith("-lora") else []


def batch(name):
    """The inputs, as in page/batch.js: (input name, its array, int64 labels)."""
    arguments = NETWORKS[name][1]
    if name == "mlp":
        rows, (first, *_, last) = 64, arguments["dims"]
        return (
            "x",
            (np.arange(rows * first) * 7919 % 1000 / 1000).astype(np.float32).reshape(rows, first),
            np.arange(rows) * 7919 % last,
        )
    rows, sequence, vocab = (arguments[k] for k in ("batch", "sequence", "vocab"))
    ids = np.arange(rows * sequence)
    return "ids", (ids * 7919 % vocab).reshape(rows, sequence), (ids + 1) * 7919 % vocab


def flops(name):
    """Floating-point operations of the matrix products of a step: forward, and the required
    gradients.
    """
    a = NETWORKS[name][1]
    if name == "mlp":
        sizes = [x * y for x, y in zip(a["dims"], a["dims"][1:])]
        return 2 * 64 * (3 * sum(sizes) - sizes[0])  # the gradient of x is not required
    tokens, d, inner, r = a["batch"] * a["sequence"], a["width"], a["inner"], a.get("rank", 0)
    weights = a["layers"] * (4 * d * d + 3 * d * inner) + d * a["vocab"]
    attention = (
        a["layers"] * 2 * a["sequence"] * d
    )  # all pairs of the graph, though half of them are masked
    adapters = a["layers"] * r * (4 * 2 * d + 3 * (d + inner))
    return 2 * tokens * ((2 if r else 3) * weights + 3 * attention + 3 * adapters)


def model_files(name):
    """Writes NAME.onnx, .weights and .json; every contender uses the same file as forward graph."""
    folder = WORK / "train"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    function, arguments = NETWORKS[name]
    model = function(**arguments)
    data = model.SerializeToString()
    if path.exists() and path.read_bytes() == data:
        return path
    say(f"making {path.name}")
    shutil.rmtree(path.with_suffix(".ort"), ignore_errors=True)
    weights, blob = [], bytearray()
    for i in model.graph.initializer:
        if i.data_type == onnx.TensorProto.FLOAT and i.dims:
            array = numpy_helper.to_array(i)
            weights.append(
                {"name": i.name, "shape": list(array.shape), "at": len(blob), "count": array.size}
            )
            blob += array.tobytes()
    patterns = trained_names(name)
    trained = [
        w["name"] for w in weights if not patterns or any(fnmatch(w["name"], p) for p in patterns)
    ]
    feed, x, labels = batch(name)
    about = (
        {"kind": "mlp", "layers": len(arguments["dims"]) - 1}
        if name == "mlp"
        else {"kind": "gpt", **arguments}
    )
    path.with_suffix(".weights").write_bytes(blob)
    path.with_suffix(".json").write_text(
        json.dumps(
            {
                "model": about,
                "weights": weights,
                "trained": trained,
                "input": {
                    "name": feed,
                    "shape": list(x.shape),
                    **({"vocab": arguments["vocab"]} if feed == "ids" else {}),
                },
                "labels": {
                    "count": len(labels),
                    "classes": arguments["dims"][-1] if name == "mlp" else arguments["vocab"],
                    "shift": 0 if name == "mlp" else 1,
                },
            }
        )
    )
    path.write_bytes(data)
    return path


def ort_artifacts(path):
    """Writes ONNX Runtime's training artifacts with its own Python package, in a separate
    environment: the package and the NumPy that it requires are from 2024.
    """
    python = WORK / "ort-training/bin/python"
    if not (python.parent / "ready").exists():
        say(f"installing onnxruntime-training-cpu {ORT}")
        _sh(
            sys.executable, "-m", "venv", WORK / "ort-training"
        )  # its wheels support Python up to 3.11
        _sh(
            python,
            "-m",
            "pip",
            "--quiet",
            "--disable-pip-version-check",
            "install",
            f"onnxruntime-training-cpu=={ORT}",
            "onnx==1.16.2",
            "numpy<2",
        )
        (python.parent / "ready").touch()
    folder = path.with_suffix(".ort")
    if not (folder / "optimizer_model.onnx").exists():
        folder.mkdir(exist_ok=True)
        _sh(python, HERE / "training/ort_artifacts.py", path, folder, *trained_names(path.stem))
