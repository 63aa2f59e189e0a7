"""The options of training that pages and the command line give to the compiler."""

import pytest
from edgewise.compiler.training.optimizers import SGD
from edgewise.compiler.training.package import training_programs
from edgewise.errors import InputError


@pytest.mark.parametrize(
    "optimizer, wanted",
    [
        (None, {"type": "AdamW", "lr": 0.1}),
        ("SGD", {"type": "SGD", "lr": 0.1}),
        ({"type": "SGD", "momentum": 0.9}, {"type": "SGD", "momentum": 0.9, "lr": 0.1}),
        ({"type": "SGD", "lr": 5.0}, {"type": "SGD", "lr": 0.1}),
        (SGD(lr=5.0, momentum=0.9), SGD(lr=0.1, momentum=0.9)),
    ],
)
def test_the_rate_is_set_in_the_optimizer_that_is_given(optimizer, wanted):
    for adapter in ("lora", "full"):
        given = {"adapter": adapter, "optimizer": optimizer, "learning_rate": 0.1}
        (program,) = training_programs(given)
        assert program["optimizer"] == wanted


@pytest.mark.parametrize(
    "options, error",
    [
        ({"adapter": "full", "use_dora": True}, "training.use_dora: it is for adapters"),
        ({"adapter": ["full"], "loraplus_lr_ratio": 4}, "training.loraplus_lr_ratio: it is for"),
        ({"adapter": "full", "target_modules": ["nope"]}, "training.target_modules: it is for"),
        ({"adapter": 5}, "training.adapter: it is 5. Give 'lora', 'full' or both"),
        ({"adapter": []}, r"training.adapter: it is \[\]"),
        ({"adapter": ["lora", 5]}, "training.adapter: it is .*5"),
        ({"adapter": True}, "training.adapter: it is True"),
        ({"learning_rate": "fast"}, "training.learning_rate: it is "),
    ],
)
def test_options_without_an_effect_are_refused(options, error):
    with pytest.raises(InputError, match=error):
        training_programs(options)


def test_options_of_adapters_beside_parameters():
    first, second = training_programs({"adapter": ["full", "lora", "full"], "r": 2})
    assert (first["name"], first["lora"]) == ("full", None)
    assert (second["name"], second["lora"]["r"]) == ("lora", 2)
    assert training_programs({"adapter": "full", "r": None})[0]["lora"] is None
