"""Makes families.json: losses of 50 steps of AdamW by PyTorch, of models of
tests/generation/families with the weights that their files have.

    python make_families.py   # torch 2.13, transformers 5.24, onnx

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


def batches(rows: int, tokens: int):
    """The token ids of each step: two batches in turn."""
    ids = np.random.default_rng(0).integers(3, 90, (2, rows, tokens))
    return [ids[i % 2] for i in range(STEPS)]


def matched(model, name):
    """{initializer: parameter of the same content}, where neither has a double."""
    data = lzma.decompress((FAMILIES / f"{name}.onnx.xz").read_bytes())
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
        trained = matched(model, name)
        print(name, len(trained), "of", sum(1 for _ in model.parameters()), flush=True)
        model.requires_grad_(False)
        for p in trained.values():
            if p.ndim > 1:
                p.mul_(factor)
            p.requires_grad_(True)
        optimizer = torch.optim.AdamW(trained.values(), lr=rate, weight_decay=0.0)
        losses = []
        for ids in batches(rows, tokens):
            ids = torch.tensor(ids)
            logits = model(input_ids=ids, use_cache=False).logits[:, :-1].float()
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(round(loss.item(), 6))
        print(losses[0], losses[-1], flush=True)
        known[name] = {"trained": sorted(trained), "losses": losses}
    lines = (f'"{k}": {json.dumps(v)}' for k, v in known.items())
    (HERE / "families.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
