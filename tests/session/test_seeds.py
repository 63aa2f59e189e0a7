"""Random numbers of a session follow from a seed where one is given, by the same rule as a page's
(tests/conformance/seeds.json).
"""

import base64
import io
import json
from pathlib import Path

import edgewise
import numpy as np
import pytest
from edgewise.compiler.compile import compile_inference
from edgewise.errors import InputError, PackageError
from edgewise.onnx import BytesSource
from edgewise.package import Package
from edgewise.seeds import seed_of_run
from onnx import helper

VECTORS = json.loads((Path(__file__).parents[1] / "conformance" / "seeds.json").read_text())
MODEL = base64.b64decode(VECTORS["model"])
X = {"x": np.zeros(1, np.float32)}


def number(text):
    return None if text is None else int(text)


def session(seed=None, model=MODEL):
    options = edgewise.SessionOptions()
    options.seed = seed
    return edgewise.InferenceSession(model, options)


def run_options(seed):
    options = edgewise.RunOptions()
    options.seed = seed
    return options


def test_seed_of_run():
    assert all(
        seed_of_run(int(seed), run) == int(want) for seed, run, want in VECTORS["seed_of_run"]
    )


@pytest.mark.parametrize("case", VECTORS["sessions"], ids=lambda c: f"{c['session']}-{c['runs']}")
def test_draws(case):
    s = session(number(case["session"]))
    for seed, (a, b) in zip(case["runs"], case["draws"]):
        got_a, got_b, _ = s.run(None, X, run_options(number(seed)))
        assert np.array_equal(got_a, np.float32(a)) and np.array_equal(got_b.ravel(), np.float32(b))


def test_without_a_seed_each_run_draws_others():
    s = session()
    (a, b, _), (c, _, _) = s.run(None, X), s.run(None, X)
    assert not np.array_equal(a, b.ravel()) and not np.array_equal(a, c)


@pytest.mark.parametrize("seed", [*VECTORS["refused"], True, 1 << 63])
def test_no_seed(seed):
    with pytest.raises(InputError, match="is not a valid seed"):
        session(seed)
    with pytest.raises(InputError, match="is not a valid seed"):
        session().run(None, X, run_options(seed))


def looped():
    """Five iterations of a loop that draws random numbers, then another draw: each is a separate
    part.
    """
    body = helper.make_graph(
        [
            helper.make_node("RandomUniform", [], ["u"], shape=[3]),
            helper.make_node("Identity", ["c"], ["again"]),
        ],
        "body",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("c", 9, [])],
        [helper.make_tensor_value_info("again", 9, []), helper.make_tensor_value_info("u", 1, [3])],
    )
    nodes = [
        helper.make_node("Loop", ["n", ""], ["all"], body=body),
        helper.make_node("RandomUniformLike", ["all"], ["other"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("n", 7, [])],
        [
            helper.make_tensor_value_info("all", 1, None),
            helper.make_tensor_value_info("other", 1, None),
        ],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    ).SerializeToString()


def test_rounds_of_a_loop_draw_different_numbers():
    feeds = {"n": np.array(5)}
    a, b = session(3, looped()), session(3, looped())
    for _ in range(2):
        first, again = a.run(None, feeds), b.run(None, feeds)
        assert (
            all(map(np.array_equal, first, again))
            and len(np.unique(np.concatenate([x.ravel() for x in first]))) == 30
        )


# ---- outputs that are inputs ----
def passing(dtype=1):
    """The output `present` is the input `past`, after a branch that is resolved when the plan is
    made.
    """
    branches = {}
    for name, nodes in (
        ("then_branch", [helper.make_node("Identity", ["past"], ["p"])]),
        ("else_branch", [helper.make_node("Add", ["past", "past"], ["p"])]),
    ):
        branches[name] = helper.make_graph(
            nodes, name, [], [helper.make_empty_tensor_value_info("p")]
        )
    nodes = [
        helper.make_node("If", ["use_cache_branch"], ["present"], **branches),
        helper.make_node("Mul", ["x", "past"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", dtype, [2]),
            helper.make_tensor_value_info("past", dtype, [2]),
            helper.make_tensor_value_info("use_cache_branch", 9, [1]),
        ],
        [
            helper.make_tensor_value_info("present", dtype, [2]),
            helper.make_tensor_value_info("y", dtype, [2]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def plan_of(model, **known):
    from edgewise.compiler.compile import add_inference_plan, inference_package
    from edgewise.onnx import read_model

    graph = read_model(BytesSource(model.SerializeToString(), "m.onnx"))
    package = inference_package(graph, {})
    return add_inference_plan(
        package,
        graph,
        {i.name: list(i.shape) for i in graph.input_names()},
        {i.name: i.dtype for i in graph.input_names()},
        known=known,
    )


@pytest.mark.parametrize("dtype", [1, 10])
def test_a_plan_does_not_compute_what_was_fed(dtype):
    described = plan_of(passing(dtype), use_cache_branch=[True])
    assert (
        described["passed"] == {"present": "past"}
        and list(described["outputs"]) == ["y"]
        and "seed" not in described
    )
    assert "passed" not in plan_of(passing(dtype), use_cache_branch=[False])
    s = edgewise.InferenceSession(passing(dtype).SerializeToString())
    feeds = {"x": np.array([1, 2], "f4"), "past": np.array([3, 4], "f4")}
    feeds = {n: v.astype({1: "f4", 10: "f2"}[dtype]) for n, v in feeds.items()}
    for use in (True, False, True):
        present, y = s.run(None, {**feeds, "use_cache_branch": np.array([use])})
        assert (
            present.dtype == y.dtype == feeds["past"].dtype
            and y.tolist() == [3, 8]
            and present.tolist() == ([3, 4] if use else [6, 8])
        )


def test_packages_say_so():
    package = compile_inference({"m.onnx": BytesSource(MODEL, "m.onnx")}, [{"n": 2}])
    (plan,) = package.manifest["inference"]["plans"]
    assert plan["passed"] == {"z": "x"} and list(plan["outputs"]) == ["a", "b"]
    assert [s["bytes"] for s in plan["slots"] if s["name"] == plan["seed"]] == [8]

    def written():
        out = io.BytesIO()
        package.write(out)
        return Package.read(BytesSource(out.getvalue(), "m.edge"))

    assert written().manifest["inference"]["plans"] == [json.loads(json.dumps(plan))]
    for change in (
        {"passed": {"z": "q"}},
        {"passed": {"a": "x"}},
        {"passed": []},
        {"seed": "x"},
        {"seed": "a"},
        {"seed": 1},
    ):
        before = dict(plan)
        plan.update(change)
        with pytest.raises(PackageError, match="passed|seed"):
            written()
        plan.clear()
        plan.update(before)
