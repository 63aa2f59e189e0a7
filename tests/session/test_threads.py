"""Sessions, language models and trainers that several threads use at once give what each gives
alone, bit for bit; so do they after a fork, and while others are freed and collected.
"""

import gc
import multiprocessing
import os
import signal
import threading
import time
import traceback

import edgewise
import numpy as np
import pytest
from edgewise.engine import default_engine, open_engine
from edgewise.errors import EdgewiseError, EngineError, InputError
from edgewise.text import generate
from edgewise.training.losses import MSELoss

from . import models

# They wait for, or measure, times: one after the other.
pytestmark = pytest.mark.xdist_group("time")

MODEL = os.path.join(os.path.dirname(__file__), "../../web/demo/model")
SECONDS = float(os.environ.get("EDGEWISE_THREADS_SECONDS", 3))
CASES = {"perceptron": models.perceptron, "voice": models.voice_detector, "loop": models.beats}


def together(*workers):
    """Runs functions in threads of their own until all return; raises the first exception."""
    failed = []

    def guarded(work):
        try:
            work()
        except BaseException:
            failed.append(traceback.format_exc())

    threads = [threading.Thread(target=guarded, args=(w,), daemon=True) for w in workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join(600 + 2 * SECONDS)
        assert not t.is_alive(), "it hangs"
    assert not failed, failed[0]


def same(got, want):
    return len(got) == len(want) and all(
        np.array_equal(np.asarray(g), np.asarray(w)) for g, w in zip(got, want)
    )


def net(seed=0):
    """A model to train, and batches for it."""
    rng = np.random.default_rng(seed)
    w = [
        models.constant(n, rng.standard_normal(s).astype("f4"))
        for n, s in (("w0", (6, 16)), ("w1", (16, 4)))
    ]
    data = models.model(
        [
            models.node("MatMul", "x w0", "a"),
            models.node("Tanh", "a", "b"),
            models.node("MatMul", "b w1", "y"),
        ],
        [models.value("x", shape=("n", 6))],
        [models.value("y", shape=("n", 4))],
        w,
    )
    return data, {
        "x": rng.standard_normal((8, 6)).astype("f4"),
        "labels": rng.standard_normal((8, 4)).astype("f4"),
    }


def trained(steps):
    """The parameters after so many steps."""
    data, batch = net()
    trainer = edgewise.Trainer(data, loss=MSELoss(), learning_rate=0.01)
    losses = [trainer.step(batch) for _ in range(steps)]
    return losses, trainer.session.read("w0")


# long: what each thread runs, and the checks afterwards
def test_eight_threads():
    """Four sessions, shared and own, of one engine and of several; a language model with adapters'
    room; two trainers: all at once.
    """
    made = {name: make() for name, make in CASES.items()}
    own = edgewise.SessionOptions()
    own.intra_op_num_threads = 1
    sessions = {name: edgewise.InferenceSession(data) for name, (data, _) in made.items()}
    sessions["own"] = edgewise.InferenceSession(made["perceptron"][0], own)
    rng, feeds, want = np.random.default_rng(0), {}, {}
    for name, _session in sessions.items():
        feed = made["perceptron" if name == "own" else name][1]
        feeds[name] = (
            [feed(rate) for rate in (16000, 8000)]
            if name == "voice"
            else [feed(rows) for rows in (1, 3, 5)]
        )
        want[name] = [
            edgewise.InferenceSession(made["perceptron" if name == "own" else name][0]).run(None, f)
            for f in feeds[name]
        ]
    lm = edgewise.CausalLM(MODEL)
    prompts = [[5, 9, 12], [3, 4, 5, 6, 7, 8], list(range(30, 70))]
    texts = [
        generate(lm, p, max_new_tokens=6, do_sample=bool(i), seed=i, num_beams=2 if i == 2 else 1)
        for i, p in enumerate(prompts)
    ]
    losses, parameters = trained(40)
    end, rounds = time.monotonic() + SECONDS, dict.fromkeys(range(8), 0)

    def run(names, worker):
        while time.monotonic() < end or not rounds[worker]:
            for name in names:
                i = int(rng.integers(len(feeds[name])))
                assert same(sessions[name].run(None, feeds[name][i]), want[name][i]), name
            rounds[worker] += 1

    def write(worker):
        while time.monotonic() < end or not rounds[worker]:
            i = (rounds[worker] + worker) % 3
            assert (
                generate(
                    lm,
                    prompts[i],
                    max_new_tokens=6,
                    do_sample=bool(i),
                    seed=i,
                    num_beams=2 if i == 2 else 1,
                )
                == texts[i]
            )
            rounds[worker] += 1

    def train(worker):
        while time.monotonic() < end or not rounds[worker]:
            assert trained(40) == (losses, parameters)
            rounds[worker] += 1

    together(
        lambda: run(["perceptron", "voice"], 0),
        lambda: run(["perceptron", "loop"], 1),
        lambda: run(["own", "voice"], 2),
        lambda: run(["own", "perceptron"], 3),
        lambda: write(4),
        lambda: write(5),
        lambda: train(6),
        lambda: train(7),
    )
    assert all(rounds.values())


def test_generations_take_turns():
    """Also in one thread: generators that are advanced alternately."""
    from edgewise.text import steps

    lm = edgewise.CausalLM(MODEL)
    prompts = [[5, 9, 12], [3, 4, 5, 6], [40, 41]]
    want = [
        generate(lm, p, max_new_tokens=8, do_sample=True, seed=i, num_return_sequences=2)
        for i, p in enumerate(prompts)
    ]
    running, got = (
        {
            i: steps(lm, p, max_new_tokens=8, do_sample=True, seed=i, num_return_sequences=2)
            for i, p in enumerate(prompts)
        },
        {},
    )
    while running:
        for i, one in list(running.items()):
            try:
                next(one)
            except StopIteration as over:
                got[i] = over.value
                del running[i]
    assert [got[i] for i in range(3)] == want


def test_free_while_others_run():
    """`free` waits for the run. Later runs compile again (sessions), or fail since the model was
    freed.
    """
    data, feed = models.perceptron()
    session, feeds = edgewise.InferenceSession(data), feed()
    want, end = session.run(None, feeds), time.monotonic() + SECONDS / 3

    def run():
        while time.monotonic() < end:
            assert same(session.run(None, feeds), want)

    def free():
        while time.monotonic() < end:
            session.free()

    together(run, run, free)
    lm = edgewise.CausalLM(MODEL)
    text = generate(lm, [5, 9], max_new_tokens=8, do_sample=False)
    ended = []

    def write():
        try:
            while True:
                assert generate(lm, [5, 9], max_new_tokens=8, do_sample=False) == text
        except InputError as e:
            ended.append(str(e))

    threading.Timer(0.2, lm.free).start()
    together(write, write)
    assert len(ended) == 2 and all("was freed" in e for e in ended)


def test_garbage_at_any_moment():
    """Sessions, models and generators that are collected amid the runs of others."""
    data, feed = models.perceptron()
    session, feeds = edgewise.InferenceSession(data), feed()
    want, end = session.run(None, feeds), time.monotonic() + SECONDS / 3
    lm = edgewise.CausalLM(MODEL)

    def run():
        while time.monotonic() < end:
            assert same(session.run(None, feeds), want)

    def litter():
        from edgewise.text import steps

        while time.monotonic() < end:
            other = edgewise.InferenceSession(data)
            other.run(None, feeds)
            other.cycle = other
            left = steps(lm, [5, 9, 12], max_new_tokens=8)
            next(left)
            cycle = [left]
            cycle.append(cycle)

    thresholds = gc.get_threshold()
    gc.set_threshold(10, 2, 2)
    try:
        together(run, litter, litter, run)
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert not lm.sequences and not lm.closing


def test_engines_end_with_their_sessions():
    before = (
        threading.active_count(),
        (len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0),
    )
    options = edgewise.SessionOptions()
    options.intra_op_num_threads = 3
    data, feed = models.perceptron()
    for _ in range(10):
        edgewise.InferenceSession(data, options).run(None, feed())
    gc.collect()
    if before[1]:
        assert (
            len(os.listdir("/proc/self/task")) <= before[1] + 2
        )  # the runner and the watcher at most


# ---- fork ----
def in_child(work):
    """What a forked child's work() returns."""
    receive, send = multiprocessing.Pipe(False)
    child = os.fork()
    if not child:
        try:
            signal.alarm(310)
            send.send(work())
        except BaseException:
            send.send(traceback.format_exc())
        finally:
            os._exit(0)
    assert receive.poll(300), "the child hangs"
    result = receive.recv()
    os.waitpid(child, 0)
    return result


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


@needs_fork
def test_a_child_goes_on_with_the_parents_objects():
    engine = open_engine(2)
    data, feed = models.perceptron()
    session, feeds = edgewise.InferenceSession(data, engine=engine), feed(200)
    want = session.run(None, feeds)[0].tobytes()
    session.run(None, feeds)
    losses, parameters = trained(5)
    lm = edgewise.CausalLM(MODEL)
    text = generate(lm, [5, 9], max_new_tokens=5, do_sample=False)

    def work():
        got = (
            [session.run(None, feeds)[0].tobytes() for _ in range(3)],
            trained(5),
            generate(lm, [5, 9], max_new_tokens=5, do_sample=False),
            edgewise.InferenceSession(data).run(None, feeds)[0].tobytes(),
            engine.threads,
        )
        return got == ([want] * 3, (losses, parameters), text, want, 2) or repr(got)[:300]

    for _ in range(2):
        assert in_child(work) is True
        assert in_child(lambda: in_child(work)) is True
    assert session.run(None, feeds)[0].tobytes() == want


@needs_fork
def test_a_fork_while_other_threads_run():
    """The fork waits for the present run, so that the child finds whole objects."""
    data, feed = models.perceptron()
    session, feeds = edgewise.InferenceSession(data), feed()
    want, stop = session.run(None, feeds)[0].tobytes(), threading.Event()

    def run():
        while not stop.is_set():
            session.run(None, feeds)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for t in threads:
        t.start()
    try:
        for _ in range(5):
            assert in_child(lambda: session.run(None, feeds)[0].tobytes() == want) is True
    finally:
        stop.set()
        for t in threads:
            t.join()


@needs_fork
def test_a_fork_amid_a_long_run(monkeypatch):
    """What another thread holds is lost in the child, with an error; a new session works."""
    from edgewise.host.engine import locks
    from edgewise.session import RunOptions

    monkeypatch.setattr(locks, "FORK_WAIT", 0.2)
    data, feed = models.endless_step()
    engine, feeds, options = open_engine(2), feed(), RunOptions()
    session = edgewise.InferenceSession(data, engine=engine)
    thread = threading.Thread(
        target=lambda: pytest.raises(EdgewiseError, session.run, None, feeds, options)
    )
    thread.start()
    while session.lock.acquire(timeout=0):  # until the run has begun
        session.lock.release()
        time.sleep(0.05)
    quick, small = models.perceptron()

    def work():
        words = []
        for s in (session, edgewise.InferenceSession(quick)):
            try:
                s.run(None, feeds if s is session else small())
                words.append("ran")
            except EngineError as e:
                words.append(str(e))
        return words

    try:
        lost, new = in_child(work)
    finally:
        options.terminate = True
        thread.join()
    assert "forked" in lost and new == "ran"


def test_a_run_within_a_signal_handler():
    """Refused with an error if it would corrupt the run that it interrupts."""
    data, feed = models.endless_step()
    session, feeds, said = edgewise.InferenceSession(data), feed(), []
    other, small = models.perceptron()
    neighbour = edgewise.InferenceSession(other)

    def handler(*_):
        for s, f in ((session, feeds), (neighbour, small())):
            try:
                s.run(None, f)
            except EngineError as e:
                said.append(str(e))
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        seconds = 0.5
        while len(said) < 2:  # on a busy machine the signal may come before the run has begun
            said.clear()
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, seconds)
                session.run(None, feeds)
            seconds *= 2
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(said) == 2 and all("signal handler" in s for s in said)
    assert neighbour.run(None, small())


def test_the_default_engine_is_made_once():
    import edgewise.host.engine as module

    kept, module._default = module._default, None
    try:
        found = []
        together(*[lambda: found.append(default_engine())] * 8)
        assert len({id(e) for e in found}) == 1
    finally:
        module._default = kept
