"""The two readers of packages, in Python and in the page, accept the same packages, and runs of
accepted packages stay within their memory.
"""

import copy
import io
import random
import struct
import subprocess
import sys

import pytest
from edgewise.compiler.compile import compile_inference
from edgewise.compiler.plan import Plan
from edgewise.compiler.plan.plan import Slot
from edgewise.engine import Buffer, open_engine
from edgewise.errors import EdgewiseError, PackageError, PlanError
from edgewise.host.session.decoder import DecoderModel, open_package
from edgewise.host.training.package import compile_model_for_training
from edgewise.onnx import BytesSource
from edgewise.package import Package
from tiers import ALL

from .packages import decoder, feeds, joined, places, plan, slot, split, step, tasks, with_sums
from .page.page_reader import PLAY, READ, ROOT
from .seeds import ROOT as TESTS
from .seeds import small

Q4 = TESTS / "zoo" / "models" / "q4_llama" / "model.onnx"
VOCABULARY = 16
LOGITS = (4 * VOCABULARY, True)


def read(data: bytes):
    """Returns the error of Python's reader, or None."""
    try:
        Package.read(BytesSource(data, "model.edge"))
    except EdgewiseError as e:
        assert isinstance(e, PackageError) and e.what and e.where and e.remedy, repr(e)
        return e
    return None


def both(page, data: bytes, accepted: bool | None = None, match: str = "", words: bool = True):
    """Reads a package with both readers; returns whether they accept it."""
    mine, theirs = read(data), page.ask(READ, data)
    assert theirs.get("error") in (None, "PackageError"), theirs
    assert (mine is None) == ("ok" in theirs), f"Python: {mine}; page: {theirs}"
    if accepted is not None:
        assert (mine is None) == accepted, mine or "it was accepted"
    if mine is not None and words:
        assert (mine.what, mine.where) == (theirs["what"], theirs["where"])
    if match:
        assert match in str(mine), mine
    return mine is None


@pytest.fixture(scope="module")
def packages():
    """One package of each kind: a decoder with caches, a trainable one, and one for inference."""
    made = {
        "decoder": open_package(Q4, capacity=24),
        "training": compile_model_for_training(
            TESTS.parent / "web/demo/model", ["lora", "full"], capacity=24, batch=1, sequence=8
        ),
        "inference": compile_inference(
            {"model.onnx": BytesSource(small()["attention"][0])},
            ({"b": 1, "s": 2}, {"b": 2, "s": 3}),
        ),
    }
    made |= tasks()
    out = {}
    for name, package in made.items():
        target = io.BytesIO()
        package.write(target)
        out[name] = target.getvalue()
    manifest, rest = split(out["inference"])
    out["lengths"] = joined(follow_register(manifest), rest)
    return out


def follow_register(manifest):
    """Adds a register to the second plan, on which its dimensions of 3 depend in the manifest."""
    described = manifest["inference"]["plans"][1]
    for _, shape in described["inputs"].values():
        shape[:] = [[1, 0] if d == 3 else d for d in shape]
    for _, _, shape, _ in described["outputs"].values():
        shape[:] = [[2, -3] if d == 3 else d for d in shape]
    described["register"] = [2, 3]
    return manifest


def test_valid_packages(packages, page):
    for data in packages.values():
        both(page, data, True)


def test_same_logits_in_both(packages, page):
    lm = DecoderModel(Package.read(BytesSource(packages["decoder"], "model.edge")))
    sequence = lm.open()
    want = [lm.logits(lm.forward(sequence, ids)) for ids in ([1, 2, 3], [4])]
    got = page.ask(PLAY, packages["decoder"])["ok"]["logits"]
    assert all(a == pytest.approx(b, abs=1e-3) for a, b in zip(got, want))


def two_sizes(kind: str) -> bytes:
    """Two plans have a slot of the same name with different sizes, and the second plan fills it."""
    large = 64 << 20
    fill = step(
        "fill",
        {"size": 1, "dims": [1, 1, 1, 1, 1, large], "ys": [0, 0, 0, 0, 0, 1], "value_low": 65},
        [(4, 0)],
    )
    small = plan([(8, False), LOGITS, (64, True)], [])
    return decoder(
        [
            (1, small, [*feeds(1), slot("s", kind, 64)]),
            (
                2,
                plan([(16, False), LOGITS, (large, True)], [fill]),
                [*feeds(2), slot("s", kind, large)],
            ),
        ],
        caches=[{"name": "s", "bytes": 64}] if kind == "cache" else (),
    )


def two_slots_of_one_name(kind: str) -> bytes:
    """Two slots of one plan with the same name share memory."""
    n = 2048
    names = [
        ("x", n),
        ("a", 8 * n),
        ("a", 8 * n),
        ("inverse", 8 * n),
        ("counts", 8 * n),
        ("count", 8),
    ]
    unique = step(
        "unique",
        {"type": 7, "n": n, "cols": 1, "sorted": 0},
        [(1, 0), (5, 0), (7, 0), (8, 0), (9, 0), (6, 0)],
    )
    constants = struct.pack(f"<{n}q", *random.Random(1).sample(range(1 << 40), n))
    data = plan(
        [(8, False), LOGITS, (n, False), *((size, True) for _, size in names[1:])],
        [unique],
        constants=constants,
    )
    caches = (
        [{"name": name, "bytes": size} for name, size in dict(names).items()]
        if kind == "cache"
        else ()
    )
    return decoder(
        [(1, data, [*feeds(1), *(slot(name, kind, size) for name, size in names)])],
        caches=caches,
        capacity=8 if caches else 1,
    )


def test_arenas_of_a_plan_are_few(page):
    for count in (16, 17):
        slots = [slot(f"t{i}", "temp", 64) for i in range(count)]
        data = plan([(8, False), LOGITS, *[(64, True)] * count], [])
        package = decoder([(1, data, [*feeds(1), *slots])])
        both(page, package, accepted=count == 16, match="" if count == 16 else "'temp'")


@pytest.mark.parametrize("kind", ["state", "computed", "cache"])
def test_slots_of_one_name_and_two_sizes(kind, page):
    both(page, two_sizes(kind), False)


@pytest.mark.parametrize("kind", ["state", "computed", "cache"])
def test_two_slots_of_one_name_in_a_plan(kind, page):
    both(page, two_slots_of_one_name(kind), False)


def test_writable_weights(page):
    for writable in (False, True):
        data = decoder(
            [
                (
                    1,
                    plan([(8, False), LOGITS, (64, writable)], []),
                    [*feeds(1), slot("w", "weight", 64)],
                )
            ],
            weights={"w": bytes(64)},
        )
        both(page, data, not writable)


def test_weights_that_overlap(page):
    data = decoder(
        [
            (
                1,
                plan([(8, False), LOGITS, (64, False), (64, False)], []),
                [*feeds(1), slot("v", "weight", 64), slot("w", "weight", 64)],
            )
        ],
        weights={"v": bytes(64), "w": bytes(64)},
    )
    both(page, data, True)
    manifest, rest = split(data)
    for offset in (0, 32, 63):
        manifest["weights"][1]["offset"] = offset
        both(page, joined(with_sums(manifest, rest), rest), False, "overlaps")


def test_states_are_as_large_as_their_shapes(packages, page):
    """The values of an adapter are written with the shape of its state."""
    manifest, rest = split(packages["training"])
    for part in manifest["decoder"]["plans"]:
        for s in part["slots"]:
            if s["kind"] == "state":
                s["shape"] = [1 << 20, *s["shape"]]
    both(page, joined(manifest, rest), False, "which do not match")


@pytest.mark.parametrize("change", [-1, 1])
def test_input_slots_are_as_large_as_their_tensors(change, packages, page):
    """With a slot larger than its tensor, a plan would read beyond the memory of the input."""
    manifest, rest = split(packages["inference"])
    described = manifest["inference"]["plans"][0]
    name = next(s["name"] for s in described["slots"] if s["kind"] == "input")
    dtype, shape = described["inputs"][name]
    described["inputs"][name] = [dtype, [*shape[:-1], shape[-1] + change]]
    both(page, joined(manifest, rest), False, "which has another size")


@pytest.mark.parametrize(
    "register, dimension, why",
    [
        ([2, 3], [1, 0], ""),
        ([0, 3], [1, 0], ""),
        ([3, 3], [1, 0], ""),
        ([3, 2], [1, 0], "not between 3 and"),
        ([2, 4], [1, 0], "which has another size"),
        ([2, (1 << 24) + 1], [1, 0], "not between 2 and"),
        ([-1, 3], [1, 0], "not between 0 and"),
        ([2], [1, 0], "has 1 entries"),
        ([2, 3, 4], [1, 0], "has 3 entries"),
        ([2, 3.5], [1, 0], "is not an integer"),
        (None, [1, 0], "is not a list"),
        (..., [1, 0], "is not an integer"),
        ([2, 3], 3, "is not the size of a dimension"),
        ([2, 3], [2, -3], "is not the size of a dimension"),
        ([1, 3], [2, -3], "is negative"),
        ([2, 3], [0, 3], "not between 1 and"),
        ([2, 3], [-1, 6], "not between 1 and"),
        ([2, 3], [1 << 25, 0], "not between 1 and"),
        ([2, 3], [1, 1 << 25], "not between"),
        ([2, 3], [1], "has 1 entries"),
        ([2, 3], [1, 0, 0], "not between 1 and 0"),
        ([2, 3], [1, 0, 0, 0], "has 4 entries"),
        ([2, 3], [1, 0.5], "is not an integer"),
        ([2, 3], [1, True], "is not an integer"),
        ([2, 3], [1, None], "is not an integer"),
        ([2, 3], [[1], 0], "is not an integer"),
        ([2, 3], [1, 1], "is not the size of a dimension"),
        ([2, 3], [1 << 24, 1 << 24], "is not the size of a dimension"),
    ],
)
def test_shapes_that_follow_a_register(register, dimension, why, packages, page):
    """A range of the register beyond the slots' sizes, negative and too large expressions."""
    manifest, rest = split(packages["lengths"])
    described = manifest["inference"]["plans"][1]
    described["outputs"] = {
        name: [slot, dtype, [3 if d == [2, -3] else d for d in shape], size]
        for name, (slot, dtype, shape, size) in described["outputs"].items()
    }
    if register is ...:
        del described["register"]
    else:
        described["register"] = register
    for _, shape in described["inputs"].values():
        shape[:] = [dimension if d == [1, 0] else d for d in shape]
    both(page, joined(manifest, rest), not why, why)


def test_slots_are_those_of_the_plan(page):
    for there in (
        [(8, False), LOGITS, (128, True)],
        [(8, False), LOGITS],
        [(8, False), LOGITS, (64, True), (64, True)],
    ):
        data = decoder([(1, plan(there, []), [*feeds(1), slot("c", "computed", 64)])])
        both(page, data, False)


def test_the_engine_checks_the_size_of_slot_memory():
    """Memory smaller than the slot is refused, whatever the manifest contains."""
    engine = open_engine(1)
    loaded = engine.load(
        Plan(
            plan([(64, True)], []),
            [Slot("s", "state", 2, [64], 64)],
            ["past", "last"],
            [],
            [],
            0,
            0,
        )
    )
    address = engine.alloc(64)
    loaded.bind(0, Buffer(address, 64))
    with pytest.raises(PlanError, match="does not fit into the 63 bytes"):
        loaded.bind(0, Buffer(address, 63))
    loaded.free()
    engine.free(address)


def test_memory_depends_on_the_tokens_of_a_run(page):
    """Runs in a separate process, since the peak memory of this process includes earlier tests."""
    tokens = 1 << 24
    data = decoder([(tokens, plan([(8 * tokens, False), LOGITS], []), feeds(tokens))])
    assert len(data) < 2000
    both(page, data, True)
    more = 2 * tokens
    both(
        page,
        decoder([(more, plan([(8 * more, False), LOGITS], []), feeds(more))]),
        False,
        "decoder.capacity",
    )
    script = (
        "import sys, resource; from edgewise.session.decoder import DecoderModel; from"
        " edgewise.package import Package; from edgewise.onnx import BytesSource\nlm ="
        " DecoderModel(Package.read(BytesSource(sys.stdin.buffer.read(), 'x.edge')));"
        " s = lm.open(); before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss"
        "\nlm.forward(s, [1, 2, 3]);"
        " print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    grown = subprocess.run(
        [sys.executable, "-c", script],
        input=data,
        capture_output=True,
        env={"PYTHONPATH": str(ROOT / "python"), "PATH": ""},
        check=True,
    ).stdout
    assert int(grown) < 16 << 10  # kB


VALUES = [
    ...,
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    64,
    1.0,
    1.5,
    1e300,
    1 << 24,
    1 << 32,
    1 << 53,
    (1 << 53) - 1,
    1 << 70,
    "",
    "x",
    "\0",
    "\ud800",
    "é" * 3000,
    "x" * 4096,
    "x" * 4097,
    "😀" * 2049,
    "__proto__",
    [],
    [1, 2],
    [0, 0],
    [[]],
    {},
    {"a": 1},
    {"__proto__": 1},
    "weights",
    "plan/1",
    "float16",
    "state",
    "computed",
    "0" * 64,
    "0" * 16,
]


@pytest.mark.parametrize("name", ["decoder", "training", "inference", "lengths", "task", "seq2seq"])
def test_every_field(name, packages, page):
    """Each field is removed or replaced by other values: both readers agree."""
    manifest, rest = split(data := packages[name])
    rng, taken, refused = random.Random(7), 0, 0
    everywhere = [p for p in places(manifest) if p and p != ("manifest_sha256",)]
    most, each = (60, 1) if len(data) > 1 << 20 else (150, 4)
    for path in rng.sample(everywhere, min(len(everywhere), most if ALL else most // 2)):
        for value in rng.sample(VALUES, each):
            changed = copy.deepcopy(manifest)
            at = changed
            for k in path[:-1]:
                at = at[k]
            if value is ...:
                del at[path[-1]]
            else:
                at[path[-1]] = value
            if both(page, joined(changed, rest)):
                taken += 1
            else:
                refused += 1
    assert refused > 3 * taken > 0, (refused, taken)


@pytest.mark.parametrize(
    "text",
    [
        b'{"manifest_sha256":"' + b"0" * 64 + b'","format":2,"x":' + b"[" * n + b"]" * n + b"}"
        for n in (62, 63, 64, 2000, 100_000)
    ]
    + [
        b"\xef\xbb\xbf{}",
        b'{"format":NaN}',
        b'{"format":2,"format":3}',
        b'{"format":2.0}',
        b'{"format":2e0}',
        b"[]",
        b"2",
        b"null",
        b"",
        b"{",
        b'{"a":"\x01"}',
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":\xff}',
        b'{"a":1' + b"0" * 5000 + b"}",
    ],
    ids=lambda t: repr(t[:24]) + str(len(t)),
)
def test_invalid_manifests(text, page):
    both(page, joined(text, b""), False)


def test_fields_of_other_tasks_are_not_read(packages, page):
    """The schema of a task leaves out fields of others: they are unchecked, and have no effect."""
    odd = {"encoder": {"plans": 1}, "processor": {"speech": 2}, "programs": 3, "inference": 4}
    for name in ("decoder", "inference", "task"):
        manifest, data = split(packages[name])
        both(page, joined({**odd, **manifest}, data), True)


def test_truncated_and_extended(packages, page):
    data = packages["inference"]
    for n in [*range(70), *range(70, len(data), 397)]:
        both(page, data[:n])
    for more in (1, 63, 64, 1000):
        both(page, data + bytes(more), False)


def test_checksums_of_weights(packages, page, tmp_path):
    """A flipped bit, or part of another file, in the weights: Python and the page report the weight
    and the position.
    """
    data = packages["decoder"]
    manifest, rest = split(data)
    start, (offset, _) = len(data) - len(rest), manifest["files"]["weights"]
    rng = random.Random(3)
    for _ in range(6):
        w = rng.choice([w for w in manifest["weights"] if w["bytes"]])
        broken = bytearray(data)
        broken[start + offset + w["offset"] + rng.randrange(w["bytes"])] ^= 1 << rng.randrange(8)
        path = tmp_path / "model.edge"
        path.write_bytes(broken)
        for model in (Package.read(BytesSource(bytes(broken), "model.edge")), str(path)):
            with pytest.raises(PackageError, match="do not match their checksum") as e:
                DecoderModel(model)
            assert w["name"] in e.value.what and "model.edge" in e.value.where
        got = page.ask(PLAY, bytes(broken))
        assert (
            got.get("error") == "PackageError"
            and w["name"] in got["what"]
            and "checksum" in got["what"]
            and got["where"] == "model.edge"
        ), got
        DecoderModel(str(path), verify=False).free()
    DecoderModel(Package.read(BytesSource(data, "model.edge"))).free()


def test_packages_of_earlier_formats(packages, page):
    manifest, rest = split(packages["decoder"])
    both(page, joined({**manifest, "format": 1}, rest), False, "this version of Edgewise reads 2")


def test_packages_larger_than_memory(page):
    """A valid package that does not fit into memory: the error names the part and the capacity."""
    large = 5 << 30
    caches = [{"name": "k", "bytes": large}]
    slots = [*feeds(1), slot("k", "cache", large)]
    step = (1, plan([(8, False), LOGITS, (large, True)], []), slots)
    data = decoder([step], caches=caches, capacity=10_000_000)
    both(page, data, True)
    got = page.ask(PLAY, data)
    assert (
        got["error"] == "OutOfMemory"
        and "10000000 tokens" in got["what"]
        and "5120 MB" in got["what"]
        and "capacity" in got["remedy"]
    ), got
