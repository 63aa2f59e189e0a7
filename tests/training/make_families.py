"""Makes families.json: losses of 50 steps of AdamW by PyTorch, of models of
tests/generation/families with the weights that their files have.

    python make_families.py           # torch 2.13, transformers 5.24, onnx
    python make_families.py decoders  # torch, transformers 4.57, optimum-onnx: of tests/seq2seq

Parameters that a file holds as they are, or transposed, are trained; others (packed ones) are not.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

import numpy as np
import onnx
import torch

HERE = Path(__file__).parent
FAMILIES = HERE.parent / "generation" / "families"
STEPS = 50
# {model: rows and tokens of a step, rate of AdamW, factor of the matrices that are trained}
MODELS = {
    "GenAI_gpt_oss": (2, 20, 3e-3, 1.0),
    "GenAI_lfm2": (2, 12, 3e-3, 1.0),
    "GenAI_lfm2_moe": (2, 12, 3e-3, 1.0),
    "GenAI_qwen3_5_text": (2, 70, 3e-3, 0.3),
    "GenAI_qwen3_5_moe": (1, 20, 1e-3, 0.3),
    "transformers_mamba2": (1, 8, 3e-3, 1.0),
    "transformers_gemma4": (1, 12, 3e-3, 1.0),
}


# Those of tests/seq2seq, whose encoders' states are random: rows, tokens, tokens of the encoder,
# rate
DECODERS = {"whisper": (2, 9, 50, 1e-3), "marian": (2, 9, 6, 1e-3), "t5": (2, 9, 6, 1e-3)}


def batches(rows: int, tokens: int):
    """The token ids of each step: two batches in turn."""
    ids = np.random.default_rng(0).integers(3, 90, (2, rows, tokens))
    return [ids[i % 2] for i in range(STEPS)]


def encoded(rows: int, length: int, width: int):
    """The states of the encoder, the same in each step."""
    return np.random.default_rng(1).standard_normal((rows, length, width)).astype(np.float32)


def matched(model, data):
    """{initializer: parameter of the same content}, where neither has a double. data: the file."""
    found: dict[bytes, list[str]] = {}
    for t in onnx.load_from_string(data).graph.initializer:
        a = onnx.numpy_helper.to_array(t)
        if a.dtype == np.float32 and a.size > 1:
            for key in {(a.shape, a.tobytes()), (a.T.shape, np.ascontiguousarray(a.T).tobytes())}:
                found.setdefault(key, []).append(t.name)
    pairs = [
        (found.get((tuple(p.shape), p.detach().numpy().tobytes()), []), p)
        for p in model.parameters()
    ]
    names = [n for ns, _ in pairs for n in ns]
    return {ns[0]: p for ns, p in pairs if len(ns) == 1 and names.count(ns[0]) == 1}


def main() -> None:
    sys.path.insert(0, str(FAMILIES))
    from make import make
    from transformers.models.qwen3_5 import modeling_qwen3_5
    from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe

    # Files have the norm of queries and keys without the 1e-6 that transformers adds to its square.
    for module in (modeling_qwen3_5, modeling_qwen3_5_moe):
        module.l2norm = lambda x, dim=-1, eps=0.0: x * torch.rsqrt((x * x).sum(dim, True))

    known = {}
    for name, (rows, tokens, rate, factor) in MODELS.items():
        model = make(name.split("_", 1)[1])
        data = lzma.decompress((FAMILIES / f"{name}.onnx.xz").read_bytes())
        given = {"use_cache": False}
        known[name] = train(model, matched(model, data), batches(rows, tokens), rate, factor, given)
    write(known)


def decoders() -> None:
    sys.path.insert(0, str(HERE.parent / "seq2seq"))
    import make
    from transformers.modeling_outputs import BaseModelOutput

    known = {}
    for name, (rows, tokens, length, rate) in DECODERS.items():
        torch.manual_seed(7)
        model = getattr(make, name)().eval()
        file = make.HERE / name / "onnx" / "decoder_model_merged.onnx"
        states = torch.tensor(encoded(rows, length, model.config.d_model))
        given = {"encoder_outputs": BaseModelOutput(states), "use_cache": False}
        trained = matched(model, file.read_bytes())
        known[name] = train(model, trained, batches(rows, tokens), rate, 1.0, given)
    write(known)


def train(model, trained, steps, rate, factor, given):
    """Losses of a model, and the names of the parameters that were trained.

    Args:
        trained: of matched; matrices are multiplied by `factor` first.
        steps: token ids of each.
        given: further arguments of the model.
    """
    print(len(trained), "of", sum(1 for _ in model.parameters()), flush=True)
    model.requires_grad_(False)
    for p in trained.values():
        if p.ndim > 1:
            p.mul_(factor)
        p.requires_grad_(True)
    optimizer = torch.optim.AdamW(trained.values(), lr=rate, weight_decay=0.0)
    losses = []
    for numbers in steps:
        ids = torch.tensor(numbers)
        name = "decoder_input_ids" if "encoder_outputs" in given else "input_ids"
        logits = model(**{name: ids}, **given).logits[:, :-1].float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 6))
    print(losses[0], losses[-1], flush=True)
    return {"trained": sorted(trained), "losses": losses}


def write(known) -> None:
    path = HERE / "families.json"
    known = (json.loads(path.read_text()) if path.exists() else {}) | known
    lines = (f'"{k}": {json.dumps(v)}' for k, v in known.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    decoders() if sys.argv[1:] == ["decoders"] else main()
