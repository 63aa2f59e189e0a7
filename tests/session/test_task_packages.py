"""Packages of pipelines: weights of several graphs, lengths, errors."""

import io

import numpy as np
import pytest
from edgewise.compiler.compile.programs import Programs
from edgewise.errors import EdgewiseError
from edgewise.onnx import BytesSource, read_model
from edgewise.package import Package
from edgewise.task_package import compile_task

from tests.hostile.packages import task
from tests.hostile.seeds import F, I, c, model, node, value

W, V = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)


def product(weight, name="w", out="y"):
    nodes = [node("MatMul", f"x {name}", out)]
    return model(nodes, [value("x", F, (1, 64))], [value(out, F, (1, 64))], [c(name, weight)])


@pytest.mark.parametrize("compare", [True, False])
def test_equal_weights_are_stored_once_and_others_apart(compare):
    """Three files: the same weight twice, under two names, and another one of the same name."""
    given = {"a": product(W), "b": product(W, "other"), "c": product(V)}
    files = {f"{name}.onnx": BytesSource(data, f"{name}.onnx") for name, data in given.items()}
    programs = Programs("feature-extraction", files, {}, compare=compare)
    for name in given:
        programs.add(name, read_model(files[f"{name}.onnx"]), [({"x": [1, 64]}, None)])
    out = io.BytesIO()
    programs.package.write(out)
    read = Package.read(BytesSource(out.getvalue(), "tasks.edge"))
    assert list(read.manifest["programs"]) == list(given)
    names = {}
    for name, program in read.manifest["programs"].items():
        slots = [s for plan in program["plans"] for s in plan["slots"] if s["kind"] == "weight"]
        [names[name]] = {s["name"] for s in slots}
    assert (names["a"] == names["b"]) == compare and names["c"] != names["a"]
    weights = {w["name"]: w for w in read.manifest["weights"]}
    assert len(weights) == (2 if compare else 3)
    for name, want in (("a", W), ("b", W), ("c", V)):
        place = weights[names[name]]
        data = read.source("weights").read(place["offset"], place["bytes"])
        assert np.array_equal(np.frombuffer(data, np.float32).reshape(64, 64), want)


def test_equal_weights_of_one_graph_have_slots_of_their_own():
    """As the zero points of a model that is quantized by channels."""
    nodes = [node("MatMul", "x v", "z"), node("MatMul", "z w", "y")]
    data = model(nodes, [value("x", F, (1, 64))], [value("y", F, (1, 64))], [c("v", W), c("w", W)])
    files = {name: BytesSource(data, name) for name in ("a.onnx", "b.onnx")}
    programs = Programs("feature-extraction", files, {})
    for name in "ab":
        programs.add(name, read_model(files[f"{name}.onnx"]), [({"x": [1, 64]}, None)])
    out = io.BytesIO()
    programs.package.write(out)
    read = Package.read(BytesSource(out.getvalue(), "tasks.edge"))  # which checks it
    assert len(read.manifest["weights"]) == 2


def test_a_text_has_one_plan_for_all_lengths():
    package = task()
    plan, one = package.manifest["programs"]["model"]["plans"]  # no mask: a token cannot be padded
    assert plan["register"] == (2, 16) and plan["inputs"]["input_ids"][1] == [1, [1, 0]]
    assert one["inputs"]["input_ids"][1] == [1, 1]
    assert package.manifest["processor"] == {"text": {"max_length": 16}}


def test_the_number_of_positions_limits_the_length():
    nodes = [
        node("Shape", "input_ids", "shape"),
        node("Gather", "shape one", "n"),
        node("Unsqueeze", "n zero", "end"),
        node("Slice", "table zero end", "positions"),
        node("Gather", "words input_ids", "e"),
        node("Add", "e positions", "last_hidden_state"),
    ]
    graph = model(
        nodes,
        [value("input_ids", I, ("b", "s"))],
        [value("last_hidden_state", F, ("b", "s", 64))],
        [c("one", 1, np.int64), c("zero", [0], np.int64), c("table", W[:40]), c("words", V)],
    )
    files = {
        "model.onnx": BytesSource(graph),
        "config.json": BytesSource(b'{"max_position_embeddings": 40}'),
    }
    package = compile_task(files, "embeddings")
    assert package.manifest["processor"]["text"]["max_length"] == 40
    config = b'{"max_position_embeddings": 40, "model_type": "roberta", "pad_token_id": 1}'
    package = compile_task({**files, "config.json": BytesSource(config)}, "embeddings")
    assert package.manifest["processor"]["text"]["max_length"] == 38


@pytest.mark.parametrize(
    "name, options, words",
    [
        ("nonsense", {}, "there are no packages"),
        ("question-answering", {}, "start_logits"),
        ("feature-extraction", {"max_length": 1}, "not a valid length"),
        ("image-classification", {}, "preprocessor_config.json"),
        ("feature-extraction", {"file": product(W)}, "its outputs are y"),
        ("feature-extraction", {"file": product(W, out="logits")}, "input 'x'"),
    ],
)
def test_errors(name, options, words):
    file = options.pop("file", None)
    source = BytesSource(file) if file else task().sources["model.onnx"]
    with pytest.raises(EdgewiseError, match=words):
        compile_task({"model.onnx": source}, name, **options)
