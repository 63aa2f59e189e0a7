"""Gradients of products, split, reductions and scatter against PyTorch."""

import numpy as np
import pytest
import torch

from .compare import MS, R, check, f
from .model import gradients, node_model

PRODUCTS = [
    ((3, 4), (4, 5)),
    ((1, 37), (37, 65)),
    ((65, 33), (33, 129)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((3, 1, 2, 4), (5, 4, 6)),
    ((2, 3, 4, 5, 6), (2, 3, 4, 6, 3)),
    ((1, 2, 1, 3, 4), (5, 1, 6, 4, 2)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((2, 0, 3), (2, 3, 4)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (1, 4, 5)),
    ((3, 4), (2, 4, 5)),
]


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
        check(
            engine,
            "FusedMatMul",
            [a, w],
            lambda a, w: 0.5 * turned(a, ta) @ turned(w, tb),
            domain=MS,
            transA=ta,
            transB=tb,
            alpha=0.5,
        )


@pytest.mark.parametrize("ta", (0, 1))
@pytest.mark.parametrize("tb", (0, 1))
@pytest.mark.parametrize("c", [None, (50,), (3, 1), (1, 50), (3, 50), ()], ids=str)
def test_gemm(engine, ta, tb, c):
    def product(a, w, c=None):
        y = 0.5 * (a.T if ta else a) @ (w.T if tb else w)
        return y if c is None else y - 2 * c

    check(
        engine,
        "Gemm",
        [f(40, 3) if ta else f(3, 40), f(50, 40) if tb else f(40, 50)]
        + ([f(*c)] if c is not None else []),
        product,
        transA=ta,
        transB=tb,
        alpha=0.5,
        beta=-2.0,
    )


def test_weight_of_batches_is_one_product(engine):
    """No batched product followed by a sum, no copy for a transpose."""
    plan = check(engine, "MatMul", [f(4, 16, 24), f(24, 40)], torch.matmul)
    assert plan.kernels == ["gemm"] * 3


# ---- movement, shapes, indexing, reductions ----


@pytest.mark.parametrize(
    "op, inputs, reference, more",
    [
        ("Transpose", [f(2, 3, 4)], lambda x: x.permute(1, 2, 0), {"perm": [1, 2, 0]}),
        ("Transpose", [f(2, 3, 4)], lambda x: x.permute(2, 1, 0), {}),
        ("Reshape", [f(2, 3, 4), np.array([4, -1])], lambda x, s: x.reshape(4, 6), {}),
        ("Flatten", [f(2, 3, 4)], lambda x: x.flatten(1), {}),
        ("Squeeze", [f(2, 1, 4), np.array([1])], lambda x, a: x[:, 0], {}),
        ("Unsqueeze", [f(2, 4), np.array([0, 2])], lambda x, a: x[None, :, None], {}),
        ("Expand", [f(3, 1), np.array([2, 3, 4])], lambda x, s: x.expand(2, 3, 4), {}),
        ("Tile", [f(2, 3), np.array([2, 3])], lambda x, s: x.tile(2, 3), {}),
        ("Concat", [f(2, 3), f(2, 1), f(2, 4)], lambda *x: torch.cat(x, 1), {"axis": -1}),
        (
            "Slice",
            [f(5, 6), np.array([1, -1]), np.array([4, -100]), np.array([0, 1]), np.array([2, -2])],
            lambda x, *_: x[1:4:2].flip(1)[:, ::2],
            {},
        ),
        (
            "Slice",
            [f(5, 6), np.array([1]), np.array([3]), np.array([1])],
            lambda x, *_: x[:, 1:3],
            {},
        ),
        (
            "Pad",
            [f(3, 4), np.array([1, 2, 3, 4])],
            lambda x, p: torch.nn.functional.pad(x, (2, 4, 1, 3)),
            {},
        ),
        (
            "Pad",
            [f(3, 4), np.array([1, -1, -1, 4]), f()],
            lambda x, p, c: torch.cat([torch.cat([c.expand(1, 3), x[:2, 1:]]), c.expand(3, 4)], 1),
            {},
        ),
        ("Trilu", [f(2, 4, 5), np.array(1)], lambda x, k: x.triu(1), {}),
        ("Trilu", [f(2, 4, 5)], lambda x: x.tril(), {"upper": 0}),
        (
            "Gather",
            [f(5, 6), np.array([[0, 4, -1], [0, 0, 2]])],
            lambda x, i: x[torch.as_tensor(i)],
            {},
        ),
        (
            "Gather",
            [f(3, 5, 2), np.array([[0, 4, -1], [0, 0, 2]])],
            lambda x, i: x[:, torch.as_tensor(i)],
            {"axis": 1},
        ),
        ("Gather", [f(3, 5, 2), np.array(-2)], lambda x, i: x[:, -2], {"axis": 1}),
        (
            "GatherElements",
            [f(5, 6), R.integers(-5, 5, (3, 4))],
            lambda x, i: x.gather(0, torch.as_tensor(i % 5)),
            {},
        ),
        (
            "GatherElements",
            [f(5, 6), R.integers(-6, 6, (5, 9))],
            lambda x, i: x.gather(1, torch.as_tensor(i % 6)),
            {"axis": 1},
        ),
        (
            "GatherND",
            [f(3, 4, 5), R.integers(-3, 3, (2, 3, 2))],
            lambda x, i: x[i[..., 0], i[..., 1]],
            {},
        ),
        (
            "GatherND",
            [f(3, 4, 5), R.integers(-4, 4, (3, 2, 1))],
            lambda x, i: torch.stack([a[k[:, 0]] for a, k in zip(x, i)]),
            {"batch_dims": 1},
        ),
        (
            "ScatterElements",
            [f(5, 6), R.permutation(5)[:3, None].repeat(4, 1), f(3, 4)],
            lambda x, i, u: x.scatter(0, torch.as_tensor(i), u),
            {},
        ),
        (
            "ScatterND",
            [f(5, 6), np.array([[4], [0]]), f(2, 6)],
            lambda x, i, u: x.index_copy(0, torch.tensor([4, 0]), u),
            {},
        ),
        (
            "ScatterND",
            [f(5, 6), np.array([[4, 1], [0, -1]]), f(2)],
            lambda x, i, u: x.index_put((torch.tensor([4, 0]), torch.tensor([1, 5])), u),
            {},
        ),
        (
            "ScatterND",
            [f(5, 6), np.array([[4], [0], [4]]), f(3, 6)],
            lambda x, i, u: x.index_add(0, torch.tensor([4, 0, 4]), u),
            {"reduction": "add"},
        ),
        ("TopK", [f(3, 9), np.array([4])], lambda x, k: x.topk(4).values, {}),
        (
            "TopK",
            [f(9, 3), np.array([4])],
            lambda x, k: x.topk(4, 0, largest=False).values,
            {"axis": 0, "largest": 0},
        ),
        *[
            (
                "CumSum",
                [f(3, 7), np.array(1)],
                lambda x, a, e=e, r=r: cumsum(x, e, r),
                {"exclusive": e, "reverse": r},
            )
            for e in (0, 1)
            for r in (0, 1)
        ],
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_structure(engine, op, inputs, reference, more):
    check(engine, op, inputs, reference, **more)


def cumsum(x, exclusive, reverse):
    x = x.flip(1) if reverse else x
    y = x.cumsum(1) - (x if exclusive else 0)
    return y.flip(1) if reverse else y


@pytest.mark.parametrize(
    "how, torch_name", [("add", "sum"), ("mul", "prod"), ("min", "amin"), ("max", "amax")]
)
def test_scatter_reductions(engine, how, torch_name):
    i = R.integers(0, 5, (8, 4))
    u = f(8, 4)
    if how == "mul":  # one zero at a place, and two at another
        i[:3, 0], u[:2, 0], i[3:, 0] = 1, 0, 2
        u[3, 0] = 0
    check(
        engine,
        "ScatterElements",
        [f(5, 4), i, u],
        lambda x, i, u: x.scatter_reduce(0, torch.as_tensor(i), u, torch_name),
        opset=18,
        reduction=how,
    )
    places = np.stack([i, np.broadcast_to(np.arange(4), i.shape)], -1)
    check(
        engine,
        "ScatterND",
        [f(5, 4), places, u],
        lambda x, p, u: x.scatter_reduce(0, torch.as_tensor(i), u, torch_name),
        opset=18,
        reduction=how,
    )


def test_split(engine):
    check(
        engine,
        "Split",
        [f(2, 7), np.array([3, 0, 4])],
        lambda x, s: x.split([3, 0, 4], 1),
        outputs=3,
        axis=1,
    )
    model, feeds = node_model("Split", [f(2, 7), np.array([3, 4])], outputs=2, axis=1)
    dy = f(2, 4)
    _, grads, _, _ = gradients(model, feeds, engine, seeds={"y1": dy})  # one part is not used
    assert np.array_equal(grads["x0"], np.concatenate([np.zeros((2, 3), np.float32), dy], 1))


REDUCTIONS = {
    "Sum": lambda x, d, k: x.sum(d, keepdim=k),
    "Mean": lambda x, d, k: x.mean(d, keepdim=k),
    "Max": lambda x, d, k: x.amax(d, keepdim=k),
    "Min": lambda x, d, k: x.amin(d, keepdim=k),
    "L1": lambda x, d, k: x.abs().sum(d, keepdim=k),
    "L2": lambda x, d, k: torch.linalg.vector_norm(x, dim=d, keepdim=k),
    "SumSquare": lambda x, d, k: (x * x).sum(d, keepdim=k),
    "LogSum": lambda x, d, k: x.abs().sum(d, keepdim=k).log(),
    "LogSumExp": lambda x, d, k: x.logsumexp(d, keepdim=k),
    "Prod": lambda x, d, k: product_over(x, d, k),
}


def product_over(x, dims, keep):
    for d in sorted(dims, reverse=True):
        x = x.prod(d, keepdim=keep)
    return x


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(engine, name):
    for dims in ((1,), (0, 2), (0, 1, 2)):
        for keep in (0, 1):
            x = np.abs(f(3, 4, 5)) if name == "LogSum" else f(3, 4, 5)
            if name in ("Max", "Min", "L2"):
                x[1], x[2, :, 0] = 1, 0
                x[:, 1, 1] = x[:, 2, 1] = x[0, 0, 1] = 4 if name == "Max" else -4  # ties
            if name == "L2":
                x[:, 2] = 0
            if name == "Prod":
                x[0, 1], x[2, :2, 3] = 0, 0
                x[1, 1, 1] = 0
            check(
                engine,
                f"Reduce{name}",
                [x, np.array(dims)],
                lambda x, d: REDUCTIONS[name](x, dims, bool(keep)),
                keepdims=keep,
                opset=18,
            )
    check(
        engine,
        f"Reduce{name}",
        [np.abs(f(3, 4)) + 0.1],
        lambda x: REDUCTIONS[name](x, (1,), False),
        axes=[-1],
        keepdims=0,
        opset=11,
    )
