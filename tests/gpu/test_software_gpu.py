"""Shaders without barriers, for GPUs in software: against onnxruntime, and the tokens of a language
model against the engine on the processor.
"""

import pytest
from edgewise.engine.native import NativeEngine
from ops.harness import all_cases
from zoo.zoo import OWN

from .adapters import gpu, opened
from .test_models_on_gpu import greedy
from .test_ops_on_gpu import run

OPS = {"Attention": 2, "Gemm": 2, "MatMul": 1, "Softmax": 1, "RMSNormalization": 1}  # op: cases
OPS |= {"ms.GroupQueryAttention": 1, "ms.MatMulNBits": 5}


@pytest.mark.parametrize("op", OPS)
def test_ops(op):
    engine, wrong = gpu(serial=True), {}
    cases = [case for name, case in all_cases() if name.rsplit("-", 1)[0] == op]
    assert cases
    for case in cases[:: -(-len(cases) // OPS[op])]:
        got, _ = run(case, engine)
        for name, expected in case.references.items():
            if difference := case.differences(got, expected):
                wrong[repr(case), name] = difference
    assert not wrong


def test_tokens_of_a_language_model():
    path = next((OWN / "q4_llama").rglob("*.onnx"))
    engine = gpu(serial=True)
    before = set(engine.pipelines.texts)
    assert greedy(engine, path, 3)[0] == greedy(NativeEngine(threads=1), path, 3)[0]
    texts = set(engine.pipelines.texts) - before
    assert texts and not any("workgroup" in text.split("@compute")[0] for text in texts)


def test_a_gpu_in_software_is_recognised():
    assert opened(serial=None).serial == gpu().gpu.software
