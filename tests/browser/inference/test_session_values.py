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
