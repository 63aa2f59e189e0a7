"""Fine-tunes a language model on text files with LoRA, and writes the adapter and the merged model.

    python finetune.py web/demo/model letters.txt --steps 60

Requires edgewise[text]. The adapter has PEFT's files; merged.onnx runs in any ONNX runtime.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgewise import LoraConfig, Trainer


def main() -> None:
    """Generates a text with the original model, trains, and generates from the same prompt
    again.
    """
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("model", help="model folder in the layout of the Hugging Face hub")
    arguments.add_argument("texts", nargs="+", help="text files to learn from")
    arguments.add_argument("--steps", type=int, default=60)
    arguments.add_argument("--prompt", default="Once upon a time")
    arguments.add_argument("--output", type=Path, default=Path("style"))
    options = arguments.parse_args()

    trainer = Trainer(
        options.model,
        adapters=LoraConfig(r=16, lora_alpha=32),
        learning_rate=4e-3,
        batch_size=1,
        sequence_length=128,
    )
    print(f"training takes {trainer.estimate().total / 1e6:.0f} MB")
    print("before:", trainer.generate(options.prompt, max_new_tokens=40, seed=1))
    history = trainer.fit(
        [Path(name).read_text() for name in options.texts],
        epochs=1000,
        max_steps=options.steps,
        progress=False,
    )
    print(f"loss {history.losses[0]:.2f} -> {history.losses[-1]:.2f}")
    print("after:", trainer.generate(options.prompt, max_new_tokens=40, seed=1))
    trainer.save_adapter(options.output)
    trainer.export(options.output / "merged.onnx")
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
