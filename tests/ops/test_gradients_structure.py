"""Gradients of products, attention, movement, indexing and reductions against PyTorch's."""
import numpy as np
import pytest
import torch

from .gradients import gradients, node_model

MS = "com.microsoft"
R = np.random.default_rng(0)


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


def check(engine, op, inputs, reference, tol=1e-4, outputs=1, **more):
    """reference(*inputs): the outputs by PyTorch, floats as tensors that want gradients, everything else as NumPy has it."""
    model, feeds = node_model(op, inputs, outputs=outputs, **more)
    got, grads, seeds, plan = gradients(model, feeds, engine)
    tensors = [torch.tensor(x, requires_grad=True) if f"x{i}" in feeds else x for i, x in enumerate(inputs)]
    expected = reference(*tensors)
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    loss = sum((y * torch.tensor(seeds[f"y{i}"])).sum() for i, y in enumerate(expected) if f"y{i}" in seeds)
    loss.backward()
    for i, y in enumerate(expected):
        assert got[f"y{i}"].shape == tuple(y.shape)
        close(got[f"y{i}"], y.detach().numpy(), tol, f"output {i}")
    for name, dx in grads.items():
        want = tensors[int(name[1:])].grad
        if dx is None:
            assert want is None or not want.any(), f"no gradient of {name}"
        else:
            close(dx, np.zeros_like(feeds[name]) if want is None else want.numpy(), tol, f"gradient of {name}")
    return plan


def close(got, want, tol, what):
    assert got.shape == want.shape, f"{what}: {got.shape} instead of {want.shape}"
    if want.size:
        scale = max(1.0, float(np.abs(want).max()))
        assert np.abs(got - want).max() <= tol * scale, f"{what}: off by {np.abs(got - want).max()} of {scale}"


PRODUCTS = [((3, 4), (4, 5)), ((1, 37), (37, 65)), ((65, 33), (33, 129)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((3, 1, 2, 4), (5, 4, 6)), ((2, 3, 4, 5, 6), (2, 3, 4, 6, 3)), ((1, 2, 1, 3, 4), (5, 1, 6, 4, 2)),
            ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((2, 0, 3), (2, 3, 4)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5)), ((2, 3, 4), (1, 4, 5)), ((3, 4), (2, 4, 5))]


@pytest.mark.parametrize("a, w", PRODUCTS, ids=str)
def test_matmul(engine, a, w):
    check(engine, "MatMul", [f(*a), f(*w)], torch.matmul)


@pytest.mark.parametrize("ta", (0, 1))
@pytest.mark.parametrize("tb", (0, 1))
def test_fused_matmul(engine, ta, tb):
    def turned(x, t):
        return x.transpose(-1, -2) if t else x
    for a, w in ((3, 40), (40, 50)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)):
        a, w = (x.swapaxes(-1, -2).copy() if t else x for x, t in ((f(*a), ta), (f(*w), tb)))
        check(engine, "FusedMatMul", [a, w], lambda a, w: 0.5 * turned(a, ta) @ turned(w, tb), domain=MS, transA=ta, transB=tb, alpha=0.5)


@pytest.mark.parametrize("ta", (0, 1))
@pytest.mark.parametrize("tb", (0, 1))
@pytest.mark.parametrize("c", [None, (50,), (3, 1), (1, 50), (3, 50), ()], ids=str)
def test_gemm(engine, ta, tb, c):
    def product(a, w, c=None):
        y = 0.5 * (a.T if ta else a) @ (w.T if tb else w)
        return y if c is None else y - 2 * c
    check(engine, "Gemm", [f(40, 3) if ta else f(3, 40), f(50, 40) if tb else f(40, 50)] + ([f(*c)] if c is not None else []), product, transA=ta, transB=tb, alpha=0.5, beta=-2.0)


def test_weight_of_batches_is_one_product(engine):
    """No batched product with a sum behind it, no copy to transpose."""
    plan = check(engine, "MatMul", [f(4, 16, 24), f(24, 40)], torch.matmul)
    assert plan.kernels == ["gemm"] * 3
