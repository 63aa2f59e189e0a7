"""Labels, options, training and results of personal pipelines, on both forms."""

import math

import numpy as np
import pytest
from edgewise.errors import InputError, ModelError
from edgewise.logic.personal.adapters import LoraOptions
from edgewise.logic.personal.files import HeadFile, Stored
from edgewise.logic.personal.options import HeadFields
from edgewise.seeds import seed_of_run

from tests.conformance.vectors import vectors

from .forms import both, module

INF, NAN, HUGE = float("inf"), float("nan"), 10**400


def labels_of(form, counts=(4, 1, 3)):
    made = module(form, "personal.examples").Labels()
    for label, count in zip("abc", counts):
        made.add_label(label, count)
    return made


@both
def test_labels_are_added_and_removed(form):
    made = labels_of(form)
    made.add_label("a", 1)
    assert (made.labels, made.classes) == (["a", "b", "c"], [0, 0, 0, 0, 1, 2, 2, 2, 0])
    assert made.counts() == [5, 1, 3] and made.trainable()
    assert made.remove_label("b") == [0, 1, 2, 3, 5, 6, 7, 8]
    assert (made.labels, made.classes) == (["a", "c"], [0, 0, 0, 0, 1, 1, 1, 0])
    with pytest.raises(InputError, match="no label 'b'.*a, c"):
        made.remove_label("b")
    made.remove_label("c")
    assert not made.trainable()
    assert not labels_of(form, (3, 0)).trainable()


@both
def test_weights_of_examples(form):
    """class_weight of scikit-learn: n_samples / (n_classes * np.bincount(y)) for "balanced"."""
    made = labels_of(form)
    y = np.array(made.classes)
    balanced = len(y) / (3 * np.bincount(y))
    assert made.weights("balanced") == pytest.approx(balanced[y])
    assert made.weights(None) == [1] * 8
    assert made.weights({"b": 3.0, "gone": 9.0}) == [1, 1, 1, 1, 3, 1, 1, 1]
    some = labels_of(form, (2, 0, 1))
    assert some.weights("balanced") == pytest.approx([0.75, 0.75, 1.5])


@both
@pytest.mark.parametrize("seed", [0, 7, 2**53 + 1, 2**63 - 1])
def test_held_out_examples(form, seed):
    made = labels_of(form, (10, 1, 2))
    for share, counts in ((0.25, (2, 0, 1)), (0.01, (1, 0, 1)), (0.99, (9, 0, 1))):
        known, held = made.split(share, seed)
        assert sorted([*known, *held]) == list(range(13)) and held == sorted(held)
        assert tuple(sum(made.classes[i] == c for i in held) for c in range(3)) == counts
    first = sorted(range(10), key=lambda k: seed_of_run(seed, k))[:2]
    known, held = made.split(0.25, seed)
    assert [i for i in held if i < 10] == sorted(first)


@both
def test_fields_of_heads(form):
    head_fields = module(form, "personal.options").head_fields
    assert head_fields({}) == HeadFields()
    given = {"method": "knn", "neighbors": 3, "c": 2, "class_weight": {"a": 2}, "steps": 4}
    made = head_fields({**given, "learning_rate": 0.5, "other": 3})
    assert made == HeadFields("knn", 3, 2, {"a": 2}, 4, 0.5)
    assert head_fields({"class_weight": None}).class_weight is None
    for name, values in {
        "method": ("svm", 3, None),
        "neighbors": (0, 1.5, True, "5", 1e300),
        "steps": (0, 100_001, 0.5, None),
        "c": (0, -1, INF, NAN, "1", True),
        "learning_rate": (0, INF),
        "class_weight": ("x", [1], {"a": -1}, {"a": "2"}, {"a": 0}, 3),
    }.items():
        for value in values:
            with pytest.raises(InputError, match=rf"at\.{name}"):
                head_fields({name: value}, "at.")


@both
def test_options_of_teaching(form):
    options = module(form, "personal.options")
    options.check_teaching("desk", 0.99)
    for name, share, what in (
        ("", 0, "not a name"),
        (3, 0, "not a name"),
        ("a", 1, "not a share"),
        ("a", -0.1, "not a share"),
        ("a", True, "not a share"),
        ("a", "0.5", "not a share"),
        ("a", NAN, "not a share"),
    ):
        with pytest.raises(InputError, match=what):
            options.check_teaching(name, share)
    assert options.checked_seed(5) == 5
    for seed in (-1, 0.5, True, None, "1"):
        with pytest.raises(InputError, match=r"at\.seed"):
            options.checked_seed(seed, "at.")
    options.check_labels(HeadFields(class_weight={"a": 2.0}), ["a", "b"])
    options.check_labels(HeadFields(), [])
    with pytest.raises(InputError, match="no label 'c'"):
        options.check_labels(HeadFields(class_weight={"c": 2.0}), ["a", "b"])


@both
def test_options_of_adapters(form):
    options = module(form, "personal.options")
    lora_options = module(form, "personal.adapters").lora_options
    assert [options.is_lora(x, "logistic") for x in (None, False, True, {})] == [0, 0, 1, 1]
    with pytest.raises(InputError, match="no head"):
        options.is_lora(True, "knn")
    assert lora_options(True) == LoraOptions()
    assert lora_options({"steps": 3, "rank": 2}) == LoraOptions(rank=2, steps=3)
    assert lora_options({"rank": 4}, 4, 8.0, True) == LoraOptions(rank=4, alpha=8)
    with pytest.raises(InputError, match="made for the rank 4 and the alpha 8"):
        lora_options({"rank": 3}, 4, 8, True)
    for wrong in ([], 3, "x", {"step": 1}):
        with pytest.raises(InputError, match=r"no set of options.*There are: rank, alpha"):
            lora_options(wrong)
    for name, values in {
        "rank": (0, 257, 1.5, "4"),
        "alpha": (0, INF, "4"),
        "steps": (0, 100_001, "3", 0.5),
        "learning_rate": (0, INF, "0.1", True),
        "patience": (0,),
    }.items():
        for value in values:
            with pytest.raises(InputError, match=rf"lora\.{name}"):
                lora_options({name: value})


LAYER = ["dense", "dense.weight", True, "x", "y", 3, 2]
LAYOUT = {"rank": 2, "alpha": 4.0, "numbers": 20, "layers": [LAYER, [*LAYER[:1], None, *LAYER[2:]]]}


@both
def test_layouts_of_adapters(form):
    layout_of = module(form, "personal.layout").layout_of
    made = layout_of(LAYOUT, "x")
    assert made.to_dict() == LAYOUT and (made.first, made.numbers) == (12, 20)
    assert [(a, b) for _, a, b in made.pairs()] == [(0, 12), (6, 16)]
    assert made.same(layout_of(LAYOUT, "y")) and not made.same(
        layout_of({**LAYOUT, "alpha": 2}, "")
    )
    for wrong in (
        {"rank": 0},
        {"rank": 257},
        {"alpha": -1},
        {"alpha": None},
        {"numbers": 11},
        {"layers": []},
        {"layers": [LAYER[1:]]},
        {"layers": [[*LAYER[:6], 2.5]]},
        {"layers": [[1] * 7]},
        {"layers": "x"},
        {"rank": 16, "layers": [[*LAYER[:5], 1 << 24, 1 << 24]], "numbers": 1 << 29},
    ):
        with pytest.raises(InputError):
            layout_of({**LAYOUT, **wrong}, "x")
    for wrong in (None, 3, [], {}):
        with pytest.raises(InputError):
            layout_of(wrong, "x")


@both
def test_batches_and_lengths(form):
    shared, training = vectors("personal/lora"), module(form, "personal.adapters")
    for x in shared["batches"]:
        given = (x["known"], x["size"])
        got = [training.batch_of(*given, step, x["seed"]) for step in range(x["steps"])]
        assert got == x["batches"]
        flat, count = sum(got, []), len(x["known"])
        assert all(
            sorted(flat[at : at + count]) == sorted(x["known"])
            for at in range(0, len(flat) - count + 1, count)
        )
    fitting = module(form, "personal.layout").fitting_length
    for x in shared["lengths"]:
        assert [fitting([(n, n) for n in x["plans"]], n) for n in x["given"]] == x["found"]
    assert [fitting([(2, 30)], n) for n in (1, 9, 31)] == [2, 9, 30]


@both
def test_steps_of_heads(form):
    """The rates are those of torch's CosineAnnealingLR."""
    training = module(form, "personal.training")
    made = labels_of(form, (2, 1))
    feeds = training.head_feeds(made, HeadFields(c=0.5), 4, 3)
    wanted = [[0.25, 0, 0], [0.25, 0, 0], [0, 0.5, 0], [0, 0, 0]]
    np.testing.assert_allclose(np.reshape(feeds.targets, [4, 3]), wanted, rtol=1e-6)
    np.testing.assert_allclose(feeds.mask, [0, 0, -1e9])
    assert feeds.penalty == pytest.approx(1 / (0.5 * 3))
    torch = pytest.importorskip("torch")
    rule = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(rule, 4)
    steps, losses = training.head_steps(HeadFields(steps=4)), [3.0, 2.0, 1.0, 0.5]
    step = next(steps)
    for i, loss in enumerate(losses):
        assert step.number == i + 1
        assert step.rate == pytest.approx(schedule.get_last_lr()[0], abs=1e-9)
        rule.step()
        schedule.step()
        try:
            step = steps.send(loss)
        except StopIteration as over:
            assert list(over.value) == losses and i == 3
    steps = training.head_steps(HeadFields(steps=1))
    next(steps)
    with pytest.raises(InputError, match="lower learning_rate"):
        steps.send(NAN)
    training.check_trainable(made)
    with pytest.raises(InputError, match="two labels"):
        training.check_trainable(labels_of(form, (2,)))


@both
def test_losses_of_examples(form):
    training = module(form, "personal.adapters")
    torch = pytest.importorskip("torch")
    for logits in ([0.5, -1.25, 3.0], [900.0, -900.0], [0.0]):
        for label in range(len(logits)):
            given = torch.tensor([logits], dtype=torch.float64)
            wanted = torch.nn.functional.cross_entropy(given, torch.tensor([label])).item()
            assert training.loss_of(logits, label) == pytest.approx(wanted, abs=1e-12)
    everything, known = labels_of(form, (3, 2, 1)), labels_of(form, (2, 2))
    shares = training.shares_of(everything, known, {"a": 3.0})
    assert shares == pytest.approx([1.5, 0.5, 0.5])
    targets = list(training.targets_of(1, 1.5, 3))
    assert len(targets) == 64 and targets[1] == 0.5 and sum(targets) == 0.5


def adapted(form, losses, scores, **options):
    """(report, kinds of requests) of a training whose measurements and scores are given."""
    examples = labels_of(form, (4, 4))
    adapting = module(form, "personal.adapters").adapting
    made = LoraOptions(
        **{"steps": 6, "batch_size": 2, "evaluate_every": 2, "patience": 2, **options}
    )
    todo = adapting(examples, [0, 1, 2, 4, 5, 6], [3, 7], 8, made, 5)
    measured, seen = iter(losses), []
    request = next(todo)
    try:
        while True:
            seen.append(request.kind)
            answer = None
            if request.kind == "step":
                assert len(request.batch) == 2 and set(request.batch) <= {0, 1, 2, 4, 5, 6}
                answer = 1.0 / request.number
            elif request.kind == "measure":
                answer = next(measured)
            elif request.kind == "score":
                answer = scores[int(request.adapted)]
            request = todo.send(answer)
    except StopIteration as over:
        return over.value, seen


def said(*rows):
    """Scores of the two held-out examples."""
    return ["a", "b"], [{"a": a, "b": 1 - a} for a in rows]


WORSE, BETTER, SURER = said(0.6, 0.7), said(0.6, 0.4), said(0.9, 0.1)


@both
def test_adapters_are_kept_where_they_help(form):
    report, seen = adapted(form, [1, 0.5, 0.6, 0.4], [WORSE, BETTER])
    steps = ["step", "step", "measure"]
    assert seen == ["begin", "measure", *steps, "keep", *steps, *steps, "keep", "score", "score"]
    assert report["kept"] and report["held_out_losses"] == [1, 0.5, 0.6, 0.4]
    assert report["losses"] == pytest.approx([1 / n for n in range(1, 7)])
    assert (report["before"]["accuracy"], report["after"]["accuracy"]) == (0.5, 1)
    report, seen = adapted(form, [1, 1.5, 1.25], [WORSE])  # they never get better, and it ends
    assert seen == ["begin", "measure", *steps, *steps, "score"] and not report["kept"]
    assert report["after"] is None and report["before"]["accuracy"] == 0.5
    for scores, kept in (
        ([BETTER, WORSE], False),
        ([BETTER, BETTER], False),
        ([BETTER, SURER], True),  # as many right answers, which are surer
        ([SURER, BETTER], False),
    ):
        report, _ = adapted(form, [1, 0.5, 0.6, 0.7], scores)
        assert report["kept"] is kept and (report["after"] is not None) is kept


@both
def test_trainings_of_adapters_that_are_refused(form):
    adapting = module(form, "personal.adapters").adapting
    some = labels_of(form, (2, 2))
    for given, what in (
        ((some, [0, 2], [1, 3], 5), "in parts"),
        ((some, [0, 1, 2, 3], [], 4), "two examples"),
    ):
        with pytest.raises(InputError, match=what):
            next(adapting(*given, LoraOptions(), 0))
    many = module(form, "personal.examples").Labels([str(i) for i in range(65)], list(range(65)))
    with pytest.raises(InputError, match="65 labels"):
        next(adapting(many, [0], [1], 65, LoraOptions(), 0))
    steps = adapting(some, [0, 2], [1, 3], 4, LoraOptions(), 0)
    for answer in (None, 1.0):
        next(steps) if answer is None else steps.send(None)
    steps.send(1.0)
    with pytest.raises(InputError, match="not finite"):
        steps.send(INF)


@both
def test_options_of_calls(form):
    call_options = module(form, "personal.results").call_options
    image, text, voice = "image-classification", "text-classification", "speaker-verification"
    assert call_options({}, image, "logistic").top_k == 5
    made = call_options({"function_to_apply": "none"}, text, "logistic")
    assert (made.top_k, made.function) == (1, "none")
    made = call_options({"top_k": None, "function_to_apply": None}, text, "knn")
    assert (made.top_k, made.function) == (None, "softmax")
    made = call_options({"threshold": 1, "name": "me"}, voice, "logistic")
    assert (made.threshold, made.name) == (1, "me")
    for given, what in (
        ({"top_k": 0}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"threshold": 1.5}, "probability"),
        ({"threshold": True}, "probability"),
        ({"name": 3}, "not a name"),
        ({"function_to_apply": "relu"}, "no function"),
        ({"function_to_apply": "softmax"}, "no logits"),
    ):
        with pytest.raises(InputError, match=what):
            call_options(given, image, "knn")


@both
def test_results_of_calls(form):
    logic = module(form, "personal.results")
    options = logic.call_options({"top_k": 2}, "image-classification", "logistic")
    found = logic.results(options, "image-classification", ["a", "b", "c"], [0.0, 2.0, 1.0], True)
    powers = np.exp([2.0, 1.0]) / np.exp([0.0, 2.0, 1.0]).sum()
    assert [x["label"] for x in found] == ["b", "c"]
    assert [x["score"] for x in found] == pytest.approx(powers)
    shares = logic.results(options, "image-classification", ["a", "b", "c"], [0.2, 0.0, 0.8], False)
    assert [(x["label"], x["score"]) for x in shares] == [("c", 0.8), ("a", 0.2)]
    voice, labels, shares = "speaker-verification", ["me", "other", "you"], [0.3, 0.6, 0.1]
    given = logic.call_options({"threshold": 0.3}, voice, "knn")
    found = logic.results(given, voice, labels, shares, False)
    assert [(x["label"], x["accepted"]) for x in found] == [("me", True), ("you", False)]
    given = logic.call_options({"name": "you"}, voice, "knn")
    assert [x["label"] for x in logic.results(given, voice, labels, shares, False)] == ["you"]
    with pytest.raises(InputError, match="no voice 'he'"):
        given = logic.call_options({"name": "he"}, voice, "knn")
        logic.results(given, voice, labels, shares, False)


@both
def test_labels_of_evaluations(form):
    logic = module(form, "personal.results")
    assert [logic.label_of("x", known) for known in (["x"], ["a", "other"], ["a"])] == [
        "x", "other", "x",
    ]  # fmt: skip
    scores = logic.by_label(["a", "b"], [0.0, math.log(3)], True)
    assert scores == pytest.approx({"a": 0.25, "b": 0.75})
    assert logic.by_label(["a", "b"], [0.5, 0.25], False) == {"a": 0.5, "b": 0.25}
    logic.check_known(["a"], False, "knn")
    for labels, what in ((["a"], "'a' alone"), ([], "no label")):
        with pytest.raises(InputError, match=what):
            logic.check_known(labels, False, "logistic")


METADATA = {"format": "edgewise-head", "version": "1", "name": "desk", "task": "t", "model": "m",
            "method": "logistic"}  # fmt: skip
OPTIONS = {"neighbors": 5, "c": 1.0, "class_weight": None, "steps": 9, "learning_rate": 0.5}
TENSORS = {
    "examples": Stored("float32", [3, 2]),
    "classes": Stored("int64", [3]),
    "weight": Stored("float32", [2, 2]),
    "bias": Stored("float32", [2]),
    "adapters": Stored("float32", [20]),
}


def read(form, metadata=None, contents=None, tensors=None):
    logic = module(form, "personal.files")
    given = {"labels": ["a", "b"], "options": OPTIONS, "lora": None, **(contents or {})}
    stored = {k: v for k, v in {**TENSORS, **(tensors or {})}.items() if v is not None}
    return logic.head_file({**METADATA, **(metadata or {})}, given, stored, "file"), stored


@both
def test_what_files_say(form):
    logic = module(form, "personal.files")
    found, stored = read(form)
    fields = HeadFields("logistic", 5, 1.0, None, 9, 0.5)
    assert found == HeadFile("desk", "t", "m", fields, ["a", "b"], 3, 2, True, None)
    assert logic.options_of(fields) == OPTIONS
    labels = logic.check_contents(found, [0, 1, 1], stored, "file")
    assert (labels.labels, labels.classes) == (["a", "b"], [0, 1, 1])
    written = [name for name, _ in logic.tensors_of(labels, 2, True, None)]
    assert written == ["examples", "classes", "weight", "bias"]
    for classes in ([0, 1, 2], [-1, 0, 1]):
        with pytest.raises(ModelError, match="label that is not there"):
            logic.check_contents(found, classes, stored, "file")
    untrained, rest = read(form, tensors={"weight": None})
    assert not untrained.trained
    with pytest.raises(ModelError, match="no weight"):
        logic.check_contents(untrained, [0, 1, 1], rest, "file")
    logic.check_contents(untrained, [0, 0, 0], rest, "file")  # one label so far
    wrong, rest = read(form, tensors={"bias": Stored("float32", [3])})
    with pytest.raises(ModelError, match="weights have a wrong shape"):
        logic.check_contents(wrong, [0, 1, 1], rest, "file")
    adapted, _ = read(form, {"version": "2"}, {"lora": LAYOUT})
    assert adapted.layout.to_dict() == LAYOUT


@both
@pytest.mark.parametrize(
    "metadata, contents, tensors",
    [
        ({"format": "x"}, {}, {}),
        ({"version": "3"}, {}, {}),
        ({"method": "svm"}, {}, {}),
        ({}, {"labels": []}, {}),
        ({}, {"labels": ["a", "a"]}, {}),
        ({}, {"labels": ["a", 3]}, {}),
        ({}, {"labels": "ab"}, {}),
        ({}, {"options": None}, {}),
        ({}, {"options": {**OPTIONS, "c": 0}}, {}),
        ({}, {"options": {"c": 1.0}}, {}),
        ({}, {"options": {**OPTIONS, "more": 1}}, {}),
        ({}, {}, {"examples": None}),
        ({}, {}, {"examples": Stored("float32", [3])}),
        ({}, {}, {"examples": Stored("float16", [3, 2])}),
        ({}, {}, {"examples": Stored("float32", [3, 0])}),
        ({}, {}, {"classes": Stored("int64", [4])}),
        ({"version": "2"}, {"lora": None}, {}),
        ({"version": "2"}, {"lora": {**LAYOUT, "rank": 3}}, {}),
        ({"version": "2"}, {"lora": LAYOUT}, {"adapters": None}),
        ({"version": "2"}, {"lora": LAYOUT}, {"adapters": Stored("float32", [21])}),
    ],
)
def test_damaged_files(form, metadata, contents, tensors):
    with pytest.raises(ModelError, match="Save it again"):
        read(form, metadata, contents, tensors)
