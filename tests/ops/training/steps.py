"""Steps that the tests of training operators run."""

import numpy as np
import torch
from edgewise.compiler.bind import bind
from edgewise.compiler.bind.autodiff import Gradients
from edgewise.compiler.declare.dtypes import BOOL, FLOAT, INT8, INT32, INT64, UINT8
from edgewise.compiler.plan.builder import lower
from edgewise.engine import Buffer
from edgewise.ir import Graph, Value


def close(got, want, tol=1e-4):
    want = want.detach().numpy() if isinstance(want, torch.Tensor) else np.asarray(want)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= tol * max(1.0, np.abs(want).max())


# ---- graphs made by hand ----
def run(engine, build, feeds, states=(), times=1):
    """Runs what build(g, **values) adds `times` times. feeds: {name: array, or list of arrays, one
    per run}; states: {name: array}, updated in place. Returns [{output: array}].
    """
    codes = {"float32": FLOAT, "int64": INT64, "int8": INT8, "uint8": UINT8, "int32": INT32}
    bound = bind(Graph("test", opsets={"": 23}), {})
    first = {k: v[0] if isinstance(v, list) else v for k, v in feeds.items()}
    for k, v in first.items():
        bound.inputs[k] = Value(k, codes[v.dtype.name], v.shape, role="input")
    values = {k: bound.state(k, codes[v.dtype.name], v.shape) for k, v in dict(states).items()}
    outs = build(Gradients(bound), **bound.inputs, **values)
    bound.effects += list(outs.pop("effects", []))
    bound.outputs = outs
    return run_plan(engine, lower(bound.prune()), feeds, states, times)


def run_plan(engine, plan, feeds, states=(), times=1):
    loaded, results, memory = engine.load(plan), [], {}
    types = {FLOAT: np.float32, INT64: np.int64, BOOL: bool}
    try:
        for i, s in enumerate(plan.slots):
            memory[s.name] = engine.alloc(s.nbytes)
            loaded.bind(i, Buffer(memory[s.name], s.nbytes))
        for k, v in dict(states).items():
            engine.write(memory[k], v.tobytes())
        loaded.init()
        for t in range(times):
            for k, v in feeds.items():
                engine.write(
                    memory[k], np.ascontiguousarray(v[t] if isinstance(v, list) else v).tobytes()
                )
            loaded.run()
            results.append(
                {
                    s.name: (
                        np.frombuffer(
                            bytes(engine.read(memory[s.name], s.nbytes)), types[s.dtype]
                        ).reshape(s.shape)
                    )
                    for s in plan.slots
                    if s.kind == "output"
                }
            )
        for k, v in dict(states).items():
            v[...] = np.frombuffer(bytes(engine.read(memory[k], v.nbytes)), v.dtype).reshape(
                v.shape
            )
    finally:
        loaded.free()
        for a in memory.values():
            engine.free(a)
    return results
