"""Trainer: arguments and data that are not valid, and calls that fail."""

import sys
import types
from pathlib import Path

import edgewise
import numpy as np
import onnx
import pytest
from edgewise.compiler.training import losses, optimizers
from edgewise.errors import EdgewiseError, EngineError, InputError, ModelError
from edgewise.training import History
from edgewise.training.peft import LoraConfig
from onnx import helper as h

from .. import llama
from .models import net, rows, trainer

DEMO = str(Path(__file__).parents[3] / "web/demo/model")


# ---- what goes wrong ----
def test_failed_calls_lose_nothing(engine):
    """Invalid batches are refused before a state changes, also if only the engine detects them (a
    label that is not a class, a token that is out of range).
    """
    t = trainer(engine=engine, optimizer=optimizers.AdamW())
    good = rows(8)
    for _ in range(2):
        t.step(good)
    before = {n: t.session.read(n) for n in t.program.states}
    runs = t.session.runs
    bad = [
        ({"x": good["x"][:7], "labels": good["labels"][:7]}, "is expected"),
        ({"x": good["x"]}, "missing"),
        ({**good, "z": good["x"]}, "no input 'z'"),
        ({**good, "labels": good["labels"].astype("f4")}, "is expected"),
        ({**good, "labels": np.full(8, np.nan, "f4")}, "is expected"),
        ({**good, "x": good["x"].astype("f8")}, "is expected"),
        ({**good, "labels": good["labels"] + 4}, "out of range"),
        ({**good, "labels": good["labels"] - 5}, "out of range"),
        ({**good, "x": [["a"] * 6] * 8}, "list of numbers"),
    ]
    for batch, words in bad:
        with pytest.raises(InputError, match=words):
            t.step(batch)
        assert {
            n: t.session.read(n) for n in t.program.states
        } == before and t.session.runs == runs, words
    fresh = trainer(engine=engine, optimizer=optimizers.AdamW())
    want = [fresh.step(good) for _ in range(3)][-1]
    assert t.step(good) == want
    t.free(), fresh.free()


def test_tokens_out_of_range():
    t = edgewise.Trainer(
        llama.base("q4"),
        adapters=LoraConfig(r=2, target_modules="all-linear"),
        batch_size=2,
        sequence_length=16,
    )
    t.step(llama.batch())
    before = {n: t.session.read(n) for n in t.program.states}
    bad = llama.batch()
    bad["input_ids"][1, 3] = 256
    with pytest.raises(InputError, match="out of range"):
        t.step(bad)
    assert {n: t.session.read(n) for n in t.program.states} == before
    t.free()


def test_steps_of_rates():
    t = trainer(learning_rate=0.5, schedule="linear", total_steps=4)
    assert [t.rate_at(np.int64(1)), t.rate_at(np.float32(1)), t.rate_at(1)] == [0.375] * 3
    for wrong in (float("nan"), float("inf"), 10**400, "1", None):
        with pytest.raises(InputError, match="step: "):
            t.rate_at(wrong)
    t.free()


def test_numbers_that_are_none():
    t = trainer("mse")
    bad = rows(8, kind="numbers")
    bad["labels"][3, 1] = np.nan
    with pytest.raises(InputError, match="NaN"):
        t.step(bad)
    wild = trainer("mse", optimizer="SGD", learning_rate=1e30)
    with pytest.raises(EngineError, match="loss is (nan|inf).*lower learning_rate"):
        wild.fit(rows(kind="numbers"), epochs=9, progress=False)
    t.free(), wild.free()


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"batch_size": 0}, "batch_size"),
        ({"gradient_accumulation_steps": 1.5}, "gradient_acc"),
        ({"optimizer": "Adamm"}, "no optimizer"),
        ({"optimizer": {"type": "SGD", "beta": 1}}, "beta"),
        ({"adapters": 3}, "LoraConfig"),
        ({"trainable": ["x*"]}, "no initializer"),
        ({"frozen": ["nope"]}, "no initializer"),
        ({"trainable": ["0.*"], "frozen": ["0.*"]}, "no parameter"),
        ({"optimizer": optimizers.SGD(nesterov=True)}, "momentum"),
    ],
)
def test_absurd_options(fields, words):
    with pytest.raises(InputError, match=words):
        edgewise.Trainer(net()[0], loss="cross_entropy", **{"batch_size": 8, **fields}).estimate(
            rows(8)
        )


def test_data_that_is_none():
    t = trainer()
    for data, words in (
        ({}, "rows"),
        ({"x": np.zeros((3, 6), "f4"), "labels": np.zeros(4, int)}, "same first"),
        ({"x": np.zeros((3, 6), "f4"), "labels": np.zeros(3, int)}, "fewer than a batch"),
        (5, "expected data"),
        (["a"], "expected data"),
    ):
        with pytest.raises(InputError, match=words):
            t.fit(data, progress=False)
    with pytest.raises(InputError, match="no loss was given"):
        edgewise.Trainer(net()[0])
    with pytest.raises(InputError, match="no such file"):
        edgewise.Trainer("/no/such/folder")


def test_cyclic_graph():
    g = onnx.load_from_string(net()[0])
    g.graph.node.append(h.make_node("Add", ["p", "y"], ["q"]))
    g.graph.node.append(h.make_node("Add", ["q", "y"], ["p"]))
    g.graph.output.append(h.make_tensor_value_info("p", 1, ["n", 4]))
    with pytest.raises(ModelError):
        edgewise.Trainer(
            g.SerializeToString(), loss=losses.MSELoss(output="p"), batch_size=8
        ).estimate(rows(8, kind="numbers"))


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": -1.0},
        {"learning_rate": float("nan")},
        {"max_grad_norm": -1},
        {"warmup_steps": -4},
        {"seed": "x"},
        {"groups": [{}]},
        {"adapters": {"rank": 8}},
        {"loss": "foo"},
    ],
)
def test_numbers_that_make_no_sense(change):
    with pytest.raises(EdgewiseError):
        trainer(**change)


def test_mostly_quantized_models_want_adapters():
    from pathlib import Path

    import edgewise

    folder = Path(__file__).parents[2] / "zoo" / "models" / "q4_llama"
    with pytest.raises(InputError, match="quantized"):
        edgewise.Trainer(folder / "model.onnx")


def test_mistakes_are_told(tmp_path):
    """Options that do not exist, and paths that would be learned as texts."""
    with pytest.raises(InputError, match="'learning_rat'. Did you mean 'learning_rate'"):
        edgewise.Trainer(DEMO, learning_rat=1e-3)
    trainer = edgewise.Trainer(DEMO, adapters={"r": 2}, sequence_length=16)
    with pytest.raises(InputError, match="Did you mean 'max_steps'"):
        trainer.fit("Once upon a time", max_step=1)
    path = tmp_path / "letters.txt"
    path.write_text("Once upon a time")
    for given in (path, str(path)):
        with pytest.raises(InputError, match="the path of a file.*read_data"):
            trainer.fit(given, max_steps=1)
        with pytest.raises(InputError, match="the path of a file.*read_data"):
            trainer.preview(given)


def test_objects_are_shown():
    trainer = edgewise.Trainer(DEMO, adapters={"r": 2}, sequence_length=16, batch_size=2)
    shown = repr(trainer)
    assert "LoRA of rank 2" in shown and "batch_size=2" in shown and "learning_rate=0.002" in shown
    history = trainer.fit("Once upon a time there was a robot. " * 9, max_steps=3, progress=False)
    first, last = history.losses[0], history.losses[-1]
    assert repr(history) == f"History(3 updates, loss {first:.4f} to {last:.4f}, stopped='done')"


def test_a_history_is_a_table_and_a_picture(monkeypatch):
    history = History([3.0, 2.0, 1.5], [(4, 2.5), (6, 2.25)], first=3)
    drawn = []

    class Axes:
        def plot(self, x, y, **fields):
            drawn.append((list(x), list(y), fields["label"]))

        def __getattr__(self, name):
            return lambda *args: None

    history.plot(Axes())
    training, held = ([4, 5, 6], [3.0, 2.0, 1.5], "training"), ([4, 6], [2.5, 2.25], "held out")
    assert drawn == [training, held]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        history.to_pandas()


def test_a_history_in_pandas():
    pandas = pytest.importorskip("pandas")
    table = History([3.0, 2.0, 1.5], [(4, 2.5), (6, 2.25)], first=3).to_pandas()
    assert isinstance(table, pandas.DataFrame) and list(table.index) == [4, 5, 6]
    assert table.loss.tolist() == [3.0, 2.0, 1.5]
    assert table.evaluation[4] == 2.5 and table.evaluation.isna().tolist() == [False, True, False]


def test_progress_in_a_notebook(monkeypatch):
    """tqdm's bar where that is installed, else a line."""
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    made = []

    class Bar:
        def __init__(self, total, initial, unit):
            self.total, self.n, self.words = total, initial, ""
            made.append(self)

        def set_postfix_str(self, words, refresh):
            self.words = words

        def update(self, by):
            self.n += by

        def close(self):
            self.closed = True

    tqdm = types.ModuleType("tqdm.auto")
    tqdm.tqdm = Bar
    monkeypatch.setitem(sys.modules, "tqdm.auto", tqdm)
    trainer = edgewise.Trainer(DEMO, adapters={"r": 2}, sequence_length=16)
    trainer.fit("Once upon a time there was a robot. " * 9, max_steps=3)
    (bar,) = made
    assert (bar.total, bar.n) == (3, 3) and "tokens/s" in bar.words and bar.closed
