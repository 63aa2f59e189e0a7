"""Preferences: losses and gradients beside TRL's, on both forms of the logic, and runs of
Trainer.
"""

import edgewise
import numpy as np
import pytest
from edgewise.errors import InputError
from edgewise.host.training.data import answer_of
from edgewise.host.training.preferences import PreferenceHost
from edgewise.text import Tokenizer
from edgewise.training import LoraConfig

from tests.conformance.vectors import vectors
from tests.logic.forms import both, module

from . import llama
from .adapters.models import session_of
from .preference_cases import LORA, NAMES, SETTINGS, labelled, pairs, tokenizer_json, wave

EXPECTED = vectors("preferences")
SEQUENCE = 32


def tokenizer():
    files = {
        "tokenizer.json": tokenizer_json().encode(),
        "tokenizer_config.json": b'{"eos_token": "<end>", "pad_token": "<pad>"}',
    }
    return Tokenizer.from_files(files.get, "folder")


def driven(steps, answer_to):
    answer = None
    while True:
        try:
            answer = answer_to(steps.send(answer))
        except StopIteration as over:
            return over.value


@both
@pytest.mark.parametrize("name", SETTINGS)
def test_losses_and_gradients_are_those_of_trl(form, name):
    logic = module(form, "training.preferences")
    given = {"beta": None, "simpo_gamma": None, "desirable_weight": None}
    given |= {"undesirable_weight": None} | SETTINGS[name]
    by = logic.check_preference(name, *given.values(), "")
    records = labelled() if name == "kto" else pairs()
    encode = answer_of(tokenizer())
    examples = [x for r in records for x in driven(logic.compared(r, name, 0, "data"), encode)]
    units, report = logic.units_of(examples, name, SEQUENCE, 1, len(records), "data")
    assert len(units) == len(records)
    assert report.truncated == report.dropped == 0
    size = 3  # rows of a batch: fewer than those of the update, and not a divisor
    session = session_of("fp32", LoraConfig(**LORA), batch=size, sequence=SEQUENCE)
    session.initialize("accumulate")
    session.program.plan("update")
    host = PreferenceHost(session, 1)
    # of two forms, Node has copies of what it gets
    scores = driven(logic.scores(units, size), host.answer)
    for i, unit in enumerate(units):
        unit.reference = [logic.log_probability(unit, w, scores[2 * i + w]) for w in (0, 1)]
    adapters = [n for n, s in session.program.states.items() if ".lora_" in n and "/" not in n]
    for n in adapters:
        session.set(n, wave(n, session.program.states[n].shape))
    applied = []

    def answer(request):
        return applied.append(request) if request.kind == "apply" else host.answer(request)

    wanted = EXPECTED[name]
    loss = driven(logic.preferred(units, by, size, 0.5), answer)
    assert loss == pytest.approx(wanted["loss"], rel=1e-4)
    assert [(a.rate, a.scale) for a in applied] == [(0.5, 1.0)]
    gradients = {n: np.asarray(session.get(f"gradient/{n}"), np.float64) for n in adapters}
    norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
    assert norm == pytest.approx(wanted["norm"], rel=1e-4)
    for n in NAMES:
        got = [(gradients[n] * wave(f"{n} {i}", gradients[n].shape)).sum() for i in range(4)]
        assert got == pytest.approx(wanted["gradients"][n], abs=1e-4 * norm)
    assert driven(logic.judged(units, by, size), host.answer).loss == pytest.approx(loss, rel=1e-6)
    session.free()


def trainer(loss, **more):
    return edgewise.Trainer(
        llama.base("q4"),
        loss,
        adapters=LORA,
        tokenizer=tokenizer(),
        batch_size=4,
        sequence_length=SEQUENCE,
        **more,
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_prefers_what_is_chosen_and_resumes_exactly(name, tmp_path):
    records = labelled() if name == "kto" else pairs()
    whole = trainer(name, learning_rate=5e-3)
    before = whole.evaluate(records)
    history = whole.fit(records, max_steps=8, progress=False)
    assert whole.evaluate(records) < before
    if name == "dpo":
        assert history.losses[0] == pytest.approx(np.log(2), rel=1e-6)
    part = trainer(name, learning_rate=5e-3)
    path, stops = tmp_path / "run.safetensors", [lambda at: at.step < 3]
    first = part.fit(records, max_steps=8, callbacks=stops, checkpoint=path, progress=False)
    again = trainer(name, learning_rate=5e-3).resume(path)
    rest = again.fit(records, max_steps=8, progress=False)
    assert first.losses + rest.losses == history.losses
    adapter, other = whole.adapter(), again.adapter()
    assert all(adapter[n][2] == other[n][2] for n in adapter)
    for one in (whole, part, again):
        one.free()


@pytest.mark.parametrize(
    "loss, records, error",
    [
        ("dpo", [], "expected preferences"),
        ("dpo", "text", "expected preferences"),
        ("dpo", labelled(), "its fields are prompt, completion, label"),
        ("kto", [{"prompt": "w1", "completion": "w2", "label": 3}], "label is 3"),
        ("dpo", [{**pairs()[0], "chosen": [{"role": "user", "content": "x"}]}], "some of prompt"),
        ("simpo", [{**pairs()[0], "prompt": "w1 " * 40}], "all prompt"),
        ("dpo", [pairs()[0], "w1"], "record 2: 'w1' is not a record"),
    ],
)
def test_other_data_are_refused(loss, records, error):
    with pytest.raises(InputError, match=error):
        trainer(loss).fit(records, max_steps=1)


@both
def test_kto_needs_another_completion_in_each_update(form):
    logic, encode = module(form, "training.preferences"), answer_of(tokenizer())
    examples = [x for r in labelled() for x in driven(logic.compared(r, "kto", 0, "data"), encode)]
    with pytest.raises(InputError, match="data: an update has one .*gradient_accumulation_steps"):
        logic.units_of(examples, "kto", SEQUENCE, 1, 1, "data")
    assert len(logic.units_of(examples, "kto", SEQUENCE, 1, 2, "data")[0]) == len(examples)


@both
@pytest.mark.parametrize("label, good", [("True", True), ("False", False), ("true", True)])
def test_labels_may_be_those_of_a_table(form, label, good):
    logic = module(form, "training.preferences")
    record = {"prompt": "w1", "completion": "w2", "label": label}
    [(_, found)] = driven(logic.compared(record, "kto", 0, "data"), answer_of(tokenizer()))
    assert found is good


def test_settings_of_other_losses_are_refused():
    with pytest.raises(InputError, match="they belong to the losses"):
        trainer(None, beta=0.1)
    with pytest.raises(InputError, match="beta"):
        trainer("dpo", beta=0)


@both
def test_calls_of_tools_are_a_part_of_chats(form):
    logic = module(form, "training.preferences")
    user = {"role": "user", "content": "w1"}
    calls = [{"role": "assistant", "content": "", "tool_calls": [n]} for n in ("w2", "w3")]
    said = {"role": "assistant", "content": "w4"}

    def answer(request):
        if request.kind == "render":
            return " ".join(m["content"] or m["tool_calls"][0] for m in request.messages)
        return [int(w[1:]) for w in request.text.split()]

    record = {"chosen": [user, calls[0], said], "rejected": [user, calls[1], said]}
    made = driven(logic.compared(record, "dpo", None, "data"), answer)
    assert [(e.ids, e.prompt) for e, _ in made] == [([1, 2, 4], 1), ([1, 3, 4], 1)]


def test_chats_may_begin_with_the_prompt():
    logic = module("python", "training.preferences")
    first = [{"role": "user", "content": "w1"}]
    said = [[*first, {"role": "assistant", "content": w}] for w in ("w2", "w3")]
    asked = []

    def answer(request):
        if request.kind == "render":
            asked.append(([m["content"] for m in request.messages], request.prompt))
            return " ".join(m["content"] for m in request.messages)
        return [int(w[1:]) for w in request.text.split()]

    record = {"chosen": said[0], "rejected": said[1]}
    made = driven(logic.compared(record, "dpo", None, "data"), answer)
    assert [(e.ids, e.prompt, good) for e, good in made] == [([1, 2], 1, True), ([1, 3], 1, False)]
    assert asked == [(["w1"], True), (["w1", "w2"], False), (["w1"], True), (["w1", "w3"], False)]
