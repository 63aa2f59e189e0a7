"""Compute-bound kernels for case `kernels`: matrix products, convolutions, attention and their
gradients, as plans of models with one operator.

Work that a plan does once for its weights when it is loaded is not measured, nor are the operators
around it in a model. A plan has several steps if no single kernel does all of the work (gradients).
"""

from __future__ import annotations

from math import prod

F32, U8, I8, I32, I64, F16 = 1, 2, 3, 6, 7, 10
SIZE = {F32: 4, U8: 1, I8: 1, I32: 4, I64: 8, F16: 2}
FILL = {F32: "floats", F16: "halves"}
EVERYWHERE, RELAXED = ("relaxed", "simd128"), ("relaxed",)


class X:
    """An input tensor. weight: it is an initializer, and may be repacked when the plan is
    loaded.
    """

    weight = False

    def __init__(self, *shape, dtype=F32):
        self.shape, self.dtype = list(shape), dtype
        self.nbytes = prod(shape) * SIZE[dtype]


class W(X):
    weight = True


class Cache(X):
    """Keys or values that the engine stores as float16, or as rows of 8 (I8) or 4 bits (U8)."""

    dtype, words = F16, "float16 cache"

    def __init__(self, *shape):
        super().__init__(*shape, dtype=self.dtype)


class Rows8(Cache):
    dtype, words, block = I8, "int8 cache", 34

    def __init__(self, *shape):
        super().__init__(*shape)
        self.nbytes = prod(shape) // 32 * self.block


class Rows4(Rows8):
    dtype, words, block = U8, "int4 cache", 18


class Case:
    """A chain of `nodes` (op, inputs, attributes), in which the input "it" is the previous node's
    output.

    An input is an X, a W, a Cache, "it", None, or a constant (dtype, shape, values). The bytes that
    must be moved are those of the inputs, the weights and the result.

    Args:
        operations: minimum of multiplications and additions; for a convolution, those of the direct
            algorithm.
        dots: flavours in which the kernel computes them as integer dot products instead of in
            float32.
    """

    functions, in_place, passes = {}, False, 0  # as in along_memory.Case
    theme = ""

    def __init__(self, name, nodes, operations, dots=()):
        self.name, self.nodes, self.operations, self.dots = name, nodes, operations, dots
        self.operands = {id(x): x for _, inputs, _ in nodes for x in inputs if isinstance(x, X)}
        self.reads, self.writes, self.steps = sum(x.nbytes for x in self.operands.values()), 0, ""

    # long: one plan, step by step
    def plan(self):
        """Returns (bytes of the plan, [size of each slot and how it is filled]); sets `writes` and
        `steps`, the names of its kernels.
        """
        from edgewise.compiler.plan import compile_graph
        from edgewise.ir import Graph, Info, Node, Tensor

        names = {key: f"x{i}" for i, key in enumerate(self.operands)}
        g, it = (
            Graph(name=self.name, opsets={"": 23, "com.microsoft": 1}, ir_version=10, ours=True),
            None,
        )
        for i, (key, x) in enumerate(self.operands.items()):
            if x.weight:
                # each another content: equal ones would be one weight
                data = bytes([i]).ljust(x.nbytes, b"\0")
                g.constants[names[key]] = Tensor(
                    names[key], x.dtype, tuple(x.shape), None, 0, x.nbytes, data
                )
            else:
                g.inputs.append(Info(names[key], F32 if isinstance(x, Cache) else x.dtype, x.shape))
        for i, (op, inputs, attrs) in enumerate(self.nodes):
            read = []
            for k, x in enumerate(inputs):
                if isinstance(x, tuple):
                    g.constants[f"c{i}.{k}"] = Tensor.of(f"c{i}.{k}", *x)
                read.append(
                    ""
                    if x is None
                    else it
                    if x == "it"
                    else f"c{i}.{k}"
                    if isinstance(x, tuple)
                    else names[id(x)]
                )
            domain, _, kind = op.rpartition(".")
            it = f"y{i}"
            g.nodes.append(
                Node(
                    kind,
                    read,
                    [it, *(f"{it}.{k}" for k in range(1, attrs.get("outputs", 1)))],
                    {k: v for k, v in attrs.items() if k != "outputs"},
                    domain,
                )
            )
        g.outputs = [Info(name) for name in g.nodes[-1].outputs]
        caches = {key: x for key, x in self.operands.items() if isinstance(x, Cache)}
        shapes = {names[key]: x.shape for key, x in caches.items()}
        plan, _ = compile_graph(
            g,
            {i.name: i.shape for i in g.inputs},
            roles=dict.fromkeys(shapes, "cache"),
            cache_shapes=shapes,
            cache_dtype=next((x.dtype for x in caches.values()), F16),
        )
        self.writes = sum(s.nbytes for s in plan.slots if s.kind == "output")
        self.steps = plan.kernels[plan.init_count :]
        return plan.data, [
            {
                "size": s.nbytes,
                "fill": (
                    FILL.get(s.dtype, "bytes")
                    if s.kind in ("input", "weight", "cache")
                    else "zeros"
                ),
            }
            for s in plan.slots
        ]


def cases():
    found = []
    for theme, make in (
        ("float32 products", float_products),
        ("products with quantized weights", quantized_products),
        ("products and convolutions of bytes", integers),
        ("convolutions and their gradients", convolutions),
        ("attention and its gradient", attentions),
    ):
        for c in make():
            c.theme = theme
            found.append(c)
    return found


# ---- float32 products ----


# long: a table of cases
def float_products():
    def product(m, k, n, label="", turn_a=False, turn_b=False, weight=True, dtype=F32):
        a, b = (
            X(*([k, m] if turn_a else [m, k])),
            (W if weight else X)(*([n, k] if turn_b else [k, n]), dtype=dtype),
        )
        op = (
            ("MatMul", [a, b], {})
            if not turn_a and not turn_b
            else (
                "com.microsoft.FusedMatMul",
                [a, b],
                {"transA": int(turn_a), "transB": int(turn_b)},
            )
        )
        return Case(
            f"{'GEMV' if m == 1 else 'GEMM'} {m}×{k}×{n}{label and ', ' + label}",
            [op],
            2 * m * k * n,
        )

    def batched(batch, m, k, n, label=""):
        return Case(
            f"GEMM {batch} of {m}×{k}×{n}{label and ', ' + label}",
            [("MatMul", [X(batch, m, k), X(batch, k, n)], {})],
            2 * batch * m * k * n,
        )

    def epilogue(m, k, n, activation=None, residual=False):
        nodes = (
            [("MatMul", [X(m, k), W(k, n)], {}), ("Add", ["it", W(n)], {})]
            + ([activation] if activation else [])
            + ([("Add", ["it", X(m, n)], {})] if residual else [])
        )
        words = [
            "bias",
            *([activation[0]] if activation else []),
            *(["residual"] if residual else []),
        ]
        return Case(f"GEMM {m}×{k}×{n}, {', '.join(words)}", nodes, 2 * m * k * n)

    gelu = ("Gelu", ["it"], {"approximate": "tanh"})
    yield product(512, 512, 512)
    yield product(512, 512, 512, "neither a weight", weight=False)
    yield product(512, 512, 512, "B transposed", turn_b=True)
    yield product(512, 512, 512, "A transposed", turn_a=True, weight=False)
    yield product(1024, 1024, 1024)
    yield product(256, 576, 1536)
    yield product(256, 1536, 576)
    yield product(256, 576, 1536, "float16 weights", dtype=F16)
    yield product(576, 256, 1536, "A transposed: a weight's gradient", turn_a=True, weight=False)
    yield product(1024, 96, 96)
    yield product(64, 784, 512)
    yield batched(64, 64, 64, 64)
    yield batched(12, 256, 64, 256, "scores")
    for m, k, n in (
        (64, 64, 64),
        (100, 300, 77),
        (33, 129, 65),
        (16, 2048, 2048),
        (4, 2048, 2048),
        (2, 2048, 2048),
    ):
        yield product(m, k, n)
    yield epilogue(256, 576, 1536, gelu)
    yield epilogue(256, 1536, 576, residual=True)
    yield epilogue(128, 384, 1536, ("Relu", ["it"], {}), residual=True)
    for turn in (False, True):
        yield product(1, 2048, 2048, "B transposed" if turn else "", turn_b=turn)
    yield product(1, 2048, 2048, "float16 weights", dtype=F16)
    for turn in (False, True):
        yield product(1, 576, 49152, "B transposed" if turn else "", turn_b=turn)


# ---- weights of 2, 4 and 8 bits ----
# Activations that may be rounded to bytes are rounded for up to this many rows, in every flavour
# and with all weights; for more rows only with relaxed SIMD and 4 bits
# (core/kernels/product/matmul_nbits.c).
FEW_ROWS = 8


def quantized_products():
    def nbits(m, k, n, bits, block, level):
        w, scales = W(n, k // block, block * bits // 8, dtype=U8), W(n * k // block)
        dots = () if level != 4 else EVERYWHERE if m <= FEW_ROWS else RELAXED if bits == 4 else ()
        return Case(
            f"{bits}-bit {m}×{k}×{n}, blocks of {block}, accuracy_level {level}",
            [
                (
                    "com.microsoft.MatMulNBits",
                    [X(m, k), w, scales],
                    dict(K=k, N=n, bits=bits, block_size=block, accuracy_level=level),
                )
            ],
            2 * m * k * n,
            dots,
        )

    for bits, blocks in ((4, (32, 64, 128)), (8, (32,)), (2, (32, 64))):
        for block in blocks:
            for m in (1, 128):
                for level in (0, 4):
                    yield nbits(m, 2048, 2048, bits, block, level)
    yield nbits(1, 576, 49152, 4, 32, 4)
    for m in (1, 128):
        yield Case(
            f"NF4 {m}×2048×2048, blocks of 64",
            [
                (
                    "com.microsoft.MatMulBnb4",
                    [X(m, 2048), W(1 << 21, dtype=U8), W(1 << 16)],
                    dict(K=2048, N=2048, block_size=64, quant_type=1),
                )
            ],
            2 * m << 22,
        )


# ---- int8 ----


def integers():
    zero = {t: (t, [], [3]) for t in (U8, I8)}

    def product(m, k, n, b=I8):
        return Case(
            f"int8 product {m}×{k}×{n}, uint8 by {'int8' if b == I8 else 'uint8'}",
            [("MatMulInteger", [X(m, k, dtype=U8), W(k, n, dtype=b), zero[U8], zero[b]], {})],
            2 * m * k * n,
            EVERYWHERE,
        )

    def conv(channels, out, side, taps, groups=1, stride=1):
        """A convolution with channels last, the layout of images between such operators."""
        pad, to = taps // 2, (side + taps // 2 * 2 - taps) // stride + 1
        known = [
            (F32, [], [0.02]),
            zero[U8],
            W(out, channels // groups, taps, taps, dtype=I8),
            (F32, [], [0.01]),
            (I8, [], [0]),
            (F32, [], [0.05]),
            zero[U8],
        ]
        nodes = [
            ("Transpose", [X(1, side, side, channels, dtype=U8)], {"perm": [0, 3, 1, 2]}),
            (
                "QLinearConv",
                ["it", *known],
                {"group": groups, "pads": [pad] * 4, "strides": [stride] * 2},
            ),
            ("Transpose", ["it"], {"perm": [0, 2, 3, 1]}),
        ]
        return Case(
            f"int8 {conv_name(channels, out, to, taps, groups, stride)}",
            nodes,
            2 * out * channels // groups * (taps * to) ** 2,
            EVERYWHERE,
        )

    yield product(1, 2048, 2048)
    yield product(128, 2048, 2048)
    yield product(512, 512, 512)
    yield product(256, 576, 1536, U8)
    yield conv(64, 64, 56, 3)
    yield conv(256, 256, 28, 1)
    yield conv(144, 144, 56, 3, 144)
    yield conv(3, 64, 224, 7, stride=2)


# ---- convolutions ----


def conv_name(channels, out, to, taps, groups, stride):
    kind = f"depthwise {channels}" if groups > 1 else f"{channels}→{out}"
    return f"conv {taps}×{taps}{f'/{stride}' if stride > 1 else ''}, {kind}, {to}×{to}"


def convolutions():
    def conv(channels, out, side, taps, groups=1, stride=1, ways=("", "by input", "by weights")):
        pad, to = taps // 2, (side + taps // 2 * 2 - taps) // stride + 1
        attrs, name, work = (
            {"group": groups, "pads": [pad] * 4, "strides": [stride] * 2},
            conv_name(channels, out, to, taps, groups, stride),
            2 * out * channels // groups * (taps * to) ** 2,
        )
        image, result, weights = (
            (1, channels, side, side),
            (1, out, to, to),
            (out, channels // groups, taps, taps),
        )
        if "" in ways:
            yield Case(name, [("Conv", [X(*image), W(*weights), W(out)], attrs)], work)
        if "by input" in ways:
            yield Case(
                f"{name}, gradient by input",
                [
                    (
                        "ConvTranspose",
                        [X(*result), X(*weights)],
                        {**attrs, "output_padding": [(side + 2 * pad - taps) % stride] * 2},
                    )
                ],
                work,
            )
        if "by weights" in ways:
            yield Case(
                f"{name}, gradient by weights",
                [
                    (
                        "edgewise.ConvWeightGrad",
                        [X(*image), X(*result)],
                        {**attrs, "shape": list(weights)},
                    )
                ],
                work,
            )

    yield from conv(64, 64, 56, 3)
    yield from conv(256, 256, 28, 1)
    yield from conv(144, 144, 56, 3, 144)
    yield from conv(3, 64, 224, 7, stride=2, ways=("", "by weights"))
    yield from conv(64, 128, 56, 3, stride=2)
    yield from conv(128, 128, 28, 3, ways=("",))
    yield from conv(512, 512, 7, 3, ways=("",))
    yield from conv(3, 32, 224, 3, stride=2, ways=("",))
    yield from conv(384, 384, 14, 3, 384, ways=("",))


# ---- attention ----
# Rows of 8 and 4 bits are multiplied as integers for up to this many queries of a head of keys,
# those of 8 bits as integers of 16.
FEW_QUERIES = 6


def attentions():
    def attention(heads, kv, q_len, kv_len, dim, causal, label, gradient=False, batch=1, cache=X):
        q, k, v, dy = (
            X(batch, heads, q_len, dim),
            cache(batch, kv, kv_len, dim),
            cache(batch, kv, kv_len, dim),
            X(batch, heads, q_len, dim),
        )
        pairs = q_len * kv_len - (q_len * (q_len - 1) // 2 if causal else 0)
        attrs = {"scale": dim**-0.5, "causal": int(causal), "past": kv_len - q_len}
        node = (
            ("edgewise.AttentionGrad", [q, k, v, dy], {**attrs, "outputs": 3})
            if gradient
            else ("edgewise.Attention", [q, k, v], attrs)
        )
        name = (
            f"attention{' gradient' if gradient else ''}{label and ' ' + label},"
            f" {f'{batch} × ' if batch > 1 else ''}{heads}{f'/{kv}' if kv != heads else ''} heads,"
            f" {q_len}×{kv_len}×{dim}{', causal' if causal and q_len > 1 else ''}"
            + (f", {cache.words}" if cache is not X else "")
        )
        few = q_len * heads // kv <= FEW_QUERIES
        dots = {Rows4: EVERYWHERE, Rows8: ("simd128",)}.get(cache, ()) if few else ()
        return Case(name, [node], (10 if gradient else 4) * batch * heads * dim * pairs, dots)

    yield attention(9, 3, 256, 256, 64, True, "prefill")
    yield attention(12, 12, 256, 256, 64, False, "encoder")
    yield attention(8, 8, 1024, 1024, 64, True, "prefill")
    yield attention(9, 3, 1, 1024, 64, True, "decode")
    yield attention(12, 12, 1, 1024, 64, True, "decode")
    yield attention(9, 3, 1, 1024, 64, True, "decode", cache=Cache)
    yield attention(9, 3, 128, 1024, 64, True, "prefill", cache=Cache)
    for cache in (Cache, Rows8, Rows4):
        yield attention(9, 3, 1, 16000, 64, True, "decode", cache=cache)
    yield attention(12, 12, 256, 256, 64, False, "", gradient=True)
    yield attention(9, 3, 256, 256, 64, True, "", gradient=True)
    yield attention(6, 6, 128, 128, 32, True, "", gradient=True, batch=8)
