"""Cases of ops on a GPU, against onnxruntime and ONNX's reference: the first case of each op, or as
many as the environment variable EDGEWISE_GPU_CASES says. Software GPUs compile slowly.

Every program that the cases need also goes through the other compiler of WGSL.
"""

import os

import edgewise
import pytest
from ops.harness import all_cases

from .adapters import LIBRARIES, gpu

MAX = int(os.environ.get("EDGEWISE_GPU_CASES", "1"))
GROUPS = 8  # of ops, for errors that can be read


def chosen():
    """{op: its first cases}"""
    out = {}
    for name, case in all_cases():
        cases = out.setdefault(name.rsplit("-", 1)[0], [])
        if len(cases) < MAX:
            cases.append(case)
    return out


CASES = chosen()


def run(case, engine):
    model, feeds = case.model()
    session = edgewise.InferenceSession(model.SerializeToString(), engine=engine)
    try:
        got = session.run(None, feeds)
        return got, sum(plan.info["dispatches"] for plan in engine.plans)
    finally:
        session.free()


@pytest.mark.parametrize("group", range(GROUPS))
def test_ops(group):
    engine, wrong, dispatches = gpu(), {}, 0
    for op in list(CASES)[group::GROUPS]:
        for case in CASES[op]:
            got, count = run(case, engine)
            dispatches += count
            for name, expected in case.references.items():
                if difference := case.differences(got, expected):
                    wrong[repr(case), name] = difference
    assert not wrong
    assert dispatches > 0


def test_the_other_compiler_accepts_the_programs():
    texts, other = gpu().pipelines.texts, gpu("wgpu")
    assert len(texts) > 100
    refused = {}
    for text in texts:
        try:
            other.gpu.device.create_shader_module(code=text)
        except Exception as e:
            refused[text] = str(e)
    assert not refused, f"{LIBRARIES['wgpu']}: {next(iter(refused.values()))}"
