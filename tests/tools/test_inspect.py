"""`edgewise inspect`: the report matches the running model, and nothing is run for it."""

import contextlib
import json
import random
from pathlib import Path

import edgewise
import numpy as np
import onnx
import pytest
from edgewise import cli
from edgewise.compiler.ops import OPS
from edgewise.errors import EdgewiseError, InputError, ModelError
from edgewise.host import engine
from edgewise.inspect import inspect
from edgewise.onnx import BytesSource
from engines import open_engine
from hostile.damage_onnx import Damage
from hostile.seeds import F, c, model, node, real, small, value
from onnx import helper
from tiers import ALL, slow_unless
from zoo.zoo import models


@pytest.fixture(autouse=True)
def nothing_runs(request, monkeypatch):
    """No engine may be opened by what is tested here."""
    if "measured" not in request.node.name:
        monkeypatch.setattr(
            engine, "default_engine", lambda *a: pytest.fail("an engine was opened")
        )
        monkeypatch.setattr(engine, "open_engine", lambda *a: pytest.fail("an engine was opened"))


NUMBERS = {m: i for i, m in enumerate(models())}


@pytest.fixture(params=slow_unless(lambda m: NUMBERS[m] % 3 == 0, models()), ids=repr)
def report(request):
    m = request.param
    values = {n: x.reshape(-1).tolist() for n, x in m.feeds.items() if n == "use_cache_branch"}
    return m, inspect(
        str(m.path), shapes={n: list(x.shape) for n, x in m.feeds.items()}, values=values
    )


def test_zoo(report):
    """Every model is supported; its outputs have the shapes they turn out to have, the memory holds
    at least the weights that are used, and gradients reach what looks trainable.
    """
    m, r = report
    assert not r.unsupported and not r.problem and not r.needs
    assert [i.name for i in r.inputs] == [i.name for i in m.graph.input_names()]
    assert r.memory.outputs == {
        n: list(x.shape) for n, x in m.expected.items() if n in r.memory.outputs
    } and set(m.expected) <= set(r.memory.outputs)
    initializers = onnx.load(m.path).graph.initializer
    assert (r.parameters.all.tensors, r.parameters.all.elements) == (
        len(initializers),
        sum(int(np.prod(t.dims)) for t in initializers),
    )
    assert 0 < r.memory.inputs_and_outputs and sum(r.memory.kernels.values()) == r.memory.steps > 0
    if r.gradients is not None and m.name not in (
        "legacy_yolo_op17/model",
        "sd15_safety_checker_legacy/model",
    ):  # boxes as float64; yes or no
        assert r.gradients.reached
    assert json.loads(json.dumps(r.as_dict()))["memory"]["total"] == r.memory.total
    assert str(r).count("\n") >= 6


def perceptron(rows="batch", width=512):
    rng = np.random.default_rng(0)
    w = [c(f"layer{k}.weight", rng.standard_normal((width, width))) for k in range(2)]
    return model(
        [
            node("MatMul", "x layer0.weight", "h", name="first"),
            node("Tanh", "h", "t", name="bend"),
            node("MatMul", "t layer1.weight", "y", name="second"),
        ],
        [value("x", F, (rows, width))],
        [value("y", F, (rows, width))],
        w,
    )


def test_measured():
    """What a WebAssembly heap grows by when the model is loaded and run is what was foretold, but
    for the heap's own pages.
    """
    e = open_engine("wasm-simd128")
    r = inspect(perceptron(), dims={"batch": 2048})
    session = edgewise.InferenceSession(perceptron(), engine=e)
    free = e.alloc(1 << 16)
    before = e.memory_bytes
    session.run(None, {"x": np.zeros((2048, 512), np.float32)})
    grown = e.memory_bytes - before
    e.free(free)
    assert r.memory.weights == 2 * 4 * 512**2 and r.memory.inputs_and_outputs == 2 * 4 * 2048 * 512
    assert grown <= 1.3 * r.memory.total + (2 << 20), (grown, r.memory)
    slots = [s for compiled in session.plans.values() for s in compiled.plan.slots]
    assert (
        sum(s.nbytes for s in slots)
        + next(iter(session.plans.values())).plan.arena_bytes
        + r.memory.plan
        == r.memory.total
    )
    session.free()


def test_dimensions():
    r = inspect(perceptron())
    assert r.needs == ["batch"] and r.memory is None and "batch" in r.problem and "--dims" in str(r)
    small_one, large_one = (inspect(perceptron(), dims={"batch": n}).memory for n in (1, 1000))
    assert small_one.outputs == {"y": [1, 512]} and large_one.outputs == {"y": [1000, 512]}
    assert large_one.total > small_one.total and large_one.weights == small_one.weights
    assert inspect(perceptron(), shapes={"x": [7, 512]}).memory.outputs == {"y": [7, 512]}
    assert inspect(perceptron(3)).memory.outputs == {"y": [3, 512]}, (
        "fixed dimensions need no saying"
    )


def test_dimensions_that_are_expressions():
    data = model(
        [node("Concat", "past new", "y", axis=0)],
        [value("past", F, ("past", 4)), value("new", F, ("2*(past + rest)//3", 4))],
        [value("y", F, None)],
    )
    assert inspect(data).needs == ["past", "rest"]
    assert inspect(data, dims={"past": 4}).needs == ["rest"]
    assert inspect(data, dims={"past": 4, "rest": 5}).memory.outputs == {"y": [10, 4]}


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').abort()",
        "b ** b ** b",
        "b // 0",
        "(" * 4000,
        "b" * 4_000,
        "[b for b in b]",
        "-b",
        "b - 9",
        "b.real",
        "1e999",
        "\0",
    ],
)
def test_dimensions_are_no_programs(text):
    r = inspect(
        model([node("Relu", "x", "y")], [value("x", F, ("b", text))], [value("y", F, None)]),
        dims={"b": 3},
    )
    assert r.memory is None and r.needs and len(str(r)) < 5000


def test_what_is_asked_wrongly():
    for arguments in (
        {"dims": {"rows": 1}},
        {"dims": {"batch": -1}},
        {"dims": {"batch": 1.5}},
        {"dims": {"batch": 1 << 50}},
        {"shapes": {"z": [1]}},
        {"shapes": {"x": [1, 2, 3]}},
        {"shapes": {"x": [1, 2]}},
        {"shapes": {"x": "1x512"}},
        {"values": {"z": [1]}},
        {"length": 0},
        {"length": "long"},
    ):
        with pytest.raises(InputError):
            inspect(perceptron(), **arguments)
    with pytest.raises(ModelError):
        inspect(b"no model")


def test_operators():
    body = [
        node("Relu", "a", "b"),
        helper.make_node("Nonsense", ["b"], ["c"], domain="some.where", name="inner"),
    ]
    f = helper.make_function(
        "local",
        "F",
        ["a"],
        ["c"],
        body,
        [helper.make_opsetid("", 18), helper.make_opsetid("some.where", 3)],
    )
    r = inspect(
        model(
            [
                helper.make_node("F", ["x"], ["h"], domain="local"),
                node("Add", "h h", "y"),
                node("Unheard", "y", "z", name="odd"),
            ],
            [value("x")],
            [value("z", F, None)],
            functions=[f],
        )
    )
    by_name = {o.full_name: o for o in r.operators}
    assert (
        by_name["local.F"].function and by_name["local.F"].supported and by_name["Add"].opset == 18
    )
    assert {o.full_name: o.nodes for o in r.unsupported} == {
        "some.where.Nonsense": ["inner"],
        "Unheard": ["odd"],
    }
    assert (
        "not supported: Unheard (1 nodes: 'odd'), some.where.Nonsense (1 nodes: 'inner')" in str(r)
        and r.memory is None
        and r.gradients is None
    )


def test_operators_of_branches():
    with pytest.raises(StopIteration):
        next(o for o in inspect(small()["if"][0]).unsupported)
    then = helper.make_graph(
        [node("Unheard", "x", "t", name="there")], "then", [], [value("t", F, None)]
    )
    other = helper.make_graph([node("Relu", "x", "t")], "else", [], [value("t", F, None)])
    r = inspect(
        model(
            [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
            [value("x"), value("c", onnx.TensorProto.BOOL, ())],
            [value("y", F, None)],
        )
    )
    assert [o.nodes for o in r.unsupported] == [["there"]]


def test_numbers_that_shapes_depend_on():
    data = model(
        [node("Expand", "x shape", "y")],
        [value("x", F, (1, 4)), value("shape", onnx.TensorProto.INT64, (2,))],
        [value("y", F, None)],
    )
    assert inspect(data, values={"shape": [6, 4]}).memory.outputs == {"y": [6, 4]}


def test_gradients(monkeypatch):
    assert inspect(perceptron(), dims={"batch": 2}).gradients.reached == 2
    r = inspect(perceptron())
    assert r.gradients.reached == 2 and not r.gradients.missing, (
        "the graph's structure does not depend on the batch"
    )
    monkeypatch.setattr(OPS["", "Tanh"], "grad_fn", None)
    r = inspect(perceptron(), dims={"batch": 2})
    assert (
        r.gradients.missing == {"Tanh": ["bend"]}
        and r.gradients.reached == 1
        and not r.gradients.refused
    )
    assert "reach 1 of 2 parameters; none through Tanh (1 nodes: 'bend')" in str(r)
    assert inspect(perceptron(), gradients=False).gradients is None


def test_gradients_that_are_refused():
    from edgewise.compiler.declare.op import unsupported

    tanh = OPS["", "Tanh"]
    before = tanh.grad_fn
    tanh.grad_fn = lambda n, g, dy: unsupported(n, "not on a Sunday")
    try:
        r = inspect(perceptron(), dims={"batch": 2})
    finally:
        tanh.grad_fn = before
    assert (
        r.gradients.missing == {"Tanh": ["bend"]}
        and r.gradients.refused == {"Tanh": "not on a Sunday"}
        and "Sunday" in str(r)
    )


def test_language_models():
    lm = next(
        m
        for m in models()
        if m.name.startswith("models/")
        and m.is_causal_lm
        and any("past" in i.name for i in m.graph.input_names())
    )
    cache = inspect(str(lm.path), length=100).cache
    key = next(i for i in lm.feeds if "past" in i)
    shape = lm.feeds[key].shape
    assert (
        cache.length == 100
        and cache.bytes == 100 * cache.bytes_per_token
        and cache.dtype == lm.feeds[key].dtype.name
        and cache.bytes_per_token == cache.tensors * lm.feeds[key].itemsize * shape[1] * shape[3]
    )
    compiled = edgewise.CausalLM(str(lm.path), capacity=64, engine=open_engine("native"))
    assert sum(x["bytes"] for x in compiled.caches) == 64 * cache.bytes_per_token
    compiled.free()
    assert inspect(perceptron()).cache is None


def test_command(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    path.write_bytes(perceptron())
    assert cli.main(["inspect", str(path), "--dims", "batch=8", "--parameters"]) == 0
    out = capsys.readouterr().out
    assert (
        "input x: float32 [batch, 512]" in out
        and "output y: float32 [batch, 512], here [8, 512]" in out
        and "parameter layer1.weight: float32 [512, 512]" in out
        and "not supported: none" in out
    )
    assert cli.main(["inspect", str(path), "--shape", "x=8x512", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory"]["outputs"] == {"y": [8, 512]}
    merged = next((m for m in models() if "use_cache_branch" in m.feeds), None)
    if merged is not None:
        shapes = [
            a
            for n, x in merged.feeds.items()
            for a in ("--shape", f"{n}={'x'.join(map(str, x.shape))}")
        ]
        assert (
            cli.main(["inspect", str(merged.path), *shapes, "--value", "use_cache_branch=true"])
            == 0
        )
        assert cli.main(["inspect", str(merged.path), *shapes]) in (0, 1)
        capsys.readouterr()
    for wrong in (
        ["--dims", "batch"],
        ["--dims", "batch=many"],
        ["--dims", "rows=1"],
        ["--shape", "x=8,512"],
        ["--shape", "=1"],
        ["--value", "x=zero"],
        ["--length", "0"],
    ):
        assert cli.main(["inspect", str(path), *wrong]) == 1, wrong
        said = capsys.readouterr()
        assert not said.out and said.err.startswith("edgewise: ") and said.err.count("\n") == 1


def test_names_from_files_stay_on_their_line():
    evil = "x\n\x1b[31mred\r" + "y" * 500
    r = inspect(
        model(
            [helper.make_node("Relu", [evil], ["y"], name=evil)],
            [value(evil)],
            [value("y", F, None)],
        )
    )
    assert "\x1b" not in str(r) and max(map(len, str(r).split("\n"))) < 400


def test_damaged_models(monkeypatch):
    """As in tests/hostile: only an EdgewiseError, whatever the file contains."""
    # damage_onnx.py imports its neighbours by name.
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "hostile")
    seeds, outcomes = {**small(), **real()}, {"told": 0, "refused": 0}
    for i in range(500 if ALL else 200):
        damage = Damage(random.Random(i), seeds)
        damage.make()
        with contextlib.suppress(EdgewiseError):
            outcomes["refused"] += 1
            source = BytesSource(damage.data or b"\0", "model.onnx", damage.siblings)
            needed = inspect(source, gradients=False).needs
            source = BytesSource(damage.data, "model.onnx", damage.siblings)
            report = inspect(
                source, dims={n: 2 for n in needed if not n.startswith("the shape of ")}
            )
            assert str(report) and json.dumps(report.as_dict())
            outcomes["told"] += 1
    assert outcomes["told"] > 50 and outcomes["refused"] - outcomes["told"] > 50, outcomes


def test_the_command_tells_its_version(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0 and capsys.readouterr().out == f"edgewise {edgewise.__version__}\n"


def test_states_of_a_hybrid_model():
    from tests.generation.hybrid import hybrid_model

    model = hybrid_model("genai")
    r = inspect(model.SerializeToString(), length=100)
    states = {s.name: s.shape for s in r.cache.states}
    assert states["past.0.conv"] == [1, 16, 2] and states["past.1.recurrent"] == [1, 16]
    assert states["past_key_values.2.key"] == [1, 2, "tokens", 8]
    assert r.cache.fixed_bytes == 4 * (32 + 16) and r.cache.bytes_per_token == 2 * 4 * 16
    assert r.cache.bytes == 100 * r.cache.bytes_per_token + r.cache.fixed_bytes
    assert "past.0.conv [1, 16, 2]" in str(r) and r.why_no_text == ""
    del model.graph.output[1]
    r = inspect(model.SerializeToString())
    assert r.cache is None and "'past.0.conv' of float32[1, 16, 2]" in r.why_no_text
    assert "text generation: no" in str(r)


def test_a_decoder_of_embeddings():
    from tests.generation.hybrid import hybrid_model, split_at_embeddings

    embedding, decoder = (m.SerializeToString() for m in split_at_embeddings(hybrid_model()))
    r = inspect(decoder)
    assert r.file_beside == "embed_tokens.onnx" and r.why_no_text == ""
    assert [s.name for s in r.cache.states if "tokens" not in s.shape] == [
        "past_conv.0",
        "past_recurrent.1",
    ]
    assert "with embed_tokens.onnx of the same export beside it" in str(r)
    assert inspect(embedding).file_beside == ""


def test_a_window_of_fixed_length():
    from tests.generation.hybrid import hybrid_model

    model = hybrid_model("transformers")
    keys = next(i for i in model.graph.input if i.name.endswith("keys"))
    keys.type.tensor_type.shape.dim[2].dim_value = 7
    grown = next(o for o in model.graph.output if o.name.endswith("keys"))
    grown.type.tensor_type.shape.dim[2].dim_param = "tokens + 7"
    r = inspect(model.SerializeToString())
    assert "'input.cache.layers.2.keys'" in r.why_no_text and "[1, 2, tokens + 7, 8]" in str(r)


def test_families_of_language_models(tmp_path):
    """States of all, with the configuration beside the file, and the embedding that some need."""
    from tests.generation.test_families import EXPECTED, stored

    for name in EXPECTED:
        files = stored(name)
        for file, content in files.items():
            (tmp_path / file).write_bytes(content)
        file = next(f for f in files if f in ("model.onnx", "decoder_model_merged.onnx"))
        r = inspect(tmp_path / file, gradients=False)
        assert r.why_no_text == "" and r.cache is not None and r.cache.states, name
        assert bool(r.file_beside) == ("embed_tokens.onnx" in files)
    assert "text generation: no" not in str(r)
