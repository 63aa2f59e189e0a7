"""Merges an adapter that a page trained into the float model, and compares two other engines.

    python merge.py SmolLM2-135M-Instruct downloads/ --output merged.onnx

The model folder has the hub's layout, with onnx/model.onnx and model.safetensors; the adapter
folder has the two files that the page offers. Greedy tokens of merged.onnx in onnxruntime and of
the PEFT adapter in transformers must be equal. Requires edgewise[text], onnxruntime, transformers
and peft.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from edgewise import merge_adapter


def onnxruntime_tokens(path: Path, prompt: list[int], count: int, end: int) -> list[int]:
    """At most `count` greedy tokens up to `end`, of a decoder with a key-value cache."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    names = [i.name for i in session.get_inputs()]
    feeds = {
        i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32)
        for i in session.get_inputs()
        if i.name.startswith("past_key_values")
    }
    tokens, new = [], prompt
    for _ in range(count):
        length = len(prompt) + len(tokens)
        feeds["input_ids"] = np.array([new])
        feeds["attention_mask"] = np.ones((1, length), np.int64)
        if "position_ids" in names:
            feeds["position_ids"] = np.arange(length - len(new), length)[None]
        logits, *cache = session.run(None, feeds)
        tokens.append(int(logits[0, -1].argmax()))
        if tokens[-1] == end:
            break
        new = tokens[-1:]
        for output, value in zip(session.get_outputs()[1:], cache, strict=True):
            feeds[output.name.replace("present", "past_key_values")] = value
    return tokens


def transformers_tokens(model: str, adapter: str, prompt: list[int], count: int) -> list[int]:
    """The same, of the original model with the adapter that PEFT loads."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    adapted = PeftModel.from_pretrained(base, adapter)
    ids = torch.tensor([prompt])
    with torch.no_grad():
        out = adapted.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=count,
            do_sample=False,
        )
    return out[0, len(prompt) :].tolist()


def main() -> None:
    """Merges, generates with both engines, and prints what they write."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("model", help="folder in the layout of the hub")
    arguments.add_argument("adapter", help="folder with adapter_config.json and its weights")
    arguments.add_argument("--output", type=Path, default=Path("merged.onnx"))
    arguments.add_argument("--question", default="What is the capital of France?")
    arguments.add_argument("--tokens", type=int, default=24)
    options = arguments.parse_args()

    merge_adapter(options.model, options.adapter, options.output, dtype="fp32")
    print(f"wrote {options.output}: {os.path.getsize(options.output) / 1e6:.0f} MB")

    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": options.question}], add_generation_prompt=True
    )
    end = tokenizer.eos_token_id
    ours = onnxruntime_tokens(options.output, prompt, options.tokens, end)
    theirs = transformers_tokens(options.model, options.adapter, prompt, options.tokens)
    print("merged, in onnxruntime:    ", repr(tokenizer.decode(ours)))
    print("adapter, in transformers:  ", repr(tokenizer.decode(theirs)))
    if ours != theirs:
        raise SystemExit("the tokens differ")


if __name__ == "__main__":
    main()
