"""What a page's session does between plans: branches and loops without Python once they are
compiled, strings, sequences and maps, outputs that stay in the engine, sessions without a worker.
"""

import edgewise
import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise.cli import main
from onnx import TensorProto, helper, numpy_helper

from ..loading import error
from ..test_pages import no_python
from .test_inference_session import models  # noqa: F401

F, I, B, S = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
n, tensor = helper.make_node, helper.make_tensor_value_info


def seq(name):
    return helper.make_value_info(
        name, helper.make_sequence_type_proto(helper.make_tensor_type_proto(F, None))
    )


@pytest.fixture(scope="module")
def mixed(files):
    """A loop with a data-dependent branch, a sequence of its results, strings, and a classifier's
    map.
    """
    one, two = (
        numpy_helper.from_array(np.float32(1), "one"),
        numpy_helper.from_array(np.float32([2, 3]), "two"),
    )
    then = helper.make_graph([n("Mul", ["s", "two"], ["a"])], "then", [], [tensor("a", F, None)])
    other = helper.make_graph([n("Sub", ["s", "one"], ["b"])], "else", [], [tensor("b", F, None)])
    body = helper.make_graph(
        [
            n("ReduceSum", ["s"], ["total"], keepdims=0),
            n("Less", ["total", "limit"], ["small"]),
            n("If", ["small"], ["t"], then_branch=then, else_branch=other),
            n("Identity", ["go"], ["on"]),
            n("Identity", ["t"], ["out"]),
        ],
        "body",
        [tensor("i", I, []), tensor("go", B, []), tensor("s", F, None)],
        [tensor("on", B, []), tensor("t", F, None), tensor("out", F, None)],
    )
    nodes = [
        n("Loop", ["m", "", "x"], ["y", "all"], body=body),
        n("SplitToSequence", ["all"], ["parts"], axis=0),
        n("StringConcat", ["words", "words"], ["twice"]),
        n("ZipMap", ["y2"], ["scores"], domain="ai.onnx.ml", classlabels_strings=["no", "yes"]),
        n("Identity", ["y"], ["y2"]),
    ]
    scores = helper.make_value_info(
        "scores",
        helper.make_sequence_type_proto(
            helper.make_map_type_proto(S, helper.make_tensor_type_proto(F, None))
        ),
    )
    graph = helper.make_graph(
        nodes,
        "g",
        [tensor("m", I, []), tensor("x", F, [2]), tensor("words", S, ["n"])],
        [tensor("y", F, [2]), seq("parts"), tensor("twice", S, None), scores],
        [one, two, numpy_helper.from_array(np.float32(20), "limit")],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)],
        ir_version=8,
    )
    (files / "mixed.onnx").write_bytes(model.SerializeToString())
    return files / "mixed.onnx"


MIXED = """
    const s = await ew.InferenceSession.create("/files/mixed.onnx", arg.options);
    const feeds = {
      m: new ew.Tensor("int64", [4], []),
      x: new ew.Tensor("float32", [1, 2]),
      words: new ew.Tensor(["a", "b"]),
    };
    const out = [];
    for (let i = 0; i < 2; i++) {
      const { y, parts, twice, scores } = await s.run(feeds);
      out.push([
        Array.from(y.data),
        parts.map((p) => [p.dims, Array.from(p.data)]),
        twice.type,
        twice.data,
        scores.map((m) => [...m]),
      ]);
    }
    const meta = s.outputMetadata.map((o) => [o.name, o.isTensor, o.kind ?? "tensor"]);
    await s.release();
    return { out, meta };
"""


def test_programs_are_compiled_once(visit, server, mixed):
    y, parts, twice, scores = edgewise.InferenceSession(str(mixed)).run(
        None, {"m": np.array(4), "x": np.float32([1, 2]), "words": np.array(["a", "b"], object)}
    )
    want = [
        y.tolist(),
        [[list(p.shape), p.ravel().tolist()] for p in parts],
        "string",
        twice.tolist(),
        [[list(e) for e in m.items()] for m in scores],
    ]
    v = visit(server)
    first = v.run(MIXED, {"options": {"threads": 1}})
    assert "error" not in first, first
    assert first["out"] == [want, want] and not no_python(v)
    assert first["meta"] == [
        ["y", True, "tensor"],
        ["parts", False, "sequence"],
        ["twice", True, "tensor"],
        ["scores", False, "sequence"],
    ]
    for options in ({}, {"proxy": False}):
        w = visit(server)
        assert w.run(MIXED, {"options": options}) == first and no_python(w), options


def test_outputs_in_the_engine_and_loop_limits(visit, server, models):  # noqa: F811
    v = visit(server)
    got = v.run("""
        const types = await ew.InferenceSession.create("/files/models/types.onnx", {
          preferredOutputLocation: "cpu-pinned",
        });
        const out = await types.run({ x: new ew.Tensor("float32", [1, -2, 0.5], [3]) });
        const places = Object.values(out).map((t) => t.location);
        let refused;
        try {
          out.y.data;
        } catch (e) {
          refused = e.name;
        }
        const half = Array.from(await out.y.getData(true));
        const after = [out.y.location, out.z.location];
        for (const t of Object.values(out)) t.dispose();
        const loop = await ew.InferenceSession.create("/files/models/loop.onnx", {
          max_loop_trips: 1e15,
        });
        const x = new ew.Tensor("float32", [1, 2], [2]),
          many = { n: new ew.Tensor("int64", [1e12], []), x };
        await loop.run({ n: new ew.Tensor("int64", [3], []), x });
        const stop = new AbortController();
        setTimeout(() => stop.abort(), 200); // amid the run of 1e12 rounds, or before it
        let stopped;
        try {
          await loop.run(many, undefined, { signal: stop.signal });
        } catch (e) {
          stopped = e.name;
        }
        const again = Array.from(
          (await loop.run({ n: new ew.Tensor("int64", [3], []), x })).y.data,
        ); // in the same worker
        await loop.release();
        await types.release();
        return { places, refused, half, after, stopped, again };
    """)
    assert "error" not in got, got
    assert got == {
        "places": ["cpu-pinned"] * 3,
        "refused": "InputError",
        "half": [1, -2, 0.5],
        "after": ["cpu", "cpu-pinned"],
        "stopped": "Aborted",
        "again": [8, 16],
    }


@pytest.mark.parametrize(
    "feeds, name",
    [
        (
            "{m: new ew.Tensor('int64', [1], []), x: [1, 2], words: new ew.Tensor(['a'])}",
            "InputError",
        ),
        (
            (
                "{m: new ew.Tensor('int64', [1], []), x: new ew.Tensor(['a', 'b']), words: new"
                " ew.Tensor(['a'])}"
            ),
            "InputError",
        ),
    ],
)
def test_invalid_values(visit, server, mixed, feeds, name):
    got = visit(server).run(
        "const s = await ew.InferenceSession.create('/files/mixed.onnx', {proxy: false}); return"
        f" s.run({feeds})"
    )
    e = error(got, name)
    assert "feed 'x'" in e["where"] and e["remedy"]


def test_metadata(visit, server, files):
    """What exporters say about a model, of a file and of a package, as onnxruntime reads it."""
    graph = helper.make_graph(
        [n("Relu", ["x"], ["y"])], "detector", [tensor("x", F, ["n"])], [tensor("y", F, ["n"])]
    )
    opset = helper.make_opsetid("", 18)
    model = helper.make_model(graph, producer_name="maker", ir_version=8, opset_imports=[opset])
    helper.set_model_props(model, {"names": "{0: 'cat'}", "stride": "32"})
    path = files / "described.onnx"
    onnx.save(model, path)
    said = onnxruntime.InferenceSession(path).get_modelmeta()
    assert main(["build", str(path), "--dims", "n=3", "-o", str(files / "described.edge")]) == 0
    for name in ("described.onnx", "described.edge"):
        got = visit(server).run(
            "const s = await ew.InferenceSession.create(arg); const { metadata } = s;"
            "await s.release(); return metadata;",
            f"/files/{name}",
        )
        assert got["customMetadataMap"] == said.custom_metadata_map
        assert got["producerName"] == said.producer_name
        assert got["graphName"] == said.graph_name


def test_inputs_of_unknown_rank(visit, server, files):
    """ONNX Runtime Web gives them the shape []."""
    graph = helper.make_graph(
        [n("Relu", ["x"], ["y"])], "g", [tensor("x", F, None)], [tensor("y", F, None)]
    )
    onnx.save(helper.make_model(graph, ir_version=8), files / "unknown_rank.onnx")
    got = visit(server).run("""
        const s = await ew.InferenceSession.create("/files/unknown_rank.onnx");
        const shapes = [...s.inputMetadata, ...s.outputMetadata].map((value) => value.shape);
        await s.release();
        return shapes;
    """)
    assert got == [[], []]


@pytest.fixture(scope="module")
def counter(files):
    """A model with a state: the sum of what was fed, and a large output."""
    nodes = [n("Add", ["state", "x"], ["next"]), n("Expand", ["next", "wide"], ["all"])]
    inputs = [tensor("x", F, [4]), tensor("state", F, [4])]
    outputs = [tensor("next", F, [4]), tensor("all", F, [8192, 4])]
    wide = numpy_helper.from_array(np.array([8192, 4], np.int64), "wide")
    graph = helper.make_graph(nodes, "counter", inputs, outputs, [wide])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), files / "counter.onnx")


CALLS = """
    const waitAsync = Atomics.waitAsync;
    let shared = 0;
    Atomics.waitAsync = (...args) => {
      shared++;
      return waitAsync.apply(Atomics, args);
    };
    try {
      const session = await ew.InferenceSession.create("/files/counter.onnx", {
        preferredOutputLocation: arg.stay ? { next: "cpu-pinned" } : undefined,
      });
      const of = (...values) => new ew.Tensor("float32", values);
      const x = of(1, 2, 3, 4);
      let state = of(0, 0, 0, 0);
      for (let i = 0; i < 200; i++) {
        const last = state;
        const outputs = await session.run({ x, state }, ["next"]);
        state = outputs.next;
        if (arg.stay) last.dispose();
        else if (state.data.buffer.byteLength !== 16) throw new Error("it shares its memory");
      }
      const sum = Array.from(await state.getData());
      // an output is fed by a message, as a call is on its way, and freed by the call after it
      const freed = [];
      for (let i = 0; i < 10 && arg.stay; i++) {
        const { next } = await session.run({ x, state: x }, ["next"]);
        const first = session.run({ x, state: x }, ["next"]);
        const fed = session.run({ x, state: next }, ["next"]).then(() => "it ran", (e) => e.what);
        next.dispose();
        await first;
        await session.run({ x, state: x }, ["next"]);
        freed.push(await fed);
      }
      // calls at once, some with large outputs, one that fails, one that is aborted
      const stop = new AbortController();
      const runs = [];
      for (let i = 0; i < 30; i++) {
        const feeds = { x: of(i, i, i, i), state: i === 7 ? x.reshape([2, 2]) : x };
        const signal = i === 11 ? stop.signal : undefined;
        runs.push(
          session
            .run(feeds, i % 3 ? ["next"] : ["all"], { signal })
            .then(({ next, all }) => (next ?? all).getData())
            .then((data) => data[1], (e) => e.name),
        );
      }
      stop.abort();
      const together = await Promise.all(runs);
      // errors of calls that come one after the other
      const errors = [];
      for (let i = 0; i < 10; i++) {
        await session.run({ x, state: x });
        errors.push(await session.run({ x, state: x.reshape([2, 2]) }).catch((e) => e.name));
      }
      // with a seed of 64 bits, which only messages carry
      await session.run({ x, state: x }, ["next"], { seed: 2n ** 60n });
      const mine = Array.from(x.data);
      const last = session.run({ x, state: x });
      await session.release();
      const released = await last.then(() => "it ran", (e) => e.name);
      return { sum, freed, together, errors, mine, released, shared };
    } finally {
      Atomics.waitAsync = waitAsync;
    }
"""


@pytest.mark.parametrize("stay", [False, True])
@pytest.mark.parametrize("isolated", [True, False])
def test_many_calls(visit, server, plain_server, counter, isolated, stay):
    """Calls of a small model: by shared memory where the page is isolated, else by messages."""
    got = visit(server if isolated else plain_server).run(CALLS, {"stay": stay})
    assert "error" not in got, got
    assert got["sum"] == [200, 400, 600, 800]
    assert got["freed"] == (["it ran"] * 10 if stay else [])
    together = [2.0 + i for i in range(30)]
    together[7], together[11] = "InputError", "Aborted"
    assert got["together"] == together
    assert got["errors"] == ["InputError"] * 10
    assert got["mine"] == [1, 2, 3, 4]
    assert got["released"] == "Aborted"
    assert got["shared"] > 50 if isolated else got["shared"] == 0


STATES = """
    const post = Worker.prototype.postMessage;
    const sent = [];
    Worker.prototype.postMessage = function (message, ...more) {
      const { state } = message.request?.feeds ?? {};
      if (state) sent.push("pinned" in state ? "number" : "bytes");
      return post.call(this, message, ...more);
    };
    try {
      const session = await ew.InferenceSession.create("/files/states.onnx");
      const x = new ew.Tensor("float32", [1]);
      const first = new ew.Tensor("float32", new Float32Array(16384), [16384]);
      const states = [first];
      for (let i = 0; i < 6; i++)
        states.push((await session.run({ x, state: states.at(-1) })).next);
      const { length } = sent;
      const numbers = sent.filter((s) => s === "number").length;
      // an earlier one, one that is changed, and both of two that were fed at once
      const again = (await session.run({ x, state: states[3] })).next.data[0];
      states[6].data[0] = 50;
      const changed = (await session.run({ x, state: states[6] })).next;
      const [a, b] = await Promise.all(
        [changed, changed].map((state) => session.run({ x, state })),
      );
      const values = [again, changed.data[0], changed.data[1], a.next.data[0], b.next.data[1]];
      await session.release();
      return { length, numbers, values, last: states[5].data[16383], mine: first.data[0] };
    } finally {
      Worker.prototype.postMessage = post;
    }
"""


@pytest.mark.parametrize("isolated", [True, False])
def test_states_stay_in_the_worker(visit, server, plain_server, files, isolated):
    """An output that is fed again without being read: the engine has it, and gets a number."""
    graph = helper.make_graph(
        [n("Add", ["state", "x"], ["next"])],
        "states",
        [tensor("x", F, [1]), tensor("state", F, [16384])],
        [tensor("next", F, [16384])],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), files / "states.onnx")
    got = visit(server if isolated else plain_server).run(STATES)
    assert "error" not in got, got
    if not isolated:  # else numbers may go by shared memory
        assert (got["length"], got["numbers"]) == (6, 4), got
    assert got["values"] == [4, 51, 7, 52, 8]
    assert (got["last"], got["mine"]) == (5, 0)
