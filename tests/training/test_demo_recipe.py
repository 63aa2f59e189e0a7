"""The pieces of web/demo/model-training/train.py: batches, and weights in training as the quantizer
will leave them.
"""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from edgewise.compiler.declare.dtypes import FLOAT
from edgewise.ir import Info, Node
from edgewise.onnx import ModelEditor, as_source, read_model
from edgewise.training import Program, TrainingSession

FOLDER = Path(__file__).parents[2] / "web/demo/model-training"


@pytest.fixture(scope="module")
def recipe():
    sys.path.insert(0, str(FOLDER))
    try:
        import train

        yield train
    finally:
        sys.path.remove(str(FOLDER))


def test_batches(recipe):
    """All rows of a batch have its length, padded if necessary; no row is lost, and the same order
    gives the same batches.
    """
    rng = np.random.default_rng(0)
    rows = [
        (
            ids := rng.integers(1, 99, rng.integers(2, 70)).tolist(),
            [i if rng.random() < 0.9 else -100 for i in ids],
        )
        for _ in range(500)
    ]
    batches = list(recipe.batches_of(rows, 256))
    seen = []
    for b in batches:
        n, length = b["labels"].shape
        assert (
            length % recipe.GRID == 0
            and n == 256 // length
            and (b["labels"][b["input_ids"] == 0] == -100).all()
        )
        seen += [
            (ids[ids > 0].tolist(), labels[ids > 0].tolist())
            for ids, labels in zip(b["input_ids"], b["labels"])
        ]
        assert all(length - recipe.GRID < len(ids) <= length for ids, _ in seen[-n:])
    assert len(rows) - len(seen) < sum(256 // length for length in range(16, 80, 16)) and all(
        r in rows for r in seen
    )


def test_strange_rows(recipe):
    """Stories with new words and other spellings are texts as before, use pieces that plain ones
    never do, and of these ask for what goes on, not for what begins.
    """
    tokenizers = pytest.importorskip("tokenizers")
    tok = tokenizers.Tokenizer.from_file(str(FOLDER.parent / "model/tokenizer.json"))
    first = lambda strange, count=700: list(
        itertools.islice(recipe.rows_of(tok, recipe.stories.stories(1), strange), count)
    )  # noqa: E731
    plain, strange = first(0.0), first(0.5)
    assert strange[:100] == first(0.5, 100)
    assert all(
        ids == labels and len(ids) <= recipe.SHAPE["max_position_embeddings"]
        for ids, labels in plain
    )
    assert all(
        len(ids) == len(labels) and all(label in (i, -100) for i, label in zip(ids, labels))
        for ids, labels in strange
    )
    used = lambda rows: {i for ids, _ in rows for i in ids}  # noqa: E731
    assert len(used(strange)) > len(used(plain)) + 300
    begun = np.mean([label == -100 for _, labels in strange for label in labels])
    assert 0.01 < begun < 0.1
    ids = plain[0][0]
    assert tok.decode(
        recipe.spelled(tok, (ids, ids), np.random.default_rng(2), 0.5)[0]
    ) == tok.decode(ids)


def test_schedule(recipe):
    rates = [recipe.learning_rate(i, 1000, 2.0) for i in range(1000)]
    assert (
        rates[0] == pytest.approx(0.02)
        and rates[99:501] == [2.0] * 402
        and rates[750] == pytest.approx(1.0)
        and 0 < rates[-1] < 0.01
    )


def quantized(w, axis):
    """w in 4 bits: blocks of 32 along the axis, -8 is the element that is largest by magnitude (as
    onnxruntime's MatMulNBitsQuantizer rounds).
    """
    b = np.moveaxis(w, axis, -1).reshape(-1, 32)
    largest = np.take_along_axis(b, np.abs(b).argmax(1)[:, None], 1)
    scale = np.where(largest == 0, 1, largest / np.float32(-8)).astype(np.float32)
    q = np.clip(np.rint(b / scale), -8, 7) * scale
    return np.moveaxis(q.reshape(np.moveaxis(w, axis, -1).shape), -1, axis)


@pytest.mark.parametrize("axis", [0, 1])
def test_fake_q4(recipe, engine, axis):
    """The values are the quantizer's, the gradient is that of the weight itself."""
    rng = np.random.default_rng(axis)
    w, x = (
        rng.standard_normal((64, 96), np.float32) * 0.05,
        rng.standard_normal((8, 64), np.float32),
    )
    w[:32, 3] = w[5, :32] = 0
    e = ModelEditor()
    e.add_input(Info("x", FLOAT, list(x.shape)))
    e.add_initializer("w", w)
    e.add_nodes([product := Node("MatMul", ["x", "w"], ["y"])])
    e.replace_input(product, 1, recipe.fake_q4(e, product, "w", axis))
    e.add_output(Info("y", FLOAT, [8, 96]))
    session = TrainingSession(
        Program(
            read_model(as_source(e.write())),
            {"x": list(x.shape)},
            loss="mse",
            trainable=["w"],
            outputs=["y"],
        ),
        engine,
    )
    try:
        out = session.accumulate({"x": x, "labels": np.zeros((8, 96), np.float32)})
        want = x @ quantized(w, axis)
        np.testing.assert_allclose(out["y"], want, rtol=0, atol=2e-6)
        np.testing.assert_allclose(
            session.get("gradient/w"), x.T @ (2 * want / want.size), rtol=0, atol=2e-6
        )
    finally:
        session.free()
