"""One language model, many things in turn: prompts of other lengths, adapters, their scales, and
training in between. Each result is that of a new model in the same state.
"""

import random

import edgewise
import numpy as np
import pytest
from edgewise.training.peft import LoraConfig
from tiers import slow_unless

from .. import llama
from .models import close, logits

CONFIGS = {
    "a": LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"),
    "b": LoraConfig(r=2, lora_alpha=16, target_modules=["q_proj", "down_proj"]),
}


def trainer_of(path, config, seed=0, **options):
    return edgewise.Trainer(
        path,
        adapters=config,
        batch_size=2,
        sequence_length=16,
        learning_rate=2e-2,
        seed=seed,
        **options,
    )


def ids_of(r, most=40):
    return [r.randrange(1, 90) for _ in range(r.choice([1, 2, 3, 7, 8, 9, 17, most]))]


@pytest.mark.parametrize(
    "kind, seed",
    slow_unless(lambda _, seed: seed == 0, [(k, s) for k in ("fp32", "q4") for s in range(4)]),
)
def test_adapters_in_turn(kind, seed, tmp_path):
    path, r = tmp_path / "model.onnx", random.Random(seed)
    path.write_bytes(llama.base(kind))
    for i, (name, config) in enumerate(CONFIGS.items()):
        trainer = trainer_of(path, config, i)
        trainer.fit([[r.randrange(1, 90) for _ in range(160)]], progress=False)
        trainer.save_adapter(tmp_path / name)
        trainer.free()
    biggest = LoraConfig(r=4, target_modules="all-linear")
    lm, loaded = edgewise.CausalLM(path, lora=biggest), set()
    for _ in range(8):
        name, ids = r.choice(["a", "b", None]), ids_of(r)
        if name is not None and (name not in loaded or r.random() < 0.3):
            lm.load_adapter(tmp_path / name, name)  # a second time, too
            loaded.add(name)
        scale = r.choice([1.0, 1.0, 0.5, 2.0])
        lm.set_adapter(name, *([] if name is None else [scale]))
        new = edgewise.CausalLM(path, lora=biggest)
        if name is not None:
            new.load_adapter(tmp_path / name, name)
            new.set_adapter(name, scale)
        np.testing.assert_array_equal(logits(lm, ids), logits(new, ids), err_msg=str((name, ids)))
        new.free()
    lm.free()


@pytest.mark.parametrize("kind", ["fp32", "q4"])
def test_training_between_prompts(kind, tmp_path):
    """Prompts, a step, an evaluation, other prompts: as a new model that loads the adapter as it
    is, and the losses are those of a trainer that did nothing else.
    """
    path, r = tmp_path / "model.onnx", random.Random(4)
    path.write_bytes(llama.base(kind))
    data = [[r.randrange(1, 90) for _ in range(80)] for _ in range(4)]
    alone, busy = (trainer_of(path, CONFIGS["a"]) for _ in range(2))
    lm = busy.language_model()
    for i, text in enumerate(data):
        losses = [t.fit([text], progress=False).losses for t in (alone, busy)]
        assert losses[0] == losses[1]
        busy.save_adapter(tmp_path / str(i))
        new = edgewise.CausalLM(path, lora=tmp_path / str(i))
        for _ in range(3):
            ids = ids_of(r)
            close(logits(lm, ids), logits(new, ids), 1e-6, str(ids))
            if r.random() < 0.5:
                busy.evaluate([text])
        new.free()
    for trainer in (alone, busy):
        trainer.free()


def test_two_sequences_in_turn(tmp_path):
    """Two conversations that are continued in turn are what each is alone."""
    path, r = tmp_path / "model.onnx", random.Random(7)
    path.write_bytes(llama.base("fp32"))
    lm = edgewise.CausalLM(path)
    said = {lm.open(): [], lm.open(): []}
    for _ in range(8):
        s = r.choice(list(said))
        if said[s] and r.random() < 0.3:
            keep = r.randrange(len(said[s]))
            lm.truncate(s, keep)
            said[s] = said[s][:keep]
        ids = ids_of(r, 24)
        said[s] += ids
        found = np.array(lm.logits(lm.forward(s, ids)))
        new = edgewise.CausalLM(path)
        close(found, logits(new, said[s]), 1e-5)
        new.free()
    lm.free()
