"""Distillation and contrastive training beside PyTorch."""

import json
import shutil
from pathlib import Path

import edgewise
import numpy as np
import onnx
import pytest
import torch
from edgewise.errors import InputError
from edgewise.training import ContrastiveRows, DistillationRows
from edgewise.training.losses import DistillationLoss, MultipleNegativesRankingLoss
from edgewise.training.peft import LoraConfig
from onnx import helper as h
from onnx import numpy_helper as nh
from torch.nn import functional as F

from tests.browser.pipelines import models

DEMO = Path(__file__).parents[3] / "web" / "demo" / "model"
BATCH, SEQUENCE, VOCABULARY, SIZE = 2, 6, 20, 8


def decoder():
    """A model of one token, and its weights."""
    rng = np.random.default_rng(1)
    table = rng.normal(size=(VOCABULARY, SIZE)).astype(np.float32)
    head = rng.normal(size=(SIZE, VOCABULARY)).astype(np.float32)
    graph = h.make_graph(
        [
            h.make_node("Gather", ["table", "input_ids"], ["x"]),
            h.make_node("MatMul", ["x", "head"], ["logits"]),
        ],
        "decoder",
        [h.make_tensor_value_info("input_ids", 7, [BATCH, SEQUENCE])],
        [h.make_tensor_value_info("logits", 1, [BATCH, SEQUENCE, VOCABULARY])],
        [nh.from_array(table, "table"), nh.from_array(head, "head")],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString(), table, head


def weights_of(trainer):
    return {
        t.name: nh.to_array(t) for t in onnx.load_from_string(trainer.export()).graph.initializer
    }


@pytest.mark.parametrize("temperature, alpha", [(1.0, 1.0), (2.0, 0.5), (3.5, 0.25)])
@pytest.mark.parametrize("top_k, absent", [(VOCABULARY, []), (5, []), (5, [(0, -np.inf), (-1, 9)])])
def test_distillation(top_k, absent, temperature, alpha):
    """Loss and gradients: steps of SGD with torch's kl_div, whose teacher is the given tokens.

    absent: (id, log-probability) of entries that fill up the lists.
    """
    model, table, head = decoder()
    rng = np.random.default_rng(2)
    ids = rng.integers(0, VOCABULARY, (BATCH, SEQUENCE))
    labels = ids.copy()
    labels[:, :2] = -100
    logits = torch.tensor(3 * rng.normal(size=(BATCH, SEQUENCE, VOCABULARY)).astype(np.float32))
    known = torch.log_softmax(logits, -1).topk(top_k)
    batch = {"input_ids": ids, "labels": labels}
    lists = [("teacher_ids", known.indices), ("teacher_log_probs", known.values)]
    for which, (name, x) in enumerate(lists):
        more = np.array([entry[which] for entry in absent], x.numpy().dtype)
        more = np.tile(more, (BATCH, SEQUENCE, 1))
        batch[name] = np.concatenate([x.numpy(), more], 2)
    loss = DistillationLoss(top_k=top_k + len(absent), temperature=temperature, alpha=alpha)
    trainer = edgewise.Trainer(model, loss, "SGD", learning_rate=0.5, batch_size=BATCH)
    parameters = [torch.tensor(x, requires_grad=True) for x in (table, head)]
    sgd = torch.optim.SGD(parameters, lr=0.5)
    # the teacher of the tokens that are not told has no probability
    told = torch.full_like(logits, -torch.inf).scatter(2, known.indices, known.values)
    teacher = torch.softmax(told / temperature, -1)[:, :-1]
    following = torch.tensor(labels)[:, 1:]
    counted = following != -100
    for _ in range(5):
        scores = parameters[0][torch.tensor(ids)] @ parameters[1]
        cooled = torch.log_softmax(scores[:, :-1] / temperature, -1)
        each = F.kl_div(cooled, teacher, reduction="none").sum(-1)
        soft = each[counted].mean() * temperature**2
        hard = F.cross_entropy(scores[:, :-1].flatten(0, 1), following.flatten())
        expected = alpha * soft + (1 - alpha) * hard
        assert trainer.step(batch) == pytest.approx(float(expected), abs=1e-4)
        sgd.zero_grad()
        expected.backward()
        sgd.step()
    made = weights_of(trainer)
    for name, x in zip(("table", "head"), parameters, strict=True):
        np.testing.assert_allclose(made[name], x.detach().numpy(), atol=1e-4)
    trainer.free()


@pytest.mark.parametrize(
    "wrong",
    [
        *({"top_k": 0}, {"top_k": 21}, {"top_k": None}),
        *({"alpha": 2}, {"alpha": "a"}, {"alpha": None}, {"alpha": True}),
        *({"temperature": 0}, {"temperature": None}, {"temperature": "1"}),
    ],
)
def test_distillation_refuses(wrong):
    loss = DistillationLoss(**{"top_k": 3, **wrong})
    with pytest.raises(InputError, match=next(iter(wrong))):
        edgewise.Trainer(decoder()[0], loss, "SGD", batch_size=BATCH).step(
            {
                "input_ids": np.zeros((BATCH, SEQUENCE), np.int64),
                "labels": np.zeros((BATCH, SEQUENCE), np.int64),
                "teacher_ids": np.zeros((BATCH, SEQUENCE, 3), np.int64),
                "teacher_log_probs": np.zeros((BATCH, SEQUENCE, 3), np.float32),
            }
        )


def test_distillation_of_adapters(tmp_path):
    """Rows have the trainer's tokens, and the adapter is one of a language model."""
    trainer = edgewise.Trainer(
        DEMO,
        DistillationLoss(top_k=1),
        "AdamW",
        {"r": 2, "target_modules": ["q_proj"]},
        batch_size=1,
        sequence_length=32,
    )
    encode = trainer.tokenizer.encode
    count = len(encode("The sun")) + 1 - len(encode("The"))  # with the end
    teacher = [[[5, -0.5]]] * count
    record = {"prompt": "The", "completion": " sun", "teacher": teacher}
    for given, tokens in (({}, 32), ({"sequence_length": 16}, 16)):
        batch = DistillationRows(trainer, [record], **given).get(0)
        assert np.asarray(batch["labels"]).shape == (1, tokens)
    with pytest.raises(InputError, match="sequence_length: it is 0"):
        DistillationRows(trainer, [record], 0)
    trainer.fit(DistillationRows(trainer, [record]), progress=False)
    trainer.save_adapter(tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["task_type"] == "CAUSAL_LM"
    trainer.free()


THINGS = ["film", "price", "berlin", "engine", "python", "web", "code", "page"]
OTHERS = ["beautiful", "euros", "angela", "wonderful", "compiler", "zürich", "release", "short"]
PAIRS = [
    {"anchor": f"a {a} was in it", "positive": f"the {b}.", "negative": f"{c} has never"}
    for a, b, c in zip(THINGS, OTHERS, reversed(THINGS), strict=True)
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder") / "model"
    return folder, *models.save(folder, "feature-extraction")


def embedded(model, words, texts, pooling):
    inputs = words(texts, padding="max_length", max_length=16, truncation=True, return_tensors="pt")
    states = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None].float()
    pooled = states[:, 0] if pooling == "cls" else (states * mask).sum(1) / mask.sum(1)
    return F.normalize(pooled, dim=-1)


@pytest.mark.parametrize(
    "pooling, names",
    [("mean", ["anchor", "positive"]), ("cls", ["anchor", "positive", "negative"])],
)
def test_contrastive_losses(encoder, pooling, names):
    """sentence-transformers' MultipleNegativesRankingLoss: cos_sim * 20, cross entropy with the
    index of the own positive among positives and negatives.
    """
    folder, model, words = encoder
    pairs = [{n: p[n] for n in names} for p in PAIRS[:4]]
    texts = [p[n] for n in names for p in pairs]
    loss = MultipleNegativesRankingLoss(negatives=len(names) - 2, pooling=pooling)
    trainer = edgewise.Trainer(folder, loss, "SGD", learning_rate=0.02, batch_size=len(texts))
    batch = ContrastiveRows(trainer, pairs, sequence_length=16).get(0)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    sgd = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(4):
        vectors = embedded(model, words, texts, pooling)
        scores = vectors[:4] @ vectors[4:].T * 20.0
        expected = F.cross_entropy(scores, torch.arange(4))
        assert trainer.step(batch) == pytest.approx(float(expected), abs=1e-4)
        sgd.zero_grad()
        expected.backward()
        sgd.step()
    trainer.free()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(before[name])


def recall(folder):
    """Share of anchors whose own positive is found first."""
    with edgewise.pipeline("embeddings", folder) as embed:
        index = embed.index([p["positive"] for p in PAIRS], pooling="mean")
        found = index.search([p["anchor"] for p in PAIRS], top_k=1)
    return sum(f[0]["text"] == p["positive"] for f, p in zip(found, PAIRS, strict=True)) / len(
        PAIRS
    )


def test_search_finds_what_was_learned(encoder, tmp_path):
    folder, *_ = encoder
    trainer = edgewise.Trainer(
        folder, MultipleNegativesRankingLoss(), "AdamW", learning_rate=5e-3, batch_size=16
    )
    pairs = [{n: p[n] for n in ("anchor", "positive")} for p in PAIRS]
    trainer.fit(ContrastiveRows(trainer, pairs, 16), max_steps=40, progress=False)
    shutil.copytree(folder, tmp_path / "learned")
    trainer.export(tmp_path / "learned" / "onnx" / "model.onnx")
    before, after = recall(folder), recall(tmp_path / "learned")
    assert before < 0.7 and after == 1.0
    with pytest.raises(InputError, match="fill no batch"):
        ContrastiveRows(trainer, pairs[:3])
    with pytest.raises(InputError, match="record 1: positive is"):
        ContrastiveRows(trainer, [{"anchor": "a"}] * 8)
    with pytest.raises(InputError, match="record 2: .* negatives=0"):
        ContrastiveRows(trainer, [pairs[0], *PAIRS])
    trainer.options.loss.negatives = 1
    with pytest.raises(InputError, match="record 1: there is no negative, .* negatives=1"):
        ContrastiveRows(trainer, pairs)
    trainer.options.loss.negatives = 2
    with pytest.raises(InputError, match="one negative at most, and the loss has 2"):
        ContrastiveRows(trainer, PAIRS)
    trainer.free()


def test_rows_of_a_teacher():
    """Records that are none, and scores that are too high for float32, in words."""
    adapters = LoraConfig(r=2, target_modules=["q_proj"])
    trainer = edgewise.Trainer(DEMO, DistillationLoss(top_k=1), adapters=adapters, batch_size=1)
    for wrong in (None, 5, "a", {}, [], {"teacher": []}):
        with pytest.raises(InputError, match="data: they are no records with a teacher's part"):
            DistillationRows(trainer, wrong, 16)
    words = {"prompt": "The robot gave", "completion": " a lamp."}
    whole = trainer.tokenizer.encode("".join(words.values()))
    count = len(whole) - len(trainer.tokenizer.encode(words["prompt"]))
    for score in (float("inf"), 1e300, 10**400):
        record = {**words, "teacher": [[[3, score]]] * count}
        with pytest.raises(InputError, match="data, record 1, teacher 1: a log-probability is"):
            DistillationRows(trainer, [record], 16)
    record = {**words, "teacher": [[[3, -(10**400)]]] * count}
    assert DistillationRows(trainer, iter([record]), 16).get(0)["labels"] is not None
