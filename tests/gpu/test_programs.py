"""Python and TypeScript print the same WGSL programs for the steps of plans: the first case of each
op, a language model, and training; and run the same steps of a language model in one dispatch.
"""

import base64
import json
import shutil
import subprocess
from pathlib import Path

from bench import models
from edgewise import InferenceSession
from edgewise.compiler.compile import compile_causal_lm
from edgewise.compiler.gpu.gen.shaders import COMMON, SUBGROUPS
from edgewise.compiler.gpu.grouped import Facts
from edgewise.compiler.gpu.program import BINDING_BYTES, BINDINGS, groups_of
from edgewise.compiler.gpu.steps import register_ranges, steps_of
from edgewise.compiler.gpu.subgroups import in_subgroups
from edgewise.compiler.gpu.variants import parts_of, stages_of
from edgewise.compiler.targets.webgpu import WEBGPU
from edgewise.engine import LoadedPlan
from edgewise.errors import EdgewiseError
from edgewise.logic.gpu.arrange import Span, arrange
from edgewise.logic.gpu.link import Binding, Role
from edgewise.onnx import BytesSource, read_model
from edgewise.training.peft import LoraConfig
from ops.harness import all_cases
from training.zoo import ZooCase, cases

from .printed import Printed, program
from .test_arenas import ForeignEngine, language_model

ROOT = Path(__file__).parents[2]
NUMBERS = [
    1.0,
    -0.0,
    0.1,
    1e-5,
    9.999999747378752e-06,
    1e15,
    1e16,
    1.5e22,
    -3.25,
    123456.789,
    1e-300,
]


def op_plans(monkeypatch):
    """The plans that the first case of each op runs."""
    found, known = [], set()
    original = LoadedPlan.__init__

    def noted(self, engine, plan):
        found.append(plan.data)
        original(self, engine, plan)

    monkeypatch.setattr(LoadedPlan, "__init__", noted)
    engine = ForeignEngine(threads=1)
    for name, case in all_cases():
        op = name.rsplit("-", 1)[0]
        if op in known:
            continue
        known.add(op)
        model, feeds = case.model()
        session = InferenceSession(model.SerializeToString(), engine=engine)
        try:
            session.run(None, feeds)
        except EdgewiseError:
            pass  # a case of an error: the plans before it count
        finally:
            session.free()
    return found


def printed(data, serial=False):
    """The programs of each step, as web/test/reader/programs.ts prints them."""
    largest = [high for _, high in register_ranges(data)]
    out = []
    for i, step in enumerate(steps_of(data, serial)):
        spans = [
            None if v is None or not v.buffer else Span(v.buffer, 0, 1 << 20, v.offset)
            for v in step.operands
        ]
        programs = []
        for variant in stages_of(step, largest):
            a = arrange([step.linked], [spans])
            text = program(step, variant, a.roles[0], a.bindings, i % 2 == 1).text
            programs.append([in_subgroups(text), [list(r) for r in a.ranges], list(a.offsets[0])])
        out.append(programs)
    return out


def plans_of(model, **more):
    graph = read_model(BytesSource(model.SerializeToString()))
    return compile_causal_lm(graph, capacity=256, target=WEBGPU, **more)[1]


def test_both_languages_run_the_same_steps_at_once():
    """A language model in float32 with adapters, and one in 4 bits. Where no run that fails may
    change a cache, nothing writes it together with steps that can fail.
    """
    shape = {**models.SMOLLM2, "vocab": 512, "layers": 2}
    plans = plans_of(
        models.language_model(**shape), lora=LoraConfig(r=4, target_modules="all-linear")
    )
    plans += plans_of(models.in_4_bits(models.language_model(**shape)))
    engine = ForeignEngine(threads=1)
    printed = [Printed(engine.load(plan)) for plan in plans]
    token = next(p for p in reversed(printed) if any(x.takers for x in p.launches))
    found = [x for x in token.launches if x.takers and any("fail(" in p.text for p in x.programs)]
    kept = [{"cache": "state"}.get(kind, kind) for kind in token.facts.kinds]
    facts = Facts(token.plan.data, kept, False, BINDINGS, BINDING_BYTES)
    assert found and not any(group.takers for group in groups_of(facts, token.plan.data))
    sizes = set()
    for got, want in zip(answers(loaded=printed)["grouped"], printed, strict=True):
        count = want.plan.init_count
        launches = [x for x in want.launches if x is not None and x.index >= count]
        sizes |= {(len(x.steps), x.head, x.tail) for x in launches}
        texts = [
            [x.index, len(x.steps), [in_subgroups(p.text) for p in x.programs]] for x in launches
        ]
        assert [x for x in got if x[0] >= count] == texts  # pages run init steps one by one
    assert {head for _, head, _ in sizes} == {tail for *_, tail in sizes} == {True, False}
    launches = [x for one in printed for x in one.launches if x is not None]
    assert any(len(x.kinds) > 2 for x in launches) and any(x.takers == 3 for x in launches)
    assert any(x.chain for x in launches)
    heads = [in_subgroups(p.text) for x in launches if x.head for p in x.programs]
    assert all("subgroupAdd(v)" in text and not unreplaced(text) for text in heads)
    # an operand that others of a dispatch have is absent for a step without it
    step = next(s for s in token.steps if s.kernel.name == "rope")
    bound = Role((0,), False)
    roles = [Role((), False) if v is None else bound for v in step.operands]
    assert len(set(roles)) == 2
    variant, one = stages_of(step, [])[0], [Binding(False, "f32")]
    texts = {program(step, variant, r, one).text for r in (roles, [bound] * len(roles))}
    assert len(texts) == 1


def unreplaced(text):
    """Reductions of a program that are left in the form for GPUs without subgroups."""
    common = parts_of(COMMON)
    return [name for name in parts_of(SUBGROUPS) if name in common and common[name] in text]


def coded(data):
    return base64.b64encode(data).decode()


def answers(plans=(), loaded=(), damaged=()):
    """What web/test/reader/programs.ts prints."""
    question = {
        "plans": [coded(data) for data in plans],
        "numbers": NUMBERS,
        "damaged": [coded(data) for data in damaged],
        "loaded": [
            {
                "plan": coded(p.plan.data),
                "kinds": [slot.kind for slot in p.plan.slots],
                "resolved": [
                    [v and [v.buffer, v.begin, v.end] for v in step.operands]
                    for step in p.loaded.resolve()
                ],
            }
            for p in loaded
        ],
    }
    answer = subprocess.run(
        [shutil.which("node"), ROOT / "web/test/reader/read.mjs", "", "programs.ts"],
        input=json.dumps(question).encode(),
        capture_output=True,
        check=True,
    )
    return json.loads(answer.stdout)


def test_both_languages_print_the_same_programs(monkeypatch):
    plans = op_plans(monkeypatch)
    plans += [plan.data for plan in language_model(WEBGPU, layers=1)]
    for name in ("nanogpt_op17_ce_adamw", "mlp_clipnorm_ce_adamw"):
        program = ZooCase(cases()[name]).program(target=WEBGPU)
        plans += [plan.data for plan in program.plans.values()]
    got = answers(plans)
    assert got["serial"] == [printed(plan, serial=True) for plan in plans]
    assert got["numbers"] == [repr(x) for x in NUMBERS]
    want = [printed(plan) for plan in plans]
    texts = {text for plan in want for step in plan for text, _, _ in step}
    assert len(texts) > 100
    assert not any(map(unreplaced, texts))
    assert len([text for text in texts if text.startswith("enable subgroups;")]) > 5
    for data, a, b in zip(plans, got["printed"], want, strict=True):
        for step, x, y in zip(steps_of(data), a, b, strict=True):
            assert x == y, step.kernel.name
