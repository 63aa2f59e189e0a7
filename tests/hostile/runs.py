"""Runs damaged models in a session: the result is an EdgewiseError or none."""

import edgewise
import numpy as np
from edgewise.onnx import BytesSource


def session(data, siblings=None):
    options = edgewise.SessionOptions()
    options.max_loop_trips = 2000
    return edgewise.InferenceSession(BytesSource(data, "model.onnx", siblings), options)


def run(data, siblings=None, **feeds):
    s = session(data, siblings)
    try:
        return s.run(
            None,
            {
                n: np.asarray(v, "f4" if np.asarray(v).dtype.kind == "f" else None)
                for n, v in feeds.items()
            },
        )
    finally:
        s.free()
