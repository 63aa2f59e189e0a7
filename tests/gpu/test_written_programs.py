"""The GPU programs of plans: what they are made of, and what a package cannot do with one."""

import json
from copy import copy

import pytest
from edgewise.compiler.gpu.grouped import Facts
from edgewise.compiler.gpu.program import (
    BINDING_BYTES,
    BINDINGS,
    CHAIN,
    HEAD,
    MAGIC,
    TAIL,
    WITHOUT,
    joined,
    read_program,
)
from edgewise.compiler.gpu.steps import end_of_steps, first_registers, steps_of, touched_by
from edgewise.compiler.schema.plan_format import HEADER
from edgewise.compiler.targets.webgpu import WEBGPU
from edgewise.engine import LoadedPlan
from edgewise.errors import PlanError

from .printed import Printed
from .test_arenas import ForeignEngine, language_model
from .test_programs import answers, op_plans


def test_what_steps_touch(monkeypatch):
    """As the engine in C says it."""
    found = {}
    original = LoadedPlan.__init__

    def noted(self, engine, plan):
        original(self, engine, plan)
        found[plan.data] = self.resolve()

    engine = ForeignEngine(threads=1)
    for plan in language_model(WEBGPU, layers=1):
        noted(LoadedPlan.__new__(LoadedPlan), engine, plan)
    monkeypatch.setattr(LoadedPlan, "__init__", noted)
    op_plans(monkeypatch)
    operands = 0
    for data, resolved in found.items():
        registers = first_registers(data)
        for step, want in zip(steps_of(data), resolved, strict=True):
            got = [v and tuple(v) for v in touched_by(step, registers)]
            assert got == [v and (v.buffer, v.begin, v.end) for v in want.operands]
            assert step.moves == want.registers, step.kernel.name
            operands += len(got)
    assert operands > 3000


def groups(data):
    """The groups for a GPU in hardware, as numbers."""
    at = -(-end_of_steps(data) // 16) * 16 + len(MAGIC)
    return json.loads(data[at:])["hardware"]


def damages(data):
    """Programs that a dispatch could gain by: more steps, other parts, other orders."""
    true = groups(data)
    kinds = {
        "head": next(i for i, g in enumerate(true) if g[2] == HEAD and not g[3]),
        "tail": next(i for i, g in enumerate(true) if g[2] & TAIL),
        "taken": next(i for i, g in enumerate(true) if g[3]),
        "chain": next(i for i, g in enumerate(true) if g[2] & CHAIN),
    }

    def changed(kind, *numbers):
        return [numbers if i == kinds[kind] else g for i, g in enumerate(true)]

    first, end, flags, takers = true[kinds["taken"]]
    yield changed("taken", first, end + 1, flags, takers)
    yield changed("taken", first, end, flags, takers - 1)
    yield changed("taken", first, end, flags, 0)
    yield changed("taken", first, end, flags | TAIL, takers)
    yield changed("taken", first, end, 0, takers)
    yield changed("taken", first + 1, end, HEAD, takers)
    yield changed("taken", first, end, flags, -takers)
    first, end, flags, takers = true[kinds["tail"]]
    yield changed("tail", first, end, flags & ~TAIL, 0)
    yield changed("tail", first, end - 1, flags, 0)
    yield changed("tail", first, end, TAIL, 0)
    first, end, flags, takers = true[kinds["head"]]
    yield changed("head", first, end, 0, 0)
    yield changed("head", first, end, HEAD, 0, end)
    yield changed("head", first, end, CHAIN, 0, first + 1, end)
    first, end, flags, takers, *ends = true[kinds["chain"]]
    yield changed("chain", first, end, CHAIN, 0, end)
    yield changed("chain", first, end, CHAIN, 0, *ends[:-1])
    yield changed("chain", first, end, CHAIN, 0, *reversed(ends))
    yield changed("chain", first, end, 0, 0)
    yield changed("chain", first, 1 << 40, CHAIN, 0, *ends)
    yield changed("chain", first + 0.5, end, CHAIN, 0, *ends)
    yield changed("chain", None, end, CHAIN, 0, *ends)
    yield [*true, true[0]]
    yield list(reversed(true))


def test_damaged_programs_are_refused():
    engine = ForeignEngine(threads=1)
    token = Printed(engine.load(language_model(WEBGPU, layers=2)[0]))
    data = token.plan.data
    texts = [json.dumps({"hardware": of, "serial": []}).encode() for of in damages(data)]
    texts += [b"", b"{}", b"[" * 100_000, b'{"hardware":7}', b'{"hardware":[[0]]}', b"\xff"]
    damaged = [joined(data, text) for text in texts]
    facts = Facts(data, token.facts.kinds, False, BINDINGS, BINDING_BYTES)
    for changed in damaged:
        plan = copy(token.plan)
        plan.data = changed
        engine.load(plan)  # it knows nothing of the program
        with pytest.raises(PlanError, match="GPU program does not fit"):
            read_program(changed, facts, "plan")
    refused = answers(loaded=[token], damaged=damaged)["refused"]
    for text, words in zip(texts, refused, strict=True):
        assert "its GPU program does not fit its steps" in words, text[:300]


def test_a_plan_without_a_program():
    """Its steps run one by one."""
    engine = ForeignEngine(threads=1)
    plan = language_model(WEBGPU, layers=1)[0]
    fewer = Printed(engine.load(plan)).dispatches
    data = bytearray(plan.data[: end_of_steps(plan.data)])
    header = list(HEADER.unpack_from(data))
    header[-1] = len(data)
    HEADER.pack_into(data, 0, *header)
    plan.data = bytes(data)
    with pytest.warns(UserWarning, match=WITHOUT):
        loaded = Printed(engine.load(plan))
    assert len(plan.kernels) - plan.init_count == loaded.dispatches > 2 * fewer
    assert answers(loaded=[loaded])["grouped"]
