"""ONNX Runtime Web's InferenceSession in a page: the same models as in Python, from bytes, URLs and
packages.
"""

import base64
import json
from pathlib import Path

import edgewise
import numpy as np
import pytest
from edgewise.cli import main
from onnx import TensorProto, helper, numpy_helper
from tiers import slow_unless

from ..loading import error

F, I = TensorProto.FLOAT, TensorProto.INT64
R = np.random.default_rng(0)


def save(path, nodes, inputs, outputs, constants=(), opset=18, external=False):
    import onnx

    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save_model(
        model,
        str(path),
        save_as_external_data=external,
        all_tensors_to_one_file=True,
        location=path.name + ".data",
        size_threshold=0,
    )
    return path


# long: a table of models
@pytest.fixture(scope="module")
def models(files):
    folder = files / "models"
    folder.mkdir(exist_ok=True)
    f = lambda *s: (R.standard_normal(s) * 0.3).astype(np.float32)  # noqa: E731
    n = helper.make_node
    cnn = [
        n("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        n("Relu", ["c"], ["r"]),
        n("GlobalAveragePool", ["r"], ["p"]),
        n("Flatten", ["p"], ["f"]),
        n("Gemm", ["f", "w2", "b2"], ["logits"]),
        n("Softmax", ["logits"], ["probs"]),
    ]
    io = (
        [("x", F, ["batch", 3, "h", "w"])],
        [("logits", F, ["batch", 5]), ("probs", F, ["batch", 5])],
    )
    weights = [("w", f(8, 3, 3, 3)), ("b", f(8)), ("w2", f(8, 5)), ("b2", f(5))]
    save(folder / "cnn.onnx", cnn, *io, weights)
    save(folder / "outside.onnx", cnn, *io, weights, external=True)
    save(
        folder / "resize.onnx",
        [n("Reshape", ["x", "shape"], ["y"])],
        [("x", F, [24]), ("shape", I, ["n"])],
        [("y", F, None)],
    )
    body = helper.make_graph(
        [n("Mul", ["a_in", "two"], ["a_out"]), n("Identity", ["c_in"], ["c_out"])],
        "body",
        [
            helper.make_tensor_value_info("i", I, []),
            helper.make_tensor_value_info("c_in", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a_in", F, [2]),
        ],
        [
            helper.make_tensor_value_info("c_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a_out", F, [2]),
        ],
        [numpy_helper.from_array(np.float32(2), "two")],
    )
    save(
        folder / "loop.onnx",
        [n("Loop", ["n", "", "x"], ["y"], body=body)],
        [("n", I, []), ("x", F, [2])],
        [("y", F, [2])],
    )
    save(
        folder / "types.onnx",
        [
            n("Cast", ["x"], ["y"], to=TensorProto.FLOAT16),
            n("Greater", ["x", "zero"], ["z"]),
            n("Shape", ["x"], ["s"]),
        ],
        [("x", F, ["n"])],
        [("y", TensorProto.FLOAT16, ["n"]), ("z", TensorProto.BOOL, ["n"]), ("s", I, [1])],
        [("zero", np.float32(0))],
    )
    save(
        folder / "packed.onnx",
        [
            n("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
            n("MatMulInteger", ["q", "bytes", "z"], ["p"]),
            n("Cast", ["p"], ["f"], to=F),
            n("Mul", ["f", "s"], ["y"]),
            n("Gather", ["bytes", "i"], ["row"]),
        ],
        [("x", F, ["rows", 256]), ("i", I, [1])],
        [("y", F, ["rows", 264]), ("row", TensorProto.INT8, None)],
        [("bytes", R.integers(-127, 128, (256, 264), np.int8))],
    )
    return folder


FEED = """
    const x = (n, h, w) =>
      new ew.Tensor(
        "float32",
        Float32Array.from({ length: n * 3 * h * w }, (_, i) => Math.sin(i)),
        [n, 3, h, w],
      );
    const plain = (out) =>
      Object.fromEntries(
        Object.entries(out).map(([n, t]) => [
          n,
          [t.type, [...t.dims], Array.from(t.data, Number)],
        ]),
      );
"""


def image(n, h, w):
    return np.sin(np.arange(n * 3 * h * w)).astype(np.float32).reshape(n, 3, h, w)


def same(got, session, feeds, rtol=1e-5):
    for (name, (kind, dims, data)), want in zip(got.items(), session.run(list(got), feeds)):
        assert kind == want.dtype.name and dims == list(want.shape), name
        np.testing.assert_allclose(np.array(data).reshape(dims), want, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize(
    "flavour", slow_unless(lambda name: name != "simd128", ["simd128", "relaxed-threads"])
)
def test_shapes_that_vary(visit, server, models, flavour):
    """One session with different batches and sizes, and with some of its outputs only."""
    v = visit(server)
    got = v.run(
        FEED
        + """
            const s = await ew.InferenceSession.create(arg.url, { flavour: arg.flavour });
            const names = [s.inputNames, s.outputNames, s.inputMetadata, s.outputMetadata];
            const a = plain(await s.run({ x: x(1, 8, 8) })),
              b = plain(await s.run({ x: x(3, 5, 7) }, ["probs"])),
              c = plain(await s.run({ x: x(1, 8, 8) }));
            await s.release();
            return { names, a, b, c, device: s.device };
        """,
        {"url": "/files/models/cnn.onnx", "flavour": flavour},
    )
    session = edgewise.InferenceSession(str(models / "cnn.onnx"))
    same(got["a"], session, {"x": image(1, 8, 8)})
    same(got["b"], session, {"x": image(3, 5, 7)})
    assert (
        got["a"] == got["c"] and list(got["b"]) == ["probs"] and got["device"]["flavour"] == flavour
    )
    assert got["names"][:2] == [["x"], ["logits", "probs"]]
    assert got["names"][2] == [
        {"name": "x", "isTensor": True, "type": "float32", "shape": ["batch", 3, "h", "w"]}
    ]


def test_packed_weights(visit, server, models):
    """A weight that was packed at load time is released, and read again for a plan that uses it
    unpacked.
    """
    v = visit(server)
    got = v.run(
        FEED
        + """
            const s = await ew.InferenceSession.create(arg);
            const feeds = (n) => ({
              x: new ew.Tensor(
                "float32",
                Float32Array.from({ length: n * 256 }, (_, i) => Math.sin(i)),
                [n, 256],
              ),
              i: new ew.Tensor("int64", BigInt64Array.of(7n), [1]),
            });
            const all = [];
            for (const [n, names] of [
              [1, ["y"]],
              [1, ["row"]],
              [2, ["y"]],
              [3, ["y", "row"]],
              [1, ["y"]],
            ])
              all.push([n, plain(await s.run(feeds(n), names))]);
            await s.release();
            return all;
        """,
        "/files/models/packed.onnx",
    )
    session = edgewise.InferenceSession(str(models / "packed.onnx"))
    for n, out in got:
        same(
            out,
            session,
            {
                "x": np.sin(np.arange(n * 256)).astype(np.float32).reshape(n, 256),
                "i": np.array([7]),
            },
        )
    assert [list(out) for _, out in got] == [["y"], ["row"], ["y"], ["y", "row"], ["y"]]


def test_models_as_bytes_and_external_data(visit, server, models):
    """Models as bytes, as part of a buffer and as a Blob; external data found by URL or passed."""
    v = visit(server)
    data = {
        name: base64.b64encode((models / name).read_bytes()).decode()
        for name in ("cnn.onnx", "outside.onnx", "outside.onnx.data")
    }
    got = v.run(
        FEED
        + """
            const bytes = (name) => Uint8Array.from(atob(arg[name]), (c) => c.charCodeAt(0));
            const out = [];
            const cnn = bytes("cnn.onnx"),
              padded = new Uint8Array(cnn.length + 100);
            padded.set(cnn, 64);
            const data = bytes("outside.onnx.data");
            for (const open of [
              () => ew.InferenceSession.create(cnn),
              () => ew.InferenceSession.create(padded.buffer, 64, cnn.length),
              () => ew.InferenceSession.create(new File([cnn], "cnn.onnx")),
              () => ew.InferenceSession.create("/files/models/outside.onnx"),
              () =>
                ew.InferenceSession.create(bytes("outside.onnx"), {
                  externalData: [{ path: "outside.onnx.data", data }],
                  executionProviders: ["wasm"],
                }),
            ]) {
              const s = await open();
              out.push(plain(await s.run({ x: x(1, 6, 6) })));
              await s.release();
            }
            let refused;
            try {
              await ew.InferenceSession.create(bytes("outside.onnx"));
            } catch (e) {
              refused = [e.name, e.message];
            }
            return { out, refused };
        """,
        data,
    )
    assert "error" not in got, got
    assert all(o == got["out"][0] for o in got["out"]) and "outside.onnx.data" in got["refused"][1]
    same(got["out"][0], edgewise.InferenceSession(str(models / "cnn.onnx")), {"x": image(1, 6, 6)})


# long: the script of a page and the checks of what it returns
def test_package_for_two_shapes(visit, server, models, capsys):
    """Compiled ahead of time for two shapes: no Python in the page, and an error for a
    third shape.
    """
    path = models / "cnn.edge"
    assert (
        main(
            [
                "build",
                str(models / "cnn.onnx"),
                "--dims",
                "batch=1,h=8,w=8",
                "--dims",
                "batch=2,h=4,w=4",
                "-o",
                str(path),
            ]
        )
        == 0
    )
    assert "logits float32[1, 5]" in capsys.readouterr().out
    assert (
        main(["build", str(models / "cnn.onnx"), "--dims", "batch=1", "-o", str(path) + ".not"])
        == 1
    )
    assert "--dims h=1,w=1" in capsys.readouterr().err
    v = visit(server)
    got = v.run(
        FEED
        + """
            const s = await ew.InferenceSession.create(arg);
            const a = plain(await s.run({ x: x(1, 8, 8) })),
              b = plain(await s.run({ x: x(2, 4, 4) }, { logits: null }));
            let refused;
            try {
              await s.run({ x: x(1, 4, 4) });
            } catch (e) {
              refused = [e.name, e.message];
            }
            const again = plain(await s.run({ x: x(1, 8, 8) }));
            await s.release();
            return { a, b, again, refused };
        """,
        "/files/models/cnn.edge",
    )
    assert "error" not in got, got
    session = edgewise.InferenceSession(str(models / "cnn.onnx"))
    same(got["a"], session, {"x": image(1, 8, 8)})
    same(got["b"], session, {"x": image(2, 4, 4)})
    assert (
        got["a"] == got["again"]
        and got["refused"][0] == "InputError"
        and "[1, 3, 4, 4]" in got["refused"][1]
        and "[2, 3, 4, 4]" in got["refused"][1]
    )
    assert not v.asked("pyodide")
    wrong = error(
        v.run("return await ew.pipeline('text-generation', '/files/models/cnn.edge')"),
        "PackageError",
    )
    assert "inference" in wrong["what"]
    wrong = error(
        v.run("return await ew.InferenceSession.create('/files/model.edge')"), "PackageError"
    )
    assert "text-generation" in wrong["what"]


# long: the script of a page and the checks of what it returns
def test_shapes_from_data(visit, server, models):
    """A shape that is an input, and a graph that only Python can run."""
    v = visit(server)
    got = v.run(
        FEED
        + """
            const s = await ew.InferenceSession.create("/files/models/resize.onnx");
            const dims = [];
            for (const shape of [[2, 12], [4, 3, 2], [2, 12], [24]])
              dims.push([
                ...(
                  await s.run({
                    x: new ew.Tensor(Float32Array.from({ length: 24 }, (_, i) => i)),
                    shape: new ew.Tensor("int64", shape),
                  })
                ).y.dims,
              ]);
            let refused;
            try {
              await s.run({
                x: new ew.Tensor(new Float32Array(24)),
                shape: new ew.Tensor("int64", [5, 5]),
              });
            } catch (e) {
              refused = [e.name, e.message];
            }
            dims.push([
              ...(
                await s.run({
                  x: new ew.Tensor(new Float32Array(24)),
                  shape: new ew.Tensor("int64", [1, 24]),
                })
              ).y.dims,
            ]);
            await s.release();
            return { dims, refused };
        """
    )
    assert (
        got["dims"] == [[2, 12], [4, 3, 2], [2, 12], [24], [1, 24]]
        and "Reshape" in got["refused"][1]
    )
    got = v.run(
        FEED
        + """
            const s = await ew.InferenceSession.create("/files/models/loop.onnx");
            const out = [];
            for (const n of [3, 0, 5])
              out.push(
                Array.from(
                  (
                    await s.run({
                      n: new ew.Tensor("int64", [n], []),
                      x: new ew.Tensor("float32", [1, 2], [2]),
                    })
                  ).y.data,
                ),
              );
            await s.release();
            return out;
        """
    )
    assert got == [[8, 16], [1, 2], [32, 64]]


def test_output_types(visit, server, models):
    v = visit(server)
    got = v.run(
        FEED
        + """
        const s = await ew.InferenceSession.create("/files/models/types.onnx");
        return plain(await s.run({x: new ew.Tensor("float32", [1, -2, 0.5], [3])}));
    """
    )
    assert got == {
        "y": ["float16", [3], [1, -2, 0.5]],  # a Float16Array
        "z": ["bool", [3], [1, 0, 1]],
        "s": ["int64", [1], [3]],
    }


SEEDS = json.loads((Path(__file__).parents[2] / "conformance" / "seeds.json").read_text())


def test_options_as_second_argument(visit, server, models):
    """run(feeds, options) and run(feeds, fetches, options); the name of an output makes it
    fetches.
    """
    got = visit(server).run("""
        const s = await ew.InferenceSession.create("/files/models/cnn.onnx");
        const feeds = {
          x: new ew.Tensor("float32", new Float32Array(3 * 8 * 8).fill(0.5), [1, 3, 8, 8]),
        };
        const aborted = new AbortController();
        aborted.abort();
        const names = [];
        for (const second of [{}, { tag: "a" }, { probs: null }, ["logits"]])
          names.push(Object.keys(await s.run(feeds, second)));
        const failed = [];
        for (const second of [{ signal: aborted.signal }, { nothing: null }])
          failed.push(await s.run(feeds, second).catch((e) => e.name));
        await s.release();
        return { names, failed };
    """)
    assert got["names"] == [["logits", "probs"], ["logits", "probs"], ["probs"], ["logits"]], got
    assert got["failed"] == ["Aborted", "RangeError"]


@pytest.mark.parametrize(
    "name", slow_unless(lambda name: name == "random.onnx", ["random.onnx", "random.edge"])
)
def test_random_seeds(visit, server, models, name):
    """Random numbers of nodes without a seed: equal to Python's for the same session seed,
    different without one. Also an output that is an input.
    """
    (models / "random.onnx").write_bytes(base64.b64decode(SEEDS["model"]))
    if name.endswith(".edge"):
        assert (
            main(["build", str(models / "random.onnx"), "--dims", "n=1", "-o", str(models / name)])
            == 0
        )
    got = visit(server).run(
        FEED
        + """
            const seed = (text) => (text === null ? undefined : BigInt(text)),
              feeds = () => ({ x: new ew.Tensor("float32", [0.5]) });
            const all = [];
            for (const { session, runs } of arg.sessions) {
              const s = await ew.InferenceSession.create(arg.url, { seed: seed(session) });
              for (const run of runs)
                all.push(plain(await s.run(feeds(), undefined, { seed: seed(run) })));
              await s.release();
            }
            const s = await ew.InferenceSession.create(arg.url),
              free = [];
            for (let i = 0; i < 2; i++) free.push(plain(await s.run(feeds())));
            let refused;
            try {
              await s.run(feeds(), undefined, { seed: -1 });
            } catch (e) {
              refused = [e.name, e.message];
            }
            return { all, free, refused };
        """,
        {"url": f"/files/models/{name}", "sessions": SEEDS["sessions"]},
    )
    assert "error" not in got, got
    want = [draw for s in SEEDS["sessions"] for draw in s["draws"]]
    assert [[out["a"][2], out["b"][2]] for out in got["all"]] == want and all(
        out["z"] == ["float32", [1], [0.5]] for out in got["all"]
    )
    a, b = (out["a"][2] for out in got["free"])
    assert a != b and got["refused"][0] == "InputError"


# body, name and text of the error
INVALID = [
    ("await s.run({})", "InputError", "missing"),
    ("await s.run({x: x(1, 4, 4), y: x(1, 4, 4)})", "InputError", "no such input"),
    ("await s.run({x: new ew.Tensor('int64', [1n], [1])})", "InputError", "float32"),
    (
        "await s.run({x: new ew.Tensor('float32', [1, 2], [1, 2])})",
        "InputError",
        "[batch, 3, h, w]",
    ),
    (
        "await s.run({x: new ew.Tensor('float32', new Float32Array(16), [1, 1, 4, 4])})",
        "InputError",
        "3",
    ),
    ("await s.run({x: x(1, 4, 4)}, ['nothing'])", "RangeError", "no such output"),
    ("await s.run({x: 3})", "InputError", "not a tensor"),
    ("await ew.InferenceSession.create('/files/models/none.onnx')", "ModelError", "404"),
    ("await ew.InferenceSession.create(new Uint8Array(10))", "ModelError", ""),
    ("await ew.InferenceSession.create(7)", "TypeError", "not a model"),
    ("await ew.InferenceSession.create(new ArrayBuffer(8), 8)", "RangeError", "byteOffset"),
    ("await ew.InferenceSession.create(new ArrayBuffer(8), 0, 9)", "RangeError", "byteLength"),
    ("await ew.InferenceSession.create(new ArrayBuffer(8), 'cpu')", "TypeError", "no object"),
    ("await s.run([x(1, 4, 4)])", "TypeError", "no object"),
    ("await s.release(); await s.run({x: x(1, 4, 4)})", "Aborted", ""),
]


def test_invalid_arguments(visit, server, models):
    """Each is an error, and the session works until it is released."""
    v = visit(server)
    v.run("window.s = await ew.InferenceSession.create('/files/models/cnn.onnx');")
    for body, name, text in INVALID:
        assert "error" not in v.run(FEED + "return plain(await s.run({x: x(1, 4, 4)}));"), body
        e = error(v.run(FEED + body), name)
        assert text in e["message"] and e["remedy"], (body, e)
