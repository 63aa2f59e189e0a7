"""The compiler's side of a page's `TrainingSession` (web/src/worker/training/artifacts.ts).

ONNX Runtime Training's artifacts are compiled to plans and weights, which the page runs without
Python. It calls again for batches of other shapes, checkpoints and exports.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from ....compiler.declare.dtypes import BFLOAT16, CODE, FLOAT, FLOAT16, NAME, bytes_for, pack
from ....compiler.ir import Tensor
from ....compiler.onnx import read_model
from ....compiler.onnx.source import Source
from ....compiler.plan import Plan
from ....compiler.plan.notes import NOTES, add_notes
from ....compiler.targets import CPU, Target, target_named
from ....compiler.training.export import export_inference, export_lora
from ....compiler.training.language_model import causal_lm_inputs
from ....compiler.training.optimizers import Optimizer
from ....compiler.training.peft import CONFIG, WEIGHTS, load_adapter
from ....compiler.training.program import Program
from ....compiler.training.state_plans import State
from ....errors import InputError
from ....host.training.session import TrainingSession
from .models import GROUP, optimizer_of_model, read_training_model, saved_optimizer
from .odtc import Checkpoint, OptimizerGroup, read_checkpoint, write_checkpoint
from .odtc.checkpoint import Storable

MOMENTS = (("momentum0", "exp_avg"), ("momentum1", "exp_avg_sq"))
_artifacts: Any = None  # the _Artifacts of the session; a page's Python serves one


class _Artifacts:
    """The artifacts of a session.

    Args:
        files: {"checkpoint", "train", "eval", "optimizer": Source}; the last two are optional.
        target: device that plans are compiled for.

    Raises:
        InputError: the checkpoint is nominal. ModelError: a file is damaged.
    """

    def __init__(self, files: Mapping[str, Source], target: Target = CPU) -> None:
        self.files, self.checkpoint = files, read_checkpoint(files["checkpoint"])
        self.target = target
        if self.checkpoint.nominal:
            raise InputError(
                "it is a nominal checkpoint: its parameters have no values",
                "checkpointState",
                "Give a whole one.",
            )
        parameters = self.checkpoint.parameters
        self.models = {
            kind: read_training_model(files[kind], parameters)
            for kind in ("train", "eval")
            if kind in files
        }
        self.rule: Optimizer | None = None
        self.norm: float | None = None
        if "optimizer" in files:
            self.rule, self.norm = optimizer_of_model(files["optimizer"])
        self.group = saved_optimizer(self.checkpoint)
        self.states: dict[str, State] = {}

    def describe(self) -> dict[str, Any]:
        """Inputs, outputs, parameters and learning rate: ArtifactsInfo of web/src/protocol."""
        group = self.group
        trainable = self.models["train"].trainable
        order = [*trainable, *(n for n in self.checkpoint.parameters if n not in trainable)]
        rate = self.rule.lr if self.rule is not None else 0.0
        return {
            **{kind: {"inputs": m.inputs, "outputs": m.outputs} for kind, m in self.models.items()},
            "optimizer": self.rule is not None,
            "learning_rate": (
                group.initial_learning_rate
                if group is not None and group.initial_learning_rate
                else rate
            ),
            "parameters": [
                {
                    "name": n,
                    "dtype": NAME[_held(t)],
                    "shape": list(t.shape),
                    "bytes": bytes_for(_held(t), math.prod(t.shape)),
                    "trainable": n in trainable,
                }
                for n, t in ((n, self.checkpoint.parameters[n]) for n in order)
            ],
        }

    def read(self, name: str) -> bytes:
        """The bytes of a parameter in the checkpoint; halves are converted to float32."""
        t = self.checkpoint.parameters[name]
        return bytes(t.bytes()) if _held(t) == t.dtype else pack(_held(t), t.numbers())

    def set(self, values: Mapping[str, Source]) -> None:
        """Sets parameters before the first step. values: {name: Source}."""
        self.checkpoint.requires_grad, self.checkpoint.frozen = self.tensors(values)
        for model in self.models.values():
            for name, t in self.checkpoint.parameters.items():
                if name in model.graph.constants:
                    model.graph.constants[name] = Tensor(
                        name, t.dtype, t.shape, t.source, t.offset, t.nbytes, t.data
                    )

    def program(
        self,
        kind: str,
        feeds: Mapping[str, tuple[str, Sequence[int]]],
        have: Collection[str],
        first: bool,
    ) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Compiles the plans for batches of some shapes.

        Args:
            kind: "train" or "eval".
            feeds: {input: (dtype name, shape)}.
            have: names of the weights that the page already has.
            first: whether the page has no states yet.

        Returns:
            (description of plans, weights and states; {file: bytes})
        """
        program = self._make(kind, feeds)
        if kind == "eval":
            kinds = ["evaluate"]
        elif first:
            kinds = ["accumulate", *(["update"] if self.rule is not None else []), "initialize"]
        else:
            kinds = ["accumulate"]
        plans = {k: program.plan(k) for k in kinds}
        weights, blobs = _weights(plans, have)
        blobs |= {f"plan/{k}": plan.data for k, plan in plans.items()}
        blobs[NOTES] = add_notes(None, {f"plan/{k}": plan.notes for k, plan in plans.items()})
        moments, moment_blobs = self._moments(program)
        blobs |= moment_blobs
        self.states |= program.states
        described = {
            "plans": {
                k: {
                    "file": f"plan/{k}",
                    "slots": [s.describe() for s in p.slots],
                    "arena_bytes": p.arena_bytes,
                }
                for k, p in plans.items()
            },
            "weights": weights,
            "states": program.describe_states(),
            "moments": moments,
            "step": self.group.step if self.group is not None else 0,
        }
        return described, blobs

    def _make(self, kind: str, feeds: Mapping[str, tuple[str, Sequence[int]]]) -> Program:
        """The program of the training or evaluation model for some shapes."""
        model, train = self.models[kind], self.models["train"]
        more: dict[str, Any] = {"optimizer": self.rule} if self.rule is not None else {}
        return Program(
            model.graph,
            {n: [int(d) for d in shape] for n, (_, shape) in feeds.items()},
            dtypes={n: CODE[t] for n, (t, _) in feeds.items()},
            loss=f"output:{model.outputs[0]}",
            trainable=train.trainable,
            outputs=model.outputs[1:],
            max_grad_norm=self.norm,
            batch_norm=train.batch_norm,
            target=self.target,
            **more,
        )

    def _moments(self, program: Program) -> tuple[dict[str, str], dict[str, bytes]]:
        """({state: file}, {file: bytes}) of the checkpoint's moments that the program has."""
        moments: dict[str, str] = {}
        blobs: dict[str, bytes] = {}
        for name, kept in (self.group.momentums if self.group is not None else {}).items():
            for key, suffix in MOMENTS:
                state = f"optimizer/{name}/{suffix}"
                if key in kept and state in program.states:
                    moments[state] = f"state/{state}"
                    blobs[f"state/{state}"] = bytes(kept[key].bytes())
        return moments, blobs

    def tensors(
        self, states: Mapping[str, Source]
    ) -> tuple[dict[str, Storable], dict[str, Storable]]:
        """(trained, frozen) parameters of the checkpoint, with the values of the page's states.

        Args:
            states: {name: Source}.
        """

        def now(name: str, t: Storable) -> Storable:
            if name not in states:
                return t
            data = states[name].read(0, states[name].size)
            if len(data) != 4 * math.prod(t.shape):
                raise InputError(
                    f"{len(data)} bytes for {list(t.shape)}",
                    f"parameter '{name}'",
                    "This is a bug in Edgewise; please report it.",
                )
            return Tensor(name, _held(t), tuple(t.shape), None, 0, len(data), bytes(data))

        return {n: now(n, t) for n, t in self.checkpoint.requires_grad.items()}, {
            n: now(n, t) for n, t in self.checkpoint.frozen.items()
        }

    def save(
        self, states: Mapping[str, Source], step: int, rate: float, with_optimizer: bool
    ) -> bytes:
        """The bytes of a checkpoint.

        Args:
            states: {name: Source} of the page.
            step: updates made.
            rate: learning rate.
            with_optimizer: whether to store the optimizer's states.
        """
        trained, frozen = self.tensors(states)
        out = Checkpoint(trained, frozen, {}, dict(self.checkpoint.properties))
        if with_optimizer and self.rule is not None:
            moments = {}
            for name in self.models["train"].trainable:
                kept = {}
                for key, suffix in MOMENTS:
                    s = self.states.get(state := f"optimizer/{name}/{suffix}")
                    if s is not None and state in states:
                        data = bytes(states[state].read(0, states[state].size))
                        kept[key] = Tensor(key, s.dtype, tuple(s.shape), None, 0, len(data), data)
                if kept:
                    moments[name] = kept
            out.groups = {GROUP: OptimizerGroup(int(step), float(rate), moments)}
        return cast(bytes, write_checkpoint(out, None))

    def export(self, states: Mapping[str, Source], outputs: Sequence[str]) -> bytes:
        """The evaluation model with the page's parameters, as an ONNX file with these outputs."""
        if "eval" not in self.files:
            raise InputError(
                "there is no evaluation model", "exportModel", "Pass evalModel to create."
            )
        trained, frozen = self.tensors(states)
        buffers = {
            n: (s.dtype, s.shape, bytes(states[n].read(0, states[n].size)))
            for n, s in self.states.items()
            if s.kind == "buffer" and n in states
        }
        return cast(
            bytes,
            export_inference(
                self.files["eval"],
                {n: (t.dtype, t.shape, bytes(t.bytes())) for n, t in {**trained, **frozen}.items()},
                buffers,
                outputs,
                None,
            ),
        )


def _weights(
    plans: Mapping[str, Plan], have: Collection[str]
) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """(description, {"weights": bytes}) of the plans' weights, except those named in `have`."""
    weights: dict[str, dict[str, Any]] = {}
    data = bytearray()
    for plan in plans.values():
        for s in plan.slots:
            if s.kind == "weight" and s.name not in have and s.name not in weights:
                weights[s.name] = {
                    "name": s.name,
                    "file": "weights",
                    "offset": len(data),
                    "bytes": s.nbytes,
                }
                data += bytes(cast(Tensor, s.tensor).bytes()) + bytes(-s.nbytes % 64)
    return list(weights.values()), {"weights": bytes(data)}


def _held(t: Storable) -> int:
    """The element type of a parameter in a page: float32 if the file has float16 or bfloat16."""
    return FLOAT if t.dtype in (FLOAT16, BFLOAT16) else t.dtype


def merged(files: Mapping[str, Source], model_file: str) -> bytes:
    """A language model's .onnx file with an adapter merged into its weights.

    Args:
        files: of the model, and the two files of the adapter under PEFT's names.
        model_file: name of the .onnx file.

    Raises:
        InputError: the adapter was made for another model.
    """
    adapter = load_adapter({name: files[name] for name in (CONFIG, WEIGHTS)})
    graph = read_model(files[model_file])
    program = Program(graph, **causal_lm_inputs(graph, 1, 8), lora=adapter.config, trainable=[])
    session = TrainingSession(program)
    try:
        session.initialize("evaluate")
        states = {}
        for module, (a, b) in [*adapter.lora.items(), *adapter.embeddings.items()]:
            ends = (
                (".lora_embedding_A", ".lora_embedding_B")
                if module in adapter.embeddings
                else (".lora_A.weight", ".lora_B.weight")
            )
            for end, t in zip(ends, (a, b)):
                state = program.states.get(module + end)
                if state is None or list(t.shape) != list(state.shape):
                    raise InputError(
                        "the model has no such layer",
                        f"adapter of '{module}'",
                        "It was made for another model.",
                    )
                data = bytes(t.bytes())
                session.write(state.name, data)
                states[state.name] = (FLOAT, list(t.shape), data)
        weights = {
            n: (graph.constants[n].dtype, graph.constants[n].shape, data)
            for n, data in session.merged().items()
        }
    finally:
        session.free()
    return cast(bytes, export_lora(graph.source, program.lora_layers, states, weights, None))


def call(files: Mapping[str, Source], options: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    """Answers a call of a page.

    Args:
        files: {name: Source}.
        options: "call": "merged", "open", "program", "save", "read" or "export"; and the arguments
            of that function. Those of "open" are "target": name of a device; default: "cpu".

    Returns:
        (JSON, {file name: bytes})
    """
    global _artifacts
    what = options["call"]
    if what == "merged":
        return "{}", {"model.onnx": merged(files, options["model_file"])}
    if what == "open":
        _artifacts = _Artifacts(files, target_named(options.get("target", "cpu")))
        return json.dumps(_artifacts.describe()), {}
    if what == "program":
        _artifacts.set(files)
        described, blobs = _artifacts.program(
            options["kind"], options["feeds"], set(options["have"]), options["first"]
        )
        return json.dumps(described), blobs
    if what == "save":
        return "{}", {
            "checkpoint": _artifacts.save(
                files, options["step"], options["rate"], options["with_optimizer"]
            )
        }
    if what == "read":
        return "{}", {n: _artifacts.read(n) for n in options["names"]}
    return "{}", {"model.onnx": _artifacts.export(files, list(options["outputs"]))}


__all__ = ["call"]
