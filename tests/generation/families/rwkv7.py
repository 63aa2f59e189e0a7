"""RWKV 7 ("Goose"), one token per run, which transformers does not have: the formulas of its paper
(arXiv 2503.14456) in PyTorch. States have names as `state0` and `state0out`, which tell them apart
by their order alone. Used by make.py.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, LAYERS, RANK = 32, 2, 2, 8
DIM = WIDTH // HEADS


def low_rank(bias: bool = True) -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, RANK, bias=False), nn.Linear(RANK, WIDTH, bias=bias))


class TimeMix(nn.Module):
    """The recurrence: S = S (diag(w) - kk (a kk)^T) + v k^T for each head."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.first, self.mix = first, nn.Parameter(torch.rand(6, WIDTH))
        for name in ("receptance", "key", "value", "output"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH, bias=False))
        self.decay, self.rate, self.value_mix = low_rank(), low_rank(), low_rank()
        self.gate = low_rank(bias=False)
        self.key_scale, self.key_rate = (nn.Parameter(torch.rand(WIDTH)) for _ in range(2))
        self.bonus = nn.Parameter(torch.rand(HEADS, DIM))
        self.norm = nn.GroupNorm(HEADS, WIDTH, eps=64e-5)

    def forward(self, x, before, state, first_value):
        r, w, k, v, a, g = (x + (before - x) * m for m in self.mix)

        def by_heads(y):
            return y.view(-1, HEADS, DIM)

        # decay = exp(-exp(-0.5) sigmoid(...))
        w = torch.exp(-0.606531 * torch.sigmoid(self.decay[1](torch.tanh(self.decay[0](w)))))
        r, k, given = self.receptance(r), self.key(k), self.value(v)
        if self.first:
            v = first_value = given
        else:
            v = given + (first_value - given) * torch.sigmoid(self.value_mix(v))
        a = torch.sigmoid(self.rate(a))
        g = self.gate[1](torch.sigmoid(self.gate[0](g)))
        removed = functional.normalize(by_heads(k * self.key_scale), dim=-1)
        k = k * (1 + (a - 1) * self.key_rate)
        r, w, k, v, a = (by_heads(y) for y in (r, w, k, v, a))
        old = (state @ removed.unsqueeze(-1)) @ (removed * a).unsqueeze(-2)
        state = state * w.unsqueeze(-2) - old + v.unsqueeze(-1) @ k.unsqueeze(-2)
        y = self.norm((state @ r.unsqueeze(-1)).reshape(-1, WIDTH))
        y = y + ((r * k * self.bonus).sum(-1, keepdim=True) * v).reshape(-1, WIDTH)
        return self.output(y * g), state, first_value


class Rwkv7(nn.Module):
    """logits [1, vocabulary] and new states of a token id [1, 1] and states."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocab, WIDTH), nn.Linear(WIDTH, vocab)
        self.start, self.end = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2 * LAYERS))
        self.mixes = nn.ModuleList(TimeMix(i == 0) for i in range(LAYERS))
        self.channel = nn.Parameter(torch.rand(LAYERS, WIDTH))
        self.up = nn.ModuleList(nn.Linear(WIDTH, 2 * WIDTH) for _ in range(LAYERS))
        self.down = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, ids, *states):
        x, first_value, new = self.start(self.embedding(ids)[:, 0]), None, []
        for i in range(LAYERS):
            shift, state, other = states[3 * i : 3 * i + 3]
            y = self.norms[2 * i](x)
            mixed, state, first_value = self.mixes[i](y, shift, state, first_value)
            x = x + mixed
            z = self.norms[2 * i + 1](x)
            k = self.up[i](z + (other - z) * self.channel[i])
            x = x + self.down[i](torch.relu(k) ** 2)
            new += [y, state, z]
        return self.head(self.end(x)), *new


def first_states() -> list[torch.Tensor]:
    """Before the first token: for each layer a shift, a matrix for each head, a shift."""
    sizes = [(1, WIDTH), (1, HEADS, DIM, DIM), (1, WIDTH)] * LAYERS
    return [torch.zeros(size) for size in sizes]


def greedy(model: nn.Module, ids: list[int], count: int) -> list[int]:
    """The likeliest tokens after ids."""
    made: list[int] = []
    waiting, states = list(ids), first_states()
    with torch.no_grad():
        while len(made) < count:
            given = waiting.pop(0) if waiting else made[-1]
            logits, *states = model(torch.tensor([[given]]), *states)
            if not waiting:
                made.append(int(logits[0].argmax()))
    return made


def export(model: nn.Module, path: str) -> None:
    """Writes an .onnx file."""
    states = first_states()
    names = [f"state{i}" for i in range(len(states))]
    torch.onnx.export(
        model,
        (torch.tensor([[3]]), *states),
        path,
        dynamo=False,
        opset_version=18,
        input_names=["input_ids", *names],
        output_names=["logits", *(f"{n}out" for n in names)],
    )
