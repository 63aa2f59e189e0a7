"""Training steps in native PyTorch."""

from __future__ import annotations

import json
import time

import onnx
from onnx import numpy_helper

from .models import batch


def torch_version():
    import torch

    return torch.__version__


class Torch:
    """PyTorch with the same weights in eager mode, one thread."""

    def __init__(self, path):
        import torch
        import torch.nn.functional as F

        torch.set_num_threads(1)
        self.torch, model = torch, onnx.load(path)
        about = json.loads(path.with_suffix(".json").read_text())
        a = about["model"]
        w = {
            i.name: torch.from_numpy(numpy_helper.to_array(i).copy())
            for i in model.graph.initializer
        }
        for name in about["trained"]:
            w[name].requires_grad_()
        _, x, labels = batch(path.stem)
        x, labels = torch.from_numpy(x), torch.from_numpy(labels)
        self.optimizer = torch.optim.AdamW(
            [w[n] for n in about["trained"]], lr=1e-3, weight_decay=0.0, fused=True
        )

        def linear(x, name):
            y = x @ w[name]
            return y + x @ w[name + ".lora_A"] @ w[name + ".lora_B"] if name + ".lora_A" in w else y

        def norm(x, name):
            return F.rms_norm(x, x.shape[-1:], w[name], 1e-5)

        def mlp(h):
            for i in range(a["layers"]):
                h = torch.addmm(w[f"b{i}"], h, w[f"w{i}"])
                h = torch.relu(h) if i + 1 < a["layers"] else h
            return h

        def gpt(ids):
            h = F.embedding(ids, w["embedding"])
            for i in range(a["layers"]):
                p = f"layers.{i}."
                y = norm(h, p + "norm1")
                q, k, v = (
                    linear(y, p + n).view(*ids.shape, a["heads"], -1).transpose(1, 2) for n in "qkv"
                )
                h = h + linear(
                    F.scaled_dot_product_attention(q, k, v, is_causal=True)
                    .transpose(1, 2)
                    .reshape(h.shape),
                    p + "o",
                )
                y = norm(h, p + "norm2")
                h = h + linear(F.silu(linear(y, p + "gate")) * linear(y, p + "up"), p + "down")
            return (norm(h, "norm") @ w["head"]).flatten(0, 1)

        self.loss = lambda: F.cross_entropy((mlp if a["kind"] == "mlp" else gpt)(x), labels)

    def steps(self, count, milliseconds):
        losses, ms, begin = [], [], time.perf_counter()
        while len(ms) < count or (time.perf_counter() - begin) * 1e3 < milliseconds:
            start = time.perf_counter()
            loss = self.loss()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
            ms.append((time.perf_counter() - start) * 1e3)
        return {"losses": losses, "ms": ms}
