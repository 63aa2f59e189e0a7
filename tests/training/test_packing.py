"""Several documents in one row: losses and gradients are those of a row for each, in all of the
exporters' forms of attention.
"""

import numpy as np
import pytest
from edgewise import LoraConfig, Trainer
from edgewise.errors import InputError, UnsupportedOp
from edgewise.logic.training.data import learned
from edgewise.logic.training.packing import DOCUMENT, documents_of, packed
from transformers import DataCollatorWithFlattening

from . import llama
from .test_families import folder

TOKENS = 16
LENGTHS = (9, 7, 5, 4, 6)
LORA = {"r": 2, "target_modules": "all-linear", "init_lora_weights": False}
MODEL = "web/demo/model"


def documents(seed=0):
    r = np.random.default_rng(seed)
    made = [r.integers(3, 60, n).tolist() for n in LENGTHS]
    return [(ids, [-100, -100, *ids[2:]]) for ids in made]


def feeds(rows):
    """A batch of one row for each."""
    return [
        {name: np.array([x], np.int64) for name, x in zip(("input_ids", "labels"), row)}
        for row in rows
    ]


def padded(rows):
    return [
        (ids + [0] * (TOKENS - len(ids)), labels + [-100] * (TOKENS - len(ids)))
        for ids, labels in rows
    ]


def made(path, packing):
    return Trainer(
        path,
        adapters=LoraConfig(**LORA),
        optimizer="SGD",
        learning_rate=0.0,
        max_grad_norm=None,
        gradient_accumulation_steps=2,
        batch_size=1,
        sequence_length=TOKENS,
        packing=packing,
    )


def gradients(trainer, rows):
    """(loss, {gradient: array})"""
    loss = trainer.step(feeds(rows))
    states = trainer.program.states.items()
    return loss, {n: np.array(trainer.session.get(n)) for n, s in states if s.kind == "gradient"}


@pytest.mark.parametrize(
    "name",
    [
        "llama",  # by products, as torch's exporter
        "GenAI_gpt_oss",  # GroupQueryAttention with sinks and windows, which rotates
        "GenAI_nemotron",
        "optimum_qwen3_moe",
        "torch_gemma3n",  # windows, layers that share keys and values
        "transformers_deepseek_v3",
    ],
)
def test_as_rows_of_their_own(tmp_path, name):
    path = llama.base("fp32") if name == "llama" else folder(tmp_path, name)
    rows = packed(documents(), TOKENS, 0)
    assert len(rows) == 2
    together, apart = made(path, True), made(path, False)
    loss, found = gradients(together, rows)
    expected, wanted = gradients(apart, padded(documents()))
    assert loss == pytest.approx(expected, abs=1e-5)
    assert found.keys() == wanted.keys() and len(found) > 4
    for n, x in wanted.items():
        assert np.abs(found[n] - x).max() <= 1e-5 * max(1.0, np.abs(x).max()), n
    # the gradient of one document does not depend on its neighbours
    (ids, labels), other = rows[0], np.random.default_rng(9)
    second = labels.index(DOCUMENT, 1)
    assert 0 < second < TOKENS
    alone = [DOCUMENT, *labels[1:second], DOCUMENT, *[-100] * (TOKENS - second - 1)]
    changed = ids[:second] + other.integers(3, 60, TOKENS - second).tolist()
    _, one = gradients(together, [(ids, alone), rows[1]])
    _, two = gradients(together, [(changed, alone), rows[1]])
    for n, x in one.items():
        assert np.array_equal(two[n], x) or np.abs(two[n] - x).max() < 1e-6, n
    together.free(), apart.free()


def test_labels_are_those_of_transformers():
    rows = packed([(ids, list(ids)) for ids, _ in documents()], TOKENS, 0)
    for ids, labels in rows:
        places = [i for i, x in enumerate(labels) if x == DOCUMENT] + [TOKENS]
        parts = [ids[a:b] for a, b in zip(places, places[1:])]
        theirs = DataCollatorWithFlattening()([{"input_ids": x} for x in parts])
        mine = [-100 if x == DOCUMENT else x for x in labels]
        assert theirs["input_ids"][0].tolist() == ids
        end = len(labels) - labels[::-1].index(next(x for x in labels[::-1] if x != -100))
        assert mine[:end] == theirs["labels"][0].tolist()[:end]
        assert ids[end:] == [0] * (TOKENS - end)
    assert learned(rows) == sum(n - 1 for n in LENGTHS)
    assert sorted(documents_of(padded(documents()))) == sorted(documents())


@pytest.mark.parametrize("kind", ["texts", "records"])
def test_a_run_on_short_data(kind):
    """Fewer rows, and the loss of a row for each."""
    words = [f"The robot had {n} lamps." for n in ("one", "two", "three", "four", "five", "six")]
    data = words if kind == "texts" else [{"prompt": w[:9], "completion": w[9:]} for w in words]
    sizes = {"adapters": {"r": 2}, "batch_size": 1, "sequence_length": 32}
    together, apart = (Trainer(MODEL, **sizes, packing=packing) for packing in (True, False))
    loss = together.evaluate(data)
    if kind == "records":
        assert loss == pytest.approx(apart.evaluate(data), abs=1e-5)
    else:
        sums = [(apart.evaluate([w]), len(apart.tokenizer.encode(w))) for w in words]
        count = sum(n for _, n in sums)
        assert loss == pytest.approx(sum(x * n for x, n in sums) / count, abs=1e-5)
    history = together.fit(data, progress=False)
    assert len(history.losses) < len(data)
    together.free(), apart.free()


@pytest.mark.parametrize(
    "name, error",
    [
        ("GenAI_lfm2", "state 'past.0.conv'"),
        ("optimum_gemma3", "no input position_ids"),
        ("transformers_mamba2", "conv_states"),
    ],
)
def test_models_that_cannot(tmp_path, name, error):
    trainer = made(folder(tmp_path, name), True)
    with pytest.raises(UnsupportedOp, match=error):
        trainer.step(feeds(padded(documents())[:1]))


def test_losses_that_cannot(tmp_path):
    with pytest.raises(InputError, match="packing"):
        Trainer(llama.base("fp32"), "dpo", adapters={"r": 2}, packing=True)
    with pytest.raises(InputError, match="packing: it is 'no'. Give True or False"):
        Trainer(llama.base("fp32"), adapters={"r": 2}, packing="no")
    with pytest.raises(InputError, match="checkpointing: it is 'no'. Give True or False"):
        Trainer(llama.base("fp32"), adapters={"r": 2}, checkpointing="no")
