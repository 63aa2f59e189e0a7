"""Caches of layers whose mask is one of a sliding window: what is dropped is hidden by every mask
that says so, and results are those with all rows, bit for bit.
"""

import random

import numpy as np
import onnxruntime
import pytest
from edgewise import CausalLM, generate
from edgewise.compiler.bind import bind
from edgewise.compiler.compile import decoder_plan
from edgewise.compiler.compile.hidden_columns import window_of
from edgewise.compiler.declare.symbolic import Sym
from edgewise.compiler.onnx import as_source, read_model
from onnx import TensorProto, helper, numpy_helper

from .hybrid import Nodes
from .test_families import stored

CAPACITY = 1000


class Masks(Nodes):
    """Masks as exporters write them, and others."""

    def __init__(self, r):
        super().__init__(np.float32, 0)
        self.r = r
        past = self.add("Gather", self.add("Shape", "state"), self.constant(2))
        tokens = self.add("Gather", self.add("Shape", "input_ids"), self.constant(1))
        total = self.add("Add", past, tokens)
        zero, one = self.constant(0), self.constant(1)
        self.columns = self.add("Range", zero, total, one)
        rows = self.add("Range", past, total, one)
        self.rows = self.add("Unsqueeze", rows, self.constant([1]))

    def near(self, size):
        """Whether a column is one of the last `size` before and at a row."""
        rows, columns, n = self.rows, self.columns, self.constant(size)
        less, apart = self.constant(-size), self.constant(size - 1)
        first = self.add("Sub", rows, n)
        return self.r.choice(
            [
                lambda: self.add("Greater", columns, first),
                lambda: self.add("Less", first, columns),
                lambda: self.add("GreaterOrEqual", columns, self.add("Sub", rows, apart)),
                lambda: self.add("LessOrEqual", self.add("Sub", rows, apart), columns),
                lambda: self.add("Less", self.add("Sub", rows, columns), n),
                lambda: self.add("LessOrEqual", self.add("Sub", rows, columns), apart),
                lambda: self.add("Greater", self.add("Sub", columns, rows), less),
                lambda: self.add("Not", self.add("LessOrEqual", columns, first)),
            ]
        )()

    def other(self):
        """Another condition on rows and columns."""
        rows, columns, n = self.rows, self.columns, self.constant(self.r.randint(1, 30))
        return self.r.choice(
            [
                lambda: self.add("LessOrEqual", columns, rows),
                lambda: self.add("Greater", columns, n),
                lambda: self.add("Less", columns, n),
                lambda: self.add("Greater", rows, n),
                lambda: self.add("Less", columns, self.add("Sub", rows, n)),
                lambda: self.add(
                    "GreaterOrEqual", columns, self.add("Sub", rows, self.add("Mod", rows, n))
                ),
                lambda: self.add("Greater", columns, self.add("Sub", n, rows)),
                lambda: self.add("Greater", self.add("Sub", rows, columns), n),
            ]
        )()

    def condition(self, depth):
        if depth == 0 or self.r.random() < 0.3:
            return self.near(self.r.randint(1, 20)) if self.r.random() < 0.6 else self.other()
        op = self.r.choice(["And", "And", "Or", "Not"])
        parts = [self.condition(depth - 1) for _ in range(1 if op == "Not" else 2)]
        return self.add(op, *parts)

    def mask(self, condition):
        low = self.constant(self.r.choice([-1e9, -3.4e38, -65504.0]), np.float32)
        zero, one = (self.constant(n, np.float32) for n in (0, 1))
        condition = self.add("Unsqueeze", condition, self.constant([0, 1]))

        def number(x):
            return self.add("Cast", x, to=TensorProto.FLOAT)

        return self.r.choice(
            [
                lambda: self.add("Where", condition, zero, low),
                lambda: self.add("Where", self.add("Not", condition), low, zero),
                lambda: self.add("Mul", number(self.add("Not", condition)), low),
                lambda: self.add("Mul", low, self.add("Sub", one, number(condition))),
            ]
        )()

    def model(self, mask):
        self.add("Identity", mask, name="mask")
        info = helper.make_tensor_value_info
        inputs = [
            info("input_ids", TensorProto.INT64, [1, "tokens"]),
            info("state", TensorProto.FLOAT, [1, 2, "past", 4]),
        ]
        constants = [numpy_helper.from_array(v, k) for k, v in self.constants.items()]
        outputs = [info("mask", TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "mask", inputs, outputs, constants)
        opsets = [helper.make_opsetid("", 18)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def proven(model, tokens):
    """The window of a mask for runs of so many tokens."""
    shapes = {"input_ids": [1, tokens], "state": [1, 2, Sym(0, 1, 0, 0, 90), 4]}
    return window_of(bind(read_model(as_source(model)), shapes).outputs["mask"], 0)


def numbers(model, tokens, past):
    session = onnxruntime.InferenceSession(model)
    feeds = {"input_ids": np.ones((1, tokens), np.int64)}
    feeds["state"] = np.zeros((1, 2, past, 4), np.float32)
    return session.run(None, feeds)[0]


def test_masks_of_windows():
    """Each way to write one, alone and with the triangle of causal masks."""
    for seed in range(60):
        masks = Masks(r := random.Random(seed))
        size, tokens = r.randint(1, 20), r.choice([1, 16, 100])
        condition = masks.near(size)
        if r.random() < 0.5:
            causal = masks.add("LessOrEqual", masks.columns, masks.rows)
            condition = masks.add("And", *r.sample([causal, condition], 2))
        assert proven(masks.model(masks.mask(condition)), tokens) == size


def test_what_is_proven_is_so():
    """Of random masks: all columns before the window are hidden, however many tokens there are."""
    found = 0
    for seed in range(250):
        masks = Masks(r := random.Random(seed))
        model, tokens = masks.model(masks.mask(masks.condition(3))), r.choice([1, 5, 16])
        size = proven(model, tokens)
        found += size > 0
        for past in (0, 7, 25, 80) if size else ():
            hidden = numbers(model, tokens, past)[..., : max(0, past - size + 1)]
            assert (hidden < -1e4).all(), (seed, size, past)
    assert found > 50


def pair(tmp_path, monkeypatch, name, dtype):
    """A model with windows, and the same with all rows."""
    for file, content in stored(name).items():
        (tmp_path / file).write_bytes(content)
    sliding = CausalLM(tmp_path, capacity=CAPACITY, cache_dtype=dtype)
    with monkeypatch.context() as m:
        m.setattr(decoder_plan, "sliding_caches", lambda *_: {})
        whole = CausalLM(tmp_path, capacity=CAPACITY, cache_dtype=dtype)
    assert sliding.window["size"] == 8 and whole.window is None
    return sliding, whole


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("optimum_gemma3", None),
        ("transformers_gemma4", None),  # a layer reads the caches of another one
        ("transformers_olmo3", "float16"),
        ("transformers_mistral_window", "int8"),
    ],
)
def test_families(tmp_path, monkeypatch, name, dtype):
    """Prompts of all lengths, tokens one by one, and cuts."""
    sliding, whole = pair(tmp_path, monkeypatch, name, dtype)
    r, ids = random.Random(name), []
    a, b = sliding.open(), whole.open()
    while len(ids) < CAPACITY - 100:
        count = min(r.choice([1, 1, 1, 5, 40, 128, 300]), CAPACITY - len(ids))
        new = [r.randrange(3, 90) for _ in range(count)]
        if again := sliding.state(a)[2]:  # read again, in other runs
            whole.truncate(b, 0)
        expected = whole.logits(whole.forward(b, [*ids, *new] if again else new))
        assert sliding.logits(sliding.forward(a, new)) == expected
        ids += new
        if r.random() < 0.2:
            del ids[r.randint(max(0, len(ids) - r.choice([3, 200])), len(ids)) :]
            sliding.truncate(a, len(ids))
            whole.truncate(b, len(ids))
    assert sliding.dropped_of(a) > 0 and sliding.bytes_of(a) < whole.bytes_of(b)


@pytest.mark.parametrize("capacity", [700, CAPACITY])
def test_conversations_up_to_the_capacity(tmp_path, capacity):
    """Prompts of all lengths are continued, read ahead and loaded from files, as without that."""
    for file, content in stored("transformers_mistral_window").items():
        (tmp_path / file).write_bytes(content)
    lm = CausalLM(tmp_path, capacity=capacity)
    fields, r = {"max_new_tokens": 2, "eos_token_id": None}, random.Random(capacity)
    for length in [*range(capacity - 4, capacity - 300, -37), 200]:
        ids = [r.randrange(3, 90) for _ in range(length)]
        for prompt in (ids, ids, [*ids[:-1], 5]):
            found = generate(lm, prompt, cache=True, **fields)
            while lm.read_ahead():
                pass
            assert found == generate(lm, prompt, **fields)
        other = CausalLM(tmp_path, capacity=capacity)
        assert other.load_prefix(lm.save_prefix(ids)) > length - 128
        out = generate(other, ids, cache=True, return_dict_in_generate=True, **fields)
        assert out.cached_tokens and out.sequences == generate(lm, ids, **fields)
