"""Patterns of adapter_config.json: they mean what they mean in PEFT, which uses Python's `re`, and
none can hang.
"""

import json
import pickle
import random
import re
import time

import numpy as np
import pytest
from edgewise.compiler.ops.host.regular import Expression
from edgewise.errors import InputError, ModelError
from edgewise.training.peft import CONFIG, WEIGHTS, LoraConfig, load_adapter
from edgewise.training.safetensors import save_safetensors

ATOMS = [
    "a",
    "b",
    ".",
    r"\.",
    "[ab]",
    "[^a]",
    r"\d",
    r"\w",
    "_",
    "1",
    "[a-c_]",
    "",
    "q_proj",
    r"\b",
    r"\W",
    "^",
    "$",
    "layers",
    r"\S",
]
NAMES = [
    "model.layers.0.self_attn.q_proj",
    "model.layers.11.mlp.down_proj",
    "lm_head",
    "q_proj",
    "layers.1.q_proj",
    "a.b",
    "",
    "q_proj.x",
    "é.q_proj",
    "q_proj\n",
    "A_proj",
]


def pattern(rng, depth=0):
    r = rng.random()
    if depth > 3 or r < 0.35:
        return rng.choice(ATOMS)
    if r < 0.55:
        return pattern(rng, depth + 1) + pattern(rng, depth + 1)
    if r < 0.8:
        return (
            f"({pattern(rng, depth + 1)}|{pattern(rng, depth + 1)})"
            if r < 0.7
            else f"({pattern(rng, depth + 1)})"
        )
    return f"(?:{pattern(rng, depth + 1)})" + rng.choice(
        ["*", "+", "?", "{2}", "{1,2}", "*?", "+?", "??"]
    )


def test_patterns_match_as_in_re():
    """re.fullmatch, re.match and a named group of re.match, of random patterns on random names."""
    rng, compared = random.Random(11), 0
    for _ in range(1000):
        p = rng.choice(["", "", "(?i)", "(?m)", "(?s)"]) + pattern(rng)
        try:
            ours, theirs = Expression(p, python=True), re.compile(p)
        except ValueError:
            continue
        for _ in range(4):
            name = rng.choice(
                [*NAMES, "".join(rng.choice("ab.1_éAB\n") for _ in range(rng.randrange(8)))]
            )[:10]  # `re` may take exponential time
            assert ours.matches(name) == bool(theirs.fullmatch(name)), (p, name)
            assert ours.begins(name) == bool(theirs.match(name)), (p, name)
            compared += 1
    for _ in range(500):
        text = rf"(?:^|.*?\.){pattern(rng)}\.(?P<idx>\d+)\."
        name = "".join(
            rng.choice(["a", "b", ".", "1", ".1.", "layers", ".a"])
            for _ in range(rng.randrange(12))
        )
        found = re.match(text, name)
        assert Expression(text, python=True).named(name) == (found["idx"] if found else None), (
            text,
            name,
        )
        compared += 1
    assert compared > 4000


def test_ranks_are_of_the_first_pattern_that_matches_as_in_re():
    rng = random.Random(12)
    for _ in range(300):
        names = [
            "q_proj",
            "self_attn.q_proj",
            "model.layers.0.self_attn.q_proj",
            "model.layers.0.mlp",
            "k_proj",
            r".*\.0\..*",
            "q_pro.",
            "^lm_head",
            "q_proj|k_proj",
            r"(\d+\.)?mlp",
            "lm_head",
            "l",
        ]
        patterns = {n: i + 1 for i, n in enumerate(rng.sample(names, rng.randrange(1, 8)))}
        config = LoraConfig(rank_pattern=patterns, r=99)
        for module in [
            "model.layers.0.self_attn.q_proj",
            "model.layers.10.self_attn.k_proj",
            "lm_head",
            "xlm_head",
            "model.layers.0.mlp",
            "self_attnXq_proj",
            "q_proj",
            "a.q_prox",
            "q_proj\n",
            "l",
            "x.l",
        ]:
            want = next((v for k, v in patterns.items() if re.match(rf"(.*\.)?({k})$", module)), 99)
            assert config.rank_of(module) == want == config.rank_of(module), (patterns, module)
    config.rank_pattern = {"lm_head": 7}
    assert config.rank_of("lm_head") == 7  # a field may be changed
    assert pickle.loads(pickle.dumps(config)).rank_of("lm_head") == 7


MODULE = "model.layers.0.self_attn.q_proj"
EVIL = r"((\w|\.)+)+!"


@pytest.mark.parametrize(
    "fields",
    [
        {"rank_pattern": {EVIL: 8}},
        {"alpha_pattern": {EVIL: 8}},
        {"target_modules": EVIL},
        {"exclude_modules": EVIL},
        {"modules_to_save": [EVIL]},
        {"layers_pattern": EVIL, "layers_to_transform": [0]},
        {"layers_pattern": ["layers", EVIL], "layers_to_transform": 0},
        {"target_modules": r"(.*)*\1"},
        {"rank_pattern": {r"(a{0,99}){0,99}": 8}},
        {"rank_pattern": {f"(x{i}|.)*y": 8 for i in range(15000)}},
        {"rank_pattern": {f"m{i}": 8 for i in range(30000)}},
        {"target_modules": "(" * 400 + "a" + ")" * 400},
        {"target_modules": r"(?=a)a"},
        {"target_modules": "a" * 1001},
        {"target_modules": "["},
    ],
    ids=lambda f: str(f)[:40],
)
def test_no_pattern_of_a_file_hangs(fields):
    """A backtracking matcher takes minutes to forever for most of these."""
    a, b = np.zeros((8, 4), "f4"), np.zeros((4, 8), "f4")
    tensors = {
        f"base_model.model.model.layers.{i}.self_attn.{'q' * 40}_proj.lora_{h}.weight": x
        for i in range(20)
        for h, x in (("A", a), ("B", b))
    }
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"], **fields}
    start = time.process_time()
    try:
        adapter = load_adapter(
            {CONFIG: json.dumps(config).encode(), WEIGHTS: save_safetensors(tensors)}
        )
        for module in adapter.lora:
            adapter.config.matches(module), adapter.config.scaling_of(module)
    except (ModelError, InputError) as e:
        assert e.what and e.where and e.remedy
    assert time.process_time() - start < 120  # not a matter of speed: they would not end


def test_an_index_of_thousands_of_digits_is_no_layer():
    config = LoraConfig(target_modules=["q_proj"], layers_to_transform=[0])
    assert not config.matches(f"model.layers.{'1' * 5000}.q_proj") and config.matches(
        "model.layers.0.q_proj"
    )
    config = LoraConfig(target_modules=["q_proj"], layers_to_transform=[0], layers_pattern="layers")
    assert not config.matches(f"model.layers.{'1' * 5000}.q_proj") and config.matches(
        "model.layers.0.q_proj"
    )


def test_many_experts_have_ranks_of_their_own():
    """A pattern for each module, as mixtures of experts have them."""
    names = [
        f"model.layers.{i}.mlp.experts.{j}.{p}_proj"
        for i in range(24)
        for j in range(48)
        for p in ("up", "down", "gate")
    ]
    config = LoraConfig(
        rank_pattern={n: i % 60 + 1 for i, n in enumerate(names)},
        alpha_pattern={n: i % 7 + 1 for i, n in enumerate(names)},
    )
    assert [config.rank_of(n) for n in names] == [i % 60 + 1 for i in range(len(names))]
    assert config.alpha_of(names[8]) == 2
