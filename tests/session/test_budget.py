"""Limits of a run: iterations, compilations, copies, memory of the engine and of the host.
Exceeding one causes an error that names the node, and the session still works. In both hosts.
"""

import edgewise
import numpy as np
import onnxruntime
import pytest
from edgewise.compiler.declare.values import Sequence
from edgewise.errors import EdgewiseError, InputError, ModelError, OutOfMemory
from engines.page_session import PageSession
from onnx import helper as h

from . import models
from .models import B, F, I, S, constant, node, value


def options(**fields):
    o = edgewise.SessionOptions()
    for name, x in fields.items():
        setattr(o, name, x)
    return o


def sequences(trips, place="", more=()):
    """A loop that inserts its input into a sequence, at the end or at `place`. more: nodes of its
    body.
    """
    kind = h.make_tensor_sequence_value_info
    body = h.make_graph(
        [node("Identity", "go", "go_on"), node("SequenceInsert", f"s x{place}", "so"), *more],
        "body",
        [value("i", I, ()), value("go", B, ()), kind("s", F, None)],
        [value("go_on", B, ()), kind("so", F, None)],
    )
    return models.model(
        [
            node("SequenceEmpty", "", "e"),
            node("Loop", "trips  e", "z", body=body),
            node("SequenceLength", "z", "y"),
        ],
        [value("x")],
        [value("y", I, ())],
        [constant("trips", np.int64(trips)), constant("zero", np.int64(0))],
    )


def strings(count):
    """A string that is concatenated with itself `count` times."""
    nodes = [node("StringConcat", f"s{i} s{i}", f"s{i + 1}") for i in range(count)]
    return models.model(
        [*nodes, node("Identity", f"s{count}", "y")], [value("s0", S)], [value("y", S)]
    )


def grams(skips):
    """A TfIdfVectorizer of pairs of words with up to so many others between them."""
    pairs = {
        "max_gram_length": 2,
        "min_gram_length": 2,
        "mode": "TF",
        "ngram_counts": [0, 0],
        "ngram_indexes": [0],
        "pool_int64s": [1, 2],
    }
    return models.model(
        [node("TfIdfVectorizer", "x", "y", max_skip_count=skips, **pairs)],
        [value("x", I)],
        [value("y", F, None)],
    )


def wide_grams():
    """A row of 2^27 numbers for each row of its input."""
    one = {
        "max_gram_length": 1,
        "min_gram_length": 1,
        "mode": "TF",
        "ngram_counts": [0],
        "ngram_indexes": [(1 << 27) - 1],
        "pool_int64s": [1],
    }
    return models.model(
        [node("TfIdfVectorizer", "x", "y", max_skip_count=0, **one)],
        [value("x", I, ("n", 1))],
        [value("y", F, None)],
    )


WORDS = {"s": np.array(["word"] * 1000, object)}
X = {"x": np.ones(4, "f4")}
CASES = {
    "grows": (models.loop([node("Concat", "s s", "so", axis=0)], 1 << 20), X, OutOfMemory),
    "grows by one": (
        models.loop(
            [node("Concat", "s one", "so", axis=0)],
            1 << 20,
            constants=[constant("one", np.ones(1, "f4"))],
        ),
        X,
        ModelError,
    ),
    "scan outputs": (
        models.loop(
            [node("Identity", "s", "so"), node("Expand", "s shape", "o")],
            1 << 20,
            scanned=["o"],
            constants=[constant("shape", np.array([1 << 16]))],
        ),
        {"x": np.ones(1, "f4")},
        OutOfMemory,
    ),
    "never ends": (models.loop([node("Relu", "s", "so")], 1 << 20), X, ModelError),
    "strings": (strings(40), {"s0": np.array(["x" * 1000], object)}, OutOfMemory),
    "pieces of strings": (
        models.model(
            [node("StringSplit", "s", "y z", delimiter="")],
            [value("s", S)],
            [value("y", S, None), value("z", I, None)],
        ),
        {"s": np.array(["a " * 20000] + ["b"] * 2000, object)},
        OutOfMemory,
    ),
    "pieces of one string": (
        models.model(
            [node("StringSplit", "s", "y z")],
            [value("s", S)],
            [value("y", S, None), value("z", I, None)],
        ),
        {"s": np.array(["a " * 1_000_000], object)},
        OutOfMemory,
    ),
    "sequence": (sequences(1 << 20), X, EdgewiseError),
    "sequences of many": (
        sequences(1 << 20, more=[node("ConcatFromSequence", "so", "c", axis=0)]),
        X,
        EdgewiseError,
    ),
    "strings moved": (
        models.model(
            [node("Tile", "s times", "y")],
            [value("s", S)],
            [value("y", S)],
            [constant("times", np.array([2000]))],
        ),
        WORDS,
        OutOfMemory,
    ),
    "pairs of strings": (
        models.model(
            [node("Unsqueeze", "s one", "t"), node("Equal", "s t", "y")],
            [value("s", S)],
            [value("y", B, None)],
            [constant("one", np.array([1]))],
        ),
        WORDS,
        OutOfMemory,
    ),
    "numbers as strings": (
        models.model(
            [node("Expand", "x shape", "e"), node("Cast", "e", "y", to=S)],
            [value("x", F, (1,))],
            [value("y", S)],
            [constant("shape", np.array([1 << 20]))],
        ),
        {"x": np.ones(1, "f4")},
        OutOfMemory,
    ),
    "n-grams with gaps": (grams(1 << 16), {"x": np.arange(20_000)}, ModelError),
    "n-grams, wide": (wide_grams(), {"x": np.ones((8, 1), "i8")}, OutOfMemory),
    "mel weights": (
        models.model(
            [node("MelWeightMatrix", "a b c d e", "y")],
            [value("a", I, ())],
            [value("y", F, None)],
            [
                constant("b", np.int64(1 << 20)),
                constant("c", np.int64(16000)),
                constant("d", np.float32(0)),
                constant("e", np.float32(8000)),
            ],
        ),
        {"a": np.int64(4000)},
        EdgewiseError,
    ),
    "activations": (
        models.model(
            [
                node("Expand", "x shape", "e"),
                node("Sin", "e", "f"),
                node("ReduceSum", "f", "y", keepdims=0),
            ],
            [value("x", F, (1,))],
            [value("y", F, ())],
            [constant("shape", np.array([1 << 26]))],
        ),
        {"x": np.ones(1, "f4")},
        OutOfMemory,
    ),
}


PYTHONS = {"activations"}  # a page's plans have what the engine has
BOUNDS = {"max_memory_bytes": 1 << 24, "max_loop_trips": 20000, "max_compilations": 500}


@pytest.mark.parametrize("name", CASES)
def test_ends(name):
    data, feeds, error = CASES[name]
    session = edgewise.InferenceSession(data, options(**BOUNDS))
    for _ in range(2):
        with pytest.raises(error) as caught:
            session.run(None, feeds)
        assert (
            caught.value.what
            and caught.value.remedy
            and ("the_" in caught.value.where or "value" in caught.value.where)
        ), caught.value.where
    caught = None
    session.pool.trim(-1)
    assert session.pool.used < 1 << 16, "it holds on to what the failed run had"


@pytest.mark.parametrize("name", [n for n in CASES if n not in PYTHONS])
def test_ends_in_a_page(name):
    data, feeds, error = CASES[name]
    session = PageSession(data, **BOUNDS)
    for _ in range(2):
        with pytest.raises(error) as caught:
            session.run(None, feeds)
        assert (
            caught.value.what
            and caught.value.remedy
            and ("the_" in caught.value.where or "value" in caught.value.where)
        ), caught.value.where


def test_items_copied_in_sequences(monkeypatch):
    """A loop that inserts before all others copies them each time."""
    from edgewise.compiler.declare import values

    monkeypatch.setattr(values, "MAX_COPIED_ITEMS", 1000)
    for trips, ends in ((40, False), (60, True)):
        session = edgewise.InferenceSession(sequences(trips, " zero"))
        if ends:
            with pytest.raises(ModelError, match="the_so.*copied"):
                session.run(None, X)
        else:
            assert session.run(None, X) == [trips]


def test_what_is_allowed_runs():
    session = edgewise.InferenceSession(strings(10), options(max_memory_bytes=1 << 24))
    text = np.array(["ab", "c"], object)
    for _ in range(50):  # more than the budget in all, but never at once
        assert session.run(None, {"s0": text})[0].tolist() == ["ab" * 1024, "c" * 1024]
    assert session.pool.used == 0
    data = sequences(3000)
    assert (
        edgewise.InferenceSession(data).run(None, X)
        == onnxruntime.InferenceSession(data).run(None, X)
        == [3000]
    )


def test_options_are_checked():
    data, _ = models.perceptron()
    for fields in (
        {"max_memory_bytes": 0},
        {"max_memory_bytes": "1"},
        {"max_compilations": 0},
        {"max_run_seconds": 0},
        {"max_run_seconds": "1"},
        {"max_loop_trips": None},
    ):
        with pytest.raises(InputError):
            edgewise.InferenceSession(data, options(**fields))


def test_a_foreign_exception_names_the_node(monkeypatch):
    """Any exception in an operator of the host becomes an EdgewiseError."""
    from edgewise.compiler.ops import OPS

    data = models.model(
        [node("StringConcat", "a b", "y")], [value("a", S), value("b", S)], [value("y", S)]
    )
    feeds, decl = (
        {"a": np.array(["x"], object), "b": np.array(["y"], object)},
        OPS["", "StringConcat"],
    )
    for raised, error in (
        (MemoryError(), OutOfMemory),
        (RecursionError(), ModelError),
        (OverflowError("too large"), ModelError),
        (OSError("disk"), ModelError),
    ):

        def host(*_, raised=raised):
            raise raised

        monkeypatch.setattr(decl, "host_fn", host)
        with pytest.raises(error, match="the_y"):
            edgewise.InferenceSession(data).run(None, feeds)


def test_sequences_share_their_elements():
    """Sequences are values: appending to one does not change another."""
    a = Sequence([1, 2])
    b, c = a.with_last(3), a.with_last(4)
    d = b.with_last(5)
    assert [list(s) for s in (a, b, c, d)] == [[1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 3, 5]]
    assert (len(a), a[-1], b[2], c[-1], d[0]) == (2, 2, 3, 4, 1)
    with pytest.raises(IndexError):
        a[2]
    assert a.shares_list_with(b) and not a.shares_list_with(c)
    seen = []
    for x in a:  # an element that was appended to the original meanwhile is not in the copy
        seen.append(x)
        a.with_last(9)
    assert seen == [1, 2]
