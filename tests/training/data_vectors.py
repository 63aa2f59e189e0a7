"""Writes tests/conformance/training_data.json: what a training run on texts is, by PyTorch and
transformers.

    python tests/training/data_vectors.py

Orders come from torch's RandomSampler and DataLoader, held-out rows from its random_split, learning
rates from transformers.get_scheduler. Rows of tokens are cut by torch operations; transformers has
no function for them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from torch.utils.data import DataLoader, RandomSampler, random_split
from transformers import get_scheduler

FILE = Path(__file__).parents[1] / "conformance/training_data.json"
SEEDS = (0, 1, 7, 2**32 - 1, 2**32 + 5, 2**63 - 1)
# texts, sequence, end, pad
ROWS = (
    ([[1, 2, 3], [4], [], [5, 6, 0]], 4, 0, 9),
    ([[1, 2, 3], [4], [], [5, 6, 0]], 4, 0, None),
    ([[1, 2, 3, 4, 5]], 4, None, 9),
    ([[1, 2, 3, 4, 5]], 4, None, None),
    ([[1, 2]], 8, None, None),
    ([[1, 2], [3]], 8, 0, None),
    ([[5]], 2, 0, 3),
    ([list(range(1, 8))], 8, None, 0),
    ([list(range(1, 9))], 8, None, 0),
    ([list(range(1, 10))], 8, None, 0),
    ([list(range(1, 72))], 8, 0, 1),
    ([[3, 0], [0], [0, 0, 4]], 3, 0, 0),
)
TOO_SHORT = (([], None), ([[]], 0), ([[1]], None), ([[0]], 0))  # texts, end
# rows, batch, accumulation, epochs, max_steps
RUNS = (
    (10, 4, 1, None, None),
    (10, 4, 2, 2, None),
    (10, 4, 4, 3, None),
    (8, 4, 1, 1, None),
    (3, 4, 1, 2, None),
    (10, 1, 3, 2, None),
    (10, 4, 1, 0.5, None),
    (10, 4, 1, 1.5, None),
    (10, 4, 1, 0.01, None),
    (10, 4, 1, None, 7),
    (10, 4, 1, 5, 7),
    (10, 4, 1, 1, 7),
    (5, 2, 2, None, 5),
)
SCHEDULES = {
    "constant": "constant_with_warmup",  # our names: transformers'
    "linear": "linear",
    "cosine": "cosine",
}


def permutation(count: int, seed: int) -> list[int]:
    sampler = RandomSampler(range(count), generator=torch.Generator().manual_seed(seed))
    return list(sampler)


def split(count: int, share: float, seed: int) -> list[list[int]]:
    held = max(1, math.floor(count * share + 0.5))
    parts = random_split(range(count), [count - held, held], torch.Generator().manual_seed(seed))
    return [sorted(p.indices) for p in parts]


def rows(texts: list[list[int]], sequence: int, end: int | None, pad: int | None) -> dict:
    stream = torch.tensor(
        [
            token
            for text in texts
            if text
            for token in [*text, *([end] if end is not None and text[-1] != end else [])]
        ]
    )
    stride = sequence - 1
    count = -(-(len(stream) - 1) // stride)
    missing = count * stride + 1 - len(stream)
    fill = pad if pad is not None else end if end is not None else 0

    def cut(value: int) -> list[list[int]]:
        padded = torch.cat([stream, torch.full((missing,), value)])
        return padded.unfold(0, sequence, stride).tolist()

    return {"ids": cut(fill), "labels": cut(-100)}


def updates(count, batch, accumulation, epochs, max_steps, seed) -> list[list[list[int]]]:
    """Rows of each batch of each update, in the loop of transformers' Trainer with a seedable
    sampler.
    """

    def epoch(e: int) -> list[list[list[int]]]:
        sampler = RandomSampler(range(count), generator=torch.Generator().manual_seed(seed + e))
        batches = [b.tolist() for b in DataLoader(range(count), batch, sampler=sampler)]
        return [batches[i : i + accumulation] for i in range(0, len(batches), accumulation)]

    per_epoch = len(epoch(0))
    if epochs is None and max_steps is not None:
        total = max_steps
    else:
        total = math.ceil(per_epoch * (1 if epochs is None else epochs))
        total = total if max_steps is None else min(total, max_steps)
    out: list[list[list[int]]] = []
    e = 0
    while len(out) < total:
        out += epoch(e)
        e += 1
    return out[:total]


def factors(name: str, total: int, warmup: int) -> list[float]:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    schedule = get_scheduler(SCHEDULES[name], optimizer, warmup, total)
    out = []
    for _ in range(total):
        out.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return out


def compute() -> dict:
    return {
        "permutations": [
            {"count": n, "seed": str(seed), "order": permutation(n, seed)}
            for n in (1, 2, 5, 40)
            for seed in SEEDS
        ]
        + [{"count": 700, "seed": "3", "order": permutation(700, 3)}],
        "rows": [
            {"texts": t, "sequence": s, "end": e, "pad": p, **rows(t, s, e, p)}
            for t, s, e, p in ROWS
        ],
        "too_short": [{"texts": t, "end": e} for t, e in TOO_SHORT],
        "splits": [
            {"count": n, "share": share, "seed": str(seed), "parts": split(n, share, seed)}
            for n, share in ((10, 0.2), (10, 0.25), (10, 0.01), (3, 0.5), (50, 0.9))
            for seed in (0, 5)
        ],
        "runs": [
            {
                "rows": n,
                "batch": b,
                "accumulation": a,
                "epochs": e,
                "max_steps": m,
                "seed": "11",
                "updates": updates(n, b, a, e, m, 11),
            }
            for n, b, a, e, m in RUNS
        ],
        "schedules": [
            {"schedule": name, "total": t, "warmup": w, "factors": factors(name, t, w)}
            for name in SCHEDULES
            for t, w in ((10, 0), (10, 3), (5, 5), (4, 6), (1, 0), (100, 10))
        ],
    }


def text(vectors: dict) -> str:
    """JSON with one case per line."""
    parts = [
        f'"{name}": [\n' + ",\n".join(json.dumps(case) for case in cases) + "\n]"
        for name, cases in vectors.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(compute()), "utf-8")
