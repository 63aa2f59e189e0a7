"""The loss that balances experts, against transformers' load_balancing_loss_func."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from edgewise import LoraConfig, Trainer
from edgewise.errors import InputError
from generation.test_mixtures import CHOICES, EXPERTS, VOCAB, Model, exported
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from .test_families import folder, ids

COEFFICIENT, TOKENS = 0.5, 6


def batches():
    """Token ids, and labels with a prompt, whose tokens count, and padding, whose do not."""
    x = np.random.default_rng(3).integers(0, VOCAB, (3, 1, TOKENS))
    labels = x.copy()
    labels[:, :, :2] = labels[:, :, 5:] = -100
    return list(zip(x, labels))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_steps_are_those_of_pytorch(tmp_path, accumulate):
    """Of a mixture that the exporter writes by NonZero: the loss of each step shows the gradients
    of the steps before it.
    """
    (tmp_path / "model.onnx").write_bytes(exported(False))
    trainer = Trainer(
        tmp_path / "model.onnx",
        router_aux_loss_coef=COEFFICIENT,
        optimizer="SGD",
        gradient_accumulation_steps=accumulate,
        learning_rate=0.2,
        max_grad_norm=None,
        batch_size=1,
        sequence_length=TOKENS,
    )
    torch.manual_seed(0)
    model = Model(False)
    logits = []
    for layer in model.layers:
        layer.gate.register_forward_hook(lambda m, i, out: logits.append(out))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    real = torch.ones(1, TOKENS)
    real[:, 5:] = 0
    for x, labels in batches() * 2:
        logits.clear()
        y = model(torch.tensor(x))[:, :-1].reshape(-1, VOCAB)
        loss = torch.nn.functional.cross_entropy(y, torch.tensor(labels[:, 1:]).reshape(-1))
        balance = load_balancing_loss_func(tuple(logits), EXPERTS, CHOICES, real)
        loss = loss + COEFFICIENT * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        got = trainer.step([{"input_ids": x, "labels": labels}] * accumulate)
        assert abs(got - float(loss)) < 1e-4


@pytest.mark.parametrize("name", ["transformers_qwen3_moe", "GenAI_gpt_oss", "optimum_qwen3_moe"])
def test_exports(tmp_path, name):
    """Tokens sorted by expert, MoE, and NonZero: with the scores of routers by onnxruntime."""
    path, (data,) = folder(tmp_path, name), ids(1, 8)[0][None]
    losses = []
    for coefficient in (0.0, 2.0):
        trainer = Trainer(
            path,
            router_aux_loss_coef=coefficient,
            adapters=LoraConfig(r=2, target_modules="all-linear"),
            learning_rate=1e-9,
            batch_size=1,
            sequence_length=8,
        )
        losses.append(trainer.step({"input_ids": data, "labels": data}))
    model = onnx.load(path / "model.onnx")
    made = {o: n for n in model.graph.node for o in n.output}
    names = [n.input[1] for n in model.graph.node if n.op_type == "MoE"]
    if not names:
        tops = [made[n.input[0]] for n in model.graph.node if n.op_type == "TopK"]
        tops = [made[n.input[0]] if n.op_type == "Cast" else n for n in tops]
        names = [n.input[0] for n in tops if n.op_type == "Softmax"]
    assert len(names) == 2
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in names)
    reference = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = {"input_ids": data, "position_ids": np.arange(8)[None]}
    for i in reference.get_inputs():
        kind = np.int64 if "int64" in i.type else np.float32
        window = 8 if len(i.shape) == 4 and i.shape[2] == "past_sliding_length" else 0
        shape = (1, 1, window, 16) if len(i.shape) == 4 else (1, 8)
        feeds.setdefault(i.name, np.zeros(shape, kind) + (len(shape) == 2))
    feeds = {i.name: feeds[i.name] for i in reference.get_inputs()}
    scores = [torch.tensor(v) for v in reference.run(names, feeds)]
    scores = tuple(v.reshape(8, -1) for v in scores)
    expected = 2.0 * load_balancing_loss_func(scores, scores[0].shape[1], 2)
    assert abs(losses[1] - losses[0] - float(expected)) < 1e-4


def test_a_model_without_experts(tmp_path):
    trainer = Trainer(
        folder(tmp_path, "GenAI_lfm2"),
        router_aux_loss_coef=0.01,
        adapters={"r": 2},
        batch_size=1,
        sequence_length=8,
    )
    row = ids(1, 8)[0]
    with pytest.raises(InputError, match="no experts that a router chooses"):
        trainer.step({"input_ids": row, "labels": row})


@pytest.mark.parametrize(
    "more, error",
    [
        ({"router_aux_loss_coef": -1.0}, "not a factor"),
        ({"router_aux_loss_coef": 0.1, "loss": "dpo"}, "next tokens"),
        ({"router_aux_loss_coef": 0.1, "loss": "mse"}, "next tokens"),
    ],
)
def test_factors_without_a_use(tmp_path, more, error):
    with pytest.raises(InputError, match=error):
        Trainer(folder(tmp_path, "GenAI_gpt_oss"), adapters={"r": 2}, **more)
