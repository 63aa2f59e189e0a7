"""GroupQueryAttention with the caches of decoders that are run by hand: a prompt, single tokens and
several at once, in one session, against onnxruntime.
"""

import edgewise
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from engines.page_session import PageSession
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

HEADS, KV, DIM = 4, 2, 16
NAMES = "q k v past_key past_value seqlens total cos sin ids bias sink k_scale v_scale".split()
RANDOM = np.random.default_rng(1)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def model(feeds, cache=T.FLOAT, outputs=3, **attrs):
    """One node with these inputs, of any batch and lengths."""
    names = NAMES[: 1 + max(NAMES.index(n) for n in feeds)]
    node = h.make_node(
        "GroupQueryAttention",
        [n if n in feeds else "" for n in names],
        ["y", "present_key", "present_value", "scores"][:outputs],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=KV,
        **attrs,
    )
    infos = []
    for name, x in feeds.items():
        free = {"q": (0, 1), "k": (0, 1), "v": (0, 1), "seqlens": (0,), "bias": (2, 3)}
        free |= {"past_key": (0, 2), "past_value": (0, 2)}
        dims = [f"{name}_{i}" if i in free.get(name, ()) else d for i, d in enumerate(x.shape)]
        infos.append(h.make_tensor_value_info(name, h.np_dtype_to_tensor_dtype(x.dtype), dims))
    types = [T.FLOAT, cache, cache, T.FLOAT]
    outs = [h.make_tensor_value_info(n, t, None) for n, t in zip(node.output, types)]
    opsets = [h.make_opsetid("", 21), h.make_opsetid("com.microsoft", 1)]
    graph = h.make_graph([node], "g", infos, outs)
    return h.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def new_tokens(batch, count):
    return {n: floats(batch, count, w * DIM) for n, w in (("q", HEADS), ("k", KV), ("v", KV))}


def lengths(ends, total=None):
    return {
        "seqlens": np.array([e - 1 for e in ends], np.int32),
        "total": np.array(total or max(ends), np.int32),
    }


class Both:
    """A session of ours and one of onnxruntime."""

    def __init__(self, feeds, **attrs):
        data = model(feeds, **attrs)
        options = ort.SessionOptions()
        options.log_severity_level = 4
        self.theirs = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        self.ours = edgewise.InferenceSession(data)

    def run(self, feeds, ends=None, tol=1e-5):
        """The outputs, which are equal as far as they are defined.

        ends: how many rows of the caches are, for each row of the batch; None: all.
        """
        got, want = self.ours.run(None, feeds), self.theirs.run(None, feeds)
        np.testing.assert_allclose(got[0], want[0], rtol=tol, atol=tol)
        for g, w in zip(got[1:3], want[1:3]):
            assert g.shape == w.shape and g.dtype == w.dtype
            for row in range(len(g)):
                end = g.shape[2] if ends is None else ends[row]
                np.testing.assert_allclose(g[row, :, :end], w[row, :, :end], rtol=tol, atol=tol)
        for g, w in zip(got[3:], want[3:]):
            np.testing.assert_allclose(g, w, rtol=tol, atol=tol)
        return got


STEPS = (7, 1, 1, 1, 3, 1, 1, 2, 1)  # tokens of each run
TABLES = {"cos": floats(64, DIM // 2), "sin": floats(64, DIM // 2)}
FORMS = {
    "plain": ({}, {}),
    "rotary": (TABLES, {"do_rotary": 1}),
    "window": (TABLES, {"do_rotary": 1, "local_window_size": 4, "rotary_interleaved": 1}),
    "sink": ({"sink": floats(HEADS)}, {"softcap": 2.0}),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_cache_that_grows(form):
    more, attrs = FORMS[form]
    past, both = np.zeros((1, KV, 0, DIM), np.float32), None
    keys = values = past
    for end, count in zip(np.cumsum(STEPS), STEPS):
        feeds = {**new_tokens(1, count), "past_key": keys, "past_value": values}
        feeds |= {**lengths([end]), **more}
        both = both or Both(feeds, **attrs)
        _, keys, values = both.run(feeds)


def test_one_plan_for_lengths_that_are_fed():
    """seqlens_k and total_sequence_length as inputs of the model: each step has other numbers."""
    for room in (0, 40):
        both, end = None, 0
        keys = values = np.zeros((1, KV, room, DIM), np.float32)
        for count in (7, *[1] * 20, 2, 1, 1):
            end += count
            feeds = {**new_tokens(1, count), "past_key": keys, "past_value": values}
            feeds |= lengths([end])
            both = both or Both(feeds)
            _, keys, values = both.run(feeds, [end])
        assert len(both.ours.plans) <= 5


@pytest.mark.parametrize("room", [0, 40])
def test_lengths_that_are_fed_in_a_page(room):
    """The same numbers, and Python is asked for few plans. On the next visit it may be asked for
    that of the prompt, which was compiled before it was known that lengths matter.
    """
    steps, both, keys = [], None, np.zeros((1, KV, room, DIM), np.float32)
    values, end = keys, 0
    for count in (7, *[1] * 9, 2, 1, 1):
        end += count
        feeds = {**new_tokens(1, count), "past_key": keys, "past_value": values, **lengths([end])}
        both = both or Both(feeds)
        out = both.run(feeds, [end])
        _, keys, values = out
        steps.append((feeds, out))
    for visit in (1, 2):
        page = PageSession(model(steps[0][0]), cache=True)
        for feeds, expected in steps:
            for g, w in zip(page.run(None, feeds), expected):
                np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)
        assert page.asked.count("part") <= (6 if visit == 1 else 1), page.asked


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_a_cache_with_room(form, batch):
    """Rows of different lengths continue at their own ends."""
    more, attrs = FORMS[form]
    keys = values = np.zeros((batch, KV, 40, DIM), np.float32)
    ends = [7, 5, 6][:batch]
    feeds = {**new_tokens(batch, 7), "past_key": keys, "past_value": values, **more}
    both = Both({**feeds, **lengths(ends, 7)}, **attrs)
    got = both.ours.run(None, {**feeds, **lengths(ends, 7)})
    want = both.theirs.run(None, {**feeds, **lengths(ends, 7)})
    for row, end in enumerate(ends):
        np.testing.assert_allclose(got[0][row, :end], want[0][row, :end], rtol=1e-5, atol=1e-5)
    _, keys, values = got
    for _ in range(12):
        ends = [e + 1 for e in ends]
        feeds = {**new_tokens(batch, 1), "past_key": keys, "past_value": values, **more}
        _, keys, values = both.run({**feeds, **lengths(ends)}, ends)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
@pytest.mark.parametrize("room", [0, 24])
def test_a_quantized_cache(bits, kind, room):
    width, dtype = (DIM, np.int8) if bits == 8 else (DIM // 2, np.uint8)
    scale = np.abs(floats(*([1] if kind == "PER_TENSOR" else [1, KV, 1, DIM]))) * 0.05 + 0.02
    keys = values = np.zeros((1, KV, room, width), dtype)
    both = None
    for end, count in zip(np.cumsum(STEPS), STEPS):
        feeds = {**new_tokens(1, count), "past_key": keys, "past_value": values, **lengths([end])}
        feeds |= {"k_scale": scale, "v_scale": scale * 1.5}
        both = both or Both(
            feeds,
            cache=T.INT8 if bits == 8 else T.UINT8,
            k_quant_type=kind,
            v_quant_type=kind,
            kv_cache_bit_width=bits,
        )
        _, keys, values = both.run(feeds, [end])


def resident(length, rows, window):
    step = rows - window + 1
    return length if length <= rows else length - step * -(-(length - rows) // step)


@pytest.mark.parametrize("rows, window", [(4, 4), (6, 4), (12, 5)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_cache_of_the_last_positions(rows, window, biased):
    """A prompt that is longer than the cache, single tokens, several tokens."""
    keys = values = np.zeros((1, KV, rows, DIM), np.float32)
    both = None
    for end, count in zip(np.cumsum(STEPS * 2), STEPS * 2):
        feeds = {**new_tokens(1, count), "past_key": keys, "past_value": values, **lengths([end])}
        feeds |= TABLES
        if biased:
            feeds["bias"] = floats(1, HEADS, count, end)
        attrs = {"do_rotary": 1, "local_window_size": window, "sliding_window_cache": 1}
        both = both or Both(feeds, **attrs)
        _, keys, values = both.run(feeds, [resident(end, rows, window)])
    assert biased or len(both.ours.plans) <= 5, "one for each number of tokens"


def test_windows_of_rows_of_different_lengths():
    keys = values = np.zeros((2, KV, 6, DIM), np.float32)
    ends = [5, 3]
    feeds = {**new_tokens(2, 5), "past_key": keys, "past_value": values, **lengths(ends, 5)}
    both = Both(feeds, local_window_size=4, sliding_window_cache=1)
    _, keys, values = both.ours.run(None, feeds)
    for _ in range(9):
        ends = [e + 1 for e in ends]
        feeds = {**new_tokens(2, 1), "past_key": keys, "past_value": values, **lengths(ends)}
        _, keys, values = both.run(feeds, [resident(e, 6, 4) for e in ends])


@pytest.mark.parametrize("form", ["plain", "rotary"])
def test_lengths_count_from_the_beginning_of_a_row(form):
    """There is no padding on the left: what follows a row's length is padding, whichever tokens a
    mask has left out, and the next token goes there.
    """
    more, attrs = FORMS[form]
    empty, ends = np.zeros((2, KV, 0, DIM), np.float32), [6, 4]
    feeds = {**new_tokens(2, 6), "past_key": empty, "past_value": empty, **lengths(ends), **more}
    both = Both(feeds, **attrs)
    got, want = both.ours.run(None, feeds), both.theirs.run(None, feeds)
    for g, w in zip(got[0], want[0]):
        np.testing.assert_allclose(g[:4], w[:4], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got[0][0], want[0][0], rtol=1e-5, atol=1e-5)
    room = [np.pad(c, ((0, 0), (0, 0), (0, 1), (0, 0))) for c in got[1:]]
    past = {"past_key": room[0], "past_value": room[1]}
    ends = [e + 1 for e in ends]
    both.run({**new_tokens(2, 1), **past, **lengths(ends), **more}, ends)


@pytest.mark.parametrize("room", [0, 5])
def test_keys_of_another_layer(room):
    """Gemma 3n and 4: keys and values of length 0; the past holds all of them."""
    both = None
    for total, count in ((7, 7), (8, 1), (9, 1), (12, 3)):
        past = {n: floats(1, KV, total + room, DIM) for n in ("past_key", "past_value")}
        new = {**new_tokens(1, 0), "q": floats(1, count, HEADS * DIM)}
        feeds = {**new, **past, **lengths([total]), **TABLES}
        both = both or Both(feeds, do_rotary=1)
        got = both.run(feeds, [total])
        np.testing.assert_array_equal(got[1], past["past_key"])


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("more", [{}, {"local_window_size": 2}, {"softcap": 1.5}])
@pytest.mark.parametrize("sink", [False, True])
def test_scores_as_an_output(mode, more, sink):
    both, keys, values, end = None, *[np.zeros((1, KV, 0, DIM), np.float32)] * 2, 0
    for count in (4, 1, 2):
        end += count
        feeds = {**new_tokens(1, count), "past_key": keys, "past_value": values, **lengths([end])}
        feeds |= {"sink": np.arange(HEADS, dtype=np.float32)} if sink else {}
        both = both or Both(feeds, outputs=4, qk_output=mode, **more)
        _, keys, values, scores = both.run(feeds)
        assert scores.shape == (1, HEADS, count, end)


@pytest.mark.parametrize("room", [0, 40])
@pytest.mark.parametrize("form", FORMS)
def test_few_plans_for_all_lengths(form, room):
    """As onnxruntime-genai exports a decoder: the lengths follow from a mask, whose number of
    columns is that of all positions.
    """
    more, attrs = FORMS[form]
    cache = np.zeros((1, KV, room, DIM), np.float32)
    feeds = {**new_tokens(1, 7), "past_key": cache, "past_value": cache, **lengths([7]), **more}
    graph = onnx.load_from_string(model(feeds, **attrs))
    given = [i for i in graph.graph.input if i.name not in ("seqlens", "total")]
    del graph.graph.input[:]
    graph.graph.input.extend(given)
    graph.graph.input.append(h.make_tensor_value_info("mask", T.INT64, ["batch", "total"]))
    for i, (op, inputs, output, extra) in enumerate(
        (
            ("ReduceSum", ["mask", "one"], "sums", {"keepdims": 0}),
            ("Sub", ["sums", "one"], "last", {}),
            ("Cast", ["last"], "seqlens", {"to": T.INT32}),
            ("Shape", ["mask"], "shape", {}),
            ("Gather", ["shape", "one"], "columns", {}),
            ("Squeeze", ["columns", "zero"], "count", {}),
            ("Cast", ["count"], "total", {"to": T.INT32}),
        )
    ):
        graph.graph.node.insert(i, h.make_node(op, inputs, [output], **extra))
    for name, x in (("one", [1]), ("zero", [0])):
        graph.graph.initializer.append(numpy_helper.from_array(np.array(x), name))
    data = graph.SerializeToString()
    theirs = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    ours, keys, values, end = edgewise.InferenceSession(data), cache, cache, 0
    for count in (7, *[1] * 20):
        end += count
        feeds = {**new_tokens(1, count), "past_key": keys, "past_value": values, **more}
        feeds["mask"] = np.ones((1, end), np.int64)
        got, want = ours.run(None, feeds), theirs.run(None, feeds)
        for g, w in zip(got, want):
            assert g.shape == w.shape
        np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)
        for g, w in zip(got[1:], want[1:]):
            np.testing.assert_allclose(g[:, :, :end], w[:, :, :end], rtol=1e-5, atol=1e-5)
        _, keys, values = got
    assert len(ours.plans) <= 4


def two_caches():
    """Two nodes with caches of their own lengths, and the same total_sequence_length."""
    nodes, infos = [], []
    for one in "ab":
        names = [n + one for n in NAMES[:5]]
        nodes.append(
            h.make_node(
                "GroupQueryAttention",
                [*names, "seqlens", "total"],
                [n + one for n in ("y", "present_key", "present_value")],
                domain="com.microsoft",
                num_heads=HEADS,
                kv_num_heads=KV,
            )
        )
        for name, heads in zip(names, (HEADS, KV, KV)):
            infos.append(h.make_tensor_value_info(name, T.FLOAT, [1, "tokens", heads * DIM]))
        for name in names[3:]:
            infos.append(h.make_tensor_value_info(name, T.FLOAT, [1, KV, "rows" + one, DIM]))
    infos.append(h.make_tensor_value_info("seqlens", T.INT32, [1]))
    infos.append(h.make_tensor_value_info("total", T.INT32, []))
    outs = [h.make_tensor_value_info(o, T.FLOAT, None) for n in nodes for o in n.output]
    opsets = [h.make_opsetid("", 21), h.make_opsetid("com.microsoft", 1)]
    graph = h.make_graph(nodes, "g", infos, outs)
    return h.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def run_two_caches(ours, theirs, a, b, total):
    feeds = lengths([total])
    for one, rows in (("a", a), ("b", b)):
        feeds |= {name + one: x for name, x in new_tokens(1, 1).items()}
        feeds |= {n + one: floats(1, KV, rows, DIM) for n in ("past_key", "past_value")}
    got, want = ours.run(None, feeds), theirs.run(None, feeds)
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        assert g.shape == w.shape
        rows = slice(None) if i % 3 == 0 else np.s_[:, :, :total]
        np.testing.assert_allclose(g[rows], w[rows], rtol=1e-5, atol=1e-5)


# (rows of the caches, total_sequence_length). First a plan is for the growth beyond both caches, 1.
# With caches of two lengths the number itself counts: then that plan is not the one for total = 1.
TURNS = [(4, 4, 5), (4, 4, 5), (4, 6, 5), (4, 4, 1), (4, 4, 5), (4, 4, 2)]


def test_a_growth_is_no_number():
    data = two_caches()
    theirs = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    ours = edgewise.InferenceSession(data)
    for turn in TURNS:
        run_two_caches(ours, theirs, *turn)


def test_a_growth_is_no_number_in_a_page():
    """On the next visit as well, when the plan for the growth is among the kept ones."""
    data = two_caches()
    theirs = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    for turns in (TURNS[:3], TURNS[3:], TURNS):
        page = PageSession(data, cache=True)
        for turn in turns:
            run_two_caches(page, theirs, *turn)
