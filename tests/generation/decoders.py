"""Decoders of random layers, with states as exporters and operators have them, and their loop in
onnxruntime: what `hybrid.py` has, and GroupQueryAttention in its forms.
"""

from dataclasses import dataclass, field

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from .hybrid import HEADS, KERNEL, WIDTH, Nodes, attention, convolution, recurrence

MS = "com.microsoft"
DIM = WIDTH // HEADS  # of a head
SIZE = 16  # of a head of GroupQueryAttention, of which onnxruntime wants multiples
WINDOW, ROWS = 6, 8  # positions that a query sees; rows of a cache that holds a window
LENGTH = 2048  # of the tables of cosines


@dataclass
class State:
    """A state of a decoder.

    Attributes:
        past, present: names of the input and the output.
        dtype: of NumPy.
        shape: of the input, with "past" for the axis that grows.
        first: of the first run's input in onnxruntime.
        cut: rows of the present that the next run gets; None: all.
    """

    past: str
    present: str
    dtype: type
    shape: list
    first: list = field(default_factory=list)

    def __post_init__(self):
        self.first = self.first or [0 if d == "past" else d for d in self.shape]

    @property
    def grown(self):
        return ["total" if d == "past" else d for d in self.shape]


def _states(at, kinds, shapes, dtype=np.float32):
    """States of layer `at` under optimum's names, or under names of no meaning."""
    names = [(f"past_{k}.{at}", f"present_{k}.{at}") for k in kinds]
    if kinds == ("key", "value"):
        names = [(f"past_key_values.{at}.{k}", f"present.{at}.{k}") for k in kinds]
    return [State(*n, dtype, s) for n, s in zip(names, shapes)]


def convolution_layer(g, x, at, _):
    [state] = states = _states(at, ("conv",), [[1, WIDTH, KERNEL - 1]])
    return convolution(g, x, state.past, state.present), states


def recurrent_layer(g, x, at, _):
    [state] = states = _states(at, ("recurrent",), [[1, WIDTH]])
    return recurrence(g, x, state.past, state.present), states


def attention_layer(g, x, at, _):
    states = _states(at, ("key", "value"), [[1, HEADS, "past", DIM]] * 2)
    pasts, presents = ([getattr(s, n) for s in states] for n in ("past", "present"))
    return attention(g, x, pasts, presents), states


def laid_out_layer(g, x, at, options):
    """Attention whose states have another layout than [batch, heads, past, dim].

    Args:
        options: "layout": "bthd", "bhdt", or "btc" with the heads in one dimension.
    """
    layout = options["layout"]
    shape = {
        "bthd": [1, "past", HEADS, DIM],
        "bhdt": [1, HEADS, DIM, "past"],
        "btc": [1, "past", WIDTH],
    }[layout]
    states = _states(at, ("key", "value"), [shape] * 2)
    order = [0, 1, 3, 2] if layout == "bhdt" else [0, 2, 1, 3]
    inner = [(f"inner{at}.{i}", f"outer{at}.{i}") for i in range(2)]
    for state, (past, _) in zip(states, inner):
        name = state.past
        if layout == "btc":
            name = g.add("Reshape", name, g.constant([1, -1, HEADS, DIM]))
        g.add("Transpose", name, perm=order, name=past)
    x = attention(g, x, *zip(*inner))
    for state, (_, present) in zip(states, inner):
        if layout == "btc":
            merged = g.add("Transpose", present, perm=order)
            g.add("Reshape", merged, g.constant([1, -1, WIDTH]), name=state.present)
        else:
            g.add("Transpose", present, perm=order, name=state.present)
    return x, states


def newest_first_layer(g, x, at, _):
    """A mean of all tokens so far, of which the state has the newest first."""
    [state] = states = _states(at, ("sum",), [[1, "past", WIDTH]])
    new = g.add("MatMul", x, g.weight(WIDTH, WIDTH))
    whole = g.add("Concat", new, state.past, name=state.present, axis=1)
    mean = g.add("ReduceMean", whole, g.constant([1]))
    return g.add("Add", x, g.add("Tanh", mean)), states


def causal_convolution_layer(g, x, at, _):
    """CausalConvWithState of com.microsoft."""
    [state] = states = _states(at, ("conv",), [[1, WIDTH, KERNEL - 1]])
    rows = g.add("Transpose", g.add("MatMul", x, g.weight(WIDTH, WIDTH)), perm=[0, 2, 1])
    y = f"conv{at}"
    inputs = [rows, g.weight(WIDTH, 1, KERNEL), "", state.past]
    g.node("CausalConvWithState", inputs, [y, state.present], activation="silu", ndim=1)
    return g.add("Add", x, g.add("Transpose", y, perm=[0, 2, 1])), states


def linear_layer(g, x, at, _):
    """LinearAttention of com.microsoft."""
    [state] = states = _states(at, ("recurrent",), [[1, HEADS, DIM, DIM]])
    q, k, v = (g.add("MatMul", x, g.weight(WIDTH, WIDTH)) for _ in range(3))
    y = f"linear{at}"
    g.node(
        "LinearAttention",
        [q, k, v, state.past],
        [y, state.present],
        update_rule="linear",
        q_num_heads=HEADS,
        kv_num_heads=HEADS,
        scale=0.1,
    )
    return g.add("Add", x, g.add("MatMul", y, g.weight(WIDTH, WIDTH))), states


def grouped_layer(g, x, at, options):
    """GroupQueryAttention.

    Args:
        options: "bits": of the cache, 8 or 4; "channels": whether each has a scale of its own;
            "window": positions that a query sees; "rows": of a cache that holds a window; "of":
            (past, present) of the layer that it takes keys and values from; "packed": whether
            queries, keys and values are one input.
    """
    kv = 1
    bits, window, rows, of = (options.get(k) for k in ("bits", "window", "rows", "of"))
    q, k, v = (g.add("MatMul", x, g.weight(WIDTH, n * SIZE)) for n in (HEADS, kv, kv))
    attributes = {"num_heads": HEADS, "kv_num_heads": kv, "do_rotary": 1}
    width = SIZE // 2 if bits == 4 else SIZE
    dtype = {None: np.float32, 8: np.int8, 4: np.uint8}[bits]
    states = _states(at, ("key", "value"), [[1, kv, "past", width]] * 2, dtype)
    if rows:
        for state in states:
            state.first = [1, kv, rows, width]
    pasts, presents = ([getattr(s, n) for s in states] for n in ("past", "present"))
    if of:
        states, pasts = [], list(of)
        presents = [f"shared{at}.{i}" for i in range(2)]
        nothing = g.constant(np.zeros((1, 0, kv * SIZE)), np.float32)
        k = v = nothing
    if window:
        attributes |= {"local_window_size": window}
    if rows:
        attributes |= {"sliding_window_cache": 1}
    inputs = [q, k, v, *pasts, *g.lengths(), *g.angles()]
    if bits:
        channels = options.get("channels")
        shape = [1, kv, 1, SIZE] if channels else [1]
        kind = "PER_CHANNEL" if channels else "PER_TENSOR"
        scales = g.rng.uniform(0.1, 0.2, (2, *shape)) * (1 if bits == 4 else 0.1)
        inputs += ["", "", "", *(g.constant(s, np.float32) for s in scales)]
        attributes |= {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits}
    y = f"grouped{at}"
    g.node("GroupQueryAttention", inputs, [y, *presents], **attributes)
    return g.add("Add", x, g.add("MatMul", y, g.weight(HEADS * SIZE, WIDTH))), states


def windowed_layer(g, x, at, options):
    """Attention of ONNX, with caches and a window.

    Args:
        options: "window": positions that a query sees, with its own.
    """
    states = _states(at, ("key", "value"), [[1, HEADS, "past", DIM]] * 2)
    inputs = [g.add("MatMul", x, g.weight(WIDTH, WIDTH)) for _ in range(3)]
    y = f"windowed{at}"
    node = helper.make_node(
        "Attention",
        [*inputs, "", *(s.past for s in states)],
        [y, *(s.present for s in states)],
        q_num_heads=HEADS,
        kv_num_heads=HEADS,
        is_causal=1,
        left_window_size=options["window"] - 1,
    )
    g.nodes.append(node)
    return g.add("Add", x, g.add("MatMul", y, g.weight(WIDTH, WIDTH))), states


LAYERS = {
    "windowed": windowed_layer,
    "conv": convolution_layer,
    "recurrent": recurrent_layer,
    "attention": attention_layer,
    "laid_out": laid_out_layer,
    "newest_first": newest_first_layer,
    "causal_conv": causal_convolution_layer,
    "linear": linear_layer,
    "gqa": grouped_layer,
}


class Graph(Nodes):
    """Nodes of a decoder, with what its layers share."""

    def __init__(self, seed):
        super().__init__(np.float32, seed)
        self.shared = {}

    def node(self, op, inputs, outputs, **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs, domain=MS, **attributes))

    def lengths(self):
        """seqlens_k and total_sequence_length, from the mask."""
        if "lengths" not in self.shared:
            count = self.add("ReduceSum", "attention_mask", self.constant([1]), keepdims=0)
            last = self.add("Sub", count, self.constant([1]))
            total = self.add("Gather", self.add("Shape", "attention_mask"), self.constant(1))
            self.shared["lengths"] = [
                self.add("Cast", n, to=TensorProto.INT32) for n in (last, total)
            ]
        return self.shared["lengths"]

    def angles(self):
        """cos_cache and sin_cache."""
        if "angles" not in self.shared:
            angles = np.arange(LENGTH)[:, None] * 0.7 ** np.arange(SIZE // 2)
            self.shared["angles"] = [self.constant(f(angles), np.float32) for f in (np.cos, np.sin)]
        return self.shared["angles"]


@dataclass
class Decoder:
    """A model, its states, and whether it has an attention_mask."""

    model: object
    states: list
    masked: bool


def decoder(layers, seed=0, vocab=61, shuffle=False, rename=None):
    """A decoder.

    Args:
        layers: names of LAYERS, or (name, options); "of" of a GQA's options is the place of the
            layer with its keys and values.
        shuffle: whether inputs and outputs come in any order.
        rename: a function of names of states.
    """
    g, states, keys = Graph(seed), [], {}
    x = g.add("Gather", g.weight(vocab, WIDTH), "input_ids")
    for at, layer in enumerate(layers):
        name, options = (layer, {}) if isinstance(layer, str) else layer
        if "of" in options:
            options = {**options, "of": [s.present for s in keys[options["of"]]]}
        x, own = LAYERS[name](g, x, at, options)
        keys[at] = own
        states += own
    g.add("MatMul", x, g.weight(WIDTH, vocab), name="logits")
    masked = "lengths" in g.shared
    return Decoder(_model(g, states, vocab, masked, shuffle, rename, seed), states, masked)


def _model(g, states, vocab, masked, shuffle, rename, seed):
    if rename:
        names = {}
        for s in states:
            s.past, s.present = names[s.past], names[s.present] = rename(s.past), rename(s.present)
        for node in g.nodes:
            node.input[:] = [names.get(n, n) for n in node.input]
            node.output[:] = [names.get(n, n) for n in node.output]
    info, kind = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype
    inputs = [info("input_ids", TensorProto.INT64, [1, "tokens"])]
    if masked:
        inputs.append(info("attention_mask", TensorProto.INT64, [1, "total"]))
    inputs += [info(s.past, kind(np.dtype(s.dtype)), s.shape) for s in states]
    outputs = [info("logits", TensorProto.FLOAT, [1, "tokens", vocab])]
    outputs += [info(s.present, kind(np.dtype(s.dtype)), s.grown) for s in states]
    if shuffle:
        rng = np.random.default_rng(seed)
        inputs, outputs = ([x[i] for i in rng.permutation(len(x))] for x in (inputs, outputs))
    constants = [numpy_helper.from_array(v, k) for k, v in g.constants.items()]
    graph = helper.make_graph(g.nodes, "decoder", inputs, outputs, constants)
    opset = 25 if any(n.op_type == "Attention" for n in g.nodes) else 21
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


class Loop:
    """The runs of a decoder by onnxruntime: a prompt at once, then one token after the other.

    Args:
        decoder: of `decoder`.
    """

    def __init__(self, decoder):
        self.decoder = decoder
        self.session = onnxruntime.InferenceSession(decoder.model.SerializeToString())
        self.start()

    def start(self):
        """A new sequence."""
        self.states = [np.zeros(s.first, s.dtype) for s in self.decoder.states]
        self.length = 0
        return self

    def logits(self, ids):
        """float32 [vocab] after the last of more ids, run at once."""
        self.length += len(ids)
        feeds = {"input_ids": np.array([ids])}
        if self.decoder.masked:
            feeds["attention_mask"] = np.ones((1, self.length), np.int64)
        feeds |= {s.past: x for s, x in zip(self.decoder.states, self.states)}
        names = ["logits", *(s.present for s in self.decoder.states)]
        logits, *self.states = self.session.run(names, feeds)
        return logits[0, -1]

    def greedy(self, ids, count):
        """`ids` and the `count` likeliest tokens."""
        ids = list(ids)
        logits = self.start().logits(ids)
        for _ in range(count):
            ids.append(int(logits.argmax()))
            logits = self.logits(ids[-1:])
        return ids
