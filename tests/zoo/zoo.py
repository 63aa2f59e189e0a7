"""The models of the zoo: their paths, expected outputs, and the tolerance of the comparison."""

import functools
import os
from pathlib import Path

import numpy as np
from edgewise.inspect import every_node
from edgewise.onnx import FileSource, read_model

HERE = Path(__file__).parent
OWN = HERE / "models"
LOOSE = (
    "fp16",
    "f16",
    "q4",
    "q8",
    "int8",
    "uint8",
    "int4",
    "bnb4",
    "qdq",
    "qoperator",
    "nbits",
    "webgpu",
)


def folder():
    """The zoo's folder: $EDGEWISE_ZOO, or the default folder beside the checkout; None if it does
    not exist.
    """
    path = Path(os.environ.get("EDGEWISE_ZOO") or HERE.parents[2] / "shared" / "zoo")
    return path if path.is_dir() else None


class Model:
    """One model file with its stored inputs and outputs."""

    def __init__(self, path, root):
        self.path, self.root = path, root

    @property
    def name(self):
        return str(self.path.relative_to(self.root).with_suffix(""))

    def __repr__(self):
        return self.name

    @functools.cached_property
    def graph(self):
        return read_model(FileSource(self.path))

    @functools.cached_property
    def stored(self):
        with np.load(self.path.with_suffix(".npz")) as z:
            return {
                "in": {k[3:]: z[k] for k in z.files if k.startswith("in/")},
                "out": {k[4:]: z[k] for k in z.files if k.startswith("out/")},
            }

    @property
    def feeds(self):
        return self.stored["in"]

    @property
    def expected(self):
        return self.stored["out"]

    @property
    def tolerance(self):
        return (
            2e-2
            if any(m in str(self.path.relative_to(self.root)) for m in LOOSE)
            or any(v.dtype == np.float16 for v in self.expected.values())
            else 1e-4
        )

    @property
    def is_causal_lm(self):
        """Whether it has token ids as input, logits for each of them as output, no encoder states,
        and a vocabulary (a tagger has only a few labels).

        Of the stored values' names and shapes: every test process asks all models when it collects
        tests, and reading 150 graphs takes seconds.
        """
        known = {"input_ids", "attention_mask", "position_ids", "use_cache_branch"}
        with np.load(self.path.with_suffix(".npz")) as stored:
            inputs = {k[3:] for k in stored.files if k.startswith("in/")}
            outputs = {k[4:] for k in stored.files if k.startswith("out/")}
            return (
                "input_ids" in inputs
                and all(n in known or "past" in n for n in inputs)
                and not any("encoder" in n for n in inputs | outputs)
                and "logits" in outputs
                and len(shape := stored["out/logits"].shape) == 3
                and shape[-1] > 64
            )

    @property
    def dynamic_quantization(self):
        """Whether activations are quantized over a whole run: results then depend on how a sequence
        is split.
        """
        return any(n.op == "DynamicQuantizeLinear" for n in every_node(self.graph))


@functools.cache
def models():
    """The models in the repository, and those of the zoo if it exists."""
    out = [Model(p, OWN.parent) for p in sorted(OWN.rglob("*.onnx"))]
    if folder():
        out += [
            Model(p, folder())
            for p in sorted(folder().rglob("*.onnx"))
            if p.with_suffix(".npz").exists()
        ]
    return out


def causal_lms():
    return [m for m in models() if m.is_causal_lm]


def difference(got, want, tolerance):
    """Describes the difference of an output; an empty string if there is none."""
    got = np.asarray(got)
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    if got.dtype != want.dtype:
        return f"dtype {got.dtype}, expected {want.dtype}"
    if want.dtype.kind in "biu":
        return "" if (got == want).all() else f"{(got != want).sum()} of {want.size} differ"
    g, w = got.astype("f8"), want.astype("f8")
    if not (np.isnan(g) == np.isnan(w)).all():
        return "NaN in other places"
    finite = np.isfinite(w) & np.isfinite(g)
    if not (g[~finite & ~np.isnan(w)] == w[~finite & ~np.isnan(w)]).all():
        return "infinities differ"
    error = np.abs(g - w)[finite].max(initial=0.0) / max(1.0, np.abs(w[finite]).max(initial=0.0))
    return f"error {error:.2e} > {tolerance:.0e}" if error > tolerance else ""
