"""Rules of federated rounds, on both forms."""

import base64
import hashlib
import json
import math
import re

import pytest
from edgewise.errors import InputError

from tests.conformance.vectors import vectors

from .forms import both, module

SECURE = vectors("federated/secure")
FILES = vectors("federated")
TASK = {"run": "r", "round": 1, "base": "b" * 64, "codec": "int8"}
GROUP = {"version": 1, "group": "0" * 32, "size": 5, "clip": 1.0, "stage": 1}


@both
def test_epsilon_of_noise(form):
    """The vectors' are dp-accounting's."""
    budget = module(form, "federated.budget")
    for noises, expected in SECURE["epsilons"]:
        assert budget.epsilon_of(noises) == pytest.approx(expected, rel=1e-12)
    assert budget.epsilon_of([]) == 0
    assert budget.epsilon_of([1e9]) == 0
    assert budget.epsilon_of([1e-3]) == math.inf


@both
def test_the_context_of_a_plan(form):
    """The vectors' are those of another implementation."""
    plans = module(form, "federated.plan")
    for group in SECURE["groups"]:
        plan = plans.plan_of({**group["plan"], "secure": {**GROUP, **group["plan"]}})
        text = b"edgewise.secure.1 context\0" + plans.context_of(plan)
        assert hashlib.sha256(text).hexdigest() == group["context"]


@both
@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 2},
        {"group": "0" * 31 + "g"},
        {"size": 2},
        {"size": 65},
        {"size": 3.5},
        {"clip": 1e-300},
        {"clip": "1"},
        {"noise": 1e-200},
        {"noise": 1e308},
        {"noise": math.nan},
        {"stage": -1},
        {"stage": None},
        {"stage": True},
    ],
)
def test_plans_that_cannot_be_used(form, wrong):
    plans = module(form, "federated.plan")
    with pytest.raises(InputError, match="cannot be used|another version"):
        plans.plan_of({**TASK, "secure": {**GROUP, **wrong}})


@both
def test_settings_of_a_plan(form):
    """The lines are those of docs/architecture/secure-aggregation.md, numbers as IEEE 754 has."""
    plans = module(form, "federated.plan")
    task = {"config": {"b": 1, "a": -0.5}, "seed": 7, "part": "B"}
    lines = "config a bfe0000000000000\nconfig b 3ff0000000000000\nseed 7\npart B\n"
    assert plans.settings_of(task) == lines
    assert plans.settings_of({"config": None, "seed": None}) == ""
    wrong = [{"x": "1"}, {"x": True}, {"a b": 1}, {"x": math.nan}, {"x": 1e301}, [1]]
    for other in (*({"config": x} for x in wrong), {"audit": {}}, {"seed": 0.5}):
        with pytest.raises(InputError, match="cannot be those of a secure sum"):
            plans.settings_of(other)


@both
def test_lattices(form):
    plans = module(form, "federated.plan")
    count = sum(math.prod(shape) for shape in SECURE["shapes"].values())
    for q in SECURE["quantized"]:
        secure = {**GROUP, "size": 9, "clip": 1.5, "noise": q["noise"]}
        plan = plans.plan_of({**TASK, "codec": q["codec"], "secure": secure})
        grid = plans.grid_of_plan(plan, count)
        assert grid.bound == q["bound"] and grid.step == 1.5 / q["bound"]
        assert grid.block * grid.columns == len(q["numbers"])
    few = plans.plan_of({**TASK, "codec": "int4", "secure": GROUP})
    assert [plans.ring_bits(few, n) for n in (18, 19)] == [8, 16]


@both
def test_members_of_a_group(form):
    plans = module(form, "federated.plan")
    assert [plans.threshold(n) for n in (3, 4, 6, 64)] == [3, 3, 5, 43]
    plan = plans.plan_of({**TASK, "secure": GROUP})
    for count in (2, 6):
        with pytest.raises(InputError, match=f"it has {count} members, 3 to 5 are possible"):
            plans.check_members(count, plan)
    plans.check_members(5, plan)
    keys = [[f"{16 * k + i:02x}" for k in range(4)] for i in range(3)]
    plans.check_keys(keys)
    with pytest.raises(InputError, match="not in order"):
        plans.check_keys(keys[::-1])
    for k, name in enumerate(("identity", "channel", "mask", "commitment")):
        twice = [list(own) for own in keys]
        twice[2][k] = twice[0][k]
        with pytest.raises(InputError, match=f"the same {name}"):
            plans.check_keys(twice)
    with pytest.raises(InputError, match="no certificate"):
        plans.check_subjects(["a", None])
    with pytest.raises(InputError, match="a user is two"):
        plans.check_subjects(["a", "b", "a"])
    plans.check_subjects(["a", "b"])


@both
def test_lists_of_members(form):
    plans = module(form, "federated.plan")
    assert plans.indices_of([0, 2, 3], 4, 1, "sealed") == [0, 2, 3]
    for found in (None, "012", [0, 1, 4], [-1, 0, 1], [0, 1, 1.5], ["0", "1", "2"]):
        with pytest.raises(InputError, match="not a list of members"):
            plans.indices_of(found, 4, 1, "sealed")
    for found in ([0, 2, 1], [0, 1, 1]):
        with pytest.raises(InputError, match="not in order"):
            plans.indices_of(found, 4, 1, "sealed")
    for found, least, needed in (([], 1, 3), ([0, 1], 1, 3), ([0, 1, 2], 4, 4)):
        with pytest.raises(InputError, match=f"it has {len(found)} members, {needed} are needed"):
            plans.indices_of(found, 4, least, "sealed")
    plans.check_signed(3, 4, 1)
    with pytest.raises(InputError, match="2 members have signed these survivors, 3 are needed"):
        plans.check_signed(2, 4, 1)


@both
def test_files_of_changes(form):
    """The vectors' are NumPy's: tests/federated/test_codec.py computes them value by value."""
    layout = module(form, "federated.layout")
    shapes = sorted(FILES["shapes"].items())
    text = layout.text_of(shapes)
    assert hashlib.sha256(text.encode()).hexdigest() == FILES["schema"]
    part = [(n, s) for n, s in shapes if layout.rank_axis(n) == 1]
    assert hashlib.sha256(layout.text_of(part).encode()).hexdigest() == FILES["part"]
    for codec in layout.CODECS:
        file = base64.b64decode(FILES["files"][codec]["file"])
        size = int.from_bytes(file[:8], "little")
        header = json.loads(file[8 : 8 + size])
        fields = layout.fields_of(FILES["schema"], codec, "delta", FILES["metadata"])
        assert list(fields.items()) == list(header.pop("__metadata__").items())
        types = {"F32": "float32", "F16": "float16", "I8": "int8", "U8": "uint8"}
        found = {n: (types[t["dtype"]], t["shape"]) for n, t in header.items()}
        assert {n: (t, s) for n, t, s in layout.tensors_of(shapes, codec)} == found
        assert len(file) <= layout.max_bytes(shapes, codec) < len(file) + 2 * 4096


@both
def test_scales_of_parameters(form):
    """As docs/architecture/federated.md says: of the rank of LoRA, of 64 values elsewhere."""
    layout = module(form, "federated.layout")
    for name, shape, scales in [
        ("a.lora_A.weight", [8, 64], 8),
        ("a.lora_B.weight", [64, 8], 8),
        ("a.lora_B", [64, 8, 1, 1], 8),
        ("a.lora_embedding_A", [4, 100], 4),
        ("a.lora_B", [64], 1),
        ("lora_A.weight", [8, 65], 9),
        ("a.lora_A.bias", [8, 65], 9),
        ("dense", [0, 3], 0),
    ]:
        assert layout.groups_of(name, shape) == scales
    names = ["a b", "~", "", "ä", "a\n", "\x7f"]
    assert [layout.is_name(n) for n in names] == [True, True, False, False, False, False]


@both
def test_files_that_are_not_expected(form):
    layout = module(form, "federated.layout")
    metadata = {"kind": "delta", "base": "b" * 64, "more": "x"}
    wanted = {"kind": "delta", "base": "b" * 64}
    tensors = [("dense", "float32", [2, 3]), ("w", "float16", [4])]
    assert layout.fault_of(metadata, tensors[::-1], wanted, tensors) is None
    for fields, found, code, what, where in [
        ({"kind": "weights"}, tensors, "metadata", "'weights', 'delta' is exp", "metadata 'kind'"),
        ({"base": "x" * 999}, tensors, "metadata", "it is 'x{80}', 'b{64}'", "metadata 'base'"),
        ({}, tensors[:1], "names", "'w' is missing", ""),
        ({}, [*tensors, ("__proto__", "float32", [1])], "names", "'__proto__' is new", ""),
        ({}, [("dense", "float32", [3, 2]), tensors[1]], "shape", r"3, 2. .*2, 3. is", "'dense'"),
        ({}, [("dense", "int8", [2, 3]), tensors[1]], "shape", "or type", "'dense'"),
        ({}, [("dense", "float32", [6]), tensors[1]], "shape", r"\[6\]", "'dense'"),
    ]:
        fault = layout.fault_of({**metadata, **fields}, found, wanted, tensors)
        assert (fault[0], fault[2]) == (code, where) and re.search(what, fault[1]), fault
    assert layout.fault_of({}, tensors, wanted, tensors)[1] == "it is 'None', 'delta' is expected"


@both
def test_names_of_parameters(form):
    layout = module(form, "federated.layout")
    shapes = [("b", [2]), ("a.lora_B", [4, 2])]
    assert [name for name, _ in layout.checked(shapes)] == ["a.lora_B", "b"]
    assert [name for name, _ in layout.part_of(shapes, "B")] == ["a.lora_B"]
    assert [name for name, _ in layout.part_of(shapes, None)] == ["b", "a.lora_B"]
    for wrong, part in ((shapes, "A"), (shapes, ""), (shapes[:1], "B"), (shapes, "x" * 999)):
        with pytest.raises(InputError, match=f"'{part[:20]}' is not a part of what is trained"):
            layout.part_of(wrong, part)
    with pytest.raises(InputError, match="0 parameters are trained"):
        layout.checked([])
    for name in ("", "ä", "a\n"):
        with pytest.raises(InputError, match="is not a valid name of a parameter"):
            layout.checked([("b", [2]), (name, [1])])


@both
def test_files_of_tasks(form):
    tasks = module(form, "federated.tasks")
    shapes = [("a.lora_B.weight", [64, 8])]
    file = {"kind": "delta", "codec": "int8", "bytes": 4000, "sha256": "f" * 64, "part": None}
    found = tasks.file_of({"file": file}, shapes)
    assert (found.content, found.codec, found.size) == ("delta", "int8", 4000)
    assert (found.sha256, found.part) == ("f" * 64, None)
    whole = tasks.file_of({"file": {**file, "kind": "weights", "part": "B"}}, shapes)
    assert (whole.content, whole.codec, whole.part) == ("weights", "float32", "B")
    most = 64 * 8 + 2 * 8 + 4096  # values, scales, and room for the header
    assert tasks.file_of({"file": {**file, "bytes": most}}, shapes).size == most
    wrong = [{"kind": "other"}, {"kind": None}, {"codec": "int2"}, {"codec": 8}, {"bytes": 0}]
    wrong += [{"bytes": most + 1}, {"bytes": 0.5}, {"bytes": "9"}, {"sha256": None}, {"part": 1}]
    for task in (*({"file": {**file, **other}} for other in wrong), {}, {"file": None}):
        with pytest.raises(InputError, match="it names no file that this client can use"):
            tasks.file_of(task, shapes)


@both
def test_clips_and_offsets(form):
    tasks = module(form, "federated.tasks")
    for privacy, expected in [
        ({"clip": 1.5}, 1.5),
        ({"clip": 0}, math.inf),
        ({"clip": "1"}, math.inf),
        ({"clip": math.nan}, math.inf),
        ({}, math.inf),
        (None, math.inf),
    ]:
        assert tasks.clip_of({"privacy": privacy}) == expected
    found = [tasks.is_offset(x, 2, 9) for x in (1, 2, 9, 10, 2.5, None, "3")]
    assert found == [False, True, True, False, False, False, False]
