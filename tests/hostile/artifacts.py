"""Damaged training artifacts in ONNX Runtime's format (training_model.onnx, eval_model.onnx,
optimizer_model.onnx, checkpoint), and a short training run with them.
"""

import io
import json
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hostile.damage import NUMBERS, damage_bytes, damage_json

FILES = ("train", "eval", "optimizer", "checkpoint")
ORT = Path(__file__).parents[1] / "training/models/mlp_clipnorm_ce_adamw"  # written by ONNX Runtime


def whole(folder: Path) -> dict:
    """Returns {name: bytes} of the files in a folder."""
    names = dict(
        zip(FILES, ("training_model.onnx", "eval_model.onnx", "optimizer_model.onnx", "checkpoint"))
    )
    return {name: (folder / file).read_bytes() for name, file in names.items()}


def own_artifacts(folder: Path) -> dict:
    """Artifacts that Edgewise writes for a perceptron with a BatchNormalization."""
    from edgewise.extras.onnxruntime_training import artifacts, onnxblock

    r = np.random.default_rng(0)
    weights = {
        "w": r.standard_normal((6, 4)),
        "scale": np.ones(4),
        "shift": np.zeros(4),
        "mean": np.zeros(4),
        "variance": np.ones(4),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node(
            "BatchNormalization", ["h", "scale", "shift", "mean", "variance"], ["logits"]
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 6])],
        [helper.make_tensor_value_info("logits", 1, ["n", 4])],
        [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        artifacts.generate_artifacts(
            model,
            ["w", "scale", "shift"],
            ["mean", "variance"],
            loss=artifacts.LossType.CrossEntropyLoss,
            optimizer=onnxblock.optim.AdamW(),
            artifact_directory=folder,
        )
    return whole(folder)


def damage_artifacts(rng, files: dict) -> tuple[dict, str]:
    """Damages one or two of the files, or replaces one by another.

    Returns (the files, a description of the damage).
    """
    files, notes = dict(files), []
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(FILES)
        how = rng.random()
        if how < 0.25:
            files[name] = damage_bytes(rng, files[name])
            notes.append(f"bytes of {name}")
        elif how < 0.3:
            files[name] = files[rng.choice(FILES)]
            notes.append(f"another file as {name}")
        elif name == "checkpoint":
            files[name] = damage_checkpoint(rng, files[name], notes)
        else:
            files[name] = damage_model(rng, files[name], notes)
    return files, ", ".join(notes)


# long: one branch for each kind of damage
def damage_checkpoint(rng, data: bytes, notes: list) -> bytes:
    """A checkpoint with changed parameters, moments or numbers, written as a complete file."""
    from edgewise.errors import EdgewiseError
    from edgewise.extras.onnxruntime_training.artifact_files.odtc import (
        OptimizerGroup,
        read_checkpoint,
        write_checkpoint,
    )

    try:
        c = read_checkpoint(data)
    except EdgewiseError:
        return data  # already damaged
    table = rng.choice((c.requires_grad, c.requires_grad, c.frozen or c.requires_grad))
    if not table:
        return data
    name = rng.choice(sorted(table))
    how = rng.choice(
        ("shape", "dtype", "missing", "renamed", "moved", "moments", "numbers", "special")
    )
    if table[name].dtype != TensorProto.FLOAT:
        return data  # already damaged
    notes.append(f"{how} of {name}")
    array = np.frombuffer(table[name].bytes(), np.float32).reshape(table[name].shape)
    if how == "shape":
        table[name] = rng.choice(
            (
                array.reshape(-1)[:1],
                array.reshape(-1),
                array[None],
                np.zeros(0, "f4"),
                np.zeros((), "f4"),
                np.zeros((1 << 16, 3), "f4"),
            )
        )
    elif how == "dtype":
        table[name] = array.astype(rng.choice(("i8", "i4", "f8", "f2", "u1", "?")))
    elif how == "missing":
        del table[name]
    elif how == "renamed":
        table[
            rng.choice(
                ("x", "labels", "loss", "lazy_reset_grad", "", f"gradient/{name}", "training/step")
            )
        ] = table.pop(name)
    elif how == "moved":
        (c.frozen if table is c.requires_grad else c.requires_grad)[name] = table.pop(name)
    elif how == "special":
        table[name] = np.full_like(array, rng.choice((np.nan, np.inf, 3e38)))
    else:
        wrong = rng.choice(
            (array, np.zeros(1, "f4"), array.astype("f8"), np.full_like(array, np.nan))
        )
        step = rng.choice(NUMBERS) if how == "numbers" else 3
        c.groups = {
            rng.choice(("group0", "x")): OptimizerGroup(
                max(min(step, 2**63 - 1), -(2**63)),
                rng.choice((1e-3, -1.0, 0.0, 1e38)),
                {rng.choice((name, "x")): {"momentum0": wrong, "momentum1": array}},
            )
        }
    out = io.BytesIO()
    try:
        write_checkpoint(c, out)
    except EdgewiseError:
        return data
    return out.getvalue()


# long: one branch for each kind of damage
def damage_model(rng, data: bytes, notes: list) -> bytes:
    """A model with changed nodes, names, types, dimensions, attributes or metadata."""
    try:
        model = onnx.load_from_string(data)
    except Exception:  # noqa: BLE001 - already damaged
        return data
    g = model.graph
    values = [*g.input, *g.output]
    if not g.node or not values:
        return data
    node, value = rng.choice(g.node), rng.choice(values)
    names = (
        [o for n in g.node for o in n.output if o]
        + [v.name for v in values]
        + [t.name for t in g.initializer]
    )
    how = rng.choice(
        (
            "wire",
            "wire",
            "cycle",
            "node",
            "twice",
            "output",
            "no input",
            "no output",
            "dims",
            "rank",
            "type",
            "attribute",
            "operator",
            "initializer",
            "metadata",
            "rename",
            "subgraph",
        )
    )
    notes.append(f"{how} at {node.op_type or 'a node'} or {value.name}")
    if how == "wire" and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice((*names, "", "nowhere"))
    elif how == "cycle" and node.input and node.output:
        node.input[rng.randrange(len(node.input))] = node.output[0]
    elif how == "node":
        g.node.remove(node)
    elif how == "twice":
        g.node.add().CopyFrom(node)
    elif how == "output" and node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice((*names, ""))
    elif how == "no input" and value in g.input:
        g.input.remove(value)
    elif how == "no output" and value in g.output:
        g.output.remove(value)
    elif how == "dims" and value.type.tensor_type.shape.dim:
        rng.choice(value.type.tensor_type.shape.dim).dim_value = max(
            min(rng.choice(NUMBERS), 2**63 - 1), -(2**63)
        )
    elif how == "rank":
        value.type.tensor_type.shape.dim.add().dim_value = rng.choice((0, 1, 3, 1 << 40))
    elif how == "type":
        value.type.tensor_type.elem_type = rng.choice((0, 1, 6, 7, 8, 9, 10, 11, 16, 21, 99))
    elif how == "attribute" and node.attribute:
        a = rng.choice(node.attribute)
        a.i, a.f = (
            max(min(rng.choice(NUMBERS), 2**63 - 1), -(2**63)),
            rng.choice((0.0, -1.0, 1e38, float("nan"))),
        )
        a.s, a.type = (
            rng.choice((b"", b"none", b"mean", b"\xff")),
            rng.choice((a.type, a.type, 1, 2, 3, 7)),
        )
    elif how == "operator":
        node.op_type, node.domain = rng.choice(
            (
                ("Nothing", ""),
                ("AdamWOptimizer", "com.microsoft"),
                ("YieldOp", "com.microsoft"),
                ("Loop", ""),
                ("If", ""),
                ("Relu", ""),
                ("Reshape", ""),
                ("Expand", ""),
            )
        )
    elif how == "initializer" and g.initializer:
        t = rng.choice(g.initializer)
        if rng.random() < 0.5 and t.dims:
            t.dims[rng.randrange(len(t.dims))] = rng.choice((0, 1, -1, 1 << 20, 1 << 40))
        else:
            t.CopyFrom(
                numpy_helper.from_array(np.array([1 << 40, -1, 3][: rng.randrange(4)]), t.name)
            )
    elif how == "metadata":
        for p in model.metadata_props:
            if p.key == "edgewise.training" and rng.random() < 0.9:
                text = p.value
                try:
                    text = (
                        json.dumps(damage_json(rng, json.loads(text)))
                        .encode("utf-8", "replace")
                        .decode()
                    )
                except ValueError:
                    pass
                p.value = text
            else:
                p.key = rng.choice(("edgewise.training", "x", ""))
    elif how == "rename":
        value.name = rng.choice((*names, "", "nowhere", "lazy_reset_grad", "loss", "labels"))
    else:
        body = helper.make_graph(
            [helper.make_node("Identity", [rng.choice(names)], ["inner"])],
            "body",
            [],
            [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)],
        )
        at = rng.randrange(len(g.node) + 1)
        node = helper.make_node(
            "If", [rng.choice(names)], [f"branch{at}"], then_branch=body, else_branch=body
        )
        g.node.insert(at, node)
        rng.choice(g.node).input.append(f"branch{at}")
    try:
        return model.SerializeToString()
    except Exception:  # noqa: BLE001 - a model that cannot be serialized is not tested
        return data


def feeds_for(files: dict) -> dict:
    """Returns {input: array} for a batch of the undamaged training model."""
    from edgewise.extras.onnxruntime_training.artifact_files.models import read_training_model
    from edgewise.extras.onnxruntime_training.artifact_files.odtc import read_checkpoint
    from edgewise.onnx import as_source

    inputs = read_training_model(
        as_source(files["train"], "training_model.onnx"),
        read_checkpoint(files["checkpoint"]).parameters,
    ).graph.input_names()
    r = np.random.default_rng(1)
    sizes = {i.name: [d if isinstance(d, int) else 3 for d in i.shape] for i in inputs}
    return {
        i.name: (
            r.standard_normal(sizes[i.name]).astype(np.float32)
            if i.dtype == 1
            else r.integers(0, 3, sizes[i.name])
        )
        for i in inputs
    }


def train(files: dict, feeds: dict) -> list:
    """Runs two steps, an evaluation, a checkpoint and an export in Python; returns the losses."""
    from edgewise.training.api import CheckpointState, Module, Optimizer

    state = CheckpointState.load_checkpoint(files["checkpoint"])
    module = Module(files["train"], state, files["eval"])
    try:
        optimizer = Optimizer(files["optimizer"], module)
        losses = []
        for _ in range(2):
            out = module(*[feeds[n] for n in module.input_names() if n in feeds])
            losses.append(
                float(np.ravel(np.asarray(out[0] if isinstance(out, list) else out, np.float64))[0])
            )
            optimizer.step()
            module.lazy_reset_grad()
        module.eval()
        module(*[feeds[n] for n in module.input_names() if n in feeds])
        CheckpointState.save_checkpoint(state, io.BytesIO(), include_optimizer_state=True)
        module.export_model_for_inferencing(io.BytesIO(), module.output_names()[-1:])
        return losses
    finally:
        for session in module._sessions.values():
            session.free()


def train_in_page(files: dict, feeds: dict) -> list:
    """Does the same with a page's TrainingSession."""
    from engines.page_session import PageTraining

    session = PageTraining(**files)
    losses = []
    for _ in range(2):
        out = session.step(
            "train", {n: feeds[n] for n in session.info["train"]["inputs"] if n in feeds}
        )
        losses.append(float(np.ravel(out[session.info["train"]["outputs"][0]])[0]))
        session.update()
        session.reset()
    session.step("eval", {n: feeds[n] for n in session.info["eval"]["inputs"] if n in feeds})
    session.save()
    session.export(session.info["eval"]["outputs"][-1:])
    return losses
