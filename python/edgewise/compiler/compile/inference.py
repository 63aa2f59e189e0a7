"""Packages of task "inference": any graph, a plan for each set of input shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple
from typing import Any, cast

from ...errors import InputError
from ...logic.manifest.schema import DeclaredValue, Dim, Inference, InferencePlan, Metadata
from ...model_metadata import NO_VERSION
from ..bind import RUN_SEED, BoundGraph, check_operators, declared_outputs
from ..declare.dtypes import NAME
from ..declare.registers import Rule
from ..declare.symbolic import NotStatic, Sym, registers_of
from ..ir import Graph, Info
from ..onnx import read_model
from ..onnx.dimensions import input_shapes
from ..onnx.source import Source
from ..package import Package
from ..plan import Change, Plan, compile_graph
from ..plan.explain import AHEAD_OF_TIME, explained
from ..targets import CPU, Target
from .model_file import pick_model_file
from .weights import add_plans, new_package


def compile_inference(
    files: Mapping[str, Source],
    dims: Iterable[Mapping[str, int]] = ({},),
    model_file: str | None = None,
    target: Target = CPU,
) -> Package:
    """Compiles any model ahead of time, for pages that run it without Python.

    Args:
        files: {file name: Source}: the .onnx file and its external data.
        dims: for each plan {name of a free dimension: size} (onnx.dimensions).
        model_file: which .onnx file; default: the only one.
        target: device that the plans are for.

    Returns:
        Package of task "inference"

    Raises:
        InputError: a dimension has no size.
        UnsupportedOp: an operator is missing, or a shape depends on data.
    """
    graph = read_model(files[model_file or pick_model_file(files)])
    check_operators(graph)
    package = inference_package(graph, files, target)
    package.manifest["inference"]["metadata"] = describe_metadata(graph)
    other = next((i for i in graph.input_names() if i.kind != "tensor"), None)
    if other is not None:
        raise InputError(
            f"it is a {other.kind}",
            f"input '{other.name}'",
            "Such a model can only be run by Python.",
        )
    dtypes = {i.name: i.dtype for i in graph.input_names()}
    for sizes in dims:
        shapes, needs = input_shapes(graph, sizes)
        if needs:
            example = ",".join(n + "=1" for n in needs if " " not in n) or "NAME=SIZE"
            raise InputError(
                f"it depends on {', '.join(needs)}",
                graph.name or "model",
                f"Give sizes: --dims {example}",
            )
        with explained(AHEAD_OF_TIME, graph.name or "model"):
            add_inference_plan(package, graph, shapes, dtypes, target=target)
    return package


def inference_package(graph: Graph, files: Mapping[str, Source], target: Target = CPU) -> Package:
    """A package of task "inference" without plans.

    Args:
        graph: the model.
        files: {file name: Source} of the model.
        target: device that its plans are for.
    """
    inference: Inference = {
        "inputs": describe_values(graph.input_names()),
        "outputs": describe_values(declared_outputs(graph)),
        "plans": [],
    }
    package = new_package("inference", {"inference": inference}, {}, files, target)
    package.graph = graph
    return package


def add_inference_plan(
    package: Package,
    graph: Graph,
    shapes: Mapping[str, Sequence[int | Sym]],
    dtypes: Mapping[str, int],
    outputs: Sequence[str] | None = None,
    known: Mapping[str, Sequence[Any]] | None = None,
    file: str | None = None,
    target: Target = CPU,
    register: tuple[int, int] | None = None,
    transform: Change | None = None,
    finish: Change | None = None,
) -> InferencePlan:
    """Compiles a graph for inputs of these shapes, and puts the plan into a package.

    Args:
        package: of task "inference".
        graph: the model.
        shapes, dtypes: of the inputs. With `register`, dimensions may be Syms of register 0;
            without it, lengths of Registers.
        outputs: names to compute; default: all.
        known: {value name: flat numbers} that are fixed.
        file: name of the part; default: by the number of plans so far.
        target: device that the plan is for.
        register: range of the length that Syms in the shapes follow; None: they are fixed.
        transform, finish: as of plan.compile_graph; transform may add inputs and change outputs.

    Returns:
        the plan's description in the manifest: file, inputs {name: [type, shape]}, outputs {name:
        [slot, type, shape, bytes]}, slots, and where they are not empty
        register, registers: see described_registers;
        passed {name of an output: name of an input}: outputs that are inputs (a decoder's cross
        attention caches): the plan does not compute them, the host gives back what was fed;
        seed: name of an input slot, int64 [1], in which the host puts another seed before each
        run, for random numbers

    Raises:
        NeedsValue, NeedsHost, NotStatic: as of plan.compile_graph.
    """
    passed: dict[str, str] = {}
    further = registers_of(shapes.values())
    lengths = [r for r, rule in zip(further.ranges, further.rules) if not rule] if further else []
    if register is not None:
        lengths = [register]

    def change(bound: BoundGraph) -> None:
        if transform is not None:
            transform(bound)
        passed.update(bound.take_passed())

    plan, bound = compile_graph(
        graph,
        shapes,
        dtypes,
        known,
        outputs=list(outputs or (o.name for o in graph.outputs)),
        transform=change,
        finish=finish,
        run_seed=True,
        jumps=target.jumps,
        registers=[(f"length{i or ''}", *ends) for i, ends in enumerate(lengths)],
        target=target,
    )
    if transform is not None:
        new = {n: v for n, v in bound.inputs.items() if n not in shapes and n != RUN_SEED}
        shapes = {**shapes, **{n: v.shape for n, v in new.items()}}
        dtypes = {**dtypes, **{n: v.dtype for n, v in new.items()}}
    described = describe_plan(package, plan, bound, list(bound.outputs), shapes, dtypes, file)
    if lengths:
        described["register"] = lengths[0]
    if passed:
        described["passed"] = passed
    return described


def describe_plan(
    package: Package,
    plan: Plan,
    bound: BoundGraph,
    names: Iterable[str],
    shapes: Mapping[str, Sequence[int | Sym]],
    dtypes: Mapping[str, int],
    file: str | None = None,
) -> InferencePlan:
    """Puts a plan into a package and its manifest.

    Args:
        package: of task "inference".
        plan: the plan.
        bound: the graph that it was made of.
        names: the outputs that it computes.
        shapes, dtypes: of the inputs.
        file: name of the part; default: by the number of plans so far.

    Returns:
        the plan's description in the manifest (see add_inference_plan)
    """
    plans = package.manifest["inference"]["plans"]
    file = file or f"plan/{len(plans)}"
    add_plans(package, [(file, plan)])
    slots = {s.name: s.nbytes for s in plan.slots if s.kind == "output"}
    out: dict[str, tuple[str, str, list[Dim], int]] = {}
    for name in names:
        slot, value = name if name in slots else name + "~output", bound.outputs[name]
        out[name] = (slot, NAME[value.dtype], described_shape(value.shape), slots[slot])
    described: InferencePlan = {
        "file": file,
        "inputs": {n: (NAME[dtypes[n]], described_shape(shapes[n])) for n in shapes},
        "outputs": out,
        "slots": [s.describe() for s in plan.slots],
    }
    registers = described_registers([*shapes.values(), *(bound.outputs[n].shape for n in out)])
    if registers:
        described["registers"] = registers
    if any(s.kind == "input" and s.name == RUN_SEED for s in plan.slots):
        described["seed"] = RUN_SEED
    plans.append(described)
    return described


# ---- descriptions
def describe_values(infos: Iterable[Info]) -> list[DeclaredValue]:
    """Inputs or outputs of a graph for a manifest: [{name, type, dtype, shape}].

    shape: sizes, names of free dimensions, None; None: unknown rank. What is not a tensor also has
    `elem` (an element of a sequence or optional, a map's values), a map also its `key` type.
    """
    return [_describe_value(i) for i in infos]


def describe_metadata(graph: Graph) -> Metadata:
    """The fields of a model's ModelMetadata that are given, for a manifest.

    `version` is a text, since it may be greater than JavaScript's integers.
    """
    about = graph.about
    version = "" if about.version == NO_VERSION else str(about.version)
    fields = {**asdict(about), "version": version}
    return cast("Metadata", {name: text for name, text in fields.items() if text})


def _describe_value(info: Info) -> DeclaredValue:
    shape: list[int | str | None] | None = None
    if info.shape is not None:
        shape = [d if isinstance(d, (int, str)) else None for d in info.shape]
    described: DeclaredValue = {
        "name": info.name or "element",
        "type": info.kind,
        "dtype": NAME.get(info.dtype, str(info.dtype)),
        "shape": shape,
    }
    if info.elem is not None:
        described["elem"] = _describe_value(info.elem)
    if info.kind == "map":
        described["key"] = NAME.get(info.key_type, str(info.key_type))
    return described


def described_shape(shape: Sequence[int | Sym]) -> list[Dim]:
    """A shape for a manifest; a dimension that follows register 0 is [scale, add], one that follows
    another is [scale, add, register].
    """
    return [
        [d.scale, d.add, *([d.reg] if d.reg else [])] if isinstance(d, Sym) else d for d in shape
    ]


def described_registers(shapes: Iterable[Sequence[int | Sym]]) -> list[list[int]]:
    """The registers 1, 2, ... up to the last that shapes follow: of a length [lowest, highest], of
    a number that follows from others the numbers of a Rule, those of 0 where shapes do not need it.

    Raises:
        NotStatic: one has a negative factor, which manifests may not have.
    """
    syms = [d for shape in shapes for d in shape if isinstance(d, Sym)]
    last = max(syms, key=lambda d: d.reg, default=None)
    if last is None or not last.reg or last.registers is None:
        return []
    rules: list[Rule | None] = last.registers.rules[: last.reg + 1]
    ranges = last.registers.ranges[1:]
    needed = {d.reg for d in syms}
    for i in range(last.reg, 0, -1):
        rule = rules[i]
        if rule is None:
            continue
        if i not in needed:
            rules[i] = Rule(0, 0, 0, 0, 0, 0, 1)
            continue
        if min(rule.product, rule.of_a, rule.of_b) < 0:
            raise NotStatic("an output of a length that grows and shrinks with another")
        needed |= {rule.a, rule.b}
    entries = zip(ranges, rules[1:])
    return [list(astuple(rule) if rule else ends) for ends, rule in entries]
