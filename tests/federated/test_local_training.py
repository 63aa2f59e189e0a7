"""A round's local training beside PyTorch's: FedAvg, FedProx, and LoRA's matrices B alone."""

import pytest

pytest.importorskip("websockets")

import numpy as np
import torch
from edgewise import LoraConfig, Trainer
from edgewise.compiler.training.safetensors import load_safetensors
from edgewise.errors import InputError
from edgewise.extras.federated.codec import Schema
from edgewise.extras.federated.local_training import LocalTraining, drawn
from edgewise.host.training.trainer.loop import rows_of
from edgewise.training.peft import WEIGHTS

from tests.training import llama
from tests.training.llama import Lora
from tests.training.trainer.models import net, rows

RATE, STEPS = 0.05, 6


@pytest.fixture(scope="module")
def training():
    trainer = Trainer(
        net()[0],
        adapters=LoraConfig(r=2, lora_alpha=4, target_modules=["0", "2"]),
        loss="cross_entropy",
        learning_rate=RATE,
        batch_size=8,
    )
    trainer.evaluate(rows(32))  # it learns the shapes
    one = LocalTraining(trainer, rows(32))
    yield one
    one.close()


def start(training):
    rng = np.random.default_rng(5)
    return {
        n: (0.3 * rng.standard_normal(s)).astype(np.float32)
        for n, s in training.schema.shapes.items()
    }


def by_pytorch(training, weights, mu=0.0, frozen=False, number=1, before=None):
    """AdamW, with the state of `before`; FedProx by the point that is nearest to both; A without a
    gradient. Returns the values, and the state.
    """
    model = net()[1].requires_grad_(False)
    named = {}
    for i in (0, 2):
        a, b = (
            next(n for n in weights if n.startswith(f"{i}.") and f"lora_{x}" in n) for x in "AB"
        )
        model[i] = Lora(model[i], weights[a], weights[b], 2.0)
        named[a], named[b] = model[i].a.requires_grad_(not frozen), model[i].b
    options = training.trainer.optimizer
    optimizer = torch.optim.AdamW(
        [p for p in named.values() if p.requires_grad], lr=RATE, weight_decay=options.weight_decay
    )
    if before:
        optimizer.load_state_dict(before)
    for step in range(STEPS):
        batches = len(training.rows)
        batch = training.rows.get(step % batches, number + step // batches)
        x, labels = (torch.tensor(np.asarray(batch[k])) for k in ("x", "labels"))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), labels.long()).backward()
        optimizer.step()
        for name, p in named.items():
            if mu and p.requires_grad:
                p.data = nearest(p.detach(), torch.tensor(weights[name]), mu)
    return {n: p.detach().numpy() for n, p in named.items()}, optimizer.state_dict()


def nearest(here, first, mu):
    """The minimum of mu/2 |w - first|^2 + |w - here|^2 / (2 rate), by Newton's method."""
    w, here, first = here.double().requires_grad_(), here.double(), first.double()
    loss = mu / 2 * (w - first).square().sum() + (w - here).square().sum() / (2 * RATE)
    (slope,) = torch.autograd.grad(loss, w, create_graph=True)
    (curve,) = torch.autograd.grad(slope.sum(), w)
    return (w - slope / curve).detach().float()


@pytest.mark.parametrize(
    "config, given",
    [
        ({}, {}),
        ({"proximal-mu": 3.0}, {"mu": 3.0}),
        ({"part": "B"}, {"frozen": True}),
        ({"part": "B", "proximal-mu": 3.0}, {"mu": 3.0, "frozen": True}),
    ],
)
def test_as_pytorch(training, config, given):
    weights = start(training)
    ours = training.train(weights, {"local-steps": STEPS, **config}, 0, 1, lambda: False).values
    theirs, _ = by_pytorch(training, weights, **given)
    assert ours.keys() == theirs.keys() and len(ours) == 4
    for name, x in theirs.items():
        np.testing.assert_allclose(ours[name], x, atol=2e-5, err_msg=name)
        moved = np.abs(ours[name] - weights[name]).max()
        assert moved == 0 if "part" in config and "lora_A" in name else moved > 0.01


def test_an_optimizer_goes_on_in_the_next_round(training):
    """From other weights, with the moments and the number of updates of the round before."""
    weights, config = start(training), {"local-steps": STEPS, "keep-optimizer": 1}
    kept, state = b"", None
    for number in (1, 2):
        config["kept"] = kept
        ours = training.train(weights, config, 0, number, lambda: False)
        theirs, state = by_pytorch(training, weights, number=number, before=state)
        for name, x in theirs.items():
            np.testing.assert_allclose(ours.values[name], x, atol=2e-5, err_msg=name)
        new = training.train(weights, {**config, "kept": b"\1" * 7}, 0, number, lambda: False)
        if number == 1:  # another optimizer's state is none
            assert new.kept == ours.kept
        else:
            assert max(np.abs(new.values[n] - ours.values[n]).max() for n in weights) > 1e-3
        kept = ours.kept
        weights = {n: x * np.float32(0.9) for n, x in ours.values.items()}


def test_drawn_weights_are_the_proximal_point():
    rng = np.random.default_rng(1)
    here, first = (rng.standard_normal(50).astype(np.float32) for _ in range(2))
    want = nearest(torch.tensor(here), torch.tensor(first), 7.0).numpy()
    np.testing.assert_allclose(drawn(here, first, RATE, 7.0), want, rtol=1e-6, atol=1e-7)


def test_parts_of_a_schema():
    shapes = {"x.lora_A.weight": (2, 3), "x.lora_B.weight": (4, 2), "e.lora_embedding_B": (4, 2)}
    schema = Schema.of(shapes)
    assert schema.part(None) is schema
    assert list(schema.part("B").shapes) == ["e.lora_embedding_B", "x.lora_B.weight"]
    for other, part in ((schema, "A"), (Schema.of({"dense": (3,)}), "B")):
        with pytest.raises(InputError, match="is not a part"):
            other.part(part)


def test_one_update_shows_its_row_and_a_mean_of_eight_does_not():
    """The change of a first layer's weights by one row is that row times the layer's gradient, so
    its largest singular vector is the row: what secure sums are for.
    """
    options = {"loss": "cross_entropy", "optimizer": "SGD", "learning_rate": 0.1, "batch_size": 1}
    trainer = Trainer(net()[0], **options)
    data = rows(8)
    trainer.evaluate(data)
    one = LocalTraining(trainer, data)
    before, changes = one.weights(), []
    for k in range(8):
        one.rows = rows_of(
            {n: x[k : k + 1] for n, x in data.items()}, trainer.model, trainer.options
        )
        after = one.train(before, {"local-steps": 1}, 0, 1, lambda: False).values
        changes.append(after["0.weight"] - before["0.weight"])
    one.close()
    seen = data["x"] / np.linalg.norm(data["x"], axis=1, keepdims=True)

    def found(change):
        """The cosine of the angle to each row of what the change shows."""
        return np.abs(seen @ np.linalg.svd(change)[2][0])

    assert all(found(change)[k] > 0.9999 for k, change in enumerate(changes))
    assert found(sum(changes)).max() < 0.95


def test_variants_send_what_their_file_has(tmp_path):
    """Magnitudes of DoRA and whole modules, in the layout of the adapter's file."""
    path = tmp_path / "model.onnx"
    path.write_bytes(llama.base("fp32"))
    fields = {"target_modules": ["q_proj"], "modules_to_save": ["down_proj", "norm"]}
    adapters = LoraConfig(r=2, use_dora=True, **fields)
    trainer = Trainer(path, adapters=adapters, batch_size=2, sequence_length=16)
    one = LocalTraining(trainer, [list(range(3, 200)), list(range(200, 3, -1))])
    weights = one.weights()
    trainer.save_adapter(tmp_path / "adapter")
    tensors, _ = load_safetensors(tmp_path / "adapter" / WEIGHTS)
    assert {n.removeprefix("base_model.model."): tuple(t.shape) for n, t in tensors.items()} == (
        {n: x.shape for n, x in weights.items()}
    )
    for name, tensor in tensors.items():
        sent = weights[name.removeprefix("base_model.model.")]
        assert sent.tobytes() == tensor.bytes(), name
    ends = {n.split("model.layers.0.")[1] for n in weights if "layers.0" in n}
    names = [f"self_attn.q_proj.lora_{x}" for x in ("A.weight", "B.weight", "magnitude_vector")]
    assert ends == {*names, "mlp.down_proj.weight"} and "model.norm.weight" in weights
    made = one.train(weights, {"local-steps": 2}, 0, 1, lambda: False).values
    assert all(np.any(made[n] != weights[n]) for n in weights)
    part = one.train(weights, {"local-steps": 2, "part": "B"}, 0, 1, lambda: False).values
    changed = {n for n in weights if np.any(part[n] != weights[n])}
    assert changed == {n for n in weights if n.endswith("lora_B.weight")}
    averaging = Trainer(path, adapters=adapters, sequence_length=16, ema_decay=0.9)
    with pytest.raises(InputError, match="rounds send weights, not their averages"):
        LocalTraining(averaging, None)
    one.put(made)
    assert all(np.array_equal(x, made[n]) for n, x in one.weights().items())
    one.close()


IDS = np.random.default_rng(0).integers(3, 200, (4, 16))
MASKED = {"input_ids": IDS, "labels": np.where(np.arange(16) < 9, -100, IDS)}


@pytest.mark.parametrize(
    ("fields", "data", "more"),
    [
        ({"target_modules": ["q_proj", "embed_tokens"]}, [IDS[0].tolist()] * 4, {"packing": True}),
        ({"target_modules": ["q_proj"], "use_dora": True}, MASKED, {}),
        ({"target_modules": ["q_proj"], "modules_to_save": ["norm"], "bias": "all"}, MASKED, {}),
    ],
)
def test_a_round_is_what_training_is(tmp_path, fields, data, more):
    """Embeddings, magnitudes, whole modules and masked tokens: the bits of Trainer.fit."""
    path = tmp_path / "model.onnx"
    path.write_bytes(llama.base("fp32"))

    def trainer():
        lora = LoraConfig(r=2, **fields)
        return Trainer(path, adapters=lora, batch_size=2, sequence_length=16, **more)

    one = LocalTraining(trainer(), data)
    before = one.weights()
    made = one.train(before, {"local-steps": 2}, 0, 0, lambda: False)
    one.close()
    plain = trainer()
    history = plain.fit(data, max_steps=2)
    other = LocalTraining(plain, data)
    for name, x in other.weights().items():
        assert x.tobytes() == made.values[name].tobytes(), name
        assert np.any(x != before[name]), name
    assert made.metrics["loss"] == pytest.approx(np.mean(history.losses))
    other.close()
