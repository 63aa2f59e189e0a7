"""Random small language models: layers of several kinds with states of any layout, type, name and
order; and their runs by onnxruntime.
"""

from dataclasses import dataclass

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from .hybrid import Nodes

VOCAB = 29
FLOATS = (np.float32, np.float32, np.float16)
END = 2**62
INPUTS = ("attention_mask", "position_ids", "cache_position", "num_logits_to_keep")


@dataclass
class State:
    """A state: its kind, names, type, and shape (strings are free; "past" is the number of tokens
    before, of which it keeps `most`).
    """

    kind: str
    name: str
    output: str
    dtype: type
    shape: list
    most: int | None = None

    def first(self, batch):
        """Before the first token."""
        sizes = {"past": 0, "batch": batch}
        return np.zeros([sizes.get(d, d) for d in self.shape], self.dtype)


class Layers(Nodes):
    """Layers on rows [batch, tokens, width], and their states."""

    def __init__(self, seed):
        super().__init__(np.float32, seed)
        self.width = int(self.rng.choice([8, 12, 16]))
        self.batch = "batch" if self.chance(0.5) else 1
        self.mask = self.pick(np.int64, np.int64, np.float32, np.bool_)  # type of the mask
        self.states, self.style = [], str(self.rng.choice(["a", "b", "c", "d"]))

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, *values):
        return values[int(self.rng.integers(len(values)))]

    def state(self, layer, kind, dtype, shape, most=None):
        """A new state under the names of one exporter, or of none."""
        k = len(self.states)
        past, present = {
            "a": (f"past_{kind}.{layer}", f"present_{kind}.{layer}"),
            "b": (f"past.{layer}.{kind}", f"present.{layer}.{kind}"),
            "c": (f"input.cache.layers.{layer}.{kind}", f"output.cache.layers.{layer}.{kind}"),
            "d": (f"in_{k}", f"o{97 - k}"),
        }[self.style]
        made = State(kind, past, present, np.dtype(dtype).type, [self.batch, *shape], most)
        self.states.append(made)
        return made

    def give(self, state, value):
        """Names a state's new value."""
        if state.dtype in (np.float32, np.int64):
            self.add("Identity", value, name=state.output)
        else:
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(state.dtype))
            self.add("Cast", value, name=state.output, to=kind)

    def take(self, state):
        """A state as float32."""
        plain = state.dtype in (np.float32, np.int64)
        return state.name if plain else self.add("Cast", state.name, to=TensorProto.FLOAT)

    def cut(self, value, axis, start=None, end=None):
        ends = (self.constant([n]) for n in (0 if start is None else start, end or END, axis))
        return self.add("Slice", value, *ends)

    def linear(self, x, columns=None):
        return self.add("MatMul", x, self.weight(self.width, columns or self.width))

    def decays(self, x, decay):
        """(powers [n, n] of a decay from row to row, [n, 1] from before the first row, and n)."""
        count = self.size(x, 1)
        places = self.add("Cast", self.range(count), to=TensorProto.FLOAT)
        zero, one, base = (self.constant(n, np.float32) for n in (0, 1, decay))
        apart = self.add("Sub", self.column(places), self.row(places))
        powers = self.add("Pow", base, self.add("Max", apart, zero))
        powers = self.add("Where", self.add("GreaterOrEqual", apart, zero), powers, zero)
        return powers, self.column(self.add("Pow", base, self.add("Add", places, one))), count


def attention(g, layer, x, given):
    """Keys and values in one of four layouts, of all tokens or the last ones."""
    heads, dtype = g.pick(1, 2), g.pick(*FLOATS)
    dim, window = g.width // 2, g.pick(None, None, 4, 7)
    # from [batch, heads, tokens, dim], and back
    order, shape = g.pick(
        ([0, 1, 2, 3], [heads, "past", dim]),
        ([0, 2, 1, 3], ["past", heads, dim]),
        ([0, 1, 3, 2], [heads, dim, "past"]),
        (None, ["past", heads * dim]),
    )
    axis = shape.index("past") + 1
    cuts = window is not None and g.chance(0.5)

    def split(columns):
        made = g.add("Reshape", columns, g.constant([0, 0, heads, dim]))
        return g.add("Transpose", made, perm=[0, 2, 1, 3])

    both = []
    for kind in ("key", "value"):
        state = g.state(layer, kind, dtype, shape, window - 1 if cuts else None)
        new = g.linear(x, heads * dim)
        if order is not None:
            new = g.add("Transpose", split(new), perm=order)
        whole = g.add("Concat", g.take(state), new, axis=axis)
        g.give(state, g.cut(whole, axis, 1 - window) if cuts else whole)
        if order is None:
            both.append(split(whole))
        else:
            back = [order.index(i) for i in range(4)]
            both.append(g.add("Transpose", whole, perm=back))
    keys, values = both
    scores = g.add(
        "MatMul", split(g.linear(x, heads * dim)), g.add("Transpose", keys, perm=[0, 1, 3, 2])
    )
    total, count = g.size(keys, 2), g.size(x, 1)
    own = g.column(g.add("Add", g.range(count), g.add("Sub", total, count)))
    seen = g.add("LessOrEqual", g.row(g.range(total)), own)
    if window:
        near = g.add("Greater", g.row(g.range(total)), g.add("Sub", own, g.constant(window)))
        seen = g.add("And", seen, near)
    lowest, zero = (g.constant(n, np.float32) for n in (-1e9, 0))
    scores = g.add("Where", seen, scores, lowest)
    if "attention_mask" in given and not cuts and g.chance(0.7):
        scores = g.add("Add", scores, masked(g, len(given["attention_mask"]), lowest, zero))
    mixed = g.add("Transpose", g.add("MatMul", g.add("Softmax", scores), values), perm=[0, 2, 1, 3])
    joined = g.add("Reshape", mixed, g.constant([0, 0, heads * dim]))
    return g.add("MatMul", joined, g.weight(heads * dim, g.width))


def masked(g, rank, lowest, zero):
    """Numbers for scores, from the mask of tokens or of pairs of them."""
    mask = "attention_mask"
    if g.mask != np.float32 or rank == 2:
        unseen = g.add("Equal", g.add("Cast", mask, to=TensorProto.FLOAT), zero)
        mask = g.add("Where", unseen, lowest, zero)
    return g.add("Unsqueeze", mask, g.constant([1, 2])) if rank == 2 else mask


def convolution(g, layer, x, given):
    """Over the last tokens; the state has these or one more, in columns or rows."""
    kernel, more, columns = g.pick(2, 3, 4), g.pick(0, 1), g.chance(0.6)
    kept = kernel - 1 + more
    shape = [g.width, kept] if columns else [kept, g.width]
    state = g.state(layer, "conv", g.pick(*FLOATS), shape)
    axis, rows = 2 if columns else 1, g.linear(x)
    if columns:
        rows = g.add("Transpose", rows, perm=[0, 2, 1])
    longer = g.add("Concat", g.take(state), rows, axis=axis)
    g.give(state, g.cut(longer, axis, -kept))
    if not columns:
        longer = g.add("Transpose", longer, perm=[0, 2, 1])
    made = g.add("Conv", g.cut(longer, 2, more), g.weight(g.width, 1, kernel), group=g.width)
    return g.add("Transpose", made, perm=[0, 2, 1])


def recurrence(g, layer, x, given):
    """h[t] = a h[t-1] + u[t]; the state is the last h, as a row or a vector."""
    shape = g.pick([g.width], [1, g.width], [g.width, 1])
    state = g.state(layer, "recurrent", g.pick(*FLOATS), shape)
    powers, first, _ = g.decays(x, 0.8)
    old = g.add("Reshape", g.take(state), g.constant([-1, 1, g.width]))
    h = g.add("Add", g.add("MatMul", powers, g.linear(x)), g.add("Mul", first, old))
    last = g.cut(h, 1, -1)
    g.give(state, g.add("Reshape", last, g.constant([-1, *shape])))
    return g.add("Tanh", h)


def linear_attention(g, layer, x, given):
    """S[t] = a S[t-1] + k v; the state is the last S, a matrix or its transpose."""
    rows, columns, turned = 3, g.pick(3, 5), g.chance(0.5)
    state = g.state(layer, "ssm", g.pick(*FLOATS), [columns, rows] if turned else [rows, columns])
    q, k, v = (g.linear(x, n) for n in (rows, rows, columns))
    powers, first, count = g.decays(x, 0.7)
    old = g.take(state)
    if turned:
        old = g.add("Transpose", old, perm=[0, 2, 1])
    scores = g.add("Mul", g.add("MatMul", q, g.add("Transpose", k, perm=[0, 2, 1])), powers)
    y = g.add("Add", g.add("MatMul", scores, v), g.add("Mul", first, g.add("MatMul", q, old)))
    end = g.add("Sub", count, g.constant(1))
    weights = g.add("Unsqueeze", g.add("Gather", powers, end, axis=0), g.constant([1]))
    added = g.add("MatMul", g.add("Transpose", g.add("Mul", k, weights), perm=[0, 2, 1]), v)
    new = g.add("Add", g.add("Mul", g.add("Gather", first, end, axis=0), old), added)
    g.give(state, g.add("Transpose", new, perm=[0, 2, 1]) if turned else new)
    return g.add("MatMul", y, g.weight(columns, g.width))


def shift(g, layer, x, given):
    """Each token is mixed with the one before it; the state is the last one."""
    shape = g.pick([g.width], [1, g.width])
    state = g.state(layer, "shift", g.pick(*FLOATS), shape)
    old = g.add("Reshape", g.take(state), g.constant([-1, 1, g.width]))
    before = g.cut(g.add("Concat", old, x, axis=1), 1, 0, -1)
    g.give(state, g.add("Reshape", g.cut(x, 1, -1), g.constant([-1, *shape])))
    return g.linear(g.add("Sub", before, x))


def counter(g, layer, x, given):
    """Waves of positions; the state is the number of tokens so far."""
    shape = g.pick([], [1])
    state = g.state(layer, "count", np.int64, shape)
    if g.chance(0.5):  # without the batch
        state.shape = shape
    one = g.add("Reshape", state.name, g.constant([-1]))
    start, count = g.cut(one, 0, 0, 1), g.size(x, 1)
    g.give(state, g.add("Add", state.name, count))
    places = g.add("Cast", g.add("Add", g.range(count), start), to=TensorProto.FLOAT)
    waves = g.add("Mul", g.column(places), g.constant(0.1 + np.arange(g.width) / 9, np.float32))
    return g.add("Add", g.add("Mul", x, g.constant(0, np.float32)), g.add("Sin", waves))


KINDS = (attention, attention, convolution, recurrence, linear_attention, shift, counter)


def positions(g, x, given):
    """Waves of the positions that are given."""
    for name in ("position_ids", "cache_position"):
        if name in given:
            places = g.add("Cast", name, to=TensorProto.FLOAT)
            if len(given[name]) == 3:  # of time, height and width
                places = g.add("ReduceMean", places, g.constant([0]), keepdims=0)
            axes = g.constant([min(len(given[name]), 2)])
            waves = g.add("Unsqueeze", places, axes)
            waves = g.add("Mul", waves, g.constant(0.1 + np.arange(g.width) / 7, np.float32))
            x = g.add("Add", x, g.add("Sin", waves))
    return x


def random_model(seed):
    """(ModelProto, [State], {input: shape} of the others, and the type of the mask)"""
    g = Layers(seed)
    tokens = "tokens" if g.chance(0.8) else 1
    shapes = {
        "attention_mask": g.pick([g.batch, "total"], [g.batch, "total"], [1, 1, tokens, "total"]),
        "position_ids": g.pick([g.batch, tokens], [g.batch, tokens], [3, g.batch, tokens]),
        "cache_position": [tokens],
        "num_logits_to_keep": g.pick([], [1]),
    }
    given = {n: shapes[n] for n in INPUTS if g.chance(0.35)}
    x = positions(g, g.add("Gather", g.weight(VOCAB, g.width), "input_ids"), given)
    for layer in range(g.pick(1, 2, 3, 4)):
        x = g.add("Add", x, KINDS[int(g.rng.integers(len(KINDS)))](g, layer, x, given))
    if "attention_mask" in given and not any("attention_mask" in n.input for n in g.nodes):
        del given["attention_mask"]
    if "num_logits_to_keep" in given:
        kept = g.add("Reshape", "num_logits_to_keep", g.constant([-1]))
        ends = g.add("Neg", kept), g.constant([END]), g.constant([1])
        x = g.add("Slice", x, *ends)
    g.add("MatMul", x, g.weight(g.width, VOCAB), name="logits")
    if g.chance(0.3):
        g.add("Tanh", x, name="last_hidden_state")
    return _model(g, tokens, given), g.states, given | {"mask": g.mask}


def _model(g, tokens, given):
    info = helper.make_tensor_value_info
    types = {d: helper.np_dtype_to_tensor_dtype(np.dtype(d)) for d in (*FLOATS, np.int64)}
    inputs = [info("input_ids", TensorProto.INT64, [g.batch, tokens])]
    of_mask = helper.np_dtype_to_tensor_dtype(np.dtype(g.mask))
    kinds = {"attention_mask": of_mask}
    inputs += [info(n, kinds.get(n, TensorProto.INT64), shape) for n, shape in given.items()]
    inputs += [info(s.name, types[s.dtype], s.shape) for s in g.states]
    outputs = [info("logits", TensorProto.FLOAT, [g.batch, "kept", VOCAB])]
    for s in g.states:
        shape = [f"{d} + n" if d == "past" else d for d in s.shape]
        outputs.append(info(s.output, types[s.dtype], shape))
    if g.nodes[-1].output[0] == "last_hidden_state":
        outputs.append(info("last_hidden_state", TensorProto.FLOAT, [g.batch, "kept", g.width]))
    # States that do not depend on what they were, without names, are told apart by their order.
    ordered = g.style == "d" and sum(s.kind == "shift" for s in g.states) > 1
    if not ordered:
        g.rng.shuffle(inputs)
        g.rng.shuffle(outputs)
    constants = [numpy_helper.from_array(v, k) for k, v in g.constants.items()]
    graph = helper.make_graph(g.nodes, "random", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def feeds(given, states, past, ids):
    """What a run takes.

    Args:
        given: inputs besides ids and states.
        states: {name: value}.
        past: tokens before.
        ids: [batch, tokens].
    """
    batch, count = ids.shape
    after = np.arange(past, past + count)
    mask, dtype = np.ones((batch, past + count)), given["mask"]
    if len(given.get("attention_mask", [])) == 4:
        mask = np.arange(past + count) <= after[:, None]
        mask = np.where(mask, 0, -1e9) if dtype == np.float32 else mask
        mask = mask[None, None]
    three = [3] * (len(given.get("position_ids", [])) == 3)
    made = {
        "attention_mask": mask.astype(dtype),
        "position_ids": np.tile(after, (*three, batch, 1)),
        "cache_position": after,
        "num_logits_to_keep": np.full(given.get("num_logits_to_keep", []), count),
    }
    return {"input_ids": ids, **{n: made[n] for n in given if n != "mask"}, **states}


class Loop:
    """Its runs by onnxruntime, one token after the other."""

    def __init__(self, model, states, given):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        self.states, self.given = states, given

    def logits(self, ids):
        """float32 [VOCAB] after the last of the ids of a new sequence."""
        now = {s.name: s.first(1) for s in self.states}
        names = ["logits", *(s.output for s in self.states)]
        for past, token in enumerate(ids):
            run = feeds(self.given, now, past, np.array([[token]]))
            logits, *new = self.session.run(names, run)
            now = dict(zip(now, new))
        return logits[0, -1]
