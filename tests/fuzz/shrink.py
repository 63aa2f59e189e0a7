"""Makes a failing case smaller: fewer runs, outputs and nodes, as long as it fails alike."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from .graph import Run, names_in
from .reference import Reference


def shrink(model, runs, fails):
    """Returns (model, runs). fails: whether fails(model, runs) is what was found."""
    smaller = model, runs
    while True:
        before = size(*smaller)
        for step in (fewer_outputs, fewer_runs, fed_values, fewer_nodes):
            smaller = step(*smaller, fails)
        if size(*smaller) == before:
            return smaller


def size(model, runs):
    return len(model.graph.node), len(model.graph.output), len(model.graph.input), len(runs)


def pruned(model, nodes, inputs, outputs):
    """A model of those of the nodes, inputs and initializers that its outputs need."""
    needed, kept = {o.name for o in outputs}, []
    for node in reversed(nodes):
        if needed & set(node.output):
            kept.insert(0, node)
            needed.update(names_in(node))
    out = onnx.ModelProto()
    out.CopyFrom(model)
    for field in ("node", "input", "output", "initializer"):
        del getattr(out.graph, field)[:]
    out.graph.node.extend(kept)
    out.graph.input.extend(i for i in inputs if i.name in needed)
    out.graph.output.extend(outputs)
    out.graph.initializer.extend(t for t in model.graph.initializer if t.name in needed)
    return out


def fed(model, runs):
    """The runs without feeds and names of outputs that the model does not have."""
    inputs, outputs = ({v.name for v in x} for x in (model.graph.input, model.graph.output))
    return [
        Run(
            {k: x for k, x in run.feeds.items() if k in inputs},
            [k for k in run.names or () if k in outputs] or None,
        )
        for run in runs
    ]


def attempt(model, runs, nodes, inputs, outputs, fails):
    """(model, runs) of these parts if they fail alike, else None."""
    found = pruned(model, nodes, inputs, outputs)
    if not found.graph.input:
        return None
    shorter = fed(found, runs)
    return (found, shorter) if fails(found, shorter) else None


def fewer_outputs(model, runs, fails):
    """One output: the first value that fails alike."""
    g = model.graph
    names = [name for node in g.node for name in node.output if name]
    if len(g.output) == 1:  # it is known to fail
        names = names[: names.index(g.output[0].name)]
    for name in names:
        output = helper.make_empty_tensor_value_info(name)
        if found := attempt(model, runs, list(g.node), g.input, [output], fails):
            return found
    return model, runs


def fewer_runs(model, runs, fails):
    i = 0
    while i < len(runs) and len(runs) > 1:
        fewer = runs[:i] + runs[i + 1 :]
        if fails(model, fewer):
            runs = fewer
        else:
            i += 1
    return model, runs


def fed_values(model, runs, fails):
    """Values of nodes, the last first, are fed instead of computed."""
    for name in [o for node in reversed(model.graph.node) for o in node.output if o]:
        g = model.graph
        if name in {o.name for o in g.output} or not any(name in n.output for n in g.node):
            continue
        values = values_of(model, runs, name)
        if values is None:
            continue
        kind = helper.np_dtype_to_tensor_dtype(values[0].dtype)
        dims = [
            d[0] if len(set(d)) == 1 else f"{name}_{k}"
            for k, d in enumerate(zip(*(x.shape for x in values)))
        ]
        info = helper.make_tensor_value_info(name, kind, dims)
        nodes = [n for n in g.node if name not in n.output or len(n.output) > 1]
        for i, n in enumerate(nodes):
            if name in n.output:
                nodes[i] = onnx.NodeProto()
                nodes[i].CopyFrom(n)
                nodes[i].output[list(n.output).index(name)] = name + "_"
        more = [run._replace(feeds={**run.feeds, name: x}) for run, x in zip(runs, values)]
        inputs = [*g.input, info]
        model, runs = attempt(model, more, nodes, inputs, g.output, fails) or (model, runs)
    return model, runs


def values_of(model, runs, name):
    """What onnxruntime has for a value in each run; None if it has no array of one rank."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    other.graph.output.append(helper.make_empty_tensor_value_info(name))
    try:
        reference = Reference(other)
        values = [reference.run(run._replace(names=[name]))[0] for run in runs]
    except Exception:  # noqa: BLE001 - onnxruntime has no common class of errors
        return None
    arrays = all(isinstance(x, np.ndarray) for x in values)
    return values if arrays and len({x.ndim for x in values}) == 1 else None


def fewer_nodes(model, runs, fails):
    """Nodes are left out: their first inputs take the places of their outputs."""
    for name in [node.output[0] for node in reversed(model.graph.node)]:
        g = model.graph
        node = next((n for n in g.node if name in n.output), None)
        if node is None or not node.input or name in {o.name for o in g.output}:
            continue
        rest = []
        for n in g.node:
            if n is node:
                continue
            n, old = onnx.NodeProto(), n
            n.CopyFrom(old)
            n.input[:] = [node.input[0] if x == name else x for x in n.input]
            rest.append(n)
        found = attempt(model, runs, rest, list(g.input), list(g.output), fails)
        model, runs = found or (model, runs)
    return model, runs
