"""Weights of float32 that float16 holds exactly: they are stored as float16, and results stay."""

import io
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise.compiler.compile import half_weights
from edgewise.compiler.compile.half_weights import mark_half_weights, power_of
from edgewise.compiler.compile.seq2seq import compile_seq2seq
from edgewise.compiler.onnx.half_source import HalfSource
from edgewise.compiler.onnx.halves import exponents, halves
from edgewise.compiler.plan import compile_graph
from edgewise.errors import ModelError
from edgewise.host.session.open import folder_files
from edgewise.host.session.seq2seq import Seq2SeqModel
from edgewise.ir import Tensor
from edgewise.onnx import BytesSource, read_model
from edgewise.package import Package
from engines import ENGINES, open_engine
from onnx import TensorProto, helper, numpy_helper
from ops.training.steps import run_plan

WHISPER = Path(__file__).parent / "models" / "whisper"
EVERY = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
NORMAL = EVERY[(EVERY == 0) | (np.abs(EVERY) >= 2**-14) & np.isfinite(EVERY)]


def of(values):
    data = np.asarray(values, np.float32).tobytes()
    return Tensor("t", 1, (len(data) // 4,), BytesSource(data), 0, len(data))


@pytest.mark.parametrize("power", [-100, -3, 0, 7, 111])
def test_every_number(power):
    floats = np.ldexp(NORMAL.astype(np.float32), -power)
    assert halves(floats.tobytes(), power) == NORMAL.tobytes()
    assert exponents(floats.tobytes()) == (113 - power, 142 - power)
    assert power_of(of(floats)) == power


def test_numbers_that_are_not_exact_are_found():
    for x in (2**-15, 65536, 1 + 2**-11, np.inf, np.nan, 1e-40):
        for at in (0, 3, 9):
            values = np.full(10, 2, np.float32)
            values[at] = -x
            assert halves(values.tobytes(), 0) is None
            source = HalfSource(BytesSource(values.tobytes()), 0, 20, 0)
            with pytest.raises(ModelError, match="no longer"):
                source.read(0, 20)
    for x in (1 + 2**-11, np.inf, np.nan, 1e-40, 2**30):
        assert power_of(of([0, x, 1])) is None
    assert power_of(of([0, -0.0])) == 0
    assert power_of(of([2**-24, 1.5])) == 10 and power_of(of([2.0**20])) == -5


def graph_of(w, turned, rows):
    nodes = [
        helper.make_node("Gemm", ["a", "w"], ["y"], transB=turned, alpha=0.5),
        helper.make_node("Gather", ["w", "i"], ["rows"]),
        helper.make_node("Neg", ["w"], ["wide"]),
    ]
    k, n = w.shape[::-1] if turned else w.shape
    float32 = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("a", float32, [rows, k]),
            helper.make_tensor_value_info("i", TensorProto.INT64, [2]),
        ],
        [
            helper.make_tensor_value_info("y", float32, [rows, n]),
            helper.make_tensor_value_info("rows", float32, [2, w.shape[1]]),
            helper.make_tensor_value_info("wide", float32, w.shape),
        ],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("turned", [0, 1])
def test_kernels(name, turned):
    """One row and several; lengths that fill no vector; large numbers; other readers of w."""
    random = np.random.default_rng(turned)
    for rows, k, n, large in (
        (1, 203, 77, 1),
        (1, 203, 77, 1e6),
        (1, 5, 7, 1),
        (1, 3100, 20, 1),
        (3, 203, 77, 1),
        (17, 40, 50, 1),
    ):
        w = np.ldexp(random.integers(-2047, 2048, (k, n)), random.integers(-24, -10, (k, n)))
        w = np.ascontiguousarray(w.T if turned else w, np.float32).astype(np.float16)
        w[0, 0], w[1, 1] = 0, -0.0
        w = w.astype(np.float32)
        model = graph_of(w, turned, rows)
        graph = read_model(BytesSource(model))
        (t,) = graph.constants.values()
        t.power = power_of(t)
        assert t.power
        plan, _ = compile_graph(graph, {"a": (rows, k), "i": (2,)})
        (slot,) = (s for s in plan.slots if s.kind == "weight")
        assert slot.nbytes == 2 * w.size
        stored = np.frombuffer(halves(w.tobytes(), t.power), np.float16).copy()
        feeds = {
            "a": random.standard_normal((rows, k)).astype(np.float32) * np.float32(large),
            "i": np.array([1, -1]),
        }
        (got,) = run_plan(open_engine(name), plan, feeds, {slot.name: stored})
        wanted = onnxruntime.InferenceSession(model).run(None, feeds)
        np.testing.assert_allclose(got["y"], wanted[0], atol=1e-5 * large, rtol=1e-5)
        np.testing.assert_array_equal(got["rows"], wanted[1])
        np.testing.assert_array_equal(got["wide"], wanted[2])


@pytest.fixture
def rounded(tmp_path):
    """A folder of the tiny Whisper whose decoder's numbers are halves."""
    shutil.copytree(WHISPER, tmp_path / "model")
    file = next((tmp_path / "model").rglob("decoder_model_merged.onnx"))
    model = onnx.load(file)
    graphs = [model.graph]
    graphs += [a.g for n in model.graph.node for a in n.attribute if a.HasField("g")]
    for t in (t for g in graphs for t in g.initializer if t.data_type == 1):
        values = numpy_helper.to_array(t).astype(np.float16).astype(np.float32)
        t.CopyFrom(numpy_helper.from_array(values, t.name))
    onnx.save(model, file)
    return tmp_path / "model"


PROMPTS = ([101, 102], [5], [9])


def logits_of(package, engine, values):
    model = Seq2SeqModel(package, engine=open_engine(engine))
    sequence = model.open_on(model.encode(values))
    found = [np.array(model.logits(model.forward(sequence, ids))) for ids in PROMPTS]
    model.free()
    return found


def of_onnxruntime(folder, values):
    """Logits after each prompt, without a cache."""
    encoder, decoder = (
        onnxruntime.InferenceSession(folder / "onnx" / f"{name}.onnx")
        for name in ("encoder_model", "decoder_model_merged")
    )
    feeds = {"encoder_hidden_states": encoder.run(None, {"input_features": values})[0]}
    for info in decoder.get_inputs()[2:]:
        if info.name.startswith("past"):
            feeds[info.name] = np.zeros([1, info.shape[1], 1, info.shape[3]], np.float32)
    ids, found = [], []
    for more in PROMPTS:
        ids += more
        found.append(
            decoder.run(
                ["logits"],
                {**feeds, "input_ids": np.array([ids]), "use_cache_branch": np.array([False])},
            )[0][0, -1]
        )
    return found


def test_logits_are_those_of_onnxruntime(rounded, monkeypatch):
    monkeypatch.setattr(half_weights, "MIN", 1)
    files = folder_files(rounded)[0]
    values = np.random.default_rng(1).standard_normal((1, 8, 100)).astype(np.float32)
    wanted = of_onnxruntime(rounded, values)
    plain = compile_seq2seq(files, halves=False)
    package = compile_seq2seq(files)
    powers = [w["bytes"] for w in package.manifest["weights"] if "power" in w]
    less = sum(w["bytes"] for w in plain.manifest["weights"]) - sum(
        w["bytes"] for w in package.manifest["weights"]
    )
    assert len(powers) > 10 and less == sum(powers)
    for engine in ENGINES:
        for got, want in zip(logits_of(package, engine, values), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    # a package that is written has the float16 numbers themselves
    written = io.BytesIO()
    package.manifest |= {"programs": {}, "processor": {}}
    package.write(written)
    opened = Package.read(BytesSource(written.getvalue(), "x.edge"))
    assert not any("power" in w for w in opened.manifest["weights"])
    for got, want in zip(logits_of(opened, "native", values), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_weights_that_are_no_halves_stay(monkeypatch):
    monkeypatch.setattr(half_weights, "MIN", 1)
    source = folder_files(WHISPER)[0]["onnx/decoder_model_merged.onnx"]
    graph = read_model(source)
    mark_half_weights(graph)
    assert all(t.power is None for t in graph.constants.values())
