"""Invalid models: mutated, truncated, deeply nested, too large, or inconsistent."""

import edgewise
import numpy as np
import onnx
import pytest
from edgewise.errors import InputError, ModelError, OutOfMemory, UnsupportedOp
from edgewise.onnx import BytesSource, read_model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto as T
from onnx import helper as h

from .fuzz_onnx import campaign
from .runs import run, session
from .seeds import F, I, c, i64, model, node, real, small, value
from .wire import varint


# ---- random damage ----
def test_mutation_campaign():
    """300 damaged models in child processes; `python tests/hostile/fuzz_onnx.py` runs any
    number.
    """
    counts, findings = campaign(300, seed=20)
    assert not findings, "\n\n".join(findings)
    assert (
        sum(counts.values()) > 100
        and counts["ran"]
        and counts["ModelError"]
        and counts["InputError"]
        and counts["UnsupportedOp"]
    ), counts


@pytest.mark.parametrize("name", list(small()))
def test_truncated_small(name, refused):
    data, siblings = small()[name]
    for n in range(0, len(data), 16):
        refused(lambda: read_model(BytesSource(data[:n], "model.onnx", siblings)), may_work=True)
    refused(
        lambda: read_model(BytesSource(data[: len(data) // 2], "model.onnx", siblings)), ModelError
    )


@pytest.mark.parametrize("name", list(real()))
def test_truncated_real(name, refused):
    """Truncated at every 64th byte. The graph precedes or follows the weights, so most cuts damage
    something.
    """
    data, siblings = real()[name]
    step = (
        64 if len(data) < 100_000 else 64 * (len(data) // 64 // 500)
    )  # long files at 500 positions, both odd and even
    for n in list(range(0, len(data), step)) + list(range(1, 4000, 64)):
        refused(lambda: read_model(BytesSource(data[:n], "model.onnx", siblings)), ModelError)


@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(sorted(small())),
    st.lists(
        st.tuples(st.integers(0, 1 << 16), st.binary(max_size=12), st.integers(0, 12)),
        min_size=1,
        max_size=4,
    ),
)
def test_mutated(refused, name, edits):
    data, siblings = small()[name]
    for at, new, drop in edits:
        at %= len(data)
        data = data[:at] + new + data[at + drop :]

    def all_of_it():
        s = session(data or b"\0", siblings)
        try:
            sizes = {"b": 2, "s": 3}
            s.run(
                None,
                {
                    i.name: np.ones(
                        [
                            sizes.get(d, d if isinstance(d, int) and 0 <= d < 50 else 2)
                            for d in i.shape or []
                        ],
                        {"tensor(bool)": "?", "tensor(int32)": "i4", "tensor(int64)": "i8"}.get(
                            i.type, "f4"
                        ),
                    )
                    for i in s.get_inputs()
                },
            )
        finally:
            s.free()

    refused(all_of_it, may_work=True)


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=300))
def test_random_bytes(refused, data):
    refused(lambda: session(data), ModelError)


# ---- the wire format ----
def test_files_that_are_not_models(refused):
    for data in (
        b"",
        b"\0",
        b"GIF89a",
        b"{}",
        b"<!doctype html>" * 40,
        varint(7 << 3 | 2) + varint(1 << 40),
        bytes(1000),
        b"\xff" * 1000,
    ):
        e = refused(lambda: session(data), ModelError)
        assert "model.onnx" in e.where
    refused(lambda: edgewise.InferenceSession("/no/such/file.onnx"), ModelError, "cannot open")
    refused(lambda: edgewise.InferenceSession("/"), ModelError)
    refused(lambda: edgewise.InferenceSession("a\0b"), ModelError)
    refused(lambda: edgewise.InferenceSession(5), InputError)
    refused(lambda: edgewise.InferenceSession(None), InputError)


def test_claimed_sizes_are_not_allocated(refused):
    """Sizes that a file claims but does not have are never allocated."""

    def tensor(*fields):
        return varint(5 << 3 | 2) + varint(len(b := b"".join(fields))) + b

    dims = lambda *d: b"".join(varint(1 << 3) + varint(x) for x in d)  # noqa: E731
    kind = lambda x: varint(2 << 3) + varint(x)  # noqa: E731
    graph = lambda body: (
        varint(7 << 3 | 2)
        + varint(len(body))
        + body
        + varint(8 << 3 | 2)
        + varint(2)
        + varint(2 << 3)
        + varint(18)
    )  # noqa: E731
    for t in (
        dims(1 << 62) + kind(1),
        dims(1 << 31, 1 << 31, 1 << 31) + kind(1),
        dims(*[1] * 100_000) + kind(1),
        dims((1 << 64) - 1) + kind(1),
        dims(4) + kind(99),
        dims(4) + kind(1) + varint(9 << 3 | 2) + varint(3) + b"abc",
        dims(1 << 39) + kind(3) + varint(9 << 3 | 2) + varint(0),
        dims(4) + kind(1),
        dims(1 << 20) + kind(22) + varint(5 << 3 | 2) + varint(2) + b"\1\1",
    ):
        refused(lambda: session(graph(tensor(t))), ModelError)


def test_nesting(refused):
    body = b""
    for _ in range(5000):  # a graph in an attribute of a node of a graph ...
        a = varint(6 << 3 | 2) + varint(len(body)) + body
        n = varint(5 << 3 | 2) + varint(len(a)) + a
        body = varint(1 << 3 | 2) + varint(len(n)) + n
    refused(
        lambda: session(varint(7 << 3 | 2) + varint(len(body)) + body),
        ModelError,
        "nested too deeply",
    )


def test_deep_branches(refused):
    """If nested in If nested in If ..."""
    inner = h.make_graph([node("Identity", "x", "r0")], "g0", [], [value("r0", F, None)])
    for k in range(1, 16):
        inner = h.make_graph(
            [
                (
                    node("If", "c", f"r{k}", then_branch=inner, else_branch=inner)
                    if k < 3
                    else h.make_node("If", ["c"], [f"r{k}"], then_branch=inner)
                )
            ],
            f"g{k}",
            [],
            [value(f"r{k}", F, None)],
        )
    data = model(
        [h.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
        [value("x"), value("c", T.BOOL, ())],
        [value("y", F, None)],
    )
    refused(lambda: run(data, x=np.ones((1, 4)), c=np.array(True)), may_work=True)


def test_functions_that_expand_exponentially(refused):
    """Forty functions that each call the next one twice: 2^40 nodes when inlined."""
    functions = []
    for k in range(40):
        body = (
            [
                h.make_node(f"F{k + 1}", ["a"], ["h"], domain="local"),
                h.make_node(f"F{k + 1}", ["h"], ["b"], domain="local"),
            ]
            if k < 39
            else [node("Relu", "a", "b")]
        )
        functions.append(
            h.make_function(
                "local",
                f"F{k}",
                ["a"],
                ["b"],
                body,
                [h.make_opsetid("", 18), h.make_opsetid("local", 1)],
            )
        )
    for last in (20, 39):
        data = model(
            [h.make_node(f"F{39 - last}", ["x"], ["y"], domain="local")],
            [value("x")],
            [value("y", F, None)],
            functions=functions,
        )
        refused(lambda: run(data, x=np.ones((1, 4))), ModelError)
    itself = h.make_function(
        "local",
        "F",
        ["a"],
        ["b"],
        [h.make_node("F", ["a"], ["b"], domain="local")],
        [h.make_opsetid("local", 1)],
    )
    refused(
        lambda: run(
            model(
                [h.make_node("F", ["x"], ["y"], domain="local")],
                [value("x")],
                [value("y", F, None)],
                functions=[itself],
            ),
            x=np.ones((1, 4)),
        ),
        ModelError,
        "nested too deeply",
    )


def test_large_graphs_take_linear_time(refused):
    """8,000 nodes in sequence, in reverse order in the file."""
    n = 8_000
    chain = [node("Add", f"v{k} one", f"v{k + 1}") for k in range(n)][::-1]
    got = refused(
        lambda: run(
            model(chain, [value("v0")], [value(f"v{n}", F, None)], [c("one", 1.0)]),
            v0=np.zeros((1, 4)),
        ),
        may_work=True,
    )
    assert np.asarray(got[0]).tolist() == [[n] * 4]


# ---- inconsistent graphs ----
Y = [value("y", F, None)]


@pytest.mark.parametrize(
    "nodes, constants, text",
    [
        ([node("Relu", "nowhere", "y")], [], "'nowhere' is computed by no node"),
        ([node("Relu", "x", "z")], [], "no node computes it"),
        (
            [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")],
            [],
            "depends on its own output",
        ),
        ([node("Relu", "x", "y"), node("Abs", "x", "y")], [], "two nodes compute 'y'"),
        (
            [node("Relu", "x", "w"), node("Relu", "w", "y")],
            [c("w", [1.0])],
            "an input or a constant already",
        ),
        ([node("Relu", "y", "x"), node("Relu", "x", "y")], [], "an input or a constant already"),
        ([h.make_node("Nothing", ["x"], ["y"])], [], "operator Nothing"),
        ([h.make_node("Relu", ["x"], ["y"], domain="org.example")], [], "org.example.Relu"),
        ([node("Relu", "x", "y z")], [], "unexpected output 'z'"),
        ([node("Relu", "", "y")], [], "Relu"),
        ([node("Softmax", "x", "y", axis=7)], [], "axis 7"),
        ([node("Softmax", "x", "y", axis=-3)], [], "axis -3"),
        ([node("Softmax", "x", "y", axis=1.5)], [], "'axis' is of the wrong kind"),
        ([node("Softmax", "x", "y", axis="last")], [], "'axis' is of the wrong kind"),
        ([node("Transpose", "x", "y", perm=[0, 0])], [], "perm"),
        ([node("Transpose", "x", "y", perm=1)], [], "'perm' is of the wrong kind"),
        ([node("Transpose", "x", "y", perm=[0.0, 1.0])], [], "'perm' is of the wrong kind"),
        ([node("Concat", "x w", "y", axis=0)], [c("w", [1.0])], "does not fit"),
        ([node("Concat", "x w", "y", axis="0")], [c("w", [[1.0]])], "wrong kind"),
        ([node("Reshape", "x s", "y")], [i64("s", 5, -1)], "cannot be reshaped"),
        ([node("Reshape", "x s", "y")], [i64("s", -1, -1)], "-1"),
        ([node("Reshape", "x s", "y")], [i64("s", -4, -2)], "negative"),
        ([node("Reshape", "x s", "y")], [i64("s", 1 << 62, 4)], "reshaped"),
        ([node("Expand", "x s", "y")], [i64("s", 3)], "broadcast"),
        ([node("Expand", "x s", "y")], [i64("s", 1 << 40, 2, 4)], "shape"),
        ([node("Tile", "x s", "y")], [i64("s", 1 << 30, 1 << 30)], "shape"),
        ([node("ConstantOfShape", "s", "y")], [i64("s", -5)], "negative"),
        ([node("ConstantOfShape", "s", "y")], [i64("s", 1 << 50)], "shape"),
        ([node("Pad", "x s", "y")], [i64("s", 0, -3, 0, -3)], "shape"),
        ([node("Range", "a b d", "y")], [c("a", 0.0), c("b", float("nan")), c("d", 1.0)], "finite"),
        ([node("Range", "a b d", "y")], [c("a", 0.0), c("b", 1.0), c("d", 0.0)], "its step is 0"),
        ([node("Range", "a b d", "y")], [c("a", 0.0), c("b", 1e30), c("d", 1.0)], "elements"),
        ([node("MatMul", "x w", "y")], [c("w", [[1.0]])], "do not fit"),
        ([node("MatMul", "x w", "y")], [c("w", [[1], [1], [1], [1]], np.int64)], "element types"),
        ([node("Gather", "x w", "y")], [c("w", [0.0])], "indices"),
        ([node("Gather", "x w", "y")], [i64("w", 2)], "index"),
        ([node("Gather", "x w", "y", axis=1)], [i64("w", 0, 1, 4)], "index"),
        ([node("Gather", "x w", "y", axis=1)], [i64("w", 0, -5)], "index"),
        (
            [node("Slice", "x a b a s", "y")],
            [i64("a", 0), i64("b", 1), i64("s", 0)],
            "its step is 0",
        ),
        ([node("Slice", "x a b c", "y")], [i64("a", 0), i64("b", 1), i64("c", 9)], "axis"),
        ([node("Split", "x s", "y z", axis=1)], [i64("s", 3, 3)], "split"),
        ([node("Split", "x s", "y z", axis=1)], [i64("s", -1, 5)], "split"),
        ([node("TopK", "x k", "y i")], [i64("k", 9)], "k = 9"),
        ([node("Cast", "x", "y", to=99)], [], "element type"),
        ([node("Cast", "x", "s", to=8), node("Relu", "s", "y")], [], "string"),
        ([node("Cast", "x", "y")], [], "element type"),
        ([node("Add", "x w", "y")], [c("w", [1, 2, 3, 4], np.int32)], "element types"),
        ([node("If", "w", "y")], [c("w", [1.0])], "bool"),
        ([node("If", "w", "y")], [c("w", True, np.bool_)], "branch"),
        ([node("If", "w", "y", then_branch=3)], [c("w", True, np.bool_)], "branch"),
        ([node("LayerNormalization", "x w", "y")], [c("w", [1.0, 2])], "LayerNormalization"),
        (
            [node("Constant", "", "s", value_string="a"), node("Cast", "s", "y", to=1)],
            [],
            "not a number",
        ),
    ],
)
def test_inconsistent_graphs(nodes, constants, text, refused):
    e = refused(lambda: run(model(nodes, [value("x")], Y, constants), x=np.ones((1, 4))))
    assert text in str(e), str(e)


def test_duplicate_names(refused):
    m = onnx.load_from_string(model([node("Relu", "x", "y")], [value("x")], Y))
    m.graph.input.append(m.graph.input[0])
    refused(lambda: session(m.SerializeToString()), ModelError, "name")
    m = onnx.load_from_string(
        model([node("Add", "x w", "y")], [value("x")], Y, [c("w", [1.0]), c("w", [2.0])])
    )
    refused(lambda: session(m.SerializeToString()), ModelError, "two initializers are named 'w'")


def test_long_names(refused):
    """Messages that quote long names stay short; names above the reader's limit, which no exporter
    writes, are refused.
    """
    long = "n" * 300_000
    for data in (
        model([node("Relu", long, "y")], [value("x")], Y),
        model([h.make_node(long, ["x"], ["y"])], [value("x")], Y),
        model([node("Relu", "x", "y")], [value(long)], Y),
    ):
        refused(lambda: run(data, x=np.ones((1, 4))), ModelError, match="a name of 300000 bytes")
    long = "n" * 4000
    refused(
        lambda: run(model([node("Relu", long, "y")], [value("x")], Y), x=np.ones((1, 4))),
        ModelError,
    )
    refused(
        lambda: run(model([h.make_node(long, ["x"], ["y"])], [value("x")], Y), x=np.ones((1, 4))),
        UnsupportedOp,
    )
    refused(
        lambda: session(model([node("Relu", "x", "y")], [value(long)], Y)).run(None, {"y": 1}),
        InputError,
    )


def test_sizes_larger_than_memory(refused):
    """Valid sizes that are too large are refused by the engine or by the limit of 2^31 in plans."""
    for shape in ([1 << 15, 1 << 15, 64], [1 << 20, 1 << 18]):
        data = model(
            [
                node("Expand", "x s", "e"),
                node("Relu", "e", "r"),
                node("ReduceSum", "r", "y", keepdims=0),
            ],
            [value("x", F, (1,))],
            Y,
            [i64("s", *shape)],
        )
        refused(lambda: run(data, x=np.ones(1)), (OutOfMemory, ModelError, UnsupportedOp))


def test_invalid_indices_in_data(refused):
    """Invalid indices in data: the error names the node, and the session still works."""
    data = model(
        [node("Gather", "t i", "y")],
        [value("i", I, ("n",))],
        Y,
        [c("t", np.arange(12).reshape(6, 2))],
    )
    s = session(data)
    for bad in ([6], [-7], [0, 1 << 40], [-(1 << 63)], [(1 << 63) - 1]):
        e = refused(lambda: s.run(None, {"i": np.array(bad)}), InputError, "out of range")
        assert "'y' (Gather)" in e.where
    assert s.run(None, {"i": np.array([5, -6])})[0].tolist() == [[10, 11], [0, 1]]
    f = model(
        [node("Cast", "x", "i", to=I), node("GatherElements", "t i", "y", axis=1)],
        [value("x")],
        Y,
        [c("t", [[1.0, 2, 3]])],
    )
    for bad in (np.inf, -np.inf, 1e30, 3, -4):  # (a NaN is cast to 0)
        refused(lambda: run(f, x=np.full((1, 4), float(bad))), InputError, "out of range")


def test_shapes_from_data(refused):
    """A shape that is an input, or is computed from one."""
    data = model([node("Reshape", "x s", "y")], [value("x"), value("s", I, ("r",))], Y)
    s = session(data)
    x = np.arange(8, dtype="f4").reshape(2, 4)
    assert s.run(None, {"x": x, "s": np.array([4, 2])})[0].shape == (4, 2)
    for bad in ([3, 3], [-1, -1], [1 << 62], [-5], [0, 0, 0], [2] * 100):
        refused(lambda: s.run(None, {"x": x, "s": np.array(bad)}))
    assert s.run(None, {"x": x, "s": np.array([-1])})[0].shape == (8,)
