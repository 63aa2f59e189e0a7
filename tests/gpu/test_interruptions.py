"""What is left behind when a run, a wait or the loading of a plan ends early; several threads."""

import gc
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from edgewise import InferenceSession
from edgewise.compiler.gpu.variants import variants_of
from edgewise.errors import EngineError, InputError
from edgewise.host.webgpu.memory import GpuMemory
from edgewise.host.webgpu.pipelines import Pipelines
from onnx import TensorProto, helper, numpy_helper

from .adapters import gpu
from .printed import program
from .test_models_on_gpu import model

RNG = np.random.default_rng(6)
TABLE = RNG.standard_normal((9, 40)).astype(np.float32)


def gathering(engine):
    """A session whose step can find an index out of range, and its loaded plan."""
    nodes = [helper.make_node("Gather", ["table", "i"], ["y"])]
    data = model(nodes, [("i", TensorProto.INT64, [3])], [numpy_helper.from_array(TABLE, "table")])
    session = InferenceSession(data, engine=engine)
    session.run(None, {"i": np.array([1, 2, 3])})
    (compiled,) = session.plans.values()
    return session, compiled.loaded


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_ctrl_c_between_submits_leaves_states_torn(monkeypatch):
    session, loaded = gathering(gpu())
    with monkeypatch.context() as m:
        m.setattr(loaded, "_on_gpu", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loaded.run()
    assert loaded.torn and not loaded.done
    with monkeypatch.context() as m:  # before anything was submitted
        m.setattr(loaded, "_refresh", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loaded.run()
    assert not loaded.torn and not loaded.done
    loaded.run()
    assert loaded.done and not loaded.torn
    session.free()


def test_a_lost_gpu_is_an_error_in_words(monkeypatch):
    device = gpu().device
    buffer, other = device.allocate(64), device.allocate(64)

    def lost(*_, **__):
        raise RuntimeError("[Device] is lost")

    calls = {
        "read": lambda: device.read(buffer),
        "write": lambda: device.write(buffer, bytes(4)),
        "copy": lambda: device.copy(buffer, other),
        "choice of tokens": lambda: device.highest(buffer),
    }
    queue = type(device.engine.gpu.device.queue)
    for what, call in calls.items():
        call()
        with monkeypatch.context() as m:
            for name in ("read_buffer", "write_buffer", "submit"):
                m.setattr(queue, name, lost)
            with pytest.raises(EngineError, match=f"the GPU ended a {what} .*is lost"):
                call()
        call()


def test_an_unread_error_does_not_reach_the_next_run(monkeypatch):
    session, loaded = gathering(gpu())
    with monkeypatch.context() as m:
        m.setattr(loaded, "_check", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.run(None, {"i": np.array([1, 77, 2])})
    assert loaded.torn
    (y,) = session.run(None, {"i": np.array([4, 1, 2])})
    np.testing.assert_array_equal(y, TABLE[[4, 1, 2]])
    with pytest.raises(InputError, match="99"):
        session.run(None, {"i": np.array([4, 99, 2])})
    session.free()


def test_steps_with_indices_of_their_own_do_nothing_after_an_error():
    session, loaded = gathering(gpu())
    (step,), (launch,), (variant,) = loaded.steps, loaded.launches, variants_of("gather")
    roles, bindings = launch.arrangement.roles[0], launch.arrangement.bindings
    guarded = program(step, variant, roles, bindings, guarded=True)
    assert guarded.fails and guarded.guarded
    session.run(None, {"i": np.array([1, 2, 3])})
    (y,) = (loaded.bound[i] for i, s in enumerate(loaded.plan.slots) if s.kind == "output")
    engine, queue = gpu(), gpu().gpu.device.queue
    launch.programs, launch.pipelines, launch._groups = [guarded], [], {}
    engine.pipelines.prepare(guarded, "gather")
    loaded.dirty.add(0)
    engine.device.fill(y)
    queue.write_buffer(loaded.errors, 0, np.array([7, 5, 0, 0], np.uint32))
    loaded._refresh(loaded.parts[1])
    loaded._on_gpu(loaded.parts[1][0])
    assert not any(engine.device.read(y))
    queue.write_buffer(loaded.errors, 0, bytes(16))
    loaded.run()
    assert any(engine.device.read(y))
    session.free()


def test_a_plan_that_cannot_be_loaded_leaves_no_buffers(monkeypatch):
    engine, made, destroyed = gpu(), [], []
    before = engine.info["buffers"], len(engine.plans)
    original = engine.gpu.buffer

    def buffer(*args):
        made.append(original(*args))
        return SimpleNamespace(
            size=made[-1].size, destroy=lambda b=made[-1]: destroyed.append(b.destroy())
        )

    plan = gathering(engine)[1].plan
    with monkeypatch.context() as m:
        m.setattr(engine.gpu, "buffer", buffer)
        m.setattr(engine.gpu.device.queue, "write_buffer", lambda *_: None)
        m.setattr(engine.pipelines, "prepare", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.device.load_plan(plan)
    assert len(made) == len(destroyed) == 4
    gc.collect()
    assert (engine.info["buffers"], len(engine.plans)) == before


def test_ctrl_c_while_a_pipeline_is_compiled():
    engine = gpu()
    session, loaded = gathering(engine)
    (program,) = loaded.launches[0].programs
    pipelines = Pipelines(engine.gpu)
    pipelines.prepare(program, "gather")
    promise, layout = pipelines._promised[program.text]
    pipelines._promised[program.text] = SimpleNamespace(sync_wait=interrupted), layout
    with pytest.raises(KeyboardInterrupt):
        pipelines.get(program, "gather")
    pipelines._promised[program.text] = promise, layout
    assert pipelines.get(program, "gather").pipeline is not None and len(pipelines) == 1
    session.free()


def test_memory_that_a_finalizer_releases():
    class Freed:
        """A GPUBuffer. When it is destroyed, a finalizer releases another allocation."""

        def __init__(self, nbytes, uniform=False):
            self.size = nbytes

        def destroy(self):
            if later:
                memory.release(later.pop())
                memory.sweep()

    memory = GpuMemory(SimpleNamespace(buffer=Freed, buffer_bytes=1 << 30, binding_bytes=1 << 27))
    a, b, c = (memory.allocate(1000) for _ in range(3))
    later = [b]
    memory.release(a)
    memory.sweep()
    assert memory.buffers == 1 and memory.place(c).offset == 0
    weights = [memory.share(100, "weights") for _ in range(3)]
    assert memory.buffers == 2
    for buffer in [*weights, c]:
        memory.release(buffer)
    memory.sweep()
    assert memory.buffers == memory.nbytes == 0


def test_sessions_of_several_threads():
    engine = gpu()
    gathering(engine)[0].free()  # programs are compiled once
    failures = []

    def work(seed):
        try:
            rng = np.random.default_rng(seed)
            for _ in range(3):
                session, _ = gathering(engine)
                for _ in range(5):
                    i = rng.integers(0, 9, 3)
                    (y,) = session.run(None, {"i": i})
                    np.testing.assert_array_equal(y, TABLE[i])
                session.free()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_an_error_before_anything_ran_is_not_torn(monkeypatch):
    session, loaded = gathering(gpu())

    def refused():
        raise EngineError("a shader is refused", "gather")

    loaded.dirty.add(0)
    with monkeypatch.context() as m:
        m.setattr(loaded.launches[0], "connect", refused)
        with pytest.raises(EngineError):
            loaded.run()
    assert not loaded.torn
    session.free()
