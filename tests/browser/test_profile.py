"""Profiles in a page: of sessions, of a pipeline, of training, and their view in the demo.

The tests check contents, never speed.
"""

import json
import re

import numpy as np
import pytest

from .loading import WATCH

SUMMARY = """
    const summary = async (p) => ({
      text: String(p),
      ops: p.byOp(),
      nodes: p.byNode(),
      plans: p.byPlan(),
      memory: p.memory(),
      runs: p.runs,
      ms: p.ms,
      limits: p.limits,
      threads: p.threads,
      flavour: p.flavour,
      trace: JSON.parse(await (await p.trace()).text()),
    });
"""


def check(got, runs=None):
    """Checks what holds for every profile. runs: allowed numbers of runs of plans."""
    assert "error" not in got, got
    assert runs is None or got["runs"] in runs
    assert got["runs"] == sum(p["runs"] for p in got["plans"])
    for rows in (got["ops"], got["nodes"], got["plans"]):
        assert sum(r["ms"] for r in rows) == pytest.approx(got["ms"])
        assert [r["ms"] for r in rows] == sorted((r["ms"] for r in rows), reverse=True)
    for rows in (got["ops"], got["nodes"]):
        assert sum(r["share"] for r in rows) == pytest.approx(1)
        assert sum(r["calls"] for r in rows) == sum(p["runs"] * p["steps"] for p in got["plans"])
        assert all(r["operations"] >= 0 and r["bytes"] > 0 for r in rows)
    assert all(
        0 < p["mostInUse"] <= p["arenaBytes"] and p["at"][1]
        for p in got["plans"]
        if p["arenaBytes"]
    )
    assert set(got["limits"]) == {"float32", "int8", "memory"} and all(
        x > 0 for x in got["limits"].values()
    )
    for r in [*got["ops"], *got["nodes"]]:
        assert (
            r.get("limit") in ("float32", "int8", "memory", "cache")
            if r["ms"]
            else r.get("limit") is None
        )  # the clock is coarser than the duration of some steps
        assert (r.get("ofLimit") is None) == (r.get("limit") in ("cache", None))
    assert {
        m["plan"]: (
            m["runs"],
            len(m["steps"]),
            m["arenaBytes"],
            max(s["bytes"] for s in m["steps"]),
        )
        for m in got["memory"]
    } == {p["plan"]: (p["runs"], p["steps"], p["arenaBytes"], p["mostInUse"]) for p in got["plans"]}
    assert sum(m["ms"] * m["runs"] for m in got["memory"]) == pytest.approx(got["ms"])
    check_trace(got["trace"], got["runs"], sum(p["runs"] * p["steps"] for p in got["plans"]))
    for word in ("operator", "of limit", "node", "arena", got["ops"][0]["op"]):
        assert word in got["text"]


def check_trace(trace, runs, steps):
    """Checks Chrome's trace event format: metadata, complete events with start and duration,
    counters. Steps lie within their runs.
    """
    events = trace["traceEvents"]
    kinds = {ph: [e for e in events if e["ph"] == ph] for ph in "MXC"}
    assert sum(map(len, kinds.values())) == len(events)
    assert all(
        isinstance(e["name"], str) and e["ts"] >= 0 and e["dur"] >= 0 and e["pid"] == e["tid"] == 1
        for e in kinds["X"]
    )
    assert sum(e["cat"] == "run" for e in kinds["X"]) == runs and len(kinds["X"]) == runs + steps
    begin = end = 0
    for e in kinds["X"]:
        if e["cat"] == "run":
            begin, end = e["ts"], e["ts"] + e["dur"]
        else:
            assert (
                begin - 0.01 <= e["ts"] and e["ts"] + e["dur"] <= end + 0.05 and e["args"]["kernel"]
            )
    assert all(e["args"]["bytes in use"] >= 0 for e in kinds["C"])


@pytest.fixture(scope="module")
def mlp(files):
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    w = [
        numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
        for n, s in (("w1", (32, 64)), ("w2", (64, 8)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Softmax", ["h"], ["s"], name="soft"),
        helper.make_node("MatMul", ["s", "w2"], ["y"], name="second"),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])],
        w,
    )
    path = files / "profiled.onnx"
    path.write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9
        ).SerializeToString()
    )
    from edgewise.compiler.compile import compile_inference
    from edgewise.onnx import FileSource

    with open(files / "profiled.edge", "wb") as f:
        compile_inference({path.name: FileSource(str(path))}, [{"n": 4}]).write(f)
    return "profiled"


@pytest.mark.parametrize("ending", ["onnx", "edge"])
def test_profile_of_a_session(visit, server, mlp, ending):
    v = visit(server)
    got = v.run(
        SUMMARY
        + """
            const session = await ew.InferenceSession.create("/files/" + arg, { threads: 1 });
            const feeds = {
              x: new ew.Tensor("float32", new Float32Array(4 * 32).fill(0.5), [4, 32]),
            };
            const { y } = await session.run(feeds);
            const profile = await session.profile(feeds, { runs: 3 });
            const again = await session.run(feeds);
            const watched = await session.profile(() => session.run(feeds));
            const nothing = await session.profile(() => undefined);
            let failed;
            try {
              await session.profile(() => {
                throw new Error("mine");
              });
            } catch (e) {
              failed = e.message;
            }
            const after = await session.profile(() => session.run(feeds));
            const out = {
              ...(await summary(profile)),
              same: y.data.every((x, i) => x === again.y.data[i]),
              watched: watched.runs,
              nothing: [nothing.runs, String(nothing)],
              failed,
              after: after.runs,
            };
            await session.release();
            out.later = JSON.parse(await (await profile.trace()).text()).traceEvents.length;
            return out;
        """,
        f"{mlp}.{ending}",
    )
    check(got, runs=[3])
    assert (
        got["same"]
        and got["watched"] == 1
        and got["nothing"][0] == 0
        and "Nothing ran" in got["nothing"][1]
        and got["failed"] == "mine"
        and got["after"] == 1
    )
    assert got["later"] == len(got["trace"]["traceEvents"]), (
        "the trace of a session that has been released is another"
    )
    products = {n["node"]: n for n in got["nodes"] if n["op"] == "MatMul"}
    assert {n: r["operations"] for n, r in products.items()} == {
        "first": 3 * 2 * 4 * 32 * 64,
        "second": 3 * 2 * 4 * 64 * 8,
    } and all(r.get("limit") != "int8" for r in products.values())
    assert products["second"]["bytes"] == 3 * 4 * (4 * 64 + 64 * 8 + 4 * 8)


def test_profile_of_generation_and_training(visit, server, files):
    from edgewise.host.training.package import compile_model_for_training

    from .conftest import MODEL

    with open(files / "profiled-lm.edge", "wb") as f:
        compile_model_for_training(MODEL, ["lora"], batch=1, sequence=32).write(f)
    v = visit(server)
    got = v.run(
        SUMMARY
        + """
            const write = await ew.pipeline("text-generation", "/files/profiled-lm.edge");
            const writing = await write.profile(
              "Once upon a time there was a cat, and the cat sat on a mat, and",
              { max_new_tokens: 8, do_sample: false },
            );
            const trainer = await ew.Trainer.create(write, "A cat sat on a mat. ".repeat(40), {
              max_steps: 4,
            });
            const two = await trainer.profile(async () => {
              await trainer.step();
              await trainer.step();
            });
            await trainer.close();
            const out = { writing: await summary(writing), training: await summary(two) };
            let error;
            try {
              await write.profile(async () => write.profile("x"));
            } catch (e) {
              error = e.message;
            }
            await write.dispose();
            return { ...out, error };
        """
    )
    assert "error" not in got or isinstance(got["error"], str), got
    check(
        got["writing"], runs=range(8, 26)
    )  # seven runs after the first token; the prompt takes the fastest plans
    assert {p["plan"] for p in got["writing"]["plans"]} == {"plan/1", "plan/16"} and any(
        o["op"] == "Attention" and o["operations"] for o in got["writing"]["ops"]
    )
    check(got["training"], runs=[2])
    assert [p["plan"] for p in got["training"]["plans"]] == ["train/lora/train"]
    assert "another profile" in got["error"]


def test_profile_of_a_package_without_notes(visit, server, files, package):
    """The profile has the names of kernels only."""
    from edgewise.onnx import BytesSource
    from edgewise.package import Package

    old = Package.read(BytesSource(package, "model.edge"))
    del old.manifest["files"]["//notes"]
    with open(files / "plain.edge", "wb") as f:
        old.write(f)
    v = visit(server)
    got = v.run("""
        const write = await ew.pipeline("text-generation", "/files/plain.edge", {threads: 1});
        const p = await write.profile("Once", {max_new_tokens: 2, do_sample: false});
        const out = {ops: p.byOp(), text: String(p), plans: p.byPlan()};
        await write.dispose();
        return out;
    """)
    assert "error" not in got, got
    assert {"matmul_nbits", "attention"} <= {o["op"] for o in got["ops"]} and all(
        o.get(x) is None for o in got["ops"] for x in ("gops", "limit", "ofLimit")
    )


def test_profile_in_the_demo(visit, server, tmp_path):
    v = visit(server, "/?seed=1", start=False)
    v.page.wait_for_function("document.body.dataset.written === '1'")
    assert v.page.evaluate("document.body.dataset.profiled") is None, (
        "nobody looks: nothing is timed"
    )
    v.page.click("#where summary")
    v.page.evaluate(f"() => {{ {WATCH} }}")
    v.page.click("#generate")
    v.page.wait_for_function("document.body.dataset.profiled === '1'")
    assert v.page.evaluate("blocking") == []
    rows = v.page.locator("#where-bars tr").all_inner_texts()
    assert 2 < len(rows) <= 10 and any(r.startswith("MatMulNBits") for r in rows)
    assert 99 < sum(float(re.search(r"([\d.]+) %", r)[1]) for r in rows) < 101
    assert all(w in v.page.inner_text("#where-limits") for w in ("GFLOP/s", "int8", "GB/s"))
    v.page.get_by_role("radio", name="by node").check(force=True)
    nodes = v.page.locator("#where-bars tr").all_inner_texts()
    assert (
        len(nodes) == 16
        and "others" in nodes[15]
        and any("matmul_nbits, one token" in n for n in nodes)
    )
    assert 98 < sum(float(re.search(r"([\d.]+) %", n)[1]) for n in nodes) < 102
    curve = v.page.locator("#where-memory svg")
    assert re.fullmatch(
        r"Memory in use over [\d.]+ ms: [\d.]+ [kM]B at most, in .+",
        curve.get_attribute("aria-label"),
    )
    assert {"ms", "MB"} <= set(curve.locator("text").all_text_contents())
    most = v.page.inner_text("#where-at")
    curve.hover(position={"x": 60, "y": 60})
    assert most.startswith("Most: ") and re.match(
        r"(Step \d+ of \d+|Most): [\d.]+ [kM]B, after [\d.]+ ms, in ",
        v.page.inner_text("#where-at"),
    )
    v.page.mouse.move(0, 0)
    assert v.page.inner_text("#where-at") == most
    with v.page.expect_download() as download:
        v.page.click("#where-save")
    download.value.save_as(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    runs = sum(e.get("cat") == "run" for e in trace["traceEvents"])
    check_trace(trace, runs, sum(e["ph"] == "X" for e in trace["traceEvents"]) - runs)
    assert runs > 10
