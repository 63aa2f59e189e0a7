"""Cases of ops on a GPU, against onnxruntime and ONNX's reference: the first case of each op, or as
many as the environment variable EDGEWISE_GPU_CASES says. Software GPUs compile slowly. In pieces
of the dispatches the bits are the same.

Every program that the cases need also goes through the other compiler of WGSL.
"""

import os

import edgewise
import numpy as np
import pytest
from ops.harness import all_cases

from .adapters import LIBRARIES, at_once, gpu

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


def bits(results):
    """What is the same where results are."""
    if isinstance(results, (list, tuple)):
        return [bits(x) for x in results]
    if isinstance(results, np.ndarray) and results.dtype != object:
        return results.dtype, results.shape, results.tobytes()
    return repr(results)


def run(case, engine):
    model, feeds = case.model()
    others = set(engine.plans)
    session = edgewise.InferenceSession(model.SerializeToString(), engine=engine)
    try:
        got = session.run(None, feeds)
        with at_once(engine, 1, 3) as pace:
            again = session.run(None, feeds)
        dispatches = sum(plan.info["dispatches"] for plan in set(engine.plans) - others)
        assert pace.pieces >= dispatches and bits(again) == bits(got), repr(case)
        return got, dispatches
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
