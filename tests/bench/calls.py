"""Case `calls`: the time of a call above the kernels' own, for models that are called often; case
`frames`: two sessions at once, while the page animates.

A tiny graph, a voice activity detector and an LSTM whose states are fed back, and a step of a
decoder whose caches are. Each is opened by the public API in a page that is cross-origin isolated
and in one that is not, computes in a worker (the default of Edgewise) and in the page's thread (the
default of onnxruntime-web), with one thread.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .browser import WORK, Bench, say
from .contenders import ONE, ORT_ONE
from .real import INLINE, ORT_WORKER, write_feeds
from .stats import ratio, show, summary
from .visits import Visits

CASES = ("calls", "frames")
STAYING = "Edgewise, states stay in the worker"
KERNELS = "kernels alone"
GOAL_MS = 0.15
FRAMES_MS = 2000
FLOAT = TensorProto.FLOAT
HIDDEN, HEADS, LAYERS, PAST, FRAMES = 384, 6, 4, 64, 1500
WHO = {  # {contender: query of page/calls.js}
    ONE: "edgewise",
    STAYING: "edgewise&stay",
    INLINE: "edgewise&proxy=false",
    ORT_ONE: "ort",
    ORT_WORKER: "ort&proxy=true",
}


class Graph:
    """A model in the making: nodes and weights with random numbers."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.feeds: dict[str, np.ndarray] = {}
        self.count = 0
        self.draw = np.random.default_rng(0)

    def take(self, name: str, array: np.ndarray, shape: list[Any] | None = None) -> str:
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape or list(array.shape)))
        self.feeds[name] = array
        return name

    def floats(self, *shape: int) -> np.ndarray:
        return self.draw.normal(0, 0.1, shape).astype(np.float32)

    def weight(self, *shape: int) -> str:
        return self.constant(self.floats(*shape))

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, *inputs: str, to: str = "", count: int = 1, **attributes: Any) -> Any:
        self.count += 1
        made = [to or f"t{self.count}"] + [f"t{self.count}_{i}" for i in range(1, count)]
        self.nodes.append(helper.make_node(op, list(inputs), made, **attributes))
        return made[0] if count == 1 else made

    def give(self, name: str, shape: list[Any]) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, FLOAT, shape))

    def write(self, path: Path) -> None:
        graph = helper.make_graph(self.nodes, "g", self.inputs, self.outputs, self.weights)
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def tiny(g: Graph) -> dict[str, str]:
    x = g.take("x", g.floats(1, 16))
    g.node("Relu", g.node("Add", x, g.weight(1, 16)), to="y")
    g.give("y", [1, 16])
    return {}


def detector(g: Graph) -> dict[str, str]:
    """The layers of Silero VAD 5: a short-time Fourier transform, convolutions, an LSTM cell."""
    x, state = g.take("input", g.floats(1, 576)), g.take("state", g.floats(2, 1, 128))
    g.take("sr", np.array(16000, np.int64))
    g.node("Identity", "sr")
    y = g.node("Unsqueeze", x, g.constant(np.array([1], np.int64)))
    y = g.node("Conv", y, g.weight(258, 1, 256), strides=[128])
    y = g.node("Mul", y, y)
    y = g.node("Sqrt", g.node("ReduceMean", y, axes=[2], keepdims=1))
    for wide, narrow in ((258, 128), (128, 64), (64, 64), (64, 128)):
        y = g.node("Conv", y, g.weight(narrow, wide, 3), g.weight(narrow), pads=[1, 1])
        y = g.node("Relu", y)
    y = g.node("Transpose", y, perm=[2, 0, 1])
    h, c = g.node("Split", state, axis=0, count=2)
    weights = g.weight(1, 512, 128), g.weight(1, 512, 128), g.weight(1, 1024)
    _, h, c = g.node("LSTM", y, *weights, "", h, c, hidden_size=128, count=3)
    g.node("Concat", h, c, to="stateN", axis=0)
    y = g.node("MatMul", g.node("Relu", h), g.weight(128, 1))
    g.node("Sigmoid", y, to="output")
    g.give("output", [1, 1, 1])
    g.give("stateN", [2, 1, 128])
    return {"stateN": "state"}


def recurrent(g: Graph) -> dict[str, str]:
    x = g.take("x", g.floats(8, 1, 64))
    h, c = g.take("h", g.floats(1, 1, 128)), g.take("c", g.floats(1, 1, 128))
    weights = g.weight(1, 512, 64), g.weight(1, 512, 128), g.weight(1, 1024)
    g.nodes.append(
        helper.make_node("LSTM", [x, *weights, "", h, c], ["y", "hn", "cn"], hidden_size=128)
    )
    g.give("y", [8, 1, 1, 128])
    g.give("hn", [1, 1, 128])
    g.give("cn", [1, 1, 128])
    return {"hn": "h", "cn": "c"}


# long: the layers of one graph
def decoder(g: Graph) -> dict[str, str]:
    """A step of a merged decoder as Optimum exports Whisper tiny's: the first call computes the
    keys and values of the encoder's output, the later ones get them. Keys of the past stay as long
    as they are, so that each call does the same work.
    """
    d = HIDDEN // HEADS
    ids = g.take("input_ids", np.array([[7]], np.int64))
    states = g.take("encoder_hidden_states", g.floats(1, FRAMES, HIDDEN))
    g.take("use_cache_branch", np.array([False]))
    split, joined = (
        g.constant(np.array(s, np.int64)) for s in ([1, -1, HEADS, d], [1, -1, HIDDEN])
    )
    scale = g.constant(np.float32(d**-0.5))
    x = g.node("Gather", g.weight(8192, HIDDEN), ids)
    back = {}

    def heads(x: str) -> str:
        y = g.node("Reshape", g.node("MatMul", x, g.weight(HIDDEN, HIDDEN)), split)
        return g.node("Transpose", y, perm=[0, 2, 1, 3])

    def attend(x: str, keys: str, values: str) -> str:
        q = g.node("Mul", heads(x), scale)
        scores = g.node("MatMul", q, g.node("Transpose", keys, perm=[0, 1, 3, 2]))
        y = g.node("MatMul", g.node("Softmax", scores, axis=-1), values)
        y = g.node("Reshape", g.node("Transpose", y, perm=[0, 2, 1, 3]), joined)
        return g.node("Add", x, g.node("MatMul", y, g.weight(HIDDEN, HIDDEN)))

    def encoded(past: str) -> str:
        """The keys or values of the encoder's output: `past`, or computed."""
        nodes, g.nodes = g.nodes, []
        made = g.node("Identity", heads(states), to=f"{past}.made")
        computed, g.nodes = g.nodes, []
        given = g.node("Identity", past, to=f"{past}.given")
        passed, g.nodes = g.nodes, nodes
        branches = []
        for name, body in ((given, passed), (made, computed)):
            out = helper.make_tensor_value_info(name, FLOAT, [1, HEADS, FRAMES, d])
            branches.append(helper.make_graph(body, f"{name}.branch", [], [out]))
        then, otherwise = branches
        to = past.replace("past", "present")
        return g.node("If", "use_cache_branch", then_branch=then, else_branch=otherwise, to=to)

    starts, ends = (g.constant(np.array([i], np.int64)) for i in (1, PAST + 1))
    axis = g.constant(np.array([2], np.int64))
    for layer in range(LAYERS):
        cache, cross = [], []
        for part in ("key", "value"):
            name = f"past.{layer}.decoder.{part}"
            past = g.take(name, g.floats(1, HEADS, PAST, d))
            whole = g.node("Concat", past, heads(x), axis=2)
            present = g.node("Slice", whole, starts, ends, axis, to=name.replace("past", "present"))
            g.give(present, [1, HEADS, PAST, d])
            back[present] = name
            cache.append(whole)
        x = attend(x, *cache)
        for part in ("key", "value"):
            name = f"past.{layer}.encoder.{part}"
            g.take(name, np.zeros((1, HEADS, FRAMES, d), np.float32))
            cross.append(encoded(name))
            g.give(cross[-1], [1, HEADS, FRAMES, d])
            back[cross[-1]] = name
        x = attend(x, *cross)
        y = g.node("Relu", g.node("MatMul", x, g.weight(HIDDEN, 4 * HIDDEN)))
        x = g.node("Add", x, g.node("MatMul", y, g.weight(4 * HIDDEN, HIDDEN)))
    g.node("MatMul", x, g.weight(HIDDEN, 8192), to="logits")
    g.give("logits", [1, 1, 8192])
    return back


MODELS = {
    "tiny graph": tiny,
    "voice activity detector with its state": detector,
    "LSTM with its states": recurrent,
    "step of a decoder with its caches": decoder,
}


def write(folder: Path) -> dict[str, str]:
    """Writes the models and their feeds; returns {title: query of the page}."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for number, (title, make) in enumerate(MODELS.items()):
        g = Graph()
        back = make(g)
        g.write(folder / f"{number}.onnx")
        write_feeds(g.feeds, folder / str(number))
        found[title] = f"model=/bench/calls/{number}&back={quote(json.dumps(back))}"
    page = "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'>"
    (WORK / "page/calls.html").write_text(page + "<script type=module src=calls.js></script>")
    return found


def measure(bench: Bench, url: str, query: str, rounds: int, title: str) -> dict[str, list[float]]:
    """Milliseconds of a call in each round, by contender."""
    times: dict[str, list[float]] = {}
    pages = {}
    for who, engine in WHO.items():
        try:
            pages[who] = Visits(bench, f"{url}/bench/page/calls.html?engine={engine}&{query}")
            pages[who].visit()
        except Exception as e:
            bench.failed(f"{who}, {title}", e)
            pages.pop(who).close()
    for _ in range(rounds):
        for who, page in pages.items():
            times.setdefault(who, []).append(page.steady())
            if who == INLINE:
                own = page.page.evaluate("window.kernels()")
                times.setdefault(KERNELS, []).append(float(np.median(own[1:])))
    for page in pages.values():
        page.close()
    return times


def run(bench: Bench, cases: list[str], rounds: int, seconds: float) -> dict[str, dict[str, Any]]:
    """Runs the cases. `seconds` has no effect: each model is small."""
    queries = write(WORK / "calls")
    found = {}
    if "calls" in cases:
        found["calls"] = calls(bench, queries, rounds)
    if "frames" in cases:
        found["frames"] = frames(bench, queries, rounds)
    return found


def frames(bench: Bench, queries: dict[str, str], rounds: int) -> dict[str, Any]:
    """Calls a second of one session and of two at once, and the frames of the page meanwhile."""
    table, values = [], {}
    for title, query in queries.items():
        for threads in (1, 2):
            url = f"{bench.url}/bench/page/calls.html?engine=edgewise&{query}&threads={threads}"
            visits = Visits(bench, f"{url}&sessions=2")
            one: list[float] = []
            two: list[float] = []
            gaps: list[float] = []
            try:
                visits.visit()
                for _ in range(rounds):
                    for count, rates in ((1, one), (2, two)):
                        made = visits.page.evaluate(f"window.together({count}, {FRAMES_MS})")
                        rates.append(sum(made["rates"]))
                        gaps += made["frames"]
            except Exception as e:
                bench.failed(f"{title}, {threads} threads", e)
                continue
            finally:
                visits.close()
            row = f"{title}, {threads} thread{'s' * (threads > 1)}"
            values[row] = {"one session": one, "two sessions": two}
            share = float(np.median(two) / np.median(one)) * threads / 2
            late = float(np.percentile(gaps, 99))
            table.append(
                [row, show(np.median(one)), show(np.median(two)), f"{share:.2f}", show(late)]
            )
            say("  " + " | ".join(table[-1]))
    return {
        "title": "Two sessions at once, while the page animates",
        "unit": "calls/s",
        "values": values,
        "columns": [
            "",
            "calls/s of one session",
            "of two at once, together",
            "of what two processors allow",
            "99 % of frames within, ms",
        ],
        "table": table,
        "notes": [
            "Of what two processors allow: two sessions of one thread each make twice the calls of"
            " one at most, those of two threads as many as one; goal: 0.95. Frames: 17 ms."
        ],
    }


def calls(bench: Bench, queries: dict[str, str], rounds: int) -> dict[str, Any]:
    """Milliseconds of calls above the kernels' own."""
    table, values = [], {}
    for where, url in (("isolated", bench.url), ("not isolated", bench.open_page_url)):
        for title, query in queries.items():
            times = measure(bench, url, query, rounds, f"{title}, {where}")
            values[f"{title}, {where}"] = times
            middle = {who: summary(ms)["median"] for who, ms in times.items()}
            above = {who: middle[who] - middle.get(KERNELS, 0) for who in middle}
            best = ratio(times.get(ORT_ONE), times.get(STAYING))
            table.append(
                [
                    f"{title}, {where}",
                    show(middle[KERNELS]) if KERNELS in middle else "–",
                    *(show(above[who]) if who in above else "–" for who in (ONE, STAYING, INLINE)),
                    *(show(middle[who]) if who in middle else "–" for who in (ORT_ONE, ORT_WORKER)),
                    f"{best['median']:.2f}×" if best else "–",
                ]
            )
            say("  " + " | ".join(table[-1]))
    return {
        "title": "Calls of small models",
        "unit": "ms",
        "values": values,
        "columns": [
            "one thread",
            "kernels, ms",
            "a call above them: worker (default), ms",
            "… with outputs that stay there, ms",
            "… in the page's thread, ms",
            "a call of onnxruntime-web: page's thread (default), ms",
            "… in its worker, ms",
            "onnxruntime-web's default / ours with outputs that stay",
        ],
        "table": table,
        "notes": [
            "Median milliseconds of a call through the public API, one after the other, each"
            " with the outputs of the last one that are its states; goal: at most"
            f" {GOAL_MS} ms above the kernels.",
            "Kernels: the engine's function within the calls in the page's thread.",
        ],
    }
