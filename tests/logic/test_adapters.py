"""Configurations and tensors' names of adapters on both forms, beside PEFT."""

import math
import re

import pytest
from edgewise.errors import EdgewiseError, InputError, ModelError, UnsupportedField
from edgewise.logic.training.lora import FIELDS

from .forms import both, module

PREFIX = "base_model.model."


def configs():
    """Contents of adapter_config.json, as PEFT writes them."""
    peft = pytest.importorskip("peft")
    made = [
        peft.LoraConfig(),
        peft.LoraConfig(r=4, lora_alpha=8.5, target_modules=["q", "v"], use_rslora=True),
        peft.LoraConfig(target_modules=r".*\.\d+\.q", lora_dropout=0.1, bias="lora_only"),
        peft.LoraConfig(
            target_modules=["q"],
            layers_to_transform=[0, 1],
            layers_pattern="layers",
            rank_pattern={"q": 2},
            alpha_pattern={"q": 3.5},
            modules_to_save=["lm_head"],
            init_lora_weights="gaussian",
            task_type="CAUSAL_LM",
        ),
    ]
    return [
        {k: sorted(v) if isinstance(v, set) else v for k, v in x.to_dict().items()} for x in made
    ]


@both
def test_configurations_of_peft(form):
    read = module(form, "training.lora").read_config
    for config in configs():
        config["peft_type"] = "LORA"  # an enumeration in Python
        wanted = {k: v for k, v in config.items() if k in FIELDS and v is not None}
        assert read(config, "config") == wanted


@both
@pytest.mark.parametrize(
    "change, kind",
    [
        ({"use_dora": 1}, ModelError),
        ({"use_qalora": True}, UnsupportedField),
        ({"peft_type": "IA3"}, UnsupportedField),
        ({"peft_type": None}, UnsupportedField),
        ({"init_lora_weights": "pissa"}, UnsupportedField),
        ({"lora_bias": True}, UnsupportedField),
        ({"new_field": {"a": 1}}, UnsupportedField),
        ({"new_field": "x"}, UnsupportedField),
        ({"r": 0}, ModelError),
        ({"r": 1.5}, ModelError),
        ({"r": True}, ModelError),
        ({"r": 2**21}, ModelError),
        ({"lora_alpha": "much"}, ModelError),
        ({"lora_alpha": math.inf}, ModelError),
        ({"lora_dropout": 1}, ModelError),
        ({"lora_dropout": math.nan}, ModelError),
        ({"bias": "some"}, ModelError),
        ({"use_rslora": 1}, ModelError),
        ({"target_modules": {"q": 1}}, ModelError),
        ({"target_modules": [1]}, ModelError),
        ({"modules_to_save": "lm_head"}, ModelError),
        ({"layers_to_transform": [0.5]}, ModelError),
        ({"layers_to_transform": [1], "target_modules": "q"}, ModelError),
        ({"layers_pattern": ["h"]}, ModelError),
        ({"rank_pattern": {"q": 0}}, ModelError),
        ({"rank_pattern": {str(i): 1 for i in range(20_001)}}, ModelError),
        ({"alpha_pattern": ["q"]}, ModelError),
    ],
)
def test_configurations_that_are_refused(form, change, kind):
    read = module(form, "training.lora").read_config
    config = {"peft_type": "LORA", "r": 8, "target_modules": ["q"]}
    with pytest.raises(EdgewiseError, match=f"^config: .*{min(change)}") as error:
        read({**config, **change}, "config")
    assert error.type is kind


@both
def test_fields_without_an_effect(form):
    logic = module(form, "training.lora")
    config = {"peft_type": "LORA", "r": 8}
    unset = {"use_qalora": False, "corda_config": None, "a": 0, "b": "", "c": [], "d": {}}
    assert logic.read_config({**config, **unset, "peft_version": "0.21"}, "config") == config
    for wrong in (None, [], "x", 3):
        with pytest.raises(ModelError, match="not a JSON object"):
            logic.read_config(wrong, "config")
    with pytest.raises(InputError, match="LoraConfig: r is 0"):
        logic.check_config({"r": 0}, "LoraConfig")


@both
def test_names_of_peft(form):
    """The names that PEFT gives to tensors, and those that it reads."""
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.q = torch.nn.Embedding(5, 4), torch.nn.Linear(4, 4)
            self.head = torch.nn.Linear(4, 5)

        def forward(self, x):
            return self.head(self.q(self.table(x)))

    config = peft.LoraConfig(
        target_modules=["q", "table"], modules_to_save=["head"], bias="lora_only"
    )
    model = peft.get_peft_model(Model(), config)
    saved = peft.get_peft_model_state_dict(model, save_embedding_layers=False)
    wanted = [
        *("head.weight", "head.bias", "q.bias", "q.lora_A.weight", "q.lora_B.weight"),
        *("table.lora_embedding_A", "table.lora_embedding_B"),
    ]
    names = module(form, "training.adapters").names_of
    assert sorted(names(list(saved), "adapter").values()) == sorted(wanted)
    # without the prefix, and with the adapter's name
    bare = ["q.lora_A.default.weight", "q.lora_B.default.weight"]
    assert names(bare, "adapter") == dict(zip(bare, ["q.lora_A.weight", "q.lora_B.weight"]))


@both
def test_names_that_are_refused(form):
    logic = module(form, "training.adapters")
    for name in ("q.lora_A.weight", "q.lora_B.weight", "q.lora_embedding_B"):
        with pytest.raises(ModelError, match="file: 'q' has lora_[AB] alone"):
            logic.names_of([PREFIX + name], "file")
    pair = ["q.lora_A.weight", "q.lora_B.weight"]
    for name in ("q.lora_variant", "lora_x", "q.lora_B.bias"):
        with pytest.raises(UnsupportedField, match="variant of LoRA"):
            logic.names_of([*pair, PREFIX + name], "file")
        assert logic.is_adapter([name])
    assert not logic.is_adapter(["q.weight", "flora_A.weight"])
    assert list(logic.names_of([*pair, "q.original_module.weight"], "file")) == pair


SHAPES = {"q.lora_A.weight": [2, 4], "q.lora_B.weight": [5, 2]}


@both
def test_pairs(form):
    check = module(form, "training.adapters").check_pairs
    conv = {"c.lora_A.weight": [2, 3, 3, 3], "c.lora_B.weight": [8, 2, 1, 1]}
    table = {"t.lora_embedding_A": [2, 9], "t.lora_embedding_B": [4, 2], "bias": [3]}
    check({**SHAPES, **conv, **table}, lambda name: 2, "file")
    with pytest.raises(ModelError, match="'q' has rank 2, the configuration says 3"):
        check(SHAPES, lambda name: 3, "file")
    for shape in ([4, 5], [5, 2, 1], [5], [5, 3]):
        with pytest.raises(ModelError, match="incompatible"):
            check({**SHAPES, "q.lora_B.weight": shape}, lambda name: 2, "file")


@both
def test_magnitudes(form):
    """Of DoRA, under the names that releases of PEFT give them."""
    logic = module(form, "training.adapters")
    check, pair = logic.check_magnitudes, list(SHAPES)
    for end in ("", ".weight", ".default", ".default.weight"):
        name = PREFIX + "q.lora_magnitude_vector" + end
        found = logic.names_of([*pair, name], "file")
        assert found[name] == "q.lora_magnitude_vector"
    shapes = {**SHAPES, "q.lora_magnitude_vector": [5]}
    check(shapes, True, "file")
    check(SHAPES, False, "file")
    with pytest.raises(ModelError, match="belongs to DoRA, and the configuration says LoRA"):
        check(shapes, False, "file")
    with pytest.raises(ModelError, match="'q' has no lora_magnitude_vector"):
        check(SHAPES, True, "file")
    with pytest.raises(ModelError, match="its lora_B is missing"):
        check({"q.lora_magnitude_vector": [5]}, True, "file")
    with pytest.raises(ModelError, match=r"magnitudes \[4\], and lora_B \[5, 2\]"):
        check({**SHAPES, "q.lora_magnitude_vector": [4]}, True, "file")


@both
@pytest.mark.parametrize("name", ["q", "layers.0.q", "model.layers.0.q", "layers.1.q", "aq"])
def test_values_by_module(form, name):
    """As PEFT matches the keys of rank_pattern and alpha_pattern."""
    logic = module(form, "training.lora")
    ranks, alphas = {"layers.0.q": 2, "q": 3}, {"0.q": 6, "layers/1.q": 1, "layers.1.q": 9}
    config = {"r": 4, "lora_alpha": 8, "rank_pattern": ranks, "alpha_pattern": alphas}

    def first(patterns, otherwise):
        keys = (k for k in patterns if re.match(rf"(.*\.)?({k})$", name))
        return patterns.get(next(keys, None), otherwise)

    assert logic.rank_in(config, name) == first(ranks, 4)
    assert logic.scaling_in(config, name) == first(alphas, 8) / first(ranks, 4)
    assert logic.has_patterns(config) and not logic.has_patterns({"r": 4, "rank_pattern": {}})
    with pytest.raises(UnsupportedField, match="alpha_pattern has .*layers/1.q"):
        logic.check_plain(config, "config")
    logic.check_plain({"rank_pattern": ranks}, "config")


@both
def test_room(form):
    check = module(form, "training.adapters").check_fit
    room = {"q.lora_A.weight": [4, 4], "q.lora_B.weight": [5, 4], "adapter/scale": [1]}
    check(SHAPES, room, False, "file")
    check(room, room, True, "file")
    check({"head.weight": [3]}, room, True, "file")
    with pytest.raises(InputError, match="rank is 2 at 'q', .* for 4. .*the same rank"):
        check(SHAPES, room, True, "file")
    with pytest.raises(InputError, match=r"rank is 4 at 'q', .* for 2. .*LoraConfig\(r=4"):
        check(room, SHAPES, False, "file")
    with pytest.raises(InputError, match="adapts 'v', .* they match q"):
        check({"v.lora_A.weight": [2, 4]}, room, False, "file")
    for shape in ([2, 3], [2], [2, 4, 1], []):
        with pytest.raises(InputError, match="is expected"):
            check({"q.lora_A.weight": shape}, room, False, "file")
