"""Invalid configurations of language models."""

import pytest
from edgewise.compiler.compile import compile_causal_lm
from edgewise.errors import InputError
from edgewise.onnx import BytesSource, read_model

from .seeds import real, small


# ---- language models ----
def test_not_a_language_model(refused):
    for name in small():
        refused(
            lambda: compile_causal_lm(
                read_model(BytesSource(*[small()[name][0], "m.onnx", small()[name][1]])), {}, 16
            ),
            may_work=False,
        )


@pytest.mark.parametrize(
    "config",
    [
        {"n_positions": -5},
        {"n_positions": 0},
        {"max_position_embeddings": True},
        {"max_position_embeddings": 1e9},
        {"max_position_embeddings": 1 << 60},
        {"max_position_embeddings": "64"},
        {"n_ctx": None},
    ],
)
def test_invalid_configurations(config, refused):
    data, siblings = real()["q4_llama"]
    decoder, plans = refused(
        lambda: compile_causal_lm(read_model(BytesSource(data, "m", siblings)), config),
        may_work=True,
    )
    assert decoder["capacity"] == 1024 and len(plans) == 3


@pytest.mark.parametrize("capacity", [0, -1, 1.5, "8", 1 << 40, True, [8]])
def test_invalid_capacities(capacity, refused):
    data, siblings = real()["q4_llama"]
    refused(
        lambda: compile_causal_lm(read_model(BytesSource(data, "m", siblings)), {}, capacity),
        InputError,
    )


def test_capacity_beyond_the_position_table(refused):
    """gpt2's table of positions is the default capacity; a larger capacity is refused."""
    data, siblings = real()["fp16merge_gpt2"]
    decoder, _ = compile_causal_lm(read_model(BytesSource(data, "m", siblings)), {})
    assert decoder["capacity"] == 64
    refused(
        lambda: compile_causal_lm(read_model(BytesSource(data, "m", siblings)), {}, 65),
        InputError,
        "64",
    )
