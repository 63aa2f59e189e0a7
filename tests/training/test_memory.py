"""Memory of training: estimated before anything is allocated, limited by a budget, and freed."""

import itertools
import re

import edgewise
import numpy as np
import pytest
from bench.models import language_model
from edgewise.engine.native import NativeEngine
from edgewise.errors import EngineError, InputError, OutOfMemory
from edgewise.host.training.trainer.free_memory import free_memory
from edgewise.onnx import BytesSource, read_model
from edgewise.training.peft import LoraConfig
from edgewise.training.program import Program
from edgewise.training.session import TrainingSession
from engines.node_engine import NodeEngine
from tiers import slow_unless

from . import llama
from .trainer.models import net, rows

DEEP = dict(
    layers=5,
    width=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    inner=160,
    vocab=128,
    theta=10000.0,
    epsilon=1e-5,
)


@pytest.fixture(scope="module")
def deep():
    """A Llama of five layers."""
    return language_model(**DEEP).SerializeToString()


class Counting:
    """An engine that counts its allocations."""

    def __init__(self):
        self.engine, self.sizes, self.now, self.peak, self.arena = NativeEngine(1), {}, 0, 0, 0
        alloc, free, load = self.engine.alloc, self.engine.free, self.engine.load_tensor

        def counted(nbytes):
            address = alloc(nbytes)
            self.sizes[address] = nbytes
            self.now += nbytes
            self.peak = max(self.peak, self.now)
            return address

        def given_back(address):
            self.now -= self.sizes.pop(address, 0)
            free(address)

        self.engine.alloc, self.engine.free, self.engine.load_tensor = counted, given_back, load


def ids(batch, sequence, vocabulary=128):
    x = np.random.default_rng(0).integers(3, vocabulary, (batch, sequence))
    return {"input_ids": x, "labels": x}


WAYS = [
    {},
    {"adapters": LoraConfig(r=4)},
    {"checkpointing": True},
    {"optimizer": "AdamW8bit"},
    {"optimizer": "SGD"},
]


def name_of(value):
    if not isinstance(value, dict):
        return str(value)
    return next(iter(value), "full") + str(next(iter(value.values()), ""))[:5]


@pytest.mark.parametrize(
    "how, accumulate",
    slow_unless(
        lambda how, steps: not how or (steps == 1 and "checkpointing" not in how),
        itertools.product(WAYS, (1, 2)),
    ),
    ids=name_of,
)
def test_estimate(deep, how, accumulate):
    """The estimate, made before any allocation, is within 10 % of the peak."""
    counting = Counting()
    start = counting.now
    t = edgewise.Trainer(
        deep,
        batch_size=4,
        sequence_length=64,
        gradient_accumulation_steps=accumulate,
        engine=counting.engine,
        **how,
    )
    e = t.estimate()
    assert counting.now == start, "nothing was allocated"
    data = ids(4, 64)
    for _ in range(2):
        t.step([data] * accumulate if accumulate > 1 else data)
    arena = max(
        p.arena_bytes for p in (t.program.plans[k] for k in t.session.loaded)
    )  # the C side allocates it
    assert e.total == pytest.approx(
        counting.peak - start + arena, rel=0.1
    ) and t.session.nbytes == pytest.approx(e.total, rel=0.1)
    t.free()
    assert counting.now == start, "everything was given back"


def test_estimate_in_wasm(deep):
    """What a page's memory grows by."""
    try:
        engine = NodeEngine("simd128")
    except EngineError as e:
        pytest.skip(str(e))
    try:
        t = edgewise.Trainer(deep, batch_size=32, sequence_length=128, engine=engine)
        e, before = t.estimate().total, engine.memory_bytes
        t.step(ids(32, 128))
        grown = engine.memory_bytes - before
        assert 0.85 * e <= grown <= 1.15 * e + (1 << 21), (
            e,
            grown,
        )  # a wasm memory grows in larger pieces than asked for
    finally:
        engine.close()


@pytest.mark.parametrize(
    "kind, lora",
    slow_unless(
        lambda kind, lora: (kind == "train") == (lora is not None),
        itertools.product(["train", "accumulate"], [None, LoraConfig(r=4)]),
    ),
    ids=lambda x: x if isinstance(x, str) else "lora" if x else "full",
)
def test_checkpointing(deep, kind, lora):
    """Recomputing changes no loss and no parameter by a bit, and the arena a lot; with a budget
    only as much as that needs.
    """

    def program(checkpointing):
        g = read_model(BytesSource(deep, "deep"))
        return Program(
            g,
            **llama.shapes(g, 4, 64),
            loss="causal_lm",
            lora=lora,
            trainable=[] if lora else "all",
            checkpointing=checkpointing,
        )

    plain, all_of_it = program(False), program(True)
    whole, least = (p.plan(kind).arena_bytes for p in (plain, all_of_it))
    assert least < 0.55 * whole
    some = program((whole + least) // 2)
    assert least <= some.plan(kind).arena_bytes <= (whole + least) // 2
    assert (
        len(plain.plan(kind).kernels)
        < len(some.plan(kind).kernels)
        < 1.6 * len(plain.plan(kind).kernels)
    )
    assert program(whole).plan(kind).arena_bytes == whole
    results = []
    for p in (plain, some, all_of_it):
        s = TrainingSession(p, NativeEngine(1), seed=1)
        losses = (
            [float(s.train(ids(4, 64), 1e-2)["loss"]) for _ in range(3)]
            if kind == "train"
            else [float(s.accumulate(ids(4, 64))["loss"])]
        )
        results.append((losses, {n: s.read(n) for n in p.states}))
        s.free()
    assert results[0] == results[1] == results[2]


def test_checkpointing_with_dropout():
    """A recomputed Dropout draws the same mask."""
    g = llama.graph("q4")
    losses = []
    for checkpointing in (False, True):
        p = Program(
            g,
            **llama.shapes(g, 4, 32),
            loss="causal_lm",
            lora=LoraConfig(r=4, lora_dropout=0.3),
            trainable=[],
            checkpointing=checkpointing,
        )
        s = TrainingSession(p, NativeEngine(1), seed=1)
        losses.append([float(s.train(llama.batch(0, 4, 32), 1e-2)["loss"]) for _ in range(5)])
        s.free()
        g = llama.graph("q4")
    assert losses[0] == losses[1]


def test_updates_in_the_backward_pass():
    """Each parameter is updated as soon as its gradient is there: the arena of `train` never holds
    all gradients. Clipping by the norm needs them all.
    """
    big = language_model(
        **{**DEEP, "width": 256, "heads": 16, "inner": 1024, "layers": 6}
    ).SerializeToString()
    g = read_model(BytesSource(big, "big"))
    programs = {
        norm: Program(g, **llama.shapes(g, 1, 8), loss="causal_lm", max_grad_norm=norm)
        for norm in (None, 1.0)
    }
    arenas = {norm: p.plan("train").arena_bytes for norm, p in programs.items()}
    gradients = sum(s.nbytes for s in programs[None].states.values() if s.kind == "parameter")
    assert gradients > 15e6 and arenas[None] < 0.2 * gradients and arenas[1.0] > 0.9 * gradients, (
        arenas,
        gradients,
    )


def test_budget():
    """`memory=`: activations are recomputed if needed; if nothing fits, the error names a budget
    that does, which then works; the failure allocates no engine memory.
    """

    deep = language_model(**{**DEEP, "layers": 2}).SerializeToString()

    def make(**more):
        # Clipping by the norm needs all gradients at once, more than half of the least memory.
        shared = {"batch_size": 16, "sequence_length": 64, "max_grad_norm": None}
        return edgewise.Trainer(deep, **{**shared, "engine": NativeEngine(1), **more})

    whole = make().estimate().total
    least = make(checkpointing=True).estimate().total
    assert least < 0.8 * whole
    between = make(memory=(whole + least) // 2)
    losses = [between.step(ids(16, 64)) for _ in range(2)]
    assert between.session.nbytes <= (whole + least) // 2
    free = make()
    assert [free.step(ids(16, 64)) for _ in range(2)] == losses
    for budget in (least // 2,):
        with pytest.raises(OutOfMemory, match="MB may be used") as e:
            make(memory=budget).step(ids(16, 64))
        found = re.search(
            r"batch_size=(\d+), sequence_length=(\d+) and checkpointing=True", str(e.value)
        )
        assert found, str(e.value)
        b, s = int(found[1]), int(found[2])
        t = make(memory=budget, batch_size=b, sequence_length=s, checkpointing=True)
        t.step(ids(b, s))
        assert t.session.nbytes <= budget
    with pytest.raises(OutOfMemory, match="adapters=LoraConfig"):
        make(memory=1000).step(ids(16, 64))
    with pytest.raises(OutOfMemory, match="smaller r"):
        make(memory=1000, adapters=LoraConfig(r=4)).step(ids(16, 64))


def test_rows_are_chosen_to_fit(tmp_path):
    """`fit="auto"`: batches have fewer rows and updates more of them, with the same result."""
    deep = language_model(**{**DEEP, "layers": 2}).SerializeToString()
    rows = ids(16, 65)["input_ids"]
    shared = {"batch_size": 16, "sequence_length": 64, "max_grad_norm": None}

    def make(**more):
        return edgewise.Trainer(deep, **{**shared, "engine": NativeEngine(1), **more})

    least = make(checkpointing=True).estimate().total
    budget = 3 * least // 4
    with pytest.raises(OutOfMemory):
        make(memory=budget).fit([list(map(int, row)) for row in rows], max_steps=2)
    fitted = make(memory=budget, fit="auto")
    texts = [list(map(int, row)) for row in rows]
    losses = fitted.fit(texts, max_steps=2, progress=False).losses
    options = fitted.options
    assert options.batch_size < 16 and options.batch_size * options.accumulation == 16
    assert fitted.session.nbytes <= budget
    expected = make().fit(texts, max_steps=2, progress=False).losses
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    roomy = make(fit="auto")
    roomy.fit(texts, max_steps=1, progress=False)
    assert roomy.options.batch_size == 16 and roomy.options.accumulation == 1
    with pytest.raises(
        InputError, match="16 rows, and fit='auto' has reduced batch_size from 16 to"
    ):
        fitted.step(ids(16, 64))
    fitted.save(path := tmp_path / "run.safetensors")
    for memory in (budget, None):  # the rows of the run, also where more would fit
        again = make(memory=memory, fit="auto").resume(path)
        assert again.options.record() == options.record()
        assert again.fit(texts, max_steps=4, progress=False).losses
        again.free()
    odd = make(memory=budget, fit="auto", batch_size=14)
    odd.fit(texts, max_steps=1, progress=False)
    assert odd.options.batch_size < 14 and odd.options.batch_size * odd.options.accumulation == 14
    odd.free()
    with pytest.raises(OutOfMemory, match="in batches of 16 takes .* may be used"):
        make(memory=1000, fit="auto").fit(texts, max_steps=1)
    with pytest.raises(InputError, match="fit"):
        make(fit="best")
    with pytest.raises(InputError, match="language models"):
        edgewise.Trainer(net()[0], loss="cross_entropy", fit="auto")


def test_free_memory(tmp_path):
    """3/4 of MemAvailable, or of the limit of a control group, whose cached files do not count."""

    def put(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert free_memory(str(tmp_path)) == float("inf")
    put("proc/meminfo", "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 4000 kB\n")
    assert free_memory(str(tmp_path)) == 0.75 * 4000 * 1024
    put("proc/self/cgroup", "0::/user/one\n")
    put("sys/fs/cgroup/user/one/memory.max", "max\n")
    put("sys/fs/cgroup/user/one/memory.current", "5\n")
    assert free_memory(str(tmp_path)) == 0.75 * 4000 * 1024
    put("sys/fs/cgroup/user/memory.max", "3000000\n")
    put("sys/fs/cgroup/user/memory.current", "1500000\n")
    put("sys/fs/cgroup/user/memory.stat", "anon 1000000\ninactive_file 500000\n")
    assert free_memory(str(tmp_path)) == 0.75 * 2000000
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000\n")
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1200000\n")
    put("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 300000\n")
    assert free_memory(str(tmp_path)) == 0.75 * 100000


def test_budget_of_other_models():
    model, _ = net()
    data = rows(16384)
    t = edgewise.Trainer(model, loss="cross_entropy", batch_size=16384, memory=2_000_000)
    with pytest.raises(OutOfMemory) as e:
        t.step(data)
    n = int(re.search(r"batch_size=(\d+)", str(e.value))[1])
    t = edgewise.Trainer(
        model, loss="cross_entropy", batch_size=n, memory=2_000_000, checkpointing=True
    )
    t.step(rows(n))
    assert t.session.nbytes <= 2_000_000 and n >= 256
