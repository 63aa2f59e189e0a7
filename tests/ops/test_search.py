"""BeamSearch, GreedySearch and Sampling against onnxruntime, over small random GPT-2 and T5."""

import functools

import edgewise
import numpy as np
import onnxruntime
import pytest
from engines import open_engine
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
VOCABULARY, HEADS, DIM, WIDTH, LAYERS = 24, 2, 8, 16, 2
EOS, PAD = 1, 0


class Builder:
    """Nodes and constants of a subgraph."""

    def __init__(self, seed):
        self.nodes, self.constants, self.random = [], [], np.random.default_rng(seed)

    def op(self, op, *inputs, outputs=None, **attrs):
        outputs = outputs or [f"t{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, list(inputs), outputs, **attrs))
        return outputs[0]

    def const(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def w(self, *shape, scale=0.6):
        return self.const(self.random.standard_normal(shape).astype(np.float32) * scale)

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def heads(self, x):
        return self.op(
            "Transpose", self.op("Reshape", x, self.ints(0, 0, HEADS, DIM)), perm=[0, 2, 1, 3]
        )

    def attend(self, q, k, v, bias):
        s = self.op(
            "Add",
            self.op(
                "Mul",
                self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2])),
                self.const(np.float32(DIM**-0.5)),
            ),
            bias,
        )
        y = self.op("Transpose", self.op("MatMul", self.op("Softmax", s), v), perm=[0, 2, 1, 3])
        return self.op(
            "MatMul", self.op("Reshape", y, self.ints(0, 0, WIDTH)), self.w(WIDTH, WIDTH)
        )

    def shown(self, mask):
        """int32 [rows, keys] as numbers to add: 0 where it is 1."""
        low = self.op(
            "Mul",
            self.op("Sub", self.const(np.float32(1)), self.op("Cast", mask, to=1)),
            self.const(np.float32(-1e4)),
        )
        return self.op("Unsqueeze", low, self.ints(1, 2))

    def causal(self, q, k):
        """Numbers to add where a query of the last positions would see what comes after it."""
        rows, total = (self.op("Shape", v, start=2, end=3) for v in (q, k))
        one, two = self.const(np.int64(1)), self.const(np.int64(0))
        last, first = self.op("Squeeze", total), self.op("Squeeze", self.op("Sub", total, rows))
        at, keys = self.op("Range", first, last, one), self.op("Range", two, last, one)
        return self.op(
            "Where",
            self.op("Greater", keys, self.op("Unsqueeze", at, self.ints(1))),
            self.const(np.float32(-1e4)),
            self.const(np.float32(0)),
        )

    def graph(self, name, inputs, outputs):
        return helper.make_graph(self.nodes, name, inputs, outputs, self.constants)


def info(name, kind, *shape):
    return helper.make_tensor_value_info(name, kind, list(shape))


@functools.lru_cache
def gpt():
    b = Builder(3)
    x = b.op(
        "Add",
        b.op("Gather", b.w(VOCABULARY, WIDTH), "input_ids"),
        b.op("Gather", b.w(32, WIDTH), "position_ids"),
    )
    shown = b.shown("attention_mask")
    for layer in range(LAYERS):
        q, k, v = (b.heads(b.op("MatMul", x, b.w(WIDTH, WIDTH))) for _ in range(3))
        old_k, old_v = (
            b.op(
                "Squeeze",
                b.op("Slice", f"past_{layer}", b.ints(i), b.ints(i + 1), b.ints(0)),
                b.ints(0),
            )
            for i in (0, 1)
        )
        k, v = b.op("Concat", old_k, k, axis=2), b.op("Concat", old_v, v, axis=2)
        b.op(
            "Concat",
            b.op("Unsqueeze", k, b.ints(0)),
            b.op("Unsqueeze", v, b.ints(0)),
            axis=0,
            outputs=[f"present_{layer}"],
        )
        x = b.op("Add", x, b.attend(q, k, v, b.op("Add", b.causal(q, k), shown)))
    b.op("MatMul", x, b.w(WIDTH, VOCABULARY, scale=0.12), outputs=["logits"])
    past = [
        info(f"past_{i}", TensorProto.FLOAT, 2, "rows", HEADS, "past", DIM) for i in range(LAYERS)
    ]
    present = [
        info(f"present_{i}", TensorProto.FLOAT, 2, "rows", HEADS, "total", DIM)
        for i in range(LAYERS)
    ]
    return b.graph(
        "decoder",
        [
            info("input_ids", 6, "rows", "seq"),
            info("position_ids", 6, "rows", "seq"),
            info("attention_mask", 6, "rows", "total"),
            *past,
        ],
        [info("logits", 1, "rows", "seq", VOCABULARY), *present],
    )


# long: a graph, node by node
@functools.lru_cache
def t5():
    e = Builder(5)
    x, shown = (
        e.op("Gather", e.w(VOCABULARY, WIDTH), "encoder_input_ids"),
        e.shown("encoder_attention_mask"),
    )
    q, k, v = (e.heads(e.op("MatMul", x, e.w(WIDTH, WIDTH))) for _ in range(3))
    x = e.op("Add", x, e.attend(q, k, v, shown))
    for layer in range(LAYERS):
        for part in ("key", "value"):
            e.op(
                "Transpose",
                e.op("Reshape", e.op("MatMul", x, e.w(WIDTH, WIDTH)), e.ints(0, 0, HEADS, DIM)),
                perm=[0, 2, 1, 3],
                outputs=[f"present_{part}_cross_{layer}"],
            )
    cross = [f"{part}_cross_{i}" for i in range(LAYERS) for part in ("key", "value")]
    encoder = e.graph(
        "encoder",
        [
            info("encoder_input_ids", 6, "batch", "length"),
            info("encoder_attention_mask", 6, "batch", "length"),
        ],
        [info(f"present_{c}", 1, "batch", HEADS, "length", DIM) for c in cross],
    )
    b = Builder(7)
    x, shown = (
        b.op("Gather", b.w(VOCABULARY, WIDTH), "input_ids"),
        b.shown("encoder_attention_mask"),
    )
    for layer in range(LAYERS):
        q, k, v = (b.heads(b.op("MatMul", x, b.w(WIDTH, WIDTH))) for _ in range(3))
        k = b.op(
            "Concat", f"past_key_self_{layer}", k, axis=2, outputs=[f"present_key_self_{layer}"]
        )
        v = b.op(
            "Concat", f"past_value_self_{layer}", v, axis=2, outputs=[f"present_value_self_{layer}"]
        )
        x = b.op("Add", x, b.attend(q, k, v, b.causal(q, k)))
        x = b.op(
            "Add",
            x,
            b.attend(
                b.heads(b.op("MatMul", x, b.w(WIDTH, WIDTH))),
                f"past_key_cross_{layer}",
                f"past_value_cross_{layer}",
                shown,
            ),
        )
    b.op("MatMul", x, b.w(WIDTH, VOCABULARY, scale=0.12), outputs=["logits"])
    own = [f"{part}_self_{i}" for i in range(LAYERS) for part in ("key", "value")]
    decoder = b.graph(
        "decoder",
        [
            info("input_ids", 6, "rows", 1),
            info("encoder_attention_mask", 6, "rows", "length"),
            *(info(f"past_{c}", 1, "rows", HEADS, "past", DIM) for c in own),
            *(info(f"past_{c}", 1, "rows", HEADS, "length", DIM) for c in cross),
        ],
        [
            info("logits", 1, "rows", 1, VOCABULARY),
            *(info(f"present_{c}", 1, "rows", HEADS, "total", DIM) for c in own),
        ],
    )
    return encoder, decoder


# long: a graph, node by node
@functools.lru_cache
def whisper():
    """The encoder of features with the decoder's first step after it; the decoder of one token."""
    cross, own = (
        [f"{part}_{kind}_{i}" for i in range(LAYERS) for part in ("key", "value")]
        for kind in ("cross", "self")
    )

    def decode(b, x, past):
        for layer in range(LAYERS):
            q, k, v = (b.heads(b.op("MatMul", x, b.w(WIDTH, WIDTH))) for _ in range(3))
            before = [[f"past_{part}_self_{layer}"] if past else [] for part in ("key", "value")]
            k, v = (
                b.op("Concat", *old, new, axis=2, outputs=[f"present_{part}_self_{layer}"])
                for part, old, new in zip(("key", "value"), before, (k, v))
            )
            x = b.op("Add", x, b.attend(q, k, v, b.causal(q, k)))
            which = "past" if past else "present"
            x = b.op(
                "Add",
                x,
                b.attend(
                    b.heads(b.op("MatMul", x, b.w(WIDTH, WIDTH))),
                    f"{which}_key_cross_{layer}",
                    f"{which}_value_cross_{layer}",
                    b.const(np.float32(0)),
                ),
            )
        b.op("MatMul", x, b.w(WIDTH, VOCABULARY, scale=0.12), outputs=["logits"])

    e = Builder(9)
    x = e.op(
        "MatMul",
        e.op("Transpose", "encoder_input_ids", perm=[0, 2, 1]),
        e.w(6, WIDTH),
        outputs=["encoder_hidden_states"],
    )
    for c in cross:
        e.op(
            "Transpose",
            e.op("Reshape", e.op("MatMul", x, e.w(WIDTH, WIDTH)), e.ints(0, 0, HEADS, DIM)),
            perm=[0, 2, 1, 3],
            outputs=[f"present_{c}"],
        )
    decode(e, e.op("Gather", e.w(VOCABULARY, WIDTH), "decoder_input_ids"), False)
    encoder = e.graph(
        "encoder",
        [
            info("encoder_input_ids", 1, "batch", 6, "frames"),
            info("decoder_input_ids", 6, "batch", "seq"),
        ],
        [
            info("logits", 1, "batch", "seq", VOCABULARY),
            info("encoder_hidden_states", 1, "batch", "frames", WIDTH),
            *(info(f"present_{c}", 1, "batch", HEADS, "seq", DIM) for c in own),
            *(info(f"present_{c}", 1, "batch", HEADS, "frames", DIM) for c in cross),
        ],
    )
    b = Builder(11)
    decode(b, b.op("Gather", b.w(VOCABULARY, WIDTH), "input_ids"), True)
    decoder = b.graph(
        "decoder",
        [
            info("input_ids", 6, "rows", 1),
            *(info(f"past_{c}", 1, "rows", HEADS, "past", DIM) for c in own),
            *(info(f"past_{c}", 1, "rows", HEADS, "frames", DIM) for c in cross),
        ],
        [
            info("logits", 1, "rows", 1, VOCABULARY),
            *(info(f"present_{c}", 1, "rows", HEADS, "total", DIM) for c in own),
        ],
    )
    return encoder, decoder


def search(op, inputs, outputs, kind="gpt", **attrs):
    """(model, feeds) of one such node."""
    graphs = (
        {"decoder": gpt(), "model_type": 0}
        if kind == "gpt"
        else {"encoder": t5()[0], "decoder": t5()[1], "model_type": 1, "decoder_start_token_id": 2}
    )
    if kind == "whisper":
        graphs = {
            "encoder": whisper()[0],
            "decoder": whisper()[1],
            "model_type": 2,
            "decoder_start_token_id": 2,
        }
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    feeds = {n: x for n, x in zip(names, inputs) if n}
    types = {"sequences": 6}
    node = helper.make_node(
        op,
        names,
        [o or "" for o in outputs],
        domain=MS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        **graphs,
        **attrs,
    )
    graph = helper.make_graph(
        [node],
        "search",
        [info(n, helper.np_dtype_to_tensor_dtype(x.dtype), *x.shape) for n, x in feeds.items()],
        [helper.make_tensor_value_info(o, types.get(o, 1), None) for o in outputs],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)], ir_version=8
    ).SerializeToString()
    # other names, as onnxruntime's own tests have them: caches are matched by their order
    return model.replace(b"past_key_cross", b"past_cross_key") if kind == "t5" else model, feeds


def run(*args, **attrs):
    """(onnxruntime's outputs, ours)."""
    model, feeds = search(*args, **attrs)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    wanted = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"]).run(None, feeds)
    return wanted, edgewise.InferenceSession(model, engine=open_engine("native")).run(None, feeds)


def i32(*values):
    return np.array(values, np.int32)


def f32(*values):
    return np.array(values, np.float32)


def same(both):
    wanted, got = both
    assert len(wanted) == len(got)
    for w, g in zip(wanted, got):
        assert w.dtype == g.dtype and w.shape == g.shape, (w.shape, g.shape)
        if w.dtype == np.int32:
            np.testing.assert_array_equal(g, w)
        else:
            np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-4)


PROMPTS = i32([5, 7, 9, 4], [0, 0, 3, 8])
MASK = np.array([1] * 11 + [0] + [1] * 12, np.int32)
FIRST = np.ones((2, VOCABULARY), np.int32)
FIRST[0, 3:20] = 0


@pytest.mark.parametrize("kind", ["gpt", "t5"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"beams": 1},
        {"beams": 4, "returned": 3},
        {"length_penalty": 2.0},
        {"length_penalty": 0.3, "early_stopping": 1},
        {"repetition_penalty": 1.7},
        {"no_repeat_ngram_size": 2},
        {"min_length": 9},
        {"mask": MASK},
        {"first": FIRST},
        {"mask": MASK, "first": FIRST, "repetition_penalty": 0.8, "no_repeat_ngram_size": 1},
    ],
    ids=str,
)
def test_beam_search(kind, more):
    more = {
        "beams": 3,
        "returned": 1,
        "length_penalty": 1.0,
        "repetition_penalty": 1.0,
        "min_length": 1,
        "mask": None,
        "first": None,
        **more,
    }
    inputs = [
        PROMPTS,
        i32(14),
        i32(more.pop("min_length")),
        i32(more.pop("beams")),
        i32(more.pop("returned")),
        f32(more.pop("length_penalty")),
        f32(more.pop("repetition_penalty")),
        more.pop("mask"),
        more.pop("first"),
    ]
    same(run("BeamSearch", inputs, ["sequences", "sequences_scores"], kind, **more))
    same(run("BeamSearch", inputs, ["sequences"], kind, **more))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"repetition_penalty": 1.7},
        {"no_repeat_ngram_size": 2},
        {"min_length": 9},
        {"mask": MASK},
        {"first": FIRST},
        {"attention": i32([1, 1, 1, 1], [0, 0, 1, 1])},
    ],
    ids=str,
)
def test_greedy_search(more):
    more = {
        "repetition_penalty": 1.0,
        "min_length": 1,
        "mask": None,
        "first": None,
        "attention": None,
        **more,
    }
    same(
        run(
            "GreedySearch",
            [
                PROMPTS,
                i32(14),
                i32(more.pop("min_length")),
                f32(more.pop("repetition_penalty")),
                more.pop("mask"),
                more.pop("first"),
                more.pop("attention"),
            ],
            ["sequences"],
            **more,
        )
    )


def test_scores_of_each_step():
    same(
        run(
            "BeamSearch",
            [PROMPTS, i32(9), i32(1), i32(3), i32(2), f32(1), f32(1)],
            ["sequences", "sequences_scores", "scores"],
        )
    )


FEATURES = np.random.default_rng(1).standard_normal((2, 6, 7)).astype(np.float32)


@pytest.mark.parametrize(
    "more",
    [{}, {"length_penalty": 0.5}, {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3}],
    ids=str,
)
def test_whisper(more):
    more = {"length_penalty": 1.0, "repetition_penalty": 1.0, **more}
    inputs = [
        FEATURES,
        i32(14),
        i32(1),
        i32(3),
        i32(2),
        f32(more.pop("length_penalty")),
        f32(more.pop("repetition_penalty")),
        None,
        None,
        None,
        i32([2, 5, 6], [2, 7, 8]),
    ]
    same(run("WhisperBeamSearch", inputs, ["sequences", "sequences_scores"], "whisper", **more))


def test_sampling_of_what_is_most_likely():
    """With a small top_p only one token is left."""
    same(
        run(
            "Sampling",
            [PROMPTS, i32(12), i32(1), f32(1.2), None, None, None, None, i32(4)],
            ["sequences"],
            temperature=0.7,
            top_p=0.01,
            filter_value=-1e9,
            min_tokens_to_keep=1,
        )
    )


def test_sampling_draws_by_its_seed():
    draw = lambda seed: run(
        "Sampling",
        [PROMPTS, i32(20), i32(1), f32(1), None, None, None, None, i32(seed)],
        ["sequences"],
        temperature=1.5,
        top_p=0.95,
    )[1][0]
    np.testing.assert_array_equal(draw(3), draw(3))
    assert (draw(3) != draw(4)).any()
