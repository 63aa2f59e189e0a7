"""Accumulated batches average tokens, not batches, as transformers' Trainer does with
`num_items_in_batch`: losses and gradients beside PyTorch's over all tokens.
"""

import edgewise
import numpy as np
import pytest
import torch
from edgewise.host.training.session import learned_labels, weighed
from edgewise.training import LoraConfig

from . import llama
from .adapters.models import close, session_of

LORA = {"r": 4, "target_modules": ["q_proj", "down_proj"]}


def batches():
    many, few = llama.batch(1), llama.batch(2)
    few["labels"][:, :13] = -100
    return many, few


def test_losses_and_gradients_are_those_of_all_tokens():
    session = session_of("fp32", LoraConfig(**LORA))
    session.initialize("accumulate")
    model = llama.pytorch()
    parameters = llama.adapt(model, session)
    total = sum(learned_labels(b, session.program) for b in batches())
    sums, count = 0.0, 0
    for batch in batches():
        ids, labels = (torch.tensor(batch[n]) for n in ("input_ids", "labels"))
        logits = model(ids).logits[:, :-1]
        sums = sums + torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels[:, 1:].flatten(), reduction="sum"
        )
        count += int((labels[:, 1:] != -100).sum())
    assert total == count
    (sums / count).backward()
    losses = [
        float(session.accumulate({**b, **weighed(b, session.program, total)})["loss"])
        for b in batches()
    ]
    assert sum(losses) == pytest.approx(float(sums.detach()) / count, rel=1e-5)
    for name, parameter in parameters.items():
        close(session.get(f"gradient/{name}"), parameter.grad.numpy(), 1e-4, name)
    session.free()


def test_a_trainer_averages_the_tokens_of_an_update():
    trainer = edgewise.Trainer(
        llama.base("fp32"),
        adapters=LORA,
        gradient_accumulation_steps=2,
        batch_size=2,
        sequence_length=16,
    )
    model = llama.pytorch()
    sums, count = 0.0, 0
    for batch in batches():
        ids, labels = (torch.tensor(batch[n]) for n in ("input_ids", "labels"))
        logits = model(ids).logits[:, :-1].flatten(0, 1)
        sums += float(
            torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), reduction="sum")
        )
        count += int((np.asarray(labels)[:, 1:] != -100).sum())
    assert trainer.step(batches()) == pytest.approx(sums / count, rel=1e-5)
    trainer.free()
