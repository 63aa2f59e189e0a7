"""Loops, scans and branches of fixed shapes on a GPU: the session runs them between plans."""

import edgewise
import numpy as np
import onnxruntime
from session.control_flow.models import SCALAR, F, c, counting, graph, model, n, same, value

from .adapters import gpu


def test_loops_scans_and_branches():
    then, other = (
        graph([n(op, "s", out)], [], [value(out, F, [3])])
        for op, out in (("Tanh", "a"), ("Neg", "b"))
    )
    body = counting(
        [
            n("ReduceSum", "s", "total", keepdims=0),
            n("Less", "total zero", "low"),
            n("If", "low", "p", then_branch=then, else_branch=other),
            n("Add", "p w", "t"),
        ],
        [("s", "t", F, [3])],
    )
    scan = graph(
        [n("Add", "h e", "k"), n("Mul", "k w", "o")],
        [value("h", F, [3]), value("e", F, [3])],
        [value("k", F, [3]), value("o", F, [3])],
    )
    data = model(
        [
            n("Loop", "M  x", "y", body=body),
            n("Scan", "y rows", "z q", body=scan, num_scan_inputs=1),
        ],
        [SCALAR, value("x", F, [3]), value("rows", F, ["k", 3])],
        [value("y"), value("z"), value("q")],
        [c("zero", 0.0), c("w", [0.5, -1, 2], np.float32)],
    )
    session = edgewise.InferenceSession(data, engine=gpu(serial=True))
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for m, k in ((2, 3), (0, 1), (5, 3)):
        feeds = {"M": np.array(m), "x": np.float32([1, -2, 0.5])}
        feeds["rows"] = np.arange(3 * k, dtype="f4").reshape(k, 3) / 4
        same(session.run(None, feeds), reference.run(None, feeds))
    session.free()
