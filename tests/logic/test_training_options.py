"""Checks of a training run's options on both forms."""

import math

import pytest
from edgewise.errors import InputError

from .forms import both, module

ABSURD = [
    ("batch_size", 0),
    ("gradient_accumulation_steps", 1.5),
    ("warmup_steps", -1),
    ("max_steps", True),
    ("max_steps", "3"),
    ("evaluate_every", 0),
    ("checkpoint_every", [1]),
    ("early_stopping", math.inf),
    ("learning_rate", -1),
    ("learning_rate", math.nan),
    ("learning_rate", "fast"),
    ("proximal_mu", math.inf),
    ("epochs", 0),
    ("max_grad_norm", False),
    ("memory", 0.0),
]
GOOD = {
    "batch_size": 1,
    "warmup_steps": 0,
    "max_steps": 0,
    "learning_rate": 0,
    "epochs": 0.25,
    "max_grad_norm": None,
    "proximal_mu": 0.5,
    "unknown": -1,
}


@both
@pytest.mark.parametrize("name, value", ABSURD)
def test_absurd_options(form, name, value):
    check = module(form, "training.options").check_options
    with pytest.raises(InputError, match=rf"options\.{name}: it is .*Give an? (integer|number)"):
        check({**GOOD, name: value}, "options.")


@both
@pytest.mark.parametrize("value", [True, 1, 1.5, -0.1, "much", math.nan])
def test_weights_of_averages(form, value):
    check = module(form, "training.options").check_options
    for fine in (None, 0, 0.999):
        check({"ema_decay": fine})
    with pytest.raises(InputError, match="ema_decay: it is ") as error:
        check({"ema_decay": value})
    assert error.value.remedy == "Give a number of at least 0 and below 1, such as 0.99."


@both
def test_options_that_are_fine(form):
    module(form, "training.options").check_options(GOOD)


@both
def test_judged_without_evaluations(form):
    check = module(form, "training.options").check_judged
    check(None, None, False, "options.")
    check(0, False, False, "options.")
    check(3, True, True, "options.")
    for patience, best, name in (
        (3, False, "early_stopping_patience"),
        (None, True, "load_best_model_at_end"),
        (3, True, "load_best_model_at_end"),
    ):
        with pytest.raises(InputError, match=rf"options\.{name}: there is no evaluation data"):
            check(patience, best, False, "options.")


@both
def test_schedules(form):
    check = module(form, "training.schedules").check_schedule
    for name in ("constant", "linear", "cosine"):
        check(name, "schedule")
    for wrong in ("step", "", None, 3):
        with pytest.raises(InputError, match="there is no schedule.*constant, linear, cosine"):
            check(wrong, "schedule")
