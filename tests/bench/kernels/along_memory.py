"""Kernels that move memory or work along rows, for case `kernels`: plans of one step each."""

from __future__ import annotations

import numpy as np

F32, U8, I8, I64, BOOL, F16 = 1, 2, 3, 7, 9, 10
SIZE = {F32: 4, U8: 1, I8: 1, I64: 8, BOOL: 1, F16: 2}


class Case:
    """A kernel with its parameters, with the interface of products.Case.

    Args:
        reads, writes: bytes that must be moved at least once.
        functions: {function in page/limits.c: number of evaluations}.
        passes: values that must be read once more before the first result can be written: of a
            row whose mean, norm or largest element goes into each result.
        in_place: whether the bytes are read and written at the same address.
    """

    theme, operations, dots = "along memory", 0, ()

    def __init__(
        self,
        name,
        kernel,
        operands,
        params,
        reads,
        writes,
        functions=None,
        in_place=False,
        passes=0,
    ):
        (
            self.name,
            self.kernel,
            self.operands,
            self.params,
            self.reads,
            self.writes,
            self.functions,
            self.in_place,
            self.passes,
        ) = (name, kernel, operands, params, reads, writes, functions or {}, in_place, passes)
        self.steps = [kernel]

    def plan(self):
        """Returns (bytes of the plan, [size of each slot and how it is filled])."""
        from edgewise.compiler.plan.builder import Builder
        from edgewise.compiler.plan.plan import Plan
        from edgewise.compiler.plan.view import View

        b, slots = Builder({}), {}
        for key, (dtype, count, *_fill) in self.operands.items():
            if isinstance(dtype, str):  # an output that overwrites an input
                continue
            slots[key] = View(
                b.slot(key, "state", dtype, [count], count * SIZE[dtype]), 0, [count], [1], dtype
            )
        views = {
            key: slots[o[0] if isinstance(o[0], str) else key] for key, o in self.operands.items()
        }
        b.emit(self.kernel, views, **self.params)
        b.finish()
        plan = Plan.assemble(b, [])
        fills = [
            (
                o[2]
                if len(o) > 2
                else {F32: "floats", I64: "zeros", F16: "halves"}.get(o[0], "bytes")
            )
            for o in self.operands.values()
            if not isinstance(o[0], str)
        ]
        return plan.data, [{"size": s.nbytes, "fill": f} for s, f in zip(plan.slots, fills)]


def six(values):
    return [*([1] * (6 - len(values))), *values]


def strides(values):
    return [*([0] * (6 - len(values))), *values]


def dense(dims):
    out, n = [], 1
    for d in reversed(dims):
        out.insert(0, n)
        n *= d
    return out


# long: a table of cases
def cases():
    from edgewise.compiler.ops.elementwise.contracts import BINARY, UNARY
    from edgewise.compiler.ops.product.contracts import ACTIVATION
    from edgewise.compiler.ops.reduce.contracts import REDUCE
    from edgewise.compiler.ops.training.contracts import RULE

    found = []

    def add(*a, **k):
        found.append(Case(*a, **k))

    def softmax(rows, cols, log=0, in_place=True):
        n = rows * cols
        add(
            f"{'log-' if log else ''}softmax {rows}×{cols}{', in place' if in_place else ''}",
            "softmax",
            {"x": (F32, n), "y": ("x", 0) if in_place else (F32, n)},
            dict(rows=rows, cols=cols, x_row=cols, y_row=cols, log=log),
            4 * n,
            4 * n,
            {"soft": n, "read": 2 * n},
            in_place,
        )

    def norm(rows, cols, rms, skip=False, in_place=True):
        n = rows * cols
        operands = {
            "x": (F32, n),
            "scale": (F32, cols),
            "bias": (F32, cols),
            "skip": (F32, n),
            "y": ("x", 0) if in_place else (F32, n),
            "sum": ("skip", 0),
        }
        for key in (["bias"] if rms else []) + ([] if skip else ["skip", "sum"]):
            del operands[key]
        add(
            f"{'RMS' if rms else 'layer'} norm"
            f" {rows}×{cols}{', residual' if skip else ''}{', in place' if in_place else ''}",
            "norm",
            operands,
            dict(
                rms=int(rms),
                rows=rows,
                cols=cols,
                x_row=cols,
                skip_row=cols,
                y_row=cols,
                epsilon=1e-5,
                scale_offset=0.0,
            ),
            4 * n * (2 if skip else 1),
            4 * n * (2 if skip else 1),
            in_place=in_place,
            passes=n,
        )

    def norm_grad(rows, cols, rms):
        n, parts = rows * cols, 16
        operands = {
            "x": (F32, n),
            "dy": (F32, n),
            "scale": (F32, cols),
            "dx": (F32, n),
            "dscale": (F32, cols),
            "dbias": (F32, cols),
            "scratch": (F32, parts * 2 * cols),
        }
        if rms:
            del operands["dbias"]
        add(
            f"{'RMS' if rms else 'layer'} norm gradient {rows}×{cols}",
            "norm_grad",
            operands,
            dict(
                rms=int(rms),
                rows=rows,
                cols=cols,
                x_row=cols,
                dy_row=cols,
                parts=parts,
                epsilon=1e-5,
                scale_offset=0.0,
            ),
            8 * n,
            4 * n,
            passes=4 * n,  # x for its mean, both for the sums, the sums themselves
        )

    def reduce(op, outer, n, inner, label):
        total = outer * n * inner
        add(
            f"reduce {op} [{outer}, {n}, {inner}], {label}",
            "reduce",
            {"x": (F32, total), "y": (F32, outer * inner)},
            dict(
                op=REDUCE[op],
                type=F32,
                outer=outer,
                n=n,
                inner=inner,
                x_outer=n * inner,
                x_n=inner,
                x_inner=1,
                y_outer=inner,
            ),
            4 * total,
            4 * outer * inner,
            {"soft": total, "read": total} if op == "log_sum_exp" else None,
        )

    def copy(label, dims, xs, dtype=F32):
        n, size = int(np.prod(dims)), SIZE[dtype]
        reach = 1 + sum((d - 1) * s for d, s in zip(dims, xs))
        add(
            label,
            "copy",
            {"x": (dtype, reach), "y": (dtype, n)},
            dict(size=size, dims=six(dims), xs=strides(xs), ys=strides(dense(dims))),
            min(n, reach) * size,
            n * size,
        )

    def transpose(shape, perm, label, dtype=F32):
        s = dense(shape)
        copy(
            f"transpose {list(shape)} by {list(perm)}, {label}",
            [shape[p] for p in perm],
            [s[p] for p in perm],
            dtype,
        )

    def binary(op, dims, as_, bs, label, functions=None):
        n = int(np.prod(dims))
        b_count = 1 + sum((d - 1) * s for d, s in zip(dims, bs))
        add(
            f"{op} {list(dims)}, {label}",
            "binary",
            {"a": (F32, n), "b": (F32, b_count), "y": (F32, n)},
            dict(
                op=BINARY[op],
                type=F32,
                dims=six(dims),
                **{"as": strides(as_)},
                bs=strides(bs),
                ys=strides(dense(dims)),
            ),
            4 * (n + b_count),
            4 * n,
            functions and dict.fromkeys(functions, n),
        )

    def unary(op, n, functions=None):
        add(
            f"{op} {n}",
            "unary",
            {"x": (F32, n), "y": (F32, n)},
            dict(
                op=UNARY[op],
                type=F32,
                dims=six([n]),
                xs=strides([1]),
                ys=strides([1]),
                alpha=0.5,
                beta=0.5,
            ),
            4 * n,
            4 * n,
            functions and dict.fromkeys(functions, n),
        )

    def cast(a, b, n, label):
        add(
            f"cast {label} {n}",
            "cast",
            {"x": (a, n), "y": (b, n)},
            dict(x_type=a, y_type=b, mode=0, dims=six([n]), xs=strides([1]), ys=strides([1])),
            n * SIZE[a],
            n * SIZE[b],
            {"halves": n} if b == F16 else {"floats": n} if a in (U8, BOOL) else None,
        )

    (
        softmax(1024, 1024),
        softmax(1024, 1024, in_place=False),
        softmax(1152, 128),
        softmax(64, 49152),
        softmax(1024, 1024, log=1),
        softmax(4096, 50),
    )
    add(
        "softmax gradient 1024×1024",
        "softmax_grad",
        {"dy": (F32, 1 << 20), "y": (F32, 1 << 20), "dx": (F32, 1 << 20)},
        dict(rows=1024, cols=1024, dy_row=1024, y_row=1024, log=0),
        8 << 20,
        4 << 20,
        passes=2 << 20,
    )
    n = 12 * 256 * 256
    add(
        "softmax and its gradient 3072×256",
        "softmax_and_grad",
        {"x": (F32, n), "dy": (F32, n), "y": ("x", 0), "dx": ("dy", 0)},
        dict(rows=3072, cols=256, period=256, first=256, span=0, scale=0.125, slope=0.125),
        8 * n,
        8 * n,
        {"soft": n, "read": 4 * n},
        True,
    )
    (
        norm(1024, 768, False),
        norm(1024, 768, False, in_place=False),
        norm(256, 576, True),
        norm(256, 576, True, skip=True),
        norm(1, 2048, True),
    )
    norm_grad(1024, 768, False), norm_grad(512, 576, True)
    for op in ("sum", "max", "log_sum_exp"):
        reduce(op, 1024, 1024, 1, "last axis")
    (
        reduce("sum", 1, 1024, 1024, "first axis"),
        reduce("max", 64, 16, 1024, "middle axis"),
        reduce("sum_square", 1, 1 << 20, 1, "all"),
        reduce("mean", 4096, 49, 4, "short axis"),
        reduce("sum", 16384, 64, 1, "short rows"),
    )
    (
        transpose((1024, 1024), (1, 0), "2-D"),
        transpose((1000, 333), (1, 0), "2-D"),
        transpose((1024, 1024), (1, 0), "bytes", U8),
        transpose((1024, 1024), (1, 0), "halves", F16),
    )
    (
        transpose((1, 256, 12, 64), (0, 2, 1, 3), "heads"),
        transpose((1, 12, 256, 64), (0, 2, 3, 1), "heads, keys"),
        transpose((64, 56, 56), (1, 2, 0), "NCHW to NHWC"),
        transpose((56, 56, 64), (2, 0, 1), "NHWC to NCHW"),
        transpose((224, 224, 3), (2, 0, 1), "image to NCHW"),
    )
    (
        copy("slice of columns [512, 256 of 1024]", [512, 256], [1024, 1]),
        copy("copy of short rows [65536, 8 of 16]", [65536, 8], [16, 1]),
        copy("expand [64, 1 to 16, 1024]", [64, 16, 1024], [1024, 0, 1]),
        copy("pad and concat rows [3136, 64]", [3136, 64], [96, 1]),
    )
    add(
        "gather 4096 of [49152, 576]",
        "gather",
        {"x": (F32, 49152 * 576), "index": (I64, 4096, "ids"), "y": (F32, 4096 * 576)},
        dict(
            size=4,
            index_type=I64,
            outer=1,
            count=4096,
            rows=49152,
            inner=576,
            x_outer=49152 * 576,
            x_row=576,
            y_outer=4096 * 576,
        ),
        4 * 4096 * 576,
        4 * 4096 * 576,
    )
    add(
        "gather columns 512 of [512, 4096]",
        "gather",
        {"x": (F32, 512 * 4096), "index": (I64, 512, "ids"), "y": (F32, 512 * 512)},
        dict(
            size=4,
            index_type=I64,
            outer=512,
            count=512,
            rows=4096,
            inner=1,
            x_outer=4096,
            x_row=1,
            y_outer=512,
        ),
        8 * 512 + 4 * 512 * 512,
        4 * 512 * 512,
    )
    n = 1 << 18
    (
        binary("add", [1024, 256], [256, 1], [256, 1], "same shape"),
        binary("add", [1024, 256], [256, 1], [0, 1], "a row"),
        binary("mul", [1024, 256], [256, 1], [1, 0], "a column"),
        binary("mul", [n], [1], [0], "a number"),
        binary("add", [64, 56, 56], [3136, 56, 1], [1, 0, 0], "channels"),
    )
    (
        binary("div", [n], [1], [1], "same shape", ["divide"]),
        binary("silu_mul", [256, 1536], [1536, 1], [1536, 1], "gated", ["sigmoid"]),
        binary("add", [4096, 50], [50, 1], [1, 0], "a column, short rows"),
        binary("min", [n], [1], [0], "a number"),
    )
    for op, functions in (
        ("relu", []),
        ("sqrt", ["sqrt"]),
        ("exp", ["exp"]),
        ("log", ["log"]),
        ("tanh", ["tanh"]),
        ("erf", ["erf"]),
        ("sigmoid", ["sigmoid"]),
        ("gelu", ["erf"]),
        ("gelu_tanh", ["sigmoid"]),
        ("silu", ["sigmoid"]),
    ):
        unary(op, n, functions)
    for op in ("gelu", "gelu_tanh"):
        add(
            f"{op} gradient {n}",
            "gated_grad",
            {"dy": (F32, n), "a": (F32, n), "da": (F32, n)},
            dict(n=n, activation=ACTIVATION[op], alpha=1.0),
            8 * n,
            4 * n,
            {"soft": n, "erf": n} if op == "gelu" else {"sigmoid": n},
        )
    add(
        f"dropout {n}",
        "random",
        {"x": (F32, n), "seed": (I64, 1), "y": ("x", 0)},
        dict(n=n, stream=0, threshold=1 << 28, scale=1.0, offset=0.0),
        4 * n,
        4 * n,
        {"random": n},
        in_place=True,
    )
    add(
        f"where {n}",
        "where",
        {"condition": (BOOL, n, "bools"), "a": (F32, n), "b": (F32, n), "y": (F32, n)},
        dict(
            size=4,
            dims=six([n]),
            cs=strides([1]),
            **{"as": strides([1])},
            bs=strides([1]),
            ys=strides([1]),
        ),
        9 * n,
        4 * n,
    )
    (
        cast(F16, F32, n, "float16 to float32"),
        cast(F32, F16, n, "float32 to float16"),
        cast(I64, F32, n, "int64 to float32"),
        cast(U8, F32, n, "uint8 to float32"),
        cast(BOOL, F32, n, "bool to float32"),
    )
    add(
        f"quantize {n} to uint8",
        "quantize",
        {"x": (F32, n), "scale": (F32, 1, "ones"), "zero": (U8, 1), "y": (U8, n)},
        dict(type=U8, outer=1, axis=1, inner=n, block=-1),
        4 * n,
        n,
        {"bytes": n},
    )
    add(
        f"dequantize {n} of uint8",
        "dequantize",
        {"x": (U8, n), "scale": (F32, 1, "ones"), "zero": (U8, 1), "y": (F32, n)},
        dict(type=U8, bits=8, outer=1, axis=1, inner=n, block=-1),
        n,
        4 * n,
        {"floats": n},
    )
    add(
        "dequantize [1024, 576] of int8 by rows",
        "dequantize",
        {"x": (I8, 1024 * 576), "scale": (F32, 1024), "y": (F32, 1024 * 576)},
        dict(type=I8, bits=8, outer=1, axis=1024, inner=576, block=0),
        1024 * 576,
        4 * 1024 * 576,
        {"floats": 1024 * 576},
    )
    add(
        f"dynamic quantize {n}",
        "dynamic_quantize",
        {"x": (F32, n), "y": (U8, n), "scale": (F32, 1), "zero": (U8, 1)},
        dict(n=n),
        8 * n,
        n,
        {"read": n, "bytes": n},
    )
    for count in (n, 1 << 23):
        for name, rule, states in (
            ("AdamW", "adam", 2),
            ("SGD", "sgd", 0),
            ("SGD, momentum", "sgd", 1),
            ("Adagrad", "adagrad", 1),
            ("RMSprop", "rmsprop", 1),
            ("Lion", "lion", 1),
        ):
            keys = ["s", "t"][:states]
            operands = {
                "x": (F32, count),
                "g": (F32, count),
                **dict.fromkeys(keys, (F32, count, "zeros")),
                "learning_rate": (F32, 1, "zeros"),
                "step": (I64, 1),
            }
            add(
                f"{name} {count}",
                "optimizer",
                operands,
                dict(
                    rule=RULE[rule],
                    form=0,
                    n=count,
                    rest1=0.1,
                    rest2=0.001,
                    epsilon=1e-8,
                    weight_decay=0.01,
                    momentum=0.9,
                    dampening=0.0,
                    nesterov=0,
                ),
                4 * count * (2 + states),
                4 * count * (1 + states),
                {"sqrt": count, "divide": count}
                if rule in ("adam", "adagrad", "rmsprop")
                else None,
                in_place=True,
            )
    count = 1 << 22
    add(
        f"AdamW, 8-bit states {count}",
        "optimizer_8bit",
        {
            "x": (F32, count),
            "g": (F32, count),
            "m": (I8, count, "zeros"),
            "m_largest": (F32, count // 256, "zeros"),
            "v": (U8, count, "zeros"),
            "v_largest": (F32, count // 256, "zeros"),
            "learning_rate": (F32, 1, "zeros"),
            "step": (I64, 1),
        },
        dict(form=0, n=count, rest1=0.1, rest2=0.001, epsilon=1e-8, weight_decay=0.01),
        10 * count,
        6 * count,
        {"sqrt": count, "divide": count},
        in_place=True,
    )
    rows, classes = 512, 49152
    add(
        f"cross entropy [{rows}, {classes}]",
        "cross_entropy",
        {
            "x": (F32, rows * classes),
            "label": (I64, rows, "ids"),
            "loss": (F32, rows),
            "counted": (F32, rows),
            "lse": (F32, rows),
        },
        dict(
            rows=rows,
            classes=classes,
            x_row=classes,
            label_type=I64,
            nll=0,
            has_ignore=0,
            ignore_index=0,
            smoothing=0.0,
        ),
        4 * rows * classes,
        0,
        {"soft": rows * classes, "read": rows * classes},
    )
    add(
        f"cross entropy gradient [{rows}, {classes}]",
        "cross_entropy_grad",
        {
            "x": (F32, rows * classes),
            "label": (I64, rows, "ids"),
            "lse": (F32, rows),
            "dloss": (F32, rows, "ones"),
            "dx": ("x", 0),
        },
        dict(
            rows=rows,
            classes=classes,
            x_row=classes,
            label_type=I64,
            nll=0,
            has_ignore=0,
            ignore_index=0,
            smoothing=0.0,
            dloss_row=1,
        ),
        4 * rows * classes,
        4 * rows * classes,
        {"soft": rows * classes},
        True,
    )
    for interleaved in (0, 1):
        add(
            f"rope [256, 9, 64]{', interleaved' if interleaved else ''}",
            "rope",
            {"x": (F32, 256 * 576), "cos": (F32, 256 * 32), "sin": (F32, 256 * 32), "y": ("x", 0)},
            dict(
                batch=1,
                heads=9,
                seq=256,
                head_dim=64,
                rotary_dim=64,
                interleaved=interleaved,
                x_b=0,
                x_h=64,
                x_s=576,
                y_b=0,
                y_h=64,
                y_s=576,
                c_b=0,
                c_s=32,
                c_rows=256,
                position=0,
                positions=0,
                scale=1.0,
            ),
            4 * 256 * 640,
            4 * 256 * 576,
            in_place=True,
        )
    return found
