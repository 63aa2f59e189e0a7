"""Gradients of a model's outputs on an engine, for tests: the model is compiled with its gradient
graph appended.
"""

import edgewise
import numpy as np
from edgewise.compiler.bind.autodiff import add_gradients
from edgewise.compiler.declare.dtypes import FLOAT
from edgewise.compiler.declare.values import RunTensor
from edgewise.compiler.plan import compile_graph
from edgewise.compiler.targets import target_of
from edgewise.host.session.compiled import Compiled
from edgewise.ir import Value
from onnx import helper, numpy_helper


def node_model(op, inputs, domain="", opset=21, outputs=1, fixed=(), **attrs):
    """(ModelProto, feeds) of one node. inputs: arrays, None where absent; integers, bools and the
    indices in `fixed` are constants of the model, other floats are fed as x0, x1, ...
    """
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    constants, fed, feeds = [], [], {}
    for i, (name, x) in enumerate(zip(names, inputs)):
        if x is None:
            continue
        x = np.asarray(x)
        if x.dtype != np.float32 or i in fixed:
            constants.append(numpy_helper.from_array(x, name))
        else:
            fed.append(helper.make_tensor_value_info(name, FLOAT, x.shape))
            feeds[name] = x
    outs = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, outs, name="the_node", domain=domain, **attrs)],
        "case",
        fed,
        [helper.make_tensor_value_info(o, FLOAT, None) for o in outs],
        constants,
    )
    imports = [helper.make_opsetid("", opset)] + (
        [helper.make_opsetid(domain, 1)] if domain else []
    )
    return (
        helper.make_model(graph, opset_imports=imports, ir_version=10 if opset < 22 else 11),
        feeds,
    )


def gradients(model, feeds, engine, wrt=None, seeds=None, seed=0, without=()):
    """Runs a model and its gradient.

    Args:
        model: ModelProto. feeds: {input: array}.
        wrt: names of inputs; default: all float32 ones.
        seeds: {output: gradient array}; default: drawn for every float32 output that is not in
        `without`.
    Returns:
        ({output: array}, {input: gradient array or None}, seeds, the Plan)
    """
    session = edgewise.InferenceSession(model.SerializeToString(), engine=engine)
    wrt = [n for n, x in feeds.items() if x.dtype == np.float32] if wrt is None else wrt
    random, feeds, drawn = np.random.default_rng(seed), dict(feeds), {}

    def differentiate(bound):
        pairs = []
        for name, value in list(bound.outputs.items()):
            if value.dtype == FLOAT and (seeds is None or name in seeds) and name not in without:
                drawn[name] = (
                    np.asarray(random.standard_normal(value.shape), np.float32)
                    if seeds is None
                    else seeds[name]
                )
                dy = bound.inputs["d~" + name] = Value(
                    "d~" + name, FLOAT, value.shape, role="input"
                )
                pairs.append((value, dy))
                feeds["d~" + name] = drawn[name]
        for name, gradient in zip(wrt, add_gradients(bound, pairs, [bound.inputs[n] for n in wrt])):
            if gradient is not None:
                bound.outputs["g~" + name] = gradient

    codes = {n: helper.np_dtype_to_tensor_dtype(x.dtype) for n, x in feeds.items()}
    plan, bound = compile_graph(
        session.graph,
        {n: list(x.shape) for n, x in feeds.items()},
        codes,
        transform=differentiate,
        target=target_of(session.device),
    )
    compiled = Compiled(session, plan, bound)
    try:
        got = compiled.run(
            {n: RunTensor(1, x.shape, np.ascontiguousarray(x).tobytes()) for n, x in feeds.items()}
        )
        results = {
            n: np.frombuffer(v.bytes(), helper.tensor_dtype_to_np_dtype(v.dtype)).reshape(v.shape)
            for n, v in got.items()
        }
    finally:
        compiled.free()
        session.free()
    return (
        {n: v for n, v in results.items() if not n.startswith("g~")},
        {n: results.get("g~" + n) for n in wrt},
        drawn,
        plan,
    )
