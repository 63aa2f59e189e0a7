"""Norms over batches, instances, groups and neighbouring channels, and the kernels under them."""
from __future__ import annotations

from .kernel import Kernel, read, write

_SIZES = {"batch": "i32", "channels": "i32", "inner": "i32", "train": "i32", "epsilon": "f32"}
_ALL = "batch*channels*inner"

Kernel("batch_norm", {**_SIZES, "momentum": "f32"},
       [read("x", 4, _ALL), read("scale", 4, "channels"), read("bias", 4, "channels"), read("mean", 4, "channels", optional=True), read("variance", 4, "channels", optional=True), write("y", 4, _ALL, inplace=["x"]),
        write("new_mean", 4, "channels", optional=True), write("new_variance", 4, "channels", optional=True)], empty=["batch", "channels", "inner"],
       doc="y = (x - mean) / sqrt(variance + epsilon) * scale + bias for each channel of x [batch, channels, inner]. train: mean and variance are those of x, and new_mean = mean * momentum + that of x * (1 - momentum).")

Kernel("batch_norm_grad", _SIZES,
       [read("x", 4, _ALL), read("scale", 4, "channels"), read("mean", 4, "channels", optional=True), read("variance", 4, "channels", optional=True), read("dy", 4, _ALL),
        write("dx", 4, _ALL, optional=True, inplace=["dy"]), write("dscale", 4, "channels", optional=True), write("dbias", 4, "channels", optional=True)], empty=["batch", "channels", "inner"],
       doc="Gradients of batch_norm; mean and variance are computed again where train.")


# ---- ops ----------------------------------------------------------------------------------------------------------------------
from .dtypes import FLOAT, INT64
from .op import Op, axis_of, fail, product, takes, unsupported


def is_training(n):
    if n.domain == "edgewise":
        return 1
    if n.opset < 9 and not n.attr("spatial", 1):
        unsupported(n, "statistics of each position")
    return int(bool(n.attr("training_mode", 0))) if n.opset >= 14 else int(any(n.wants(i) for i in range(1, 5)))


def _sizes(n, shape):
    return {"batch": shape[0], "channels": shape[1], "inner": product(shape[2:]), "train": is_training(n), "epsilon": n.attr("epsilon", 1e-5)}


def _views(n, b):
    return [b.contiguous(b.view(v)) if v is not None else None for v in (*n.inputs, None, None)[:5]]


def _statistics(op):
    """What BatchNormalization (x, scale, bias, mean, variance) and ChannelNorm (x, scale, bias), which always takes those of x, have in common."""
    @op.infer
    def _(n):
        takes(n, (FLOAT,), 0, 1, 2, 3, 4)
        x = n.inputs[0]
        if x.rank < 2 or len(n.inputs) != (3 if n.domain else 5) or any(v is None or list(v.shape) != [x.shape[1]] for v in n.inputs[1:]):
            fail(n, f"it wants a tensor [batch, channels, ...] and vectors of the channels, not {n.inputs}")
        if n.wants(3) or n.wants(4):
            unsupported(n, "outputs of the statistics of the batch", "Export it for inference, or with opset 14 or newer.")
        if is_training(n) and x.shape[1] and not product(x.shape):
            fail(n, f"there is nothing to take statistics of in {x}")
        return ([(FLOAT, list(x.shape))] + [(FLOAT, [x.shape[1]])] * 2)[:len(n.outputs)]

    @op.lower
    def _(n, b):
        x, scale, bias, mean, variance = _views(n, b)
        y, (new_mean, new_variance) = b.out(n.outputs[0]), (b.out(n.outputs[i]) if n.wants(i) else None for i in (1, 2))
        sizes = _sizes(n, x.shape)
        if not sizes["train"]:
            for out, v in ((new_mean, mean), (new_variance, variance)):
                if out is not None:
                    b.copy(v, out)
            new_mean = new_variance = None
        b.emit("batch_norm", {"x": x, "scale": scale, "bias": bias, "mean": mean, "variance": variance, "y": y, "new_mean": new_mean, "new_variance": new_variance}, momentum=n.attr("momentum", 0.9), **sizes)

    @op.grad
    def _(n, g, dy, *_):
        if dy is None:
            return [None]
        train, x, scale = is_training(n), n.inputs[0], n.inputs[1]
        dx, dscale, dbias = g.op("BatchNormalizationGrad", x, scale, dy, *([] if train else n.inputs[3:5]), domain="edgewise", outputs=3, epsilon=n.attr("epsilon", 1e-5))
        grads = [dx, dscale, dbias]
        if not train and (g.wants(3) or g.wants(4)):
            variance = g.op("Add", n.inputs[4], g.number(n.attr("epsilon", 1e-5)))
            grads += [g.neg(g.mul(dbias, g.div(scale, g.op("Sqrt", variance)))) if g.wants(3) else None, g.scale(g.mul(dscale, g.div(scale, variance)), -0.5) if g.wants(4) else None]
        return grads


batch_norm = Op("BatchNormalization")
_statistics(batch_norm)
_statistics(Op("ChannelNorm", "edgewise"))


@batch_norm.cases
def _(t):
    for shape in ((2, 3, 4, 5), (4, 7), (2, 5, 33), (1, 3, 2, 3, 4), (3, 1, 9, 9), (2, 16, 8, 8)):
        c = shape[1]
        statistics = [t.f(c), t.f(c), t.f(c), t.f(c, low=0.5, high=2.0)]
        yield t(t.f(*shape) + 3, *statistics, tol=1e-4)
        yield t(t.f(*shape), *statistics, tol=1e-4, epsilon=1e-2, opset=9, trust="ort", why="ONNX's reference of opset 9 takes the statistics of the batch")
        yield t(t.f(*shape) + 3, *statistics, tol=1e-4, training_mode=1, momentum=0.8, outputs=3)
        yield t(t.f(*shape), *statistics, tol=1e-4, training_mode=1, opset=15)
    yield t(t.f(2, 3, 4, 4), *[t.f(3) for _ in range(3)], t.f(3, low=0.5, high=2.0), tol=1e-4, opset=7)
    yield t(t.f(2, 3, 4, 4, dtype="float16"), *[t.f(3, dtype="float16") for _ in range(3)], t.f(3, low=0.5, high=2.0, dtype="float16"), tol=4e-3)


grad = Op("BatchNormalizationGrad", "edgewise")  # (x, scale, dy) or (x, scale, dy, mean, variance) -> dx, dscale, dbias


@grad.infer
def _(n):
    x = n.inputs[0]
    return [(FLOAT, list(x.shape)), (FLOAT, [x.shape[1]]), (FLOAT, [x.shape[1]])]


@grad.lower
def _(n, b):
    x, scale, dy, mean, variance = _views(n, b)
    dx, dscale, dbias = (b.out(n.outputs[i]) if n.wants(i) else None for i in range(3))
    if not product(x.shape):
        for v in (dscale, dbias):
            if v is not None:
                b.fill(v, 0.0)
    b.emit("batch_norm_grad", {"x": x, "scale": scale, "mean": mean, "variance": variance, "dy": dy, "dx": dx, "dscale": dscale, "dbias": dbias},
           **{**_sizes(n, x.shape), "train": int(mean is None)})


def _over(n, g, groups, scale, bias):
    """x with mean 0 and variance 1 in each of `groups` groups of channels of each item, times scale [groups], plus bias."""
    x = n.inputs[0]
    batch = x.shape[0]

    def of_items(v):
        return g.op("Reshape", g.op("Expand", v, g.constant(INT64, [2], [batch, groups])), g.constant(INT64, [1], [batch * groups]))
    rows = g.op("Reshape", x, g.constant(INT64, [3], [1, batch * groups, -1]))
    y = g.op("ChannelNorm", rows, of_items(scale), of_items(bias), domain="edgewise", epsilon=n.attr("epsilon", 1e-5))
    return g.op("Reshape", y, g.constant(INT64, [x.rank], list(x.shape)))


def _check(n, vectors):
    takes(n, (FLOAT,), 0, 1, 2)
    x = n.inputs[0]
    if x.rank < 3 or len(n.inputs) < 3 or any(v is None or list(v.shape) != [vectors] for v in n.inputs[1:3]):
        fail(n, f"it wants a tensor [batch, channels, ...] and two vectors of {vectors}, not {n.inputs}")


instance_norm = Op("InstanceNormalization")


@instance_norm.decompose
def _(n, g):
    x = n.inputs[0]
    _check(n, x.shape[1] if x.rank > 1 else 0)
    return [_over(n, g, x.shape[1], n.inputs[1], n.inputs[2])] if product(x.shape) else [x]


@instance_norm.cases
def _(t):
    for shape in ((2, 3, 4, 5), (2, 5, 33), (1, 3, 2, 3, 4), (1, 512, 10)):
        yield t(t.f(*shape) + 3, t.f(shape[1]), t.f(shape[1]), tol=1e-4)
        yield t(t.f(*shape), t.f(shape[1]), t.f(shape[1]), tol=1e-4, epsilon=1e-2, opset=6)


group_norm = Op("GroupNormalization")


@group_norm.decompose
def _(n, g):
    x, groups = n.inputs[0], n.attr("num_groups", 0)
    if x.rank < 3 or groups < 1 or x.shape[1] % groups:
        fail(n, f"{groups} groups of the channels of {x}")
    of_groups = n.opset < 21
    _check(n, groups if of_groups else x.shape[1])
    if not product(x.shape):
        return [x]
    if of_groups:
        return [_over(n, g, groups, n.inputs[1], n.inputs[2])]
    y = _over(n, g, groups, g.constant(FLOAT, [groups], [1.0] * groups), g.constant(FLOAT, [groups], [0.0] * groups))
    column = g.constant(INT64, [x.rank - 1], [x.shape[1]] + [1] * (x.rank - 2))
    return [g.op("Add", g.op("Mul", y, g.op("Reshape", n.inputs[1], column)), g.op("Reshape", n.inputs[2], column))]


@group_norm.cases
def _(t):
    for shape, groups in (((2, 6, 4, 5), 3), ((1, 8, 9), 2), ((2, 4, 3, 3), 4), ((2, 4, 3, 3), 1), ((1, 32, 8, 8), 8)):
        yield t(t.f(*shape) + 3, t.f(shape[1]), t.f(shape[1]), num_groups=groups, tol=1e-4)
        yield t(t.f(*shape), t.f(groups), t.f(groups), num_groups=groups, epsilon=1e-2, opset=18, tol=1e-4)


lrn = Op("LRN")


@lrn.decompose
def _(n, g):
    """x / (bias + alpha / size * sum of the squares of the `size` nearest channels) ^ beta: an average pool over the channels."""
    takes(n, (FLOAT,), 0)
    x, size = n.inputs[0], n.attr("size", 0)
    if x.rank < 3 or size < 1:
        fail(n, f"a size of {size} over {x}")
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    rows = g.op("Reshape", g.op("Mul", x, x), g.constant(INT64, [4], [x.shape[0], 1, x.shape[1], product(x.shape[2:])]))
    mean = g.op("AveragePool", rows, kernel_shape=[size, 1], pads=[before, 0, after, 0], count_include_pad=1)
    mean = g.op("Reshape", mean, g.constant(INT64, [x.rank], list(x.shape)))
    base = g.op("Add", g.op("Mul", mean, g.constant(FLOAT, [], [n.attr("alpha", 1e-4)])), g.constant(FLOAT, [], [n.attr("bias", 1.0)]))
    return [g.op("Mul", x, g.op("Pow", base, g.constant(FLOAT, [], [-n.attr("beta", 0.75)])))]


@lrn.cases
def _(t):
    why = "ONNX's reference cuts windows off at the number of items"
    for size in (1, 3, 5):
        yield t(t.f(2, 7, 4, 5), size=size, alpha=0.5, beta=0.6, bias=2.0, tol=1e-4, trust="ort", why=why)
    yield t(t.f(1, 4, 3, 3), size=3, tol=1e-4, trust="ort", why=why)
    yield t(t.f(1, 4, 3, 3), size=3, opset=1, tol=1e-4, trust="ort", why=why)


lp_norm = Op("LpNormalization")


@lp_norm.decompose
def _(n, g):
    takes(n, (FLOAT,), 0)
    x, p = n.inputs[0], n.attr("p", 2)
    if p not in (1, 2):
        fail(n, f"a norm with p {p}")
    norm = g.op("ReduceL1" if p == 1 else "ReduceL2", x, g.constant(INT64, [1], [axis_of(n, n.attr("axis", -1), x.rank)]), keepdims=1)
    zero = g.op("Equal", norm, g.constant(FLOAT, [], [0.0]))
    return [g.op("Div", x, g.op("Where", zero, g.constant(FLOAT, [], [1.0]), norm))]


@lp_norm.cases
def _(t):
    for p in (1, 2):
        for axis in (-1, 0, 1):
            yield t(t.f(3, 4, 5), p=p, axis=axis, tol=1e-4, **({"trust": "ort", "why": "ONNX's reference divides by the sum, not by the sum of magnitudes"} if p == 1 else {}))
    yield t(t.f(3, 4), tol=1e-4)
    yield t(t.of("float32", [[0, 0], [3, 4]]), trust="ort", why="ONNX's reference divides by zero")


mean_variance_norm = Op("MeanVarianceNormalization")


@mean_variance_norm.decompose
def _(n, g):
    takes(n, (FLOAT,), 0)
    x = n.inputs[0]
    axes = [axis_of(n, a, x.rank) for a in n.attrs.get("axes", [0, 2, 3])]
    over = g.constant(INT64, [len(axes)], axes)
    d = g.op("Sub", x, g.op("ReduceMean", x, over, keepdims=1))
    deviation = g.op("Sqrt", g.op("ReduceMean", g.op("Mul", d, d), over, keepdims=1))
    return [g.op("Div", d, g.op("Add", deviation, g.constant(FLOAT, [], [1e-9])))]


@mean_variance_norm.cases
def _(t):
    yield t(t.f(2, 3, 4, 5), tol=1e-4)
    for axes in ([0], [0, 2, 3], [1, 2, 3], [-1]):
        yield t(t.f(2, 3, 4, 5), axes=axes, tol=1e-4)
