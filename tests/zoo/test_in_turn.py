"""Each model in one session that is given other shapes in turn, compared with a new session for
each shape and with onnxruntime: what a plan keeps of one shape must not reach the next one.
"""

import os
from pathlib import Path

import edgewise
import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise.inspect import every_node
from edgewise.onnx import FileSource, read_model
from engines.page_session import PageSession
from tiers import slow_unless

from .turns import cases_in_turn
from .zoo import HERE, LOOSE, OWN, difference, models

HOSTS = {
    "native": lambda path: edgewise.InferenceSession(str(path)),
    "page": lambda path: PageSession(onnx.load(path).SerializeToString()),
}
# accuracy_level 4 permits activations of 8 bits, which the page uses for many rows and onnxruntime
# for some: random weights amplify them, those of Qwen3.5's recurrence up to 0.36
INT8_ACTIVATIONS = {"native": 0.25, "page": 0.5}
EVERY = 16  # of the models outside of the repository, `make test` runs one of so many


class Recent:
    """A model of the folder zoo2026, with the inputs of its first case."""

    def __init__(self, path):
        self.path, self.name = path, path.parent.name
        self.tolerance = 2e-2 if any(m in self.name for m in LOOSE) else 1e-4

    def __repr__(self):
        return self.name

    @property
    def graph(self):
        return read_model(FileSource(self.path))

    @property
    def feeds(self):
        with np.load(self.path.with_name("inputs.npz")) as z:
            return {k[6:]: z[k] for k in z.files if k.startswith("case0/")}


def recent():
    """The models of $EDGEWISE_ZOO2026, or of the default folder; none where it is absent."""
    path = os.environ.get("EDGEWISE_ZOO2026") or HERE.parents[2] / "shared" / "zoo2026"
    return [Recent(p) for p in sorted(Path(path).glob("models/*/model.onnx"))]


ALL = [*models(), *recent()]
CASES = [(host, number) for number in range(len(ALL)) for host in HOSTS]


def is_quick(host, number):
    return OWN in ALL[number].path.parents or number % EVERY == list(HOSTS).index(host)


def reference_of(path):
    """onnxruntime; None where it cannot run the model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception:  # it has classes of its own for each reason
        return None


def _as_far(run, feeds, output, found, wanted):
    """Whether onnxruntime is as far from itself, if the inputs are rounded to 11 bits otherwise:
    some models of halves amplify it.
    """
    if wanted.dtype != np.float16:
        return False
    noise = np.random.default_rng(1)
    other = {
        n: (x * (1 + noise.choice([-1, 1], x.shape) * 2**-11)).astype(x.dtype)
        if x.dtype.kind == "f"
        else x
        for n, x in feeds.items()
    }
    apart = np.abs(run(other)[output].astype("f8") - wanted).max()
    return np.abs(found.astype("f8") - wanted).max() <= 3 * apart


@pytest.mark.parametrize("host, number", slow_unless(is_quick, CASES))
def test_shapes_in_turn(host, number):
    model = ALL[number]
    reference = reference_of(model.path)
    if reference is None:
        pytest.skip(f"onnxruntime cannot run {model}")

    def run(feeds):
        try:
            return reference.run(None, feeds)
        except Exception:
            return None

    tolerance = model.tolerance
    if any(n.attrs.get("accuracy_level", 0) >= 4 for n in every_node(model.graph)):
        tolerance = INT8_ACTIVATIONS[host]
    names = [o.name for o in reference.get_outputs()]
    session, wrong, shapes = HOSTS[host](model.path), [], []
    for feeds, wanted in cases_in_turn(reference.get_inputs(), model.feeds, run):
        shapes.append({name: x.shape for name, x in feeds.items()})
        new = HOSTS[host](model.path)
        for n, x, y, w in zip(names, session.run(names, feeds), new.run(names, feeds), wanted):
            exact = y.astype(np.float32) if y.dtype.kind == "f" else y
            of_one = difference(x.astype(exact.dtype), exact, min(model.tolerance, 2e-3))
            if of_one:
                wrong.append(("in turn", shapes[-1], n, of_one))
            if (d := difference(y, w, tolerance)) and not _as_far(run, feeds, names.index(n), y, w):
                wrong.append(("new", shapes[-1], n, d))
        new.free()
    session.free()
    assert not wrong, model
    if not shapes:
        pytest.skip(f"onnxruntime runs {model} in no shape")
