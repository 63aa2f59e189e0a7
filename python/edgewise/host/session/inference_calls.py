"""Calls of a page's InferenceSession to Python: to split the model, to compile a part for given
shapes, and to run a node that the page cannot run. The page runs everything else.

The calls arrive in the compiler's worker (web/src/worker/compiler/index.ts);
web/src/worker/inference/python.ts sends them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...compiler.bind import check_operators, declared_outputs
from ...compiler.compile import (
    CONSTANTS,
    describe_metadata,
    describe_plan,
    describe_values,
    described_shape,
    inference_package,
)
from ...compiler.declare.dtypes import CODE, NAME, STRING, bytes_for, unpack
from ...compiler.declare.symbolic import product
from ...compiler.declare.values import NOTHING, Map, Nothing, RunTensor, Sequence, StringTensor
from ...compiler.onnx import read_model
from ...compiler.plan import compile_graph
from ...compiler.plan.notes import NOTES
from ...compiler.targets import CPU, Target, target_named, target_of
from ...errors import InputError
from ..profile import Watch
from .budget import Budget
from .compiled import Known
from .described import Programs, beyond
from .direct import DirectRuns
from .driver import Driver
from .memory import Pool
from .split_graph import Scope, Split
from .weights import WeightStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence as Items

    from ...compiler.bind import BoundGraph
    from ...compiler.ir import Graph
    from ...compiler.onnx import Source
    from ...compiler.plan import Plan
    from ...compiler.plan.builder import Register
    from ...logic.manifest.schema import Weight
    from .feeds import RunValue
    from .split_graph import Part

    # What a call returns: an object for JSON, and {name: bytes}.
    Answer = tuple[dict[str, Any], dict[str, bytes]]

_models: dict[int, _Model] = {}  # by the numbers that the page chose


class _Wanted(Exception):
    """A shape depends on numbers that the page has not sent."""


class _Fed(RunTensor):
    """A tensor in the page. It has numbers if the page sent them."""

    @property
    def numbers(self) -> list[Any]:
        if self.data is None:
            raise _Wanted
        if self._numbers is None:
            self._numbers = unpack(self.dtype, self.data, self.count)
        return self._numbers


class _Compiling:
    """Replaces the Driver when a part is compiled for the page.

    Attributes:
        session: itself: it also has MAX_PLANS.
        runs: number of the page's run.
        made: the latest plan, and the graph that it was compiled from.
        budget: limits of one compilation; the page checks those of the run.
        target: the page's device.
    """

    MAX_PLANS = 0
    made: Any

    def __init__(self, target: Target) -> None:
        self.session, self.runs, self.made, self.budget = (self, 0, None, Budget())
        self.target = target

    def compile_part(
        self,
        graph: Graph,
        tensors: Mapping[str, RunTensor],
        known: Mapping[str, Items[Any]],
        names: Items[str],
        registers: Items[Register] = (),
    ) -> tuple[Known, None]:
        """See compiled.compile_part. The plan is not loaded."""
        passed = Known()
        shapes = {n: list(v.shape) for n, v in tensors.items()}
        dtypes = {n: v.dtype for n, v in tensors.items()}
        self.made = compile_graph(
            graph,
            shapes,
            dtypes,
            known,
            outputs=names,
            transform=passed.take,
            run_seed=True,
            registers=registers,
            max_bytes=self.budget.max_arena_bytes,
            target=self.target,
        )
        return passed, None


class _Session:
    """The session of nodes that only Python can run.

    Its engine has the inputs and outputs of these nodes in memory, but not the model.
    """

    MAX_PLANS = 32

    def __init__(self) -> None:
        from ..engine import Ends, default_engine

        self.engine = default_engine()
        self.device = self.engine.device
        self.target = target_of(self.device)
        self.store, self.watch, self.ends, self.budget = (
            WeightStore(self.device),
            Watch(),
            Ends(),
            Budget(),
        )
        # Plans clear `direct` when they are freed. It is not used otherwise.
        self.pool, self.direct = Pool(self.device, self.budget), DirectRuns(self)  # type: ignore


class _Model:
    """A model that the page has opened.

    Args:
        files: {name: Source} of the model's files.
        name: of the .onnx file.
        target: the page's device.

    Attributes:
        package: a package without plans. Its manifest lists the weights that plans use.
        sent: number of weights in this list that the page knows.
    """

    driver: Driver | None

    def __init__(self, files: Mapping[str, Source], name: str, target: Target = CPU) -> None:
        self.graph = read_model(files[name])
        check_operators(self.graph)
        self.compiling, self.driver = _Compiling(target), None
        self.package = inference_package(self.graph, files, self.compiling.target)
        self.programs = Programs(self.graph, self.package)
        self.sent = 0

    def fresh_weights(self) -> list[Weight]:
        """The descriptions of weights that were not sent to the page yet."""
        fresh = self.package.manifest["weights"][self.sent :]
        self.sent += len(fresh)
        return fresh

    def program(self, origin: dict[str, Any]) -> Answer:
        """Describes a program that the page will run. origin: see described.Programs.program."""
        return {
            **self.programs.describe(self.programs.program(origin)),
            "weights": self.fresh_weights(),
        }, {}

    def part(
        self,
        program: str,
        part: str,
        values: dict[str, Any],
        done: list[int],
        run: int,
        file: str,
        fixed: bool = False,
    ) -> Answer:
        """Compiles a part.

        Args:
            program, part: names.
            values: {name of an input: [type, shape], or [type, shape, its bytes in hexadecimal
                digits], or None if it is not a tensor of numbers}.
            done: indices of the program's nodes that have run.
            run: number of the run.
            file: name of the plan.
            fixed: whether the page could not load the last plan, which was for a range of lengths:
                from now on there is a plan for each length of these inputs.

        Returns:
            {"plan": description of the plan with `passed` and `numbers`, "needs", "beyond",
            "askers", "weights"}; or {"needs": indices of inputs, "beyond"}: the call must be
            repeated with their bytes;
            or {"split": the program, which was split differently, "rest": the units that have not
            run, "weights"}
        """
        p, one = self.programs.programs[program], self.programs.part(program, part)
        fed = {
            n: v and _Fed(CODE[v[0]], v[1], bytes.fromhex(v[2]) if len(v) > 2 else None)
            for n, v in values.items()
        }
        if fixed and one.latest is not None:
            one.fix(one.latest)
        self.compiling.runs = run
        self.compiling.budget.start()
        index = {id(n): i for i, n in enumerate(p.nodes)}
        try:
            other = {n for n, v in fed.items() if v is None}
            if other:
                one.not_plain(other)
            passed = one.compile(self.compiling, [fed[n] for n in one.inputs], None)[0][0]
        except _Wanted:
            return {"needs": one.needs, "beyond": beyond(one)}, {}
        except Split:
            p.units = p.split(p.nodes)
            rest = p.split([n for n in p.nodes if index[id(n)] not in done])
            return {
                "split": self.programs.describe(program),
                "rest": self.programs.units(p, rest),
                "weights": self.fresh_weights(),
            }, {}
        plan, bound = self.compiling.made
        self.compiling.made = None
        described, blobs = self._plan(one, plan, bound, fed, file)
        described["passed"] = passed.passed
        described["numbers"] = {
            n: [NAME[v.dtype], list(v.shape), bytes(v.bytes()).hex()]
            for n, v in passed.numbers.items()
        }
        asked = [index[id(n)] for n in one.askers]
        return {
            "plan": described,
            "needs": one.needs,
            "beyond": beyond(one),
            "askers": asked,
            "weights": self.fresh_weights(),
        }, blobs

    def _plan(
        self, part: Part, plan: Plan, bound: BoundGraph, fed: Mapping[str, RunTensor], file: str
    ) -> Answer:
        """The description of a plan, and its bytes."""
        shapes: dict[str, list[Any]]
        names, latest = list(bound.outputs), part.latest
        shapes, dtypes = (
            {n: list(v.shape) for n, v in fed.items()},
            {n: v.dtype for n, v in fed.items()},
        )
        if latest is not None:
            shapes = dict(zip(part.inputs, latest.symbolic()))
        register = {} if latest is None else {"register": [latest.low, latest.high]}
        if not names:  # there is nothing left to compute
            return {
                "inputs": {n: [NAME[dtypes[n]], described_shape(s)] for n, s in shapes.items()},
                "outputs": {},
                "slots": [],
                **register,
            }, {}
        known = len(self.package.manifest["weights"])
        described = describe_plan(self.package, plan, bound, names, shapes, dtypes, file) | register
        manifest, blobs = self.package.manifest, {file: self.package.blobs.pop(file)}
        manifest["inference"]["plans"].clear()
        self.package.labels.pop(file, None)
        blobs[NOTES] = self.package.blobs.pop(NOTES)  # only the notes of this plan
        if any(w["file"] == CONSTANTS for w in manifest["weights"][known:]):
            blobs[CONSTANTS] = self.package.blobs[CONSTANTS]
        return described, blobs

    def node(
        self,
        program: str,
        node: int,
        values: dict[str, Any],
        left: dict[str, int],
        files: Mapping[str, Source],
    ) -> Answer:
        """Runs a node that the page cannot run.

        Args:
            program: name.
            node: index.
            values: {name of a value that it reads: see `_decoded`}.
            left: what remains of the limits of the page's run: {"max_memory_bytes",
                "max_loop_trips", "max_compilations"}.
            files: the bytes of the values.

        Returns:
            {"outputs": {name: see `_encoded`}, "trips", "compilations": their number}
        """
        if self.driver is None:
            session = _Session()
            self.driver = Driver(session, session.budget)
        p = self.programs.programs[program]
        one = p.nodes[node]
        driver = self.driver
        driver.runs, driver.depth = driver.runs + 1, 0
        driver.budget.limit(**left)
        driver.budget.start()
        scope = Scope({n: _decoded(v, files) for n, v in values.items()})
        before = set(scope.values)
        driver.host(p, one, scope)
        blobs: dict[str, bytes] = {}
        outputs = {n: _encoded(v, blobs) for n, v in scope.values.items() if n not in before}
        driver.pool.trim()
        return {
            "outputs": outputs,
            "trips": driver.budget.trips,
            "compilations": driver.budget.compilations,
        }, blobs


def _decoded(v: Any, files: Mapping[str, Source]) -> RunValue:
    """A value that the page sent: {"tensor": [type, shape, file]}, {"strings": [...], "shape"},
    {"sequence": [...]}, {"map": [[key, value], ...], "key", "value"} or None.
    """
    of: Any
    if v is None:
        return NOTHING
    if "tensor" in v:
        dtype, shape, file = v["tensor"]
        code = CODE[dtype]
        data = bytes(files[file].read(0, files[file].size)) if file is not None else b""
        if len(data) != bytes_for(code, product(shape)):
            raise InputError(
                f"{len(data)} bytes for {dtype}{shape}",
                "a value of the page",
                "This is a bug in Edgewise; please report it.",
            )
        return RunTensor(code, shape, data)
    if "strings" in v:
        return StringTensor(v["shape"], v["strings"])
    if "sequence" in v:
        return Sequence(_decoded(x, files) for x in v["sequence"])
    key, value = CODE[v["key"]], CODE[v["value"]]
    of = (
        (lambda x: x)
        if value == STRING
        else float
        if v["value"].startswith(("float", "bfloat"))
        else int
    )
    return Map({(k if key == STRING else int(k)): of(x) for k, x in v["map"]}, key, value)


def _encoded(v: RunValue, blobs: dict[str, bytes]) -> dict[str, Any] | None:
    """The inverse of `_decoded`. The bytes of tensors are added to `blobs`."""
    if isinstance(v, Nothing):
        return None
    if isinstance(v, StringTensor):
        return {"strings": list(v.strings), "shape": v.shape}
    if isinstance(v, Sequence):
        return {"sequence": [_encoded(x, blobs) for x in v]}
    if isinstance(v, Map):
        return {
            "map": [[str(k), str(x)] for k, x in v.items()],
            "key": NAME[v.key_type],
            "value": NAME[v.value_type],
        }
    file = None
    if v.nbytes:
        file = str(len(blobs))
        blobs[file] = bytes(v.bytes())
    return {"tensor": [NAME[v.dtype], v.shape, file]}


def call(files: Mapping[str, Source], options: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    """Handles a call of the page.

    Args:
        files: {name: Source}: for "open" the model's files, for "node" the bytes of tensors.
        options: "call": "open", "program", "part" or "node", "model": number of one of several
            models (default: 0), and the call's arguments. Those of "open" are
            "model_file", "target" (name of one; default: "cpu") and "kept" (descriptions of
            programs from an earlier visit); for the others see the methods of _Model.

    Returns:
        (answer as JSON, {name: bytes})
    """
    what, number = options["call"], options.get("model", 0)
    if what == "open":
        model = _models[number] = _Model(
            files, options["model_file"], target_named(options.get("target", "cpu"))
        )
        for kept in options.get("kept", ()):
            model.programs.restore(kept)
        return (
            json.dumps(
                {
                    "inputs": describe_values(model.graph.input_names()),
                    "outputs": describe_values(declared_outputs(model.graph)),
                    "overridable": describe_values(model.graph.overridable()),
                    "metadata": describe_metadata(model.graph),
                }
            ),
            {},
        )
    if number not in _models:
        raise InputError(
            "no model has been opened",
            "InferenceSession",
            "This is a bug in Edgewise; please report it.",
        )
    model = _models[number]
    if what == "program":
        described, blobs = model.program(options["origin"])
    elif what == "part":
        described, blobs = model.part(
            *(options[k] for k in ("program", "part", "values", "done", "run", "file", "fixed"))
        )
    else:
        described, blobs = model.node(
            options["program"], options["node"], options["values"], options["left"], files
        )
    return json.dumps(described), blobs
