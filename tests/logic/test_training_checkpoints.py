"""Checks of checkpoints on both forms."""

import pytest
from edgewise.errors import InputError
from edgewise.logic.training.safetensors import TensorInfo

from .forms import both, module

RUN = {
    "seed": "5",
    "optimizer": {"type": "AdamW", "lr": 0.001, "betas": [0.9, 0.999]},
    "lora": None,
    "texts": "a" * 64,
    "max_grad_norm": 1,
    "total": 9,
}


@both
def test_the_same_run(form):
    check = module(form, "training.checkpoints").check_same_run
    check(RUN, RUN, ["texts"], "run", "Start over.")
    check(RUN, {**RUN, "max_grad_norm": 1.0, "more": 3}, [], "run", "Start over.")
    other = {**RUN, "optimizer": dict(reversed(RUN["optimizer"].items()))}
    del other["lora"]  # none, as None
    check(RUN, other, [], "run", "Start over.")


@both
@pytest.mark.parametrize(
    "name, value",
    [
        ("packing", True),
        ("router_aux_loss_coef", 0.5),
        ("loraplus_lr_ratio", 16),
        ("preference", {"loss": "dpo", "beta": 0.1}),
    ],
)
def test_options_that_one_side_has(form, name, value):
    """An option that is described only where it is set, and is set on one side."""
    check = module(form, "training.checkpoints").check_same_run
    with_it = {**RUN, name: value}
    check(with_it, with_it, [], "run", "Start over.")
    for mine, theirs in ((RUN, with_it), (with_it, RUN)):
        with pytest.raises(InputError, match=f"{name} was .*, is "):
            check(mine, theirs, [], "run", "Start over.")


@both
@pytest.mark.parametrize(
    "change, words",
    [
        ({"total": 8}, "total was 8, is 9"),
        ({"seed": 5}, "seed was 5, is "),
        ({"texts": "b" * 64}, "other texts"),
        ({"lora": {"r": 8}}, "lora was given, is "),
        ({"optimizer": {**RUN["optimizer"], "lr": 1}}, r"optimizer\.lr was 1, is 0\.001"),
        ({"optimizer": {**RUN["optimizer"], "betas": [0.9]}}, r"optimizer\.betas was \[0\.9\], is"),
        ({"optimizer": {**RUN["optimizer"], "eps": 1}}, r"optimizer\.eps was 1, is "),
        ({"optimizer": None}, "optimizer was .*, is given"),
        ({"total": 1, "seed": 1, "lora": 1, "texts": 1, "max_grad_norm": 2}, "; "),
    ],
)
def test_another_run(form, change, words):
    check = module(form, "training.checkpoints").check_same_run
    with pytest.raises(InputError, match=f"^run: it belongs to another run: .*{words}") as error:
        check(RUN, {**RUN, **change}, ["texts"], "run", "Start over.")
    assert error.value.remedy == "Start over."
    assert error.value.what.count(";") == min(3, len(change) - 1)


@both
def test_tensors(form):
    logic = module(form, "training.checkpoints")
    states = {"a": TensorInfo("float32", [2, 3], 24), "step": TensorInfo("int64", [1], 8)}
    logic.check_tensors(dict(reversed(states.items())), states, "run")
    for change in (
        {"a": TensorInfo("float32", [3, 2], 24)},
        {"a": TensorInfo("int32", [2, 3], 24)},
        {"b": TensorInfo("float32", [1], 4)},
    ):
        with pytest.raises(
            InputError, match=f"do not match this model's: {min(change)}$|: [ab]\\."
        ):
            logic.check_tensors({**states, **change}, states, "run")
    with pytest.raises(InputError, match="step"):
        logic.check_tensors({"a": states["a"]}, states, "run")


@both
def test_kinds_of_states(form):
    logic = module(form, "training.checkpoints")
    kinds = ["parameter", "adapter", "buffer", "optimizer", "step", "gradient"]
    assert [logic.is_kept(k) for k in kinds] == [True] * 5 + [False]
    assert [logic.is_result(k) for k in kinds] == [True] * 3 + [False] * 3
    assert [logic.is_of_optimizer(k) for k in kinds] == [False] * 3 + [True] * 2 + [False]
