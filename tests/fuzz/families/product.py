"""Products, convolutions and pools."""

from __future__ import annotations


def dense(g):
    """x @ weights + bias, by MatMul or Gemm."""
    x = g.pick(lambda v: v.rank >= 2 and g.is_fixed(v.dims[-1]) and v.dims[-1][0] > 0)
    if not x:
        return None
    k, out = x.dims[-1][0], g.rng.choice((x.dims[-1][0], 4, 8, 6, 1))
    dims, scale = (*x.dims[:-1], g.fixed(out)), k**-0.5
    if x.rank == 2 and g.rng.random() < 0.6:
        turned = g.rng.random() < 0.5
        w = g.weight(*((out, k) if turned else (k, out)), scale=scale)
        bias = [g.weight(*g.rng.choice(((out,), (1, out), (1,))))] * (g.rng.random() < 0.7)
        return g.node("Gemm", [x, w, *bias], dims, size=x.size + 3, transB=int(turned))
    y = g.node("MatMul", [x, g.weight(k, out, scale=scale)], dims)
    if g.rng.random() < 0.6:
        y = g.node("Add", [y, g.weight(out)][:: g.rng.choice((1, -1))], dims, size=x.size + 3)
    return y


def product(g):
    """Two values, one transposed if it has to be."""
    x = g.pick(lambda v: v.rank >= 2 and 0 < max(v.dims[-1]) and v.size < 30)
    if not x:
        return None
    k = x.dims[-1]

    def agrees(v):
        return (
            v.rank >= 2 and k in v.dims[-2:] and g.broadcast(x.dims[:-2], v.dims[:-2]) is not None
        )

    y = g.pick(agrees) or x
    if y.dims[-2] != k or y.dims[-1] == k and g.rng.random() < 0.5:
        perm = [*range(y.rank - 2), y.rank - 1, y.rank - 2]
        y = g.node("Transpose", [y], [y.dims[i] for i in perm], perm=perm, keep=False)
    if g.broadcast(x.dims[:-2], y.dims[:-2]) is None:
        return None
    dims = (*g.broadcast(x.dims[:-2], y.dims[:-2]), x.dims[-2], y.dims[-1])
    if not g.fits(dims) or y.dims[-2] != k:
        return None
    out = g.node("MatMul", [x, y], dims, size=x.size * y.size * max(k) ** 0.5 / 2)
    if g.rng.random() < 0.6:
        out = g.node("Mul", [out, g.number(max(max(k), 1) ** -0.5)], dims, size=out.size / 3)
        if g.rng.random() < 0.5 and min(dims[-1]) > 0:
            out = g.node("Softmax", [out], dims, size=1.0, axis=-1)
    return out


def einsum(g):
    x = g.pick(lambda v: v.rank == 3 and v.size < 30)
    y = x and g.pick(lambda v: v.rank == 3 and v.dims[0] == x.dims[0] and v.dims[2] == x.dims[2])
    if not y or not g.fits((x.dims[0], x.dims[1], y.dims[1])):
        return None
    dims = (x.dims[0], x.dims[1], y.dims[1])
    size = x.size * y.size * max(x.dims[2]) ** 0.5 / 2
    return g.node("Einsum", [x, y], dims, size=size, equation="bik,bjk->bij")


def windowed(d, kernel, stride, dilation, pads, ceil=False):
    """Sizes of a dimension after a window."""
    span = dilation * (kernel - 1) + 1
    return tuple((x + sum(pads) - span) // stride + 1 for x in d)


def picture(g):
    """A value [batch, channels, ..] with fixed channels; one is made of another if need be."""

    def accept(v):
        return v.rank in (3, 4) and g.is_fixed(v.dims[1]) and min(map(min, v.dims)) > 0

    x = g.pick(accept)
    if x or g.rng.random() < 0.5:
        return x
    x = g.pick(lambda v: v.rank == 3 and g.is_fixed(v.dims[2]) and min(map(min, v.dims)) > 0)
    return x and g.node("Transpose", [x], [x.dims[i] for i in (0, 2, 1)], perm=[0, 2, 1])


def windows(g, x, most=3):
    """(attributes, spatial dimensions) of a window that fits for all lengths, or None."""
    n = x.rank - 2
    kernel = [g.rng.randint(1, most) for _ in range(n)]
    stride = [g.rng.choice((1, 1, 2)) for _ in range(n)]
    dilation = [1] * n
    low, high = ([g.rng.randint(0, k - 1) for k in kernel] for _ in range(2))
    dims = [
        windowed(d, k, s, w, p)
        for d, k, s, w, p in zip(x.dims[2:], kernel, stride, dilation, zip(low, high))
    ]
    if min(map(min, dims)) < 1:
        return None
    return {"kernel_shape": kernel, "strides": stride, "pads": low + high}, dims


def conv(g):
    x = picture(g)
    found = x and windows(g, x)
    if not found:
        return None
    attrs, dims = found
    c = x.dims[1][0]
    out = g.rng.choice((c, 4, 6))
    group = g.rng.choice([k for k in (1, 1, c, 2) if c % k == 0 and out % k == 0])
    w = g.weight(out, c // group, *attrs["kernel_shape"], scale=(c * len(dims)) ** -0.5)
    bias = [g.weight(out)] * (g.rng.random() < 0.6)
    shape = (x.dims[0], g.fixed(out), *dims)
    if not g.fits(shape):
        return None
    y = g.node("Conv", [x, w, *bias], shape, size=x.size + 3, group=group, **attrs)
    if g.rng.random() < 0.4:
        y = g.node(g.rng.choice(("Relu", "Sigmoid", "HardSigmoid")), [y], shape)
    return y


def conv_transpose(g):
    x = picture(g)
    if not x:
        return None
    n, c, out = x.rank - 2, x.dims[1][0], g.rng.choice((2, 4))
    kernel = [g.rng.randint(1, 3) for _ in range(n)]
    stride = [g.rng.randint(1, 2) for _ in range(n)]
    dims = [tuple((v - 1) * s + k for v in d) for d, k, s in zip(x.dims[2:], kernel, stride)]
    shape = (x.dims[0], g.fixed(out), *dims)
    w = g.weight(c, out, *kernel, scale=c**-0.5)
    return g.fits(shape) and g.node(
        "ConvTranspose", [x, w], shape, size=x.size + 3, kernel_shape=kernel, strides=stride
    )


def pool(g):
    x = picture(g)
    found = x and windows(g, x)
    if not found:
        return None
    if g.rng.random() < 0.25:
        op = g.rng.choice(("GlobalAveragePool", "GlobalMaxPool"))
        return g.node(op, [x], (*x.dims[:2], *[g.fixed(1)] * (x.rank - 2)))
    attrs, dims = found
    op = g.rng.choice(("MaxPool", "AveragePool", "LpPool"))
    if op == "AveragePool":
        attrs["count_include_pad"] = g.rng.randint(0, 1)
    size = x.size * 3 if op == "LpPool" else x.size
    return g.node(op, [x], (*x.dims[:2], *dims), size=size, **attrs)


FAMILIES = {
    "dense": (8, dense), "product": (6, product), "einsum": (2, einsum), "conv": (4, conv),
    "conv transpose": (1, conv_transpose), "pool": (2, pool),
}  # fmt: skip
