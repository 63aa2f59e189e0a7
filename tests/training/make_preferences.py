"""Writes tests/conformance/preferences.json: losses and gradients of preferences by TRL.

    python tests/training/make_preferences.py

Needs trl 1.16.0 with transformers 4.57.6 and peft, which the project's tests do not install. The
model is tests/training/llama.py's with PEFT's LoRA, whose values are WAVES; the reference is the
model without it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "python")]
from tests.training import llama  # noqa: E402
from tests.training.preference_cases import (  # noqa: E402
    LORA,
    NAMES,
    SETTINGS,
    labelled,
    pairs,
    tokenizer_json,
    wave,
)

FILE = ROOT / "tests/conformance/preferences.json"
KINDS = {
    "dpo": (DPOConfig, DPOTrainer),
    "kto": (KTOConfig, KTOTrainer),
    "orpo": (ORPOConfig, ORPOTrainer),
    "simpo": (CPOConfig, CPOTrainer),
}


def result(name: str) -> dict:
    """The loss, and sums of the gradients of adapters times a wave."""
    make, trainer_of = KINDS[name]
    settings = dict(SETTINGS[name])
    if name == "simpo":
        settings |= {"loss_type": "simpo", "cpo_alpha": 0.0}
    from tokenizers import Tokenizer

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(tokenizer_json()), eos_token="<end>", pad_token="<pad>"
    )
    records = labelled() if name == "kto" else pairs()
    with tempfile.TemporaryDirectory() as folder:
        arguments = make(
            folder,
            report_to=[],
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=len(records),
            max_length=32,
            remove_unused_columns=False,
            **settings,
        )
        trainer = trainer_of(
            llama.pytorch(),
            args=arguments,
            train_dataset=Dataset.from_list(records),
            processing_class=tokenizer,
            peft_config=LoraConfig(**LORA),
        )
        model = trainer.model
        model.train()
        found = {}
        for full, p in model.named_parameters():
            if "lora_" in full:
                short = full.removeprefix("base_model.model.").replace(".default", "")
                p.data = torch.tensor(wave(short, p.shape))
                found[short] = p
        batch = trainer.data_collator([trainer.train_dataset[i] for i in range(len(records))])
        loss = trainer.compute_loss(model, batch)
        loss.backward()
        gradients = {}
        for short in NAMES:
            gradients[short] = [
                float((found[short].grad.numpy() * wave(f"{short} {i}", found[short].shape)).sum())
                for i in range(4)
            ]
        total = np.sqrt(sum(float((p.grad**2).sum()) for p in found.values()))
        return {"loss": float(loss), "norm": float(total), "gradients": gradients}


def main() -> None:
    data = {"versions": "trl 1.16.0, transformers 4.57.6, peft", **{n: result(n) for n in KINDS}}
    FILE.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
