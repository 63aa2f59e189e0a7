"""Comparison of gradients with those of PyTorch."""

import numpy as np
import torch

from .model import gradients, node_model

MS = "com.microsoft"


R = np.random.default_rng(0)


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


def check(engine, op, inputs, reference, tol=1e-4, outputs=1, **more):
    """reference(*inputs): the outputs by PyTorch, for floats as tensors with requires_grad and
    everything else as NumPy arrays.
    """
    model, feeds = node_model(op, inputs, outputs=outputs, **more)
    got, grads, seeds, plan = gradients(model, feeds, engine)
    tensors = [
        torch.tensor(x, requires_grad=True) if f"x{i}" in feeds else x for i, x in enumerate(inputs)
    ]
    expected = reference(*tensors)
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    loss = sum(
        (y * torch.tensor(seeds[f"y{i}"])).sum() for i, y in enumerate(expected) if f"y{i}" in seeds
    )
    loss.backward()
    for i, y in enumerate(expected):
        assert got[f"y{i}"].shape == tuple(y.shape)
        close(got[f"y{i}"], y.detach().numpy(), tol, f"output {i}")
    for name, dx in grads.items():
        want = tensors[int(name[1:])].grad
        if dx is None:
            assert want is None or not want.any(), f"no gradient of {name}"
        else:
            close(
                dx,
                np.zeros_like(feeds[name]) if want is None else want.numpy(),
                tol,
                f"gradient of {name}",
            )
    return plan


def close(got, want, tol, what):
    assert got.shape == want.shape, f"{what}: {got.shape} instead of {want.shape}"
    if want.size:
        scale = max(1.0, float(np.abs(want).max()))
        assert np.abs(got - want).max() <= tol * scale, (
            f"{what}: off by {np.abs(got - want).max()} of {scale}"
        )
