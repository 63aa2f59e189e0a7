"""Caches that grow with a sequence: results are those of caches with room for all tokens, an error
loses nothing, and the most tokens of a sequence are those of the model's configuration.
"""

import json
import random

import pytest
from edgewise import CausalLM, generate
from edgewise.compiler.compile import causal_lm
from edgewise.compiler.compile.causal_lm import context_length
from edgewise.compiler.targets import target_named
from edgewise.errors import OutOfMemory
from edgewise.host.session.open import folder_files
from edgewise.logic.generation.rooms import least_room, next_room

from .decoders import decoder
from .test_kept import saved

CAPACITY = 1500
LAYERS = ["conv", "attention", "recurrent", "attention"]


def made(tmp_path, kind):
    if kind != "layers":
        return saved(tmp_path, kind)
    path = tmp_path / "model.onnx"
    path.write_bytes(decoder(LAYERS).model.SerializeToString())
    return path


def pair(path, monkeypatch, **options):
    """A model whose caches grow, and the same with room for all tokens."""
    growing = CausalLM(path, capacity=CAPACITY, **options)
    with monkeypatch.context() as m:
        m.setattr(causal_lm, "ROOM_STEP", CAPACITY)
        whole = CausalLM(path, capacity=CAPACITY, **options)
    assert growing.grows and not whole.grows
    return growing, whole


@pytest.mark.parametrize(
    "kind, dtype",
    [
        *(("q4", "float32"), ("q4", "float16"), ("fp32", "int4"), ("fp32", "int8")),
        *(("hybrid", None), ("layers", None), ("windows", None), ("mixed", "float16")),
        *(("windows", "int8"), ("windows", "int4")),
    ],
)
def test_random_calls(tmp_path, monkeypatch, kind, dtype):
    """Bit for bit: tokens, pieces, cuts, copies to sequences of other sizes, and new sequences."""
    models = pair(made(tmp_path, kind), monkeypatch, cache_dtype=dtype)
    r = random.Random(f"{kind} {dtype}")
    open_ones = [tuple(lm.open() for lm in models)]
    for _ in range(60):
        which = r.randrange(len(open_ones))
        one = open_ones[which]
        length = models[0].length(one[0])
        deed = r.choice(["append"] * 6 + ["cut", "copy", "open", "close"])
        if deed == "append":
            count = min(r.choice([1, 1, 3, 40, 128, 300, 700]), CAPACITY - length)
            ids = [r.randrange(1, models[0].vocab_size) for _ in range(count)]
            if ids:
                before = list(models[0].state(one[0])[1])
                again = models[0].state(one[0])[2] and models[0].window is not None
                if again:  # windows of these are gone: they are read again, in other runs
                    models[1].truncate(one[1], 0)
                got = models[0].logits(models[0].forward(one[0], ids))
                more = [*before, *ids] if again else ids
                assert got == models[1].logits(models[1].forward(one[1], more))
        elif deed == "cut":
            length = r.randint(0, length)
            for lm, s in zip(models, one):
                lm.truncate(s, length)
        elif deed == "copy":
            other = r.choice(open_ones)
            for lm, a, b in zip(models, one, other):
                lm.copy(a, b)
        elif deed == "open" or len(open_ones) == 1:
            open_ones.append(tuple(lm.open() for lm in models))
        else:
            for lm, s in zip(models, open_ones.pop(which)):
                lm.close(s)
        lm = models[0]
        assert all(lm.length(s) <= lm.room_of(s) <= CAPACITY for s, _ in open_ones)
        held = {s: sum(b.nbytes for b in lm.memory_of(s).values()) for s, _ in open_ones}
        assert held == {s: lm.bytes_of(s) for s, _ in open_ones}
        assert lm.cache_memory == sum(held.values())


def test_windows_take_their_rows(tmp_path):
    """However long a sequence gets, a layer with a window has what its tokens see, and as much as
    a run and the tokens between two moves need.
    """
    lm = CausalLM(saved(tmp_path, "windows"), capacity=CAPACITY)
    one = lm.open()
    lm.forward(one, [1] * CAPACITY)
    rows = {c["name"]: c["rows"][0] * c["rows"][1] for c in lm.caches}
    held = {n: b.nbytes // rows[n] for n, b in lm.memory_of(one).items()}
    assert sorted(held.values()) == [384 + (CAPACITY - 384) % 128] * 4 + [CAPACITY] * 2
    assert lm.bytes_of(one) == lm.bytes_for(CAPACITY) == sum(held[n] * rows[n] for n in rows)


def test_a_short_conversation_takes_a_step(tmp_path):
    lm = CausalLM(saved(tmp_path, "fp32"), capacity=100_000)
    one = lm.open()
    lm.forward(one, [1] * 100)
    assert lm.room_of(one) == 256 and 390 * lm.bytes_of(one) < lm.bytes_for(100_000)
    lm.forward(one, [1] * 157)
    assert lm.room_of(one) == 512


def test_steps():
    assert [least_room(n, 1000) for n in (0, 256, 257, 768, 769, 1000)] == [
        *(256, 256, 512, 768, 1000, 1000)
    ]
    rooms, copied = [256], 0
    while rooms[-1] < 100_000:
        copied += rooms[-1]
        rooms.append(next_room(rooms[-1], rooms[-1] + 1, 100_000))
    assert copied < 3 * 100_000 and rooms[-1] == 100_000


@pytest.mark.parametrize("beams", [1, 3])
def test_no_memory_to_grow(tmp_path, monkeypatch, beams):
    """An error in words; the sequence has all it had, and grows when there is memory again."""
    lm = CausalLM(saved(tmp_path, "fp32"), capacity=CAPACITY)
    expected = generate(lm, [5] * 250, max_new_tokens=30, num_beams=beams, do_sample=False)
    one = lm.open()
    before = lm.logits(lm.forward(one, [3] * 250))
    allocate = type(lm.device).allocate
    for after in (0, 1, 3):
        left = [after]

        def refuse(device, nbytes, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise OutOfMemory("no memory", "test", "")
            return allocate(device, nbytes)

        with monkeypatch.context() as m:
            m.setattr(type(lm.device), "allocate", refuse)
            with pytest.raises(OutOfMemory, match="grows to 512 tokens.*shorter prompt"):
                lm.forward(one, [4] * 20)
        assert lm.length(one) == 250 and lm.room_of(one) == 256
    lm.truncate(one, 249)
    assert lm.logits(lm.forward(one, [3])) == pytest.approx(before, abs=1e-4)
    fields = {"max_new_tokens": 30, "num_beams": beams, "do_sample": False}
    assert generate(lm, [5] * 250, **fields) == expected
    other = lm.open()
    lm.forward(other, [3] * 250)
    lm.truncate(other, 249)
    lm.forward(other, [3])
    assert lm.logits(lm.forward(one, [4] * 20)) == lm.logits(lm.forward(other, [4] * 20))


def test_memory_of_kept_conversations_is_freed_first(tmp_path, monkeypatch):
    lm = CausalLM(saved(tmp_path, "fp32"), capacity=CAPACITY)
    generate(lm, [7] * 300, max_new_tokens=2, cache=True)
    assert lm.kept.bytes() > 0
    one = lm.open()
    lm.forward(one, [3] * 250)
    allocate = type(lm.device).allocate

    def refuse(device, nbytes):
        if lm.kept.bytes():
            raise OutOfMemory("no memory", "test", "")
        return allocate(device, nbytes)

    with monkeypatch.context() as m:
        m.setattr(type(lm.device), "allocate", refuse)
        lm.forward(one, [4] * 20)
    assert lm.kept.bytes() == 0 and lm.room_of(one) == 512


@pytest.mark.parametrize(
    "config, expected",
    [
        ({"max_position_embeddings": 5000}, 5000),
        ({"n_positions": 300}, 300),
        ({"text_config": {"max_position_embeddings": 7000}}, 7000),
        ({"genai": {"model": {"context_length": 9000}}}, 9000),
        ({"max_position_embeddings": 1 << 40}, 1024),
        ({"max_position_embeddings": "many"}, 1024),
        ({}, 1024),
    ],
)
def test_the_models_own_context(config, expected):
    assert context_length(config) == expected


def test_default(tmp_path):
    """Of folders as transformers and as ONNX Runtime GenAI write them; on a GPU, what it binds."""
    path = saved(tmp_path, "fp32")
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 20_000}))
    lm = CausalLM(tmp_path)
    assert lm.max_length == 20_000
    (tmp_path / "config.json").unlink()
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": {"context_length": 3000}}))
    assert CausalLM(path.parent).max_length == 3000
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": {"context_length": 1 << 22}}))
    lm = CausalLM(tmp_path)
    assert 1 << 15 <= lm.max_length < 1 << 22  # the memory between steps is reserved for all
    package = causal_lm.compile_package(folder_files(tmp_path)[0], target=target_named("webgpu"))
    caches = package.manifest["decoder"]["caches"]
    assert max(c["bytes"] for c in caches) <= 1 << 27


def test_packages(tmp_path, monkeypatch):
    """New ones grow, and those of before are read as they are."""
    path, r = saved(tmp_path, "fp32"), random.Random(3)
    sources, _ = folder_files(tmp_path)
    with open(tmp_path / "new.edge", "wb") as f:
        causal_lm.compile_package(sources, capacity=CAPACITY).write(f)
    monkeypatch.setattr(causal_lm, "ROOM_STEP", CAPACITY)
    with open(tmp_path / "old.edge", "wb") as f:
        causal_lm.compile_package(sources, capacity=CAPACITY).write(f)
    new, old = (CausalLM(tmp_path / f"{name}.edge") for name in ("new", "old"))
    assert (new.grows, old.grows) == (True, False) and path.exists()
    prompt = [r.randrange(1, 90) for _ in range(600)]
    for fields in ({}, {"num_beams": 2}, {"do_sample": True, "seed": 2}):
        fields = {"max_new_tokens": 20, "do_sample": False, **fields}
        assert generate(new, prompt, **fields) == generate(old, prompt, **fields)


def test_what_is_written_as_a_whole_has_one_size(tmp_path):
    """Caches whose rows may stand for any token do not grow, and say what they take."""
    path = tmp_path / "model.onnx"
    path.write_bytes(decoder(["newest_first"]).model.SerializeToString())
    lm = CausalLM(path, capacity=600)
    one = lm.open()
    assert not lm.grows and lm.room_of(one) == 600
    assert lm.bytes_of(one) == lm.bytes_for(1) == sum(b.nbytes for b in lm.memory_of(one).values())
