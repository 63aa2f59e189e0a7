"""Families of language models on a GPU: tokens are those of transformers (see
tests/generation/families).
"""

import json
import lzma

import pytest
from edgewise import CausalLM, generate

from tests.generation.test_families import EXPECTED, HERE, PROMPTS

from .adapters import gpu

MODELS = [
    pytest.param("GenAI_gpt_oss", marks=pytest.mark.family("gpt-oss", exporter="GenAI")),
    pytest.param(
        "optimum_qwen3_moe",
        marks=[
            pytest.mark.slow("gpu/test_states_on_gpu.py::test_states"),
            pytest.mark.family("Qwen3 MoE", exporter="optimum"),
        ],
    ),
    pytest.param(
        "transformers_falcon_h1",
        marks=[
            pytest.mark.slow("gpu/test_states_on_gpu.py::test_states"),
            pytest.mark.family("Falcon-H1", exporter="transformers"),
        ],
    ),
    pytest.param(
        "transformers_gemma4",
        marks=[
            pytest.mark.slow("gpu/test_states_on_gpu.py::test_states"),
            pytest.mark.family("Gemma 4", exporter="transformers"),
        ],
    ),
]


@pytest.mark.parametrize("name", MODELS)
def test_tokens(tmp_path, name):
    known = EXPECTED[name]
    model = lzma.decompress((HERE / f"{name}.onnx.xz").read_bytes())
    (tmp_path / "model.onnx").write_bytes(model)
    (tmp_path / "config.json").write_text(json.dumps(known["config"]))
    lm = CausalLM(tmp_path, capacity=96, engine=gpu())
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    for ids, greedy in zip(PROMPTS, known["greedy"]):
        [row] = generate(lm, [ids], max_new_tokens=24, **options)
        assert list(row[len(ids) :]) == greedy
    lm.free()
