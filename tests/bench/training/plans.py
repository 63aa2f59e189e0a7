"""Training plans of Edgewise as files."""

from __future__ import annotations

import json

from .models import batch


def optimizer():
    from edgewise.training.optimizers import AdamW

    return AdamW(lr=1e-3, weight_decay=0.0, form="ort")


def program(path, target=None):
    """The training program of the model, compiled from the same file as for all contenders. target:
    of targets.target_named, by default the processor.
    """
    from edgewise.compiler.targets import CPU
    from edgewise.onnx import FileSource, read_model
    from edgewise.training.losses import CrossEntropyLoss
    from edgewise.training.program import Program

    name = path.stem
    feed, x, _ = batch(name)
    return Program(
        read_model(FileSource(str(path))),
        {feed: list(x.shape)},
        loss=CrossEntropyLoss(),
        optimizer=optimizer(),
        trainable=json.loads(path.with_suffix(".json").read_text())["trained"],
        target=target or CPU,
    )


def write_plan(program, target, about):
    """Writes the plan of a step with the initial weights and states to TARGET.plan, and a
    description of both to TARGET.json. Returns the Plan.
    """
    from edgewise.training.session import TrainingSession

    plan, session, slots = program.plan("train"), TrainingSession(program), []
    with open(target.with_suffix(".plan"), "wb") as f:
        f.write(plan.data)
        for slot in plan.slots:
            slots.append({"name": slot.name, "kind": slot.kind, "bytes": slot.nbytes})
            state = program.states.get(slot.name) if slot.kind == "state" else None
            data = (
                slot.tensor.bytes()
                if slot.kind == "weight"
                else (
                    session.read(slot.name)
                    if state is not None and state.initial != ("fill", 0)
                    else None
                )
            )
            if data is not None:
                f.write(bytes(-f.tell() % 64))
                slots[-1]["at"] = f.tell()
                f.write(data)
    session.free()
    target.with_suffix(".json").write_text(
        json.dumps({**about, "plan": [0, len(plan.data)], "slots": slots})
    )
    return plan
