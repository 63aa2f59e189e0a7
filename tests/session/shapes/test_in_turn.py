"""One session that is given other shapes in turn: what depends on constants and on a length alone,
such as a table that is sliced to the length, or learned queries that are expanded to the batch.
"""

import edgewise
import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise.session.inference import InferenceSession
from engines.page_session import PageSession

from ..models import B, F, constant, model, node, value

HOSTS = {"native": InferenceSession, "page": PageSession}
RANDOM = np.random.default_rng(0)
SIZE = 256  # rows of tables: above what plans contain as numbers
LENGTHS = [
    node("Shape", "x", "shape"),
    node("Gather", "shape zero", "b"),
    node("Gather", "shape one", "n"),
]
NUMBERS = [
    constant(name, np.array([number]))
    for name, number in dict(zero=0, one=1, two=2, three=3, four=4, hundred=100).items()
]
TABLE = constant("table", RANDOM.standard_normal((1, SIZE, 4), np.float32))
SLICED = [*LENGTHS, node("Slice", "table zero n one", "t")]
CASES = {
    "mask": (
        [
            *LENGTHS,
            node("Slice", "mask zero n two", "rows"),
            node("Slice", "rows zero n three", "m"),
            node("Unsqueeze", "x one", "xu"),
            node("Transpose", "xu", "xt", perm=[0, 1, 3, 2]),
            node("MatMul", "xu xt", "s"),
            node("Add", "s m", "y"),
        ],
        [constant("mask", np.triu(np.full((1, 1, SIZE, SIZE), -1e4, np.float32), 1))],
    ),
    "softmax": ([*SLICED, node("Softmax", "t", "p", axis=1), node("Add", "p x", "y")], [TABLE]),
    "convolution": (
        [
            *SLICED,
            node("Transpose", "t", "tt", perm=[0, 2, 1]),
            node("Conv", "tt kernel", "c", pads=[1, 1]),
            node("Transpose", "c", "ct", perm=[0, 2, 1]),
            node("Add", "ct x", "y"),
        ],
        [TABLE, constant("kernel", RANDOM.standard_normal((4, 4, 3), np.float32))],
    ),
    "heads": (
        [
            *SLICED,
            node("Concat", "b n four", "to", axis=0),
            node("Expand", "t to", "e"),
            node("Concat", "b n two two", "to4", axis=0),
            node("Reshape", "e to4", "r"),
            node("Transpose", "r", "rt", perm=[0, 2, 1, 3]),
            node("Reshape", "rt to", "y"),
        ],
        [TABLE],
    ),
    "queries": (
        [
            *LENGTHS,
            node("Concat", "b hundred four", "to", axis=0),
            node("Expand", "q to", "e"),
            node("MatMul", "e w", "p"),
            node("Concat", "b hundred two two", "to4", axis=0),
            node("Reshape", "p to4", "pr"),
            node("Transpose", "pr", "pt", perm=[0, 2, 1, 3]),
            node("Concat", "b n two two", "k4", axis=0),
            node("Reshape", "x k4", "xr"),
            node("Transpose", "xr", "xt", perm=[0, 2, 3, 1]),
            node("MatMul", "pt xt", "y"),
        ],
        [
            constant("q", RANDOM.standard_normal((1, 100, 4), np.float32)),
            constant("w", RANDOM.standard_normal((4, 4), np.float32)),
        ],
    ),
    "row": (
        [
            *LENGTHS,
            node("Concat", "b n four", "to", axis=0),
            node("Expand", "row to", "e"),
            node("Concat", "b n two two", "to4", axis=0),
            node("Reshape", "e to4", "r"),
            node("Transpose", "r", "rt", perm=[0, 2, 1, 3]),
            node("Reshape", "rt to", "y"),
        ],
        [constant("row", np.float32([[[0.5, 1, 2, 3]]]))],
    ),
    "positions": (
        [
            *LENGTHS,
            node("Slice", "buffer zero n one", "some"),
            node("Concat", "b n", "to", axis=0),
            node("Expand", "some to", "index"),
            node("Gather", "rows index", "y"),
        ],
        [
            constant("buffer", np.arange(SIZE)[None]),
            constant("rows", RANDOM.standard_normal((SIZE, 4), np.float32)),
        ],
    ),
}
# Shapes in turn: a batch that grows, lengths that grow, both, with gaps, and shapes of before.
TURNS = {
    "lengths": [(1, 4), (1, 5), (1, 9), (1, 7), (1, 4)],
    "lengths of a batch": [(2, 4), (2, 5), (2, 9), (2, 100), (2, 5)],
    "batches": [(2, 5), (3, 5), (4, 5), (8, 5), (2, 5)],
    "both": [(1, 6), (1, 7), (2, 6), (3, 6), (3, 8), (1, 6)],
    "equal sizes": [(3, 8), (4, 6), (2, 12), (3, 8), (5, 8), (2, 9)],
}


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("host", HOSTS)
def test_shapes_in_turn(host, case, turns):
    nodes, constants = CASES[case]
    used = {name for n in nodes for name in n.input}
    data = model(
        nodes,
        [value("x", F, ("batch", "length", 4))],
        [value("y", F, None)],
        [*(c for c in NUMBERS if c.name in used), *constants],
        opset=13,
    )
    session, reference = HOSTS[host](data), onnxruntime.InferenceSession(data)
    for shape in TURNS[turns]:
        feeds = {"x": RANDOM.standard_normal((*shape, 4), np.float32)}
        for _ in range(3):  # the third is a recorded run
            (found,) = session.run(None, feeds)
        (wanted,) = reference.run(None, feeds)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=str(shape))
    session.free()


def test_plans_share_what_they_compute_of_equal_constants():
    """A weight that is laid out anew for two lengths is stored once."""
    data = model(
        [node("MatMul", "x w", "p"), node("Transpose", "v", "vt"), node("MatMul", "p vt", "y")],
        [value("x", F, ("a", "b", 64))],
        [value("y", F, None)],
        [constant(n, RANDOM.standard_normal((64, 64), np.float32)) for n in "wv"],
    )
    session = edgewise.InferenceSession(data)
    for shape in ((1, 3), (2, 70), (5, 300)):
        session.run(None, {"x": np.zeros((*shape, 64), np.float32)})
    names = [{s.name for s in c.plan.slots if s.kind == "computed"} for c in session.plans.values()]
    assert set(session.store.computed) == set().union(*names)
    assert len(session.store.computed) <= max(map(len, names)) + 1


def test_inner_constants_of_one_name():
    """Both branches of an If have a constant `w` of equal size."""

    def branch(number):
        w = constant("w", np.full((64, 64), number, np.float32))
        nodes, outputs = [node("MatMul", "x w", "y")], [value("y", F, ("n", 64))]
        return onnx.helper.make_graph(nodes, "branch", [], outputs, [w])

    nodes = [node("If", "c", "y", then_branch=branch(1.0), else_branch=branch(2.0))]
    inputs = [value("c", B, ()), value("x", F, ("n", 64))]
    data = model(nodes, inputs, [value("y", F, ("n", 64))])
    session = edgewise.InferenceSession(data)
    for flag, n in ((True, 2), (False, 2), (True, 3), (False, 5), (True, 2)):
        x = np.ones((n, 64), np.float32)
        (y,) = session.run(None, {"c": np.array(flag), "x": x})
        assert (y == (64 if flag else 128)).all()


def test_inner_constants_in_two_files(tmp_path):
    """The branches' constants `w` lie at the same place of two files of external data."""

    def branch(number, file):
        w = constant("w", np.full((64, 64), number, np.float32))
        onnx.external_data_helper.set_external_data(w, location=file)
        nodes, outputs = [node("MatMul", "x w", "y")], [value("y", F, ("n", 64))]
        (tmp_path / file).write_bytes(w.raw_data)
        w.ClearField("raw_data")
        return onnx.helper.make_graph(nodes, "branch", [], outputs, [w])

    chosen = node("If", "c", "y", then_branch=branch(1, "a.bin"), else_branch=branch(2, "b.bin"))
    inputs = [value("c", B, ()), value("x", F, ("n", 64))]
    path = tmp_path / "model.onnx"
    path.write_bytes(model([chosen], inputs, [value("y", F, ("n", 64))]))
    session = edgewise.InferenceSession(path)
    for flag, n in ((True, 2), (False, 2), (True, 3), (False, 5), (True, 2)):
        (y,) = session.run(None, {"c": np.array(flag), "x": np.ones((n, 64), np.float32)})
        assert (y == (64 if flag else 128)).all()


@pytest.mark.parametrize("host", HOSTS)
def test_a_plan_for_zero_is_not_for_negative_zero(host):
    """A plan contains the numbers that shapes depend on: 1 / 0.0 is inf, and 1 / -0.0 is -inf."""
    nodes = [node("Range", "start limit delta", "r"), node("Div", "number start", "y")]
    inputs = [value(name, F, []) for name in ("start", "limit", "delta")]
    data = model(nodes, inputs, [value("r"), value("y")], [constant("number", np.float32(1))])
    session = HOSTS[host](data)
    for sign in (1, -1, 1, -1, -1, -1, 1, 1, 1):
        start = np.float32(0) * np.float32(sign)
        _, got = session.run(None, {"start": start, "limit": np.float32(2), "delta": np.float32(1)})
        with np.errstate(divide="ignore"):
            np.testing.assert_equal(got, np.float32(1) / start)
