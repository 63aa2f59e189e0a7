"""LayerNormalization, RMSNormalization and their fused relatives."""
from __future__ import annotations

from .kernel import Kernel, read, write

Kernel("norm", {"rms": "i32", "rows": "i32", "cols": "i32", "x_row": "i32", "skip_row": "i32", "y_row": "i32", "epsilon": "f32", "scale_offset": "f32"},
       [read("x", 4, "(rows-1)*x_row + cols"), read("scale", 4, "cols", optional=True), read("bias", 4, "cols", optional=True),
        read("skip", 4, "(rows-1)*skip_row + cols", optional=True), read("skip_bias", 4, "cols", optional=True),
        write("y", 4, "(rows-1)*y_row + cols", inplace=["x", "skip"]), write("sum", 4, "(rows-1)*y_row + cols", optional=True, inplace=["x", "skip"])],
       require=["min(x_row, skip_row) >= 0", "y_row >= cols", "cols > 0"], empty=["rows"],
       doc="v = x (+ skip) (+ skip_bias); sum = v; y = (v - mean(v)) / sqrt(var(v) + epsilon) * (scale + scale_offset) + bias, or with rms: v / sqrt(mean(v*v) + epsilon) * (scale + scale_offset). "
           "LayerNormalization, RMSNormalization, SkipLayerNormalization, SkipSimplifiedLayerNormalization. Two passes, variance from centred values. "
           "skip_row 0 broadcasts one skip row. y and sum never share memory.")


# ---- ops ----------------------------------------------------------------------------------------------------------------------
from .dtypes import FLOAT
from .op import MS, Op, axis_of, broadcast, fail, like, product, takes


def _floats(n):
    for v in n.inputs:
        if v is not None and v.dtype != FLOAT:
            fail(n, f"it takes float tensors, not {v}")


def _check(n, axis):
    x = n.inputs[0]
    if n.has(1) and product(n.inputs[1].shape) != product(x.shape[axis:]):
        fail(n, f"scale {n.inputs[1]} does not fit {x} from axis {axis}")
    if n.has(2) and product(n.inputs[2].shape) != product(x.shape[axis:]):
        fail(n, f"bias {n.inputs[2]} does not fit {x} from axis {axis}")
    _floats(n)


def emit_norm(b, x, y, scale, bias=None, skip=None, skip_bias=None, total=None, rms=0, epsilon=1e-5, cols=None, scale_offset=0.0):
    """x, skip, y, total: views whose trailing `cols` elements form a row."""
    x, y = b.as_rows(x, cols), b.as_rows(y, cols)
    skip = b.as_rows(skip, cols) if skip is not None else None
    total = b.as_rows(total, cols) if total is not None else None
    flat = [b.contiguous(v) if v is not None else None for v in (scale, bias, skip_bias)]
    b.emit("norm", {"x": x, "scale": flat[0], "bias": flat[1], "skip": skip, "skip_bias": flat[2], "y": y, "sum": total}, rms=rms, rows=x.shape[0], cols=x.shape[1],
           x_row=x.strides[0], skip_row=skip.strides[0] if skip is not None and skip.shape[0] != 1 else 0, y_row=y.strides[0], epsilon=epsilon, scale_offset=scale_offset)


def _norm_cases(rms, opset, same):
    def cases(t):
        for shape, axis in (((2, 3, 64), -1), ((5, 37), 1), ((1, 7), -1), ((2, 3, 4, 5), 2), ((3, 4), 0), ((2, 300), -1), ((0, 8), -1), ((4, 1), -1)):
            rest = [t.f(*shape[axis:])] + ([t.f(*shape[axis:])] if not rms else [])
            yield t(t.f(*shape), *rest, axis=axis, opset=opset, tol=1e-4, **same)
            yield t(t.f(*shape) + 5, rest[0], axis=axis, epsilon=1e-3, opset=opset, tol=1e-4, **same)
        yield t(t.f(3, 16), t.f(16), opset=opset, tol=1e-4, **same)
        yield t(t.f(3, 16) * 1e-4, t.f(16), epsilon=1e-12, opset=opset, tol=1e-4, **same)
        yield t(t.f(3, 16, dtype="float16"), t.f(16, dtype="float16"), opset=opset, tol=4e-3, **same)
    return cases


def _declare_norm(name, rms, domain="", opset=21, **same):
    o = Op(name, domain)
    o.cases(_norm_cases(rms, opset, same))

    @o.infer
    def _(n):
        takes(n, (FLOAT,), 0, 1, 2)
        x = n.inputs[0]
        axis = axis_of(n, n.attr("axis", -1), x.rank)
        _check(n, axis)
        if any(n.wants(i) for i in (1, 2)):
            fail(n, "its mean and inverse deviation outputs exist only in training graphs")
        return [(x.dtype, list(x.shape))]

    @o.lower
    def _(n, b):
        x = b.view(n.inputs[0])
        axis = axis_of(n, n.attr("axis", -1), len(x.shape))
        emit_norm(b, x, b.out(n.outputs[0]), b.view(n.inputs[1]) if n.has(1) else None, b.view(n.inputs[2]) if n.has(2) else None, rms=rms, epsilon=n.attr("epsilon", 1e-5), cols=product(x.shape[axis:]))


_declare_norm("LayerNormalization", 0)
_declare_norm("RMSNormalization", 1, opset=23)
_declare_norm("SimplifiedLayerNormalization", 1)       # ONNX Runtime's name, in the default domain
_declare_norm("SimplifiedLayerNormalization", 1, MS, same_as=("", "SimplifiedLayerNormalization"))


def _declare_skip_norm(name, rms):
    o = Op(name, MS)

    @o.cases
    def _(t):
        for shape in ((2, 3, 64), (1, 5, 37), (0, 2, 8), (4, 16)):
            width = shape[-1]
            beta = [] if rms else [t.f(width)]
            yield t(t.f(*shape), t.f(*shape), t.f(width), *beta, tol=1e-4)
            yield t(t.f(*shape), t.f(*shape), t.f(width), *beta, t.f(width), tol=1e-4, epsilon=1e-3)
            yield t(t.f(*shape), t.f(*shape), t.f(width), *beta, t.f(width), outputs=[True, False, False, True], tol=1e-4)
        yield t(t.f(2, 3, 8), t.f(3, 8), t.f(8), outputs=[True, False, False, True], tol=1e-4)
        yield t(t.f(2, 3, 8), t.f(1, 3, 8), t.f(8), outputs=[True, False, False, True], tol=1e-4)
        yield t(t.f(2, 3, 8, dtype="float16"), t.f(2, 3, 8, dtype="float16"), t.f(8, dtype="float16"), outputs=[True, False, False, True], tol=4e-3)

    @o.infer
    def _(n):
        takes(n, (FLOAT,), 0, 1, 2, 3, 4)
        x, skip = n.inputs[:2]
        if x.shape[-1] != skip.shape[-1]:
            fail(n, f"{x} and {skip} have different widths")
        _floats(n)
        if x.rank < 2 or broadcast(n, skip.shape, x.shape) != list(x.shape):
            fail(n, f"its skip {skip} does not fit {x}")
        for v in n.inputs[2:]:
            if v is not None and list(v.shape) != [x.shape[-1]]:
                fail(n, f"{v} does not fit the width of {x}")
        return [like(n, 0), (FLOAT, [1]), (FLOAT, [1]), like(n, 0)][:len(n.outputs)]

    @o.lower
    def _(n, b):
        x, skip = b.view(n.inputs[0]), b.view(n.inputs[1])
        if skip.shape != x.shape:
            skip = skip.broadcast(x.shape)
        scale, rest = b.view(n.inputs[2]), [b.view(v) if v is not None else None for v in (n.inputs[3:] + [None, None])[:2]]
        beta, bias = (None, rest[0]) if rms else rest
        emit_norm(b, x, b.out(n.outputs[0]), scale, beta, skip, bias, b.out(n.outputs[3]) if n.wants(3) else None, rms, n.attr("epsilon", 1e-12 if not rms else 1e-5), x.shape[-1])
    return o


_declare_skip_norm("SkipLayerNormalization", 0)
_declare_skip_norm("SkipSimplifiedLayerNormalization", 1)
