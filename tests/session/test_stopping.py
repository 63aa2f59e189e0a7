"""Runs that end early: Ctrl-C, RunOptions.terminate, SessionOptions.max_run_seconds, signals of
generation; and what can be done afterwards.
"""

import gc
import os
import signal
import threading
import time

import edgewise
import numpy as np
import pytest
from edgewise.errors import Aborted, EngineError
from edgewise.session import RunOptions
from edgewise.training.losses import MSELoss

from . import models

# They wait for, or measure, times: one after the other.
pytestmark = pytest.mark.xdist_group("time")

LATE = 60 * (os.cpu_count() or 1)  # seconds of processor time; else runs take many minutes
AGAIN = 20  # seconds
NODES = 60_000  # of a model that takes longer than 0.5 s to compile


@pytest.fixture
def ctrl_c():
    """A function that presses Ctrl-C in so many seconds; returns a function that ends that.

    Ctrl-C is pressed again after AGAIN seconds: Python drops a KeyboardInterrupt that is raised
    while it calls back for an object that was freed ("Exception ignored in"), or for the garbage
    collector, which is off here: Hypothesis has such a callback.
    """
    gc.disable()
    presses, before = [], signal.signal(signal.SIGINT, signal.default_int_handler)

    def press(seconds):
        over = threading.Event()

        def pressing():
            wait = seconds
            while not over.wait(wait):
                os.kill(os.getpid(), signal.SIGINT)
                wait = AGAIN

        thread = threading.Thread(target=pressing)
        presses.append((over, thread))
        thread.start()
        return over.set

    def end():
        for over, _ in presses:
            over.set()

    press.end = end  # all presses: Ctrl-C may come before the name of one is bound
    yield press
    for over, thread in presses:
        over.set()
        thread.join()
    signal.signal(signal.SIGINT, before)
    gc.enable()


def ended(error, run, *args, first=lambda: lambda: None):
    """Whether run(*args), after `first`, ends in an error of this class, soon; returns the error.

    first: returns what is called at the end.
    """
    start, over = time.process_time(), None
    with pytest.raises(error) as caught:
        try:
            over = first()
            run(*args)
        finally:
            if over:
                over()
    assert time.process_time() - start < LATE
    return caught.value


def test_ctrl_c_within_a_step(ctrl_c):
    data, feeds = models.endless_step()
    other, small = models.perceptron()
    session, neighbour = (
        edgewise.InferenceSession(data),
        edgewise.InferenceSession(other),
    )  # of one engine
    x, long = small(), feeds()
    want = neighbour.run(None, x)[0]
    for _ in range(3):
        ended(KeyboardInterrupt, session.run, None, long, first=lambda: ctrl_c(0.5))
        assert np.array_equal(neighbour.run(None, x)[0], want)


def test_ctrl_c_while_a_model_is_compiled(ctrl_c):
    nodes = [models.node("Neg", "x" if not i else f"t{i - 1}", f"t{i}") for i in range(NODES)]
    session = edgewise.InferenceSession(
        models.model(nodes, [models.value("x")], [models.value(f"t{NODES - 1}")])
    )
    ended(KeyboardInterrupt, session.run, None, {"x": np.ones(4, "f4")}, first=lambda: ctrl_c(0.5))


def test_ctrl_c_within_a_loop(ctrl_c):
    options = edgewise.SessionOptions()
    options.max_loop_trips = 1 << 40
    data = models.loop([models.node("Relu", "s", "so")], 1 << 40)
    session = edgewise.InferenceSession(data, options)
    ended(KeyboardInterrupt, session.run, None, {"x": np.ones(4, "f4")}, first=lambda: ctrl_c(0.3))


@pytest.mark.parametrize("own", [False, True])
def test_terminate(own):
    """Set by another thread amid a step.

    Other sessions of the engine, and later runs, are not concerned.
    """
    data, feeds = models.endless_step()
    options, run_options = edgewise.SessionOptions(), RunOptions()
    options.intra_op_num_threads = 2 if own else 0
    session = edgewise.InferenceSession(data, options)
    other, small = models.perceptron()
    neighbour, x, long = edgewise.InferenceSession(other, engine=session.engine), small(), feeds()
    want = neighbour.run(None, x)[0]
    timer = threading.Timer(0.3, setattr, (run_options, "terminate", True))
    timer.start()
    ended(Aborted, session.run, None, long, run_options)
    timer.join()
    assert np.array_equal(neighbour.run(None, x)[0], want)
    assert np.array_equal(neighbour.run(None, x, RunOptions())[0], want)
    failed = []
    run_options.terminate = False
    thread = threading.Thread(
        target=lambda: failed.append(ended(Aborted, session.run, None, long, run_options))
    )
    thread.start()
    time.sleep(0.3)
    run_options.terminate = True
    thread.join()
    assert isinstance(failed[0], Aborted)


def test_max_run_seconds():
    data, feeds = models.endless_step()
    options = edgewise.SessionOptions()
    options.max_run_seconds = 0.3
    long = feeds()
    error = ended(Aborted, edgewise.InferenceSession(data, options).run, None, long)
    assert "0.3 s" in str(error) and "max_run_seconds" in error.remedy
    options.max_run_seconds = 0.02  # a million iterations within a plan take ten times as long
    ended(
        Aborted,
        edgewise.InferenceSession(
            models.loop([models.node("Relu", "s", "so")], 1 << 20), options
        ).run,
        None,
        {"x": np.ones(4, "f4")},
    )
    quick, small = models.perceptron()
    options.max_run_seconds = 600
    session, x = edgewise.InferenceSession(quick, options), small()
    want = edgewise.InferenceSession(quick).run(None, x)[0]
    for _ in range(3):
        assert np.array_equal(session.run(None, x)[0], want)


def long_training(update=False):
    """A Trainer with a step, or with `update` an update, that takes minutes."""
    size = 20000 if update else 2000
    data = models.model(
        [models.node("MatMul", "x w", "y")],
        [models.value("x", shape=(None, size))],
        [models.value("y", shape=(None, 8 if update else 2000))],
        [models.constant("w", np.zeros((size, 8 if update else 2000), "f4"))],
    )
    return edgewise.Trainer(data, loss=MSELoss(), learning_rate=1e-3), size


def test_ctrl_c_lets_a_step_of_training_end(ctrl_c):
    """States are those of whole steps: what was interrupted was done to its end, or not at all."""
    trainer, size = long_training()
    batch = {"x": np.ones((16, size), "f4"), "labels": np.ones((16, 2000), "f4")}
    trainer.step(batch)
    interrupted = 0
    while interrupted < 3:
        try:
            ctrl_c(0.05)
            while True:
                trainer.step(batch)
        except KeyboardInterrupt:
            ctrl_c.end()
            interrupted += 1
    steps = trainer.session.step
    other, _ = long_training()
    for _ in range(steps):
        other.step(batch)
    assert trainer.session.read("w") == other.session.read("w")


def test_ctrl_c_within_a_long_step_of_training(ctrl_c, tmp_path):
    trainer, size = long_training()
    small, long = (
        {"x": np.ones((rows, size), "f4"), "labels": np.ones((rows, 2000), "f4")} for rows in (8, 8)
    )
    trainer.step(small)
    trainer.save(tmp_path / "run")
    trainer.session.loaded["train"].patience = 0.0  # as if the step took longer than Ctrl-C waits
    trainer.session.loaded["train"].quick = False
    torn = False
    for _ in range(200):
        try:
            ctrl_c(0.001)
            while True:
                trainer.step(long)
                trainer.session.loaded["train"].quick = False
        except KeyboardInterrupt:
            ctrl_c.end()
        if trainer.session.torn:
            torn = True
            break
    assert torn
    with pytest.raises(EngineError, match="partly"):
        trainer.step(small)
    with pytest.raises(EngineError, match="resume"):
        trainer.save(tmp_path / "torn")
    trainer.resume(tmp_path / "run")
    assert trainer.session.step == 1
    trainer.step(small)
    assert trainer.session.step == 2


def forever(call):
    """Again and again, for as long as it is let."""
    while True:
        call()


def test_ctrl_c_within_generation(ctrl_c):
    from edgewise.host.session.decoder import DecoderModel, open_package
    from edgewise.text import generate
    from zoo.zoo import OWN

    lm = DecoderModel(open_package(OWN / "q4_llama/model.onnx", capacity=400))
    try:

        def write():
            return generate(lm, [1, 2, 3], max_new_tokens=390, min_new_tokens=390, do_sample=False)

        want = write()
        for _ in range(3):
            ended(KeyboardInterrupt, forever, write, first=lambda: ctrl_c(0.3))
            assert write() == want
    finally:
        lm.free()


def test_ctrl_c_within_training_on_artifacts(ctrl_c, tmp_path):
    """The optimizer's steps and exports: afterwards all is as after whole steps, and what follows
    works.
    """
    from edgewise.training.api import CheckpointState, Module, Optimizer
    from hostile.artifacts import feeds_for, own_artifacts

    files = own_artifacts(tmp_path)
    state = CheckpointState.load_checkpoint(files["checkpoint"])
    module = Module(files["train"], state, files["eval"])
    optimizer = Optimizer(files["optimizer"], module)
    batch = list(feeds_for(files).values())
    module(*batch)

    def export():
        module.export_model_for_inferencing(tmp_path / "out.onnx", module.output_names()[-1:])

    for call in (
        optimizer.step,
        export,
        lambda: CheckpointState.save_checkpoint(
            state, tmp_path / "kept", include_optimizer_state=True
        ),
    ):
        steps = optimizer.steps
        ended(KeyboardInterrupt, forever, call, first=lambda: ctrl_c(0.3))
        assert optimizer.steps >= steps and np.isfinite(state.parameters["w"].data).all()
    optimizer.step()
    module.lazy_reset_grad()
    module(*batch)
    export()
    CheckpointState.save_checkpoint(state, tmp_path / "kept", include_optimizer_state=True)
    assert np.isfinite(
        edgewise.InferenceSession(str(tmp_path / "out.onnx")).run(
            None, dict(zip(module.input_names(), batch))
        )[0]
    ).all()
