"""A small hybrid language model, as exporters write one: a short convolution, a recurrent layer and
attention, with states under the names of each exporter; and its loop in onnxruntime.
"""

from itertools import zip_longest

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

VOCAB, WIDTH, HEADS, KERNEL = 61, 16, 2, 3
DIM = WIDTH // HEADS
# By exporter: the names of the inputs and of the outputs that replace them.
NAMES = {
    "optimum": (
        ("past_conv.0", "past_recurrent.1", "past_key_values.2.key", "past_key_values.2.value"),
        ("present_conv.0", "present_recurrent.1", "present.2.key", "present.2.value"),
    ),
    "genai": (
        ("past.0.conv", "past.1.recurrent", "past_key_values.2.key", "past_key_values.2.value"),
        ("present.0.conv", "present.1.recurrent", "present.2.key", "present.2.value"),
    ),
    "transformers": tuple(
        tuple(
            f"{side}.cache.layers.{part}"
            for part in ("0.conv_states.0", "1.recurrent_states.0", "2.keys", "2.values")
        )
        for side in ("input", "output")
    ),
    "unnamed": (("a", "b", "c", "d"), ("r", "s", "t", "u")),
}


class Nodes:
    """Nodes and constants of a graph in the making."""

    def __init__(self, dtype, seed):
        self.dtype, self.rng = np.dtype(dtype), np.random.default_rng(seed)
        self.kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        self.nodes, self.constants = [], {}
        self.masks = np.dtype(bool)  # of those that are inputs

    def constant(self, value, dtype=np.int64):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def weight(self, *shape):
        return self.constant(self.rng.normal(size=shape) / np.sqrt(shape[0]), np.float32)

    def add(self, op, *inputs, name=None, **attributes):
        output = name or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def read(self, name):
        return name if self.dtype == np.float32 else self.add("Cast", name, to=TensorProto.FLOAT)

    def write(self, value, name):
        if self.dtype == np.float32:
            self.add("Identity", value, name=name)
        else:
            self.add("Cast", value, name=name, to=self.kind)

    def size(self, name, axis):
        """A dimension, as a scalar."""
        ends = self.constant([axis]), self.constant([axis + 1])
        return self.add("Squeeze", self.add("Slice", self.add("Shape", name), *ends))

    def range(self, count):
        return self.add("Range", self.constant(0), count, self.constant(1))

    def column(self, name):
        return self.add("Unsqueeze", name, self.constant([1]))

    def row(self, name):
        return self.add("Unsqueeze", name, self.constant([0]))


def convolution(g, x, past, present):
    """Over the last tokens. The state is what came before: [1, WIDTH, KERNEL - 1]."""
    rows = g.add("Transpose", g.add("MatMul", x, g.weight(WIDTH, WIDTH)), perm=[0, 2, 1])
    longer = g.add("Concat", g.read(past), rows, axis=2)
    ends = g.constant([1 - KERNEL]), g.constant([2**62]), g.constant([2])
    g.write(g.add("Slice", longer, *ends), present)
    filtered = g.add("Conv", longer, g.weight(WIDTH, 1, KERNEL), group=WIDTH)
    return g.add("Add", x, g.add("Transpose", filtered, perm=[0, 2, 1]))


def recurrence(g, x, past, present):
    """h[t] = a h[t-1] + u[t] for all tokens at once. The state is the last h: [1, WIDTH]."""
    u = g.add("MatMul", x, g.weight(WIDTH, WIDTH))
    places = g.add("Cast", g.range(g.size("input_ids", 1)), to=TensorProto.FLOAT)
    apart = g.add("Sub", g.column(places), g.row(places))
    decay, zero, one = (g.constant(n, np.float32) for n in (0.8, 0, 1))
    powers = g.add("Pow", decay, g.add("Max", apart, zero))
    powers = g.add("Where", g.add("GreaterOrEqual", apart, zero), powers, zero)
    steps = g.add("Pow", decay, g.add("Add", places, one))
    old = g.add("Mul", g.column(steps), g.column(g.read(past)))
    h = g.add("Add", g.add("MatMul", powers, u), old)
    ends = g.constant([-1]), g.constant([2**62]), g.constant([1])
    g.write(g.add("Squeeze", g.add("Slice", h, *ends), g.constant([1])), present)
    return g.add("Add", x, g.add("Tanh", h))


def attention(g, x, past, present, mask=None):
    """The states are keys and values: [1, HEADS, tokens, DIM].

    Args:
        mask: name of one of pairs of tokens, bool or float32; None: each token sees those before.
    """

    def heads():
        made = g.add("MatMul", x, g.weight(WIDTH, WIDTH))
        made = g.add("Reshape", made, g.constant([0, 0, HEADS, DIM]))
        return g.add("Transpose", made, perm=[0, 2, 1, 3])

    q, *new = (heads() for _ in range(3))
    keys, values = (g.add("Concat", g.read(s), n, axis=2) for s, n in zip(past, new))
    for value, name in zip((keys, values), present):
        g.write(value, name)
    scores = g.add("MatMul", q, g.add("Transpose", keys, perm=[0, 1, 3, 2]))
    if mask is None:
        total, count = g.size(keys, 2), g.size("input_ids", 1)
        own = g.add("Add", g.range(count), g.add("Sub", total, count))
        mask = g.add("LessOrEqual", g.row(g.range(total)), g.column(own))
    if g.masks == np.float32:
        scores = g.add("Add", scores, mask)
    else:
        scores = g.add("Where", mask, scores, g.constant(-1e9, np.float32))
    mixed = g.add("MatMul", g.add("Softmax", scores), values)
    mixed = g.add("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = g.add("Reshape", mixed, g.constant([0, 0, WIDTH]))
    return g.add("Add", x, g.add("MatMul", joined, g.weight(WIDTH, WIDTH)))


def hybrid_model(exporter="optimum", dtype=np.float32, seed=0, count="tokens", vocab=VOCAB):
    """A ModelProto.

    Args:
        exporter: of NAMES; "unnamed" has the outputs in another order, too.
        dtype: of the states; the model computes in float32.
        count: tokens per run.
        vocab: number of token ids.
    """
    g = Nodes(dtype, seed)
    past, present = NAMES[exporter]
    x = g.add("Gather", g.weight(vocab, WIDTH), "input_ids")
    x = convolution(g, x, past[0], present[0])
    x = recurrence(g, x, past[1], present[1])
    x = attention(g, x, past[2:], present[2:])
    g.add("MatMul", x, g.weight(WIDTH, vocab), name="logits")
    shapes = ([1, WIDTH, KERNEL - 1], [1, WIDTH], [1, HEADS, "past", DIM], [1, HEADS, "past", DIM])
    grown = [[d if d != "past" else "total" for d in shape] for shape in shapes]
    info = helper.make_tensor_value_info
    inputs = [info("input_ids", TensorProto.INT64, [1, count])]
    inputs += [info(name, g.kind, shape) for name, shape in zip(past, shapes)]
    outputs = [info(name, g.kind, shape) for name, shape in zip(present, grown)]
    if exporter == "unnamed":
        outputs.reverse()
    outputs.insert(0, info("logits", TensorProto.FLOAT, [1, count, vocab]))
    constants = [numpy_helper.from_array(v, k) for k, v in g.constants.items()]
    graph = helper.make_graph(g.nodes, "hybrid", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def attention_model(past, present, masks=(), dtype=bool):
    """A ModelProto of layers of attention alone.

    Args:
        past: names of the inputs: keys and values of each layer in turn.
        present: {one of these: the output that replaces it}, in the order of the outputs.
        masks: names of inputs, of each layer; none: the layers make their own.
        dtype: of the masks.
    """
    g = Nodes(np.float32, 0)
    g.masks = np.dtype(dtype)
    x = g.add("Gather", g.weight(VOCAB, WIDTH), "input_ids")
    for states, mask in zip_longest(zip(past[::2], past[1::2]), masks):
        x = attention(g, x, states, [present[name] for name in states], mask)
    g.add("MatMul", x, g.weight(WIDTH, VOCAB), name="logits")
    info = helper.make_tensor_value_info
    inputs = [info("input_ids", TensorProto.INT64, [1, "tokens"])]
    inputs += [info(name, g.kind, [1, HEADS, "past", DIM]) for name in past]
    kind = helper.np_dtype_to_tensor_dtype(g.masks)
    inputs += [info(name, kind, [1, 1, "tokens", "total"]) for name in masks]
    outputs = [info("logits", TensorProto.FLOAT, [1, "tokens", VOCAB])]
    outputs += [info(name, g.kind, [1, HEADS, "total", DIM]) for name in present.values()]
    constants = [numpy_helper.from_array(v, k) for k, v in g.constants.items()]
    graph = helper.make_graph(g.nodes, "layers", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


class Loop:
    """Its runs by onnxruntime, one token after the other.

    Args:
        model: of `hybrid_model`.
        exporter, dtype: as there.
    """

    def __init__(self, model, exporter="optimum", dtype=np.float32):
        self.session = onnxruntime.InferenceSession(model.SerializeToString())
        self.names, self.dtype = NAMES[exporter], dtype
        self.start()

    def start(self):
        """A new sequence."""
        shapes = ([1, WIDTH, KERNEL - 1], [1, WIDTH], *[[1, HEADS, 0, DIM]] * 2)
        self.states = [np.zeros(shape, self.dtype) for shape in shapes]
        return self

    def logits(self, ids):
        """float32 [VOCAB] after the last of more ids."""
        for token in ids:
            feeds = {"input_ids": np.array([[token]])} | dict(zip(self.names[0], self.states))
            logits, *self.states = self.session.run(["logits", *self.names[1]], feeds)
        return logits[0, -1]

    def greedy(self, ids, count):
        """`ids` and the `count` likeliest tokens."""
        ids = list(ids)
        logits = self.start().logits(ids)
        for _ in range(count):
            ids.append(int(logits.argmax()))
            logits = self.logits(ids[-1:])
        return ids


def split_at_embeddings(model):
    """(embedding, decoder): the model as two, with what each layer gets besides as a second output
    of the first, `per_layer_inputs`, here zeros in effect. The embedding takes `image_features`.
    """
    first, *rest = model.graph.node
    table = next(c for c in model.graph.initializer if c.name == first.input[0])
    width, info = table.dims[1], helper.make_tensor_value_info
    ids = info("input_ids", TensorProto.INT64, [1, "tokens"])
    made = [
        info(n, TensorProto.FLOAT, [1, "tokens", width])
        for n in ("inputs_embeds", "per_layer_inputs")
    ]
    features = info("image_features", TensorProto.FLOAT, ["patches", width])
    nodes = [
        helper.make_node("Gather", [table.name, "input_ids"], ["v1"]),
        helper.make_node("ReduceSum", ["image_features"], ["v2"], keepdims=0),
        helper.make_node("Add", ["v1", "v2"], ["inputs_embeds"]),
        helper.make_node("Neg", ["inputs_embeds"], ["per_layer_inputs"]),
    ]
    opsets = list(model.opset_import)
    graph = helper.make_graph(nodes, "embedding", [ids, features], made, [table])
    embedding = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    decoder = type(model)()
    decoder.CopyFrom(model)
    del decoder.graph.node[:], decoder.graph.input[0]
    two = helper.make_node("Constant", [], ["two"], value_float=2.0)
    twice = helper.make_node("Mul", ["inputs_embeds", "two"], ["twice"])
    total = helper.make_node("Add", ["twice", "per_layer_inputs"], [first.output[0]])
    decoder.graph.node.extend([two, twice, total, *rest])
    decoder.graph.input.extend(made)
    for node in decoder.graph.node:
        node.input[:] = ["inputs_embeds" if n == "input_ids" else n for n in node.input]
    return embedding, decoder
