"""Storage that is full, cleared or shared while it is used: models run without being kept, open
sessions and new ones go on, and training finishes.
"""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from ..training.conftest import trainable  # noqa: F401

RUN = """
    const warnings = [];
    const warn = console.warn;
    console.warn = (...all) => (warnings.push(all.join(' ')), warn(...all));
    const s = await ew.InferenceSession.create(arg.model, { cache_files: true });
    const run = async (n) => {
        const x = new Float32Array(n * arg.wide);
        x[0] = 1;
        return (await s.run({ x: new ew.Tensor('float32', x, [n, arg.wide]) })).y.data[0];
    };
"""
ONCE = f"{RUN} const y = await run(1); await s.release(); return {{ y, warnings }};"
# returns while it loads, from a server that is slow
START = f"""window.loading = (async () => {{ {RUN}
    const y = await run(1);
    await s.release();
    return {{ y, warnings }};
}})(); loading.catch(() => 0);"""


def model(files, wide):
    """What scripts are given for a model of wide x wide weights; its result is 55."""
    weights = np.zeros((wide, wide), np.float32)
    weights[0, :5] = [1, 2, 3, 4, 5]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("ReduceSumSquare", ["h"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", 1, ["n", wide])
    y = helper.make_tensor_value_info("y", 1, [1, 1])
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weights, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (files / f"wide-{wide}.onnx").write_bytes(made.SerializeToString())
    return {"model": f"/files/wide-{wide}.onnx", "wide": wide}


def slow(given):
    return {**given, "model": given["model"] + "?fault=slow:10"}


def clear(context, visit, server):
    """What "delete the data of this site" of the browser does, or a header Clear-Site-Data."""
    context.new_cdp_session(visit.page).send(
        "Storage.clearDataForOrigin", {"origin": server, "storageTypes": "all"}
    )


def test_a_model_that_is_larger_than_the_quota(visit, server, context, files):
    v, given = visit(server), model(files, 4800)  # 92 MB
    context.new_cdp_session(v.page).send(
        "Storage.overrideQuotaForOrigin", {"origin": server, "quotaSize": 50 << 20}
    )
    for _ in range(2):  # what was written of it is removed
        got = v.run(ONCE, given)
        assert got["y"] == 55, got
        (words,) = got["warnings"]
        assert "was not kept for the next visit" in words and "is full" in words
        assert v.run("return (await ew.cacheBytes()).files") == 0
    context.close()


def test_cleared_while_a_session_is_open(visit, server, context, files):
    v, given = visit(server), model(files, 1000)
    assert v.run(ONCE, given)["y"] == 55  # from now on it is read from storage
    v.run(RUN + "window.go = run; window.first = await run(1);", given)
    clear(context, v, server)
    assert v.run("return [first, await go(1), await go(2), await go(7)]") == [55] * 4
    # new workers have other locks than the page, which took them for dead
    assert v.run(ONCE, given) == {"y": 55, "warnings": []}
    assert v.run("return (await ew.cacheBytes()).files") > 4_000_000


def test_cleared_while_a_model_is_downloaded(visit, server, context, files):
    v, given = visit(server), slow(model(files, 1600))
    v.run(START, given)
    v.page.wait_for_function("async () => (await ew.cacheBytes()).files > 1e6")
    clear(context, v, server)
    assert v.run("return (await loading).y") == 55
    assert v.run(ONCE, given)["y"] == 55


def test_cleared_while_training(visit, server, context, trainable):  # noqa: F811
    v = visit(server)
    v.run("""
        window.p = await ew.pipeline('text-generation', '/files/trainable.edge');
        window.steps = [];
        window.running = ew.fineTune(p, 'The cat sat on the mat. '.repeat(60), {
            max_steps: 20, name: 'a', checkpoint: { name: 'run', every: 2 },
            onStep: (e) => steps.push(e.step),
        });
    """)
    v.page.wait_for_function("steps.length > 4")
    clear(context, v, server)
    got = v.run("""
        await running;
        await p.keepAdapter('a');
        return { last: steps.at(-1), adapters: (await p.keptAdapters()).map((x) => x.name),
            checkpoints: (await ew.checkpoints()).map((x) => x.step) };
    """)
    assert got == {"last": 20, "adapters": ["a"], "checkpoints": [20]}, got


@pytest.mark.slow("test_cleared_while_a_model_is_downloaded")
def test_two_tabs_load_a_model(visit, server, files):
    """Both run; it is stored once; the tab that is closed while it writes leaves a part, which
    nobody takes for the model.
    """
    given = slow(model(files, 1600))
    a, b = visit(server), visit(server)
    for tab in (a, b):
        tab.run(START, given)
    for tab in (a, b):
        assert tab.run("return (await loading).y") == 55
    c = visit(server)
    assert c.run(ONCE, given)["y"] == 55 and not c.asked("wide-1600")
    c.run("await ew.clearCache()")
    for tab in (a, b):
        tab.run(START, given)
    c.page.wait_for_function("async () => (await ew.cacheBytes()).files > 1e6")
    a.page.close()
    a.closed = True
    c.run("await ew.clearCache()")  # while the other one loads
    assert b.run("return (await loading).y") == 55
    assert c.run(ONCE, given)["y"] == 55
