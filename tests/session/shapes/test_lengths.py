"""Plans for a range of lengths, natively and in a page: a decoder with growing caches gives the
results of onnxruntime at every length, and is compiled only a few times.
"""

import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise import InferenceSession
from edgewise.compiler.plan.plan import HEADER
from edgewise.errors import UnsupportedOp
from edgewise.host.session import inference_calls
from edgewise.host.session.lengths import MIN, ROOM, find_lengths
from edgewise.logic.manifest.limits import MAX_LENGTH
from engines.page_session import PageSession

from ..models import F, I, constant, model, node, value

HEADS, DIM, WORDS = 2, 8, 40
POSITIONS = ROOM + 40
"""Of the decoder's table: lengths beyond ROOM are compiled for again."""


# long: a graph, node by node
def decoder(positions=POSITIONS):
    """One layer of attention: a token, the keys and values of earlier tokens, a mask of all."""
    random, width = np.random.default_rng(3), HEADS * DIM

    def weight(name, *shape):
        return constant(name, (random.standard_normal(shape) / 3).astype("f4"))

    caches = [1, HEADS, "past", DIM]
    grown = [1, HEADS, "total", DIM]
    nodes = [
        node("Shape", "past_key", "length", start=2, end=3),
        node("Gather", "table length", "position"),
        node("Gather", "words ids", "word"),
        node("Add", "word position", "x"),
        *(
            made
            for of in ("q", "k", "v")
            for made in (
                node("MatMul", f"x w{of}", f"{of}0"),
                node("Reshape", f"{of}0 split", f"{of}1"),
                node("Transpose", f"{of}1", f"{of}2", perm=[0, 2, 1, 3]),
            )
        ),
        node("Concat", "past_key k2", "key", axis=2),
        node("Concat", "past_value v2", "value", axis=2),
        node("Transpose", "key", "turned", perm=[0, 1, 3, 2]),
        node("MatMul", "q2 turned", "scores"),
        node("Cast", "mask", "there", to=1),
        node("Sub", "there one", "away"),
        node("Mul", "away large", "added"),
        node("Unsqueeze", "added middle", "mask4"),
        node("Add", "scores mask4", "masked"),
        node("Softmax", "masked", "shares", axis=-1),
        node("MatMul", "shares value", "mixed"),
        node("Transpose", "mixed", "heads", perm=[0, 2, 1, 3]),
        node("Reshape", "heads join", "flat"),
        node("MatMul", "flat out", "logits"),
        node("ReduceMean", "key rows", "mean", keepdims=0),
        node("Shape", "key", "shape"),
    ]
    return model(
        nodes,
        [
            value("ids", I, [1, 1]),
            value("mask", I, [1, "total"]),
            value("past_key", F, caches),
            value("past_value", F, caches),
        ],
        [
            value("logits", F, [1, 1, WORDS]),
            value("key", F, grown),
            value("value", F, grown),
            value("mean", F, [1, HEADS, DIM]),
            value("shape", I, [4]),
            value("mask4", F, [1, 1, 1, "total"]),
        ],
        [
            weight("words", WORDS, width),
            weight("table", positions, width),
            *(weight(f"w{of}", width, width) for of in "qkv"),
            weight("out", width, WORDS),
            constant("split", np.array([0, 0, HEADS, DIM])),
            constant("join", np.array([0, 0, width])),
            constant("one", np.float32(1)),
            constant("large", np.float32(1e4)),
            constant("middle", np.array([1, 2])),
            constant("rows", np.array([2])),
        ],
    )


def feeds_of(length, random):
    """Inputs after `length` tokens; the mask hides one of them."""
    caches = random.standard_normal((2, 1, HEADS, length, DIM), np.float32)
    mask = np.ones((1, length + 1), np.int64)
    mask[0, length // 2] = length < 2
    ids = random.integers(0, WORDS, (1, 1))
    return {"ids": ids, "mask": mask, "past_key": caches[0], "past_value": caches[1]}


def same(found, wanted, tolerance=2e-6):
    """Whether two lists of arrays have the same shapes, types and, about, numbers."""
    for a, b in zip(found, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, tolerance, tolerance)


HOSTS = {
    "native": (InferenceSession, lambda s: len(s.plans)),
    "page": (PageSession, lambda s: s.asked.count("part")),
}


@pytest.mark.parametrize("host", HOSTS)
def test_every_length_is_as_onnxruntime_computes_it(host):
    """Caches that grow by one up to the end of the model's table, then lengths in any order."""
    data, random = decoder(), np.random.default_rng(4)
    make, plans = HOSTS[host]
    session = make(data)
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    lengths = [*range(POSITIONS), *random.permutation(POSITIONS)[:40].tolist(), 7, 7, 7, 8]
    counts = []
    for length in lengths:
        feeds = feeds_of(length, random)
        same(session.run(None, feeds), reference.run(None, feeds))
        counts.append(plans(session))
    # 0, 1 and 2 alone, a range up to ROOM, another one up to the end of the table
    assert counts[4] == counts[ROOM] and counts[-1] == counts[ROOM + 1] <= 5
    session.free()


@pytest.mark.parametrize("host", HOSTS)
def test_outputs_that_are_fed_again(host):
    """A decoder that runs on its own outputs gives what a session with a plan for each length
    gives.
    """
    data, random = decoder(), np.random.default_rng(5)
    session, names = HOSTS[host][0](data), ["logits", "key", "value"]
    feeds = feeds_of(3, random)
    for length in range(3, 40):
        feeds["mask"] = np.ones((1, length + 1), np.int64)
        feeds["ids"] = random.integers(0, WORDS, (1, 1))
        alone = InferenceSession(data)
        wanted = alone.run(names, feeds)
        found = session.run(names, feeds)
        same(found, wanted, 1e-6)
        _, feeds["past_key"], feeds["past_value"] = found
    session.free()


def test_direct_runs_of_one_plan():
    """Shapes that come again are run directly, each with its own length."""
    data, random = decoder(), np.random.default_rng(6)
    session = InferenceSession(data)
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for length in (4, 5, 6, 6, 6, 20, 20, 20, 6, 20, 9, 6, 9, 9, 9, 20, 5):
        feeds = feeds_of(length, random)
        same(session.run(None, feeds), reference.run(None, feeds))
    assert len(session.direct.kept[None]) >= 3 and len(session.plans) == 2


def test_a_page_keeps_them():
    """The next visit's session has the plan for all lengths of the range without Python."""
    data, random = decoder(), np.random.default_rng(7)
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    first = PageSession(data, cache=True)
    for length in (4, 5, 6):
        first.run(None, feeds_of(length, random))
    second = PageSession(data, cache=True)
    for length in (4, 30, 100, ROOM, 2):
        feeds = feeds_of(length, random)
        same(second.run(None, feeds), reference.run(None, feeds))
    assert second.asked == []
    feeds = feeds_of(ROOM + 1, random)
    same(second.run(None, feeds), reference.run(None, feeds))
    assert "part" in second.asked
    second.free()


def test_a_page_feeds_outputs_that_stayed():
    """Caches that stay in the engine have room for the next length."""
    data, random = decoder(), np.random.default_rng(8)
    session, names = PageSession(data), ["logits", "key", "value"]
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    feeds = feeds_of(2, random)
    plain, pinned = dict(feeds), dict(feeds)
    for length in range(2, 20):
        step = {
            "mask": np.ones((1, length + 1), np.int64),
            "ids": random.integers(0, WORDS, (1, 1)),
        }
        wanted = reference.run(names, {**plain, **step})
        found = session.run(names, {**pinned, **step}, pinned=["key", "value"])
        same(found[:1], wanted[:1])
        before = [v for v in pinned.values() if isinstance(v, dict)]
        pinned = {"past_key": found[1], "past_value": found[2]}
        plain = {"past_key": wanted[1], "past_value": wanted[2]}
        if before:
            session.drop(*before)
    same([session.read(pinned["past_key"])], [wanted[1]])
    session.free()


@pytest.mark.parametrize("host", HOSTS)
def test_products_of_a_length_have_one_plan(host):
    """A register of its own holds the length times itself."""
    nodes = [
        node("Transpose", "x", "t", perm=[1, 0]),
        node("MatMul", "x t", "square"),
        node("Reshape", "square flat", "y"),
    ]
    data = model(
        nodes, [value("x", F, ["n", 3])], [value("y", F, ["m"])], [constant("flat", np.array([-1]))]
    )
    make, plans = HOSTS[host]
    session = make(data)
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for n in (3, 4, 5, 6, 7, 3):
        feeds = {"x": np.random.default_rng(n).standard_normal((n, 3), np.float32)}
        same(session.run(None, feeds), reference.run(None, feeds))
    assert plans(session) == 2
    session.free()


def attention(table=600, batch="b"):
    """One layer of attention within a text: a mask [1, 1, n, n], and a table of positions."""
    random, width = np.random.default_rng(5), HEADS * DIM

    def weight(name, *shape):
        return constant(name, (random.standard_normal(shape) / 3).astype("f4"))

    nodes = [
        node("Shape", "ids", "length", start=1, end=2),
        node("Slice", "positions zero length zero", "used"),
        node("Gather", "words ids", "word"),
        node("Add", "word used", "x"),
        node("Reshape", "x split", "x4"),
        node("Transpose", "x4", "q", perm=[0, 2, 1, 3]),
        node("Transpose", "x4", "k", perm=[0, 2, 3, 1]),
        node("MatMul", "q k", "scores"),
        node("Cast", "mask", "there", to=1),
        node("Unsqueeze", "there middle", "columns"),
        node("Unsqueeze", "there outer", "lines"),
        node("Mul", "columns lines", "pairs"),
        node("Sub", "pairs one", "away"),
        node("Mul", "away large", "mask4"),
        node("Add", "scores mask4", "masked"),
        node("Softmax", "masked", "shares", axis=-1),
        node("MatMul", "shares q", "mixed"),
        node("Transpose", "mixed", "heads", perm=[0, 2, 1, 3]),
        node("Reshape", "heads join", "flat"),
        node("MatMul", "flat out", "y"),
        node("ReduceMean", "y rows", "mean", keepdims=0),
    ]
    return model(
        nodes,
        [value("ids", I, [batch, "n"]), value("mask", I, [batch, "n"])],
        [
            value("y", F, [batch, "n", 5]),
            value("mean", F, [batch, 5]),
            value("q", F, [batch, HEADS, "n", DIM]),
        ],
        [
            weight("words", WORDS, width),
            weight("positions", table, width),
            weight("out", width, 5),
            constant("zero", np.array([0])),
            constant("split", np.array([0, 0, HEADS, DIM])),
            constant("join", np.array([0, 0, width])),
            constant("one", np.float32(1)),
            constant("large", np.float32(1e4)),
            constant("rows", np.array([1])),
            constant("middle", np.array([1, 2])),
            constant("outer", np.array([1, 3])),
        ],
    )


@pytest.mark.parametrize("host", HOSTS)
def test_texts_of_all_lengths_have_one_plan(host):
    """A mask of pairs is the length times itself: it is laid out for the maximum length."""
    data, random = attention(), np.random.default_rng(6)
    make, plans = HOSTS[host]
    session = make(data)
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])

    def check(names, *lengths, batch=1):
        for n in lengths:
            mask = np.ones((batch, n), np.int64)
            mask[:, n // 2] = n < 3
            feeds = {"ids": random.integers(0, WORDS, (batch, n)), "mask": mask}
            same(session.run(names, feeds), reference.run(names, feeds), 1e-5)
        return plans(session)

    assert check(["y", "mean"], 9, 30, 17, 2, ROOM, 3, 100) == 3
    assert check(["y", "mean"], 500, 512, 400, 256, 20) <= 5  # replaces the shorter range
    few = plans(session)
    assert check(["y"], 9, 30, 17, 90, batch=2) <= few + 3
    assert check(["y", "q"], 9, 30, 17, 90) <= few + 6
    session.free()


def test_which_dimension_changes():
    """One more than before, or a third value; dimensions that follow it do so at one distance."""

    def find(*shapes, needs=()):
        *seen, now = [tuple((1, tuple(s)) for s in one) for one in shapes]
        return find_lengths([(k, ()) for k in seen], now, (), needs)

    a = find([[1, 4], [5, 2]], [[1, 5], [6, 2]])
    assert a.shapes == ((1, (0,)), ((1,), 2)) and (a.low, a.high) == (MIN, ROOM)
    assert a.length(((1, (1, 9)), (1, (10, 2))), ()) == 9
    assert a.length(((1, (1, 9)), (1, (9, 2))), ()) is None
    assert a.length(((1, (2, 9)), (1, (10, 2))), ()) is None
    assert a.length(((2, (1, 9)), (1, (10, 2))), ()) is None
    assert a.length(((1, (1, ROOM + 1)), (1, (ROOM + 2, 2))), ()) is None
    assert a.length(((1, (1, 9)), (1, (10, 2))), ((1,),)) is None
    assert find([[4]], [[6]]) is None
    assert find([[4]], [[6]], [[11]]) is not None
    assert find([[4, 4]], [[5, 6]]) is None
    assert find([[0]], [[1]]) is None
    assert find([[4], [4]], [[5], [5]], needs=(1,)) is None
    assert find([[4], [1]], [[5], [0]]) is None
    assert find([[MAX_LENGTH]], [[MAX_LENGTH + 1]]) is None
    b = find([[5, 3]], [[6, 4]])
    assert b.low == MIN + 2 and b.length(((1, (7, 5)),), ()) == 7


def spoil(monkeypatch, wanted):
    """Gives the page plans with a kernel that no engine has, where `wanted` returns true for the
    description of a plan.
    """
    original = inference_calls._Model._plan

    def spoiled(self, *args):
        described, blobs = original(self, *args)
        if wanted(described):
            data = bytearray(blobs[described["file"]])
            at = HEADER.unpack_from(data)[12]
            data[at : at + 2] = b"\xff\xff"
            blobs[described["file"]] = bytes(data)
        return described, blobs

    monkeypatch.setattr(inference_calls._Model, "_plan", spoiled)


def test_a_page_does_without_a_plan_that_it_cannot_load(monkeypatch):
    """Each length then has its own plan."""
    data, random = decoder(), np.random.default_rng(9)
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    spoil(monkeypatch, lambda described: "register" in described)
    session = PageSession(data)
    for length in (4, 5, 6, 7):
        feeds = feeds_of(length, random)
        same(session.run(None, feeds), reference.run(None, feeds))
    assert session.asked.count("part") == 5
    session.free()


def test_a_plan_just_made_that_cannot_be_loaded_is_unsupported(monkeypatch):
    """In a page as in Python: it is not damaged."""
    spoil(monkeypatch, lambda described: True)
    session = PageSession(decoder())
    with pytest.raises(UnsupportedOp, match="the engine rejected its plan"):
        session.run(None, feeds_of(4, np.random.default_rng(10)))
    session.free()


@pytest.mark.parametrize("host", HOSTS)
def test_an_output_that_grows_with_a_power_of_the_length(host):
    """32 kB at the first length, 34 GB at the highest of a range: the range ends earlier."""
    nodes = [
        node("Reshape", "x all", "flat"),
        node("Unsqueeze", "flat last", "column"),
        node("Mul", "flat column", "square"),
        node("Reshape", "square all", "long"),
        node("Unsqueeze", "long last", "turned"),
        node("Mul", "flat turned", "cube"),
    ]
    constants = [constant("all", np.array([-1])), constant("last", np.array([-1]))]
    data = model(nodes, [value("x", F, ["n", 8])], [value("cube", F, None)], constants)
    session, random = HOSTS[host][0](data), np.random.default_rng(9)
    for length in (2, 3, 4, 5, 3):
        x = random.standard_normal((length, 8), np.float32)
        flat = x.reshape(-1)
        wanted = np.multiply.outer(np.multiply.outer(flat, flat).reshape(-1), flat)
        same(session.run(None, {"x": x}), [wanted])
    session.free()


@pytest.mark.parametrize("op", ["product", "sums"])
def test_kernels_without_strides_where_tensors_are_laid_out_for_the_maximum(op):
    """A square of two lengths, to which a table of other rows is added: the products of float64 and
    the sums along an axis read and write rows that are as long as now.
    """
    random, kind = np.random.default_rng(10), onnx.TensorProto.DOUBLE
    table = constant("table", random.standard_normal((48, 48)))
    nodes = [
        node("Shape", "a", "shape"),
        node("Gather", "shape zero", "length"),
        node("Concat", "length length", "ends", axis=0),
        node("Slice", "table zeros ends", "part"),
        node("Transpose", "a", "turned", perm=[1, 0]),
        node("MatMul", "a turned", "scores"),
        node("Add", "scores part", "square"),
        node("MatMul", "square a", "y") if op == "product" else node("CumSum", "square first", "y"),
    ]
    constants = [table, constant("zero", np.array([0])), constant("zeros", np.array([0, 0]))]
    constants.append(constant("first", np.array(0)))
    data = model(nodes, [value("a", kind, ["n", 8])], [value("y", kind, None)], constants)
    session = InferenceSession(data)
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for length in (4, 5, 6, 7, 5):
        feeds = {"a": random.standard_normal((length, 8))}
        same(session.run(None, feeds), reference.run(None, feeds), 1e-9)
    session.free()
