"""Models on a GPU: a language model, training, errors, and steps that stay on the processor."""

import numpy as np
import pytest
from bench import models
from edgewise import InferenceSession, open_engine
from edgewise.compiler.compile import compile_package
from edgewise.compiler.targets import target_of
from edgewise.engine.native import NativeEngine
from edgewise.errors import EngineError, InputError
from edgewise.host.session.open import folder_files
from edgewise.host.webgpu import WebGPUEngine, compare
from edgewise.session.decoder import DecoderModel
from edgewise.training.session import TrainingSession
from onnx import TensorProto, helper, numpy_helper
from training.zoo import ZooCase, cases
from zoo.zoo import OWN

from .adapters import gpu, prepare

RNG = np.random.default_rng(5)


def greedy(engine, path, tokens=8, chunks=(1, 4)):
    """([token], [logits], [plan]) after a prompt of five tokens, in chunks of these sizes."""
    files, _ = folder_files(path)
    target = target_of(engine.device)
    made = compile_package(files, capacity=32, chunks=chunks, model_file=path.name, target=target)
    lm = DecoderModel(made, engine=engine)
    sequence, part, ids, logits = lm.open(), [3, 17, 5, 29, 11], [], []
    for _ in range(tokens):
        logits.append(np.array(lm.logits(lm.forward(sequence, part))))
        part = [int(logits[-1].argmax())]
        ids += part
    plans = [{**plan.info, "takers": takers(plan)} for plan in getattr(engine, "plans", [])]
    lm.free()
    return ids, logits, plans


def takers(plan):
    """Numbers of steps that take results in the dispatch of the products before them."""
    return [x.takers for x in plan.launches if x and x.takers]


def test_greedy_tokens_of_a_4_bit_language_model():
    path = next((OWN / "q4_llama").rglob("*.onnx"))
    want, want_logits, _ = greedy(NativeEngine(threads=1), path)
    got, got_logits, plans = greedy(gpu(), path)
    assert got == want
    for g, w in zip(got_logits, want_logits):
        assert np.abs(g - w).max() <= 1e-4 * np.abs(w).max()
    assert len(plans) == 2 and all(not p["onCpu"] and not p["downloads"] for p in plans)


def test_one_head_of_keys(tmp_path):
    """Its rotation and the copy of its values run with the products before them, too."""
    shape = {"width": 128, "heads": 2, "kv_heads": 1, "head_dim": 64, "inner": 32, "vocab": 40}
    path = tmp_path / "model.onnx"
    model = models.language_model(**{**models.SMOLLM2, **shape, "layers": 1})
    path.write_bytes(models.in_4_bits(model).SerializeToString())
    want, want_logits, _ = greedy(NativeEngine(threads=1), path, 2, (1,))
    got, got_logits, plans = greedy(gpu(), path, 2, (1,))
    assert got == want
    for g, w in zip(got_logits, want_logits):
        assert np.abs(g - w).max() <= 1e-4 * np.abs(w).max()
    assert [plan["takers"] for plan in plans] == [[3]]


@pytest.fixture(scope="module")
def trained():
    """(losses, states) of three steps of a small model on the processor and on the GPU."""
    case, out = ZooCase(cases()["mlp_clipnorm_ce_adamw"]), []
    for engine in (NativeEngine(threads=1), gpu()):
        session = TrainingSession(case.program(target=target_of(engine.device)), engine)
        losses = [session.train(case.feeds(), case.spec["lr"])["loss"] for _ in range(3)]
        out.append((session, losses, states(session)))
    return case, out


def states(session):
    return {
        name: np.frombuffer(session.device.read(buffer), np.float32)
        for name, buffer in session.memory.items()
        if buffer.nbytes % 4 == 0 and "step" not in name
    }


def test_training_steps(trained):
    _, [(_, want, wanted), (_, got, found)] = trained
    np.testing.assert_allclose(got, want, rtol=1e-5)
    for name, x in found.items():
        scale = np.abs(wanted[name]).max(initial=1e-6)
        assert np.abs(x - wanted[name]).max(initial=0) <= 1e-4 * scale, name


def test_a_label_out_of_range_changes_no_parameter(trained):
    case, [(cpu, _, _), (on_gpu, _, _)] = trained
    feeds = case.feeds()
    feeds["labels"] = np.full_like(feeds["labels"], 77)
    before = states(on_gpu)
    messages = []
    for session in (cpu, on_gpu):
        with pytest.raises(InputError) as e:
            session.train(feeds, case.spec["lr"])
        messages.append(str(e.value))
    assert messages[0] == messages[1] and "77" in messages[0]
    after = states(on_gpu)
    assert all(np.array_equal(after[name], x) for name, x in before.items())
    # the session can be used again
    assert np.isfinite(on_gpu.train(case.feeds(), case.spec["lr"])["loss"])


def test_compare_finds_the_step(trained):
    _, [_, (on_gpu, _, _)] = trained
    loaded = on_gpu.loaded["train"]
    assert compare(loaded) == []
    everything = compare(loaded, everything=True)
    assert {d.kernel for d in everything} >= {"gemm", "optimizer", "cross_entropy"}
    # a shader that is wrong: the record of a product points to other elements of its input
    index = next(i for i, step in enumerate(loaded.steps) if step.kernel.name == "gemm")
    data = on_gpu.engine.gpu.device.queue.read_buffer(loaded.records, 256 * index, 144)
    wrong = np.frombuffer(data, np.uint32).copy()
    wrong[0] += 1
    on_gpu.engine.gpu.device.queue.write_buffer(loaded.records, 256 * index, wrong)
    found = compare(loaded)
    assert [d.step for d in found] == [index] and found[0].error > found[0].bound
    on_gpu.engine.gpu.device.queue.write_buffer(loaded.records, 256 * index, data)


def model(nodes, inputs, weights=()):
    infos = [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs]
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(nodes, "g", infos, [y], list(weights))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return made.SerializeToString()


def test_an_index_out_of_range():
    table = numpy_helper.from_array(RNG.standard_normal((9, 40)).astype(np.float32), "table")
    nodes = [helper.make_node("Gather", ["table", "i"], ["y"], name="embedding")]
    data = model(nodes, [("i", TensorProto.INT64, [3])], [table])
    messages = []
    for engine in (NativeEngine(threads=1), gpu()):
        session = InferenceSession(data, engine=engine)
        with pytest.raises(InputError) as e:
            session.run(None, {"i": np.array([1, -12, 2])})
        messages.append(str(e.value))
        (y,) = session.run(None, {"i": np.array([1, -1, 2])})
        np.testing.assert_array_equal(y, numpy_helper.to_array(table)[[1, -1, 2]])
        session.free()
    assert messages[0] == messages[1] and "-12" in messages[0]


def test_steps_without_a_shader_run_on_the_processor():
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["s"]),
        helper.make_node("Cast", ["s"], ["d"], to=TensorProto.DOUBLE),
        helper.make_node("Exp", ["d"], ["e"]),
        helper.make_node("Cast", ["e"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["f", "x"], ["y"]),
    ]
    engine = gpu()
    data = model(nodes, [("x", TensorProto.FLOAT, [4, 6])])
    session = InferenceSession(data, engine=engine)
    x = RNG.standard_normal((4, 6)).astype(np.float32)
    for _ in range(2):
        (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, np.exp((x * x).astype("f8")).astype("f4") + x, rtol=1e-6)
    (compiled,) = session.plans.values()
    info = compiled.loaded.info
    assert info["dispatches"] == 2 and sum(info["onCpu"].values()) == 3
    assert info["why"]["unary"] and info["downloads"] > 0 and info["uploads"] > 0
    session.free()


def test_lengths_that_follow_a_register():
    """One plan for all lengths of a free dimension."""
    w = numpy_helper.from_array(RNG.standard_normal((8, 5)).astype(np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Softmax", ["h"], ["y"], axis=-1),
    ]
    data = model(nodes, [("x", TensorProto.FLOAT, ["n", 8])], [w])
    sessions = [InferenceSession(data, engine=e) for e in (NativeEngine(threads=1), gpu())]
    for length in (3, 1, 7, 40, 2, 41):
        x = RNG.standard_normal((length, 8)).astype(np.float32)
        want, got = (s.run(None, {"x": x})[0] for s in sessions)
        np.testing.assert_allclose(got, want, rtol=1e-5)
    for s in sessions:
        s.free()


def test_profile():
    engine = gpu()
    nodes = [helper.make_node("Softmax", ["x"], ["y"])]
    session = InferenceSession(model(nodes, [("x", TensorProto.FLOAT, [2, 9])]), engine=engine)
    with session.profile() as p:
        session.run(None, {"x": RNG.standard_normal((2, 9)).astype(np.float32)})
    assert p.runs == 1 and p.seconds > 0
    session.free()


def test_after_a_fork():
    gpu()
    engine = WebGPUEngine(threads=1)
    engine.in_child()
    with pytest.raises(EngineError, match="after a fork"), engine.lock:
        pass


def test_an_error_of_the_gpu(monkeypatch):
    engine = gpu()
    nodes = [helper.make_node("Softmax", ["x"], ["y"])]
    session = InferenceSession(model(nodes, [("x", TensorProto.FLOAT, [2, 9])]), engine=engine)
    feeds = {"x": RNG.standard_normal((2, 9)).astype(np.float32)}
    want = session.run(None, feeds)[0]

    def lost():
        raise RuntimeError("device lost")

    with monkeypatch.context() as m:
        m.setattr(engine.gpu.device, "create_command_encoder", lost)
        with pytest.raises(EngineError, match="device lost.*open a new engine"):
            session.run(None, feeds)
    np.testing.assert_array_equal(session.run(None, feeds)[0], want)
    session.free()


def test_errors_in_words():
    prepare()
    with pytest.raises(EngineError, match="no implementation of WebGPU.*edgewise\\[gpu\\]"):
        WebGPUEngine(library="no_such_library")
    with pytest.raises(InputError, match="'cpu' and 'webgpu'"):
        open_engine("tpu")
