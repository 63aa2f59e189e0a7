"""Linear attention, which keeps a state instead of a cache (plain, gated and delta rules), and the
causal convolution with a state in front of it. Both in ONNX's and onnxruntime's form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT64
from ...declare.op import MS, NotStatic, Op, Sym, fail, takes, unsupported
from .attention_kernel import shaped
from .linear_attention_grad import chunked

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Dim,
        Gradients,
        Inferred,
        InputGradients,
        Value,
    )

# Inputs: q, k, v, past state, decay (a factor), beta. Outputs: y, state.
_step = Op("LinearAttention", "edgewise")


@_step.infer
def step_infer(node: BoundNode) -> Inferred:
    q, k, v = node.inputs[:3]
    heads, kv = node.attr("q_num_heads"), node.attr("kv_num_heads")
    batch, seq, dim, v_dim = q.shape[0], q.shape[1], q.shape[2] // heads, v.shape[2] // kv
    return [(FLOAT, [batch, seq, max(heads, kv) * v_dim]), (FLOAT, [batch, kv, dim, v_dim])]


@_step.lower
def step_lower(node: BoundNode, builder: Builder) -> None:
    q, k, v = (builder.contiguous(builder.view(x)) for x in node.inputs[:3])
    past, decay, beta = (
        builder.contiguous(builder.view(x)) if x is not None else None
        for x in [*node.inputs[3:], *[None] * 3][:3]
    )
    heads, kv = node.attr("q_num_heads"), node.attr("kv_num_heads")
    batch, seq, dim, v_dim = q.shape[0], q.shape[1], q.shape[2] // heads, v.shape[2] // kv
    y, state = (
        builder.out(o) if o is not None else builder.temp(FLOAT, shape)
        for o, shape in zip(
            node.outputs, ([batch, seq, max(heads, kv) * v_dim], [batch, kv, dim, v_dim])
        )
    )
    builder.emit(
        "linear_attention",
        {
            "q": q,
            "k": k,
            "v": v,
            "past": past,
            "decay": decay,
            "beta": beta,
            "y": y,
            "state": state,
        },
        batch=batch,
        heads=heads,
        kv_heads=kv,
        seq=seq,
        dim=dim,
        v_dim=v_dim,
        decay_dim=decay.shape[2] // kv if decay is not None else 1,
        beta_heads=beta.shape[2] if beta is not None else 1,
        scale=node.attr("scale", 1.0),
    )


@_step.grad
def step_grad(
    node: BoundNode, gradients: Gradients, dy: Value | None, dstate: Value | None = None
) -> InputGradients:
    heads, kv, scale = (node.attr(name) for name in ("q_num_heads", "kv_num_heads", "scale"))

    def build(*inputs: Value | None) -> list[Value]:
        return chunked(gradients, [*inputs, *[None] * 3][:6], heads, kv, scale)

    return gradients.through(build, [dy, dstate])


def _linear_attention(node: BoundNode, graph: Binder) -> list[Value]:
    q, k, v, past, decay, beta = [*node.inputs, *[None] * 3][:6]
    takes(node, (FLOAT,), 0, 1, 2, 3, 4, 5)
    rule = node.attr("update_rule", "gated_delta")
    if rule not in ("linear", "gated", "delta", "gated_delta"):
        unsupported(node, f"the update rule {rule!r}")
    heads, kv = node.attr("q_num_heads", 0), node.attr("kv_num_heads", 0)
    _check_heads(node, heads, kv)
    batch, seq, dim, v_dim = q.shape[0], q.shape[1], q.shape[2] // heads, v.shape[2] // kv
    shaped(node, 2, "value", batch, seq, kv * v_dim)
    window = _window(node)
    shaped(node, 3, "past_state", *([window] if window else []), batch, kv, dim, v_dim)
    k = _repeated_keys(node, graph, kv, dim)
    if past is not None and window:
        past = _part(graph, past, 0, window - 1, 1, drop=True)
    _check_factor(node, 4, "decay", "gated" in rule, (kv, kv * dim))
    _check_factor(node, 5, "beta", "delta" in rule, (1, kv))
    decay = graph.op("Exp", decay) if "gated" in rule else None
    beta = beta if "delta" in rule else None

    def steps(inputs: list[Value | None], state: Value | None) -> list[Value]:
        return graph.op(
            "LinearAttention",
            *inputs[:3],
            state,
            *inputs[3:],
            domain="edgewise",
            outputs=2,
            q_num_heads=heads,
            kv_num_heads=kv,
            scale=node.attr("scale", 0.0) or dim**-0.5,
        )

    inputs = [q, k, v, decay, beta]
    if not window:
        return steps(inputs, past)[: len(node.outputs)]
    # The last tokens one by one: each leaves a state.
    lengths = [1] * max(1, min(window, seq))
    lengths[0] = seq - len(lengths) + 1
    at = 0
    ys: list[Value] = []
    states: list[Value] = []
    for length in lengths:
        y, past = steps(
            [_part(graph, x, 1, at, length) if x is not None else None for x in inputs], past
        )
        ys, states, at = [*ys, y], [*states, past], at + length
    y = graph.op("Concat", *ys, axis=1) if len(ys) > 1 else ys[0]
    return [y, _stacked(graph, states, [batch, kv, dim, v_dim], window)][: len(node.outputs)]


def _repeated_keys(node: BoundNode, graph: Binder, kv: int, dim: Dim) -> Value:
    """Keys with a head for each of the values: in com.microsoft's form several may share one."""
    k = node.inputs[1]
    heads = k.shape[2] // dim if k.rank == 3 and node.domain == MS else kv
    if heads < 1 or kv % heads:
        heads = kv
    shaped(node, 1, "key", node.inputs[0].shape[0], node.inputs[0].shape[1], heads * dim)
    if heads == kv:
        return k
    batch, seq = k.shape[:2]
    wide = graph.op(
        "Expand",
        graph.reshape(k, [batch, seq, heads, 1, dim]),
        graph.constant(INT64, [5], [batch, seq, heads, kv // heads, dim]),
    )
    return graph.reshape(wide, [batch, seq, kv * dim])


def _window(node: BoundNode) -> int:
    """How many states, after the last positions, past_state and present_state hold; 0: the last
    one, without a dimension for it.
    """
    window = node.attr("state_window", 0)
    if not 0 <= window <= 8:
        fail(node, f"its state_window is {window}; 0 to 8 is expected", "Export the model again.")
    if window and any(isinstance(d, Sym) for d in node.inputs[0].shape[1:]):
        raise NotStatic("a state for each of the last positions")
    return window


def _part(graph: Binder, x: Value, axis: int, start: Dim, length: Dim, drop: bool = False) -> Value:
    """`length` elements of x along an axis; drop: without that axis, which has one of them."""
    y = graph.op(
        "Slice", x, *(graph.constant(INT64, [1], [n]) for n in (start, start + length, axis))
    )
    return graph.reshape(y, [*x.shape[:axis], *x.shape[axis + 1 :]]) if drop else y


def _stacked(graph: Binder, states: list[Value], shape: list[Dim], window: int) -> Value:
    """States of this shape as one tensor of `window` slots, of which the first ones are zeros where
    there are fewer states.
    """
    slots = [graph.reshape(s, [1, *shape]) for s in states]
    if len(slots) < window:
        missing = [window - len(slots), *shape]
        zero = graph.constant(FLOAT, [1], [0.0])
        slots.insert(0, graph.op("Expand", zero, graph.constant(INT64, [len(missing)], missing)))
    return graph.op("Concat", *slots, axis=0) if len(slots) > 1 else slots[0]


def _check_heads(node: BoundNode, heads: int, kv: int) -> None:
    """Raises ModelError where q, k and v do not divide into these heads."""
    q, k, v = node.inputs[:3]
    most = max(heads, kv)
    if (
        min(heads, kv) < 1
        or most % heads
        or most % kv
        or node.domain == ""
        and kv > heads
        or any(x.rank != 3 for x in (q, k, v))
        or q.shape[2] % heads
        or v.shape[2] % kv
    ):
        fail(node, f"{q}, {k} and {v} do not divide into {heads} query heads and {kv} key heads")


def _check_factor(
    node: BoundNode, i: int, name: str, needed: bool, widths: tuple[Dim, Dim]
) -> None:
    """Raises ModelError where input i is missing or its last dimension is none of `widths`."""
    q, x = node.inputs[0], node.input(i)
    if needed and x is None:
        fail(node, f"its update rule needs the input {name}")
    shaped(node, i, name, q.shape[0], q.shape[1], None)
    if x is not None and x.shape[2] not in widths:
        fail(
            node, f"its {name} is {x}; its last dimension has to be {' or '.join(map(str, widths))}"
        )


for _domain in ("", MS):
    _op = Op("LinearAttention", _domain)
    _op.decompose(_linear_attention)


def _causal_conv(node: BoundNode, graph: Binder) -> list[Value]:
    """A convolution of each channel over the past state and x, and the end of both as new state."""
    x, w, bias, past = [*node.inputs, *[None] * 2][:4]
    last = bool(node.attr("channels_last", 0))  # x is [batch, length, ...]
    activation, dilation = _causal_conv_attributes(node, last)
    kept = (w.shape[2] - 1) * dilation  # positions of the state
    shape, dims = list(x.shape), x.shape[2:] if last else [w.shape[0]]
    batch, channels = shape[0], w.shape[0]
    one = [batch, kept, *dims] if last else [batch, channels, kept]  # state
    window = _window(node)
    shaped(node, 3, "past_state", *([window] if window else []), *one)
    if past is not None and window:
        past = _part(graph, past, 0, window - 1, 1, drop=True)
    if last:
        x = _channels_first(graph, x, channels)
        past = _channels_first(graph, past, channels) if past is not None else None
    length = x.shape[2]
    if x.shape[1] != channels:
        fail(node, f"{x} and the kernel {w} have different numbers of channels")
    if past is None:
        past = graph.op(
            "Expand",
            graph.constant(FLOAT, [1], [0.0]),
            graph.constant(INT64, [3], [batch, channels, kept]),
        )
    whole = graph.op("Concat", past, x, axis=2) if kept else x
    y = graph.op(
        "Conv", whole, w, bias, group=channels, kernel_shape=[w.shape[2]], dilations=[dilation]
    )
    if activation != "none":
        y = graph.op("Mul", y, graph.op("Sigmoid", y))
    known = [length - i for i in reversed(range(min(window, length) if window else 1))]
    states = [_part(graph, whole, 2, at, kept) for at in known]
    if last:
        y, *states = (
            graph.reshape(graph.op("Transpose", v, perm=[0, 2, 1]), to)
            for v, to in ((y, shape), *((s, one) for s in states))
        )
    state = _stacked(graph, states, one, window) if window else states[0]
    return [y, state][: len(node.outputs)]


def _causal_conv_attributes(node: BoundNode, last: bool) -> tuple[str, int]:
    """(activation, dilation), once the node is known to be valid and supported."""
    x, w = node.inputs[:2]
    takes(node, (FLOAT,), 0, 1, 2, 3)
    activation, dilation = node.attr("activation", "none"), node.attr("dilation", 1)
    if node.attr("ndim", 1) != 1:
        unsupported(node, "a convolution over more than one dimension")
    if activation not in ("none", "silu", "swish"):
        unsupported(node, f"the activation {activation!r}")
    if (
        w.rank != 3
        or w.shape[1] != 1
        or w.shape[2] < 1
        or x.rank < 3
        or x.rank > 3
        and not last
        or dilation < 1
    ):
        fail(node, f"{x} and the kernel {w} are incompatible")
    return activation, dilation


def _channels_first(graph: Binder, x: Value, channels: Dim) -> Value:
    """[batch, length, ...] as [batch, channels, length]."""
    flat = graph.reshape(x, [x.shape[0], x.shape[1], channels])
    return graph.op("Transpose", flat, perm=[0, 2, 1])


for _domain in ("", MS):
    _op = Op("CausalConvWithState", _domain)
    _op.decompose(_causal_conv)
